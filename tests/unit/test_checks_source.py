"""The check of a whole source: path rules, tests that nothing runs, tables of selection, cells, unreadable files."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path
from textwrap import dedent

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.pipelines.checking import Context, Finding, Level, check, check_file, context_of, fails
from tasks.suites.areas import PathRules, read
from tests.git_scenes import Repository, isolate

TODAY = date(2026, 1, 10)
NATIVE = Path(__file__).parents[1] / "native"


@pytest.fixture(scope="module")
def bare() -> Context:
    return replace(context_of(None, TODAY), rules=PathRules())


def source_of(folder: Path, files: dict[str, str]) -> Context:
    repository = Repository.new(folder / "source")
    repository.commit(files)
    context = context_of(repository.path, TODAY)
    return replace(context, rules=PathRules())


def rules_of(findings: tuple[Finding, ...], rule: str) -> list[tuple[str, str]]:
    return [(one.where, one.text) for one in findings if one.rule == rule]


def step(dependencies: str, *, call: str = "pytest tests/", key: str = "a") -> str:
    return dedent(f"""\
        steps:
          - key: {key}
            mirror_hardwares: l4_1
            timeout_in_minutes: 9
            source_file_dependencies: {dependencies}
            command: {call}
        """)


DEPENDS = dedent("""\
    steps:
      - key: a
        mirror_hardwares: l4_1
        timeout_in_minutes: 9
        source_file_dependencies:
          - pkg/here/
          - pkg/gone/
          - pkg/a.py
          - "pkg/*/gone.py"
          - "!pkg/never/"
          - "pkg/**"
        command: x
    """)


def test_rules_that_no_file_answers_to_are_named_with_their_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    isolate(monkeypatch)
    context = source_of(tmp_path, {"pkg/here/b.py": "", "pkg/a.py": ""})
    findings = check_file(DEPENDS.encode(), "p.yml", context)
    assert rules_of(findings, "dead-path") == [
        ("p.yml:7", "no file of the source is under pkg/gone/"),
        ("p.yml:9", "no file of the source is under pkg/*/gone.py"),
        ("p.yml:10", "no file of the source is under !pkg/never/"),
    ]
    assert fails(findings)


def test_files_that_are_not_committed_yet_count_and_ignored_ones_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    isolate(monkeypatch)
    repository = Repository.new(tmp_path / "source")
    repository.commit({".gitignore": "built/\n"})
    for name in ("new/a.py", "built/b.py"):
        path = repository.path / name
        path.parent.mkdir()
        path.write_text("")
    context = replace(context_of(repository.path, TODAY), rules=PathRules())
    findings = check_file(step("[new/, built/]").encode(), "p.yml", context)
    assert rules_of(findings, "dead-path") == [("p.yml:5", "no file of the source is under built/")]


def test_a_source_without_git_is_walked(tmp_path: Path) -> None:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "a.py").write_text("")
    context = replace(context_of(tmp_path, TODAY), rules=PathRules())
    assert not rules_of(check_file(step("[pkg/]").encode(), "p.yml", context), "dead-path")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("['/pkg/']", "starts with a slash"),
        ("['area:nope']", "there is no area 'nope'"),
        ("['!pkg/']", "every rule starts with !"),
        ("[1]", "must be a list of paths"),
        ("{a: b}", "must be a list of paths"),
        ("[a, ./a]", "says the same as"),
    ],
)
def test_rules_that_cannot_be_read_are_findings(bare: Context, value: str, text: str) -> None:
    (found,) = [one for one in check_file(step(value).encode(), "p.yml", bare) if one.level is Level.ERROR]
    assert (found.rule, found.where) == ("path-rule", "p.yml:5")
    assert text in found.text


def test_dead_rules_of_areas_are_warnings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    isolate(monkeypatch)
    context = source_of(tmp_path, {"pkg/a.py": ""})
    rules = read(b"unmatched: ungated\nareas:\n  tts: [pkg/, pkg/gone/]\n", "areas.yml")
    found = [one for one in check(replace(context, rules=rules)) if one.rule == "dead-path"]
    assert [(one.level, one.text) for one in found] == [
        (Level.WARNING, "area tts: no file of the source is under pkg/gone/")
    ]


READY = ".buildkite/cuda/test-ready.yml"
MARKED = "import pytest\n\npytestmark = pytest.mark.{}\n\n\ndef test_it(): ...\n"


def orphans(folder: Path, tests: dict[str, str], call: str) -> list[str]:
    context = source_of(folder, {**tests, READY: step("[tests/]", call=call)})
    return [one.where for one in check(context) if one.rule == "orphan-test"]


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("pytest tests/a", ["tests/b/test_y.py"]),
        ("pytest tests/a/test_x.py::test_it tests/b", []),
        ("pytest", []),
        ("pytest .", []),
        ("pytest tests --ignore=tests/b", ["tests/b/test_y.py"]),
        ("pytest tests/*/test_x.py", ["tests/b/test_y.py"]),
        ("pytest ./tests/b/ -k x", ["tests/a/test_x.py"]),
        ("pytest tests/$$WHAT", []),
        ("pytest tests/a/$$WHAT", ["tests/b/test_y.py"]),
        ("pytest -m slow", ["tests/b/test_y.py"]),
        ("pytest -m 'slow or core_model'", []),
        ("pytest -m 'not slow'", []),
        ("timeout 5m bash -c 'pytest tests/b -m core_model'", ["tests/a/test_x.py"]),
        ("bash run.sh", ["tests/b/test_y.py"]),
    ],
)
def test_test_files_that_no_step_selects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, expected: list[str]
) -> None:
    isolate(monkeypatch)
    tests = {
        "tests/a/test_x.py": MARKED.format("slow"),
        "tests/b/test_y.py": MARKED.format("core_model"),
        "tests/b/helper.py": MARKED.format("slow"),
        "tests/b/test_nothing.py": "X = 1\n",
        "run.sh": "pytest tests/a\n",
    }
    assert orphans(tmp_path, tests, call) == expected


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (
            {"tests/test_x.py": "from h import hardware\n@hardware(res={'cuda': 'L4'})\ndef test_it(): ...\n"},
            [],
        ),
        ({"tests/test_x.py": "def test_it(): ...\n", "tests/conftest.py": "MARKS = ['cuda', 'L4']\n"}, []),
        (
            {"tests/test_x.py": "def test_it(): ...\n", "tests/sub/conftest.py": "M = ['cuda', 'L4']\n"},
            ["tests/test_x.py"],
        ),
        ({"tests/test_x.py": "class TestIt: ...\n"}, ["tests/test_x.py"]),
        ({"tests/test_x.py": "def test_it(:\n"}, []),  # nobody can say
        ({"tests/x_test.py": "async def test_it(): ...\n"}, ["tests/x_test.py"]),
    ],
)
def test_where_marks_may_come_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], expected: list[str]
) -> None:
    isolate(monkeypatch)
    assert orphans(tmp_path, files, "pytest tests -m 'cuda and L4'") == expected


def test_without_any_pytest_call_no_test_is_called_an_orphan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    isolate(monkeypatch)
    assert orphans(tmp_path, {"tests/test_x.py": MARKED.format("slow")}, "make test") == []


TABLE = """\
selection_tests:
  pkg/api/x.py: [{expected}]
  README.md: []
steps:
  - {{key: api, command: x, agents: {{queue: q}}, timeout_in_minutes: 1, source_file_dependencies: [{rule}]}}
  - {{key: always, command: x, agents: {{queue: q}}, timeout_in_minutes: 1}}
"""


@pytest.mark.parametrize(
    ("expected", "rule", "text"),
    [
        ("api", "pkg/cli/", "pkg/api/x.py: missing api"),
        ("", "pkg/api/", "pkg/api/x.py: also api"),
        ("ap", "pkg/api/", "pkg/api/x.py: there is no step ap"),
    ],
)
def test_a_table_of_selection_says_what_is_missing(bare: Context, expected: str, rule: str, text: str) -> None:
    (found,) = check_file(TABLE.format(expected=expected, rule=rule).encode(), "p.yml", bare)
    assert (found.rule, found.where, found.text, found.level) == ("selection-test", "p.yml:2", text, Level.ERROR)


def test_a_table_that_holds_is_no_finding(bare: Context) -> None:
    assert check_file(TABLE.format(expected="api", rule="pkg/api/").encode(), "p.yml", bare) == ()


def test_a_table_that_is_none_is_a_finding(bare: Context) -> None:
    text = TABLE.format(expected="api", rule="pkg/api/").replace("README.md: []", "README.md: api")
    assert [one.rule for one in check_file(text.encode(), "p.yml", bare)] == ["selection-test"]


def test_a_label_that_uploads_a_cell_but_opens_no_group_of_its_file(bare: Context) -> None:
    data = (NATIVE / "npu_nightly.yml").read_bytes()
    found = check_file(data, ".buildkite/npu/test-npu-nightly.yml", bare)
    texts = [text for _, text in rules_of(found, "label-without-group")]
    assert {text.split()[1] for text in texts} >= {"omni-test", "tts-test", "diffusion-x2iat-test"}
    assert not any("diffusion-x2v-test" in text for text in texts)
    whole = check_file((NATIVE / "cuda_nightly.yml").read_bytes(), ".buildkite/cuda/test-nightly.yml", bare)
    assert not rules_of(whole, "label-without-group")


@pytest.mark.parametrize(
    ("name", "device"), [(".buildkite/npu/test-npu-ready.yml", "npu"), (".buildkite/amd/test-amd-ready.yaml", "rocm")]
)
def test_a_file_s_cell_says_its_device_where_a_step_has_no_preset(bare: Context, name: str, device: str) -> None:
    text = "steps:\n  - {key: a, agents: {queue: q}, timeout_in_minutes: 9, command: pytest t -m xpu}\n"
    found = rules_of(check_file(text.encode(), name, bare), "mark-device")
    assert found == [(f"{name}:2", f"-m 'xpu' asks for xpu tests on {device}")]


def test_a_whole_source_goes_on_behind_a_file_that_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    isolate(monkeypatch)
    files = {
        READY: "steps:\n\t- a\n",
        ".buildkite/test-merge.yml": step("[tests/]").replace("key: a", "key: a\n    keyy: b"),
    }
    findings = [one for one in check(source_of(tmp_path, files)) if one.level is Level.ERROR]
    assert [(one.where.rpartition("/")[2], one.rule) for one in findings] == [
        ("test-ready.yml:2", "yaml"),
        ("test-merge.yml:3", "unknown-key"),
        ("test-merge.yml:6", "dead-path"),
    ]


BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "\n".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join(['*' + chr(97 + n)] * 10)}]" for n in range(9)
)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", ""),
        ("steps:\n", ":1"),
        ("steps: []\n", ":1"),
        ("steps: null\n", ":1"),
        ("env: {A: b}\n", ":1"),
        ("steps:\n\t- a\n", ":2"),
        ("steps:\n  - a: 1\n    a: 2\n", ":3"),
        ("steps:\n  - 5\n", ":2"),
        ("steps:\n  - [a]\n", ":2"),
        ("steps:\n  - wat\n", ":2"),
        ("steps:\n  - {command: 'a}\n", None),
        ("\xff\xfe", None),
        (BOMB + "\nsteps: [wait]\n", None),
        ("[" * 500, None),
        ("steps:\n  - group: a\n    steps: [{group: b, steps: [wait]}]\n", ":3"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_finding_with_its_line(bare: Context, text: str, line: str | None) -> None:
    findings = check_file(text.encode("latin-1"), "p.yml", bare)
    assert [(one.rule, one.level) for one in findings] == [("yaml", Level.ERROR)]
    assert line is None or findings[0].where == f"p.yml{line}"


def test_a_second_document_is_a_warning_with_its_line(bare: Context) -> None:
    text = "steps:\n  - wait\n---\nsteps:\n  - block\n"
    (found,) = check_file(text.encode(), "p.yml", bare)
    assert (found.rule, found.level, found.where) == ("yaml", Level.WARNING, "p.yml:3")


odd = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 300)
    | st.sampled_from(["mi300_1", "l4_1"])
    | st.text("ab$ {}'\"\\!\n-=:*", max_size=12),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["step", "name", "value", "A"]), inner, max_size=3)
    ),
    max_leaves=8,
)
KEYS = [
    "key", "label", "command", "commands", "script", "depends_on", "env", "agents", "plugins",
    "timeout_in_minutes", "retry", "if", "signature",
    "source_file_dependencies", "mirror_hardwares", "agent_pool", "grade", "imports", "matrix", "parallelism",
    "artifact_paths", "wait", "block", "type", "group", "soft_fail", "name", "id", "working_dir",
]  # fmt: skip


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.dictionaries(st.sampled_from(KEYS), odd, min_size=1, max_size=6), min_size=1, max_size=3),
    st.dictionaries(st.sampled_from(["env", "agents", "notify", "selection_tests", "x-a", "secrets"]), odd, max_size=2),
)
def test_whatever_a_file_holds_the_check_ends_with_findings(
    bare: Context, steps: list[dict[str, object]], top: dict[str, object]
) -> None:
    import yaml

    text = yaml.safe_dump({**top, "steps": steps}, allow_unicode=True)
    findings = check_file(text.encode(), "p.yml", bare)
    assert all(one.text and one.where.startswith("p.yml") for one in findings)
    assert list(findings) == sorted(findings, key=lambda one: one.order)
