"""Recording the sha256 of downloads in `docker/pins.yml`: fetched and computed here, never taken from anywhere."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks.images.pins import DownloadPin, load_pins
from tasks.support import console
from tasks.support.errors import CredentialsError, DataError, RemoteChangedError, unknown_choice
from tasks.support.settings import CHECKOUT

FILE = CHECKOUT / "docker" / "pins.yml"


@dataclass(frozen=True)
class PinPlan:
    """What is fetched: a download's release for every platform that it is pinned for."""

    pin: DownloadPin

    def actions(self) -> list[tuple[str, str, str]]:
        """Return (action, what, why) in the order of execution."""
        rows = [
            ("fetch", self.pin.address(platform), f"{self.pin.name} for {platform}") for platform in self.pin.sha256
        ]
        return [*rows, ("write", self.pin.where, "the sha256 of what came")]


def plan_pin(name: str, file: Path = FILE) -> PinPlan:
    """Plan to record a download's digests; UsageError naming the closest download for a name that none has."""
    downloads = load_pins(file).downloads
    if name not in downloads:
        raise unknown_choice("download", name, downloads)
    return PinPlan(downloads[name])


def execute_pin(plan: PinPlan, file: Path = FILE, *, replace: bool = False) -> dict[str, str]:
    """Fetch, compute and record; return the digests by platform.

    Nothing is written unless every platform's file came whole. Raises DataError when another digest is recorded
    and not to be replaced, RemoteChangedError when the file was changed meanwhile.
    """
    text = file.read_bytes()
    found = {platform: _digest(plan.pin.address(platform)) for platform in plan.pin.sha256}
    for platform, recorded in plan.pin.sha256.items():
        if recorded not in {None, found[platform]} and not replace:
            raise DataError(
                f"{plan.pin.address(platform)} has sha256 {found[platform]}, but {recorded} is recorded",
                hint="a release never changes: find out why, then pass --replace; nothing was written",
            )
    changed = _with_digests(text.decode(), plan.pin.name, found).encode()
    if changed != text:
        _write(file, text, changed)
    return found


def _digest(url: str) -> str:
    from tasks.support.http_door import body_of, open_session

    digest = hashlib.sha256()
    with console.busy(f"fetching {url}"), open_session() as session:
        for chunk in body_of(session.get(url, stream=True)):
            digest.update(chunk)
    return digest.hexdigest()


def _with_digests(text: str, name: str, digests: dict[str, str]) -> str:
    """Return the file's text with these digests in place of a download's; everything else stays as it is.

    In quotes: a digest of digits alone would be read as a number.
    """
    import yaml

    node: Any = yaml.compose(text, yaml.SafeLoader)
    for key in ("downloads", name, "sha256"):
        node = next(value for word, value in node.value if word.value == key)
    for word, value in reversed(node.value):
        start, end = value.start_mark.index, value.end_mark.index
        text = f'{text[:start]}"{digests[word.value]}"{text[end:]}'
    return text


def _write(file: Path, before: bytes, after: bytes) -> None:
    # Written beside it and moved there, so that a run that is killed leaves the old file or the new one.
    new = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    try:
        new.write_bytes(after)
        load_pins(new)
        if file.read_bytes() != before:
            raise RemoteChangedError(f"{file} was changed meanwhile", hint="nothing was written; run this again")
        new.chmod(file.stat().st_mode)
        new.replace(file)
    except OSError as error:
        raise CredentialsError(f"cannot write {file}: {(error.strerror or str(error)).lower()}") from error
    finally:
        new.unlink(missing_ok=True)
