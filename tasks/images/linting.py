"""Lint of the Dockerfiles: hadolint's rules, and our own over the parsed instructions."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tasks.images import dockerfile, lint_rules
from tasks.images.catalogue import Catalogue, Folder, Image
from tasks.images.dockerfile import Dockerfile
from tasks.images.lint_rules import Subject
from tasks.images.planning import BASE
from tasks.support import console
from tasks.support.command_line import Argv
from tasks.support.errors import ConfigurationError, DataError, OmniError
from tasks.support.paths import from_checkout
from tasks.support.process import capture
from tasks.support.settings import CHECKOUT

DOCKER = CHECKOUT / "docker"
HADOLINT = Path(sys.executable).with_name("hadolint")
_TIMEOUT = 120.0
# Set on somebody's machine, they would make the same file good here and bad there.
_FOREIGN = (
    "CONFIG", "DISABLE_IGNORE_PRAGMA", "FAILURE_THRESHOLD", "FORMAT", "IGNORE", "NOFAIL", "OVERRIDE_ERROR",
    "OVERRIDE_INFO", "OVERRIDE_STYLE", "OVERRIDE_WARNING", "REQUIRE_LABELS", "STRICT_LABELS", "TRUSTED_REGISTRIES",
    "VERBOSE",
)  # fmt: skip


@dataclass(frozen=True, order=True)
class Finding:
    """What is wrong at a line of a file: the rule that says so, and why in one sentence."""

    file: str
    line: int
    rule: str
    message: str

    def __str__(self) -> str:
        """Return the finding as compilers write theirs, so that editors can jump to it."""
        return f"{self.file}:{self.line}: {self.rule}: {self.message}"


def lint(catalogue: Catalogue, folder: Path = DOCKER, *, hadolint: Path = HADOLINT) -> tuple[Finding, ...]:
    """Return everything wrong with the folder's Dockerfiles, by file and line; none is changed.

    ConfigurationError when hadolint is not installed beside this python.
    """
    files = sorted(path for path in folder.glob("Dockerfile*") if path.suffix != lint_rules.IGNORE_SUFFIX)
    users = {path: tuple(image for image in catalogue.images.values() if _is_built_from(image, path)) for path in files}
    found = [*(row for path in files for row in own_findings(path, users[path])), *_ask_hadolint(files, hadolint)]
    return tuple(sorted(set(found)))


def require_clean(findings: Sequence[Finding]) -> None:
    """Raise DataError (65) when there is a finding."""
    if findings:
        files = len({finding.file for finding in findings})
        raise DataError(
            f"{console.plural(len(findings), 'finding')} in {console.plural(files, 'Dockerfile')}",
            hint="correct them, and run images.lint again",
        )


def own_findings(path: Path, images: Sequence[Image]) -> Iterator[Finding]:
    """Yield what our own rules say about a file that these images are built from."""
    try:
        parsed = dockerfile.read(path)
        yield from _judged(parsed, path, images)
    except DataError as error:
        yield Finding(from_checkout(path), 1, "readable", error.message)


def _judged(parsed: Dockerfile, path: Path, images: Sequence[Image]) -> Iterator[Finding]:
    ignored = path.with_name(path.name + lint_rules.IGNORE_SUFFIX)
    stages = {None, *(stage.name for stage in parsed.stages)}
    for image in images:
        if image.target not in stages:
            yield Finding(
                from_checkout(path),
                1,
                "targets",
                f"image {image.name} is target {image.target}, which is no stage",
            )
    subject = Subject(
        parsed=parsed,
        targets=tuple(dict.fromkeys(image.target for image in images if image.target in stages)),
        of_tool=any(image.context is Folder.TOOL for image in images),
        ignored=tuple(ignored.read_text(encoding="utf-8").splitlines()) if ignored.is_file() else (),
    )
    if not images:
        yield Finding(from_checkout(path), 1, "used", "no image of docker/images.yml is built from this file")
        return
    for rule, check in lint_rules.RULES.items():
        for line, message in check(subject):
            yield Finding(from_checkout(path), line, rule, message)
    for image in images:
        for name in (*image.args, *([BASE] if image.base else [])):
            if name not in parsed.arguments:
                yield Finding(
                    from_checkout(path), 1, "arguments", f"image {image.name} gives {name}, which has no ARG here"
                )


def _is_built_from(image: Image, path: Path) -> bool:
    return isinstance(image.context, Folder) and CHECKOUT / image.dockerfile == path


def _ask_hadolint(files: Iterable[Path], program: Path) -> Iterator[Finding]:
    chosen = [str(path) for path in files]
    if not chosen:
        return
    if not program.is_file():
        raise ConfigurationError(
            f"hadolint is not installed ({program})",
            hint="install the dependency group 'release': scripts/bootstrap.py",
        )
    argv: Argv = (program, "--no-fail", "--no-color", "--format", "json", "--config", DOCKER / "hadolint.yaml", *chosen)
    changes = {f"HADOLINT_{name}": None for name in _FOREIGN}
    answer = capture(argv, cwd=CHECKOUT, env={**changes, "NO_COLOR": None}, timeout=_TIMEOUT)
    try:
        for row in json.loads(answer.stdout):
            yield Finding(from_checkout(Path(row["file"])), int(row["line"]), str(row["code"]), str(row["message"]))
    except (ValueError, KeyError, TypeError) as error:
        raise OmniError(
            f"hadolint's answer cannot be read: {error!r}", hint="its version may be new; report this"
        ) from error
