"""Publishing to a real upload server through the real twine, and what happens when either fails."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tasks.support.errors import (
    ConfigurationError,
    CredentialsError,
    DataError,
    MissingInputError,
    OmniError,
    RemoteChangedError,
    ServiceRefusedError,
    TemporaryError,
)
from tasks.support.settings import Settings, load
from tasks.support.store import open_store
from tasks.wheels import layout, pypi
from tasks.wheels.distribution import read_facts
from tasks.wheels.index import Index
from tasks.wheels.published import Published, find_service, read_published
from tasks.wheels.pypi_plan import PublishPlan, parse_release, plan_publish
from tasks.wheels.upload import execute_upload, plan_upload
from tests.pypi_service import (
    TOKEN,
    Change,
    Close,
    Fault,
    HangUp,
    Proxy,
    PypiServer,
    Reply,
    Rule,
    Seen,
    first,
    proxy_before,
    pypi_server_in,
)
from tests.wheel_factory import make_sdist, make_wheel

pytestmark = pytest.mark.service

A = "a" * 40
DESCRIPTION = "Summary: a sample\nDescription-Content-Type: text/plain\n\nWords about it."
CREDENTIALS = base64.b64encode(f"__token__:{TOKEN}".encode()).decode()
CHECKOUT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def pypi_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PypiServer]:
    """Return the upload server of this test process; each test publishes a project of its own."""
    with pypi_server_in(tmp_path_factory.mktemp("pypi")) as server:
        yield server


@pytest.fixture
def proxy(pypi_server: PypiServer) -> Iterator[Proxy]:
    with proxy_before(pypi_server) as proxy:
        yield proxy


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each test a home whose settings would spoil an upload, and a temporary folder to look into."""
    home, scratch = tmp_path / "home", tmp_path / "tmp"
    home.mkdir()
    scratch.mkdir()
    (home / ".pypirc").write_text("[pypi]\nrepository = http://127.0.0.1:1/\nusername = x\npassword = wrong\n")
    (home / ".netrc").write_text("machine 127.0.0.1 login x password wrong\n")
    (home / ".netrc").chmod(0o600)
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    for name, value in {
        "HOME": str(home),
        "TMPDIR": str(scratch),
        "PYPI_TOKEN": TOKEN,
        "TWINE_USERNAME": "somebody",
        "TWINE_REPOSITORY": "testpypi",
        "TWINE_REPOSITORY_URL": "http://127.0.0.1:1/",
        "NO_PROXY": "127.0.0.1",
    }.items():
        monkeypatch.setenv(name, value)


@dataclass
class Release:
    """A project in a store of its own, published through a proxy."""

    index: Index
    proxy: Proxy
    folder: Path
    project: str
    token: str = TOKEN

    @property
    def settings(self) -> Settings:
        environment = {**self.proxy.environment, "PYPI_TOKEN": self.token, "OMNI_CI_STORE": self.index.store.url}
        loaded = load(profile="production", environment=environment)
        return replace(loaded, wheels=replace(loaded.wheels, project=self.project))

    def upload(self, *paths: Path, commit: str = A) -> None:
        facts = [read_facts(path, self.index.rules.variants) for path in paths]
        execute_upload(self.index, plan_upload(self.index, commit, None, facts))

    def wheel(self, version: str = "1.0", *, tag: str = "py3-none-any", content: bytes = b"1") -> Path:
        folder = self.folder / hashlib.sha256(content).hexdigest()[:8]
        files = {f"{self.project}/data": content}
        return make_wheel(folder, name=self.project, version=version, tag=tag, extra=DESCRIPTION, files=files)

    def sdist(self, version: str = "1.0") -> Path:
        return make_sdist(self.folder, name=self.project, version=version, extra=DESCRIPTION)

    def published(self, version: str = "1.0") -> Published:
        return read_published(find_service(self.settings), self.project, parse_release(version))

    def plan(self, version: str = "1.0", commit: str | None = None, *, sdist: bool = False) -> PublishPlan:
        return plan_publish(self.index, version, commit, self.published(version), sdist=sdist)

    def publish(self, plan: PublishPlan | None = None, patience: float = 0) -> pypi.PublishReport:
        return pypi.execute_publish(self.index, plan or self.plan(), self.settings, patience=patience)

    def on_server(self) -> dict[str, str]:
        """Return name and sha256 of the project's files, from the server's own folder."""
        packages = self.proxy.server.packages
        return {path.name: digest(path) for path in packages.iterdir() if path.name.startswith(f"{self.project}-")}


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def release(tmp_path: Path, proxy: Proxy, request: pytest.FixtureRequest) -> Release:
    project = "sample" + hashlib.sha256(request.node.nodeid.encode()).hexdigest()[:12]
    store = open_store(str(tmp_path / "store"))
    rules = replace(load(environment={}).wheels, project=project)
    return Release(Index(store, rules), proxy, tmp_path / "dist", project)


@pytest.fixture
def two(release: Release) -> tuple[str, str]:
    """Give the release two wheels of version 1.0, and return their names in the order of uploading."""
    paths = [release.wheel(tag=tag) for tag in ("py3-none-any", "py3-none-win32")]
    release.upload(*paths)
    return (paths[0].name, paths[1].name)


def left_over() -> list[str]:
    return sorted(path.name for path in Path(os.environ["TMPDIR"]).iterdir())


def assert_hidden(text: str) -> None:
    flat = "".join(text.split())
    assert TOKEN not in flat
    assert CREDENTIALS not in flat


def test_exactly_the_version_is_published_and_a_second_run_does_nothing(release: Release) -> None:
    wanted = [release.wheel(), release.sdist()]
    others = ["1.0+cu130", "1.0rc1", "1.0.post1", "1.0.1", "1.0.dev1", "1.0.1.dev1+g0123abc", "1.0.0.1"]
    release.upload(*wanted, *map(release.wheel, others))
    report = release.publish(release.plan("v1.0", A, sdist=True))
    assert report.uploaded == tuple(path.name for path in wanted)
    assert (report.unseen, report.warning) == ((), None)
    assert release.on_server() == {path.name: digest(path) for path in wanted}
    uploads = release.proxy.uploads
    again = release.plan("1.0", A, sdist=True)
    assert again.actions() == []
    assert release.publish(again).uploaded == ()
    assert release.proxy.uploads == uploads
    assert left_over() == []


def test_a_plan_uploads_nothing(release: Release, two: tuple[str, str]) -> None:
    assert [row[1] for row in release.plan().actions() if row[0] == "twine upload"] == [*two]
    assert release.proxy.uploads == 0


def test_the_server_disappears_between_two_files_and_a_second_run_completes_it(
    release: Release, two: tuple[str, str]
) -> None:
    release.proxy.rule = first(1, lambda seen: seen.is_upload, Close())
    with pytest.raises(TemporaryError) as caught:
        release.publish()
    assert caught.value.hint is not None
    assert caught.value.hint.startswith(f"uploaded: {two[0]}; not yet: {two[1]}; run it again")
    assert set(release.on_server()) == {two[0]}
    assert left_over() == []
    with proxy_before(release.proxy.server) as release.proxy:
        assert release.publish().uploaded == (two[1],)
    assert set(release.on_server()) == {*two}


Stop = tuple[Callable[[str], Rule], type[OmniError]]

STOPS: dict[str, Stop] = {
    "500 for ever": (lambda name: lambda seen: Reply(500) if seen.uploads(name) else None, TemporaryError),
    "503 for ever": (lambda name: lambda seen: Reply(503) if seen.uploads(name) else None, TemporaryError),
    "too many requests": (lambda name: lambda seen: Reply(429) if seen.uploads(name) else None, TemporaryError),
    "hangs up": (lambda name: lambda seen: HangUp() if seen.uploads(name) else None, TemporaryError),
    "unauthorized": (lambda name: lambda seen: Reply(401) if seen.uploads(name) else None, CredentialsError),
    "forbidden": (lambda name: lambda seen: Reply(403) if seen.uploads(name) else None, CredentialsError),
    "refused": (lambda name: lambda seen: Reply(400) if seen.uploads(name) else None, ServiceRefusedError),
    "not found": (lambda name: lambda seen: Reply(404) if seen.uploads(name) else None, ServiceRefusedError),
    "moved": (
        lambda name: lambda seen: Reply(301, location="http://127.0.0.1:1/") if seen.uploads(name) else None,
        ServiceRefusedError,
    ),
}


@pytest.mark.parametrize(("stop", "number"), [("forbidden", 0), *((stop, 1) for stop in STOPS)])
def test_a_failed_upload_says_how_far_it_came_and_a_second_run_completes_it(
    release: Release, two: tuple[str, str], stop: str, number: int
) -> None:
    rule, error = STOPS[stop]
    release.proxy.rule = rule(two[number])
    with pytest.raises(error) as caught:
        release.publish()
    done, left = ", ".join(two[:number]) or "nothing", ", ".join(two[number:])
    assert str(caught.value.hint).startswith(f"uploaded: {done}; not yet: {left}; run it again")
    assert "\n" not in f"{caught.value.message}{caught.value.hint}"
    assert set(release.on_server()) == set(two[:number])
    assert left_over() == []
    release.proxy.rule = lambda _: None
    assert release.publish().uploaded == two[number:]
    assert set(release.on_server()) == {*two}


@pytest.mark.parametrize(
    ("count", "fault"), [(1, Reply(500)), (1, Reply(502)), (3, Reply(503)), (1, HangUp(forward=True))]
)
def test_a_passing_failure_and_a_lost_answer_are_survived(
    release: Release, two: tuple[str, str], count: int, fault: Fault
) -> None:
    release.proxy.rule = first(count, lambda seen: seen.is_upload, fault)
    assert release.publish().uploaded == two
    assert set(release.on_server()) == {*two}


def test_a_stored_file_whose_answer_was_an_error_counts_as_uploaded(release: Release, two: tuple[str, str]) -> None:
    """Forward the upload and answer 500; twine sends it again and is told that the file exists."""

    def rule(seen: Seen) -> Fault | None:
        if not seen.uploads(two[0]) or release.proxy.uploads > 1:
            return None
        release.proxy.server.packages.joinpath(two[0]).write_bytes(release.wheel().read_bytes())
        return Reply(500)

    release.proxy.rule = rule
    assert release.publish().uploaded == two
    assert release.on_server()[two[0]] == digest(release.wheel())


def test_somebody_publishes_the_same_bytes_meanwhile(release: Release, two: tuple[str, str]) -> None:
    plan = release.plan()
    release.proxy.server.packages.joinpath(two[0]).write_bytes(release.wheel().read_bytes())
    assert release.publish(plan).uploaded == (two[1],)


@pytest.mark.parametrize("moment", ["before the upload", "during the upload"])
def test_somebody_publishes_other_bytes_meanwhile(release: Release, two: tuple[str, str], moment: str) -> None:
    def intrude() -> None:
        release.proxy.server.packages.joinpath(two[0]).write_bytes(b"other")

    def rule(seen: Seen) -> None:
        if seen.uploads(two[0]):
            intrude()

    plan = release.plan()
    if moment == "before the upload":
        intrude()
    else:
        release.proxy.rule = rule
    with pytest.raises(RemoteChangedError, match="other bytes") as caught:
        release.publish(plan)
    assert f"not yet: {two[0]}, {two[1]}" in str(caught.value.hint)
    assert set(release.on_server()) == {two[0]}


def test_other_bytes_on_the_index_stop_everything(release: Release, two: tuple[str, str]) -> None:
    release.proxy.server.packages.joinpath(two[1]).write_bytes(b"other")
    with pytest.raises(DataError, match=two[1]):
        release.plan()
    assert release.proxy.uploads == 0


def test_a_deleted_files_name_cannot_come_back(release: Release, two: tuple[str, str]) -> None:
    """Answer as the public index does for a name that was used before."""
    title = (
        f"<html><head><title>400 File already exists ('{two[0]}', with hash 'ab'). See the help.</title></head></html>"
    )
    release.proxy.rule = lambda seen: Reply(400, title) if seen.is_upload else None
    with pytest.raises(ServiceRefusedError, match="File already exists") as caught:
        release.publish()
    assert "deleted" in str(caught.value.hint)


@pytest.mark.parametrize(
    "answer",
    [
        Reply(400, reason="The description failed to render"),
        Reply(400, "<html><title>400 The description failed to render</title></html>"),
        Reply(400, "<html><title>Error: 400</title><pre>The description failed to render</pre></html>"),
    ],
)
def test_the_servers_reason_is_passed_on(release: Release, two: tuple[str, str], answer: Reply) -> None:
    release.proxy.rule = lambda seen: answer if seen.is_upload else None
    with pytest.raises(ServiceRefusedError, match=r"400 .*The description failed to render"):
        release.publish()


def test_a_wrong_token_is_one_sentence(release: Release, two: tuple[str, str]) -> None:
    release.token = "pypi-wrong-but-secret"
    with pytest.raises(CredentialsError, match="PYPI_TOKEN") as caught:
        release.publish()
    assert "\n" not in caught.value.message
    assert "403" in caught.value.message
    assert "wrong-but-secret" not in f"{caught.value.message}{caught.value.hint}"
    assert release.on_server() == {}


def test_no_token_and_no_profile_stop_before_anything_is_sent(release: Release, two: tuple[str, str]) -> None:
    plan = release.plan()
    for profile in ("local", "ci"):
        settings = replace(release.settings, profile=load(profile=profile, environment={}).profile)
        with pytest.raises(ConfigurationError, match=f"profile {profile} may not"):
            pypi.execute_publish(release.index, plan, settings)
    release.token = ""
    with pytest.raises(CredentialsError, match="PYPI_TOKEN is not set"):
        release.publish(plan)
    assert release.proxy.uploads == 0


def test_a_bad_description_is_refused_before_the_first_upload(release: Release) -> None:
    good = release.wheel()
    bad = make_wheel(release.folder, name=release.project, tag="py3-none-win32")
    release.upload(good, bad)
    with pytest.raises(
        DataError, match=r"^twine check refuses .*win32\.whl: `long_description[^\n]* missing"
    ) as caught:
        release.publish()
    assert str(release.folder) not in caught.value.message
    assert left_over() == []
    assert release.proxy.uploads == 0


def test_an_object_that_is_not_what_the_state_says_is_never_uploaded(release: Release, two: tuple[str, str]) -> None:
    key = layout.distribution(A, two[1])
    release.index.store.put(key, b"something else", layout.DISTRIBUTION, expected=None)
    with pytest.raises(DataError, match=f"{key} is not what the state says"):
        release.publish()
    release.index.store.delete(key)
    with pytest.raises(MissingInputError, match=two[1]):
        release.publish()
    assert release.proxy.uploads == 0
    assert left_over() == []


def test_a_state_that_changed_since_the_plan_is_refused(release: Release, two: tuple[str, str]) -> None:
    plan = release.plan()
    key = layout.distribution(A, two[0])
    release.index.change_project(
        release.project, lambda state: state.with_files({key: replace(state.files[key], yanked="bad")})
    )
    with pytest.raises(RemoteChangedError, match=key):
        release.publish(plan)
    assert release.proxy.uploads == 0


def without(name: str) -> Change:
    """Make the fault of an index that does not list a file yet."""
    return Change(lambda page: "\n".join(line for line in page.splitlines() if name not in line))


def test_an_index_that_lags_is_waited_for(release: Release, two: tuple[str, str]) -> None:
    plan = release.plan()
    lag = first(2, lambda seen: not seen.is_upload and release.proxy.uploads == 2, without(two[1]))
    release.proxy.rule = lag
    assert release.publish(plan, patience=30).warning is None


def test_an_index_that_lags_too_long_is_a_warning(release: Release, two: tuple[str, str]) -> None:
    plan = release.plan()
    release.proxy.rule = lambda seen: None if seen.is_upload else without(two[1])
    report = release.publish(plan)
    assert report.unseen == (two[1],)
    assert two[1] in str(report.warning)
    release.proxy.rule = lambda _: None
    assert release.plan().actions() == []


def test_a_lagging_index_and_a_repeated_upload_end_well(release: Release, two: tuple[str, str]) -> None:
    """Upload again what is there but not listed; the server says that it exists, and then it is listed."""
    release.publish()
    release.proxy.rule = lambda seen: None if seen.is_upload else without(two[0])
    stale = release.plan()
    assert [file.record.filename for file in stale.new] == [two[0]]
    uploads = release.proxy.uploads
    late = first(1, lambda seen: not seen.is_upload and release.proxy.uploads > uploads, without(two[0]))
    release.proxy.rule = lambda seen: without(two[0]) if release.proxy.uploads == uploads else late(seen)
    assert release.publish(stale, patience=30).warning is None


def test_an_index_that_fails_after_the_upload_is_a_warning(release: Release, two: tuple[str, str]) -> None:
    plan = release.plan()
    release.proxy.rule = lambda seen: Reply(500) if not seen.is_upload and release.proxy.uploads == 2 else None
    report = release.publish(plan)
    assert report.uploaded == two
    assert "not read back" in str(report.warning)


HASH = "#sha256="


@pytest.mark.parametrize(
    "page",
    [
        Change(lambda text: text.replace(HASH, "#md5=0")),
        Change(
            lambda text: "\n".join(
                line.partition(HASH)[0] + '">' + line.partition('">')[2] for line in text.splitlines()
            )
        ),
        Change(lambda text: text.replace(HASH, "?" + HASH)),
    ],
)
def test_files_listed_without_sha256_are_hashed(release: Release, two: tuple[str, str], page: Change) -> None:
    release.publish()
    release.proxy.rule = lambda seen: page if seen.path.startswith("/simple/") else None
    assert dict(release.published().files) == release.on_server()


def test_the_json_form_is_read(release: Release) -> None:
    name = f"{release.project}-1.0-py3-none-any.whl"
    file = {"filename": name, "url": "x", "hashes": {"sha256": "AB" * 32}, "yanked": True}
    other = {"filename": f"{release.project}-1.0.1.tar.gz", "url": "y", "hashes": {}}
    page = {"meta": {"api-version": "1.3"}, "name": release.project, "files": [file, other]}
    kind = "application/vnd.pypi.simple.v1+json"
    release.proxy.rule = lambda _: Reply(200, json.dumps(page), kind)
    assert dict(release.published().files) == {name: "ab" * 32}


NOT_PAGES: dict[str, tuple[Reply, type[OmniError]]] = {
    "server error": (Reply(500), TemporaryError),
    "forbidden": (Reply(403), CredentialsError),
    "gone": (Reply(410), ServiceRefusedError),
    "log-in page": (Reply(200, "<html><a href='/login'>Log in</a></html>"), ServiceRefusedError),
    "broken JSON": (Reply(200, "{", "application/vnd.pypi.simple.v1+json"), ServiceRefusedError),
    "JSON of something else": (Reply(200, "[]", "application/vnd.pypi.simple.v1+json"), ServiceRefusedError),
    "plain JSON": (Reply(200, "{}", "application/json"), ServiceRefusedError),
    "another format": (Reply(200, "", "application/pdf"), ServiceRefusedError),
    "a later format": (
        Reply(200, '{"meta":{"api-version":"9.0"},"name":"x","files":[]}', "application/vnd.pypi.simple.v1+json"),
        ServiceRefusedError,
    ),
}


@pytest.mark.parametrize("answer", NOT_PAGES)
def test_an_index_that_does_not_answer_properly_stops_before_the_upload(
    release: Release, two: tuple[str, str], answer: str
) -> None:
    reply, error = NOT_PAGES[answer]
    release.proxy.rule = lambda _: reply
    with pytest.raises(error) as caught:
        release.plan()
    assert "\n" not in caught.value.message
    assert release.proxy.uploads == 0


def test_an_index_that_sends_us_to_another_server_is_refused(release: Release, two: tuple[str, str]) -> None:
    release.publish()
    elsewhere = release.proxy.url.replace("127.0.0.1", "localhost")
    release.proxy.rule = first(1, lambda seen: True, Reply(302, location=f"{elsewhere}simple/{release.project}/"))
    with pytest.raises(ServiceRefusedError, match="leads to another server"):
        release.plan()


def run_task(proxy: Proxy, store: str, *words: str, profile: str = "production") -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "invoke", "-r", str(CHECKOUT), "wheels.publish", *words],
        env={**os.environ, **proxy.environment, "OMNI_CI_PROFILE": profile, "OMNI_CI_STORE": store, "PYTHONPATH": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.fixture
def library(release: Release, pypi_server: PypiServer) -> Iterator[Release]:
    """Return a release of the configured project, which the command line publishes."""
    configured = replace(release, project="vllm_omni", index=Index(release.index.store, load(environment={}).wheels))
    yield configured
    for path in pypi_server.packages.glob("vllm_omni-*"):
        path.unlink()


def processes() -> dict[int, tuple[str, str]]:
    """Return the command line and the environment of every process of this machine that can be read."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            found[int(entry.name)] = (line, (entry / "environ").read_bytes().decode(errors="replace"))
        except OSError:
            continue
    return found


def test_the_token_is_in_no_output_and_on_no_command_line(library: Release) -> None:
    paths = [library.wheel("1.0"), library.sdist("1.0")]
    library.upload(*paths)
    seen_running = []

    def rule(seen: Seen) -> Fault | None:
        if not seen.is_upload:
            return None
        seen_running.append(processes())
        echo = f"{seen.authorization} {TOKEN} {json.dumps(TOKEN)} {base64.b64decode(CREDENTIALS).decode()}"
        return (
            Reply(400, f"<html><title>400 {echo}</title><body>{echo}</body></html>")
            if library.proxy.uploads == 1
            else None
        )

    library.proxy.rule = rule
    outputs = []
    for expected in (69, 0, 0):
        with run_task(library.proxy, library.index.store.url, "--version", "v1.0", "--sdist", "--json") as task:
            outputs.append(task.communicate())
        assert task.returncode == expected, outputs[-1]
    assert "***" in outputs[0][1]
    assert "Traceback" not in "".join(map("".join, outputs))
    assert json.loads(outputs[1][0])["uploaded"] == [path.name for path in paths]
    assert json.loads(outputs[2][0])["uploaded"] == []
    assert library.on_server() == {path.name: digest(path) for path in paths}
    for out, err in outputs:
        assert_hidden(out + err)
    assert len(seen_running) == 3
    for running in seen_running:
        twines = [both for both in running.values() if "-m twine" in both[0] and " upload " in both[0]]
        assert any(TOKEN in environment for _, environment in twines)
        assert all("--config-file /dev/null " in line for line, _ in twines)
        for spoiling in (f"PYPI_TOKEN={TOKEN}", "TWINE_REPOSITORY=testpypi", "=somebody"):
            assert not any(spoiling in environment for _, environment in twines)
        assert_hidden("".join(line for line, _ in running.values()))


def test_a_dry_run_shows_the_plan_and_needs_no_token(library: Release, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYPI_TOKEN")
    wheel = library.wheel("1.0")
    library.upload(wheel)
    with run_task(library.proxy, library.index.store.url, "--version", "1.0", "--dry-run", "--json") as task:
        out, err = task.communicate()
    assert task.returncode == 0, err
    assert [row["action"] for row in json.loads(out)["actions"]] == ["twine check", "twine upload", "read back"]
    assert "profile production, dry run" in err.splitlines()[0]
    assert library.proxy.uploads == 0


@pytest.mark.parametrize(
    ("words", "profile", "code"),
    [
        ((), "production", 64),
        (("--version", "1.0", "--commit", "abc"), "production", 64),
        (("--version", "9.9"), "production", 66),
        (("--version", "1.0"), "ci", 78),
        (("--version", "1.0"), "local", 78),
    ],
)
def test_a_refusal_is_one_line_with_its_code(library: Release, words: tuple[str, ...], profile: str, code: int) -> None:
    library.upload(library.wheel("1.0"))
    with run_task(library.proxy, library.index.store.url, *words, profile=profile) as task:
        out, err = task.communicate()
    assert task.returncode == code, err
    assert out == ""
    assert sum(line.startswith("error: ") for line in err.splitlines()) == 1
    assert "Traceback" not in err
    assert library.proxy.uploads == 0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_a_stopped_publish_is_completed_by_a_second_one(library: Release, number: signal.Signals, code: int) -> None:
    paths = [library.wheel("1.0", tag=tag) for tag in ("py3-none-any", "py3-none-win32")]
    library.upload(*paths)
    arrived, gone = threading.Event(), threading.Event()

    def rule(seen: Seen) -> Fault | None:
        if not seen.uploads(paths[1].name):
            return None
        arrived.set()
        gone.wait(60)
        return HangUp()

    library.proxy.rule = rule
    with run_task(library.proxy, library.index.store.url, "--version", "1.0") as task:
        assert arrived.wait(60)
        os.kill(task.pid, number)
        out, err = task.communicate()
    gone.set()
    assert task.returncode == code, err
    assert "Traceback" not in err
    assert_hidden(out + err)
    if number is not signal.SIGKILL:
        assert f"uploaded: {paths[0].name}; not yet: {paths[1].name}; run it again" in err
        assert left_over() == []
    library.proxy.rule = lambda _: None
    with run_task(library.proxy, library.index.store.url, "--version", "1.0") as task:
        out, err = task.communicate()
    assert task.returncode == 0, err
    assert library.on_server() == {path.name: digest(path) for path in paths}
