"""Native pipeline files: what Buildkite's agent reads, with lines; the rest is an error with file and line.

The values expected of scalars are what go-pipeline 0.18 and yaml.v3 3.0 make of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tasks.pipelines.model import Group, NativeFile, Step
from tasks.pipelines.reading import read_native
from tasks.pipelines.yaml_values import read_document
from tasks.support.errors import DataError, OmniError


@pytest.fixture(params=["with C", "without C"])
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run a test with both of PyYAML's parsers."""
    if request.param == "without C":
        monkeypatch.delattr(yaml, "CSafeLoader")
    elif not hasattr(yaml, "CSafeLoader"):
        pytest.skip("this PyYAML has no C parser")
    return str(request.param)


def read(text: str) -> NativeFile:
    return read_native(text.encode(), "p.yml")


def steps(text: str) -> list[Step]:
    return [step for _, step in read(text).steps()]


def value(text: str) -> Any:
    return read_document(f"a: {text}\n".encode(), "p.yml").value["a"]


def refused(data: str | bytes) -> DataError:
    with pytest.raises(DataError) as caught:
        read_native(data if isinstance(data, bytes) else data.encode(), "p.yml")
    assert "\n" not in caught.value.message
    return caught.value


def test_reads_steps_groups_and_lines(parser: str) -> None:
    file = read(
        "# a comment\n"
        "env:\n"
        "  A: b\n"
        "x-common: &common\n"
        "  agents: {queue: q}\n"
        "steps:\n"
        "  - wait\n"
        "  - group: Tests\n"
        "    key: tests\n"
        "    steps:\n"
        "      - label: One\n"
        "        <<: *common\n"
        "        commands:\n"
        "          - echo one\n"
        "  - command: echo two\n"
    )
    wait, group, two = file.entries
    assert isinstance(wait, Step)
    assert isinstance(group, Group)
    assert isinstance(two, Step)
    assert (wait.body, wait.where) == ({"wait": None}, "p.yml:7")
    assert (group.body, group.where) == ({"group": "Tests", "key": "tests"}, "p.yml:8")
    assert group.lines["steps"] == 10
    one = group.steps[0]
    assert one.body == {"label": "One", "agents": {"queue": "q"}, "commands": ["echo one"]}
    assert (one.where, one.lines) == ("p.yml:11", {"label": 11, "agents": 5, "commands": 13})
    assert two.where == "p.yml:15"
    assert dict(file.top) == {"env": {"A": "b"}, "x-common": {"agents": {"queue": "q"}}}
    assert file.lines == {"env": 2, "x-common": 4, "steps": 6}
    assert file.warnings == ()


def test_reads_a_bare_list_of_steps(parser: str) -> None:
    file = read("- command: a\n- wait\n")
    assert (dict(file.top), [step.where for _, step in file.steps()]) == ({}, ["p.yml:1", "p.yml:2"])


@pytest.mark.parametrize("word", ["wait", "waiter", "block", "input", "manual"])
def test_reads_bare_words(word: str) -> None:
    meant = {"waiter": "wait", "manual": "block"}.get(word, word)
    assert steps(f"steps: [{word}]")[0].body == {meant: None}


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        *(
            (word, word)
            for word in ("yes", "no", "on", "off", "y", "N", "On", "tRue", "1:30", "1.2.3", "0x", "0xg", "1e")
        ),
        *((word, word) for word in ("2020-01-01", "2020-01-01T00:00:00Z", "_1", "+", "=", "08x", "Inf", "nan")),
        *((word, True) for word in ("true", "True", "TRUE")),
        *((word, False) for word in ("false", "False", "FALSE")),
        *((word, None) for word in ("", "~", "null", "Null", "NULL")),
        *((word, 15) for word in ("15", "+15", "0o17", "0O17", "017", "0xf", "0XF", "0b1111", "1_5", "00_17")),
        *((word, -15) for word in ("-15", "-0o17", "-017", "-0xf", "-0b1111")),
        *((word, 8.0) for word in ("08", "0_8", "8.", "8.0", "0.8e1")),
        (".5", 0.5),
        (".5_0", 0.5),
        ("._5", "._5"),
        ("-.5", -0.5),
        ("1_000", 1000),
        ("3.10", 3.1),
        ("1e3", 1000.0),
        ("1e999", "1e999"),
        ("18446744073709551615", 2**64 - 1),
        ("18446744073709551616", 2.0**64),
        ("-9223372036854775809", -(2.0**63)),
        ("0" * 90 + "1", 1),
        ("'on'", "on"),
        ('"08"', "08"),
        ("!!str 1", "1"),
        ("'~'", "~"),
        ("<<", "<<"),
    ],
)
def test_reads_scalars_as_the_agent_does(written: str, meant: Any, parser: str) -> None:
    found = value(written)
    assert (found, type(found)) == (meant, type(meant))


@pytest.mark.parametrize("word", [".nan", ".NaN", ".inf", "-.Inf", "+.INF", "0b-1", "0o+7"])
def test_refuses_numbers_that_nobody_expects(word: str) -> None:
    error = refused(f"env:\n  A: {word}\nsteps: [wait]\n")
    assert error.message.startswith("p.yml:2: ")
    assert error.hint == "put it in quotes"


@pytest.mark.parametrize(
    "tag", ["!!int '1'", "!!binary aGk=", "!!python/name:os.system ''", "!own 1", "!!set {a}", "!x []"]
)
def test_refuses_tags(tag: str) -> None:
    assert "p.yml:2: the tag" in refused(f"steps: [wait]\na: {tag}\n").message


@pytest.mark.parametrize(
    ("key", "meant"),
    [("1", "1"), ("0xb", "11"), ("True", "true"), ("on", "on"), ("1.5", "1.500000e+00"), ("2020-01-01", "2020-01-01")],
)
def test_keys_become_the_agents_texts(key: str, meant: str) -> None:
    assert read_document(f"{key}: a\n".encode(), "p.yml").value == {meant: "a"}


@pytest.mark.parametrize("key", ["~", "[a]", "{a: b}", "? [a]\n", "null"])
def test_refuses_keys_that_are_no_texts(key: str) -> None:
    assert refused(f"steps: [wait]\n{key}: a\n").message.startswith("p.yml:2: a key must be a text")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("steps: [wait]\nenv:\n  A: 1\n  B: 2\n  A: 3\n", "p.yml:5: 'A' is there twice, first in line 3"),
        ("steps: [wait]\nsteps: [wait]\n", "p.yml:2: 'steps' is there twice, first in line 1"),
        ("- {command: a, label: b, command: c}\n", "p.yml:1: 'command' is there twice, first in line 1"),
        ("- a: {11: x,\n  0xb: y}\n", "p.yml:2: '11' is there twice, first in line 1"),
        ("- {'1': x, 1: y}\n", "p.yml:1: '1' is there twice, first in line 1"),
        ("- <<: {a: 1}\n  b: 1\n  <<: {c: 1}\n", "p.yml:3: << is there twice, first in line 1"),
        ("- <<: {a: 1,\n    a: 2}\n", "p.yml:2: 'a' is there twice, first in line 1"),
        ("- &k key: 1\n  *k : 2\n", "p.yml:2: 'key' is there twice, first in line 1"),
    ],
)
def test_refuses_doubled_keys_with_both_lines(text: str, message: str, parser: str) -> None:
    assert refused(text).message == message


def test_merge_keys_in_the_agents_order() -> None:
    text = (
        "x: &x {a: 1, b: 1, c: 1}\ny: &y {c: 2, d: 2, e: 2}\nsteps:\n"
        "- {z: 0, <<: [*x, [*y]], b: 3, e: 3}\n- {<<: *x, '<<': text}\n"
    )
    one, two = steps(text)
    assert list(one.body.items()) == [("z", 0), ("a", 1), ("c", 1), ("d", 2), ("b", 3), ("e", 3)]
    assert list(two.body.items()) == [("a", 1), ("b", 1), ("c", 1), ("<<", "text")]


@pytest.mark.parametrize("merged", ["1", "~", "text", "[a]", "[{a: 1}, b]"])
def test_refuses_to_merge_what_is_no_mapping(merged: str) -> None:
    assert refused(f"steps:\n- <<: {merged}\n  a: 1\n").message == "p.yml:2: << merges mappings only"


def test_aliases_stand_for_steps_and_lists() -> None:
    file = read("x: &one {command: a}\ny: &all [*one, wait]\nsteps: *all\n")
    assert [step.body for _, step in file.steps()] == [{"command": "a"}, {"wait": None}]
    assert {step.where for _, step in file.steps()} == {"p.yml:2"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("steps: [*nowhere]\n", "p.yml:1: there is no anchor &nowhere before this"),
        ("steps: &a\n- *a\n", "p.yml:2: *a contains itself"),
        ("a: &a {b: {c: *a}}\nsteps: [wait]\n", "p.yml:1: *a contains itself"),
        ("a: &a\n  <<: *a\nsteps: [wait]\n", "p.yml:2: *a contains itself"),
    ],
)
def test_refuses_aliases_without_an_end(text: str, message: str, parser: str) -> None:
    assert refused(text).message == message


def laughs() -> Iterator[str]:
    lists = "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 30))
    yield f"a0: &a0 [x, x, x]\n{lists}steps: [wait]\n"
    maps = "".join(f"a{i}: &a{i} {{b: *a{i - 1}, c: *a{i - 1}}}\n" for i in range(1, 90))
    yield f"a0: &a0 {{b: c}}\n{maps}steps: [wait]\n"
    yield f"a: &a '{'x' * 100_000}'\nsteps:\n" + "- {command: *a}\n" * 400
    yield "a: &a {" + ", ".join(f"k{i}: v" for i in range(1000)) + "}\nsteps:\n" + "- {<<: *a}\n" * 500
    yield "a: &a {k: v}\nsteps:\n- <<: [" + ", ".join(["*a"] * 200_000) + "]\n"
    yield "steps:\n" + "- w\n" * 300_000


@pytest.mark.parametrize("text", list(laughs()), ids=["lists", "maps", "texts", "merges", "merged list", "plain"])
def test_refuses_what_grows_too_large(text: str) -> None:
    assert re.match(r"p\.yml:\d+: the file grows too large here", refused(text).message)


@pytest.mark.parametrize(
    "text",
    ["steps: " + "[" * 2000, "[\n" * 5000, "{a: " * 5000, "- " * 5000, "".join(" " * i + "a:\n" for i in range(300))],
)
def test_refuses_deep_nesting(text: str, parser: str) -> None:
    assert re.match(
        r"p\.yml:\d+: (nested more than 100 levels deep|exceeded maximum nesting depth)", refused(text).message
    )


def test_refuses_deep_nesting_through_aliases() -> None:
    chain = "".join(f"a{i}: &a{i} {{k: *a{i - 1}}}\n" for i in range(1, 500))
    assert "nested more than 100 levels deep" in refused(f"a0: &a0 {{k: v}}\n{chain}steps: [wait]\n").message


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "p.yml is empty"),
        (b"\n \n", "p.yml is empty"),
        (b"# nothing\n# here\n", "p.yml is empty"),
        (b"---\n", "p.yml is empty"),
        (b"~\n", "p.yml is empty"),
        (b"\xef\xbb\xbf", "p.yml is empty"),
        (b"text\n", "p.yml:1: a pipeline is a mapping with steps, not a text"),
        (b"\n12\n", "p.yml:2: a pipeline is a mapping with steps, not the number 12"),
        (b"true\n", "p.yml:1: a pipeline is a mapping with steps, not a truth value"),
        (b"[]\n", "p.yml:1: the steps of the pipeline are an empty list"),
        (b"{}\n", "p.yml:1: there are no steps"),
        (b"env: {}\n", "p.yml:1: there are no steps"),
        (b"step:\n- wait\n", "p.yml:1: there are no steps"),
        (b"env: {}\nsteps:\n", "p.yml:2: the steps of the pipeline must be a list, not nothing"),
        (b"steps: null\n", "p.yml:1: the steps of the pipeline must be a list, not nothing"),
        (b"steps: []\n", "p.yml:1: the steps of the pipeline are an empty list"),
        (b"steps: {a: b}\n", "p.yml:1: the steps of the pipeline must be a list, not a mapping"),
        (b"steps: wait\n", "p.yml:1: the steps of the pipeline must be a list, not a text"),
        (b"steps:\n- wait\n- 7\n", "p.yml:3: a step must be a mapping, not the number 7"),
        (b"steps:\n- wait\n-\n", "p.yml:3: a step must be a mapping, not nothing"),
        (b"steps:\n- - command: a\n", "p.yml:2: a step must be a mapping, not a list"),
        (b"steps:\n- true\n", "p.yml:2: a step must be a mapping, not a truth value"),
        (b"steps:\n- {}\n", "p.yml:2: a step must not be empty"),
        (b"steps:\n- echo hello\n", "p.yml:2: 'echo hello' is no step"),
        (b"steps:\n- type: nonsense\n", "p.yml:2: 'nonsense' is no type of a step"),
        (b"steps:\n- type: [wait]\n", "p.yml:2: \"['wait']\" is no type of a step"),
        (b"steps:\n- group: G\n", "p.yml:2: the group 'G' has no steps"),
        (b"steps:\n- group: G\n  steps:\n", "p.yml:3: the steps of the group 'G' must be a list, not nothing"),
        (b"steps:\n- group: G\n  steps: []\n", "p.yml:3: the steps of the group 'G' are an empty list"),
        (b"steps:\n- group: G\n  steps: {a: b}\n", "p.yml:3: the steps of the group 'G' must be a list, not a mapping"),
        (b"steps:\n- group: ~\n  steps: [3]\n", "p.yml:3: a step must be a mapping, not the number 3"),
        (b"steps:\n- group: G\n  steps:\n  - group: H\n    steps: [wait]\n", "p.yml:4: a group must not be in a group"),
        (b"steps:\n- group: G\n  command: a\n  steps: [wait]\n", "p.yml:3: a group has no 'command'"),
        (
            b"steps:\n- label: G\n  steps: [wait]\n",
            "p.yml:3: a step with steps is a group: it needs group: and a title",
        ),
        (b"\xff\xfes\x00t\x00", "p.yml:1: the file is UTF-16"),
        (b"\xfe\xff\x00s", "p.yml:1: the file is UTF-16"),
        (b"s\x00t\x00e\x00", "p.yml:1: there is a NUL byte"),
        (b"steps:\n- command: a\x00b\n", "p.yml:2: there is a NUL byte"),
        (b"steps:\n- command: a\x07b\n", "p.yml:2: there is the control character U+0007"),
        (b"\xc2\x80", "p.yml:1: there is the control character U+0080"),
        (b'steps:\n- command: "a\\0b"\n', "p.yml:2: there is a NUL character in a text"),
        (b"steps:\n- command: \xe9\n", "p.yml:2: the file is not UTF-8: invalid continuation byte"),
        (b"steps:\n- a: \xef\xbb\xbfb\n", "p.yml:2: there is a byte order mark in the middle of the file"),
        (b"steps:\n- command: a\n\tlabel: b\n", "p.yml:3: a tab in the indentation"),
        (b"steps:\n\t- command: a\n", "p.yml:2: a tab in the indentation"),
    ],
)
def test_refuses_files_that_are_no_pipeline(data: bytes, message: str, parser: str) -> None:
    assert refused(data).message == message


@pytest.mark.parametrize(
    "text", ["steps: [wait\n", "a: b: c\n", "steps:\n- 'a\n", "%YAML 9.9\n---\n- wait\n", "- a\nb: c\n"]
)
def test_names_the_line_of_bad_syntax(text: str, parser: str) -> None:
    assert re.match(r"p\.yml:\d+: \S", refused(text).message)


@pytest.mark.parametrize("escape", [r"\ud800", r"\udfff", r"\U00110000", r"\q", r"\x4"])
def test_refuses_escapes_that_are_no_characters(escape: str, parser: str) -> None:
    assert refused(f'- command: "{escape}"\n').message.startswith("p.yml")


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("start", ["", "\ufeff", "# comment", "---"])
def test_reads_any_kind_of_line_end_and_start(newline: str, start: str, parser: str) -> None:
    lines = [start, "steps:", "  - command: |", "      a", "      b", "  - wait"]
    (first, second) = steps(newline.join(lines))
    assert (first.body, second.where) == ({"command": "a\nb\n"}, "p.yml:6")


def test_reads_the_first_of_two_documents_and_warns(parser: str) -> None:
    file = read("steps:\n- command: a\n---\nsteps:\n- command: b\n")
    assert [step.body for _, step in file.steps()] == [{"command": "a"}]
    assert file.warnings == ("p.yml:3: a second document begins here; only the first is read",)
    assert read("steps: [wait]\n...\n").warnings == ()


def test_hints_at_a_word_nearby() -> None:
    assert refused("step: [wait]\n").hint == "did you mean steps where 'step' is?"
    assert refused("steps: [wiat]\n").hint == "did you mean wait or waiter?"


PIECES = (
    *(
        "a",
        "b",
        "a: ",
        "- ",
        "\n",
        "\n  ",
        " ",
        "\t",
        ": ",
        "steps:",
        "steps:\n- ",
        "group: G",
        "wait",
        "{",
        "}",
        "[",
        "]",
        ",",
    ),
    *(
        "&a ",
        "*a",
        "<<: ",
        "!",
        "!!str ",
        "|\n",
        ">-\n",
        "'",
        '"',
        "#",
        "? ",
        "---\n",
        "...\n",
        "%",
        "\\",
        "\\U00110000",
        "@",
    ),
    *("on", "08", "~", "\r\n", "\x85", "\u2028", "\x07", "\ufeff", "\0", ".inf", "type: "),
)
YAML = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(("wait", "block")),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(("steps", "group", "command", "type", "key", "wait", "env", "label"))
            | st.integers()
            | st.none(),
            inner,
            max_size=3,
        )
    ),
    max_leaves=12,
)


def reads_or_refuses(data: bytes) -> NativeFile | None:
    refusal = None
    try:
        file = read_native(data, "p.yml")
    except OmniError as error:
        refusal = error.message
    if refusal is None:
        assert list(file.steps())
        return file
    assert re.match(r"p\.yml(:[0-9]+: | is empty$)", refusal)
    assert "\n" not in refusal
    return None


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    reads_or_refuses(data)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=14).map("".join))
def test_any_pieces_of_yaml_are_read_or_refused(text: str) -> None:
    reads_or_refuses(text.encode())


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(PIECES), max_size=14).map("".join))
def test_any_pieces_are_read_or_refused_without_c(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    with monkeypatch.context() as patch:
        patch.delattr(yaml, "CSafeLoader", raising=False)
        reads_or_refuses(text.encode())


@settings(max_examples=150, deadline=None)
@given(YAML)
def test_any_structure_is_read_or_refused(document: Any) -> None:
    text = yaml.safe_dump(document, allow_unicode=True)
    file = reads_or_refuses(text.encode())
    if file is not None and isinstance(document, list):
        assert len(file.entries) == len(document)


@pytest.mark.parametrize(
    ("nested", "plain"),
    [
        (
            "{command: {command: a, key: k, depends_on: b, mirror_hardwares: l4_1, source_file_dependencies: [c]}}",
            "{command: a, key: k, depends_on: b, mirror_hardwares: l4_1, source_file_dependencies: [c]}",
        ),
        ("{commands: {commands: [a, b], label: l}}", "{commands: [a, b], label: l}"),
        ("{script: {command: a}}", "{command: a}"),
        ("{wait: {continue_on_failure: true, if: x}}", "{wait: ~, continue_on_failure: true, if: x}"),
        ("{waiter: {if: x}}", "{wait: ~, if: x}"),
        ("{block: {block: Go?, key: k}}", "{block: Go?, key: k}"),
        ("{input: {fields: []}}", "{input: ~, fields: []}"),
        ("{trigger: {trigger: p, async: true}}", "{trigger: p, async: true}"),
        ("{wait: {}}", "wait"),
        ("{command: a}", "{command: a}"),
        ("{env: {command: a}}", "{env: {command: a}}"),
    ],
)
def test_a_step_nested_in_its_kind_is_that_step(nested: str, plain: str) -> None:
    for form in ("steps: [{}]\n", "steps: [{{group: g, steps: [{}]}}]\n"):
        (one,), (other,) = steps(form.format(nested)), steps(form.format(plain))
        assert (one.body, one.key, one.name) == (other.body, other.key, other.name)
        assert one.lines == dict.fromkeys(one.body, 1)


def test_a_nested_step_that_is_empty_is_refused() -> None:
    assert refused("steps:\n- command: {}\n").message == "p.yml:2: a step must not be empty"
