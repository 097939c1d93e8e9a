"""How many jobs a pipeline makes, and the parts it is uploaded in."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.pipelines.limits import JOBS_PER_UPLOAD, job_count, split
from tasks.support.errors import DataError


def steps(count: int, **more: Any) -> list[dict[str, Any]]:
    return [{"key": f"s{number}", "command": "x", **more} for number in range(count)]


@pytest.mark.parametrize(
    ("step", "jobs"),
    [
        ("wait", 1),
        ({"wait": None}, 1),
        ({"trigger": "p"}, 1),
        ({"command": "x"}, 1),
        ({"command": "x", "parallelism": 4}, 4),
        ({"command": "x", "parallelism": "4"}, 4),
        ({"command": "x", "parallelism": 0}, 1),
        ({"command": "x", "parallelism": None}, 1),
        ({"command": "x", "parallelism": ["a"]}, 1),
        ({"command": "x", "matrix": ["a", "b", "c"]}, 3),
        ({"command": "x", "matrix": {"setup": ["a", "b"]}}, 2),
        ({"command": "x", "matrix": {"setup": {"os": ["a", "b"], "arch": [1, 2, 3]}}}, 6),
        ({"command": "x", "matrix": ["a", "b"], "parallelism": 5}, 10),
        ({"group": "g", "steps": []}, 1),
        ({"group": "g", "steps": [{"command": "x", "parallelism": 3}, "wait"]}, 5),
        ({"command": "x", "matrix": {}}, 1),
        ({"command": "x", "matrix": "odd"}, 1),
    ],
)
def test_parallel_jobs_matrices_and_groups_count(step: Any, jobs: int) -> None:
    assert job_count(step) == jobs


@pytest.mark.parametrize(
    ("adjustments", "jobs"),
    [
        ([], 4),
        ([{"with": {"os": "a", "arch": 1}, "skip": True}], 3),
        ([{"with": {"os": "a", "arch": 1}, "skip": "broken"}], 3),
        ([{"with": {"os": "a", "arch": 1}, "soft_fail": True}], 4),
        ([{"with": {"os": "new", "arch": 1}}], 5),
        ([{"with": {"os": "new", "arch": 1}, "skip": True}], 4),
        ([{"with": {"os": "a", "arch": 1}, "skip": False}], 4),
        ([{"with": {"os": "a", "arch": 1}, "skip": ["odd"]}], 3),
        (["odd"], 4),
    ],
)
def test_adjustments_add_combinations_and_leave_some_out(adjustments: list[Any], jobs: int) -> None:
    matrix = {"setup": {"os": ["a", "b"], "arch": [1, 2]}, "adjustments": adjustments}
    assert job_count({"command": "x", "matrix": matrix}) == jobs


def test_what_fits_stays_one_part() -> None:
    document = {"env": {"A": "b"}, "steps": steps(JOBS_PER_UPLOAD)}
    assert split(document) == (document,)
    assert len(split({"steps": steps(JOBS_PER_UPLOAD + 1)})) == 2


def test_nothing_to_run_is_no_part() -> None:
    assert split({"env": {"A": "b"}, "steps": []}) == ()
    assert split({}) == ()


def test_what_stands_above_is_in_every_part_and_notifies_once() -> None:
    document = {"env": {"A": "b"}, "agents": {"queue": "q"}, "notify": [{"email": "x"}], "steps": steps(3)}
    first, *others = split(document, limit=1)
    assert first["notify"] == [{"email": "x"}]
    for part in others:
        assert {key: part[key] for key in part if key != "steps"} == {"env": {"A": "b"}, "agents": {"queue": "q"}}


def test_parallel_jobs_fill_a_part() -> None:
    parts = split({"steps": steps(3, parallelism=200)})
    assert [len(part["steps"]) for part in parts] == [2, 1]


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ({"key": "big", "parallelism": 501}, "step 'big' makes 501 jobs"),
        ({"group": "G", "steps": steps(500)}, "group 'G' makes 501 jobs"),
        ({"command": "x", "parallelism": 300, "matrix": ["a", "b"]}, "step 'x' makes 600 jobs"),
    ],
)
def test_what_is_too_large_by_itself_is_an_error(step: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        split({"steps": ["wait", step]})
    assert caught.value.hint


entry = st.one_of(
    st.just("wait"),
    st.builds(lambda jobs: {"command": "x", "parallelism": jobs}, st.integers(1, 9)),
    st.builds(lambda count: {"group": "g", "steps": steps(count)}, st.integers(1, 8)),
)


@given(st.lists(entry, max_size=40), st.integers(9, 40))
def test_parts_are_the_pipeline_in_order_and_as_full_as_can_be(entries: list[Any], limit: int) -> None:
    parts = split({"steps": entries}, limit=limit)
    assert [step for part in parts for step in part["steps"]] == entries
    sizes = [sum(map(job_count, part["steps"])) for part in parts]
    assert all(0 < size <= limit for size in sizes)
    for number, part in enumerate(parts[1:], 1):
        assert sizes[number - 1] + job_count(part["steps"][0]) > limit


@pytest.mark.parametrize(
    ("matrix", "key"),
    [
        ({"setup": "x"}, "setup"),
        ({"setup": 5}, "setup"),
        ({"setup": True}, "setup"),
        ({"setup": {"a": [1]}, "adjustments": 5}, "adjustments"),
        ({"setup": {"a": [1]}, "adjustments": {"a": 1}}, "adjustments"),
        ({"setup": ["a"], "adjustments": "x"}, "adjustments"),
    ],
)
def test_a_matrix_that_is_none_is_refused(matrix: dict[str, object], key: str) -> None:
    with pytest.raises(DataError, match=rf"matrix\.{key} must be"):
        job_count({"command": "x", "matrix": matrix})
