"""What is taken from a build, and how it gets into dist: all or nothing, mixed with nothing."""

from __future__ import annotations

import hashlib
import subprocess
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from packaging.version import Version

from tasks.support.errors import ConfigurationError, DataError
from tasks.support.settings import load
from tasks.wheels.built_files import check_beside, check_variant, place, read_built
from tasks.wheels.distribution import Facts, Kind
from tasks.wheels.variants import without_variant
from tests.wheel_factory import make_sdist, make_wheel, sdist_truncated, two_versions

PATTERNS = load(environment={}).wheels.variants
EPOCH = 1_700_000_000


@pytest.mark.parametrize(
    ("version", "variant", "device"),
    [
        ("0.20.0", None, "cuda"),
        ("0.20.0+rocm", "rocm", "rocm"),
        ("0.20.0+rocm7.2", "rocm7.2", "rocm"),
        ("0.20.1.dev3+g1234567.npu", "npu", "npu"),
        ("0.20.0+cpu", "cpu", "cpu"),
    ],
)
def test_takes_the_devices_own_variant(version: str, variant: str | None, device: str) -> None:
    check_variant(version, variant, device)


@pytest.mark.parametrize(
    ("version", "variant", "device"),
    [
        ("0.20.0+cu130", "cu130", "cuda"),
        ("0.20.0+cpu", "cpu", "cuda"),
        ("0.20.0", None, "rocm"),
        ("0.20.0+xpu", "xpu", "rocm"),
        ("0.20.0+xpu", "xpu", "npu"),
        ("0.20.0+cu130", "cu130", "cpu"),
    ],
)
def test_refuses_another_variant(version: str, variant: str | None, device: str) -> None:
    with pytest.raises(DataError) as caught:
        check_variant(version, variant, device)
    assert version in caught.value.message
    assert device in caught.value.message


@pytest.mark.parametrize(
    ("version", "shared"),
    [
        ("0.20.0", "0.20.0"),
        ("0.20.0+rocm", "0.20.0"),
        ("0.20.0+rocm7.2", "0.20.0"),
        ("0.20.1.dev3+g1234567.npu", "0.20.1.dev3+g1234567"),
        ("0.20.1.dev3+g1234567", "0.20.1.dev3+g1234567"),
        ("0.20.1.dev3+cu118.g1234567", "0.20.1.dev3+g1234567"),
        ("0.20.0+weird.cpu", "0.20.0+weird"),
    ],
)
def test_builds_of_one_commit_share_a_version(version: str, shared: str) -> None:
    assert without_variant(Version(version), PATTERNS) == shared


def built(folder: Path, device: str = "cuda", version: str = "1.0") -> tuple[Facts, ...]:
    make_sdist(folder, version=version)
    make_wheel(folder, version=version)
    return read_built(folder, device, EPOCH, PATTERNS)


def digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.glob("*")}


def test_the_sdist_comes_first_and_is_settled(tmp_path: Path) -> None:
    sdist, wheel = built(tmp_path, "rocm", "1.0+rocm")
    assert (sdist.kind, wheel.kind) == (Kind.SDIST, Kind.WHEEL)
    assert digests(tmp_path) == {item.filename: item.sha256 for item in (sdist, wheel)}
    with tarfile.open(sdist.path) as archive:
        assert {member.mtime for member in archive} == {EPOCH}
        assert {member.name for member in archive} == {"sample-1.0+rocm/PKG-INFO", "sample-1.0+rocm/pyproject.toml"}


def test_settled_sdists_differ_only_with_their_contents(tmp_path: Path) -> None:
    """Make one sdist by two people at two times, with long names and a link in it."""
    found = []
    for number in range(3):
        folder = tmp_path / str(number)
        source = folder / "sample-1.0"
        source.mkdir(parents=True)
        (source / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: sample\nVersion: 1.0\n")
        (source / ("long" * 50)).write_text("changed" if number == 2 else "same")
        (source / "run").write_text("")
        (source / "run").chmod(0o755 if number else 0o700)
        (source / "link").symlink_to("run")

        def owned(member: tarfile.TarInfo, number: int = number) -> tarfile.TarInfo:
            member.mtime = 1_600_000_000.5 + number
            member.uid, member.gid, member.uname = number, number, f"user{number}"
            return member

        with tarfile.open(folder / "sample-1.0.tar.gz", "w:gz") as archive:
            archive.add(source, "sample-1.0", filter=owned)
        make_wheel(folder)
        for path in sorted(source.iterdir()):
            path.unlink()
        source.rmdir()
        sdist, _ = read_built(folder, "cuda", EPOCH, PATTERNS)
        found.append(sdist.sha256)
        with tarfile.open(sdist.path) as archive:
            assert {member.name.rpartition("/")[2]: member.mode & 0o100 for member in archive if member.isreg()} == {
                "PKG-INFO": 0, "long" * 50: 0, "run": 0o100,
            }  # fmt: skip
            assert archive.getmember("sample-1.0/link").linkname == "run"
    assert found[0] == found[1] != found[2]


def _nothing(folder: Path) -> None:
    pass


def _only_a_wheel(folder: Path) -> None:
    make_wheel(folder)


def _two_wheels(folder: Path) -> None:
    make_sdist(folder)
    make_wheel(folder)
    make_wheel(folder, name="other")


def _two_wheels_and_no_sdist(folder: Path) -> None:
    make_wheel(folder)
    make_wheel(folder, tag="py2-none-any")


def _a_stray_file(folder: Path) -> None:
    make_sdist(folder)
    make_wheel(folder)
    (folder / "notes.txt").touch()


def _two_versions(folder: Path) -> None:
    make_sdist(folder)
    make_wheel(folder, version="1.1")


def _two_projects(folder: Path) -> None:
    make_sdist(folder, name="other")
    make_wheel(folder)


def _the_suffix_on_one_only(folder: Path) -> None:
    make_sdist(folder)
    make_wheel(folder, version="1.0+rocm")


def _a_broken_wheel(folder: Path) -> None:
    make_sdist(folder)
    two_versions(folder)


def _a_broken_sdist(folder: Path) -> None:
    make_wheel(folder)
    sdist_truncated(folder)


def _a_zip_sdist(folder: Path) -> None:
    make_wheel(folder)
    (folder / "sample-1.0.zip").touch()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (_nothing, "made nothing"),
        (_only_a_wheel, r"made sample-1\.0-py3-none-any\.whl;"),
        (_two_wheels, r"other-1\.0-py3-none-any\.whl"),
        (_two_wheels_and_no_sdist, r"py2-none-any\.whl, sample"),
        (_a_stray_file, r"notes\.txt"),
        (_two_versions, r"sample-1\.0\.tar\.gz and sample-1\.1-py3"),
        (_two_projects, r"other-1\.0\.tar\.gz and sample-1\.0-py3"),
        (_the_suffix_on_one_only, r"sample-1\.0\.tar\.gz and sample-1\.0\+rocm-py3"),
        (_a_broken_wheel, "Version 2 times"),
        (_a_broken_sdist, "not a readable sdist"),
        (_a_zip_sdist, r"sample-1\.0\.zip"),
    ],
)
def test_refuses_anything_but_one_sdist_and_one_wheel(tmp_path: Path, make: Callable[[Path], None], words: str) -> None:
    make(tmp_path)
    with pytest.raises(DataError, match=words):
        read_built(tmp_path, "rocm", EPOCH, PATTERNS)


@pytest.mark.parametrize("version", ["1.0", "1.0+xpu", "1.0+rocm.npu"])
def test_refuses_another_devices_build(tmp_path: Path, version: str) -> None:
    with pytest.raises(DataError, match=version.replace("+", r"\+")):
        built(tmp_path, "rocm", version)


def test_files_are_moved_once(tmp_path: Path) -> None:
    dist = tmp_path / "new" / "dist"
    facts = built(tmp_path / "out")
    placed = place(facts, dist, PATTERNS)
    assert [item.path for item in placed] == [dist / item.filename for item in facts]
    assert digests(dist) == {item.filename: item.sha256 for item in facts}
    times = {path.name: path.stat().st_mtime_ns for path in dist.iterdir()}
    assert place(facts, dist, PATTERNS) == placed
    assert {path.name: path.stat().st_mtime_ns for path in dist.iterdir()} == times


def test_a_half_filled_dist_is_completed(tmp_path: Path) -> None:
    dist = tmp_path / "dist"
    facts = built(tmp_path / "out")
    place(facts[:1], dist, PATTERNS)
    place(facts, dist, PATTERNS)
    assert digests(dist) == {item.filename: item.sha256 for item in facts}


def test_builds_for_other_devices_and_other_things_may_lie_there(tmp_path: Path) -> None:
    dist = tmp_path / "dist"
    place(built(tmp_path / "rocm", "rocm", "1.0.dev3+g1234567.rocm"), dist, PATTERNS)
    make_wheel(dist, name="other", version="0.9")
    (dist / "note.txt").write_text("mine")
    place(built(tmp_path / "cuda", "cuda", "1.0.dev3+g1234567"), dist, PATTERNS)
    assert len(digests(dist)) == 6


def _other_version(dist: Path) -> Path:
    return make_wheel(dist, version="0.9")


def _other_commit(dist: Path) -> Path:
    return make_wheel(dist, version="1.0+g7654321")


def _other_version_of_a_device(dist: Path) -> Path:
    return make_sdist(dist, name="Sample", version="0.9+rocm")


def _other_bytes(dist: Path) -> Path:
    return make_wheel(dist, files={"sample/more.py": b""})


def _a_broken_file_of_the_name(dist: Path) -> Path:
    dist.mkdir()
    (dist / "sample-1.0-py3-none-any.whl").write_bytes(b"half a whe")
    return dist / "sample-1.0-py3-none-any.whl"


@pytest.mark.parametrize(
    "make", [_other_version, _other_commit, _other_version_of_a_device, _other_bytes, _a_broken_file_of_the_name]
)
def test_nothing_is_mixed_with_leftovers(tmp_path: Path, make: Callable[[Path], Path]) -> None:
    dist = tmp_path / "dist"
    path = make(dist)
    before = digests(dist)
    with pytest.raises(DataError, match=path.name.replace("+", r"\+")):
        place(built(tmp_path / "out"), dist, PATTERNS)
    assert digests(dist) == before
    assert not list(dist.glob(".*"))


def test_when_the_second_move_fails_the_first_is_undone(tmp_path: Path) -> None:
    dist = tmp_path / "dist"
    sdist, wheel = built(tmp_path / "out")
    with pytest.raises(ConfigurationError, match="cannot write to"):
        place((sdist, replace(wheel, filename=f"nowhere/{wheel.filename}")), dist, PATTERNS)
    lost = replace(wheel, path=tmp_path / "nowhere")
    with pytest.raises(ConfigurationError, match="cannot write to"):
        place((sdist, lost), dist, PATTERNS)
    assert list(dist.iterdir()) == []


def test_a_dist_that_is_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "dist").write_text("a file")
    with pytest.raises(ConfigurationError, match=f"cannot write to {tmp_path}/dist: File exists"):
        place(built(tmp_path / "out"), tmp_path / "dist", PATTERNS)


COMMIT = "1234567" + "a" * 33
OTHER_COMMIT = "7654321" + "b" * 33


@pytest.mark.parametrize(
    ("there", "in_the_way"),
    [
        ((), ()),
        (("sample-1.0.dev1+g1234567", "sample-1.0.dev1+g1234567.rocm"), ()),
        (("sample-1.0",), ()),
        (("sample-1.0", "sample-1.0+rocm"), ()),
        (("other-0.1.dev1+g7654321", "other-0.2"), ()),
        (("sample-1.0.dev1+g7654321",), ("sample-1.0.dev1+g7654321",)),
        (("sample-1.0.dev1+g7654321.d20260101", "sample-2.0"), ("sample-1.0.dev1+g7654321.d20260101",)),
        (("sample-1.0", "sample-1.1", "sample-1.1+rocm"), ("sample-1.0", "sample-1.1", "sample-1.1+rocm")),
    ],
)
def test_what_cannot_lie_beside_a_build_is_known_before_it_and_named_whole(
    tmp_path: Path, there: tuple[str, ...], in_the_way: tuple[str, ...]
) -> None:
    dist = tmp_path / "my dist"
    dist.mkdir()
    names = [f"{name}{end}" for name in there for end in (".tar.gz", "-py3-none-any.whl")]
    for name in (*names, "notes.txt"):
        (dist / name).touch()
    if not in_the_way:
        check_beside(dist, "sample", COMMIT, PATTERNS)
        return
    with pytest.raises(DataError) as caught:
        check_beside(dist, "sample", COMMIT, PATTERNS)
    stale = [name for name in names if name.startswith(tuple(f"{way}{end}" for way in in_the_way for end in "-."))]
    _removes(caught.value.hint, dist, stale)
    assert all(name in caught.value.message for name in stale)
    check_beside(dist, "sample", COMMIT, PATTERNS)


def _removes(hint: str | None, dist: Path, stale: list[str]) -> None:
    """Run the command of a hint, and see that exactly these files are gone."""
    before = {path.name for path in dist.iterdir()}
    command = (hint or "").partition(": ")[2]
    assert command.startswith("rm -- ")
    subprocess.run(["sh", "-c", command], check=True)
    assert before - {path.name for path in dist.iterdir()} == set(stale)


def test_before_the_first_build_there_is_no_dist(tmp_path: Path) -> None:
    check_beside(tmp_path / "dist", "sample", COMMIT, PATTERNS)


@pytest.mark.parametrize("other", ["another version", "other bytes"])
def test_after_a_build_all_that_is_in_the_way_is_named_at_once(tmp_path: Path, other: str) -> None:
    dist = tmp_path / "my dist"
    dist.mkdir()
    version = "1.0" if other == "other bytes" else "0.9"
    old = [
        make_sdist(dist, version=version, extra="Keywords: old\n").name,
        make_wheel(dist, version=version, extra="Keywords: old\n").name,
    ]
    facts = built(tmp_path / "out")
    with pytest.raises(DataError) as caught:
        place(facts, dist, PATTERNS)
    assert all(name in caught.value.message for name in old)
    _removes(caught.value.hint, dist, old)
    place(facts, dist, PATTERNS)
