"""A machine that lacks a package of ours: one line that names it, and exit code 78, whichever import met it."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tasks.support.store import open_store
from tests.contract.conftest import ROOT, Invoke
from tests.factory_index import RULES, commit, index_of, upload

pytestmark = pytest.mark.slow  # together these take longer than the fast set may

OURS = "tasks"


def late_imports() -> list[str]:
    """Return the packages that functions of ours import, by the names that they have in Python."""
    found: set[str] = set()
    for path in (ROOT / "tasks").rglob("*.py"):
        for function in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
                for node in ast.walk(function):
                    if isinstance(node, ast.Import):
                        found |= {alias.name for alias in node.names}
                    elif isinstance(node, ast.ImportFrom) and not node.level:
                        found.add(node.module or "")
    tops = {name.partition(".")[0] for name in found}
    # The library's own modules are asked for in a python of its own.
    return sorted(tops - set(sys.stdlib_module_names) - {OURS, "invoke", "nox", "vllm", "vllm_omni"})


def hiding(folder: Path, *names: str) -> dict[str, str]:
    """Return the environment of a python in which these modules cannot be imported."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(f"import sys\nsys.modules.update(dict.fromkeys({names!r}))\n")
    return {"PYTHONPATH": str(folder)}


def test_the_imports_are_found() -> None:
    assert {"boto3", "botocore", "packaging", "pypi_simple", "requests", "rich", "yaml"} <= set(late_imports())


@pytest.mark.parametrize("name", sorted({*late_imports(), "docker", "twine", "build", "urllib3"}))
def test_a_task_whose_import_fails_says_which_package_is_missing(tmp_path: Path, name: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        f"import sys\nsys.path.insert(1, {str(ROOT)!r})\n"
        "from invoke import Context\nfrom tasks.support.task import task\n"
        f"@task(help={{}})\ndef load(context):\n    import {name}\n"
        f"sys.modules[{name!r}] = None\nload(Context())\n"
    )
    done = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 78, done.stderr
    assert done.stderr.startswith(f"error: {name} is not installed here\n")
    assert "dependency group" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("hidden", "words"),
    [
        ("pypi_simple", ("wheels.check", commit(1))),
        ("boto3", ("wheels.check", "nightly", "--store", "s3://some-bucket/x")),
        ("botocore", ("wheels.check", "nightly", "--store", "s3://some-bucket/x")),
        ("botocore", ("wheels.serve", "--store", "s3://some-bucket/x")),
        ("requests", ("wheels.check", commit(1), "--online")),
        ("twine", ("wheels.build", "--allow-dirty", "--source", str(ROOT))),
        ("build", ("wheels.build", "--allow-dirty", "--source", str(ROOT))),
    ],
)
def test_a_real_task_without_a_package(tmp_path: Path, invoke: Invoke, hidden: str, words: tuple[str, ...]) -> None:
    upload(index_of(open_store(str(tmp_path / "store")), RULES), 1)
    environment = {"OMNI_CI_STORE": str(tmp_path / "store"), "AWS_EC2_METADATA_DISABLED": "true"}
    answer = invoke(*words, env={**environment, **hiding(tmp_path / "site", hidden)})
    assert answer.code == 78, answer.err
    assert f"{hidden} is not installed" in answer.err
    assert "Traceback" not in answer.err
