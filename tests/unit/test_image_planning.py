"""Plans of builds: the real catalogue's facts, and what may and may not change a plan."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.images import dockerfile, planning
from tasks.images.catalogue import Catalogue, Engine, Folder, GitContext, load
from tasks.images.planning import BuildPlan, Facts, Request, SourceFacts, ToolFacts, parse_args, plan_build, plan_chain
from tasks.registry.references import RepositoryName, check_tag
from tasks.support.errors import DataError, UsageError
from tasks.support.settings import CHECKOUT
from tests.factory_plan import every_plan

COMMIT, OLDER = "a" * 40, "b" * 40
FACTS = Facts(
    SourceFacts(
        folder=Path("/source"),
        commit=COMMIT,
        version="0.28.0",
        created=datetime(2026, 8, 28, 5, 0, tzinfo=timezone(timedelta(hours=2))),
        url="https://example.test/library",
        ancestors=(OLDER,),
    ),
    ToolFacts(Path("/tool"), "d" * 64),
)
ECR = "public.ecr.aws/q9t5s3a7"
ASCEND = "quay.io/atlas-ci/vllm-ascend"
SWR = "swr.cn-southwest-2.myhuaweicloud.com/modelfoundry/vllm-omni-ci-npu"


@pytest.fixture(scope="module")
def real() -> Catalogue:
    return load()


def plan(catalogue: Catalogue, image: str, **asked: object) -> BuildPlan:
    return plan_build(catalogue, Request(image, **asked), FACTS)  # type: ignore[arg-type]


# image, platform: Dockerfile, target, base without its version, what follows the version, tag
GOLDEN = {
    ("cuda-ci", "linux/amd64"): ("ci", None, "vllm/vllm-openai", "", f"{ECR}/vllm-ci-test-repo:{COMMIT}"),
    ("cuda-release", "linux/amd64"): (
        *("cuda", None, "vllm/vllm-openai", ""),
        f"{ECR}/vllm-omni-release-repo:{COMMIT}-x86_64",
    ),
    ("cuda-release", "linux/arm64"): (
        *("cuda", None, "vllm/vllm-openai", ""),
        f"{ECR}/vllm-omni-release-repo:{COMMIT}-aarch64",
    ),
    ("rocm-ci", "linux/amd64"): ("rocm", "test", "vllm/vllm-openai-rocm", "", f"docker.io/rocm/vllm-omni:{COMMIT}"),
    ("rocm-final", "linux/amd64"): (
        *("rocm", "final", "vllm/vllm-openai-rocm", ""),
        f"docker.io/rocm/vllm-omni:{COMMIT}-final",
    ),
    ("npu-a2-ci", "linux/arm64"): ("npu", "ci", ASCEND, "", f"{SWR}:{COMMIT}"),
    ("npu-a2-release", "linux/arm64"): ("npu", "release", ASCEND, "", f"{SWR}:{COMMIT}-release"),
    ("npu-a3-ci", "linux/arm64"): ("npu", "ci", ASCEND, "-a3", f"{SWR}:{COMMIT}-a3"),
    ("npu-a3-release", "linux/arm64"): ("npu", "release", ASCEND, "-a3", f"{SWR}:{COMMIT}-release-a3"),
}


@pytest.mark.parametrize(("image", "platform"), GOLDEN)
def test_the_real_images_are_what_agents_and_users_know(real: Catalogue, image: str, platform: str) -> None:
    name, target, base, suffix, tag = GOLDEN[image, platform]
    found = plan(real, image, platform=platform)
    version = real.pins.vllm[found.device].version
    assert found.dockerfile == CHECKOUT / "docker" / f"Dockerfile.{name}"
    assert (found.target, found.tags) == (target, (tag,))
    assert found.args["BASE_IMAGE"] == f"{base}:{version}{suffix}"
    assert found.args["VLLM_VERSION"] == version
    assert found.context == Path("/source")


def test_release_builds_use_sixteen_jobs(real: Catalogue) -> None:
    assert plan(real, "cuda-release").args["max_jobs"] == "16"


def test_every_image_plans_for_every_platform(real: Catalogue) -> None:
    plans = every_plan(real, FACTS)
    assert {(found.image, found.platform) for found in plans} == {
        (image.name, platform) for image in real.images.values() for platform in image.platforms
    }
    for found in plans:
        for reference in (*found.tags, *found.index):
            name, _, tag = reference.rpartition(":")
            assert str(RepositoryName.parse(name)) == name == found.repository
            check_tag(tag)
        assert "$" not in "".join((*found.tags, *found.args.values(), *found.cache_from, *found.cache_to))
    assert len({tag for found in plans for tag in found.tags}) == len(plans)


def test_arguments_of_the_catalogue_are_in_the_dockerfile(real: Catalogue) -> None:
    for found in every_plan(real, FACTS):
        if isinstance(found.context, Path):
            assert isinstance(found.dockerfile, Path)
            assert set(found.args) <= set(dockerfile.read(found.dockerfile).arguments), found.image


def test_the_npu_images_are_built_by_the_remote_builder(real: Catalogue) -> None:
    engines = {image.name: image.engine for image in real.images.values()}
    assert {name for name, engine in engines.items() if engine is Engine.BUILDCTL} == {
        name for name in engines if name.startswith("npu-")
    }


def test_xpu_is_built_from_upstreams_own_dockerfile(real: Catalogue) -> None:
    base, tool, image = plan_chain(real, Request("xpu-ci"), FACTS)
    version = real.pins.vllm["xpu"].version
    assert (base.context, base.dockerfile, base.target) == (
        GitContext("https://github.com/vllm-project/vllm.git", version),
        "docker/Dockerfile.xpu",
        "vllm-openai",
    )
    assert base.tags == (f"docker.io/xpu/vllm-omni-ci-base:{version}-{base.recipe}",)
    assert base.reusable
    assert base.local
    assert image.args["BASE_IMAGE"] == base.tags[0]
    assert image.args["TOOL_IMAGE"] == tool.tags[0]
    assert image.args["TRITON_XPU_VERSION"] == real.pins.packages["triton-xpu"]
    assert image.tags == (f"docker.io/xpu/vllm-omni-ci:{COMMIT}",)


def test_the_environment_moves_xpu_and_nothing_else(real: Catalogue) -> None:
    variables = {"VLLM_VERSION": "v9.27.1"}
    base, _, image = plan_chain(real, Request("xpu-ci", variables=variables), FACTS)
    assert isinstance(base.context, GitContext)
    assert (base.context.ref, image.args["VLLM_VERSION"]) == ("v9.27.1", "v9.27.1")
    assert plan(real, "cuda-ci", variables=variables) == plan(real, "cuda-ci")


@pytest.mark.parametrize("branch", ["main", "releases/v0.27", "HEAD", "v0", "a" * 39])
def test_a_branch_is_no_recipe(real: Catalogue, branch: str) -> None:
    with pytest.raises(UsageError, match="a branch would change"):
        plan(real, "xpu-base", variables={"VLLM_VERSION": branch})


@pytest.mark.parametrize("hostile", ["v0.27.0; rm -rf /", "v0.27.0\nv1", "v0.27.0#x", "-o", "v0.27.0 --push"])
def test_a_hostile_version_never_gets_into_a_plan(real: Catalogue, hostile: str) -> None:
    with pytest.raises(UsageError):
        plan(real, "xpu-ci", variables={"VLLM_VERSION": hostile})


def test_the_npu_address_is_replaced_by_the_agents_variables(real: Catalogue) -> None:
    variables = {"IMAGE_REGISTRY": "registry.test/mirror", "IMAGE_NAME": "other"}
    assert plan(real, "npu-a3-ci", variables=variables).tags == (f"registry.test/mirror/other:{COMMIT}-a3",)
    assert plan(real, "npu-a3-ci", variables={"IMAGE_NAME": "other"}).tags == (
        f"{SWR.rpartition('/')[0]}/other:{COMMIT}-a3",
    )
    assert plan(real, "cuda-ci", variables=variables) == plan(real, "cuda-ci")


def test_an_address_of_the_request_wins(real: Catalogue) -> None:
    found = plan(real, "cuda-release", addresses={"staging": "localhost:5000/staging"})
    assert found.tags == (f"localhost:5000/staging:{COMMIT}-x86_64",)
    assert found.index == (f"localhost:5000/staging:{COMMIT}",)


def test_labels_name_the_source_and_its_own_time(real: Catalogue) -> None:
    found = plan(real, "cuda-release")
    assert found.labels == {
        "org.opencontainers.image.revision": COMMIT,
        "org.opencontainers.image.version": "0.28.0",
        "org.opencontainers.image.source": "https://example.test/library",
        "org.opencontainers.image.created": "2026-08-28T03:00:00Z",
        "omni-ci.image": "cuda-release",
        "omni-ci.recipe": found.recipe,
    }
    assert set(plan(real, "tool").labels) == {"omni-ci.image", "omni-ci.recipe"}


def test_a_tag_names_only_what_decides_the_image(real: Catalogue) -> None:
    """A recipe's tag must not change with the commit, or the base would be built again for each."""
    other = dataclasses.replace(FACTS, source=dataclasses.replace(FACTS.source, commit=OLDER, version="1"))
    for image in ("xpu-base", "tool"):
        assert plan_build(real, Request(image), other).tags == plan(real, image).tags


RECIPES = {
    "another version": {"variables": {"VLLM_VERSION": "v9.27.1"}},
    "an argument": {"args": {"GIT_REPO_CHECK": "1"}},
}


@pytest.mark.parametrize("name", RECIPES)
def test_whatever_changes_the_recipe_changes_the_tag(real: Catalogue, name: str) -> None:
    changed, usual = plan(real, "xpu-base", **RECIPES[name]), plan(real, "xpu-base")
    assert changed.recipe != usual.recipe
    assert changed.tags != usual.tags


def test_another_dockerfile_target_or_tool_is_another_recipe(real: Catalogue, tmp_path: Path) -> None:
    usual = plan(real, "tool").recipe
    other_tool = dataclasses.replace(FACTS, tool=ToolFacts(Path("/tool"), "e" * 64))
    assert plan_build(real, Request("tool"), other_tool).recipe != usual
    assert plan(real, "tool", platform="linux/arm64").recipe != usual
    changed = dict(real.images)
    changed["xpu-base"] = dataclasses.replace(changed["xpu-base"], target="vllm-base")
    assert plan(dataclasses.replace(real, images=changed), "xpu-base").recipe != plan(real, "xpu-base").recipe


def test_one_byte_of_a_dockerfile_is_another_recipe(
    real: Catalogue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = plan(real, "tool").recipe
    (tmp_path / "docker").mkdir()
    text = (CHECKOUT / "docker" / "Dockerfile.tool").read_bytes()
    (tmp_path / "docker" / "Dockerfile.tool").write_bytes(text)
    monkeypatch.setattr(planning, "CHECKOUT", tmp_path)
    assert plan(real, "tool").recipe == usual
    (tmp_path / "docker" / "Dockerfile.tool").write_bytes(text + b"\n")
    assert plan(real, "tool").recipe != usual


def test_arguments_given_win_and_are_checked(real: Catalogue) -> None:
    assert plan(real, "cuda-release", args={"max_jobs": "2"}).args["max_jobs"] == "2"
    assert plan(real, "cuda-ci", args={"BASE_IMAGE": "mine:1"}).args["BASE_IMAGE"] == "mine:1"
    with pytest.raises(UsageError) as caught:
        plan(real, "cuda-release", args={"max_job": "2"})
    assert caught.value.hint == "did you mean max_jobs?"
    for address in (
        "https://me:pw@index.test/x",
        "https://index.test https://me@other.test",
        "https://i.test/?token=x",
    ):
        with pytest.raises(UsageError, match="holds a credential"):
            plan(real, "cuda-release", args={"INDEX_URL": address})
    with pytest.raises(UsageError, match="line break"):
        plan(real, "cuda-release", args={"INDEX_URL": "https://index.test\nx"})


def test_arguments_do_not_reach_what_an_image_is_built_from(real: Catalogue) -> None:
    base, tool, _ = plan_chain(real, Request("xpu-ci", args={"EXTRA_INDEX_URL": "https://mirror.test/packages"}), FACTS)
    assert base == plan(real, "xpu-base")
    assert tool == plan(real, "tool")


@pytest.mark.parametrize("name", ["GITHUB_TOKEN", "password", "API_KEY"])
@pytest.mark.parametrize("image", ["xpu-base", "cuda-ci"])
def test_a_secret_is_never_an_argument(real: Catalogue, image: str, name: str) -> None:
    with pytest.raises(UsageError) as caught:
        plan(real, image, args={name: "hunter2"})
    assert "hunter2" not in f"{caught.value.message} {caught.value.hint}"


@pytest.mark.parametrize("word", ["max_jobs", "=1", "", "a b=1", "--push=1", "a\n=1"])
def test_a_word_that_is_no_argument_is_a_usage_error(word: str) -> None:
    with pytest.raises(UsageError, match="not a build argument's name"):
        parse_args([word])


def test_an_argument_given_twice_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="twice"):
        parse_args(["A=1", "A=2"])


@given(st.dictionaries(st.from_regex(r"[A-Za-z_][A-Za-z0-9_]*", fullmatch=True), st.text()))
def test_arguments_survive_being_written_as_words(args: dict[str, str]) -> None:
    assert parse_args([f"{name}={value}" for name, value in args.items()]) == args


def test_a_push_is_planned_for_registries_only(real: Catalogue) -> None:
    pushed = plan_chain(real, Request("cuda-release", push=True), FACTS)
    assert [(found.image, found.push) for found in pushed] == [("tool", True), ("cuda-release", True)]
    assert pushed[-1].outputs == ("type=image,push=true",)
    assert plan(real, "cuda-release").outputs == ("type=docker",)
    assert plan(real, "npu-a2-ci").outputs == ()
    with pytest.raises(UsageError, match="stays on the host"):
        plan(real, "xpu-ci", push=True)


def test_a_platform_that_is_not_built_is_a_usage_error(real: Catalogue) -> None:
    with pytest.raises(UsageError) as caught:
        plan(real, "cuda-release", platform="linux/arm46")
    assert (caught.value.hint or "").startswith("did you mean linux/arm64")
    with pytest.raises(UsageError, match="not built for 'linux/arm64'"):
        plan(real, "cuda-ci", platform="linux/arm64")


def test_what_an_image_needs_must_be_built_for_its_platform(real: Catalogue) -> None:
    changed = dict(real.images)
    changed["tool"] = dataclasses.replace(changed["tool"], platforms=changed["cuda-ci"].platforms)
    with pytest.raises(DataError, match="tool is not built for linux/arm64, which cuda-release needs"):
        plan(dataclasses.replace(real, images=changed), "cuda-release", platform="linux/arm64")


def test_the_index_tag_is_never_given_to_one_architecture(real: Catalogue) -> None:
    for platform in ("linux/amd64", "linux/arm64"):
        found = plan(real, "cuda-release", platform=platform)
        assert found.index == (f"{ECR}/vllm-omni-release-repo:{COMMIT}",)
        assert found.index_platforms == real.image("cuda-release").platforms
        assert not set(found.index) & set(found.tags)


def test_caches_are_asked_for_at_the_ancestors(real: Catalogue) -> None:
    assert plan(real, "cuda-ci").cache_from == (f"type=registry,ref={ECR}/vllm-ci-test-repo:{OLDER}",)
    orphan = dataclasses.replace(FACTS, source=dataclasses.replace(FACTS.source, ancestors=()))
    assert plan_build(real, Request("cuda-ci"), orphan).cache_from == ()


def test_secrets_and_proxies_come_from_named_variables_only(real: Catalogue) -> None:
    variables = {"NETRC": "/home/me/.netrc", "https_proxy": "http://proxy.test:3128", "HF_TOKEN": "hunter2"}
    found = plan(real, "cuda-ci", variables=variables)
    assert [(secret.id, secret.file) for secret in found.secrets] == [("netrc", Path("/home/me/.netrc"))]
    assert found.proxies == {"HTTPS_PROXY": "http://proxy.test:3128"}
    assert "hunter2" not in repr(found)
    assert "proxy.test" not in repr(found)  # a proxy's address may hold a password
    assert plan(real, "cuda-ci").secrets == ()
    assert plan(real, "tool", variables=variables).proxies == {}


@pytest.mark.parametrize("value", ["", " ", "a b", "A/b", "a:", "a:t:u", "a@sha256:1", "file:///a", "-x", "a/../b"])
@pytest.mark.parametrize("key", ["BASE_IMAGE", "TOOL_IMAGE"])
def test_what_a_stage_is_made_from_is_an_image(real: Catalogue, key: str, value: str) -> None:
    """The builder would say so too, but only after the plan was shown and the tool's image built."""
    with pytest.raises(UsageError, match=f"build argument {key}: not an image"):
        plan(real, "cuda-ci", args={key: value})


def test_only_the_source_images_need_the_source(real: Catalogue) -> None:
    contexts = {found.image: found.context for found in every_plan(real, FACTS)}
    for name, image in real.images.items():
        expected = {Folder.SOURCE: Path("/source"), Folder.TOOL: Path("/tool")}
        if isinstance(image.context, Folder):
            assert contexts[name] == expected[image.context]


def test_times_are_labelled_in_utc(real: Catalogue) -> None:
    late = dataclasses.replace(FACTS.source, created=datetime(2026, 1, 1, tzinfo=UTC))
    found = plan_build(real, Request("cuda-ci"), dataclasses.replace(FACTS, source=late))
    assert found.labels["org.opencontainers.image.created"] == "2026-01-01T00:00:00Z"
