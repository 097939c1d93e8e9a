"""Which steps run, for which one reason: every kind of rule, of doubt and of structure."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.pipelines.build_facts import Build
from tasks.pipelines.changes import ChangedFile, ChangeSet, State
from tasks.pipelines.mentions import conftests_above, named_tests
from tasks.pipelines.model import Decision, NativeFile, Reason, Why
from tasks.pipelines.reading import read_native
from tasks.pipelines.selecting import E2E_TITLE, Choice, Named, Shut, select
from tasks.suites.areas import PathRules, Unmatched
from tasks.suites.areas import read as read_areas
from tasks.support.errors import DataError, UsageError

UNGATED = PathRules(unmatched=Unmatched.UNGATED)
LOCAL = Build()


def native(text: str) -> NativeFile:
    return read_native(textwrap.dedent(text).encode(), ".buildkite/test.yml")


def known(*paths: str) -> ChangeSet:
    files = tuple(ChangedFile(path, "M") for path in paths)
    return ChangeSet(State.KNOWN if files else State.EMPTY, files, "b" * 40, "c" * 40, "against main")


UNKNOWN = ChangeSet(State.UNKNOWN, (), None, None, "not known: the history is cut")


def decide(
    text: str | NativeFile,
    *changed: str,
    changes: ChangeSet | None = None,
    rules: PathRules = UNGATED,
    build: Build = LOCAL,
    choice: Choice | None = None,
    skip: Reason | None = None,
    shut: Shut | None = None,
    is_e2e: Named | None = None,
    chain: Mapping[str, tuple[str, ...]] | None = None,
) -> tuple[Decision, ...]:
    file = native(text) if isinstance(text, str) else text
    return select(
        file,
        known(*changed) if changes is None else changes,
        rules,
        build,
        choice=choice or Choice(),
        skip=skip,
        shut=shut,
        imports=(lambda tests, files: found(chain, tests, files)) if chain else None,
        is_e2e=is_e2e or (lambda title, _key: E2E_TITLE in title),
    )


def found(chains: Mapping[str, tuple[str, ...]], tests: Sequence[str], files: Sequence[str]) -> tuple[str, ...] | None:
    return next((chains[test] for test in tests if test in chains and chains[test][-1] in files), None)


def kept(decisions: Sequence[Decision]) -> list[str]:
    return [decision.step.name for decision in decisions if decision.keep]


def why(decisions: Sequence[Decision]) -> dict[str, tuple[str, str]]:
    return {decision.step.name: (decision.reason.why.name, decision.reason.text) for decision in decisions}


TTS_AND_IMAGE = """
    steps:
      - {key: tts, command: t, source_file_dependencies: [pkg/models/qwen3_tts/]}
      - {key: img, command: i, source_file_dependencies: [pkg/models/qwen_image/, pkg/x.py]}
      - {key: unit, command: u}
"""


def test_a_changed_file_runs_the_steps_whose_rules_it_matches_and_those_without_rules() -> None:
    found = why(decide(TTS_AND_IMAGE, "pkg/models/qwen3_tts/talker.py"))
    assert found == {
        "tts": ("PATH", "pkg/models/qwen3_tts/talker.py under pkg/models/qwen3_tts/"),
        "img": ("UNCHANGED", "nothing under pkg/models/qwen_image/ and 1 more changed"),
        "unit": ("ALWAYS", "no path rules: always"),
    }


@pytest.mark.parametrize(
    ("rules", "changed", "runs"),
    [
        (["pkg/deploy/a.yaml"], ["pkg/deploy/a.yaml.bak"], False),
        (["pkg/deploy/a.yaml"], ["pkg/deploy/a.yaml"], True),
        (["pkg/a"], ["pkg/ab/c.py"], False),
        (["./pkg/a"], ["pkg/a/c.py"], True),
        (["pkg/", "!pkg/kv/"], ["pkg/kv/a.py"], False),
        (["pkg/", "!pkg/kv/"], ["pkg/kv/a.py", "pkg/b.py"], True),
        (["pkg/**/*.py"], ["pkg/a/b/c.py"], True),
        (["pkg/wan/"], ["pkg/wan/视频.py"], True),
        (["pkg/wan/"], ['pkg/wan/q"uote.py'], True),
    ],
)
def test_each_kind_of_rule(rules: list[str], changed: list[str], runs: bool) -> None:
    text = f"steps: [{{key: a, command: a, source_file_dependencies: {rules!r}}}]"
    assert (kept(decide(text, *changed)) == ["a"]) is runs


AREAS = read_areas(
    b"""
run_all: [pyproject.toml, docker/]
ignore: ['**/*.lock', docker/README.md]
unmatched: run_all
docs: [docs/, '**/*.md']
areas:
  tts: [pkg/tts/]
  image: [pkg/image/]
""",
    "areas.yml",
)
WITH_AREAS = """
    steps:
      - {key: tts, command: t, source_file_dependencies: [area:tts]}
      - {key: image, command: i, source_file_dependencies: image}
      - {key: api, command: p, source_file_dependencies: [pkg/api/]}
      - {key: unit, command: u}
"""


def test_areas_are_named_with_and_without_their_prefix_and_in_a_list_or_alone() -> None:
    found = why(decide(WITH_AREAS, "pkg/image/a.py", rules=AREAS))
    assert found["image"] == ("AREA", "pkg/image/a.py is in area image")
    assert found["tts"] == ("UNCHANGED", "nothing under area tts changed")


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        (["pyproject.toml"], ("RUN_ALL", "pyproject.toml changed, which runs everything")),
        (["docker/ci/Dockerfile"], ("RUN_ALL", "docker/ci/Dockerfile under docker/, which runs everything")),
        (["pkg/util.py"], ("UNMATCHED", "pkg/util.py is covered by no rule: everything runs")),
        (["pkg/api/x.py", "pkg/util.py"], ("UNMATCHED", "pkg/util.py is covered by no rule: everything runs")),
        (["docker/README.md"], None),
        (["uv.lock"], None),
        (["docs/a.rst", "a/b.md"], None),
        (["pkg/api/x.py"], None),
    ],
)
def test_what_runs_everything_does_and_nothing_else_does(changed: list[str], reason: tuple[str, str] | None) -> None:
    found = why(decide(WITH_AREAS, *changed, rules=AREAS))
    assert found["unit"][0] == "ALWAYS"
    if reason is None:
        assert found["tts"][0] == "UNCHANGED"
    else:
        assert found["tts"] == reason


def test_an_unmatched_file_leaves_alone_what_runs_for_a_reason_of_its_own() -> None:
    assert why(decide(WITH_AREAS, "pkg/api/x.py", "pkg/util.py", rules=AREAS))["api"][0] == "PATH"


def test_ungated_runs_nothing_more_for_an_unmatched_file() -> None:
    assert kept(decide(TTS_AND_IMAGE, "pkg/util.py")) == ["unit"]


def test_an_area_covers_only_where_a_step_names_it() -> None:
    """A file that is written into the catalogue must not make fewer tests run than one that nobody knows."""
    api = "{key: api, command: p, source_file_dependencies: [pkg/api/]}"
    tts = "{key: tts, command: t, source_file_dependencies: [area:tts]}"
    assert kept(decide(f"steps: [{api}]", "pkg/tts/a.py", rules=AREAS)) == ["api"]
    assert kept(decide(f"steps: [{api}, {tts}]", "pkg/tts/a.py", rules=AREAS)) == ["tts"]


def test_an_unknown_change_set_runs_every_step_and_says_why() -> None:
    found = why(decide(TTS_AND_IMAGE, changes=UNKNOWN))
    assert found["tts"] == ("UNKNOWN", "changed files not known: the history is cut: everything runs")
    assert found["unit"][0] == "ALWAYS"


def test_an_empty_change_set_is_known_and_runs_what_has_no_rules() -> None:
    assert kept(decide(TTS_AND_IMAGE)) == ["unit"]


@pytest.mark.parametrize(
    ("changed", "runs"),
    [
        (["pkg/a/x.py"], ["both", "group-only"]),
        (["pkg/b/x.py"], []),
        (["pkg/c/x.py"], ["group-only"]),
        (["pkg/b/x.py", "pkg/c/x.py"], ["both", "group-only"]),
        (["tests/e2e/test_b.py"], ["both"]),
        ([], []),
    ],
)
def test_the_rules_of_a_group_gate_its_steps(changed: list[str], runs: list[str]) -> None:
    text = """
        steps:
          - group: G
            source_file_dependencies: [pkg/a/, pkg/c/]
            steps:
              - {key: both, command: pytest tests/e2e/test_b.py, source_file_dependencies: [pkg/a/, pkg/b/]}
              - {key: group-only, command: c}
    """
    assert kept(decide(text, *changed)) == runs


TESTS = """
    steps:
      - key: tts
        commands:
          - |
            # tests/e2e/not_this.py
            timeout 9m pytest tests/e2e/online/test_tts.py::test_one tests/e2e/*/test_more.py --ignore=tests/e2e/no.py
          - bash -c 'cd /app/vllm-omni && pytest "tests/dfx/"'
        source_file_dependencies: [pkg/tts/]
      - {key: unit, command: pytest tests/unit}
"""


@pytest.mark.parametrize(
    ("path", "runs"),
    [
        ("tests/e2e/online/test_tts.py", True),
        ("tests/e2e/offline/test_more.py", True),
        ("tests/dfx/perf/data.json", True),
        ("conftest.py", True),
        ("tests/conftest.py", True),
        ("tests/e2e/online/conftest.py", True),
        ("tests/dfx/perf/conftest.py", True),
        (".buildkite/test.yml", True),
        ("tests/e2e/no.py", False),
        ("tests/e2e/not_this.py", False),
        ("tests/unit/test_a.py", False),
        ("tests/unit/conftest.py", False),
        ("tests/e2e/offline/conftest.py", False),
        (".buildkite/other.yml", False),
    ],
)
def test_a_step_with_rules_depends_on_its_tests_their_conftests_and_its_file(path: str, runs: bool) -> None:
    found = why(decide(TESTS, path))
    assert found["tts"][0] == ("IMPLICIT" if runs else "UNCHANGED")
    assert found["unit"][0] == "ALWAYS"


def test_what_commands_mention() -> None:
    body = {
        "commands": ["pytest tests/a.py --deselect tests/b.py::c -k 'x and tests' /workspace/tests/d/", "ls mytests/e"]
    }
    assert named_tests(body) == ("tests/a.py", "tests/d/")
    assert named_tests({"command": "pytest $TESTS/tests/a.py ../tests/b.py"}) == ()
    assert conftests_above(("tests/a/b.py", "tests/*/c.py")) == (
        "conftest.py",
        "tests/conftest.py",
        "tests/a/conftest.py",
    )


def test_imports_show_their_chain_and_come_after_the_rules() -> None:
    text = """
        steps:
          - {key: t, command: pytest tests/t.py, imports: true, source_file_dependencies: [pkg/a.py]}
          - {key: alone, command: pytest tests/t.py, imports: true}
          - {key: without, command: pytest tests/t.py, source_file_dependencies: [pkg/a.py]}
    """
    chain = {"tests/t.py": ("tests/t.py", "pkg/a.py", "pkg/common/snake.py")}
    found = why(decide(text, "pkg/common/snake.py", chain=chain))
    assert found["t"] == found["alone"] == ("IMPORTS", "tests/t.py -> pkg/a.py -> pkg/common/snake.py")
    assert found["without"][0] == "UNCHANGED"
    assert why(decide(text, "pkg/a.py", chain=chain))["t"][0] == "PATH"
    assert why(decide(text, "pkg/else.py"))["alone"] == ("UNCHANGED", "nothing under what its tests import changed")


@pytest.mark.parametrize("value", ["[]", "~", "3", "[3]", "{a: b}", "[[a]]"])
def test_rules_that_are_no_list_of_paths_are_an_error_with_its_line(value: str) -> None:
    text = f"steps:\n  - key: a\n    command: a\n    source_file_dependencies: {value}\n"
    with pytest.raises(DataError, match=r"test\.yml:4: .*: path rules must be a list of paths or areas"):
        decide(text)


def test_imports_is_true_or_false() -> None:
    with pytest.raises(DataError, match=r"test\.yml:2: imports is true or false, not 'yes'"):
        decide("steps:\n  - {key: a, command: a, imports: 'yes'}\n")


GROUPS = """
    steps:
      - group: Simple
        key: simple
        steps: [{key: s, command: s}]
      - group: ":card: E2E Test"
        key: e2e
        depends_on: build
        steps:
          - {key: wan, command: w, source_file_dependencies: [pkg/wan/]}
          - {key: tts, command: t}
      - {key: build, command: b, source_file_dependencies: [docker/]}
"""


@pytest.mark.parametrize("choice", [Choice(e2e=True), Choice(group="E2E"), Choice(steps=("wan", "tts"))])
def test_what_is_asked_for_runs_whatever_changed_and_brings_what_it_needs(choice: Choice) -> None:
    skip = Reason(Why.SKIPPED, "documentation only")
    found = decide(GROUPS, choice=choice, skip=skip, shut=lambda _t, _k: Reason(Why.GATE, "shut"))
    assert [(d.step.name, d.keep, d.reason.why) for d in found] == [
        ("s", False, Why.GROUP),
        ("wan", True, Why.CHOSEN),
        ("tts", True, Why.CHOSEN),
        ("build", True, Why.NEEDED),
    ]
    assert found[3].reason.text == "pulled in: tts needs it"


def test_the_end_to_end_groups_can_be_told_by_more_than_their_title() -> None:
    found = decide(GROUPS, choice=Choice(e2e=True), is_e2e=lambda _title, key: key == "simple")
    assert kept(found) == ["s"]


@pytest.mark.parametrize(
    ("choice", "said", "hint"),
    [
        (Choice(group="Nightly"), "no group has 'Nightly' in its title", "the groups are: Simple, :card: E2E Test"),
        (Choice(steps=("zzz",)), "unknown step 'zzz'", "choose from build, s, tts, wan"),
        (Choice(steps=("wan", "ttss")), "unknown step 'ttss'", "did you mean tts?"),
    ],
)
def test_asking_for_what_is_not_there_names_what_is(choice: Choice, said: str, hint: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        decide(GROUPS, choice=choice)
    assert caught.value.hint == hint


def test_a_file_without_end_to_end_tests_or_groups_says_so() -> None:
    with pytest.raises(UsageError, match="no group is one of end-to-end tests") as caught:
        decide("steps: [{key: a, command: a}]", choice=Choice(e2e=True))
    assert caught.value.hint == "the file has no groups"


def test_a_skip_drops_everything_with_one_reason() -> None:
    skip = Reason(Why.SKIPPED, "documentation only")
    found = decide(GROUPS, "pkg/wan/a.py", skip=skip)
    assert {(d.keep, d.reason) for d in found} == {(False, skip)}


@pytest.mark.parametrize(
    ("build", "choice", "said"),
    [
        (LOCAL, Choice(run_all=True), "everything was asked for: --all"),
        (Build(run_all=True), Choice(), "everything was asked for: RUN_ALL=1"),
        (
            Build(run_all=True, labels=frozenset({"ready-run-all-tests"})),
            Choice(),
            "everything was asked for: label ready-run-all-tests",
        ),
    ],
)
def test_run_all_lifts_a_skip_and_only_the_flag_opens_gates(build: Build, choice: Choice, said: str) -> None:
    found = decide(GROUPS, build=build, choice=choice, skip=Reason(Why.SKIPPED, "docs"))
    assert why(found)["wan"] == ("RUN_ALL", said)
    assert kept(found) == ["s", "wan", "tts", "build"]

    def shut(_title: str, key: str | None) -> Reason | None:
        return Reason(Why.GATE, "label tts-test") if key == "e2e" else None

    gated = why(decide(GROUPS, build=build, choice=choice, shut=shut))
    assert gated["wan"] == (("RUN_ALL", said) if choice.run_all else ("GATE", "label tts-test"))


def test_a_gate_is_asked_for_groups_and_for_steps_outside_of_them_and_for_no_wait_between() -> None:
    text = """
        steps:
          - group: G
            key: g
            steps: [{key: a, command: a}]
          - wait
          - {label: L, key: l, command: b}
    """
    asked: list[tuple[str, str | None]] = []

    def shut(title: str, key: str | None) -> Reason | None:
        asked.append((title, key))
        return None

    assert kept(decide(text, shut=shut)) == ["a", "wait", "l"]
    assert asked == [("G", "g"), ("L", "l")]


@pytest.mark.parametrize(
    "form", ["image", "[image]", "[{step: image}]", "[{step: image, allow_failure: true}]", "[upload, image]"]
)
def test_what_a_kept_step_needs_comes_back_in_in_every_form_and_all_the_way(form: str) -> None:
    text = f"""
        steps:
          - {{key: base, command: x, source_file_dependencies: [docker/]}}
          - {{id: image, command: i, depends_on: base, source_file_dependencies: [docker/]}}
          - {{key: a, command: a, depends_on: {form}, source_file_dependencies: [pkg/]}}
          - {{key: c, command: c, source_file_dependencies: [other/]}}
    """
    found = why(decide(text, "pkg/x.py"))
    assert found["image"] == ("NEEDED", "pulled in: a needs it")
    assert found["base"] == ("NEEDED", "pulled in: image needs it")
    assert found["c"][0] == "UNCHANGED"


def test_a_needed_group_comes_back_whole_and_a_groups_needs_count_for_its_steps() -> None:
    text = """
        steps:
          - group: Bench
            key: bench
            source_file_dependencies: [bench/]
            steps: [{key: b1, command: b}, {key: b2, command: b}]
          - group: Report
            depends_on: [bench]
            steps:
              - {key: report, command: r, source_file_dependencies: [pkg/]}
              - {key: other, command: o, source_file_dependencies: [o/]}
    """
    assert kept(decide(text, "pkg/a.py")) == ["b1", "b2", "report"]
    assert kept(decide(text, "else.py")) == []


def test_needs_go_in_circles_without_end_or_error_and_unknown_keys_are_left_alone() -> None:
    text = """
        steps:
          - {key: a, command: a, depends_on: b, source_file_dependencies: [a/]}
          - {key: b, command: b, depends_on: [a, elsewhere, 7, ~], source_file_dependencies: [b/]}
    """
    assert kept(decide(text, "a/x")) == ["a", "b"]


def test_a_needed_wait_or_block_is_kept_even_where_nothing_follows() -> None:
    text = """
        steps:
          - {key: a, command: a, depends_on: ok}
          - {block: Go, key: ok}
    """
    assert why(decide(text))["ok"] == ("NEEDED", "pulled in: a needs it")


def shape(decisions: Sequence[Decision]) -> str:
    words = {"wait": "|", "Stop": "B", "Ask": "I"}
    return "".join(words.get(d.step.name, d.step.name) for d in decisions if d.keep)


def drawn(picture: str) -> str:
    """Make a file of a picture: a capital letter runs, a small one does not, | waits, B blocks, I asks."""
    steps = {"|": "wait", "B": "{block: Stop}", "I": "{input: Ask}"}
    return "steps:\n" + "".join(f"  - {steps.get(letter) or step_of(letter)}\n" for letter in picture)


def step_of(letter: str) -> str:
    return f"{{key: {letter}, command: c{', source_file_dependencies: [no/]' if letter.islower() else ''}}}"


@pytest.mark.parametrize(
    ("picture", "left"),
    [
        ("X|Y", "X|Y"),
        ("a|Y", "Y"),
        ("X|a", "X"),
        ("X|a|Y", "X|Y"),
        ("X|a|b|Y", "X|Y"),
        ("a|b|c", ""),
        ("|X", "|X"),  # written so: it waits for what others uploaded
        ("X|", "X|"),
        ("|a", ""),
        ("a|", ""),
        ("X||Y", "X|Y"),
        ("XBY", "XBY"),
        ("aBY", "BY"),
        ("XBa", "X"),
        ("XBa|Y", "XB|Y"),
        ("X|aB|Y", "X|B|Y"),
        ("XIa", "X"),
        ("XIY", "XIY"),
        ("aIB|b", ""),
        ("a|BY", "BY"),
    ],
)
def test_waits_and_blocks_stay_where_something_runs_on_the_sides_that_matter(picture: str, left: str) -> None:
    assert shape(decide(drawn(picture))) == left


def test_the_last_of_doubled_waits_stays_since_it_holds_what_follows() -> None:
    text = """
        steps:
          - {key: X, command: x}
          - wait
          - {key: a, command: a, source_file_dependencies: [no/]}
          - {wait: ~, continue_on_failure: true}
          - {key: Y, command: y}
    """
    found = decide(text)
    assert [d.step.body for d in found if d.keep and "wait" in d.step.body] == [
        {"wait": None, "continue_on_failure": True}
    ]
    assert found[1].reason == Reason(Why.STRUCTURE, "the next wait is enough")


def test_a_wait_with_a_condition_takes_no_other_waits_place() -> None:
    text = """
        steps:
          - {key: X, command: x}
          - wait
          - {key: a, command: a, source_file_dependencies: [no/]}
          - {wait: ~, if: build.branch == "main"}
          - {key: Y, command: y}
    """
    assert [d.keep for d in decide(text)] == [True, True, False, True, True]


def test_a_group_has_a_structure_of_its_own_and_counts_as_running_when_a_step_of_it_does() -> None:
    text = """
        steps:
          - group: G
            steps:
              - {key: a, command: a, source_file_dependencies: [no/]}
              - wait
              - {key: X, command: x}
          - wait
          - group: H
            steps:
              - {block: Stop}
              - {key: b, command: b, source_file_dependencies: [no/]}
          - wait
          - group: I
            steps: [{key: Y, command: y}]
    """
    assert [(d.step.name, d.keep) for d in decide(text)] == [
        ("a", False),
        ("wait", False),
        ("X", True),
        ("wait", False),
        ("Stop", False),
        ("b", False),
        ("wait", True),
        ("Y", True),
    ]


@given(st.text(alphabet="XYab|BI", min_size=1, max_size=14))
def test_any_structure_keeps_what_runs_in_order_and_no_hold_without_something_to_hold(picture: str) -> None:
    # Keys have to differ; so letters are numbered through the picture.
    steps = []
    for number, letter in enumerate(picture):
        if letter in "|BI":
            steps.append({"|": "wait", "B": "{block: Stop}", "I": "{input: Ask}"}[letter])
        else:
            steps.append(step_of(letter).replace(f"key: {letter}", f"key: {letter}{number}"))
    found = decide("steps:\n" + "".join(f"  - {step}\n" for step in steps))
    runs = [number for number, letter in enumerate(picture) if letter in "XY"]
    assert [n for n, d in enumerate(found) if d.keep and picture[n] not in "|BI"] == runs
    for number, (letter, decision) in enumerate(zip(picture, found, strict=True)):
        if letter in "BI":
            assert decision.keep is any(other > number for other in runs)
    left = "".join(letter for letter, decision in zip(picture, found, strict=True) if decision.keep)
    assert "||" not in left
    if runs and not picture.startswith("|"):
        assert not left.startswith("|") or picture.lstrip("BI").startswith("|")
    if not runs:
        assert left == ""


def test_the_same_input_gives_the_same_decisions_and_every_step_exactly_one() -> None:
    file = native(GROUPS)
    first, second = decide(file, "pkg/wan/a.py"), decide(file, "pkg/wan/a.py")
    assert first == second
    assert [id(d.step) for d in first] == [id(step) for _, step in file.steps()]


@pytest.mark.parametrize(
    ("path", "why_api"),
    [
        ("tests/unit/test_a.py", "UNCHANGED"),
        ("tests/else/test_b.py", "UNMATCHED"),
        (".buildkite/other.yml", "UNCHANGED"),
        (".buildkite/unknown.yml", "UNMATCHED"),
    ],
)
def test_tests_that_always_run_and_other_pipelines_files_are_covered(path: str, why_api: str) -> None:
    file = native("""
        steps:
          - {key: api, command: p, source_file_dependencies: [pkg/api/]}
          - {key: unit, command: pytest tests/unit -m cpu}
    """)
    found = select(file, known(path), AREAS, LOCAL, elsewhere=[".buildkite/other.yml"])
    assert found[0].reason.why.name == why_api


def test_a_pytest_that_names_nothing_covers_the_whole_folder() -> None:
    text = """
        steps:
          - {key: api, command: p, source_file_dependencies: [pkg/api/]}
          - {key: unit, command: "timeout 9m pytest -m 'core_model and cpu' --ignore=tests/e2e"}
    """
    assert why(decide(text, "tests/x/test_a.py", rules=AREAS))["api"][0] == "UNCHANGED"


def test_what_tests_import_is_covered_for_all_steps() -> None:
    text = """
        steps:
          - {key: t, command: pytest tests/t.py, imports: true}
          - {key: api, command: p, source_file_dependencies: [pkg/api/]}
    """
    chain = {"tests/t.py": ("tests/t.py", "pkg/snake.py")}
    assert why(decide(text, "pkg/snake.py", rules=AREAS, chain=chain))["api"][0] == "UNCHANGED"
    assert why(decide(text, "pkg/other.py", rules=AREAS, chain=chain))["api"][0] == "UNMATCHED"
