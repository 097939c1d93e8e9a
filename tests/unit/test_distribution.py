"""Facts of wheels and sdists, read from real files, and every kind of file that must be refused."""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.support.errors import DataError, MissingInputError
from tasks.support.settings import CHECKOUT
from tasks.wheels.distribution import Kind, facts_from_reader, parse_filename, read_facts, read_metadata
from tests.wheel_factory import BROKEN_SDISTS, BROKEN_WHEELS, make_sdist, make_wheel, metadata

PATTERNS = (r"cu\d{2,3}", r"rocm\d*(?:\.\d+)*")


def test_facts_of_a_wheel(tmp_path: Path) -> None:
    path = make_wheel(
        tmp_path, name="Sample.Project", version="1!2.0rc1+g1234567.cu130", requires_python=">=3.10,<3.14",
        build="2b", tag="cp38.cp39-abi3-manylinux_2_31_x86_64",
    )  # fmt: skip
    facts = read_facts(path, PATTERNS)
    assert (facts.path, facts.filename, facts.kind) == (path, path.name, Kind.WHEEL)
    assert (facts.project, facts.version) == ("sample-project", "1!2.0rc1+g1234567.cu130")
    assert (facts.variant, facts.unknown, facts.warnings) == ("cu130", (), ())
    assert (facts.size, facts.sha256) == (path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest())
    assert facts.metadata == metadata("Sample.Project", "1!2.0rc1+g1234567.cu130", ">=3.10,<3.14")
    assert facts.metadata_sha256 == hashlib.sha256(facts.metadata).hexdigest()
    assert facts.requires_python == ">=3.10,<3.14"
    assert facts.tags == ("cp38-abi3-manylinux_2_31_x86_64", "cp39-abi3-manylinux_2_31_x86_64")
    assert facts.build == "2b"


def test_facts_of_an_sdist(tmp_path: Path) -> None:
    facts = read_facts(make_sdist(tmp_path, version="1.0+rocm7.2", requires_python=">=3.11"), PATTERNS)
    assert (facts.kind, facts.project, facts.version, facts.variant) == (Kind.SDIST, "sample", "1.0+rocm7.2", "rocm7.2")
    assert (facts.metadata_sha256, facts.tags, facts.build) == (None, (), None)
    assert facts.requires_python == ">=3.11"


@pytest.mark.parametrize("requires_python", [None, "", "  "])
def test_no_requires_python_is_none(tmp_path: Path, requires_python: str | None) -> None:
    assert read_facts(make_wheel(tmp_path, requires_python=requires_python), PATTERNS).requires_python is None


def test_a_later_reader_sees_the_same_facts(tmp_path: Path) -> None:
    for path in (make_wheel(tmp_path), make_sdist(tmp_path)):
        local = read_facts(path, PATTERNS)
        with path.open("rb") as file:
            remote = facts_from_reader(path.name, local.size, file, local.sha256, PATTERNS)
        assert all(getattr(local, name) == getattr(remote, name) for name in vars(remote))


def test_of_a_large_wheel_only_the_end_and_the_metadata_are_read(tmp_path: Path) -> None:
    class Counting(io.FileIO):
        count = 0

        def read(self, size: int | None = -1, /) -> bytes:
            data = super().read(-1 if size is None else size) or b""
            self.count += len(data)
            return data

    path = make_wheel(tmp_path, files={"sample/weights.bin": os.urandom(3_000_000)})
    with Counting(path) as file:
        assert read_metadata(file, path.name).startswith(b"Metadata-Version")
        assert file.count < 200_000


@pytest.mark.parametrize("make", [*BROKEN_WHEELS, *BROKEN_SDISTS], ids=lambda make: str(make.__name__))
def test_refuses_a_broken_file_and_names_it(tmp_path: Path, make: Callable[[Path], Path]) -> None:
    path = make(tmp_path)
    with pytest.raises(DataError) as caught:
        read_facts(path, PATTERNS)
    assert path.name in caught.value.message
    assert "\n" not in caught.value.message


def test_file_name_and_metadata_must_agree_and_both_are_named(tmp_path: Path) -> None:
    name = "sgl_kernel-0.3.18.post2+cu130-cp310-abi3-manylinux2014_aarch64.whl"
    path = make_wheel(
        tmp_path, filename=name, dist_info="sgl_kernel-0.3.18.post2+cu130.dist-info",
        metadata_bytes=metadata("sgl-kernel", "0.3.18.post2"),
    )  # fmt: skip
    with pytest.raises(DataError, match=r"0\.3\.18\.post2\+cu130.*'0\.3\.18\.post2'"):
        read_facts(path, PATTERNS)
    renamed = make_wheel(tmp_path, name="sgl-kernel", version="0.3.18.post2").rename(tmp_path / name)
    with pytest.raises(DataError, match=r"0\.3\.18\.post2\+cu130.*sgl_kernel-0\.3\.18\.post2$"):
        read_facts(renamed, PATTERNS)


@pytest.mark.parametrize(
    ("filename", "dist_info", "declared", "expected"),
    [
        ("ruamel.yaml-1-py3-none-any.whl", "ruamel.yaml-1.dist-info", ("ruamel.yaml", "1.0"), "ruamel-yaml 1"),
        ("flash_attn-2.8-py3-none-any.whl", "flash-attn-2.8.dist-info", ("Flash_Attn", "2.8.0"), "flash-attn 2.8"),
        ("Foo-1.0.RC1-py3-none-any.whl", "foo-1.0rc1.dist-info", ("FOO", "1.0-rc.1"), "foo 1.0rc1"),
        ("foo-1.0+CU.130-py3-none-any.whl", "foo-1.0+cu_130.dist-info", ("foo", "1.0+cu-130"), "foo 1.0+cu.130"),
    ],
)  # fmt: skip
def test_spellings_that_normalise_to_the_same_agree(
    tmp_path: Path, filename: str, dist_info: str, declared: tuple[str, str], expected: str
) -> None:
    path = make_wheel(tmp_path, filename=filename, dist_info=dist_info, metadata_bytes=metadata(*declared))
    facts = read_facts(path, PATTERNS)
    assert f"{facts.project} {facts.version}" == expected


def test_a_name_with_two_underscores_is_taken_with_a_warning(tmp_path: Path) -> None:
    path = make_wheel(
        tmp_path, filename="Foo__Bar-1.0-py3-none-any.whl", dist_info="Foo__Bar-1.0.dist-info",
        metadata_bytes=metadata("Foo__Bar", "1.0"),
    )  # fmt: skip
    facts = read_facts(path, PATTERNS)
    assert facts.project == "foo-bar"
    assert "pip 26" in " ".join(facts.warnings)


def test_unknown_labels_are_reported(tmp_path: Path) -> None:
    facts = read_facts(make_wheel(tmp_path, version="1.0+weird.cu130"), PATTERNS)
    assert (facts.variant, facts.unknown) == ("cu130", ("weird",))
    assert "weird" in " ".join(facts.warnings)


@pytest.mark.parametrize(
    "filename",
    [
        "",
        "sample.whl",
        "sample-1.0.whl",
        "sample-1.0-py3-none-any.WHL",
        "sample-1.0-py3-none-any.whl.metadata",
        "sample-one-py3-none-any.whl",
        "sample-1.0-x-py3-none-any.whl",
        "sample-1.0-1-2-py3-none-any.whl",
        "-1.0-py3-none-any.whl",
        "_-1.0-py3-none-any.whl",
        "_sample-1.0-py3-none-any.whl",
        "sample.-1.0-py3-none-any.whl",
        " sample-1.0-py3-none-any.whl",
        "sample- 1.0-py3-none-any.whl",
        "sample-1.0-py3-none-any.whl\n",
        "sam\x1bple-1.0-py3-none-any.whl",
        "sam\u202eple-1.0-py3-none-any.whl",
        "sampl\u00e9-1.0-py3-none-any.whl",
        "sample-1.\u0663-py3-none-any.whl",
        "sam\udcffple-1.0-py3-none-any.whl",
        "<script>alert(1)<script>-1.0-py3-none-any.whl",
        "sample-1.0-1<b>-py3-none-any.whl",
        "sample-1.0-py3-none-\"><img src='x'>.whl",
        "it's-1.0.tar.gz",
        '"-1.0.tar.gz',
        "../sample-1.0-py3-none-any.whl",
        "sample-1.0%2Bcu130-py3-none-any.whl",
        "sample-1.0.zip",
        "sample-1.0.tar.bz2",
        "sample-1.0.tgz",
        "sample-one.tar.gz",
        "sample.tar.gz",
        "-1.0.tar.gz",
        f"{'a' * 300}-1.0-py3-none-any.whl",
        f"{'a' * 226}-1.0-py3-none-any.whl",
        f"{'a' * 300}-1.0.tar.gz",
    ],
)
def test_refuses_a_file_name(filename: str) -> None:
    with pytest.raises(DataError) as caught:
        parse_filename(filename)
    assert caught.value.message.isprintable()
    assert "invalid wheel filename" not in caught.value.message.lower()


def test_the_longest_name_leaves_room_for_its_metadata_file(tmp_path: Path) -> None:
    path = make_wheel(tmp_path, name="a" * 225)
    assert read_facts(path, PATTERNS).project == "a" * 225
    path.with_name(f"{path.name}.metadata").touch()


@given(st.text(max_size=40), st.sampled_from(["", ".whl", ".tar.gz", "-1.0.tar.gz", "-1.0-py3-none-any.whl"]))
def test_any_file_name_is_parsed_or_refused(head: str, tail: str) -> None:
    try:
        name = parse_filename(head + tail)
    except DataError as error:
        seen = error.message
    else:
        seen = name.text
        assert seen == head + tail
        assert not set(seen) & set("<>&\"'/\\ %\n")
    assert seen.isprintable()


@given(st.binary(max_size=200), st.integers(min_value=0, max_value=1200))
def test_any_damage_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, damage: bytes, start: int) -> None:
    folder = tmp_path_factory.mktemp("damage")
    for path in (make_wheel(folder), make_sdist(folder)):
        data = path.read_bytes()
        broken = io.BytesIO(data[:start] + damage + data[start + len(damage) :])
        with suppress(DataError):
            facts_from_reader(path.name, len(data), broken, "0" * 64, PATTERNS)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(MissingInputError, match=r"sample-1\.0-py3-none-any\.whl"):
        read_facts(tmp_path / "sample-1.0-py3-none-any.whl", PATTERNS)


def _folder(path: Path) -> None:
    path.mkdir()


def _loop(path: Path) -> None:
    path.symlink_to(path.name)


def _dangling(path: Path) -> None:
    path.symlink_to("nowhere")


def _device(path: Path) -> None:
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize("make", [_folder, _loop, os.mkfifo, _device])
def test_refuses_what_is_no_regular_file(tmp_path: Path, make: Callable[[Path], None]) -> None:
    path = tmp_path / "sample-1.0-py3-none-any.whl"
    make(path)
    with pytest.raises(DataError, match=r"sample-1\.0-py3-none-any\.whl"):
        read_facts(path, PATTERNS)


def test_a_dangling_link_is_a_missing_file(tmp_path: Path) -> None:
    path = tmp_path / "sample-1.0-py3-none-any.whl"
    _dangling(path)
    with pytest.raises(MissingInputError):
        read_facts(path, PATTERNS)


def test_a_link_to_a_wheel_is_read(tmp_path: Path) -> None:
    link = tmp_path / "links" / "sample-1.0-py3-none-any.whl"
    link.parent.mkdir()
    link.symlink_to(make_wheel(tmp_path))
    assert read_facts(link, PATTERNS).project == "sample"


def test_refuses_a_file_without_read_permission(tmp_path: Path) -> None:
    path = make_wheel(tmp_path)
    path.chmod(0)
    code = "import os, sys, pathlib\n"
    if os.geteuid() == 0:  # root may read anything: become nobody, after the imports
        for folder in (tmp_path, *tmp_path.parents):
            if folder.is_relative_to(Path("/tmp/")) and folder != Path("/tmp"):
                folder.chmod(0o755)
        drop = "os.setgid(65534), os.setuid(65534)\n"
    else:
        drop = ""
    code += "from tasks.wheels.distribution import read_facts\nfrom tasks.support.errors import DataError\n" + drop
    code += f"try:\n    read_facts(pathlib.Path({str(path)!r}), ())\nexcept DataError as error:\n    print(error)\n"
    said = subprocess.run([sys.executable, "-c", code], cwd=CHECKOUT, capture_output=True, text=True, check=True)
    assert said.stdout.strip() == f"cannot read {path}: Permission denied"


@pytest.mark.slow
def test_facts_of_a_gigabyte_take_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "sample-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", allowZip64=True) as archive:
        for number in range(8):
            with archive.open(f"sample/weights{number}.bin", "w", force_zip64=True) as member:
                for _ in range(128):
                    member.write(os.urandom(2**20))
        archive.writestr("sample-1.0.dist-info/METADATA", metadata("sample", "1.0"))
    assert path.stat().st_size > 2**30
    code = (
        "import pathlib, re\nfrom tasks.wheels.distribution import read_facts\n"
        f"print(read_facts(pathlib.Path({str(path)!r}), ()).size)\n"
        # Not getrusage: its peak is inherited from the process that starts this one.
        "print(re.search(r'VmHWM:\\s*(\\d+)', pathlib.Path('/proc/self/status').read_text())[1])\n"
    )
    said = subprocess.run([sys.executable, "-c", code], cwd=CHECKOUT, capture_output=True, text=True, check=True)
    size, peak = map(int, said.stdout.split())
    assert size == path.stat().st_size
    assert peak < 60_000, f"{peak} kB"


def test_the_factory_makes_the_same_bytes_each_time(tmp_path: Path) -> None:
    for make in (make_wheel, make_sdist):
        first, second = (make(tmp_path / folder).read_bytes() for folder in ("one", "two"))
        assert first == second


HEAD = metadata("sample", "1.0").rstrip(b"\n") + b"\n"
NINES = "9" * 5000


def refused(path: Path) -> str:
    with pytest.raises(DataError) as caught:
        read_facts(path, PATTERNS)
    assert path.name in caught.value.message
    assert "\n" not in caught.value.message
    return caught.value.message


@pytest.mark.parametrize(
    "text",
    [
        f">={NINES}", f"=={NINES}.*", f">=3.{NINES}", f"==={'x' * 300}", ",".join([">=3.8"] * 60), ">=3.8\x00",
        ">=3.8,\x1f<4",
        ">=3.8,\x7f<4", ">=3.8,\u2028<4", "===\x1b[31m", f">={'9' * 4301}", "3.8", ">=three",
    ],
)  # fmt: skip
@pytest.mark.parametrize("make", [make_wheel, make_sdist])
def test_a_requires_python_that_installers_cannot_use_is_refused(
    tmp_path: Path, make: Callable[..., Path], text: str
) -> None:
    path = make(tmp_path, metadata_bytes=HEAD + f"Requires-Python: {text}\n".encode())
    assert len(refused(path)) < 500


@pytest.mark.parametrize("declared", [("sample", NINES), (NINES, "1.0"), ("sample", f"1.0+{'a' * 5000}")])
@pytest.mark.parametrize("make", [make_wheel, make_sdist])
def test_a_name_or_version_of_thousands_of_characters_is_refused(
    tmp_path: Path, make: Callable[..., Path], declared: tuple[str, str]
) -> None:
    assert len(refused(make(tmp_path, metadata_bytes=metadata(*declared)))) < 1000


@pytest.mark.parametrize("version", [NINES, "1." * 3000 + "1"])
def test_a_folder_whose_version_has_thousands_of_digits_is_refused(tmp_path: Path, version: str) -> None:
    refused(make_wheel(tmp_path, dist_info=f"sample-{version}.dist-info"))
    refused(make_sdist(tmp_path, top=f"sample-{version}"))


@pytest.mark.slow
@pytest.mark.parametrize("make", [make_wheel, make_sdist])
@pytest.mark.parametrize(
    "nested",
    [
        b"Content-Type: message/rfc822\n\n" * 3000,
        b"".join(b"Content-Type: multipart/mixed; boundary=b%d\n\n--b%d\n" % (i, i) for i in range(3000)),
    ],
)
def test_metadata_that_nests_messages_is_refused(tmp_path: Path, make: Callable[..., Path], nested: bytes) -> None:
    for number, data in enumerate((HEAD + nested, nested + HEAD)):
        folder = tmp_path / str(number)
        folder.mkdir()
        refused(make(folder, metadata_bytes=data))
