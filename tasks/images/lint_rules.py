"""Our own rules for Dockerfiles, each a function from a file to the lines that break it.

A rule is here only when hadolint has none like it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tasks.images.dockerfile import Dockerfile, Instruction, Stage
from tasks.support.redaction import is_secret_name

IGNORE_SUFFIX = ".dockerignore"
TOOL = "/opt/omni-ci"
GIVEN_LABELS = frozenset(f"org.opencontainers.image.{name}" for name in ("revision", "version", "source", "created"))
TITLE = "org.opencontainers.image.title"
SECRET_PATHS = (".git/config", ".git/logs")

_ARGUMENT = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_DIRECTIVE = re.compile(r"^\s*#\s*(syntax|escape|check)\s*=", re.IGNORECASE)
_URL = re.compile(r"\b(?:https?|ftp|git)://[^\s\"']+", re.IGNORECASE)
_LOGIN = re.compile(r"://[^/\s\"'$]*@")
_INDEX_OPTION = re.compile(
    r"(?:--(?:extra-)?index-url|--default-index|--index|--find-links|--registry|(?<=\s)-[if])[ =]+[\"']?(?=[a-z]+://)"
)
_INDEX_NAME = re.compile(r"(?:INDEX|INDEX_URL|FIND_LINKS|GOPROXY|REGISTRY|MIRROR)$", re.IGNORECASE)
_INDEX_SHAPE = re.compile(r"/simple/?(?:[\s\"']|$)|\bdeb(?:-src)?\s+(?:\[[^]]*\]\s+)?[a-z]+://", re.IGNORECASE)
_DOWNLOAD = re.compile(r"(?:^|[\s;&|(])(?:curl|wget)\s")
_CHECKSUM = re.compile(r"\bsha(?:256|512)sum\b[^;&|]*(?:-c\b|--check\b)")
_CACHE_NAME = re.compile(r"(?:_CACHE|_CACHE_DIR|_CACHE_ROOT|CACHE_HOME|^HF_HOME|^HF_DATASETS_CACHE)$")
_OF_ROOT = re.compile(r"^(?:/root(?:/|$)|~|\$\{?HOME\b)")

Broken = Iterator[tuple[int, str]]


@dataclass(frozen=True)
class Subject:
    """A file to judge: parsed, the targets that images are made from, and what its ignore file leaves out."""

    parsed: Dockerfile
    targets: tuple[str | None, ...]
    of_tool: bool = False
    ignored: tuple[str, ...] = ()

    @property
    def lineages(self) -> Iterator[tuple[str, Stage, tuple[Instruction, ...]]]:
        """Yield each target's shown name, its last stage, and all its instructions, those of earlier stages first."""
        for target in self.targets:
            stages = self.parsed.lineage(target)
            yield target or "the last stage", stages[-1], tuple(step for stage in stages for step in stage.body)


def base_is_argument(subject: Subject) -> Broken:
    """A base is `${NAME}` of an ARG before the first FROM, an earlier stage, or scratch: the catalogue says which."""
    declared = {name for step in subject.parsed.head if step.name == "ARG" for name, _ in step.assignments}
    stages: set[str | None] = {"scratch"}
    for stage in subject.parsed.stages:
        found = _ARGUMENT.fullmatch(stage.base)
        if stage.base not in stages and (found is None or found[1] not in declared):
            yield stage.start.line, f"the base {stage.base} is no ${{ARGUMENT}} declared before the first FROM"
        stages.add(stage.name)
        for step in stage.body:
            for source in _sources(step):
                if source not in stages and not source.isdigit():
                    yield step.line, f"--from={source} is no stage: make it one, FROM an argument"


def base_without_default(subject: Subject) -> Broken:
    """An argument of a base has no default: two places that pin a version would drift apart."""
    for step in subject.parsed.head:
        for name, default in step.assignments if step.name == "ARG" else ():
            if default:
                yield step.line, f"{name} has a default; docker/images.yml and docker/pins.yml say what it is"


def no_directive(subject: Subject) -> Broken:
    """No `# syntax=`: it is an image that every build would pull; our parser knows no other escape either."""
    for number, line in enumerate(subject.parsed.text.splitlines(), 1):
        if not line.strip():
            continue
        if not line.lstrip().startswith("#"):
            return
        found = _DIRECTIVE.match(line)
        if found:
            yield number, f"a '{found[1].lower()}' directive"


def no_secret(subject: Subject) -> Broken:
    """No secret in ARG, ENV or LABEL, nor in an address: all of them can be read in the image's history."""
    for step in subject.parsed.instructions:
        if step.name in {"ARG", "ENV", "LABEL"}:
            for name, _ in step.assignments:
                if is_secret_name(name):
                    yield step.line, f"{step.name} {name} would keep a secret in the image: use RUN --mount=type=secret"
        if _LOGIN.search("\n".join((step.rest, *step.documents))):
            yield step.line, "an address with a login in it"


def no_fixed_index(subject: Subject) -> Broken:
    """A package index is an argument without a default: agents and countries have their own."""
    for step in subject.parsed.instructions:
        text = "\n".join((step.rest, *step.documents))
        if step.name in {"ARG", "ENV"}:
            for name, value in step.assignments:
                if value and _INDEX_NAME.search(name) and _URL.search(value):
                    yield step.line, f"{name} has a fixed address"
        elif _INDEX_OPTION.search(f" {text}") or any(
            _URL.search(word) and _INDEX_NAME.search(word.partition("=")[0]) for word in text.split() if "=" in word
        ):
            yield step.line, "a fixed package index"
        if step.name not in {"LABEL"} and _INDEX_SHAPE.search(text):
            yield step.line, "an address that looks like a package index"


def no_add_of_address(subject: Subject) -> Broken:
    """No ADD from an address: nothing checks what comes, and it is fetched again at each build."""
    for step in subject.parsed.instructions:
        if step.name == "ADD" and any(_URL.match(word) or word.startswith("git@") for word in step.operands[:-1]):
            yield step.line, "ADD from an address: download it in a RUN that checks its sha256"


def downloads_are_checked(subject: Subject) -> Broken:
    """What curl or wget fetch is checked against a sha256 in the same step."""
    for step in subject.parsed.instructions:
        text = "\n".join((step.rest, *step.documents))
        if step.name == "RUN" and _DOWNLOAD.search(text) and _URL.search(text) and not _CHECKSUM.search(text):
            yield step.line, "a download that no `sha256sum --check` follows"


def labels(subject: Subject) -> Broken:
    """Each target has a title of its own, for that of its base is about another image; the build gives the rest."""
    for name, stage, steps in subject.lineages:
        set_here = {label for step in steps if step.name == "LABEL" for label, _ in step.assignments}
        if TITLE not in set_here:
            yield stage.start.line, f"{name} has no LABEL {TITLE}"
    for step in subject.parsed.instructions:
        for label, _ in step.assignments if step.name == "LABEL" else ():
            if label in GIVEN_LABELS:
                yield step.line, f"{label} is given by the build, from the source's commit"


def carries_tool(subject: Subject) -> Broken:
    """Each target has this tool, from its own image, and sets it up."""
    if subject.of_tool:
        return
    for name, stage, steps in subject.lineages:
        copied = any(step.name == "COPY" and "tool" in _sources(step) and TOOL in step.operands for step in steps)
        tool_stage = any(other.name == "tool" and other.base == "${TOOL_IMAGE}" for other in subject.parsed.stages)
        if not copied or not tool_stage:
            yield stage.start.line, f"{name} has no COPY --from=tool {TOOL} of a stage FROM ${{TOOL_IMAGE}}"
        elif not _runs(steps, "image_tool.py"):
            yield stage.start.line, f"{name} does not run image_tool.py, without which there is no omni-ci"


def checks_itself(subject: Subject) -> Broken:
    """Each target's last installation is followed by image_checks.py, so that a broken image is never tagged."""
    if subject.of_tool:
        return
    for name, stage, steps in subject.lineages:
        installs = [number for number, step in enumerate(steps) if step.name == "RUN" and "pip install" in step.rest]
        last = steps[installs[-1] :] if installs else steps
        if not _runs(last, "image_checks.py"):
            yield stage.start.line, f"{name} does not run image_checks.py after its last installation"


def caches_for_all(subject: Subject) -> Broken:
    """Caches are where every user id can write: XDG_CACHE_HOME has mode 1777, and no cache is in root's home."""
    if subject.of_tool:
        return
    for name, stage, steps in subject.lineages:
        set_here = {key: value for step in steps if step.name == "ENV" for key, value in step.assignments}
        if "XDG_CACHE_HOME" not in set_here:
            yield stage.start.line, f"{name} sets no XDG_CACHE_HOME, so that caches are in root's home"
        elif not any(step.name == "RUN" and "1777" in step.rest and "XDG_CACHE_HOME" in step.rest for step in steps):
            yield stage.start.line, f"{name} does not make XDG_CACHE_HOME with mode 1777"
    for step in subject.parsed.instructions:
        for key, value in step.assignments if step.name == "ENV" else ():
            if _CACHE_NAME.search(key) and _OF_ROOT.match(value or ""):
                yield step.line, f"{key} is in root's home, where other users cannot write"


def context_is_filtered(subject: Subject) -> Broken:
    """A copy of the whole source leaves out what git keeps of its remote's address, which can hold a credential."""
    if subject.of_tool:
        return
    for step in subject.parsed.instructions:
        if step.name == "COPY" and not _sources(step) and any(word in {".", "./", "/"} for word in step.operands[:-1]):
            for path in SECRET_PATHS:
                if path not in subject.ignored:
                    yield step.line, f"the whole source is copied, and no {IGNORE_SUFFIX} beside this file has {path}"


RULES: Mapping[str, Callable[[Subject], Broken]] = MappingProxyType(
    {
        "base-is-argument": base_is_argument,
        "base-without-default": base_without_default,
        "no-directive": no_directive,
        "no-secret": no_secret,
        "no-fixed-index": no_fixed_index,
        "no-add-of-address": no_add_of_address,
        "checked-downloads": downloads_are_checked,
        "labels": labels,
        "carries-tool": carries_tool,
        "checks-itself": checks_itself,
        "caches-for-all": caches_for_all,
        "filtered-context": context_is_filtered,
    }
)


def _sources(step: Instruction) -> tuple[str, ...]:
    """Return what an instruction copies or mounts from, beside the context."""
    if step.name in {"COPY", "ADD"}:
        return tuple(flag.removeprefix("--from=") for flag in step.flags if flag.startswith("--from="))
    mounts = (flag for flag in step.flags if step.name == "RUN" and flag.startswith("--mount="))
    return tuple(
        part.removeprefix("from=")
        for mount in mounts
        for part in mount.split("=", 1)[1].split(",")
        if part[:5] == "from="
    )


def _runs(steps: tuple[Instruction, ...], script: str) -> bool:
    return any(step.name == "RUN" and script in step.rest for step in steps)
