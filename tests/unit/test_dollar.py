"""The agent's rule for dollars, held against a second writing of it; and texts that survive it."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from tasks.pipelines.dollar import OUTSIDE_NAMES, UPLOAD_NAMES, Kind, double, is_secret, kind_of, reason, repaired, scan
from tasks.support.errors import DataError
from tasks.support.variables import ALL

ENV = {"A": "alpha", "B": "", "BUILDKITE_COMMIT": "c0ffee"}


class RefusedError(Exception):
    pass


def interpolate(text: str, env: Mapping[str, str]) -> str:
    """Do what the agent does, written a second time: by eating the text's beginning."""
    result, rest = _expression(text, env, "")
    assert not rest
    return result


def _expression(rest: str, env: Mapping[str, str], stop: str) -> tuple[str, str]:
    out = ""
    while rest and rest[0] not in stop:
        for escape, meaning in (("\\\\", "\\\\"), ("\\$", "$"), ("$$", "$"), ("$(", "$(")):
            if rest.startswith(escape):
                out, rest = out + meaning, rest[2:]
                break
        else:
            if rest[0] == "$" and len(rest) > 1:
                value, rest = _expansion(rest[1:], env)
                out += value
            else:
                out, rest = out + rest[0], rest[1:]
    return out, rest


def _name(rest: str) -> tuple[str, str]:
    if not rest or not unicodedata.category(rest[0]).startswith("L"):
        raise RefusedError("a name begins with a letter")
    end = next((n for n, c in enumerate(rest) if c != "_" and unicodedata.category(c)[0] not in "LN"), len(rest))
    return rest[:end], rest[end:]


def _expansion(rest: str, env: Mapping[str, str]) -> tuple[str, str]:
    if not rest.startswith("{"):
        if not unicodedata.category(rest[0]).startswith("L"):
            return "$", rest
        name, rest = _name(rest)
        return env.get(name, ""), rest
    name, rest = _name(rest[1:])
    value = env.get(name, "")
    if rest.startswith(":-"):
        default, rest = _expression(rest[2:], env, "}")
        value = value or default
    elif rest.startswith("-"):
        default, rest = _expression(rest[1:], env, "}")
        value = env.get(name, default)
    elif rest.startswith("?"):
        _, rest = _expression(rest[1:], env, "}")
    elif rest.startswith(":"):
        found = re.match(r":\s*([+-]?[0-9]+)\s*(?::\s*([+-]?[0-9]+)\s*)?(?=\})", rest)
        if not found:
            raise RefusedError("no offset")
        start, stop = int(found[1]), None if found[2] is None else int(found[2])
        start = max(start + len(value), 0) if start < 0 else min(start, len(value))
        value = (
            value[start:] if stop is None else value[start : max(stop + (start if stop >= 0 else len(value)), start)]
        )
        rest = rest[found.end() :]
    if not rest.startswith("}"):
        raise RefusedError("no closing brace")
    return value, rest[1:]


PIECES = [
    "$",
    "$$",
    "${",
    "}",
    "{",
    "\\",
    "A",
    "B",
    "Z",
    "_",
    "1",
    "!",
    ":",
    "-",
    ":-",
    "?",
    "+",
    "(",
    " ",
    "é",
    "\n",
    "'",
]
shell = st.lists(st.sampled_from([*PIECES, "BUILDKITE_COMMIT", "HF_TOKEN", "HOME"]), max_size=14).map("".join)


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("$A ${A}", "alpha alpha"),
        ("$Z|${Z}", "|"),
        ("$$A", "$A"),
        (r"\$A", "$A"),
        (r"\\$A", r"\\alpha"),
        ("$(date) $1 $? $@ $_A $", "$(date) $1 $? $@ $_A $"),
        ("${B:-x}${B-x}${Z-x}", "xx"),
        ("${Z:-${Y:-$A}}", "alpha"),
        ("${A:1:2}${A:-2}", "lpalpha"),
        ("${A: -2}", "ha"),
        ("${A:1:-1}", "lph"),
        ("${A?no}", "alpha"),
        ("$${!V}", "${!V}"),
    ],
)
def test_the_second_writing_is_the_agents(text: str, result: str) -> None:
    assert interpolate(text, ENV) == result


@given(shell)
@example("${A:-${!V}}")
@example("${A:+5}")
@example("$é1")
def test_scan_refuses_what_the_agent_refuses(text: str) -> None:
    try:
        interpolate(text, ENV)
        refused = False
    except RefusedError:
        refused = True
    assert any(use.kind is Kind.REJECTED for use in scan(text)) == refused


@given(shell)
def test_what_the_scan_finds_is_where_it_says(text: str) -> None:
    for use in scan(text):
        assert text[use.start : use.end] == use.text
        assert use.text.startswith("$")
        assert (use.name is None) == (use.kind is Kind.REJECTED) == bool(use.error)
        assert bool(reason(use)) == (use.kind is not Kind.UPLOAD)


@given(shell | st.text(alphabet=st.characters(exclude_categories=["Cs"])))
@example("a\\\\$b")
@example("$" * 7)
def test_interpolating_the_doubled_text_gives_the_text(text: str) -> None:
    assume(not re.search(r"(?<!\\)(?:\\\\)*\\\$", text))
    assert interpolate(double(text), ENV) == text


@pytest.mark.parametrize("text", [r"\$A", r'echo "\$HOME"', r"\\\$A", r"x\$"])
def test_a_backslash_that_the_agent_would_eat_is_refused(text: str) -> None:
    with pytest.raises(DataError, match="cannot be uploaded") as caught:
        double(text)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("text", "doubled"),
    [
        ('export PATH="$HOME/.local/bin:$PATH"', 'export PATH="$$HOME/.local/bin:$$PATH"'),
        ("repo:$BUILDKITE_COMMIT-a3", "repo:$BUILDKITE_COMMIT-a3"),
        ("repo:${BUILDKITE_COMMIT}x", "repo:${BUILDKITE_COMMIT}x"),
        ("$BUILDKITE_COMMITS ${BUILDKITE_COMMIT:-x}", "$$BUILDKITE_COMMITS $${BUILDKITE_COMMIT:-x}"),
        ("$(id) $? $$", "$$(id) $$? $$$$"),
        ("", ""),
    ],
)
def test_only_the_named_names_stay_single(text: str, doubled: str) -> None:
    assert double(text, keep=UPLOAD_NAMES) == doubled


@given(shell)
def test_a_repaired_text_is_accepted_and_uploads_nothing_unknown(text: str) -> None:
    fixed = repaired(text)
    interpolate(fixed, ENV)
    assert {use.kind for use in scan(fixed)} <= {Kind.UPLOAD}
    assert repaired(fixed) == fixed
    if all(use.kind is Kind.UPLOAD for use in scan(text)):
        assert fixed == text


@pytest.mark.parametrize(
    ("text", "fixed"),
    [
        ('V="B_${BUILDKITE_PARALLEL_JOB}"; eval "${!V}"', 'V="B_$${BUILDKITE_PARALLEL_JOB}"; eval "$${!V}"'),
        ("echo $BUILDKITE_BRANCH at $BUILDKITE_COMMIT", "echo $$BUILDKITE_BRANCH at $BUILDKITE_COMMIT"),
        ("${A[@]} ${#A} ${A/x/y} ${A^^}", "$${A[@]} $${#A} $${A/x/y} $${A^^}"),
        ("${HOME:-$BUILDKITE_COMMIT}", "$${HOME:-$$BUILDKITE_COMMIT}"),
        ("${BUILDKITE_COMMIT:-$HOME}", "$${BUILDKITE_COMMIT:-$$HOME}"),
        ("$$HOME $HOME", "$$HOME $$HOME"),
        ("a ${ b\n$HOME", "a $${ b\n$$HOME"),
    ],
)
def test_the_repaired_line_is_the_one_to_write(text: str, fixed: str) -> None:
    assert repaired(text) == fixed


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("BUILDKITE_COMMIT", Kind.UPLOAD),
        ("BUILDKITE_BUILD_NUMBER", Kind.UPLOAD),
        ("NIGHTLY", Kind.UPLOAD),
        ("BUILDKITE_BRANCH", Kind.OUTSIDE),
        ("BUILDKITE_MESSAGE", Kind.OUTSIDE),
        ("BUILDKITE_TAG", Kind.OUTSIDE),
        ("BUILDKITE_BUILD_AUTHOR_EMAIL", Kind.OUTSIDE),
        ("BUILDKITE_PULL_REQUEST_BASE_BRANCH", Kind.OUTSIDE),
        ("BUILDKITE_PULL_REQUEST_LABELS", Kind.OUTSIDE),
        ("BUILDKITE_PARALLEL_JOB", Kind.JOB),
        ("BUILDKITE_STEP_ID", Kind.JOB),
        ("BUILDKITE_AGENT_NAME", Kind.JOB),
        ("HOME", Kind.ELSEWHERE),
        ("PATH", Kind.ELSEWHERE),
        ("status", Kind.ELSEWHERE),
        ("HF_TOKEN", Kind.SECRET),
        ("AWS_ACCESS_KEY_ID", Kind.SECRET),
        ("BUILDKITE_AGENT_ACCESS_TOKEN", Kind.SECRET),
        ("my_password", Kind.SECRET),
        ("HF_TOKENS", Kind.ELSEWHERE),
    ],
)
def test_each_name_has_one_kind(name: str, kind: Kind) -> None:
    assert kind_of(name) is kind
    assert [use.kind for use in scan(f"x ${{{name}}}")] == [kind]


def test_the_pipelines_own_variables_exist_at_upload_but_secrets_stay_secrets() -> None:
    assert kind_of("VLLM_VERSION", {"VLLM_VERSION"}) is Kind.UPLOAD
    assert kind_of("HF_TOKEN", {"HF_TOKEN"}) is Kind.SECRET
    assert kind_of("BUILDKITE_BRANCH", {"BUILDKITE_BRANCH"}) is Kind.OUTSIDE


def test_every_secret_that_the_tool_reads_is_one_here_and_the_lists_are_apart() -> None:
    assert all(is_secret(variable.name) for variable in ALL if variable.secret)
    assert not UPLOAD_NAMES & OUTSIDE_NAMES
    assert not [name for name in UPLOAD_NAMES | OUTSIDE_NAMES if is_secret(name)]


def test_names_inside_a_default_are_found_too() -> None:
    uses = scan("${A:-${B-$HF_TOKEN}}", {"A", "B"})
    assert [(use.name, use.depth) for use in uses] == [("A", 0), ("B", 1), ("HF_TOKEN", 2)]


def test_a_long_text_of_dollars_takes_no_time_to_speak_of() -> None:
    assert double("$" * 200_000) == "$" * 400_000
    assert len(scan("$HOME " * 20_000)) == 20_000
