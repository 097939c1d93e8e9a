"""Path rules: their language, and matching them with changed files."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from contextlib import suppress

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tasks.pipelines.rules import Areas, Files, Rule, first_match, literal, matching, parse_rules, uncovered
from tasks.support.errors import DataError

NO_AREAS: Areas = {}
AREAS: Areas = {
    "qwen3-tts": parse_rules(["vllm_omni/x.py", "vllm_omni/tts/", "!vllm_omni/tts/README.txt"], {}, "areas.yml"),
    "docs": parse_rules(["handbook/"], {}, "areas.yml"),
}


def _covers(rules: Sequence[str] | str, *paths: str, areas: Areas = NO_AREAS) -> list[str]:
    return list(
        matching(parse_rules(list(rules) if not isinstance(rules, str) else rules, areas, "x.yml:1"), Files(paths))
    )


@pytest.mark.parametrize(
    ("rule", "yes", "no"),
    [
        # A folder, whatever its closing slash; its boundary; a submodule or file of its name.
        (
            "pkg/tts/",
            ["pkg/tts/a.py", "pkg/tts/deep/er/a.py", "pkg/tts"],
            ["pkg/tts2/a.py", "pkg/ttsx", "pkg", "a/pkg/tts/a"],
        ),
        ("pkg/tts", ["pkg/tts/a.py", "pkg/tts"], ["pkg/tts.py", "pkg/tts-old/a.py", "pkg/tts0"]),
        ("./pkg/tts/", ["pkg/tts/a.py"], ["pkg/a.py"]),
        ("././a.py", ["a.py"], ["b/a.py"]),
        # A file.
        (
            "pkg/deploy/qwen3_tts.yaml",
            ["pkg/deploy/qwen3_tts.yaml"],
            ["pkg/deploy/qwen3_tts.yaml.bak", "pkg/deploy/qwen3_tts"],
        ),
        ("mkdocs.yml", ["mkdocs.yml"], ["sub/mkdocs.yml", "mkdocs.yml2", "mkdocsxyml"]),
        # One star stays inside a name.
        ("pkg/*.py", ["pkg/a.py", "pkg/.py"], ["pkg/a/b.py", "pkg/a.pyc", "a.py"]),
        ("pkg/*", ["pkg/a.py", "pkg/.hidden"], ["pkg/a/b.py", "pkg"]),
        ("*", ["a.py"], ["a/b.py"]),
        (
            "docker/Dockerfile.*",
            ["docker/Dockerfile.ci", "docker/Dockerfile.npu.a3"],
            ["docker/Dockerfile", "docker/x/Dockerfile.ci"],
        ),
        ("a*b*c", ["abc", "axbxc", "abcbc"], ["ab", "acb", "abcd", "a/b/c"]),
        ("pkg/*/a.py", ["pkg/x/a.py"], ["pkg/a.py", "pkg/x/y/a.py"]),
        # A closing slash after a star: everything below the folders that fit.
        ("pkg/qwen*/", ["pkg/qwen3/a.py", "pkg/qwen/x/y.py"], ["pkg/qwen3", "pkg/other/a.py", "pkg/qwen.py"]),
        # Two stars are any number of folders, none among them.
        ("**/*.md", ["README.md", "a/b.md", "a/b/c.md"], ["README.MD", "a.mdx", "md"]),
        ("**/conftest.py", ["conftest.py", "tests/conftest.py", "a/b/conftest.py"], ["xconftest.py", "conftest.py/x"]),
        ("a/**/b", ["a/b", "a/x/b", "a/x/y/b"], ["ab", "a/xb", "a/b/c", "b"]),
        ("a/**", ["a/b", "a/b/c"], ["a", "b/a"]),
        ("**", ["a", "a/b"], []),
        ("**/x/**/y*/z", ["x/y/z", "a/x/b/y1/z", "x/x/y/y/z"], ["x/z", "y/z", "x/y/a/z"]),
        ("**/b/**/b/c", ["b/b/c", "a/b/x/b/c", "b/b/b/c"], ["b/c", "a/b/c"]),
        # What regular expressions and shells would take for more.
        ("pkg/a+b (x)$^|.py", ["pkg/a+b (x)$^|.py"], ["pkg/aab x.py"]),
        ("pkg/视频/*.py", ["pkg/视频/a b.py", 'pkg/视频/q"uote.py', "pkg/视频/a\nb.py"], ["pkg/a.py"]),
    ],
)
def test_a_rule_covers(rule: str, yes: list[str], no: list[str]) -> None:
    assert _covers([rule], *yes, *no) == sorted(yes)
    for path in yes:
        assert first_match(parse_rules([rule], {}, "x"), Files([path])) is not None
    for path in no:
        assert first_match(parse_rules([rule], {}, "x"), Files([path])) is None


def test_names_are_the_same_however_their_accents_are_written() -> None:
    composed = "pkg/é/a.py"
    apart = unicodedata.normalize("NFD", composed)
    assert composed != apart
    for rule, path in (
        (composed, apart),
        (apart, composed),
        ("pkg/é/", apart),
        (apart.replace("a.py", "*.py"), composed),
    ):
        match = first_match(parse_rules([rule], {}, "x"), Files([path]))
        assert match is not None
        assert match.file == path


@pytest.mark.parametrize(
    ("changed", "runs"),
    [
        (["pkg/kv/a.py"], False),
        (["pkg/kv/a.py", "pkg/b.py"], True),
        (["pkg/kv/a.py", "pkg/kv/b.md", "pkg/lv/x.md"], False),
        (["pkg/kv2/a.py"], True),
        (["other.py"], False),
    ],
)
@pytest.mark.parametrize("turned", [False, True], ids=["in order", "turned round"])
def test_an_exclusion_is_judged_for_each_file(changed: list[str], runs: bool, turned: bool) -> None:
    rules = ["pkg/", "!pkg/kv/", "!**/*.md"]
    assert bool(_covers(rules[::-1] if turned else rules, *changed)) is runs


def test_several_exclusions_inside_one_folder() -> None:
    changed = [f"pkg/{letter}/{number}.py" for letter in "abcdefg" for number in range(3)]
    left = _covers(["pkg/", "!pkg/a/", "!pkg/c/", "!pkg/d/1.py", "!pkg/f/", "!pkg/**/2.py"], *changed)
    assert left == ["pkg/b/0.py", "pkg/b/1.py", "pkg/d/0.py", "pkg/e/0.py", "pkg/e/1.py", "pkg/g/0.py", "pkg/g/1.py"]


@pytest.mark.parametrize(
    ("rules", "file", "text"),
    [
        (["pkg/models/qwen3_tts/"], "pkg/models/qwen3_tts/talker.py", "{file} under pkg/models/qwen3_tts/"),
        (["pkg/models/qwen3_tts"], "pkg/models/qwen3_tts/talker.py", "{file} under pkg/models/qwen3_tts/"),
        (["third_party/x/"], "third_party/x", "{file} changed"),
        (["./pyproject.toml"], "pyproject.toml", "{file} changed"),
        (["pkg/**/*.py"], "pkg/a/b.py", "{file} matches pkg/**/*.py"),
        (["area:qwen3-tts"], "vllm_omni/x.py", "{file} is in area qwen3-tts"),
        (["qwen3-tts"], "vllm_omni/tts/a.py", "{file} is in area qwen3-tts"),
        (["pkg/", "qwen3-tts"], "vllm_omni/x.py", "{file} is in area qwen3-tts"),
    ],
)
def test_a_match_says_which_file_and_rule(rules: list[str], file: str, text: str) -> None:
    match = first_match(parse_rules(rules, AREAS, "x"), Files(["zzz", file, "aaa"]))
    assert match is not None
    assert match.file == file
    assert match.text == text.format(file=file)


def test_areas_in_rules() -> None:
    changed = (
        "vllm_omni/x.py",
        "vllm_omni/tts/README.txt",
        "vllm_omni/tts/a.py",
        "vllm_omni/y.py",
        "docs/a",
        "handbook/a",
    )
    assert _covers(["area:qwen3-tts"], *changed, areas=AREAS) == ["vllm_omni/tts/a.py", "vllm_omni/x.py"]
    assert _covers(["vllm_omni/", "!area:qwen3-tts"], *changed, areas=AREAS) == [
        "vllm_omni/tts/README.txt",
        "vllm_omni/y.py",
    ]
    assert _covers(["vllm_omni/", "!qwen3-tts"], *changed, areas=AREAS) == [
        "vllm_omni/tts/README.txt",
        "vllm_omni/y.py",
    ]
    assert _covers(["docs"], *changed, areas=AREAS) == ["handbook/a"]
    assert _covers(["docs/"], *changed, areas=AREAS) == ["docs/a"]
    assert _covers(["docs"], *changed) == ["docs/a"]
    assert _covers("qwen3-tts", "vllm_omni/x.py", areas=AREAS) == ["vllm_omni/x.py"]
    assert _covers(["area:qwen3-tts", "area:docs"], *changed, areas=AREAS) == [
        "handbook/a",
        "vllm_omni/tts/a.py",
        "vllm_omni/x.py",
    ]


@pytest.mark.parametrize(
    ("rules", "message", "hint"),
    [
        (["/pkg/"], "starts with a slash", "leave the slash out"),
        ([""], "empty", None),
        (["./"], "empty", None),
        (["a//b"], "empty", None),
        (["../a"], "..", None),
        (["a/./b"], ".", None),
        ([" a"], "white space", None),
        (["a\n"], "white space", None),
        (["a\\b"], "backslash", "parted by /"),
        (["a?.py"], "?[]{}", "one rule for each case"),
        (["[ab].py"], "?[]{}", None),
        (["{a,b}/"], "?[]{}", None),
        (["!!a"], "two !", None),
        (["**.md"], "**", "write **/*.md"),
        (["pkg/**.md"], "**", "write pkg/**/*.md"),
        (["a/***"], "**", None),
        (["a/**/**/b"], "two ** in a row", None),
        (["*a" * 11], "wildcards", "several rules"),
        (["a/*/" * 11], "wildcards", None),
        (["*" * 11], "**", None),
        (["x" * 1001], "longer", None),
        (["area:qwen3"], "no area 'qwen3'", "did you mean qwen3-tts"),
        (["!area:nope"], "no area 'nope'", "known areas are docs, qwen3-tts"),
        (["area:"], "no area ''", None),
        (["a/", "a"], "says the same as 'a/'", "remove"),
        (["./a", "b", "a"], "says the same as './a'", None),
        (["docs", "area:docs"], "says the same as 'docs'", None),
        (["!a", "!b"], "every rule starts with !", "without !"),
        ([1], "list of paths or areas", None),
        ([["a"]], "list of paths or areas", None),
        ([None], "list of paths or areas", None),
        (None, "list of paths or areas", None),
        ({"a": "b"}, "list of paths or areas", None),
    ],
)
def test_refuses_what_is_not_in_the_language(rules: object, message: str, hint: str | None) -> None:
    with pytest.raises(DataError) as caught:
        parse_rules(rules, AREAS, "file.yml:7")
    assert caught.value.message.startswith("file.yml:7: ")
    assert message in caught.value.message
    assert hint is None or hint in (caught.value.hint or "")


def test_says_which_files_no_list_covers() -> None:
    lists = [
        parse_rules(rules, AREAS, "x") for rules in (["pkg/api/"], ["pkg/cli/", "!pkg/cli/x/"], ["area:qwen3-tts"])
    ]
    changed = Files(["pkg/api/x.py", "pkg/util.py", "pkg/cli/x/a", "pkg/cli/b", "vllm_omni/x.py"])
    assert uncovered(lists, changed) == ("pkg/cli/x/a", "pkg/util.py")
    assert uncovered([], changed) == changed.paths
    assert uncovered(lists, Files([])) == ()


def test_a_path_that_code_knows_needs_no_language() -> None:
    rules = [literal("tests/[x] {y}.py")]
    assert matching(rules, Files(["tests/[x] {y}.py", "tests/x"])) == ("tests/[x] {y}.py",)


NAMES = st.text(alphabet="abé.-_", min_size=1, max_size=4).filter(lambda name: name not in (".", ".."))
PATHS = st.lists(NAMES, min_size=1, max_size=4).map("/".join)
GLOBS = st.lists(
    st.one_of(NAMES, st.text(alphabet="ab*", min_size=1, max_size=4), st.just("**")), min_size=1, max_size=5
).map("/".join)


def _plainly(rule: Rule, path: str) -> bool:
    """Judge by the definition: every way to spread the rule's names over the path's is tried."""
    path = unicodedata.normalize("NFC", path)
    if not rule.is_glob:
        return path == rule.path or path.startswith(f"{rule.path}/")
    pattern = rule.path.split("/")
    if rule.folder and pattern[-1] != "**":
        pattern.append("**")
    return _spread(pattern, path.split("/"))


def _spread(pattern: list[str], names: list[str]) -> bool:
    if not pattern:
        return not names
    if pattern == ["**"]:
        return bool(names)
    if pattern[0] == "**":
        return _spread(pattern[1:], names) or (bool(names) and _spread(pattern, names[1:]))
    if not names:
        return False
    fits = re.fullmatch(".*".join(map(re.escape, pattern[0].split("*"))), names[0], re.DOTALL)
    return fits is not None and _spread(pattern[1:], names[1:])


def _parsed(texts: list[str]) -> tuple[Rule, ...]:
    try:
        return parse_rules(texts, {}, "x")
    except DataError:
        assume(condition=False)
        raise


@given(
    st.lists(st.tuples(st.booleans(), st.one_of(PATHS, GLOBS), st.booleans()), min_size=1, max_size=4),
    st.lists(PATHS, max_size=12),
)
def test_matches_as_the_definition_says(rules: list[tuple[bool, str, bool]], paths: list[str]) -> None:
    parsed = _parsed([f"{'!' * out}{text}{'/' * slash}" for out, text, slash in rules])
    files = Files(paths)
    expected = {
        path
        for path in files.paths
        if any(_plainly(rule, path) for rule in parsed if not rule.negated)
        and not any(_plainly(rule, path) for rule in parsed if rule.negated)
    }
    assert set(matching(parsed, files)) == expected
    assert set(uncovered([parsed], files)) == set(files.paths) - expected
    match = first_match(parsed, files)
    assert (match is not None) == bool(expected)
    if match is not None:
        assert match.file in expected
        assert _plainly(match.rule, match.file)
        assert not match.rule.negated


@given(st.lists(PATHS, max_size=300), GLOBS)
def test_narrowing_a_long_list_loses_no_file(paths: list[str], text: str) -> None:
    (rule,) = _parsed([text])
    files = Files([*paths, *(f"n{number}/{path}" for number in range(80) for path in ("a.b", "b/a", "ab"))])
    assert set(matching([rule], files)) == {path for path in files.paths if _plainly(rule, path)}


@given(st.text(max_size=12))
def test_any_text_is_a_rule_or_a_foreseen_error(text: str) -> None:
    rules: tuple[Rule, ...] = ()
    with suppress(DataError):
        rules = parse_rules([text, "else"], AREAS, "x")
    assert len(matching(rules, Files(["a", "else", "a/b"]))) >= bool(rules)


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    "rule",
    [
        "*a*a*a*a*a*a*a*a*a*b",
        "**/a/**/a/**/a/**/a/**/b",
        "**/*a*a/**/*a*a/**/*b",
        "**/a/**/a/**/a/**/a/**/a/**/*b",
        "a*" * 10,
        "*/*/*/*/*/*/*/*/*/*",
    ],
)
def test_no_rule_takes_long_on_a_hostile_name(rule: str) -> None:
    paths = ["a" * 4096, "a/" * 2000 + "a", ("a" * 200 + "/") * 20 + "c"]
    plain = rule.startswith("a*")
    assert _covers([rule], *paths) == (["a" * 4096] if plain else [])


@pytest.mark.timeout(60)
def test_a_hundred_thousand_files_and_a_thousand_steps() -> None:
    files = Files([f"pkg/m{number % 997}/deep/f{number}.py" for number in range(100_000)])
    lists = [
        parse_rules([f"pkg/m{number}/", f"!pkg/m{number}/**/*1.py", "**/*.md", f"tests/t{number}.py"], {}, "x")
        for number in range(1000)
    ]
    matches = [first_match(rules, files) for rules in lists]
    assert [match is not None for match in matches] == [number < 997 for number in range(1000)]
    assert all(path.endswith("1.py") for path in uncovered(lists, files))
