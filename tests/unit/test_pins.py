from __future__ import annotations

import hashlib
import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tasks.images.pins import load_pins
from tasks.pins import recording
from tasks.pins.recording import execute_pin, plan_pin
from tasks.support.errors import DataError, MissingInputError, OmniError, RemoteChangedError, UsageError

AMD, ARM = b"for amd64", b"for arm64"


class Server(ThreadingHTTPServer):
    files: dict[str, bytes]


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        data = self.server.files.get(self.path)
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
def file(tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy of the pins whose download is this server's; our own file wants https."""
    copy = tmp_path / "pins.yml"
    shutil.copy(recording.FILE, copy)
    address = f"http://127.0.0.1:{server.server_address[1]}/${{version}}/${{platform}}"

    def url(_pin: object, platform: str) -> str:
        return address.replace("${version}", "v0.29.0").replace("${platform}", platform.replace("/", "-"))

    monkeypatch.setattr("tasks.images.pins.DownloadPin.address", url)
    return copy


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_what_came_is_recorded_and_nothing_else_changes(file: Path) -> None:
    before = file.read_text()
    plan = plan_pin("buildctl", file)
    assert [row[0] for row in plan.actions()] == ["fetch", "fetch", "write"]
    assert execute_pin(plan, file) == {"linux/amd64": digest(AMD), "linux/arm64": digest(ARM)}
    assert load_pins(file).downloads["buildctl"].sha256 == {"linux/amd64": digest(AMD), "linux/arm64": digest(ARM)}
    after = file.read_text()
    assert after.replace(f'"{digest(AMD)}"', "null").replace(f'"{digest(ARM)}"', "null") == before
    stamp = file.stat().st_mtime_ns
    execute_pin(plan_pin("buildctl", file), file)
    assert file.stat().st_mtime_ns == stamp, "the same again is no write"
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_a_digest_of_digits_alone_stays_a_text(file: Path) -> None:
    text = recording._with_digests(
        file.read_text(), "buildctl", {"linux/amd64": "1" * 64, "linux/arm64": "1e" + "2" * 62}
    )
    file.write_text(text)
    assert load_pins(file).downloads["buildctl"].sha256["linux/arm64"] == "1e" + "2" * 62


def test_another_digest_is_recorded_only_when_that_is_asked_for(file: Path, server: Server) -> None:
    execute_pin(plan_pin("buildctl", file), file)
    before = file.read_bytes()
    server.files["/v0.29.0/linux-arm64"] = b"made anew"
    with pytest.raises(DataError, match="is recorded"):
        execute_pin(plan_pin("buildctl", file), file)
    assert file.read_bytes() == before
    execute_pin(plan_pin("buildctl", file), file, replace=True)
    assert load_pins(file).downloads["buildctl"].sha256["linux/arm64"] == digest(b"made anew")


def test_nothing_is_written_unless_every_file_came(file: Path, server: Server) -> None:
    before = file.read_bytes()
    del server.files["/v0.29.0/linux-arm64"]
    with pytest.raises(MissingInputError):
        execute_pin(plan_pin("buildctl", file), file)
    assert file.read_bytes() == before


def test_a_file_that_was_edited_meanwhile_is_left_alone(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_pin("buildctl", file)
    real = recording._with_digests

    def edit(text: str, name: str, digests: dict[str, str]) -> str:
        file.write_text(f"{text}# edited\n")
        return real(text, name, digests)

    monkeypatch.setattr(recording, "_with_digests", edit)
    with pytest.raises(RemoteChangedError, match="changed meanwhile"):
        execute_pin(plan, file)
    assert file.read_text().endswith("# edited\n")


def test_an_unknown_download_is_an_error_that_names_the_closest(file: Path) -> None:
    with pytest.raises(UsageError, match="buildctll") as error:
        plan_pin("buildctll", file)
    assert "buildctl" in str(error.value.hint)


def test_no_network_is_an_error_of_one_line(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.images.pins.DownloadPin.address", lambda _pin, _platform: "http://127.0.0.1:9/x")
    with pytest.raises(OmniError) as error:
        execute_pin(plan_pin("buildctl", file), file)
    assert error.value.exit_code in {69, 75}
