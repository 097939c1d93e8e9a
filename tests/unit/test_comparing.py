"""What people are told about two rendered pipelines."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tasks.pipelines.comparing import Change, How, diff, lines


def step(label: str, **more: Any) -> dict[str, Any]:
    return {"label": label, "command": f"run {label}", **more}


def told(old: list[Any], new: list[Any]) -> list[str]:
    return lines(diff({"steps": old}, {"steps": new}))


A, B, C, D = (step(name) for name in "abcd")


def test_the_same_pipeline_has_no_changes() -> None:
    assert told([A, "wait", {"group": "g", "steps": [B, C]}], [A, "wait", {"group": "g", "steps": [B, C]}]) == []


def test_added_removed_and_changed_are_told_by_key_then_label() -> None:
    old = [step("one", key="k", timeout_in_minutes=20), B, C]
    new = [step("renamed", key="k", timeout_in_minutes=30, retry={"manual": False}), B, D]
    assert told(old, new) == [
        "~ k",
        '    label: "one" -> "renamed"',
        '    command: "run one" -> "run renamed"',
        "    timeout_in_minutes: 20 -> 30",
        '    retry: {"manual": false} is new',
        "+ d",
        "- c",
    ]


def test_values_are_told_by_their_path() -> None:
    old = step("a", plugins=[{"docker#v5": {"image": "x:1", "volumes": ["a"]}}])
    new = step("a", plugins=[{"docker#v5": {"image": "x:2", "volumes": ["a", "b"]}}])
    assert told([old], [new]) == [
        "~ a",
        '    plugins[0].docker#v5.image: "x:1" -> "x:2"',
        '    plugins[0].docker#v5.volumes: ["a"] -> ["a", "b"]',
    ]


def test_a_type_is_a_change_and_a_long_value_is_cut() -> None:
    assert told([step("a", env={"N": 1})], [step("a", env={"N": "1"})]) == ["~ a", '    env.N: 1 -> "1"']
    assert told([step("a", skip=1)], [step("a", skip=True)]) == ["~ a", "    skip: 1 -> true"]
    longest = max(map(len, told([step("a")], [step("a", env={"N": "x" * 5000})])))
    assert longest < 200


def test_the_fewest_steps_that_moved_are_told() -> None:
    assert told([A, B, C, D], [D, A, B, C]) == ["~ d", "    moved"]
    assert told([A, B, C, D], [A, C, B, D]) in (["~ b", "    moved"], ["~ c", "    moved"])
    assert told([A, B], [C, A, B]) == ["+ c"]


def test_a_step_that_changed_its_group_says_from_where_to_where() -> None:
    old = [{"group": "g", "steps": [A, B]}, {"group": "h", "steps": [C]}]
    new = [{"group": "g", "steps": [B]}, {"group": "h", "steps": [C, A]}]
    assert told(old, new) == ["~ h › a", "    moved from group 'g' to group 'h'"]
    assert told([A, {"group": "g", "steps": [B]}], [{"group": "g", "steps": [A, B]}]) == [
        "~ g › a",
        "    moved from no group to group 'g'",
    ]


def test_a_group_that_moved_or_has_a_new_title_takes_its_steps_along() -> None:
    first, second = {"group": "g", "steps": [A, B]}, {"group": "h", "steps": [C, D]}
    assert told([first, second], [second, first]) in (["~ g", "    moved"], ["~ h", "    moved"])
    keyed = [{"group": "g", "key": "k", "steps": [A, B]}]
    renamed = [{"group": "new", "key": "k", "steps": [B, A]}]
    assert told(keyed, renamed)[:2] == ["~ k", '    group: "g" -> "new"']
    assert len(told(keyed, renamed)) == 4
    titled = [{"group": "g", "steps": [A, B]}]
    assert told(titled, [{"group": "new", "steps": [A, B]}])[0] == "+ new"


def test_equal_labels_are_told_apart_by_group_then_order() -> None:
    old: list[Any] = [
        {"group": "g", "steps": [step("t", n=1)]},
        {"group": "h", "steps": [step("t", n=2), step("t", n=3)]},
    ]
    new = copy.deepcopy(old)
    new[1]["steps"][1]["n"] = 4
    assert told(old, new) == ["~ h › t", "    n: 3 -> 4"]


def test_a_group_and_a_step_of_one_name_are_not_the_same() -> None:
    assert told([step("x")], [{"group": "x", "steps": [A]}]) == ["+ x", "+ x › a", "- x"]


def test_what_stands_above_the_steps_is_told_first() -> None:
    changes = diff({"env": {"A": "1"}, "steps": []}, {"env": {"A": "2"}, "agents": {"queue": "q"}, "steps": [A]})
    assert changes == (
        Change(How.CHANGED, "the pipeline", ('env.A: "1" -> "2"', 'agents: {"queue": "q"} is new')),
        Change(How.ADDED, "a"),
    )


def test_waits_and_bare_commands_have_names() -> None:
    assert told([], ["wait", {"wait": None}, {"command": "make\nall"}, {}]) == ["+ wait", "+ wait", "+ make", "+ step"]


bodies = st.builds(
    step, st.sampled_from("abcdef"), key=st.none() | st.sampled_from(["k", "l", "m"]), n=st.integers(0, 3)
)
entries = st.lists(
    bodies | st.just("wait") | st.builds(lambda inner: {"group": "g", "steps": inner}, st.lists(bodies, max_size=3)),
    max_size=6,
)


@given(entries, entries)
def test_changes_are_none_for_equals_and_mirror_for_swapped(old: list[Any], new: list[Any]) -> None:
    assert told(old, copy.deepcopy(old)) == []
    there, back = diff({"steps": old}, {"steps": new}), diff({"steps": new}, {"steps": old})
    added = sum(change.how is How.ADDED for change in there)
    assert added == sum(change.how is How.REMOVED for change in back)
    if old != new:
        assert there
