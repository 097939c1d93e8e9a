"""The reader of shell scripts against a real bash, and the reader of ``-m`` against a real pytest."""

from __future__ import annotations

import itertools
import subprocess

import pytest
from _pytest.mark.expression import Expression as PytestExpression
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.pipelines.checks import shell
from tasks.pipelines.checks.marks_grammar import read_expression
from tasks.pipelines.checks.pytest_calls import pytest_calls, timeout_seconds

NAMES = ("core_model", "cuda", "L4", "slow")


def bash_words(scripts: list[str]) -> list[tuple[str, ...]]:
    """Return the words that bash gives to a program called ``probe``, for one call in each script."""
    body = "probe() { printf '%s\\037' \"$@\"; printf '\\036'; }\n" + "\n".join(scripts) + "\n"
    answer = subprocess.run(["bash", "-c", body], capture_output=True, check=True, text=True).stdout
    return [tuple(words.split("\x1f")[:-1]) for words in answer.split("\x1e")[:-1]]


QUOTED = [
    "probe a b  c",
    "probe 'a b' c",
    'probe "a b" c',
    "probe a'b c'd",
    "probe 'pytest -m 'core and cuda' -x'",
    'probe "pytest -m "core and cuda" -x"',
    r"probe a\ b c\'d",
    r'probe "a\"b" "c\\d" "e\f"',
    "probe a#b #comment probe c",
    "probe '#' \"#\" \\#",
    "probe a \\\n  b",
    "probe '' \"\" x",
    "probe 'two\nlines' b",
    "probe a > /dev/null; probe b",
    "probe a 2>&1",
    "probe x=y --k=v",
    "probe 'a;b' 'c&d' \"e|f\"",
]


@pytest.mark.parametrize("script", QUOTED)
def test_words_are_those_that_bash_gives_to_a_program(script: str) -> None:
    ours = [command.words[1:] for command in shell.commands(script) if command.words[0] == "probe"]
    expected = bash_words([script])
    if ">" in script and "/dev/null" in script:  # the first probe's words went there
        assert ours[1:] == expected
    else:
        assert ours == expected


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.lists(
            st.tuples(
                st.sampled_from(["bare", "single", "double"]),
                st.text(alphabet="ab-=./ #;|&()<>\n'\"\\", min_size=1, max_size=8),
            ),
            min_size=1,
            max_size=4,
        ),
        min_size=1,
        max_size=5,
    )
)
def test_any_quoting_gives_the_words_of_bash(words: list[list[tuple[str, str]]]) -> None:
    def written(kind: str, text: str) -> str:
        if kind == "single":
            return "'" + text.replace("'", "") + "'"
        if kind == "double":
            return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
        return "".join(letter for letter in text if letter in "ab-=./") or "a"

    script = "probe " + " ".join("".join(written(*part) for part in word) for word in words)
    assert [command.words[1:] for command in shell.commands(script)] == bash_words([script])


@pytest.mark.parametrize("text", ["echo 'a", 'echo "a', "echo $(a", 'x="${a"', "echo `a"])
def test_what_is_never_closed_is_said(text: str) -> None:
    with pytest.raises(shell.ShellError, match="never closed"):
        shell.commands(text)


@pytest.mark.parametrize(
    ("script", "programs"),
    [
        ("a; b && c || d | e & f", ["a", "b", "c", "d", "e", "f"]),
        ("if a; then b; else c; fi", ["a", "b", "c"]),
        ("while ! a; do b; done", ["a", "b"]),
        ("X=1 Y='a b' a", ["a"]),
        ("{ a; }; (b)", ["a", "b"]),
        ("a $(b; c) `d` e", ["a"]),
        ("time a\n\n# b\nc", ["a", "c"]),
    ],
)
def test_commands_are_parted_as_a_shell_parts_them(script: str, programs: list[str]) -> None:
    found = [command.without_prefix()[0] for command in shell.commands(script) if command.without_prefix()]
    assert found == programs


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("bash -c 'x'", "x"),
        ("timeout 5m bash -c 'x'", "x"),
        ("bash -lc 'x'", "x"),
        ("/bin/sh -ec 'x'", "x"),
        ("bash -o pipefail -c 'x'", "x"),
        ("bash -eo pipefail -c 'x'", "x"),
        ("docker run --rm image bash -c 'x'", "x"),
        ("bash script.sh -c x", None),
        ("bash -x script.sh", None),
        ("echo bash", None),
    ],
)
def test_the_script_behind_c_is_found(script: str, expected: str | None) -> None:
    words = shell.commands(script)[0].words
    found = shell.shell_script(words)
    assert (words[found] if found is not None else None) == expected


@pytest.mark.parametrize(
    ("words", "seconds"),
    [
        ("timeout 20m pytest", 1200),
        ("timeout 90 pytest", 90),
        ("timeout 1.5h pytest", 5400),
        ("timeout -k 30 30m bash -c x", 1800),
        ("timeout --signal=TERM --kill-after=2m 80m pytest", 4800),
        ("timeout -s KILL 1d pytest", 86400),
        ("/usr/bin/timeout 2m pytest", 120),
        ("timeout 0 pytest", None),
        ("timeout $LIMIT pytest", None),
        ("pytest --timeout 5", None),
    ],
)
def test_the_limit_of_a_timeout(words: str, seconds: float | None) -> None:
    assert timeout_seconds(shell.commands(words)[0]) == seconds


def test_a_pytest_call_is_found_with_what_it_selects() -> None:
    script = """
      export VLLM_LOGGING_LEVEL=DEBUG
      cd /app
      timeout 20m python3 -m pytest -s -v tests/a.py "tests/b c" -m 'core_model and cuda' -k x --run-level=full_model \\
        --ignore=tests/a/x --ignore tests/a/y -n 4 --cov=vllm_omni
      echo pytest tests/never
    """
    (call,) = pytest_calls(script)
    assert call.tests == ("tests/a.py", "tests/b c")
    assert (call.marks, call.keyword, call.run_level) == ("core_model and cuda", "x", "full_model")
    assert call.ignored == ("tests/a/x", "tests/a/y")
    assert call.environment == ("VLLM_LOGGING_LEVEL=DEBUG",)
    assert not call.repeated


@pytest.mark.parametrize(
    "script",
    [
        "pytest -m a tests/x",
        "timeout 20m bash -c 'pytest -m a tests/x'",
        "A=1 pytest -ma tests/x",
        "coverage run -m pytest -m a tests/x",
        "set +e; .venv/bin/pytest tests/x -m a || status=1",
        "if ! pytest -m a tests/x; then exit 1; fi",
        "docker run --rm img bash -c 'cd /w && pytest -m a tests/x'",
    ],
)
def test_a_pytest_call_is_found_however_it_is_called(script: str) -> None:
    (call,) = pytest_calls(script)
    assert (call.tests, call.marks) == (("tests/x",), "a")


@pytest.mark.parametrize("script", ["pip install pytest", "echo pytest tests/x", "which pytest", "# pytest tests/x"])
def test_what_does_not_run_pytest_is_no_call(script: str) -> None:
    assert not list(pytest_calls(script))


expressions = st.recursive(
    st.sampled_from(NAMES),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(lambda part: f"({part[0]} {part[1]} {part[2]})"),
        inner.map(lambda part: f"not {part}"),
    ),
    max_leaves=6,
)


@settings(max_examples=60, deadline=None)
@given(expressions, st.frozensets(st.sampled_from(NAMES)))
def test_an_expression_selects_what_pytest_would(text: str, marks: frozenset[str]) -> None:
    judge = PytestExpression.compile(text)
    ours = read_expression(text)
    assert ours is not None
    subsets = [set(some) for size in range(len(marks) + 1) for some in itertools.combinations(sorted(marks), size)]

    def selected(some: set[str]) -> bool:
        def has(name: str, /, **_: str | int | bool | None) -> bool:
            return name in some

        return judge.evaluate(has)

    assert ours.may_select(marks) == any(map(selected, subsets))


@pytest.mark.parametrize("text", ["core_model and", "a b", "(a", "a &", "1", "a > b", "", "a.b", "f(1)", "[a]"])
def test_an_expression_that_pytest_cannot_read_is_none(text: str) -> None:
    assert read_expression(text) is None
