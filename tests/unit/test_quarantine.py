"""The list of quarantined tests: what is allowed, what has lapsed, and what the check says of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.pipelines.checking import Level, check, context_of, fails
from tasks.suites.quarantine import FILE, LONGEST, Entry, State, load, read, state_of
from tasks.support.errors import DataError, MissingInputError
from tests.git_scenes import Repository, isolate

TODAY = date(2026, 1, 10)
LIST = b"""\
quarantine:
  - {test: t1, until: '2026-01-31', owner: o, issue: i}
  - {test: t2, until: '2026-01-09', owner: o, issue: i}
  - {test: t3, until: '2026-06-01', owner: o, issue: i}
  - {test: t4, until: '2026-01-31'}
  - {test: t5, owner: o, issue: 5}
  - {test: t6, until: '2026-01-31', owner: o}
"""


def entry(until: date | None = TODAY, **more: str | None) -> Entry:
    fields: dict[str, str | None] = {"owner": "o", "issue": "i", "reason": None, **more}
    return Entry(test="t", until=until, where="q.yml:1", **fields)


def test_only_proper_entries_soften_a_failure() -> None:
    entries = read(LIST, "q.yml")
    states = {one.test: state_of(one, TODAY) for one in entries}
    assert [test for test, (state, _) in states.items() if state is State.SOFT] == ["t1"]
    assert states["t2"] == (State.LAPSED, "lapsed on 2026-01-09, so its failures count again")
    assert states["t3"][1].startswith("more than 30 days")
    assert states["t4"] == (State.REFUSED, "owner and issue needed")
    assert states["t5"] == (State.REFUSED, "until needed")
    assert states["t6"] == (State.REFUSED, "issue needed")


@given(st.integers(-1000, 1000))
def test_an_entry_counts_from_thirty_days_before_its_end_to_its_end(days: int) -> None:
    state, _ = state_of(entry(TODAY + timedelta(days=days)), TODAY)
    expected = State.LAPSED if days < 0 else State.SOFT if days <= LONGEST.days else State.REFUSED
    assert state is expected


@pytest.mark.parametrize("field", ["owner", "issue"])
def test_an_empty_owner_or_issue_is_none(field: str) -> None:
    text = "quarantine:\n  - {test: t, until: '2026-01-31', owner: o, issue: i}\n".replace(
        f"{field}: {field[0]}", f"{field}: ''"
    )
    assert [state_of(one, TODAY)[0] for one in read(text.encode(), "q.yml")] == [State.REFUSED]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "q.yml is empty"),
        ("quarantine: {}", "q.yml:1: quarantine must be a list"),
        ("quarantin: []", "q.yml:1: unknown key 'quarantin'"),
        ("quarantine:\n  - {tests: t}", "q.yml:2: unknown key 'tests'"),
        ("quarantine:\n  - {until: '2026-01-31'}", "q.yml:2: an entry has no 'test'"),
        ("quarantine:\n  - {test: t, until: soon}", "q.yml:2: until is a day, not 'soon'"),
        ("quarantine:\n  - {test: t, until: '2026-02-30'}", "q.yml:2: until is a day, not '2026-02-30'"),
        ("quarantine:\n  - {test: t, until: '2026-W05-1'}", "q.yml:2: until is a day"),
        ("quarantine:\n  - {test: t, until: 2026-01-31}", "put it in quotes"),
        ("quarantine:\n  - {test: t}\n  - {test: t}", "q.yml:3: t is quarantined twice: line 2 has it already"),
    ],
)
def test_what_is_no_such_list_is_refused_with_its_line(text: str, message: str) -> None:
    with pytest.raises(DataError) as caught:
        read(text.encode(), "q.yml")
    assert message in f"{caught.value.message} {caught.value.hint}"


def test_a_list_that_is_not_there_is_missing(tmp_path: Path) -> None:
    with pytest.raises(MissingInputError):
        load(tmp_path / "q.yml")


def test_our_own_list_holds_proper_entries() -> None:
    assert all(one.owner and one.issue and one.until for one in load(FILE))


def test_the_check_names_refused_entries_as_errors_and_lapsed_ones_as_warnings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    isolate(monkeypatch)
    repository = Repository.new(tmp_path / "source")
    repository.commit({"tests/test_a.py": "def test_it(): ...\n"})
    context = context_of(repository.path, TODAY)

    def found(*entries: Entry) -> list[tuple[Level, str]]:
        findings = [one for one in check(replace(context, quarantine=entries)) if one.rule == "quarantine"]
        assert fails(findings) == any(one.level is Level.ERROR for one in findings)
        return [(one.level, one.text) for one in findings]

    test = "tests/test_a.py::test_it"
    assert found(replace(entry(), test=test)) == []
    assert found(replace(entry(), test="tests/")) == []
    assert found(replace(entry(TODAY - timedelta(days=1)), test=test)) == [
        (Level.WARNING, f"{test}: lapsed on 2026-01-09, so its failures count again")
    ]
    assert found(replace(entry(owner=None, issue=None), test=test)) == [
        (Level.ERROR, f"{test}: owner and issue needed")
    ]
    assert found(replace(entry(), test="tests/test_gone.py")) == [
        (Level.WARNING, "tests/test_gone.py: the source has no such test")
    ]
