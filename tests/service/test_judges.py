"""The real pip, uv and pypi-simple, without anybody's configuration, against an index served from each store."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pypi_simple import (
    ACCEPT_ANY,
    ACCEPT_HTML_ONLY,
    ACCEPT_HTML_PREFERRED,
    ACCEPT_JSON_ONLY,
    DistributionPackage,
    NoSuchProjectError,
    PyPISimple,
)

from tasks.support.store import ObjectStore, open_store
from tasks.wheels.checking import check_view
from tasks.wheels.serving import Server, serve
from tests.factory_index import commit, index_of, nightly
from tests.services import S3Server, find_program, use_aws

pytestmark = pytest.mark.slow

FILES = {
    "": "sample_thing-1.0.dev3+g1234567-py3-none-any.whl",
    "cu130/": "sample_thing-1.0.dev3+g1234567.cu130-py3-none-any.whl",
    "rocm7.2/": "sample_thing-1.0.dev3+g1234567.rocm7.2-py3-none-any.whl",
}
VERSIONS = {folder: name.split("-")[1] for folder, name in FILES.items()}


@dataclass(frozen=True)
class Served:
    """A served index, and what was asked of it since the last look."""

    server: Server
    store: ObjectStore
    heard: Callable[[], list[str]]

    @property
    def nightly(self) -> str:
        return f"{self.server.url}/nightly/"

    def bytes_of(self, name: str) -> bytes:
        blob = self.store.get(f"{commit(1)}/{name}")
        assert blob is not None
        return blob.data


@pytest.fixture(scope="module", params=["file", pytest.param("s3", marks=pytest.mark.service)])
def published(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    """Return a store of each kind with a nightly of two projects, one of them in three variants."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "file":
            url = str(tmp_path_factory.mktemp("judged") / "store")
        else:
            s3_server: S3Server = request.getfixturevalue("s3_server")
            use_aws(patch, s3_server.environment)
            url = f"s3://{s3_server.new_bucket()}/some/prefix"
        store = open_store(url)
        nightly(index_of(store), 1, *(("sample-thing", version) for version in VERSIONS.values()), ("other", "2.0"))
        yield store


@pytest.fixture
def served(published: ObjectStore, capfd: pytest.CaptureFixture[str]) -> Iterator[Served]:
    def heard() -> list[str]:
        return re.findall(r"^(\d{3} .*) HTTP/1\.1$", capfd.readouterr().err, re.MULTILINE)

    with serve(published, log=True) as server:
        yield Served(server, published, heard)


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., str]:
    """Return a function that runs a program in an empty folder, at home nowhere, and returns its output."""
    home = tmp_path / "home"
    home.mkdir()
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
    clean = {**kept, "HOME": str(home), "XDG_CONFIG_HOME": str(home), "PIP_CONFIG_FILE": os.devnull}

    def call(*argv: str) -> str:
        done = subprocess.run(argv, cwd=home, env=clean, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    return call


def pip_download(target: Path, index_url: str, wanted: str) -> list[str]:
    options = ["--disable-pip-version-check", "--no-input", "--no-deps", "--pre", "--cache-dir", str(target / "cache")]
    # pip caches what comes without encryption from trusted hosts only.
    where = ["--dest", str(target / "got"), "--index-url", index_url, "--trusted-host", "127.0.0.1"]
    return [sys.executable, "-m", "pip", "download", *options, *where, wanted]


def uv_install(target: Path, index_url: str, wanted: str) -> list[str]:
    uv = find_program("uv")
    assert uv is not None, "uv is a development dependency"
    options = ["--no-config", "--cache-dir", str(target / "cache"), "--prerelease", "allow"]
    where = ["--python", sys.executable, "--target", str(target / "got"), "--index-url", index_url]
    return [uv, "pip", "install", *options, *where, wanted]


def test_the_index_is_clean(served: Served) -> None:
    for view in ("nightly", commit(1)):
        assert check_view(index_of(served.store), view).findings == ()


def test_pip_follows_the_way_to_json_and_asks_again_cheaply(
    served: Served, run: Callable[..., str], tmp_path: Path
) -> None:
    run(*pip_download(tmp_path, served.nightly, "Sample_Thing"))
    assert (tmp_path / "got" / FILES[""]).read_bytes() == served.bytes_of(FILES[""])
    pages = ["302 GET /nightly/sample-thing/", "200 GET /nightly/json/sample-thing/"]
    path = f"/{commit(1)}/{FILES[''].replace('+', '%2B')}"
    assert served.heard() == [*pages, f"200 GET {path}.metadata", f"200 GET {path}"]

    (tmp_path / "got" / FILES[""]).unlink()
    run(*pip_download(tmp_path, served.nightly, "sample-thing"))
    assert served.heard() == ["302 GET /nightly/sample-thing/", "304 GET /nightly/json/sample-thing/"]
    assert (tmp_path / "got" / FILES[""]).read_bytes() == served.bytes_of(FILES[""])


def test_uv_follows_the_way_to_json_and_asks_again_cheaply(
    served: Served, run: Callable[..., str], tmp_path: Path
) -> None:
    run(*uv_install(tmp_path, served.nightly, "Sample_Thing"))
    (info,) = (tmp_path / "got").glob("*.dist-info")
    assert info.name == f"sample_thing-{VERSIONS['']}.dist-info"
    heard = served.heard()
    assert heard[:2] == ["302 GET /nightly/sample-thing/", "200 GET /nightly/json/sample-thing/"]
    assert f"200 GET /{commit(1)}/{FILES[''].replace('+', '%2B')}.metadata" in heard

    run(*uv_install(tmp_path, served.nightly, "sample-thing"), "--reinstall", "--refresh")
    assert "304 GET /nightly/json/sample-thing/" in served.heard()


@pytest.mark.parametrize("folder", ["cu130/", "rocm7.2/"])
def test_a_variant_has_an_index_of_its_own(
    served: Served, run: Callable[..., str], tmp_path: Path, folder: str
) -> None:
    # Without the slash, as people write it.
    run(*pip_download(tmp_path / "pip", f"{served.nightly}{folder}".rstrip("/"), "sample-thing"))
    assert [path.name for path in (tmp_path / "pip" / "got").iterdir()] == [FILES[folder]]
    run(*uv_install(tmp_path / "uv", f"{served.nightly}{folder}", f"sample-thing=={VERSIONS[folder]}"))
    assert [path.name for path in (tmp_path / "uv" / "got").glob("*.dist-info")] == [
        f"sample_thing-{VERSIONS[folder]}.dist-info"
    ]


def test_a_commit_is_an_index_too(served: Served, run: Callable[..., str], tmp_path: Path) -> None:
    run(*pip_download(tmp_path, f"{served.server.url}/{commit(1)}/", "other==2.0"))
    assert [path.name for path in (tmp_path / "got").iterdir()] == ["other-2.0-py3-none-any.whl"]


def facts(package: DistributionPackage) -> tuple[object, ...]:
    """Return what HTML and JSON both say of a file."""
    digests = (package.digests, package.metadata_digests)
    return package.filename, package.url, *digests, package.requires_python, package.is_yanked


def test_pypi_simple_reads_the_same_in_each_form(served: Served, tmp_path: Path) -> None:
    found = {}
    for accept in (ACCEPT_ANY, ACCEPT_JSON_ONLY, ACCEPT_HTML_ONLY, ACCEPT_HTML_PREFERRED):
        with PyPISimple(served.nightly, accept=accept) as client:
            assert sorted(client.get_index_page().projects) == ["other", "sample-thing"]
            page = client.get_project_page("Sample_Thing")
            assert page.repository_version == "1.4"
            assert (page.versions is not None) == (accept in (ACCEPT_ANY, ACCEPT_JSON_ONLY))
            found[accept] = [facts(package) for package in page.packages]
            (package,) = page.packages
            client.download_package(package, tmp_path / "got", verify=True)
            assert (tmp_path / "got").read_bytes() == served.bytes_of(FILES[""])
            metadata = client.get_package_metadata_bytes(package, verify=True)
            assert metadata == served.bytes_of(f"{FILES['']}.metadata")
            with pytest.raises(NoSuchProjectError):
                client.get_project_page("nothing")
    assert len({str(packages) for packages in found.values()}) == 1
    (digests,) = {str(row[2]) for row in found[ACCEPT_ANY]}
    assert hashlib.sha256(served.bytes_of(FILES[""])).hexdigest() in digests
