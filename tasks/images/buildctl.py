"""buildctl: found or fetched, and the line that builds a plan on a remote buildkitd."""

from __future__ import annotations

import csv
import hashlib
import io
import platform as machine
import secrets
import shutil
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tasks.images.catalogue import ARCHITECTURES, Buildkitd
from tasks.images.pins import DownloadPin
from tasks.support import paths
from tasks.support.command_line import Argv
from tasks.support.errors import (
    ConfigurationError,
    CredentialsError,
    DataError,
    MissingInputError,
    ServiceRefusedError,
    TemporaryError,
)
from tasks.support.settings import CHECKOUT, Settings

if TYPE_CHECKING:
    from tasks.images.planning import BuildPlan

TOOLS = CHECKOUT / ".omni-ci" / "tools"
_PROGRAM = "buildctl"
_MEMBER = "bin/buildctl"
_ADDRESS = "BUILDKITD_ADDR"
_LARGEST = 2**29  # bytes; the real archive has a tenth of that


@dataclass(frozen=True)
class Remote:
    """A buildkitd: its address, the files that prove who each side is, and the folder with the registry's login."""

    address: str
    authority: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    logins: Path | None = None

    def options(self) -> list[str | Path]:
        """Return buildctl's own options, which come before the word `build`."""
        named = {"--tlscacert": self.authority, "--tlscert": self.certificate, "--tlskey": self.key}
        files = [word for option, file in named.items() if file is not None for word in (option, file)]
        return ["--addr", self.address, *files]

    def with_logins(self, settings: Settings) -> Settings:
        """Return the settings with which the registry's login is found beside the certificates."""
        if self.logins is None or settings.variable("DOCKER_CONFIG") is not None:
            return settings
        return replace(settings, environment={**settings.environment, "DOCKER_CONFIG": str(self.logins)})


def choose_remote(settings: Settings, catalogue: Buildkitd) -> Remote:
    """Return the builder: BUILDKITD_ADDR or the catalogue's address, with the certificates where they lie.

    The folder holds ``ca``, ``cert`` and ``key``, each perhaps with ``.pem`` behind it, and perhaps docker's
    ``config.json`` with the registry's login. Without any certificate the builder is spoken to in the clear;
    with only some of them this raises ConfigurationError.
    """
    address = settings.variable(_ADDRESS) or catalogue.address
    folder = Path(catalogue.certificates)
    logins = folder if paths.is_there(folder / "config.json") else None
    found = {name: _certificate(folder, name) for name in ("ca", "cert", "key")}
    lacking = [name for name, file in found.items() if file is None]
    if address.startswith("unix:") or len(lacking) == len(found):
        return Remote(address, logins=logins)
    if lacking:
        raise ConfigurationError(
            f"the certificates for {address} are not complete: {folder} has no {' and no '.join(lacking)}",
            hint="mount the whole secret of the builder there",
        )
    return Remote(address, found["ca"], found["cert"], found["key"], logins)


def _certificate(folder: Path, name: str) -> Path | None:
    files = (folder / name, folder / f"{name}.pem")
    return next((file for file in files if paths.is_there(file)), None)


def find_program(settings: Settings, pin: DownloadPin, tools: Path = TOOLS, platform: str | None = None) -> Path:
    """Return buildctl: the one on PATH, else the pinned release for this machine, fetched once and checked.

    Raises ConfigurationError when no sha256 is recorded for it, ServiceRefusedError naming both ways when it
    cannot be fetched, DataError when what was fetched is not what is pinned.
    """
    found = shutil.which(_PROGRAM, path=settings.variable("PATH"))
    if found is not None:
        return Path(found)
    wanted = platform or this_platform()
    expected = pin.sha256.get(wanted)
    if expected is None:
        raise ConfigurationError(
            f"{pin.where}: no sha256 of {pin.name} {pin.version} for {wanted} is recorded, so it is not fetched",
            hint=f"put {pin.name} on PATH, or record it on a machine with network: invoke pins.set {pin.name}",
        )
    program = tools / f"{pin.name}-{pin.version}-{expected[:12]}" / _PROGRAM
    if not program.exists():
        _install(pin, pin.address(wanted), expected, program)
    return program


def this_platform() -> str:
    """Return this machine's platform as downloads are named, for example ``linux/amd64``."""
    known = {uname: name for name, uname in ARCHITECTURES.items()}
    name = machine.machine()
    return f"linux/{known.get(name, name)}"


def _install(pin: DownloadPin, url: str, expected: str, program: Path) -> None:
    archive = _fetch(pin, url)
    found = hashlib.sha256(archive).hexdigest()
    if found != expected:
        raise DataError(
            f"{url} is not what is pinned: sha256 {found} instead of {expected} ({pin.where})",
            hint="do not use it; if the release was made anew, look into why before recording another digest",
        )
    try:
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as tar:
            member = tar.extractfile(_MEMBER)
            data = member.read() if member else b""
    except (tarfile.TarError, KeyError, OSError, EOFError) as error:
        raise DataError(f"{url} holds no {_MEMBER}", hint=f"correct the url in {pin.where}") from error
    program.parent.mkdir(parents=True, exist_ok=True)
    # Under another name first: a job that starts meanwhile must find either the whole program or none.
    unfinished = program.with_name(f"{_PROGRAM}.{secrets.token_hex(4)}")
    unfinished.write_bytes(data)
    unfinished.chmod(0o755)
    unfinished.replace(program)


def _fetch(pin: DownloadPin, url: str) -> bytes:
    from tasks.support.http_door import body_of, open_session

    try:
        with open_session() as session:
            return _bounded(body_of(session.get(url, stream=True)), url)
    except (ServiceRefusedError, TemporaryError, MissingInputError, CredentialsError) as error:
        raise ServiceRefusedError(
            f"{pin.name} is not on PATH, and it cannot be fetched: {error.message}",
            hint=f"put {pin.name} {pin.version} on PATH, or let this machine reach {url}",
        ) from error


def _bounded(chunks: Iterable[bytes], url: str) -> bytes:
    kept = bytearray()
    for chunk in chunks:
        kept += chunk
        if len(kept) > _LARGEST:
            raise DataError(f"{url} is larger than {_LARGEST} bytes")
    return bytes(kept)


def build_argv(program: Path, remote: Remote, plan: BuildPlan, metadata: Path) -> Argv:
    """Return the line that builds a plan; pure. Raises ConfigurationError for a proxy with a credential in it.

    buildctl takes a proxy only as an argument, which every process of the host can read.
    """
    words: list[str | Path] = [program, *remote.options(), "build", "--progress", "plain"]
    words += ["--frontend", "dockerfile.v0", *_context(plan)]
    options = {"target": plan.target, "platform": str(plan.platform)}
    options |= {f"build-arg:{name}": value for name, value in {**plan.args, **_proxies(plan)}.items()}
    options |= {f"label:{name}": value for name, value in plan.labels.items()}
    for name, value in options.items():
        words += ["--opt", f"{name}={value}"] if value is not None else []
    for secret in plan.secrets:
        words += ["--secret", fields(id=secret.id, src=str(secret.file))]
    for option, texts in (("--import-cache", plan.cache_from), ("--export-cache", plan.cache_to)):
        words += [word for text in texts for word in (option, text)]
    if plan.push:
        words += ["--output", fields(type="image", name=",".join(plan.tags), push="true")]
    return [*words, "--metadata-file", metadata]


def _context(plan: BuildPlan) -> list[str | Path]:
    if not isinstance(plan.context, Path):
        return ["--opt", f"context={plan.context}", "--opt", f"filename={plan.dockerfile}"]
    dockerfile = Path(plan.dockerfile)
    return [
        *("--local", f"context={plan.context}", "--local", f"dockerfile={dockerfile.parent}"),
        *("--opt", f"filename={dockerfile.name}"),
    ]


def _proxies(plan: BuildPlan) -> Mapping[str, str]:
    for name, value in plan.proxies.items():
        if "@" in urlsplit(value).netloc:
            raise ConfigurationError(
                f"{name} holds a credential, which buildctl could only be given where everybody can read it",
                hint="use a proxy without one for this build",
            )
    return plan.proxies


def fields(**values: Any) -> str:
    """Return ``name=value,...`` as BuildKit reads it: a line of CSV, so that a comma in a value is quoted."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow([f"{name}={value}" for name, value in values.items()])
    return line.getvalue()
