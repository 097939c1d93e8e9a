"""What a commit changes: real repositories, real fetches, and names that git, YAML or a shell would read otherwise."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tasks.pipelines.build_facts import Build
from tasks.pipelines.changes import State, base_tip, change_set, file_at, files_at
from tasks.support.errors import DataError, MissingInputError, OmniError, UsageError
from tests.change_scenes import changed, first_commit, main_build, pull_request, unknown
from tests.git_scenes import MISSING_COMMIT, Repository, isolate


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
    for value in ("origin/nope", MISSING_COMMIT, "a:b", "*", "HEAD^{tree}"):
        with pytest.raises(MissingInputError, match="--base names no commit"):
            change_set(clone.path, build, base=value, commit="HEAD")
        with pytest.raises(MissingInputError, match="--commit names no commit"):
            change_set(clone.path, build, commit=value)


def test_flags_need_a_repository(tmp_path: Path) -> None:
    for base, commit in (("main", None), (None, MISSING_COMMIT)):
        with pytest.raises(MissingInputError, match="not a git checkout"):
            change_set(tmp_path, Build(), base=base, commit=commit)


HOSTILE = ["-x", "--upload-pack=pwned", "$(touch${IFS}pwned)", "`touch`", "a'b\"c", "x;touch|pwned", "{{a}}", "视频"]
IMPOSSIBLE = ["a\nb", "a b", "a:b", "+x:y", "*", "^x", "a..b", "x.lock", "a\x1b[0m", "~", "@{", "/", "x/", "\\"]


def test_a_base_branch_with_a_hostile_name_is_a_name(library: Repository, tmp_path: Path) -> None:
    base = library.head
    for name in HOSTILE:
        library.git("update-ref", f"refs/heads/{name}", base)
    library.branch("topic")
    topic = library.commit({"mine": "1"})
    agent = library.agent_checkout(tmp_path / "agent", topic, depth=1)
    for name in HOSTILE:
        found = change_set(agent.path, pull_request(topic, name))
        assert (changed(found), found.base) == ({"mine": "A"}, base), name
    assert not list(tmp_path.rglob("pwned"))


def test_a_base_branch_that_is_not_there_is_unknown(library: Repository, tmp_path: Path) -> None:
    agent = library.agent_checkout(tmp_path / "agent", library.head)
    for name in (*HOSTILE[1:3], *IMPOSSIBLE, "x" * 5000):
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
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
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
    for name in (HOSTILE[1], IMPOSSIBLE[0]):
        with pytest.raises(MissingInputError, match="the base branch cannot be read"):
            base_tip(agent.path, pull_request(agent.head, name))
    with pytest.raises(MissingInputError, match="not a git checkout"):
        base_tip(tmp_path, pull_request(agent.head))
