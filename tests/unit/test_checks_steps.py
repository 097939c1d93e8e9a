"""What the check says of steps: each family by a file with one mistake, and files without any."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from textwrap import dedent, indent

import pytest

from tasks.pipelines.checking import Context, Finding, Level, as_json, check_file, fails
from tasks.suites import presets, tiers
from tasks.suites.areas import PathRules

NATIVE = sorted((Path(__file__).parents[1] / "native").glob("*.yml"))


@pytest.fixture(scope="module")
def context() -> Context:
    return Context(PathRules(), presets.load(), tiers.load(), (), date(2026, 1, 10))


def look(context: Context, text: str, name: str = "p.yml") -> list[Finding]:
    return [one for one in check_file(dedent(text).encode(), name, context) if one.rule != "no-timeout"]


def only(context: Context, text: str, name: str = "p.yml") -> Finding:
    (found,) = look(context, text, name)
    return found


def step(commands: str, *, more: str = "key: a") -> str:
    """Return a file with one step that runs a script."""
    body = indent(dedent(more), "    ")
    head = "steps:\n  - label: A\n    agents: {queue: q}\n"
    return f"{head}{body}\n    command: |\n{indent(dedent(commands), '      ')}\n"


@pytest.mark.parametrize("path", NATIVE, ids=lambda path: path.name)
def test_the_native_files_have_no_errors(context: Context, path: Path) -> None:
    findings = check_file(path.read_bytes(), path.name, context)
    assert [one for one in findings if one.level is Level.ERROR] == []
    assert not fails(findings)


def test_the_known_weak_places_of_the_native_files_are_found(context: Context) -> None:
    rules: dict[str, set[str]] = {}
    for path in NATIVE:
        for one in check_file(path.read_bytes(), path.name, context):
            rules.setdefault(one.rule, set()).add(f"{path.name} {one.step}")
    assert "rocm_ready.yml CosyVoice3-TTS E2E Test" in rules["mark-level"]  # full_model at core_model
    assert rules["amd-grade"] == {"rocm_merge.yml Omni Model Test Qwen2-5-Omni"}
    assert sum(name.startswith("cuda_ready.yml") for name in rules["no-timeout"]) == 23
    assert sum(name.startswith("cuda_merge.yml") for name in rules["no-timeout"]) == 7


@pytest.mark.parametrize(
    ("key", "value", "text", "hint"),
    [
        ("timeout_in_minute", "5", "unknown key 'timeout_in_minute' of the step", "did you mean timeout_in_minutes"),
        ("source_file_dependancies", "[a]", "unknown key", "source_file_dependencies"),
        ("timeout_in_minutes", "soon", "timeout_in_minutes must be a whole number, not 'soon'", None),
        ("timeout_in_minutes", "0", "0 is less than the minimum of 1", None),
        ("soft_fail", "maybe", "soft_fail must be", None),
        ("retry", "{automatic: {limit: 99}}", "retry.automatic.limit", None),
        ("retry", "{automatic: [{exit_status: -1, limitt: 2}]}", "unknown keys: limitt", "limit"),
        ("parallelism", "[1]", "parallelism must be", None),
        ("branches", "{a: b}", "branches must be", None),
        ("concurrency_method", "eagerly", "must be one of", None),
        ("key", "a b", "characters that are not allowed", None),
        ("id", "0190046e-e199-453b-a302-a21a4d649d31", "looks like a UUID", None),
    ],
)
def test_the_schema_names_step_key_and_line(
    context: Context, key: str, value: str, text: str, hint: str | None
) -> None:
    found = only(context, f"steps:\n  - label: A\n    agents: {{queue: q}}\n    command: x\n    {key}: {value}\n")
    assert (found.level, found.where) == (Level.ERROR, "p.yml:5")
    assert text in found.text
    assert hint is None or hint in (found.hint or "")


def test_a_mistake_in_a_plugin_of_a_group_has_its_own_line(context: Context) -> None:
    text = """
        steps:
          - group: G
            steps:
              - label: A
                agents: {queue: q}
                command: x
                retry:
                  automatic:
                    - exit_status: -1
                      limit: many
        """
    found = only(context, text)
    assert (found.where, found.step) == ("p.yml:11", "A")
    assert "limit must be a whole number, not 'many'" in found.text


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        ("group: G\n    agents: {queue: q}\n    steps: [wait]", "unknown key 'agents' of the group"),
        ("wait: ~\n    command_: x", "unknown key 'command_'"),
        ("block: B\n    agents: {queue: q}", "unknown key 'agents'"),
        ("trigger: other\n    command_: x", "unknown key 'command_'"),
        ("input: I\n    fields: 5", "fields must be"),
    ],
)
def test_each_kind_of_entry_has_the_keys_of_its_kind(context: Context, entry: str, text: str) -> None:
    assert text in only(context, f"steps:\n  - {entry}\n").text


@pytest.mark.parametrize(
    "entry", ["wait", "wait: ~", "block: B", "input: I", "trigger: t", "wait: {if: x}", "block: {block: B}"]
)
def test_structure_is_no_finding(context: Context, entry: str) -> None:
    assert look(context, f"steps:\n  - label: A\n    agents: {{queue: q}}\n    command: x\n  - {entry}\n") == []


def test_unknown_keys_of_the_pipeline_are_errors_and_shared_text_is_not(context: Context) -> None:
    found = only(context, "x-plugins: [a]\nenvv: {A: b}\n" + step("true"))
    assert (found.where, found.rule) == ("p.yml:2", "unknown-key")
    assert found.hint == "did you mean env?"


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        ("{label: A, command: x, agents: {queue: q}, unmatched: run_all}", "'unmatched' is not read in a step"),
        ("{label: A, command: x, agents: {queue: q}, selection_tests: {}}", "'selection_tests' is not read in a step"),
        ("{group: A, steps: [wait], mirror_hardwares: l4_1}", "'mirror_hardwares' is not read in a group"),
    ],
)
def test_keys_of_ours_in_the_wrong_place(context: Context, entry: str, text: str) -> None:
    assert only(context, f"steps:\n  - {entry}\n").text == text


@pytest.mark.parametrize(("first", "second"), [("key", "key"), ("key", "id"), ("identifier", "key")])
def test_a_key_that_is_there_twice_names_both_lines(context: Context, first: str, second: str) -> None:
    text = f"""
        steps:
          - {{label: A, {first}: a, command: x, agents: {{queue: q}}}}
          - group: G
            steps:
              - label: B
                {second}: a
                command: y
                agents: {{queue: q}}
        """
    found = only(context, text)
    assert (found.where, found.rule) == ("p.yml:7", "duplicate-key")
    assert "duplicate key a: line 3 has it already" in found.text


def test_two_names_for_one_thing_that_disagree(context: Context) -> None:
    found = only(context, "steps:\n  - {label: A, name: B, command: x, agents: {queue: q}}\n")
    assert found.rule == "two-names"
    assert look(context, "steps:\n  - {label: A, name: A, command: x, agents: {queue: q}}\n") == []


def needs(**edges: str) -> str:
    lines = [
        f"  - {{key: {key}, command: x, agents: {{queue: q}}, depends_on: [{edge}]}}" for key, edge in edges.items()
    ]
    return "steps:\n" + "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("edges", "text"),
    [
        ({"b": "nope"}, "b needs unknown step nope"),
        ({"a": "b", "b": "a"}, "cycle a -> b -> a"),
        ({"a": "a"}, "cycle a -> a"),
        ({"z": "a", "a": "b", "b": "c", "c": "a"}, "cycle a -> b -> c -> a"),
    ],
)
def test_needs_that_cannot_be_met(context: Context, edges: dict[str, str], text: str) -> None:
    found = only(context, needs(**edges))
    assert found.text == text
    assert found.level is Level.ERROR


@pytest.mark.parametrize(
    "edges", [{"a": "", "b": "a", "c": "a, b"}, {"a": "image-build"}, {"a": "upload-merge-pipeline"}]
)
def test_needs_that_can_be_met(context: Context, edges: dict[str, str]) -> None:
    assert look(context, needs(**edges)) == []


def test_a_circle_through_a_group_is_found(context: Context) -> None:
    text = """
        steps:
          - {key: a, command: x, agents: {queue: q}, depends_on: g}
          - group: G
            key: g
            depends_on: [{step: a}]
            steps: [{key: b, command: y, agents: {queue: q}}]
        """
    found = only(context, text)
    assert found.text == "cycle a -> g -> b -> a"


def test_a_long_chain_is_no_circle_and_no_recursion(context: Context) -> None:
    assert look(context, needs(k0="", **{f"k{number}": f"k{number - 1}" for number in range(1, 1200)})) == []


def test_a_need_that_names_a_label_says_so(context: Context) -> None:
    text = """
        steps:
          - {label: A, command: x, agents: {queue: q}}
          - {label: B, command: y, agents: {queue: q}, depends_on: A}
        """
    found = only(context, text)
    assert "line 3 has that label, but no key" in (found.hint or "")


@pytest.mark.parametrize(
    ("script", "minutes", "wrong"),
    [
        ("timeout 20m pytest t", 20, True),
        ("timeout 21m pytest t", 20, True),
        ("timeout -k 30 1h bash -c 'x'", 50, True),
        ("bash -c 'timeout 1800 x'", 30, True),
        ("timeout 19m pytest t", 20, False),
        ("timeout 1199 pytest t", 20, False),
        ("pytest --timeout 9999 t", 20, False),
    ],
)
def test_an_inner_limit_is_shorter_than_the_step_s(context: Context, script: str, minutes: int, wrong: bool) -> None:
    found = look(context, step(script, more=f"key: a\ntimeout_in_minutes: {minutes}"))
    assert [one.rule for one in found] == (["inner-timeout"] if wrong else [])


def test_a_step_without_a_limit_is_a_warning(context: Context) -> None:
    findings = check_file(step("true").encode(), "p.yml", context)
    assert [(one.rule, one.level) for one in findings] == [("no-timeout", Level.WARNING)]
    assert not fails(findings)
    assert fails(findings, strict=True)


LINT = "timeout 40m bash -c ' pytest t.py -m 'advanced_model and cuda' --run-level 'advanced_model' '"


@pytest.mark.parametrize(
    "script",
    [
        LINT,
        'bash -c "pytest t.py -m "core_model and cuda""',
        "set -e\nbash -lc '\n  pytest t.py -k 'a or b'\n'",
        "docker run img sh -c 'pytest -m 'core_model and cuda' t.py'",
    ],
)
def test_nested_quotes_that_lose_words_are_errors(context: Context, script: str) -> None:
    found = [one for one in look(context, step(script)) if one.rule == "nested-quotes"]
    assert len(found) == 1
    assert "words after the -c script" in found[0].text


@pytest.mark.parametrize(
    "script",
    [
        "bash -c 'pytest t.py -m \"core_model and cuda\" --run-level core_model'",
        "bash -c 'pytest t.py -m 'core_model' --run-level core_model'",  # nothing is lost
        "bash -c 'exec \"$$@\"' _ pytest t.py",
        "bash -c 'echo $$1' name word",
        "bash -c 'true' && echo done",
        "bash -c 'true' > log.txt 2>&1",
        "bash script.sh -c 'a b'",
    ],
)
def test_quotes_that_lose_nothing_are_no_finding(context: Context, script: str) -> None:
    assert look(context, step(script)) == []


def test_an_open_quote_has_the_line_of_its_command(context: Context) -> None:
    text = "steps:\n  - label: A\n    agents: {queue: q}\n    commands:\n      - echo fine\n      - echo 'it is not\n"
    assert only(context, text).rule == "open-quote"


@pytest.mark.parametrize(
    ("script", "option"),
    [
        ("pytest t -k shared_memory -k rocm", "-k"),
        ("timeout 5m pytest t -m core_model -m cuda --run-level core_model", "-m"),
        ("bash -c 'pytest t --run-level core_model --run-level=full_model'", "--run-level"),
    ],
)
def test_options_of_which_the_last_wins(context: Context, script: str, option: str) -> None:
    found = [one for one in look(context, step(script)) if one.rule == "last-wins"]
    assert [one.text for one in found] == [f"pytest takes only the last {option}, and there are several"]


@pytest.mark.parametrize("line", ["exit $$((EXIT1 | EXIT2))", "exit \\$((A|B|C))", "code=$$(( $$A | $$B ))"])
def test_ored_statuses_are_found(context: Context, line: str) -> None:
    script = f"pytest a\nA=$$?\n{line}"
    (found,) = [one for one in look(context, step(script)) if one.rule == "ored-statuses"]
    assert found.where == "p.yml:8"


@pytest.mark.parametrize(
    ("script", "fixed", "line"),
    [
        (
            'V="B_${BUILDKITE_PARALLEL_JOB}"; eval "${!V}"',
            'V="B_$${BUILDKITE_PARALLEL_JOB}"; eval "$${!V}"',
            6,
        ),
        ('true\nexport PATH="$HOME/.local/bin:$PATH"', 'export PATH="$$HOME/.local/bin:$$PATH"', 7),
        ("echo ${A//b/c}", "echo $${A//b/c}", 6),
        ("echo $BUILDKITE_BRANCH", "echo $$BUILDKITE_BRANCH", 6),
        ("echo $BUILDKITE_STEP_ID", "echo $$BUILDKITE_STEP_ID", 6),
    ],
)
def test_a_dollar_that_the_upload_eats_comes_with_the_corrected_line(
    context: Context, script: str, fixed: str, line: int
) -> None:
    found = only(context, step(script))
    assert (found.rule, found.level, found.where) == ("dollar", Level.ERROR, f"p.yml:{line}")
    assert found.hint == f"write {fixed}"
    assert look(context, step("true\n" * (line - 6) + fixed)) == []


@pytest.mark.parametrize("script", ["echo $BUILDKITE_COMMIT", "echo $$HOME", "x=$(date); echo $1 $?", "echo $OWN"])
def test_a_dollar_that_is_right_is_no_finding(context: Context, script: str) -> None:
    assert look(context, "env: {OWN: a}\n" + step(script)) == []


def test_a_branch_may_stand_in_a_label_and_not_in_a_command(context: Context) -> None:
    assert look(context, step("true", more="key: a\nenv: {BRANCH: $BUILDKITE_BRANCH}")) == []
    assert look(context, step("echo $BUILDKITE_MESSAGE"))[0].rule == "dollar"


SECRET = "hf_" + "0123456789abcdef"


@pytest.mark.parametrize(
    "more",
    [
        'env: {HF_TOKEN: "${HF_TOKEN}"}',
        f"env: {{HF_TOKEN: {SECRET}}}",
        f"env: {{MY_PASSWORD: {SECRET}}}",
        f"plugins: [{{docker#v5: {{image: i, environment: [HF_TOKEN={SECRET}]}}}}]",
        f"plugins: [{{kubernetes: {{podSpec: {{containers: [{{env: [{{name: HF_TOKEN, value: {SECRET}}}]}}]}}}}}}]",
    ],
)
def test_a_secret_s_value_is_an_error_and_is_never_shown(context: Context, more: str) -> None:
    found = only(context, step("true", more=f"key: a\n{more}"))
    assert (found.rule, found.level) == ("secret", Level.ERROR)
    assert SECRET not in str(as_json([found]))


@pytest.mark.parametrize(
    "script",
    [
        f"export HF_TOKEN={SECRET}",
        f"HF_TOKEN='{SECRET}' curl $HOME/x",
        f"docker run -e HF_TOKEN={SECRET} i",
        "echo $HF_TOKEN",
    ],
)
def test_a_secret_in_a_command_is_an_error_and_is_never_shown(context: Context, script: str) -> None:
    findings = look(context, step(script))
    assert "secret" in {one.rule for one in findings}
    assert SECRET not in str(as_json(findings))


def test_a_secret_at_the_top_is_an_error(context: Context) -> None:
    assert only(context, f"env: {{X_ACCESS_KEY: {SECRET}}}\n" + step("true")).where == "p.yml:1"


@pytest.mark.parametrize(
    "more",
    [
        'env: {HF_TOKEN: ""}',
        "plugins: [{docker#v5: {image: i, environment: [HF_TOKEN]}}]",
        "plugins: [{kubernetes: {env: [{name: HF_TOKEN, valueFrom: {secretKeyRef: {name: s, key: token}}}]}}]",
        "env: {TOKENIZERS: '1', MAX_TOKENS: 5}",
    ],
)
def test_a_secret_s_name_without_a_value_is_no_finding(context: Context, more: str) -> None:
    assert look(context, step("true", more=f"key: a\n{more}")) == []


def on_preset(preset: str, script: str) -> str:
    return f"steps:\n  - label: A\n    mirror_hardwares: {preset}\n    timeout_in_minutes: 9\n    command: {script!r}\n"


@pytest.mark.parametrize(
    ("preset", "call", "rule", "level"),
    [
        ("l4_1", "-m advanced_model --run-level core_model", "mark-level", Level.WARNING),
        ("l4_1", "-m full_model", "mark-level", Level.WARNING),
        ("a2b3_npu_1", "-m 'core_model and cuda'", "mark-device", Level.ERROR),
        ("l4_1", "-m 'core_model and npu'", "mark-device", Level.ERROR),
        ("b60_1", "-m 'core_model and rocm'", "mark-device", Level.ERROR),
        ("l4_1", "-m 'core_model and H100'", "mark-hardware", Level.ERROR),
        ("h100_2", "-m 'core_model and (L4 and cuda)'", "mark-hardware", Level.ERROR),
        ("l4_1", "-m 'core_model and'", "mark-expression", Level.ERROR),
    ],
)
def test_marks_that_do_not_go_with_their_step(
    context: Context, preset: str, call: str, rule: str, level: Level
) -> None:
    found = only(context, on_preset(preset, f"pytest tests/x {call}"))
    assert (found.rule, found.level, found.where) == (rule, level, "p.yml:5")


@pytest.mark.parametrize(
    ("preset", "call"),
    [
        ("l4_1", "-m 'core_model and cuda and L4' --run-level core_model"),
        ("l4_1", "-m 'core_model and cpu'"),
        ("l4_1", "-m 'core_model and not H100'"),
        ("l4_1", "-m 'core_model and (L4 or H100)'"),
        ("l4_1", "-m 'slow and diffusion' --run-level full_model"),
        ("l4_1", "--run-level full_model"),
        ("l4_1", "-m ''"),
        ("mi300_1", "-m 'core_model and cuda and L4' --run-level core_model"),
        ("mi300_1", "-m 'core_model and rocm and MI325' --run-level core_model"),
        ("a3_npu_2", "-m 'core_model and npu and A3'"),
    ],
)
def test_marks_that_go_with_their_step(context: Context, preset: str, call: str) -> None:
    assert look(context, on_preset(preset, f"pytest tests/x {call}")) == []


def twins(first: str, second: str, more: str = "") -> str:
    one = on_preset("l4_1", first)
    other = on_preset("l4_1", second).removeprefix("steps:\n").replace("label: A", "label: B")
    return one + other + more


def test_the_same_tests_twice_on_one_preset(context: Context) -> None:
    found = only(context, twins("timeout 5m pytest tests/a tests/b/", "pytest -v -s tests/b tests/a/ --durations=5"))
    assert found.rule == "twice"
    assert found.text == "the same tests as in A (line 2)"


@pytest.mark.parametrize(
    ("first", "second", "more"),
    [
        ("pytest tests/a", "pytest tests/b", ""),
        ("pytest tests/a -k x", "pytest tests/a -k y", ""),
        ("pytest tests/a --test-config-file a.json", "pytest tests/a --test-config-file b.json", ""),
        ("pytest tests/a", "VLLM_V2=1 pytest tests/a", ""),
        ("pytest tests/a", "pytest tests/a", "    env: {VLLM_V2: '1'}\n"),
    ],
)
def test_tests_that_differ_in_anything_are_not_the_same(context: Context, first: str, second: str, more: str) -> None:
    assert look(context, twins(first, second, more)) == []


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ("mirror_hardwares: l4_9", "unknown preset 'l4_9'"),
        ("mirror_hardwares: l4_1\nagents: {queue: q}", "has agents of its own"),
        ("env: {A: b}", "has no agents, no mirror_hardwares"),
    ],
)
def test_a_preset_that_does_not_fit(context: Context, more: str, text: str) -> None:
    body = indent(more, "    ")
    found = only(context, f"steps:\n  - label: A\n{body}\n    command: x\n")
    assert (found.rule, found.level) == ("preset", Level.ERROR)
    assert text in found.text


AMD = """\
steps:
  - label: A
    agent_pool: mi300_1
    mirror_hardwares: [amdproduction]
    grade: Blocking
    command: x
"""


def test_a_step_beside_amd_s_form_says_itself_where_it_runs(context: Context) -> None:
    assert look(context, AMD + "  - {label: B, command: x, agents: {queue: q}}\n") == []
    findings = look(context, AMD + "  - {label: B, command: x}\n")
    assert {one.where for one in findings} == {"p.yml:7"}
    assert "amd-form" in {one.rule for one in findings}


@pytest.mark.parametrize(
    ("old", "new", "rule", "text"),
    [
        ("    mirror_hardwares: [amdproduction]\n", "", "amd-form", "no build would run it"),
        ("    grade: Blocking\n", "", "amd-grade", "has no grade"),
        ("grade: Blocking", "grade: Blockin", "amd-form", "unknown grade 'Blockin'"),
        ("mi300_1", "mi300_9", "preset", "unknown preset 'mi300_9'"),
    ],
)
def test_amd_s_form(context: Context, old: str, new: str, rule: str, text: str) -> None:
    assert look(context, AMD) == []
    found = only(context, AMD.replace(old, new))
    assert found.rule == rule
    assert text in found.text


def test_artifacts_without_a_key_are_noted(context: Context) -> None:
    found = only(context, "steps:\n  - {label: A, command: x, agents: {queue: q}, artifact_paths: [a]}\n")
    assert (found.rule, found.level) == ("no-key", Level.NOTE)
    assert not fails([found], strict=True)


def test_findings_are_in_the_file_s_order_and_the_same_every_time(context: Context) -> None:
    text = "\n".join(f"  - {{label: S{number}, commandd: x, command: 'echo ${{!A}}', key: k}}" for number in range(40))
    first = check_file(f"steps:\n{text}\n".encode(), "p.yml", context)
    lines = [int(one.where.rpartition(":")[2]) for one in first]
    assert lines == sorted(lines)
    assert first == check_file(f"steps:\n{text}\n".encode(), "p.yml", context)


@pytest.mark.parametrize(
    ("more", "line", "text"),
    [
        ("key: a\nsource_file_dependencies: []", 5, "must be a list of paths"),
        ("key: a\nimports: maybe", 5, "imports is true or false"),
        ("key: a\nmatrix: ['${']", 5, "the agent refuses"),
        ("key: a\nnotify: [{slack: '$HF_TOKEN'}]", 5, "HF_TOKEN"),
    ],
)
def test_what_an_upload_stops_at_is_an_error_of_the_check(context: Context, more: str, line: int, text: str) -> None:
    found = look(context, step("true", more=more))
    assert [(one.level, one.where) for one in found] == [(Level.ERROR, f"p.yml:{line}")]
    assert text in found[0].text


@pytest.mark.parametrize("entry", ["wait: ~", "block: B", "input: I", "trigger: t"])
def test_a_preset_on_what_runs_nothing_is_an_error(context: Context, entry: str) -> None:
    found = only(context, f"steps:\n  - {entry}\n    mirror_hardwares: l4_1\n")
    assert (found.level, found.where) == (Level.ERROR, "p.yml:3")
    assert "runs nothing and has mirror_hardwares" in found.text
