"""What a commit changes: real repositories, real fetches, and names that git, YAML or a shell would read otherwise."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tasks.pipelines.build_facts import Build
from tasks.pipelines.changes import DEEPEN, ChangeSet, State, base_tip, change_set, file_at, files_at
from tasks.support.errors import DataError, MissingInputError, OmniError, UsageError
from tests.git_scenes import MISSING_COMMIT, Repository, isolate


@pytest.fixture(autouse=True)
def _isolated(monkeypatch: pytest.MonkeyPatch) -> None:
    isolate(monkeypatch)


@pytest.fixture
def library(tmp_path: Path) -> Repository:
    made = Repository.new(tmp_path / "library")
    made.commit({"pkg/a.py": "a = 1\n", "docs/a.md": "words\n"}, "first")
    return made


def pull_request(commit: str, base: str = "main") -> Build:
    return Build(on_buildkite=True, branch="topic", commit=commit, pull_request=7, base_branch=base)


def main_build(commit: str) -> Build:
    return Build(on_buildkite=True, branch="main", commit=commit)


def changed(found: ChangeSet) -> dict[str, str]:
    assert found.state is (State.KNOWN if found.files else State.EMPTY), found.how
    return {file.path: file.status for file in found.files}


def unknown(found: ChangeSet) -> str:
    assert (found.state, found.files, found.base) == (State.UNKNOWN, (), None)
    assert found.how.startswith("not known: ")
    assert "\n" not in found.how
    return found.how


def everything_but_origin(repository: Repository) -> object:
    """Return all of a repository that a look may not change."""
    refs = [line for line in repository.git("for-each-ref").splitlines() if "refs/remotes/origin/" not in line]
    folder = repository.path / ".git"
    tree = sorted(
        str(file.relative_to(repository.path)) for file in repository.path.rglob("*") if folder not in file.parents
    )
    files = {
        name: (folder / name).read_bytes()
        for name in ("HEAD", "index", "config", "FETCH_HEAD")
        if (folder / name).exists()
    }
    return refs, tree, files


# ----------------------------------------------------------------------------------------------------------------------
# Names


NAMES = [
    "pkg/models/wan/视频.py",
    "pkg/models/wan/a b.py",
    'pkg/models/wan/q"uote.py',
    "tab\there",
    "line\nbreak",
    "back\\slash",
    "-option",
    "*.py",
    ":(exclude)x",
    "$(id)",
    "é",
    "e\u0301",
    os.fsdecode(b"not-utf-8-\xff\xfe"),
]


def test_every_name_comes_through_as_it_is(library: Repository) -> None:
    before = files_at(library.path, "HEAD")
    added = library.commit(dict.fromkeys(NAMES, "1\n"))
    modified = library.commit(dict.fromkeys(NAMES, "2\n"))
    deleted = library.commit(dict.fromkeys(NAMES))
    for commit, status in ((added, "A"), (modified, "M"), (deleted, "D")):
        assert changed(change_set(library.path, Build(), commit=commit)) == dict.fromkeys(NAMES, status)
    for name in NAMES:
        assert file_at(library.path, modified, name) == b"2\n", name
        assert file_at(library.path, deleted, name) is None, name
    assert sorted(files_at(library.path, modified)) == sorted([*NAMES, *before])
    assert files_at(library.path, deleted) == before


@pytest.mark.parametrize("setting", ["true", "copies", "false"])
def test_a_rename_shows_both_names_whatever_git_is_set_to(library: Repository, setting: str) -> None:
    library.git("config", "diff.renames", setting)
    commit = library.move("pkg/a.py", "pkg/sub/视频.py")
    assert changed(change_set(library.path, Build(), commit=commit)) == {"pkg/a.py": "D", "pkg/sub/视频.py": "A"}


def test_modes_types_and_case_count(library: Repository) -> None:
    (library.path / "pkg/a.py").chmod(0o755)
    mode = library.commit()
    (library.path / "pkg/a.py").unlink()
    (library.path / "pkg/a.py").symlink_to("../docs/a.md")
    link = library.commit()
    folder = library.commit({"pkg/a.py": None, "pkg/a.py/b": "x"})
    case = library.move("docs/a.md", "docs/A.md")
    assert [changed(change_set(library.path, Build(), commit=at)) for at in (mode, link, folder, case)] == [
        {"pkg/a.py": "M"},
        {"pkg/a.py": "T"},
        {"pkg/a.py": "D", "pkg/a.py/b": "A"},
        {"docs/A.md": "A", "docs/a.md": "D"},
    ]
    assert file_at(library.path, link, "pkg/a.py") == b"../docs/a.md"


def test_a_submodule_is_a_file_even_when_the_repository_says_to_ignore_it(library: Repository, tmp_path: Path) -> None:
    other = Repository.new(tmp_path / "other")
    other.commit({"inner": "1"})
    added = library.submodule(other, "third/party")
    library.git("config", "-f", ".gitmodules", "submodule.third/party.ignore", "all")
    library.git("config", "submodule.third/party.ignore", "all")
    library.git("config", "diff.ignoreSubmodules", "all")
    library.commit({}, "ignore it")
    newer = other.commit({"inner": "2"})
    library.git("update-index", "--cacheinfo", f"160000,{newer},third/party")
    library.git("commit", "-q", "--allow-empty", "-m", "move it")
    moved = library.head
    assert changed(change_set(library.path, Build(), commit=added)) == {".gitmodules": "A", "third/party": "A"}
    assert changed(change_set(library.path, Build(), commit=moved)) == {"third/party": "M"}
    assert "third/party" in files_at(library.path, moved)
    assert file_at(library.path, moved, "third/party") is None


def test_no_configuration_changes_the_answer_or_runs_a_program(library: Repository, tmp_path: Path) -> None:
    commit = library.commit({".gitattributes": "* diff=x\n", "a": "1", "z": "1", "pkg/a.py": "a = 2\n"})
    ran = tmp_path / "ran"
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {ran}\n")
    program.chmod(0o755)
    (tmp_path / "order").write_text("z*\n")
    for key in ("diff.external", "diff.x.textconv", "diff.x.command", "core.fsmonitor", "core.pager"):
        library.git("config", key, str(program))
    for key, value in (("color.ui", "always"), ("diff.noprefix", "true"), ("diff.relative", "true")):
        library.git("config", key, value)
    library.git("config", "diff.orderFile", str(tmp_path / "order"))
    found = change_set(library.path, Build(), commit=commit)
    assert changed(found) == {".gitattributes": "A", "a": "A", "pkg/a.py": "M", "z": "A"}
    assert found.paths == (".gitattributes", "a", "pkg/a.py", "z")
    assert not ran.exists()


def test_in_a_folder_of_a_larger_repository_only_that_folder_counts(library: Repository) -> None:
    commit = library.commit({"pkg/sub/视频": "1", "docs/b.md": "1", "pkgs": "1"})
    source = library.path / "pkg"
    assert changed(change_set(source, Build(), commit=commit)) == {"sub/视频": "A"}
    assert files_at(source, commit) == ["a.py", "sub/视频"]
    assert file_at(source, commit, "a.py") == b"a = 1\n"
    assert file_at(source, commit, "docs/b.md") is None


@pytest.mark.slow
def test_a_hundred_thousand_files(library: Repository) -> None:
    names = [f"pkg/f{number % 100}/{number}-{'x' * 40}.py" for number in range(100_000)]
    found = change_set(library.path, Build(), commit=library.commit_unwritten("many", names))
    assert found.state is State.KNOWN
    assert sorted(found.paths) == sorted(names)


@pytest.mark.slow
def test_more_than_we_read_is_unknown_and_not_half_an_answer(library: Repository) -> None:
    folder = "/".join(["x" * 250] * 15)
    many = library.commit_unwritten("many", [f"{folder}/{number}" for number in range(4_500)])
    assert "more than 16777216 bytes" in unknown(change_set(library.path, Build(), commit=many))


# ----------------------------------------------------------------------------------------------------------------------
# Pull requests


@pytest.mark.parametrize("depth", [1, 2, None])
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


@pytest.mark.parametrize("depth", [1, 2, None])
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


@pytest.mark.parametrize("depth", [1, 2, None])
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


# ----------------------------------------------------------------------------------------------------------------------
# What names nothing, and what git cannot answer


def test_a_flag_that_can_be_no_revision_is_refused(library: Repository) -> None:
    for value in ("", "-x", "--output=pwned", "--upload-pack=touch pwned", "a\nb", "a\0b", "\x1b[0m"):
        with pytest.raises(UsageError, match="--base names no commit"):
            change_set(library.path, Build(), base=value)
        with pytest.raises(UsageError, match="--commit names no commit"):
            change_set(library.path, Build(), commit=value)
        with pytest.raises(UsageError, match="not a revision"):
            file_at(library.path, value, "x")
        with pytest.raises(UsageError, match="not a revision"):
            files_at(library.path, value)
    assert not list(library.path.glob("pwned*"))


@pytest.mark.parametrize("build", [Build(), pull_request(MISSING_COMMIT)])
def test_a_flag_that_names_nothing_is_refused(library: Repository, tmp_path: Path, build: Build) -> None:
    clone = library.clone(tmp_path / "clone")
    for value in ("nope", "origin/nope", MISSING_COMMIT, "a:b", "*", "HEAD^{tree}", "HEAD~99", "$(id)"):
        with pytest.raises(MissingInputError, match="--base names no commit"):
            change_set(clone.path, build, base=value, commit="HEAD")
        with pytest.raises(MissingInputError, match="--commit names no commit"):
            change_set(clone.path, build, commit=value)


def test_flags_need_a_repository(tmp_path: Path) -> None:
    for flags in ({"base": "main"}, {"commit": MISSING_COMMIT}):
        with pytest.raises(MissingInputError, match="not a git checkout"):
            change_set(tmp_path, Build(), **flags)


HOSTILE = ["-x", "--upload-pack=pwned", "$(touch${IFS}pwned)", "`touch`", "a'b\"c", "x;touch|pwned", "{{a}}", "视频"]
IMPOSSIBLE = ["a\nb", "a b", "a:b", "+x:y", "*", "^x", "a..b", "x.lock", "a\x1b[0m", "~", "@{", "/", "x/", "\\"]


def test_a_base_branch_with_a_hostile_name_is_a_name(library: Repository, tmp_path: Path) -> None:
    for name in HOSTILE:
        library.branch(name)
        library.commit({name: "1"})
    base = library.head
    library.branch("topic")
    topic = library.commit({"mine": "1"})
    agent = library.agent_checkout(tmp_path / "agent", topic, depth=1)
    for name in HOSTILE:
        library.git("update-ref", f"refs/heads/{name}", base)
        found = change_set(agent.path, pull_request(topic, name))
        assert (changed(found), found.base) == ({"mine": "A"}, base), name
    assert not list(tmp_path.rglob("pwned"))


def test_a_base_branch_that_is_not_there_is_unknown(library: Repository, tmp_path: Path) -> None:
    agent = library.agent_checkout(tmp_path / "agent", library.head)
    for name in (*HOSTILE, *IMPOSSIBLE, "x" * 5000):
        unknown(change_set(agent.path, pull_request(agent.head, name)))
    assert not list(tmp_path.rglob("pwned"))


def _no_git(repository: Repository) -> None:
    (repository.path / ".git").rename(repository.path.parent / "elsewhere")


def _broken_git(repository: Repository) -> None:
    (repository.path / ".git" / "objects").rename(repository.path.parent / "objects")


def _no_objects(repository: Repository) -> None:
    objects = repository.path / ".git" / "objects"
    objects.rename(repository.path.parent / "objects")
    objects.mkdir()


def _bad_configuration(repository: Repository) -> None:
    (repository.path / ".git" / "config").write_text("[broken")


def _no_commit(repository: Repository) -> None:
    repository.git("symbolic-ref", "HEAD", "refs/heads/unborn")


@pytest.mark.parametrize("damage", [_no_git, _broken_git, _no_objects, _bad_configuration, _no_commit])
def test_whatever_git_cannot_answer_is_unknown(library: Repository, damage: Callable[[Repository], None]) -> None:
    commit = library.commit({"more": "1"})
    damage(library)
    builds = [Build(), *([] if damage is _no_commit else [main_build(commit), pull_request(commit)])]
    for build in builds:
        unknown(change_set(library.path, build))


def test_without_git_all_is_unknown(library: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert "git is not installed" in unknown(change_set(library.path, Build()))


def test_unrelated_histories_have_no_answer(library: Repository, tmp_path: Path) -> None:
    library.git("checkout", "-q", "--orphan", "topic")
    library.commit({"mine": "1"})
    agent = library.agent_checkout(tmp_path / "agent", library.head)
    text = unknown(change_set(agent.path, pull_request(agent.head)))
    assert text == "not known: no merge base with origin/main"


@pytest.mark.parametrize("origin", ["gone", "none"])
def test_an_origin_that_does_not_answer_is_unknown(library: Repository, tmp_path: Path, origin: str) -> None:
    library.commit({"mine": "1"})
    agent = library.agent_checkout(tmp_path / "agent", library.head, depth=1)
    if origin == "none":
        agent.git("remote", "remove", "origin")
    else:
        agent.git("remote", "set-url", "origin", (tmp_path / "gone").as_uri())
    for build in (pull_request(agent.head), main_build(agent.head), pull_request(MISSING_COMMIT)):
        text = unknown(change_set(agent.path, build))
        assert ("no remote called origin" if origin == "none" else "git fetch: ") in text


@pytest.fixture
def asking_server() -> Iterator[str]:
    """Return the address of a server that wants a login for everything."""

    class Asking(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(401)
            self.send_header("WWW-Authenticate", "Basic realm=git")
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Asking)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/x.git"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_login_is_not_asked_for(library: Repository, tmp_path: Path, asking_server: str) -> None:
    agent = library.agent_checkout(tmp_path / "agent", library.head)
    agent.git("remote", "set-url", "origin", asking_server)
    assert "terminal prompts disabled" in unknown(change_set(agent.path, pull_request(agent.head)))
    agent.git("remote", "set-url", "origin", asking_server.replace("//", "//somebody:pa55word@"))
    text = unknown(change_set(agent.path, pull_request(agent.head)))
    assert "Authentication failed" in text
    assert "pa55word" not in text


# ----------------------------------------------------------------------------------------------------------------------
# Files of a revision


def test_a_file_of_a_revision(library: Repository) -> None:
    first = library.head
    second = library.commit({"pkg/a.py": b"\xff\0\r\n", "empty": b""})
    assert [file_at(library.path, at, "pkg/a.py") for at in (first, second, "main")] == [
        b"a = 1\n",
        *[b"\xff\0\r\n"] * 2,
    ]
    assert file_at(library.path, second, "empty") == b""
    for absent in ("pkg", "nope", "pkg/a.py/x", "", ".", "*", "pkg/*.py"):
        assert file_at(library.path, second, absent) is None
    assert files_at(library.path, first) == ["docs/a.md", "pkg/a.py"]


def test_a_revision_that_is_not_at_hand_is_no_missing_file(library: Repository) -> None:
    for revision in (MISSING_COMMIT, "origin/main"):
        with pytest.raises(MissingInputError, match="does not hold"):
            file_at(library.path, revision, "pkg/a.py")
        with pytest.raises(MissingInputError, match="does not hold"):
            files_at(library.path, revision)


def test_content_that_is_lost_or_too_long_is_no_missing_file(library: Repository) -> None:
    blob = library.git("rev-parse", "HEAD:pkg/a.py")
    (library.path / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    long = library.commit({"long": b"x" * (16 * 2**20 + 1), "pkg/a.py": "other\n"})
    for name, commit in (("pkg/a.py", f"{long}~1"), ("long", long)):
        with pytest.raises(DataError):
            file_at(library.path, commit, name)
    assert issubclass(DataError, OmniError)


# ----------------------------------------------------------------------------------------------------------------------
# What a fork may not say


@pytest.mark.parametrize("depth", [1, None])
def test_the_base_branch_is_read_where_it_is_now(library: Repository, tmp_path: Path, depth: int | None) -> None:
    library.branch("topic")
    topic = library.commit({"docs/a.md": "of the fork\n"})
    agent = library.agent_checkout(tmp_path / "agent", topic, depth=depth)
    for number in range(2):
        library.checkout("main")
        tip = library.commit({"docs/a.md": f"ours {number}\n"})
        found = base_tip(agent.path, pull_request(topic))
        assert (found, file_at(agent.path, found, "docs/a.md")) == (tip, f"ours {number}\n".encode())
    agent.git("remote", "set-url", "origin", (tmp_path / "gone").as_uri())
    assert base_tip(agent.path, pull_request(topic)) == tip
    assert changed(change_set(agent.path, pull_request(topic))) == {"docs/a.md": "M"}


def test_a_base_branch_that_cannot_be_read_is_refused(library: Repository, tmp_path: Path) -> None:
    agent = library.agent_checkout(tmp_path / "agent", library.head)
    for name in (*HOSTILE, *IMPOSSIBLE):
        with pytest.raises(MissingInputError, match="the base branch cannot be read"):
            base_tip(agent.path, pull_request(agent.head, name))
    with pytest.raises(MissingInputError, match="not a git checkout"):
        base_tip(tmp_path, pull_request(agent.head))
