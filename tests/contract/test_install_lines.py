"""The commands on the human page, run as they stand, by the real pip and uv, against a hostile public index."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from html import unescape
from pathlib import Path

import pytest

from tasks.wheels import browse, pages
from tasks.wheels.state import FileRecord, Revision, count_variants
from tests.services import find_program
from tests.wheel_factory import make_wheel

pytestmark = pytest.mark.slow

COMMIT = "0123456789abcdef0123456789abcdef01234567"
TIME = "2026-08-27T10:11:12.000000Z"
# The public index has the very version too where it may, and a higher one; the build tag makes pip prefer its files.
HOSTILE = ["1.0", "1.0.dev5", "9.0"]


def write(folder: Path, rendered: dict[str, bytes]) -> None:
    for key, data in rendered.items():
        (folder / key).parent.mkdir(parents=True, exist_ok=True)
        (folder / key).write_bytes(data)


def record_of(path: Path, commit: str, version: str, variant: str | None) -> FileRecord:
    data = path.read_bytes()
    return FileRecord(
        key=f"{commit}/{path.name}",
        version=version,
        size=len(data),
        sha256=hashlib.sha256(data).hexdigest(),
        uploaded=TIME,
        commit_time=TIME,
        commit_time_from="git",
        variant=variant,
    )


def publish(store: Path, view: str, wheels: list[tuple[Path, str, str | None]]) -> str:
    """Write a view's machine pages, and return its human page."""
    by_project: dict[str, list[FileRecord]] = {}
    for path, version, variant in wheels:
        record = record_of(path, COMMIT, version, variant)
        by_project.setdefault(path.name.split("-")[0], []).append(record)
    revision = Revision(
        number=1,
        commit=COMMIT,
        commit_time=TIME,
        commit_time_from="git",
        moved=TIME,
        note="",
        counts={project: count_variants(records) for project, records in by_project.items()},
    )
    for project, records in by_project.items():
        for variant, group in pages.group_by_variant(records, None).items():
            write(store, pages.project_pages(view, variant, project, group))
            write(store, pages.root_pages(view, variant, [project]))
    write(store, pages.root_pages(view, None, by_project))
    single = next(iter(by_project.values())) if len(by_project) == 1 else None
    (made,) = browse.view_page(view, revision, single, alias_of_default=None, public_url=store.as_uri()).values()
    return made.decode()


@pytest.fixture
def public(tmp_path: Path) -> Path:
    """Return an index that has the dependency, and other bytes under our project's name."""
    store = tmp_path / "public"
    folder = store / COMMIT
    evil = [
        (make_wheel(folder, name="sample", version=version, build="9", files={"evil.py": b""}), version, None)
        for version in HOSTILE
    ]
    publish(store, "simple", [*evil, (make_wheel(folder, name="helper", version="2.0"), "2.0", None)])
    return store


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    return tmp_path / "with space" / "ours"


def environment_of(tmp_path: Path, public: Path) -> dict[str, str]:
    """Return an environment of a fresh virtual environment, in which the public index is the usual one."""
    uv = find_program("uv")
    assert uv, "uv is a development dependency"
    venv, bin_folder = tmp_path / "venv", tmp_path / "bin"
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_", "PYTHON"))}
    clean |= {"UV_NO_CONFIG": "1", "UV_CACHE_DIR": str(tmp_path / "cache"), "UV_PYTHON_DOWNLOADS": "never"}
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, str(venv)], check=True, env=clean)
    bin_folder.mkdir()
    (bin_folder / "uv").symlink_to(uv)
    pip = bin_folder / "pip"
    pip.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m pip --python "{venv}/bin/python" "$@"\n')
    pip.chmod(0o755)
    usual = f"{public.as_uri()}/simple/"
    return clean | {
        "PATH": f"{bin_folder}{os.pathsep}{clean['PATH']}",
        "VIRTUAL_ENV": str(venv),
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_INDEX_URL": usual,
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_NO_CACHE_DIR": "1",
        "UV_DEFAULT_INDEX": usual,
    }


def line_of(page: str, tool: str) -> str:
    found = re.findall(rf'<dt>{tool}</dt><dd><code class="all">(.*?)</code>', page)
    assert len(found) == 1
    return unescape(found[0])


@pytest.mark.parametrize("tool", ["pip", "uv"])
@pytest.mark.parametrize(
    ("view", "version", "variant"),
    [
        ("v1.0", "1.0", None),
        ("nightly", "1.0.dev5", None),
        ("nightly", "1.0.dev5+gabcdef123", None),
        ("v1.0", "1.0+rocm7.2", "rocm7.2"),
        ("v1!1.0", "1!1.0", None),
    ],
)
def test_the_line_installs_our_file_and_the_public_dependency(
    *, tmp_path: Path, public: Path, ours: Path, tool: str, view: str, version: str, variant: str | None
) -> None:
    wheel = make_wheel(
        ours / COMMIT, name="sample", version=version, extra="Requires-Dist: helper", files={"ours.py": b""}
    )
    environment = environment_of(tmp_path, public)
    line = line_of(publish(ours, view, [(wheel, version, variant)]), tool)
    done = subprocess.run(
        ["sh", "-c", line], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
    (packages,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    assert (packages / f"sample-{version}.dist-info").is_dir()
    assert (packages / "ours.py").exists()
    assert not (packages / "evil.py").exists()
    assert (packages / "helper").is_dir()
