"""Which files a publish chooses, and what it refuses, from the state alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.version import Version

from tasks.support.errors import ConfigurationError, CredentialsError, DataError, MissingInputError, UsageError
from tasks.support.settings import Settings, WheelSettings, load
from tasks.support.store import open_store
from tasks.wheels import published, pypi, twine_calls
from tasks.wheels.index import Index
from tasks.wheels.published import Published
from tasks.wheels.pypi_plan import PublishPlan, parse_release, plan_publish
from tasks.wheels.state import FileRecord
from tasks.wheels.upload import Standing, record_files, show_commit
from tasks.wheels.variants import parse_variant

A, B, C = ("a" * 40, "b" * 40, "c" * 40)
RULES = WheelSettings(project="sample", variants=(r"cu\d{2,3}", r"rocm\d*(?:\.\d+)*"))


def record(
    commit: str,
    version: str,
    *,
    tag: str = "py3-none-any",
    sdist: bool = False,
    data: str = "1",
    yanked: str | None = None,
) -> FileRecord:
    name = f"sample-{version}.tar.gz" if sdist else f"sample-{version}-{tag}.whl"
    return FileRecord(
        key=f"{commit}/{name}",
        version=str(Version(version)),
        size=1,
        sha256=data * 64,
        uploaded="2026-01-01T00:00:00.000000Z",
        # The later the letter, the newer the commit.
        commit_time=f"2026-01-{ord(commit[0]) - 96:02}T00:00:00.000000Z",
        commit_time_from="git",
        variant=parse_variant(version, RULES.variants).name,
        yanked=yanked,
    )


def index_of(folder: Path, *records: FileRecord) -> Index:
    index = Index(open_store(str(folder / "store")), RULES)
    record_files(index, "sample", records)
    for commit in {record.commit for record in records}:
        show_commit(index, commit, ["sample"])
    return index


def plan(
    index: Index,
    version: str,
    commit: str | None = None,
    there: Mapping[str, str] | None = None,
    *,
    sdist: bool = False,
) -> PublishPlan:
    return plan_publish(index, version, commit, on_index(version, there or {}), sdist=sdist)


def on_index(version: str, there: Mapping[str, str]) -> Published:
    files = {f"sample-{name}": digest * 64 for name, digest in there.items()}
    return Published("https://index.invalid/sample/", "sample", Version(version.removeprefix("v")), files)


def names(plan: PublishPlan) -> list[str]:
    return [file.record.filename for file in plan.files]


release_parts = st.lists(st.integers(0, 3), min_size=1, max_size=3).map(lambda parts: ".".join(map(str, parts)))
versions = st.builds(
    "{}{}{}{}{}{}".format,
    st.sampled_from(["", "", "1!"]),
    release_parts,
    st.sampled_from(["", "", "a1", "rc1"]),
    st.sampled_from(["", "", ".post1"]),
    st.sampled_from(["", "", ".dev1"]),
    st.sampled_from(["", "", "+cu130", "+rocm7.2", "+g0123abc", "+unknown.1"]),
)
publishable = versions.filter(lambda text: not Version(text).is_devrelease and not Version(text).local)


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(wanted=publishable, others=st.lists(versions, max_size=12), v=st.sampled_from(["", "v"]))
def test_exactly_the_files_of_the_version_are_chosen(
    tmp_path_factory: pytest.TempPathFactory, wanted: str, others: list[str], v: str
) -> None:
    # A commit never holds one version in two spellings.
    spelled = {Version(version): str(Version(version)) for version in [*others, wanted]}
    records = {r.key: r for r in (record(A, version) for version in spelled.values())}
    index = index_of(tmp_path_factory.mktemp("index"), *records.values())
    for commit in (None, A):
        chosen = plan_publish(index, v + wanted, commit, on_index(wanted, {}))
        assert {file.record.key for file in chosen.files} == {
            key for key, r in records.items() if Version(r.version) == Version(wanted)
        }


@pytest.mark.parametrize(
    "version",
    ["", "v", "latest", "1.0-", "1.0 or 2", "0.20*", "vv1.0", "1.0.dev1", "1.0rc1.dev3", "1.0.post1.dev2", "1.0+cu130",
     "1.0+g0123abc", "v1.0.dev1+cu130"],
)  # fmt: skip
def test_what_is_no_release_is_refused_before_anything_is_read(version: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_release(version)
    assert caught.value.hint


@pytest.mark.parametrize("version", ["0.20.0", "v0.20.0", "0.20.0rc1", "1!2.0.post1", "v0.20"])
def test_releases_with_or_without_v_are_accepted(version: str) -> None:
    assert parse_release(version) == Version(version.removeprefix("v"))


def test_wheels_come_first_and_the_sdist_only_when_asked_for(tmp_path: Path) -> None:
    files = [record(A, "1.0", sdist=True), record(A, "1.0", tag="py3-none-win32"), record(A, "1.0")]
    index = index_of(tmp_path, *files)
    wheels = ["sample-1.0-py3-none-any.whl", "sample-1.0-py3-none-win32.whl"]
    assert names(plan(index, "1.0")) == wheels
    assert names(plan(index, "1.0", sdist=True)) == [*wheels, "sample-1.0.tar.gz"]


@pytest.mark.parametrize(("sdist", "missing"), [(False, "no wheel"), (True, "no sdist")])
@pytest.mark.parametrize("commit", [None, A])
def test_a_version_without_the_files_names_what_there_is(
    tmp_path: Path, sdist: bool, missing: str, commit: str | None
) -> None:
    there = record(A, "1.0") if sdist else record(A, "1.0", sdist=True)
    close = [record(A, version, sdist=sdist) for version in ("1.0+cu130", "1.0rc1", "1.0.1", "1.0.dev1")]
    with pytest.raises(MissingInputError, match=missing) as caught:
        plan(index_of(tmp_path, there, *close), "1.0", commit, sdist=sdist)
    assert caught.value.hint is not None
    assert all(version in caught.value.hint for version in ("1.0+cu130", "1.0rc1", "1.0.dev1"))


def test_an_empty_store_and_an_unknown_commit_are_missing_input(tmp_path: Path) -> None:
    with pytest.raises(MissingInputError, match="no wheel"):
        plan(index_of(tmp_path), "1.0")
    with pytest.raises(MissingInputError, match=B):
        plan(index_of(tmp_path, record(A, "1.0")), "1.0", B)


@pytest.mark.parametrize("commit", [None, A, B, C])
def test_two_commits_with_the_version_and_other_bytes_are_refused_by_name(tmp_path: Path, commit: str | None) -> None:
    index = index_of(tmp_path, record(A, "1.0", data="1"), record(B, "1.0", data="2"), record(C, "2.0"))
    with pytest.raises(DataError) as caught:
        plan(index, "1.0", commit)
    assert A in caught.value.message
    assert B in caught.value.message
    assert names(plan(index, "2.0")) == ["sample-2.0-py3-none-any.whl"]


@pytest.mark.parametrize("commit", [None, B])
def test_the_commit_whose_build_was_not_taken_back_is_published(tmp_path: Path, commit: str | None) -> None:
    index = index_of(tmp_path, record(A, "1.0", data="1", yanked="wrong tag"), record(B, "1.0", data="2"))
    assert plan(index, "1.0", commit).commit == B


@pytest.mark.parametrize(("commit", "yanked"), [(None, (A, B)), (A, (A,)), (A, (A, B))])
def test_a_yanked_file_is_refused_with_its_reason(tmp_path: Path, commit: str | None, yanked: tuple[str, ...]) -> None:
    files = [record(sha, "1.0", data=sha[0], yanked="breaks CUDA 12" if sha in yanked else None) for sha in (A, B)]
    with pytest.raises(DataError, match=r"is yanked: breaks CUDA 12"):
        plan(index_of(tmp_path, *files), "1.0", commit)


def test_one_yanked_file_of_several_stops_the_others(tmp_path: Path) -> None:
    index = index_of(tmp_path, record(A, "1.0"), record(A, "1.0", tag="py3-none-win32", yanked=""))
    for commit in (None, A):
        with pytest.raises(DataError, match=r"win32\.whl is yanked"):
            plan(index, "1.0", commit)


def test_several_commits_with_the_same_bytes_are_one_and_the_fullest_is_taken(tmp_path: Path) -> None:
    same = [record(A, "1.0"), record(B, "1.0"), record(C, "1.0")]
    chosen = plan(index_of(tmp_path / "same", *same), "1.0")
    assert (chosen.commit, chosen.why) == (C, "the newest of 3 commits with the same files of 1.0")
    fuller = [*same, record(A, "1.0", tag="py3-none-win32")]
    chosen = plan(index_of(tmp_path / "fuller", *fuller), "1.0")
    assert (chosen.commit, chosen.why) == (A, "the only commit with all files of it; others have some")
    assert plan(index_of(tmp_path / "named", *fuller), "1.0", B).why == "it was named"
    assert plan(index_of(tmp_path / "alone", same[0]), "1.0").why == "the only commit with this version"


def test_files_spread_over_commits_are_never_mixed(tmp_path: Path) -> None:
    index = index_of(tmp_path, record(A, "1.0"), record(B, "1.0", tag="py3-none-win32"))
    with pytest.raises(DataError, match="no commit has all files") as caught:
        plan(index, "1.0")
    assert A in caught.value.message
    assert B in caught.value.message
    assert names(plan(index, "1.0", A)) == ["sample-1.0-py3-none-any.whl"]


def test_other_commits_sdists_do_not_matter_until_one_is_published(tmp_path: Path) -> None:
    index = index_of(
        tmp_path,
        *(record(sha, "1.0") for sha in (A, B)),
        *(record(sha, "1.0", sdist=True, data=sha[0]) for sha in (A, B)),
    )
    assert plan(index, "1.0").commit == B
    with pytest.raises(DataError, match=r"two commits have sample-1\.0\.tar\.gz"):
        plan(index, "1.0", sdist=True)


def test_what_the_index_has_with_the_same_bytes_is_left_out(tmp_path: Path) -> None:
    index = index_of(tmp_path, record(A, "1.0"), record(A, "1.0", tag="py3-none-win32"))
    planned = plan(index, "1.0", there={"1.0-py3-none-any.whl": "1"})
    assert [file.standing for file in planned.files] == [Standing.PUBLISHED, Standing.NEW]
    assert [row[:2] for row in planned.actions()] == [
        ("twine check", "sample-1.0-py3-none-win32.whl"),
        ("twine upload", "sample-1.0-py3-none-win32.whl"),
        ("read back", "https://index.invalid/sample/"),
    ]
    everything = {"1.0-py3-none-any.whl": "1", "1.0-py3-none-win32.whl": "1"}
    assert plan(index, "1.0", there=everything).actions() == []


@pytest.mark.parametrize("other", ["1.0-py3-none-any.whl", "1.0-py3-none-win32.whl"])
def test_one_file_with_other_bytes_on_the_index_stops_them_all(tmp_path: Path, other: str) -> None:
    index = index_of(tmp_path, record(A, "1.0"), record(A, "1.0", tag="py3-none-win32"))
    with pytest.raises(DataError, match="other bytes") as caught:
        plan(index, "1.0", there={other: "2"})
    assert other in caught.value.message


def load_with(**environment: str) -> Settings:
    return load(environment=environment)


@pytest.mark.parametrize("name", ["OMNI_CI_PYPI_UPLOAD_URL", "OMNI_CI_PYPI_INDEX_URL"])
def test_one_address_alone_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match=name):
        published.find_service(load_with(**{name: "http://user:hidden@127.0.0.1:1/"}))


def test_credentials_in_addresses_are_not_shown() -> None:
    url = "http://user:hidden@127.0.0.1:1/"
    service = published.find_service(load_with(OMNI_CI_PYPI_UPLOAD_URL=url, OMNI_CI_PYPI_INDEX_URL=url))
    assert "hidden" not in service.name + repr(service)


@pytest.mark.parametrize("token", ["pypi-x\n", " pypi-x", "pypi x", "pypi-x\r", "pypi-…", "\x1b[0mpypi-x", "\t"])
def test_what_cannot_be_a_token_is_refused_without_being_shown(token: str) -> None:
    with pytest.raises(CredentialsError, match="PYPI_TOKEN") as caught:
        pypi.read_token(load_with(PYPI_TOKEN=token), "somewhere")
    assert token.strip() not in caught.value.message or not token.strip()


def test_a_missing_token_is_named() -> None:
    with pytest.raises(CredentialsError, match="PYPI_TOKEN is not set"):
        pypi.read_token(load_with(PYPI_TOKEN=""), "somewhere")


tokens = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=8, max_size=60)


@settings(max_examples=200)
@given(token=tokens, width=st.integers(1, 50), data=st.data())
def test_no_form_of_the_token_survives_in_what_is_shown(token: str, width: int, data: st.DataObject) -> None:
    import base64
    import json
    from urllib.parse import quote

    forms = [
        token,
        quote(token, safe=""),
        json.dumps(token),
        repr(token),
        base64.b64encode(f"__token__:{token}".encode()).decode(),
    ]
    form = data.draw(st.sampled_from(forms))
    wrapped = "\n         ".join(form[start : start + width] for start in range(0, len(form), width))
    shown = "".join(twine_calls.hide(f"before {wrapped} after", token).split())
    assert token not in shown
    assert form.strip("'\"") not in shown
    assert shown.startswith("before")
