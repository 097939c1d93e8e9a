"""Which file imports which: chains from tests to changed files, and the cache of what was read."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.pipelines.import_graph import ImportGraph, build, imports_in
from tasks.support.errors import DataError

Sources = Mapping[str, str | bytes]


def _blobs(files: Sources) -> dict[str, str]:
    return {path: hashlib.sha1(_bytes(text)).hexdigest() for path, text in files.items()}


def _bytes(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode()


def _graph(files: Sources, *gone: str) -> ImportGraph:
    return build(_blobs(files), lambda path: _bytes(files[path]), gone=gone)


def _chain(files: Sources, *changed: str, gone: tuple[str, ...] = ()) -> str | None:
    found = _graph(files, *gone).chain(["tests/t.py"], changed)
    return None if found is None else " -> ".join(found)


def test_the_way_from_a_test_to_a_changed_file() -> None:
    files = {"tests/t.py": "from pkg.a import f", "pkg/a.py": "import pkg.common.snake as s", "pkg/common/snake.py": ""}
    assert _chain(files, "pkg/common/snake.py") == "tests/t.py -> pkg/a.py -> pkg/common/snake.py"
    assert _chain(files, "pkg/a.py") == "tests/t.py -> pkg/a.py"
    assert _chain(files, "tests/t.py") == "tests/t.py"
    assert _chain(files, "pkg/common/snake.py", "pkg/a.py") == "tests/t.py -> pkg/a.py"
    assert _chain(files, "pkg/common/other.py") is None
    assert _chain(files) is None
    assert _graph(files).chain([], ["pkg/a.py"]) is None
    assert _graph(files).chain(["tests/none.py"], ["pkg/a.py"]) is None


@pytest.mark.parametrize(
    ("statement", "reached"),
    [
        ("import pkg", ["pkg/__init__.py"]),
        ("import pkg.sub.mod", ["pkg/__init__.py", "pkg/sub/__init__.py", "pkg/sub/mod.py"]),
        ("import os, pkg.sub as x", ["pkg/__init__.py", "pkg/sub/__init__.py"]),
        ("from pkg import sub", ["pkg/__init__.py", "pkg/sub/__init__.py"]),
        ("from pkg import name", ["pkg/__init__.py"]),
        ("from pkg.sub import mod as m", ["pkg/__init__.py", "pkg/sub/__init__.py", "pkg/sub/mod.py"]),
        ("from pkg.sub import *", ["pkg/__init__.py", "pkg/sub/__init__.py", "pkg/sub/mod.py"]),
        ("from pkg.sub.mod import f", ["pkg/__init__.py", "pkg/sub/__init__.py", "pkg/sub/mod.py"]),
        ("from space.deep import mod", ["space/deep/mod.py"]),
        ("import space.deep.mod", ["space/deep/mod.py"]),
        ("import helper", ["tests/helper.py"]),
        ("from . import helper", ["tests/helper.py"]),
        ("from .helper import f", ["tests/helper.py"]),
        ("from ..pkg import sub", ["pkg/__init__.py", "pkg/sub/__init__.py"]),
        ("from ....pkg import sub", []),
        ("def f():\n    import pkg", ["pkg/__init__.py"]),
        ("if TYPE_CHECKING:\n    import pkg", ["pkg/__init__.py"]),
        ("try:\n    import pkg\nexcept ImportError:\n    pkg = None", ["pkg/__init__.py"]),
        ("import importlib\nimportlib.import_module('pkg.sub')", ["pkg/__init__.py", "pkg/sub/__init__.py"]),
        ("from importlib import import_module\nimport_module(name='pkg')", ["pkg/__init__.py"]),
        ("import_module('.helper', __package__)", ["tests/helper.py"]),
        ("__import__('pkg')", ["pkg/__init__.py"]),
        ("pytest.importorskip('pkg')", ["pkg/__init__.py"]),
        ("@patch('pkg.sub.mod.f.g')\ndef test(): ...", ["pkg/__init__.py", "pkg/sub/__init__.py", "pkg/sub/mod.py"]),
        ("monkeypatch.setattr('pkg.x', 1)", ["pkg/__init__.py"]),
        ("pytest_plugins = ['pkg.sub.mod', 'os']", ["pkg/__init__.py", "pkg/sub/__init__.py", "pkg/sub/mod.py"]),
        ("import_module(f'pkg.{x}')", []),
        ("import_module('')", []),
        ("import_module('../pkg')", []),
        ("print('pkg.sub')", []),
        ("'import pkg'  # import pkg", []),
        ("import pkgx, subpkg, sub", []),
        ("import os", []),
    ],
)
def test_what_a_statement_imports(statement: str, reached: list[str]) -> None:
    files = {
        "tests/t.py": statement,
        "tests/helper.py": "",
        "pkg/__init__.py": "",
        "pkg/sub/__init__.py": "",
        "pkg/sub/mod.py": "",
        "space/deep/mod.py": "",
    }
    graph = _graph(files)
    assert [path for path in sorted(files) if len(graph.chain(["tests/t.py"], [path]) or ()) == 2] == reached


def test_relative_imports_start_at_the_package_that_the_file_is_in() -> None:
    files = {
        "pkg/__init__.py": "from . import a\n",
        "pkg/a.py": "from .sub.mod import f\n",
        "pkg/sub/__init__.py": "from ..b import g\n",
        "pkg/sub/mod.py": "",
        "pkg/b.py": "",
        "tests/t.py": "import pkg",
    }
    assert _chain(files, "pkg/b.py") == "tests/t.py -> pkg/__init__.py -> pkg/a.py -> pkg/sub/__init__.py -> pkg/b.py"
    assert _chain(files, "pkg/sub/mod.py") == "tests/t.py -> pkg/__init__.py -> pkg/a.py -> pkg/sub/mod.py"


def test_a_test_stands_on_its_packages_and_conftest_files() -> None:
    files = {
        "conftest.py": "",
        "tests/__init__.py": "import pkg.start",
        "tests/conftest.py": "from tests.help import x",
        "tests/help.py": "",
        "tests/e2e/__init__.py": "",
        "tests/e2e/conftest.py": "",
        "tests/e2e/test_a.py": "",
        "tests/unit/conftest.py": "",
        "pkg/start.py": "",
    }
    graph = _graph(files)
    for changed, way in {
        "tests/help.py": ("tests/e2e/test_a.py", "tests/conftest.py", "tests/help.py"),
        "conftest.py": ("tests/e2e/test_a.py", "conftest.py"),
        "tests/e2e/__init__.py": ("tests/e2e/test_a.py", "tests/e2e/__init__.py"),
        "pkg/start.py": ("tests/e2e/test_a.py", "tests/__init__.py", "pkg/start.py"),
        "tests/unit/conftest.py": None,
    }.items():
        assert graph.chain(["tests/e2e/test_a.py"], [changed]) == way


def test_cycles_end_and_the_shortest_way_is_the_same_every_time() -> None:
    files = {
        "tests/t.py": "import pkg.z, pkg.b, pkg.a",
        "pkg/a.py": "import pkg.b, pkg.c",
        "pkg/b.py": "import pkg.a, pkg.c",
        "pkg/z.py": "import pkg.z, pkg.long, tests.t",
        "pkg/long.py": "import pkg.c",
        "pkg/c.py": "import pkg.a",
        "pkg/alone.py": "import pkg.alone, pkg.c",
    }
    for order in itertools.islice(itertools.permutations(files), 60):
        turned = {path: files[path] for path in order}
        assert _chain(turned, "pkg/c.py") == "tests/t.py -> pkg/a.py -> pkg/c.py"
        assert _chain(turned, "pkg/long.py", "pkg/alone.py") == "tests/t.py -> pkg/z.py -> pkg/long.py"
        assert _chain(turned, "pkg/alone.py") is None
        assert _graph(turned).chain(list(files), ["pkg/c.py"]) == ("pkg/c.py",)


@pytest.mark.parametrize(
    "broken", ["def (", b"\xff\xfe\x00", b"# coding: nope\n", "(" * 5000, "a" + ".a" * 100_000, "\0"]
)
def test_a_file_that_does_not_parse_imports_everything(broken: str | bytes) -> None:
    files: Sources = {
        "tests/t.py": "import pkg.a",
        "pkg/a.py": broken,
        "pkg/b.py": "",
        "pkg/c.py": "",
        "tests/u.py": "",
    }
    assert _chain(files, "pkg/c.py", "pkg/b.py") == "tests/t.py -> pkg/a.py -> pkg/b.py"
    assert _chain(files, "pkg/a.py") == "tests/t.py -> pkg/a.py"
    assert _chain(files, "pkg/a.yaml", "README.md") is None
    assert _chain({**files, "tests/t.py": broken}, "pkg/c.py") == "tests/t.py -> pkg/c.py"
    assert _graph(files).chain(["tests/u.py"], ["pkg/b.py"]) is None


def test_a_proper_way_of_the_same_length_as_one_through_a_broken_file() -> None:
    files = {"tests/t.py": "import pkg.a, pkg.b", "pkg/a.py": "import pkg.c", "pkg/b.py": "def (", "pkg/c.py": ""}
    assert _chain(files, "pkg/c.py") == "tests/t.py -> pkg/a.py -> pkg/c.py"


def test_a_file_that_cannot_be_read_imports_everything(tmp_path: Path) -> None:
    def read(path: str) -> bytes | None:
        if path == "pkg/refused.py":
            raise DataError("too large")
        return b"import pkg.refused" if path == "tests/t.py" else b"import pkg.gone" if path == "tests/u.py" else None

    names = ("tests/t.py", "tests/u.py", "pkg/refused.py", "pkg/gone.py", "pkg/b.py")
    graph = build({name: name for name in names}, read, cache=tmp_path)
    assert graph.chain(["tests/t.py"], ["pkg/b.py"]) == ("tests/t.py", "pkg/refused.py", "pkg/b.py")
    assert graph.chain(["tests/u.py"], ["pkg/b.py"]) == ("tests/u.py", "pkg/gone.py", "pkg/b.py")
    later = build({name: name for name in names}, lambda _path: b"", cache=tmp_path)
    assert later.chain(["tests/t.py"], ["pkg/b.py"]) is None


def test_who_still_imports_a_deleted_file_is_found() -> None:
    files = {"tests/t.py": "from pkg import a", "pkg/a.py": "from . import lost"}
    assert _chain(files, "pkg/lost.py", gone=("pkg/lost.py",)) == "tests/t.py -> pkg/a.py -> pkg/lost.py"
    assert _chain(files, "pkg/__init__.py", gone=("pkg/__init__.py",)) is not None
    assert _chain(files, "pkg/other.py", gone=("pkg/other.py", "pkg/other.yaml")) is None


def test_the_cache_saves_reading(tmp_path: Path) -> None:
    files = {
        "tests/t.py": "import pkg.a",
        "pkg/a.py": "from . import b",
        "pkg/b.py": "(",
        "pkg/c.py": "",
        "pkg/d.yaml": "",
    }
    blobs = _blobs(files)
    read: list[str] = []

    def reader(path: str) -> bytes:
        read.append(path)
        return files[path].encode()

    def chain() -> tuple[str, ...] | None:
        read.clear()
        return build(blobs, reader, cache=tmp_path / "new" / "folder").chain(["tests/t.py"], ["pkg/c.py"])

    first = chain()
    assert first == ("tests/t.py", "pkg/a.py", "pkg/b.py", "pkg/c.py")
    assert sorted(read) == ["pkg/a.py", "pkg/b.py", "pkg/c.py", "tests/t.py"]
    assert chain() == first
    assert read == []
    files["pkg/b.py"] = "import pkg.c"
    blobs.update(_blobs(files))
    assert chain() == first
    assert read == ["pkg/b.py"]
    blobs["pkg/moved.py"] = blobs["pkg/b.py"]
    chain()
    assert read == []
    (kept,) = (tmp_path / "new" / "folder").iterdir()
    for harm in (
        b"",
        b"{",
        b"[]",
        b"{}",
        b'{"blobs": []}',
        b'{"blobs": {"x": 1}}',
        b'{"blobs": {"x": [["a", 1, 2]]}}',
        b"\xff",
    ):
        kept.write_bytes(harm)
        assert chain() == first
        assert len(read) == 4
        assert len(json.loads(kept.read_bytes())["blobs"]) == 4
    assert [path.name for path in kept.parent.iterdir()] == [kept.name]


def test_a_cache_that_cannot_be_written_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    files = {"tests/t.py": "import pkg.a", "pkg/a.py": ""}
    graph = build(_blobs(files), lambda path: files[path].encode(), cache=tmp_path / "file" / "below")
    assert graph.chain(["tests/t.py"], ["pkg/a.py"]) == ("tests/t.py", "pkg/a.py")


@given(
    st.dictionaries(st.sampled_from("abcdef"), st.sets(st.sampled_from("abcdef")), min_size=1),
    st.sampled_from("abcdef"),
)
def test_chains_are_shortest_ways(imports: dict[str, set[str]], changed: str) -> None:
    files = {f"{name}.py": "\n".join(f"import {other}" for other in sorted(others)) for name, others in imports.items()}
    graph = _graph(files)
    reached, distance = {changed}, dict.fromkeys({changed} & imports.keys(), 0)
    for step in range(1, 7):
        reached |= {name for name, others in imports.items() if others & {one for one in reached if one in imports}}
        distance.update({name: step for name in reached & imports.keys() if name not in distance})
    for name in imports:
        found = graph.chain([f"{name}.py"], [f"{changed}.py"])
        expected = distance.get(name) if changed in imports else None
        assert (None if found is None else len(found) - 1) == expected
        for one, next_one in itertools.pairwise(found or ()):
            assert next_one.removesuffix(".py") in imports[one.removesuffix(".py")]


@given(st.binary(max_size=80))
def test_any_bytes_are_read_or_do_not_parse(data: bytes) -> None:
    found = imports_in(data)
    assert found is None or found == imports_in(data)
