"""The catalogue's loader: the real files, and every way in which one can be wrong."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tasks.images import catalogue as catalogues
from tasks.images import listing
from tasks.images.catalogue import ARCHITECTURES, Catalogue, Engine, Folder, GitContext, Repository, load
from tasks.images.pins import load_pins
from tasks.images.planning import PROXIES
from tasks.registry.documents import Platform
from tasks.registry.references import RepositoryName
from tasks.support.errors import DataError, MissingInputError, UsageError
from tasks.support.settings import CHECKOUT
from tasks.support.strict_yaml import read_bytes
from tasks.support.variables import ALL

IMAGES = CHECKOUT / "docker" / "images.yml"

SMALL = """\
source: https://example.test/group/library
repositories:
  staging: {address: registry.test/staging}
  host: {address: host/only, local: true}
# what a clean-up may delete
retention: {pattern: 'n-[0-9]+', keep: 2, protected: [latest], cap: 5}
buildkitd: {address: 'tcp://builder.test:1234', certificates: /certificates}
images:
  one:
    title: the first
    device: cuda
    context: source
    dockerfile: docker/Dockerfile.ci
    base: '${pin:bases.cuda}:${VLLM_VERSION}'
    args: {A: '${image:two}'}
    platforms: [linux/amd64, linux/arm64]
    tags: ['${commit}-${arch}']
    repository: staging
  two:
    title: the second
    device: xpu
    context: {git: https://example.test/upstream.git, ref: '${VLLM_VERSION}'}
    dockerfile: docker/Dockerfile
    platforms: [linux/amd64]
    tags: ['${recipe}']
    repository: host
    environment: [VLLM_VERSION]
"""


@pytest.fixture(scope="module")
def real() -> Catalogue:
    return load()


def write(folder: Path, text: str) -> Path:
    file = folder / "images.yml"
    file.write_text(text, encoding="utf-8")
    return file


def test_a_small_catalogue_is_read_whole(tmp_path: Path) -> None:
    found = load(write(tmp_path, SMALL))
    one, two = found.images.values()
    assert (one.context, one.engine, one.needs, one.reusable) == (Folder.SOURCE, Engine.DOCKER, ("two",), False)
    assert (two.context, two.reusable) == (GitContext("https://example.test/upstream.git", "${VLLM_VERSION}"), True)
    assert [str(platform) for platform in one.platforms] == ["linux/amd64", "linux/arm64"]
    assert found.repositories["host"].local
    assert found.image("one") is one
    assert found.repository("staging").address == "registry.test/staging"


WRONG = {
    "unknown key at the top": ("source:", "sauce:", r":1: unknown key 'sauce' .*source"),
    "unknown key in an image": ("    title: the first", "    titel: the first", r":10: unknown key 'titel' .*title"),
    "missing key": ("    title: the first\n", "", r":9: image one has no 'title'"),
    "doubled key": ("    device: cuda", "    device: cuda\n    device: rocm", r":12: 'device' is there twice"),
    "doubled image": ("  two:\n", "  one:\n", r"'one' is there twice"),
    "doubled in a list": (
        "[linux/amd64, linux/arm64]",
        "[linux/amd64, linux/amd64]",
        r"'linux/amd64' is in platforms twice",
    ),
    "unknown device": ("device: cuda", "device: cuba", r":11: unknown device 'cuba' .*cuda"),
    "unknown engine": (
        "    repository: staging",
        "    repository: staging\n    engine: dokcer",
        r"unknown engine .*docker",
    ),
    "unknown context": ("context: source", "context: sauce", r":12: unknown context 'sauce'"),
    "unknown platform": ("linux/arm64]", "linux/amr64]", r":16: unknown platform 'linux/amr64' .*linux/arm64"),
    "no platform": ("[linux/amd64, linux/arm64]", "[]", r"platforms is empty"),
    "dangling repository": ("repository: staging", "repository: stagging", r":18: there is no repository .*staging"),
    "dangling image": ("${image:two}", "${image:tow}", r":15: there is no \$\{image:tow\} here .*image:two"),
    "dangling pin": ("${pin:bases.cuda}", "${pin:bases.cida}", r":14: there is no \$\{pin:bases.cida\} .*bases.cuda"),
    "placeholder in the wrong place": ("'${pin:bases.cuda}:", "'${commit}:", r":14: there is no \$\{commit\} here"),
    "unknown placeholder": (
        "${commit}-${arch}",
        "${comit}-${arch}-${recipe}",
        r":17: there is no \$\{comit\} .*commit",
    ),
    "lonely dollar": ("{A: '${image:two}'}", "{A: '$HOME'}", r":15: a '\$' that begins no placeholder"),
    "shared tag": ("['${recipe}']", "['latest']", r":25: a tag needs \$\{commit\} or \$\{recipe\}"),
    "tags without architecture": ("['${commit}-${arch}']", "['${commit}']", r":17: .*need \$\{arch\}"),
    "dockerfile not there": ("docker/Dockerfile.ci", "docker/Dockerfile.ic", r":13: docker/Dockerfile.ic is not in"),
    "dockerfile outside": ("docker/Dockerfile.ci", "../Dockerfile", r":13: dockerfile must be a path inside"),
    "context without .git": ("upstream.git", "upstream", r":22: .* does not end in .git"),
    "git over http": ("{git: https:", "{git: http:", r":22: git is not an https address"),
    "two refs of a number": ("keep: 2", "keep: two", r":6: keep must be a whole number"),
    "nothing kept": ("keep: 2", "keep: 0", r":6: keep must be at least 1"),
    "broken pattern": ("n-[0-9]+", "n-[0-9+", r":6: not a pattern"),
    "truth in two ways": ("local: true", "local: yes", r":4: 'yes' can be read in two ways"),
    "number for a text": ("title: the first", "title: 1.0", r":10: title must be a text, not the number 1.0 .*quotes"),
    "tag in the address": ("registry.test/staging", "registry.test/staging:v1", r":3: not a repository"),
    "builder without scheme": ("'tcp://builder.test:1234'", "builder.test", r":7: not a builder's address"),
    "argument's name": ("{A: ", "{A-B: ", r":15: not a build argument's name: 'A-B'"),
    "variable's name": ("[VLLM_VERSION]", "[vllm-version]", r"not an environment variable's name"),
    "image's name": ("  one:", "  One:", r":9: not an image's name"),
    "anchor": ("images:\n", "images: &all\n", r"anchors and aliases are not allowed"),
    "tab": ("    title: the first", "\ttitle: the first", r":10: "),
    "not closed": ("tags: ['${commit}-${arch}']", "tags: ['${commit}-${arch}'", r":\d+: "),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_named_with_its_file_and_line(tmp_path: Path, name: str) -> None:
    old, new, wanted = WRONG[name]
    assert old in SMALL
    with pytest.raises(DataError) as caught:
        load(write(tmp_path, SMALL.replace(old, new, 1)))
    said = f"{caught.value.message} {caught.value.hint or ''}"
    assert re.search(rf"images\.yml.*{wanted}", said), said


def test_the_place_of_what_is_wrong_is_said_once(tmp_path: Path) -> None:
    for name, (old, new, _wanted) in {**WRONG, "address": ("host/only", "5", "")}.items():
        with pytest.raises(DataError) as caught:
            load(write(tmp_path, SMALL.replace(old, new, 1)))
        assert caught.value.message.count("images.yml:") == 1, name


def test_an_image_that_is_built_from_itself_is_refused(tmp_path: Path) -> None:
    text = SMALL.replace("    environment: [VLLM_VERSION]\n", "    args: {B: '${image:one}'}\n")
    with pytest.raises(DataError, match="one -> two -> one"):
        load(write(tmp_path, text))


def test_a_file_that_is_not_there_or_empty_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(MissingInputError, match="is not there"):
        load(tmp_path / "none.yml")
    with pytest.raises(DataError, match="is empty"):
        load(write(tmp_path, "# nothing\n"))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (b"a: !!python/object:os.system x", "tag .* is not allowed"),
        (b"a: {<<: {b: c}}", "a key must be a text"),
        (b"1: x", "a key must be a text"),
        (b"a: 010", "two ways"),
        (b"a: 0x10", "two ways"),
        (b"a: 1:30", "two ways"),
        (b"a: 2026-01-01", "two ways"),
        (b"\xff", "not UTF-8"),
        (b"a: b\n---\nc: d\n", "single document|another document"),
        (b"[" * 5000, "nested too deeply|expected"),
    ],
)
def test_yaml_that_can_be_read_in_two_ways_is_refused(text: bytes, wanted: str) -> None:
    with pytest.raises(DataError, match=wanted):
        read_bytes(text, "x.yml")


SMALL_PINS = """\
vllm:
  cuda: {version: v1.2.0, commit: 0123456789ab}
bases:
  cuda: group/base
packages:
  triton-xpu: 1.2.3
downloads:
  buildctl:
    version: v1.0.0
    url: https://example.test/${version}/program.${platform}.tar.gz
    sha256: {linux/amd64: null}
"""
WRONG_PINS = {
    "short sha256": ("linux/amd64: null", "linux/amd64: abc", ":11: .*64 lower-case"),
    "http": ("https://", "http://", ":10: .*must be https"),
    "url without platform": (".${platform}.tar", ".tar", ":10: .*platform"),
    "no version": ("{version: v1.2.0, ", "{", ":2: .*has no 'version'"),
    "version that is no tag": ("v1.2.0,", "'v1 2',", ":2: not a tag"),
    "commit": ("0123456789ab", "main", ":2: not a commit"),
    "package": ("triton-xpu: 1.2.3", "triton-xpu: '1.2.3; rm -rf /'", ":6: not a version"),
    "base with a tag": ("group/base", "group/base:v1", ":4: not a repository"),
    "unknown key": ("packages:", "pakages:", ":5: unknown key 'pakages'"),
}


def test_small_pins_are_read_whole(tmp_path: Path) -> None:
    file = tmp_path / "pins.yml"
    file.write_text(SMALL_PINS, encoding="utf-8")
    found = load_pins(file)
    assert found.values == {"vllm.cuda": "v1.2.0", "bases.cuda": "group/base", "packages.triton-xpu": "1.2.3"}
    assert found.variables("cuda") == {"VLLM_VERSION": "v1.2.0"}
    assert found.variables("xpu") == {}
    assert found.downloads["buildctl"].sha256 == {"linux/amd64": None}


@pytest.mark.parametrize("name", WRONG_PINS)
def test_pins_are_read_strictly(tmp_path: Path, name: str) -> None:
    old, new, wanted = WRONG_PINS[name]
    assert old in SMALL_PINS
    file = tmp_path / "pins.yml"
    file.write_text(SMALL_PINS.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(DataError, match=f"pins.yml{wanted}"):
        load_pins(file)


def test_a_pinned_download_has_an_address_per_platform(real: Catalogue) -> None:
    pin = real.pins.downloads["buildctl"]
    assert pin.address("linux/arm64").endswith(f"/{pin.version}/buildkit-{pin.version}.linux-arm64.tar.gz")
    assert set(pin.sha256) == {"linux/amd64", "linux/arm64"}


# What agents, users and other systems know these by; a change here breaks them.
ADDRESSES = {
    "staging": "public.ecr.aws/q9t5s3a7/vllm-omni-release-repo",
    "public": "docker.io/vllm/vllm-omni",
    "ci": "public.ecr.aws/q9t5s3a7/vllm-ci-test-repo",
    "rocm-ci": "docker.io/rocm/vllm-omni",
    "npu-ci": "swr.cn-southwest-2.myhuaweicloud.com/modelfoundry/vllm-omni-ci-npu",
    "xpu-ci": "docker.io/xpu/vllm-omni-ci",
    "xpu-base": "docker.io/xpu/vllm-omni-ci-base",
}


def test_the_real_repositories_are_those_that_others_know(real: Catalogue) -> None:
    assert {name: repository.address for name, repository in real.repositories.items()} == ADDRESSES
    assert all(str(RepositoryName.parse(address)) == address for address in ADDRESSES.values())
    assert {name for name, repository in real.repositories.items() if repository.local} == {"xpu-ci", "xpu-base"}
    npu = real.repositories["npu-ci"]
    assert (npu.registry_variable, npu.name_variable) == ("IMAGE_REGISTRY", "IMAGE_NAME")


def test_the_real_channels_need_both_architectures_of_the_release_image(real: Catalogue) -> None:
    assert set(real.image("cuda-release").platforms) == {Platform("linux", name) for name in ARCHITECTURES}
    assert real.image("cuda-release").index == ("${commit}",)


@pytest.mark.parametrize(
    ("tag", "candidate"),
    [
        (f"nightly-{'0123456789abcdef' * 2}01234567", True),
        ("nightly", False),
        ("nightly-x86_64", False),
        ("nightly-aarch64", False),
        (f"nightly-{'a' * 39}", False),
        (f"nightly-{'a' * 40}-x86_64", False),
        (f"nightly-rocm714-{'a' * 40}", False),
        ("nightly-fix-please", False),
    ],
)
def test_the_real_retention_is_about_commits_nightlies_only(real: Catalogue, tag: str, candidate: bool) -> None:
    assert bool(re.fullmatch(real.retention.pattern, tag)) is candidate
    assert real.retention.keep == 14


@pytest.mark.parametrize("tag", ["latest", "latest-x86_64", "v0.28.0", "v0.28.0-aarch64", "nightly", "nightly-x86_64"])
def test_the_real_retention_protects_what_users_rely_on(real: Catalogue, tag: str) -> None:
    assert any(re.fullmatch(pattern, tag) for pattern in real.retention.protected_patterns)


def test_an_unknown_image_is_answered_with_the_closest(real: Catalogue) -> None:
    with pytest.raises(UsageError) as caught:
        real.image("cuda-relaese")
    assert (caught.value.hint or "").startswith("did you mean cuda-release")


def test_every_variable_that_the_catalogue_reads_is_in_the_table_of_variables(real: Catalogue) -> None:
    read = {name for image in real.images.values() for name in image.environment}
    read |= {secret.variable for image in real.images.values() for secret in image.secrets}
    read |= {name for repository in real.repositories.values() for name in _variables_of(repository)} | set(PROXIES)
    assert read <= {variable.name for variable in ALL}


def _variables_of(repository: Repository) -> list[str]:
    return [name for name in (repository.registry_variable, repository.name_variable) if name]


def test_every_dockerfile_of_ours_is_in_the_catalogue(real: Catalogue) -> None:
    there = {
        path.relative_to(CHECKOUT).as_posix()
        for path in (CHECKOUT / "docker").glob("Dockerfile*")
        if path.suffix != ".dockerignore"
    }
    named = {image.dockerfile for image in real.images.values() if isinstance(image.context, Folder)}
    assert there == named
    assert catalogues.FILE == IMAGES


def test_the_list_has_every_image_and_where_it_goes(real: Catalogue) -> None:
    rows, data = listing.rows(real), listing.as_data(real)
    assert [row[0] for row in rows] == [entry["image"] for entry in data] == list(real.images)
    assert all(len(row) == len(listing.COLUMNS) for row in rows)
    base = next(entry for entry in data if entry["image"] == "xpu-base")
    assert (base["context"], base["pushed"]) == ("https://github.com/vllm-project/vllm.git#${VLLM_VERSION}", False)
    image = next(entry for entry in data if entry["image"] == "xpu-ci")
    assert image["needs"] == ["xpu-base", "tool"]
    assert json.loads(json.dumps(data)) == data
