"""What a commit is compared with: pull requests, queues, main, laptops; real repositories and real fetches."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from tasks.pipelines.build_facts import Build
from tasks.pipelines.changes import DEEPEN, State, change_set
from tests.change_scenes import changed, everything_but_origin, first_commit, main_build, pull_request, unknown
from tests.git_scenes import MISSING_COMMIT, Repository, isolate

DEPTHS = [1, pytest.param(2, marks=pytest.mark.slow), None]


@pytest.fixture(autouse=True)
def _isolated(monkeypatch: pytest.MonkeyPatch) -> None:
    isolate(monkeypatch)


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    return first_commit(tmp_path_factory.mktemp("first") / "library")


@pytest.fixture
def library(first: Repository, tmp_path: Path) -> Repository:
    return first.copy(tmp_path / "library")


# ----------------------------------------------------------------------------------------------------------------------
# Pull requests


@pytest.mark.parametrize("depth", DEPTHS)
def test_a_pull_request_is_compared_with_its_merge_base(library: Repository, tmp_path: Path, depth: int | None) -> None:
    fork_point = library.commit({"pkg/b.py": "1"})
    library.branch("topic")
    library.commit({"pkg/wan/x.py": "1"})
    library.commit({"pkg/wan/y.py": "1", "docs/a.md": None})
    library.checkout("main")
    library.commit({"pkg/bagel/late.py": "1"})
    agent = library.agent_checkout(tmp_path / "agent", library.git("rev-parse", "topic"), depth=depth)
    before = everything_but_origin(agent)
    for _ in range(2):  # the second finds origin/main there, and fetches all the same
        found = change_set(agent.path, pull_request(agent.head))
        assert changed(found) == {"docs/a.md": "D", "pkg/wan/x.py": "A", "pkg/wan/y.py": "A"}
        assert (found.base, found.commit) == (fork_point, agent.head)
        assert found.how == f"against origin/main (merge base {fork_point[:7]})"
        assert everything_but_origin(agent) == before


def test_a_reused_checkout_does_not_compare_with_an_old_main(library: Repository, tmp_path: Path) -> None:
    agent = library.clone(tmp_path / "agent")  # its origin/main is of today
    tip = library.commit({"pkg/of-main.py": "1"})
    library.branch("topic")
    topic = library.commit({"pkg/mine.py": "1"})
    agent.git("fetch", "-q", "origin", "topic")
    agent.git("update-ref", "-d", "refs/remotes/origin/topic")
    agent.checkout(topic)
    found = change_set(agent.path, pull_request(topic))
    assert (changed(found), found.base) == ({"pkg/mine.py": "A"}, tip)
    assert agent.git("rev-parse", "origin/main") == tip


def test_an_old_main_serves_where_it_cannot_be_fetched_anew(library: Repository, tmp_path: Path) -> None:
    library.branch("topic")
    library.commit({"pkg/mine.py": "1"})
    agent = library.clone(tmp_path / "agent")
    agent.git("remote", "set-url", "origin", (tmp_path / "gone").as_uri())
    found = change_set(agent.path, pull_request(agent.head))
    assert changed(found) == {"pkg/mine.py": "A"}
    assert found.how.endswith(" as last fetched")


def test_merging_main_into_the_branch_adds_nothing_of_main(library: Repository, tmp_path: Path) -> None:
    library.branch("topic")
    library.commit({"mine": "1"})
    library.checkout("main")
    library.commit({"theirs": "1"})
    library.checkout("topic")
    library.merge("main")
    agent = library.agent_checkout(tmp_path / "agent", library.head)
    assert changed(change_set(agent.path, pull_request(agent.head))) == {"mine": "A"}


def test_another_base_branch_is_compared_with(library: Repository, tmp_path: Path) -> None:
    library.branch("release/1")
    library.commit({"of-release": "1"})
    library.branch("topic")
    topic = library.commit({"mine": "1"})
    agent = library.agent_checkout(tmp_path / "agent", topic, depth=1)
    found = change_set(agent.path, pull_request(topic, "release/1"))
    assert changed(found) == {"mine": "A"}
    assert found.how.startswith("against origin/release/1 (")


def test_a_change_that_was_taken_back_is_empty_and_a_merged_one_unknown(library: Repository, tmp_path: Path) -> None:
    library.branch("topic")
    library.commit({"mine": "1"})
    undone = library.commit({"mine": None})
    agent = library.clone(tmp_path / "agent", branch="topic")
    found = change_set(agent.path, pull_request(undone))
    assert (found.state, found.files, found.base) == (State.EMPTY, (), library.git("rev-parse", "main"))
    library.checkout("main")
    library.merge("topic")
    assert "already part of origin/main" in unknown(change_set(agent.path, pull_request(undone)))


def test_a_commit_that_the_checkout_lacks_is_fetched(library: Repository, tmp_path: Path) -> None:
    agent = library.clone(tmp_path / "agent")
    library.branch("topic")
    topic = library.commit({"mine": "1"})
    found = change_set(agent.path, pull_request(topic))
    assert (changed(found), found.commit) == ({"mine": "A"}, topic)


def test_the_merge_queue_says_its_base(library: Repository, tmp_path: Path) -> None:
    library.commit({"already": "1"})
    library.branch("other-in-queue")
    base = library.commit({"before-us": "1"})
    library.branch("gh-readonly-queue/main/pr-2")
    top = library.commit({"ours": "1"})
    for depth in (1, None):
        agent = library.agent_checkout(tmp_path / f"agent{depth}", top, depth=depth)
        build = Build(True, "gh-readonly-queue/main/pr-2", commit=top, base_branch="main", merge_queue_base=base)
        found = change_set(agent.path, build)
        assert (changed(found), found.base) == ({"ours": "A"}, base)
        assert found.how.startswith("against the merge queue's base")
    for wrong in (MISSING_COMMIT, "--upload-pack=x", "main", ""):
        unknown(change_set(agent.path, Build(True, "q", commit=top, base_branch="main", merge_queue_base=wrong)))


def test_a_branch_without_pull_request_is_compared_with_the_default_branch(library: Repository, tmp_path: Path) -> None:
    first = library.head
    tip = library.commit({"of-main": "1"})
    library.branch("topic")
    topic = library.commit({"mine": "1"})
    for depth in (1, None):
        agent = library.agent_checkout(tmp_path / f"topic{depth}", topic, depth=depth)
        assert changed(change_set(agent.path, Build(True, "topic", commit=topic))) == {"mine": "A"}
        agent = library.agent_checkout(tmp_path / f"main{depth}", tip, depth=depth)
        found = change_set(agent.path, Build(True, "copy-of-main", commit=tip))
        assert (changed(found), found.base) == ({"of-main": "A"}, first)


# ----------------------------------------------------------------------------------------------------------------------
# Main


@pytest.mark.parametrize("depth", DEPTHS)
def test_main_is_compared_with_the_newest_uploaded_ancestor(
    library: Repository, tmp_path: Path, depth: int | None
) -> None:
    commits = [library.head, *(library.commit({f"f{number}": "1"}) for number in range(1, 6))]
    agent = library.agent_checkout(tmp_path / "agent", commits[5], depth=depth)
    before = everything_but_origin(agent)
    found = change_set(agent.path, main_build(commits[5]), record=[MISSING_COMMIT, commits[1], commits[5], commits[2]])
    assert (changed(found), found.base) == ({"f3": "A", "f4": "A", "f5": "A"}, commits[2])
    assert found.how == f"against {commits[2][:7]}, the newest ancestor whose pipeline was uploaded"
    assert everything_but_origin(agent) == before


@pytest.mark.parametrize("depth", DEPTHS)
def test_main_without_a_record_is_compared_with_the_first_parent(
    library: Repository, tmp_path: Path, depth: int | None
) -> None:
    library.branch("topic")
    library.commit({"mine": "1"})
    library.checkout("main")
    before = library.commit({"of-main": "1"})
    merged = library.merge("topic")
    agent = library.agent_checkout(tmp_path / "agent", merged, depth=depth)
    for record in (None, (), [merged], [MISSING_COMMIT]):
        found = change_set(agent.path, main_build(merged), record=record)
        assert (changed(found), found.base) == ({"mine": "A"}, before)
        assert found.how.startswith(f"against its first parent {before[:7]} (no ")


def test_main_with_rewritten_history_is_compared_with_the_first_parent(library: Repository, tmp_path: Path) -> None:
    first = library.head
    uploaded = library.commit({"gone": "1"})
    library.git("reset", "-q", "--hard", first)
    library.commit({"new": "1"})
    top = library.commit({"newer": "1"})
    agent = library.agent_checkout(tmp_path / "agent", top)
    found = change_set(agent.path, main_build(top), record=[uploaded])
    assert changed(found) == {"newer": "A"}
    assert "no ancestor's upload is on record" in found.how


def test_the_first_commit_of_all_adds_everything(library: Repository) -> None:
    found = change_set(library.path, main_build(library.head))
    assert (changed(found), found.base) == ({"docs/a.md": "A", "pkg/a.py": "A"}, None)
    assert found.how == "against nothing: it is the first commit"


@pytest.mark.slow
def test_a_shallow_checkout_is_deepened_once_and_then_unknown(library: Repository, tmp_path: Path) -> None:
    first = library.head
    library.grow(DEEPEN + 100)
    top = library.git("rev-parse", "main")
    near = library.git("rev-parse", f"main~{DEEPEN - 100}")
    far = library.agent_checkout(tmp_path / "far", top, depth=1)
    assert "history ends before any" in unknown(change_set(far.path, main_build(top), record=[first]))
    assert int(far.git("rev-list", "--count", "HEAD")) == DEEPEN + 1
    close = library.agent_checkout(tmp_path / "near", top, depth=1)
    found = change_set(close.path, main_build(top), record=[near, first])
    assert (len(found.files), found.base) == (DEEPEN - 100, near)
    library.branch("topic", "main")
    topic = library.commit({"mine": "1"})
    library.checkout("main")
    library.git("reset", "-q", "--hard", first)
    late = library.commit({"late": "1"})
    distant = library.agent_checkout(tmp_path / "distant", topic, depth=1)
    text = unknown(change_set(distant.path, pull_request(topic)))
    assert "no merge base with origin/main, and the checkout's history is cut" in text
    assert distant.git("rev-parse", "origin/main") == late


# ----------------------------------------------------------------------------------------------------------------------
# Laptops and history


def test_every_commit_of_a_history_is_compared_with_its_first_parent(library: Repository, tmp_path: Path) -> None:
    for number in range(2):
        library.branch(f"topic{number}")
        library.commit({f"t{number}": "1", "pkg/a.py": f"a = {number + 5}\n"})
        library.checkout("main")
        library.commit({f"m{number}": "1"})
        library.merge(f"topic{number}")
    clone = library.clone(tmp_path / "clone")
    for repository in (library, clone):
        history = repository.git("rev-list", "--first-parent", "main").split()
        assert len(history) == 5
        for commit, parent in itertools.pairwise(history):
            found = change_set(repository.path, Build(), commit=commit)
            assert found.base == parent
            names = repository.git("diff", "--name-only", "--no-renames", parent, commit).splitlines()
            assert list(found.paths) == names
            assert found.how.startswith(f"against its first parent {parent[:7]} (it is on ")


@pytest.mark.parametrize("build", [Build(), pull_request(MISSING_COMMIT), main_build(MISSING_COMMIT)])
def test_history_is_asked_the_same_way_in_a_build(library: Repository, tmp_path: Path, build: Build) -> None:
    older = library.commit({"older": "1"})
    newer = library.commit({"newer": "1"})
    clone = library.clone(tmp_path / "clone")
    found = change_set(clone.path, build, commit=newer, record=[clone.git("rev-parse", "HEAD~2")])
    assert (changed(found), found.base) == ({"newer": "A"}, older)


def test_on_a_laptop_origins_main_is_the_base_and_else_the_local_one(library: Repository, tmp_path: Path) -> None:
    clone = library.clone(tmp_path / "clone")
    clone.branch("topic")
    clone.commit({"mine": "1"})
    pushed = clone.git("rev-parse", "main")
    clone.git("update-ref", "refs/heads/main", clone.head)
    found = change_set(clone.path, Build())
    assert (changed(found), found.how) == ({"mine": "A"}, f"against origin/main (merge base {pushed[:7]})")
    library.branch("topic")
    library.commit({"mine": "1"})
    assert change_set(library.path, Build()).how == f"against main (merge base {pushed[:7]})"
    library.git("branch", "-m", "main", "trunk")
    assert "branch main of origin" in unknown(change_set(library.path, Build()))
    assert changed(change_set(library.path, Build(default_branch="trunk"))) == {"mine": "A"}


def test_on_a_laptop_nothing_is_fetched_that_is_there(library: Repository, tmp_path: Path) -> None:
    clone = library.clone(tmp_path / "clone")
    old = clone.head
    library.commit({"newer": "1"})
    clone.branch("topic")
    clone.commit({"mine": "1"})
    assert changed(change_set(clone.path, Build())) == {"mine": "A"}
    assert clone.git("rev-parse", "origin/main") == old
    clone.git("update-ref", "-d", "refs/remotes/origin/main")
    clone.git("update-ref", "-d", "refs/heads/main")
    assert changed(change_set(clone.path, Build())) == {"mine": "A"}
    assert clone.git("rev-parse", "origin/main") == library.head


def test_uncommitted_changes_are_told_and_not_counted(library: Repository) -> None:
    assert change_set(library.path, Build()).notice is None
    library.write({"pkg/a.py": "a = 3\n", "new": "1"})
    found = change_set(library.path, Build())
    assert found.notice == "uncommitted changes are not counted ('pkg/a.py' and others)"
    assert changed(found) == {"docs/a.md": "A", "pkg/a.py": "A"}
    assert change_set(library.path, Build(), commit=library.head).notice is None
    assert change_set(library.path, main_build(library.head)).notice is None


def test_a_given_base_wins_in_every_build(library: Repository, tmp_path: Path) -> None:
    first = library.head
    library.git("tag", "v1")
    library.commit({"second": "1"})
    library.commit({"third": "1"})
    library.branch("other", first)
    library.commit({"aside": "1"})
    library.checkout("main")
    clone = library.clone(tmp_path / "clone")
    for base in (first, first[:12], "v1", "HEAD~2", "other", "origin/other"):
        found = change_set(clone.path, Build(), base=base)
        assert (changed(found), found.base) == ({"second": "A", "third": "A"}, first)
    for build in (pull_request(clone.head), main_build(clone.head)):
        found = change_set(clone.path, build, base="v1", record=[clone.git("rev-parse", "HEAD~1")])
        assert (changed(found), found.base) == ({"second": "A", "third": "A"}, first)
    assert change_set(clone.path, Build(), base=first).how == f"against {first[:7]} (merge base {first[:7]})"
    assert change_set(clone.path, Build(), base="HEAD").state is State.EMPTY


def test_a_given_base_or_commit_is_fetched_once_when_it_is_missing(library: Repository, tmp_path: Path) -> None:
    first, second = library.head, library.commit({"second": "1"})
    library.branch("other", first)
    aside = library.commit({"aside": "1"})
    for base, expected in (("other", first), ("origin/other", first), (aside, first), (first, first)):
        agent = library.agent_checkout(tmp_path / f"agent-{base.replace('/', '-')}", second, depth=1)
        found = change_set(agent.path, main_build(second), base=base)
        assert (changed(found), found.base) == ({"second": "A"}, expected)
    agent = library.agent_checkout(tmp_path / "agent", second, depth=1)
    assert changed(change_set(agent.path, main_build(second), commit=aside, base="main")) == {"aside": "A"}
