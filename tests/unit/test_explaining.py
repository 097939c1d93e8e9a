"""One set of reasons in three forms: table, JSON and annotation agree, and no name can break any of them."""

from __future__ import annotations

import json
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from tasks.pipelines.changes import ChangedFile, ChangeSet, State
from tasks.pipelines.explaining import ANNOTATION_LIMIT, Explanation, annotation, as_data, lines
from tasks.pipelines.model import Decision, Group, Reason, Step, Why
from tasks.support import console

CHANGES = ChangeSet(
    State.KNOWN,
    tuple(ChangedFile(name, "M") for name in "abcd"),
    "3f2c1ab0" * 5,
    "1" * 40,
    "against origin/main (merge base 3f2c1ab)",
)


def step(name: str, line: int = 1, **body: object) -> Step:
    return Step({"label": name, "command": "c", **body}, f"test.yml:{line}", {})


def decision(step_: Step, keep: bool, why: Why, text: str, group: Group | None = None) -> Decision:
    return Decision(step_, group, keep, Reason(why, text))


def explained(*decisions: Decision, changes: ChangeSet = CHANGES, notes: tuple[str, ...] = ()) -> Explanation:
    return Explanation("cuda_merge", changes, decisions, notes)


EXAMPLE = explained(
    decision(step("qwen3-tts-base"), True, Why.AREA, "talker.py is in area qwen3-tts"),
    decision(step("distributed"), True, Why.ALWAYS, "no path rules: always"),
    decision(Step({"wait": None}, "test.yml:9", {}), True, Why.STRUCTURE, "what follows waits for what is before"),
    decision(step("wan22"), False, Why.UNCHANGED, "nothing under area wan22 changed"),
    notes=("nothing quarantined",),
)


def test_the_table_for_people() -> None:
    assert lines(EXAMPLE) == [
        "cuda_merge · 4 changed files against origin/main (merge base 3f2c1ab)",
        "  run   qwen3-tts-base  talker.py is in area qwen3-tts",
        "  run   distributed     no path rules: always",
        "  run   wait            what follows waits for what is before",
        "  drop  wan22           nothing under area wan22 changed",
        "2 of 3 steps · nothing quarantined",
    ]


@pytest.mark.parametrize(
    ("changes", "first"),
    [
        (
            ChangeSet(State.UNKNOWN, (), None, None, "not known: no merge base"),
            "cuda_merge · changed files not known: no merge base",
        ),
        (
            ChangeSet(State.EMPTY, (), "1" * 40, "2" * 40, "against main"),
            "cuda_merge · 0 changed files against main",
        ),
    ],
)
def test_what_changed_is_said_in_every_state(changes: ChangeSet, first: str) -> None:
    assert lines(explained(changes=changes))[0] == first


class _Table(HTMLParser):
    """Collects the cells of a page's tables, the tags of it and what stands outside of tables."""

    def __init__(self) -> None:
        super().__init__()
        self.cells: list[str] = []
        self.tags: set[str] = set()
        self._inside = False

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.add(tag)
        if tag == "td":
            self._inside = True
            self.cells.append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = self._inside and tag != "td"

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.cells[-1] += data


def shown(markdown: str) -> _Table:
    page = _Table()
    renderer = MarkdownIt("commonmark", {"html": True, "linkify": False}).enable("table")
    page.feed(renderer.render(markdown))
    return page


def test_table_json_and_annotation_have_the_same_names_and_reasons() -> None:
    data = as_data(EXAMPLE)
    rows = [("run" if row["run"] else "drop", row["name"], row["reason"]) for row in data["steps"]]
    assert [line.split(maxsplit=2) for line in lines(EXAMPLE)[1:-1]] == [list(row) for row in rows]
    cells = shown(annotation(EXAMPLE)).cells
    assert cells == [cell for row in rows for cell in row]
    assert data["summary"] == lines(EXAMPLE)[-1]
    assert data["changes"]["files"] == len(CHANGES.files)
    assert [row["why"] for row in data["steps"]] == ["area", "always", "structure", "unchanged"]


HOSTILE = [
    "a | b",
    "a\\| b \\",
    "<script>alert(1)</script>",
    "<!-- -->",
    "[x](javascript:alert(1)) ![i](http://h/i.png)",
    "`code` ``",
    "**bold** _it_ ~~no~~",
    "&lt;b&gt; &#60;",
    "# title\n---\n> quote",
    "\x1b[31mred\x1b[0m\r",
    "\u202etxt.exe",
    "a\u2028b",
    "名前 🎉 é",
    "http://example.test/ www.example.test @all",
    ":docker: build",
    "$(rm -rf /) ${HOME} %s {0}",
    "</td></tr></table><h1>x",
    "    indented",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_is_shown_and_means_nothing(name: str) -> None:
    around = Group({"group": name}, "test.yml:1", {}, ())
    explanation = explained(decision(step(name), True, Why.PATH, f"{name} changed", around))
    page = shown(annotation(explanation))
    assert page.tags <= {"p", "strong", "table", "thead", "tbody", "tr", "th", "td"}
    title = console.plain(explanation.decisions[0].step.name)
    assert page.cells == ["run", title.strip(), console.plain(f"{name} changed").strip()]
    assert len(lines(explanation)) == 3
    assert not any(letter in line for line in lines(explanation) for letter in "\n\r\x1b\u202e\u2028")
    assert json.loads(json.dumps(as_data(explanation)))["steps"][0]["group"] == name


@given(st.text(max_size=80), st.text(max_size=80))
def test_any_two_texts_are_two_cells_of_one_row(name: str, reason: str) -> None:
    explanation = explained(decision(step(name or "x"), True, Why.PATH, reason))
    page = shown(annotation(explanation))
    assert len(page.cells) == 3
    assert page.tags <= {"p", "strong", "table", "thead", "tbody", "tr", "th", "td"}
    annotation(explanation).encode()


def test_a_file_name_that_is_not_utf_8_can_be_sent() -> None:
    text = annotation(explained(decision(step("a"), True, Why.PATH, "b\udcff.py changed")))
    assert "udcff" in text.encode().decode()


def test_steps_of_one_name_are_told_apart_by_their_lines() -> None:
    twins = explained(
        decision(step("Test", 3), True, Why.ALWAYS, "x"),
        decision(step("Test", 8), False, Why.UNCHANGED, "y"),
        decision(step("Test", 12, key="t"), False, Why.UNCHANGED, "y"),
    )
    assert [row["name"] for row in as_data(twins)["steps"]] == ["Test (test.yml:3)", "Test (test.yml:8)", "t"]


@pytest.mark.parametrize("limit", [ANNOTATION_LIMIT, 20_000, 5_000])
def test_an_annotation_stays_within_its_limit_and_counts_what_it_leaves_out(limit: int) -> None:
    many = explained(*(decision(step("名" * 200 + str(n)), True, Why.PATH, "|" * 5000) for n in range(5_000)))
    text = annotation(many, limit)
    assert len(text.encode()) <= limit
    page = shown(text)
    assert f"{5_000 - len(page.cells) // 3} more steps left out here" in text
    assert "5000 of 5000 steps" in text


def test_a_secrets_value_is_in_no_form(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hush-hush")
    assert "hush" not in annotation(explained(decision(step("hush-hush"), True, Why.PATH, "hush-hush changed")))
