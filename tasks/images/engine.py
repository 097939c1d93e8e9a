"""The Docker Engine's API, through docker-py: which engine is meant, what it is, what it holds, and pushes."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from tasks.registry.credentials import config_path
from tasks.support.command_line import Changes
from tasks.support.errors import (
    ConfigurationError,
    CredentialsError,
    MissingInputError,
    OmniError,
    ServiceRefusedError,
    TemporaryError,
)
from tasks.support.packages import not_installed
from tasks.support.redaction import redact
from tasks.support.settings import Settings

DEFAULT_SOCKET = "unix:///var/run/docker.sock"
PATIENCE = 10.0
"""Seconds until an engine must have said which version it is; after that, a silence may last ``_SILENCE``."""

_SILENCE = 900.0
_DEFAULT_CONTEXT = "default"
_DENIED = re.compile(r"denied|unauthorized|authentication required|no basic auth|forbidden", re.IGNORECASE)
_PASSING = re.compile(
    r"timeout|timed out|connection re|EOF|toomanyrequests|too many requests|broken pipe|no such host|unreachable"
    r"|temporary failure|received unexpected HTTP status: 5",
    re.IGNORECASE,
)

Advance = Callable[[int], None]
"""Called with the number of bytes that were sent since the last call."""


@dataclass(frozen=True)
class Tls:
    """The certificates that an engine is spoken to with; ``folder`` holds ca.pem, cert.pem and key.pem."""

    folder: Path
    verify: bool


@dataclass(frozen=True)
class Endpoint:
    """Where the engine is, who says so, and what was looked at before (each with why it was not that)."""

    address: str
    origin: str
    passed_over: tuple[str, ...] = ()
    tls: Tls | None = None

    @property
    def is_local(self) -> bool:
        """Say whether the engine is one of this machine."""
        return self.address.startswith("unix:")

    def environment(self) -> Changes:
        """Return what makes a docker client use this engine, whatever its configuration folder says."""
        return {
            "DOCKER_HOST": self.address,
            "DOCKER_CONTEXT": None,
            "DOCKER_TLS_VERIFY": "1" if self.tls and self.tls.verify else None,
            "DOCKER_TLS": "1" if self.tls and not self.tls.verify else None,
            "DOCKER_CERT_PATH": str(self.tls.folder) if self.tls else None,
        }

    def shown(self) -> str:
        """Return the address without a credential in it."""
        return redact(self.address)


@dataclass(frozen=True)
class Version:
    """What an engine says it is; ``platform`` is what it builds for by itself, for example ``linux/amd64``."""

    engine: str
    api: str
    platform: str


def choose_endpoint(settings: Settings) -> Endpoint:
    """Return the engine that the docker client would use: DOCKER_HOST, else the chosen context, else the socket.

    As with docker itself, the first of them that is set is meant: an engine that does not answer is never
    replaced by another one. Raises ServiceRefusedError when the chosen context cannot be read.
    """
    host = settings.variable("DOCKER_HOST")
    if host is not None:
        tls = None
        if settings.variable("DOCKER_TLS_VERIFY") is not None:
            tls = Tls(Path(settings.variable("DOCKER_CERT_PATH") or config_path(settings).parent), verify=True)
        return Endpoint(host, "DOCKER_HOST", tls=tls)
    unset = "DOCKER_HOST is not set"
    name = settings.variable("DOCKER_CONTEXT") or _current_context(settings)
    if name in {None, _DEFAULT_CONTEXT}:
        return Endpoint(DEFAULT_SOCKET, "the default socket", (unset, "no docker context is chosen"))
    return _context(settings, str(name), (unset,))


def _current_context(settings: Settings) -> str | None:
    file = config_path(settings)
    try:
        document = json.loads(file.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise _no_engine(Endpoint("", f"the context in {file}"), f"cannot be read ({type(error).__name__})") from error
    name = document.get("currentContext") if isinstance(document, dict) else None
    return name if isinstance(name, str) and name else None


def _context(settings: Settings, name: str, passed_over: tuple[str, ...]) -> Endpoint:
    folder = config_path(settings).parent
    key = hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()
    origin = f"docker context {name!r}"
    try:
        document = json.loads((folder / "contexts" / "meta" / key / "meta.json").read_bytes())
        endpoint = document["Endpoints"]["docker"]
        address = endpoint.get("Host") or DEFAULT_SOCKET
        skip = bool(endpoint.get("SkipTLSVerify"))
    except FileNotFoundError as error:
        raise _no_engine(Endpoint("", origin, passed_over), f"is not in {folder}") from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        why = f"cannot be read from {folder} ({type(error).__name__})"
        raise _no_engine(Endpoint("", origin, passed_over), why) from error
    certificates = folder / "contexts" / "tls" / key / "docker"
    tls = Tls(certificates, verify=not skip) if certificates.is_dir() else None
    return Endpoint(str(address), origin, passed_over, tls)


def _no_engine(endpoint: Endpoint, why: str) -> ServiceRefusedError:
    where = f"{endpoint.origin} ({endpoint.shown()})" if endpoint.address else endpoint.origin
    tried = ", ".join((*endpoint.passed_over, f"{where} {why}"))
    hint = "start the engine, or say where it is: DOCKER_HOST=unix:///run/docker.sock, or docker context use NAME"
    if endpoint.origin == "DOCKER_HOST":
        hint = "correct DOCKER_HOST, or unset it: then the docker context is used, else the default socket"
    if "permission denied" in why:
        hint = "this user may not use the socket: add it to the group docker, or run this as one that may"
    return ServiceRefusedError(f"no Docker Engine: {tried}", hint=hint)


@contextmanager
def open_engine(settings: Settings) -> Iterator[Engine]:
    """Reach the engine and yield it; ServiceRefusedError saying in one sentence what was tried when there is none."""
    endpoint = choose_endpoint(settings)
    engine = Engine(endpoint, _connect(endpoint))
    try:
        yield engine
    finally:
        engine.close()


def _connect(endpoint: Endpoint) -> Any:
    try:
        # By name, because the checkout's own folder docker/ is what a type checker sees.
        docker = import_module("docker")
        docker_errors = import_module("docker.errors")
    except ModuleNotFoundError as error:
        raise not_installed(error.name or "docker") from error
    if endpoint.address.startswith("ssh:"):
        raise _no_engine(endpoint, "is reached through ssh, which docker-py needs more packages for")
    socket = Path(endpoint.address.removeprefix("unix://"))
    if endpoint.is_local and not socket.exists():
        raise _no_engine(endpoint, "does not exist")
    try:
        client = docker.APIClient(endpoint.address, version="auto", timeout=PATIENCE, tls=_tls_config(endpoint.tls))
    except docker_errors.InvalidConfigFile as error:
        raise ConfigurationError(
            "docker's config.json cannot be read", hint="repair its `auths`, or point DOCKER_CONFIG elsewhere"
        ) from error
    except (docker_errors.DockerException, OSError, ValueError) as error:
        raise _no_engine(endpoint, _reason(error)) from error
    client.timeout = _SILENCE
    return client


def _tls_config(tls: Tls | None) -> Any:
    if tls is None:
        return False
    make = import_module("docker.tls").TLSConfig
    pair = (str(tls.folder / "cert.pem"), str(tls.folder / "key.pem"))
    authority = str(tls.folder / "ca.pem")
    return make(client_cert=pair, ca_cert=authority if tls.verify else None, verify=tls.verify)


def _reason(error: BaseException) -> str:
    """Return in a few words why an engine did not answer; the system's own reason lies deep in the chain."""
    seen: list[BaseException] = [error]
    for one in seen:  # it grows while it is walked
        more = (one.__cause__, one.__context__, getattr(one, "reason", None), *one.args)
        seen.extend(part for part in more if isinstance(part, BaseException) and part not in seen)
    system = [one for one in seen if isinstance(one, OSError) and one.strerror]
    if system:
        return f"does not answer: {str(system[-1].strerror).lower()}"
    if any("Timeout" in type(one).__name__ for one in seen):
        return f"does not answer within {PATIENCE:g} s"
    return f"does not answer: {' '.join(redact(str(error)).split())[:200]}"


class Engine:
    """An engine that answered. Every failure is one of our errors."""

    def __init__(self, endpoint: Endpoint, client: Any) -> None:
        self.endpoint = endpoint
        self._client = client

    def close(self) -> None:
        """Give the connections back."""
        self._client.close()

    @contextmanager
    def api(self, what: str) -> Iterator[Any]:
        """Yield docker-py's client; what fails while the block ``what`` runs becomes our error, naming it."""
        docker_errors = import_module("docker.errors")
        asked = import_module("requests.exceptions")
        try:
            yield self._client
        except docker_errors.NotFound as error:
            raise MissingInputError(f"{what}: {_said(error)}") from error
        except docker_errors.APIError as error:
            raise refusal(what, _said(error)) from error
        except (docker_errors.DockerException, asked.RequestException, OSError) as error:
            message = f"{what}: the engine at {self.endpoint.shown()} {_reason(error)}"
            raise TemporaryError(message, hint="does the engine still run? Then run this again") from error

    def version(self) -> Version:
        """Return what the engine is."""
        with self.api("asking for the version") as client:
            facts = client.version()
        return Version(str(facts["Version"]), str(facts["ApiVersion"]), f"{facts['Os']}/{facts['Arch']}")

    def has_bridge(self) -> bool:
        """Say whether build steps and containers can have a network of their own; without one, only the host's."""
        with self.api("asking for the networks") as client:
            return any(network["Name"] == "bridge" for network in client.networks(names=["bridge"]))

    def data_root(self) -> Path:
        """Return the folder in which the engine keeps everything, on the engine's machine."""
        with self.api("asking for the data root") as client:
            return Path(client.info()["DockerRootDir"])

    def disk_use(self) -> dict[str, Any]:
        """Return the engine's own account of what it holds: Images, Containers, Volumes, BuildCache."""
        with self.api("asking for the disk use") as client:
            found: dict[str, Any] = client.df()
        return found

    def image(self, reference: str) -> dict[str, Any] | None:
        """Return what the engine knows of a local image, or None when it has none of that name or id."""
        try:
            with self.api(f"looking for the image {reference}") as client:
                found: dict[str, Any] = client.inspect_image(reference)
        except MissingInputError:
            return None
        return found

    def push(
        self, repository: str, tag: str, login: Mapping[str, str] | None = None, advance: Advance | None = None
    ) -> str:
        """Push one tag and return the digest of the manifest that the registry has now.

        ``login`` is docker's own form (``username`` and ``password``, or ``identitytoken``); without one the
        push is anonymous, so that no other login is used by accident. Raises CredentialsError when the
        registry says no, TemporaryError when trying again is right.
        """
        what = f"pushing {repository}:{tag}"
        sent: dict[str, int] = {}
        digest = ""
        with self.api(what) as client:
            events = client.push(repository, tag=tag, stream=True, decode=True, auth_config=dict(login or {}))
            for event in events:
                if "error" in event:
                    raise refusal(what, str(event["error"]))
                digest = (event.get("aux") or {}).get("Digest", digest)
                _count(event, sent, advance)
        if not digest:
            raise ServiceRefusedError(f"{what}: the engine did not say which digest it pushed")
        return digest


def _count(event: Mapping[str, Any], sent: dict[str, int], advance: Advance | None) -> None:
    """Pass on how many more bytes of a layer went out."""
    current = (event.get("progressDetail") or {}).get("current")
    layer = str(event.get("id"))
    if advance is None or not isinstance(current, int) or event.get("status") != "Pushing":
        return
    advance(current - sent.get(layer, 0))
    sent[layer] = current


def _said(error: Any) -> str:
    return str(error.explanation or error)


def refusal(what: str, said: str) -> OmniError:
    """Make the error for an engine's or builder's no from its words; pure."""
    message = f"{what}: {' '.join(redact(said).split())[:500]}"
    if _DENIED.search(said):
        hint = "log in (docker login, or the registry's variables), with an account that may do this"
        return CredentialsError(message, hint=hint)
    if _PASSING.search(said):
        return TemporaryError(message, hint="run the same command again later")
    return ServiceRefusedError(message)
