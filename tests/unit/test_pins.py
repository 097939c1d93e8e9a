from __future__ import annotations

import hashlib
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tasks.images.pins import load_pins
from tasks.pins import recording
from tasks.pins.recording import PinPlan, execute_pin, plan_pin
from tasks.support.errors import DataError, MissingInputError, OmniError, RemoteChangedError, UsageError

AMD, ARM = b"for amd64", b"for arm64"


class Server(ThreadingHTTPServer):
    files: dict[str, bytes]
    meanwhile: Callable[[], object] = staticmethod(lambda: None)


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        data = self.server.files.get(self.path)
        self.server.meanwhile()
        self.send_response(200 if data is not None else 404)
        self.send_header("Content-Length", str(len(data or b"")))
        self.end_headers()
        self.wfile.write(data or b"")

    def log_message(self, *args: object) -> None: ...


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Handler) as made:
        made.files = {"/v0.29.0/linux-amd64": AMD, "/v0.29.0/linux-arm64": ARM}
        thread = threading.Thread(target=made.serve_forever, args=(0.02,))
        thread.start()
        yield made
        made.shutdown()
        thread.join()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return a copy of the pins."""
    copy = tmp_path / "pins.yml"
    shutil.copy(recording.FILE, copy)
    return copy


@pytest.fixture
def planned(file: Path, server: Server) -> Callable[[], PinPlan]:
    """Return what plans to record from this server; the pins themselves must name an https address."""
    address = f"http://127.0.0.1:{server.server_address[1]}/${{version}}/${{platform}}"

    def plan() -> PinPlan:
        return PinPlan(replace(plan_pin("buildctl", file).pin, url=address))

    return plan


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_what_came_is_recorded_and_nothing_else_changes(file: Path, planned: Callable[[], PinPlan]) -> None:
    before = file.read_text()
    plan = planned()
    assert [row[0] for row in plan.actions()] == ["fetch", "fetch", "write"]
    assert execute_pin(plan, file) == {"linux/amd64": digest(AMD), "linux/arm64": digest(ARM)}
    assert load_pins(file).downloads["buildctl"].sha256 == {"linux/amd64": digest(AMD), "linux/arm64": digest(ARM)}
    after = file.read_text()
    assert after.replace(f'"{digest(AMD)}"', "null").replace(f'"{digest(ARM)}"', "null") == before
    stamp = file.stat().st_mtime_ns
    execute_pin(planned(), file)
    assert file.stat().st_mtime_ns == stamp, "the same again is no write"
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_a_digest_of_digits_alone_stays_a_text(file: Path) -> None:
    text = recording._with_digests(
        file.read_text(), "buildctl", {"linux/amd64": "1" * 64, "linux/arm64": "1e" + "2" * 62}
    )
    file.write_text(text)
    assert load_pins(file).downloads["buildctl"].sha256["linux/arm64"] == "1e" + "2" * 62


def test_another_digest_is_recorded_only_when_that_is_asked_for(
    file: Path, server: Server, planned: Callable[[], PinPlan]
) -> None:
    execute_pin(planned(), file)
    before = file.read_bytes()
    server.files["/v0.29.0/linux-arm64"] = b"made anew"
    with pytest.raises(DataError, match="is recorded"):
        execute_pin(planned(), file)
    assert file.read_bytes() == before
    execute_pin(planned(), file, replace=True)
    assert load_pins(file).downloads["buildctl"].sha256["linux/arm64"] == digest(b"made anew")


def test_nothing_is_written_unless_every_file_came(file: Path, planned: Callable[[], PinPlan], server: Server) -> None:
    before = file.read_bytes()
    del server.files["/v0.29.0/linux-arm64"]
    with pytest.raises(MissingInputError):
        execute_pin(planned(), file)
    assert file.read_bytes() == before


def test_a_file_that_was_edited_meanwhile_is_left_alone(
    file: Path, server: Server, planned: Callable[[], PinPlan]
) -> None:
    server.meanwhile = lambda: file.write_text(f"{file.read_text()}# edited\n")
    with pytest.raises(RemoteChangedError, match="changed meanwhile"):
        execute_pin(planned(), file)
    assert "# edited" in file.read_text()
    assert load_pins(file).downloads["buildctl"].sha256["linux/amd64"] is None


def test_an_unknown_download_is_an_error_that_names_the_closest(file: Path) -> None:
    with pytest.raises(UsageError, match="buildctll") as error:
        plan_pin("buildctll", file)
    assert "buildctl" in str(error.value.hint)


@pytest.mark.slow
def test_no_network_is_an_error_of_one_line(file: Path, planned: Callable[[], PinPlan]) -> None:
    before = file.read_bytes()
    with pytest.raises(OmniError) as error:
        execute_pin(PinPlan(replace(planned().pin, url="http://127.0.0.1:9/${version}/${platform}")), file)
    assert error.value.exit_code in {69, 75}
    assert file.read_bytes() == before
