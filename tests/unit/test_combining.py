"""Several pipeline files in one upload: groups, what groups hand down, and what cannot be put together."""

from __future__ import annotations

from typing import Any

import pytest

from tasks.pipelines.combining import combine
from tasks.pipelines.model import Group, NativeFile
from tasks.pipelines.reading import read_native
from tasks.support.errors import DataError


def together(ready: str, merge: str = "steps: [{command: m}]\n") -> NativeFile:
    files = {"READY_TESTS": ready, "MERGE_TESTS": merge}
    return combine({title: read_native(text.encode(), f"{title[:5].lower()}.yml") for title, text in files.items()})


def refused(ready: str, merge: str = "steps: [{command: m}]\n") -> str:
    with pytest.raises(DataError) as caught:
        together(ready, merge)
    return caught.value.message


def bodies(group: Any) -> list[dict[str, Any]]:
    assert isinstance(group, Group)
    return [dict(step.body) for step in group.steps]


def test_each_file_becomes_one_group_in_the_order_given() -> None:
    found = together(
        "env: {A: b}\nx-own: 1\nsteps:\n- command: a\n"
        "- group: Inner\n  steps:\n  - command: b\n  - wait\n- command: c\n",
        "env: {A: b, C: d}\nx-own: 2\nsteps:\n- command: m\n",
    )
    assert [entry.label for entry in found.entries if isinstance(entry, Group)] == ["READY_TESTS", "MERGE_TESTS"]
    assert bodies(found.entries[0]) == [{"command": "a"}, {"command": "b"}, {"wait": None}, {"command": "c"}]
    assert bodies(found.entries[1]) == [{"command": "m"}]
    assert found.top == {"env": {"A": "b", "C": "d"}}
    assert [step.where for _, step in found.steps()] == [
        "ready.yml:4",
        "ready.yml:7",
        "ready.yml:8",
        "ready.yml:9",
        "merge.yml:4",
    ]
    assert found.name == "ready.yml, merge.yml"


@pytest.mark.parametrize(
    ("group", "step", "meant"),
    [
        ({"depends_on": "image"}, {}, {"depends_on": "image"}),
        ({"depends_on": "image"}, {"depends_on": "b"}, {"depends_on": ["image", "b"]}),
        ({"depends_on": ["image", "b"]}, {"depends_on": ["b"]}, {"depends_on": ["image", "b"]}),
        ({"depends_on": "image"}, {"depends_on": None}, {"depends_on": "image"}),
        ({"depends_on": None}, {"depends_on": "b"}, {"depends_on": ["b"]}),
        ({"if": "a || b"}, {}, {"if": "a || b"}),
        ({"if": "a || b"}, {"if": "c"}, {"if": "(a || b) && (c)"}),
        ({"skip": "later"}, {}, {"skip": "later"}),
        ({"allow_dependency_failure": True}, {}, {"allow_dependency_failure": True}),
        ({"source_file_dependencies": ["a/"]}, {}, {"source_file_dependencies": ["a/"]}),
        (
            {"source_file_dependencies": ["a/"]},
            {"source_file_dependencies": ["a/"]},
            {"source_file_dependencies": ["a/"]},
        ),
        ({"key": "g", "label": "L"}, {}, {}),
    ],
)
def test_steps_say_themselves_what_their_group_said(
    group: dict[str, Any], step: dict[str, Any], meant: dict[str, Any]
) -> None:
    document = {"steps": [{"group": "G", **group, "steps": [{"command": "a", **step}]}]}
    (found,) = bodies(together(str(document).replace("None", "null").replace("True", "true")).entries[0])
    assert found == {"command": "a", **meant}


def test_a_group_that_is_needed_becomes_its_steps() -> None:
    found = together(
        "steps:\n- group: G\n  key: g\n  steps: [{command: a, key: one}, wait, {command: b, key: two}]\n"
        "- {command: c, depends_on: [x, g]}\n- {command: d, depends_on: [{step: g, allow_failure: true}]}\n"
    )
    assert [body.get("depends_on") for body in bodies(found.entries[0])[3:]] == [
        ["x", "one", "two"],
        [{"step": "one", "allow_failure": True}, {"step": "two", "allow_failure": True}],
    ]


@pytest.mark.parametrize(
    ("ready", "merge", "message"),
    [
        ("env:\n  A: b\n", "steps0: 1\nenv:\n  A: c\n", "merge.yml:2: the variable A has another value in ready.yml:1"),
        ("env: {A: '1'}\n", "env: {A: 1}\n", "merge.yml:1: the variable A has another value in ready.yml:1"),
        ("env: {A: 1}\n", "env: {A: true}\n", "merge.yml:1: the variable A has another value in ready.yml:1"),
        (
            "agents: {queue: a}\n",
            "agents: {queue: b}\n",
            "merge.yml:1: the key 'agents' has another value in ready.yml:1",
        ),
        ("env: [A]\n", "", "ready.yml:1: env must be a mapping"),
    ],
)
def test_refuses_files_that_contradict_each_other(ready: str, merge: str, message: str) -> None:
    steps = "steps: [{command: a}]\n"
    assert refused(ready + steps, merge + steps) == message


@pytest.mark.parametrize(
    ("ready", "merge"), [("env:\n", "env: {A: b}\n"), ("env: {A: b}\n", "env:\n"), ("env: {A: b}\n", "env: {A: b}\n")]
)
def test_equal_and_empty_variables_are_no_conflict(ready: str, merge: str) -> None:
    assert together(f"{ready}steps: [wait]\n", f"{merge}steps: [wait]\n").top == {"env": {"A": "b"}}


def test_refuses_a_key_of_two_steps() -> None:
    message = refused("steps:\n- {command: a, key: k}\n", "steps:\n- command: b\n  key: k\n")
    assert message == "merge.yml:3: the key 'k' is there twice, first in ready.yml:2"


@pytest.mark.parametrize(
    ("ready", "message"),
    [
        (
            "- group: G\n  notify: [slack]\n  steps: [{command: a}]\n",
            "ready.yml:2: the key 'notify' of a group cannot be",
        ),
        (
            "- group: G\n  source_file_dependencies: [a]\n  steps:\n  - label: a\n    source_file_dependencies: [b]\n",
            "ready.yml:5: step 'a' has 'source_file_dependencies' and so has its group, differently",
        ),
        (
            "- group: G\n  key: g\n  steps: [{command: a}]\n- command: b\n  depends_on: g\n",
            "ready.yml:5: step 'b' needs the group 'g', whose step 'a' has no key",
        ),
    ],
)
def test_refuses_what_cannot_be_flattened(ready: str, message: str) -> None:
    assert refused(ready).startswith(message)


def test_warnings_of_all_files_are_kept() -> None:
    assert together("- wait\n---\n- wait\n").warnings == (
        "ready.yml:2: a second document begins here; only the first is read",
    )
