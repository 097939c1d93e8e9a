"""Carries out a build's plan: the builder as a child process, then the push, and what the registry has afterwards."""

from __future__ import annotations

import json
import re
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks.images import build_log, buildctl, tool_context
from tasks.images.buildctl import fields
from tasks.images.catalogue import Catalogue
from tasks.images.catalogue import Engine as Builder
from tasks.images.clients import Client, find_client
from tasks.images.docker_config import as_login, find_logins, private_config
from tasks.images.engine import Engine, open_engine
from tasks.images.pins import DownloadPin
from tasks.images.planning import BASE, BuildPlan, ToolFacts
from tasks.registry.credentials import find_credential
from tasks.registry.opening import open_repository
from tasks.registry.references import DOCKER_HUB, RepositoryName, check_digest, is_digest
from tasks.support import console, paths, process
from tasks.support.command_line import Argv, Changes
from tasks.support.errors import (
    DataError,
    MissingInputError,
    OmniError,
    RemoteChangedError,
    ServiceRefusedError,
    TemporaryError,
)
from tasks.support.next_steps import command
from tasks.support.settings import Settings

PAUSES = (5.0, 20.0)
"""Seconds before a build is tried again whose base could not be pulled; after the last one it has failed."""

_INLINE = "type=inline"
_INLINE_CACHE = "BUILDKIT_INLINE_CACHE=1"  # what a client without buildx calls it
_CACHE_REF = re.compile(r"(?:^|,)ref=([^,]+)")


@dataclass(frozen=True)
class Built:
    """What became of a plan. ``image_id`` is the engine's, ``digest`` the registry's; each None where there is none."""

    plan: BuildPlan
    image_id: str | None
    digest: str | None
    reused: bool
    seconds: float
    log: Path | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the result as machine output."""
        return {
            "image": self.plan.image,
            "platform": str(self.plan.platform),
            "tags": list(self.plan.tags),
            "image_id": self.image_id,
            "digest": self.digest,
            "pushed": self.plan.push,
            "reused": self.reused,
            "seconds": round(self.seconds, 1),
            "log": str(self.log) if self.log else None,
        }


def build_all(
    plans: Sequence[BuildPlan], settings: Settings, catalogue: Catalogue, tool: ToolFacts | None = None
) -> list[Built]:
    """Carry out plans in their order: each may be built from the ones before. Ends at the first failure.

    ``tool`` is what an image of this tool is made from; its folder is prepared when one is really built.
    """
    return [build(plan, settings, catalogue, tool=tool) for plan in plans]


def build(
    plan: BuildPlan,
    settings: Settings,
    catalogue: Catalogue,
    *,
    tool: ToolFacts | None = None,
    logs: Path = build_log.LOGS,
    pauses: Sequence[float] = PAUSES,
) -> Built:
    """Build one plan, push it when it says so, and read back what the registry has.

    The builder's output is shown as it comes and kept in a file in ``logs``. Raises DataError when the recipe
    fails, TemporaryError when a base could not be pulled after ``pauses``, ServiceRefusedError without an engine,
    RemoteChangedError when a pushed tag points at something else afterwards.
    """
    where = None
    if plan.engine is Builder.BUILDCTL:
        where = buildctl.choose_remote(settings, catalogue.buildkitd)
        settings = where.with_logins(settings)
    run = _Run(plan, settings, logs, tuple(pauses), time.monotonic())
    there = run.reusable()
    if there is not None:
        return there
    if tool is not None and plan.context == tool.folder:
        tool_context.prepare(tool)
    return run.remote(where, catalogue.pins.downloads["buildctl"]) if where else run.local()


def push_built(plan: BuildPlan, settings: Settings) -> Built:
    """Push what an earlier build left in the engine; MissingInputError when it holds no such image of this recipe."""
    started = time.monotonic()
    with open_engine(settings) as engine:
        found = {tag: engine.image(tag) for tag in plan.tags}
        for tag, image in found.items():
            labels = ((image or {}).get("Config") or {}).get("Labels") or {}
            differing = [name for name, value in plan.labels.items() if labels.get(name) != value]
            if image is None or differing:
                what = f"{tag} of another build ({', '.join(differing)} differ)" if image else f"no {tag}"
                again = command("images.build", plan.image, flags=("platform", "source", "commit", "profile"))
                raise MissingInputError(f"the engine holds {what}", hint=f"build it first: {again}")
        digest = push_tags(plan, engine, settings)
        image_id = str(next(iter(found.values()), None) and engine_id(engine, plan.tags[0]))
    verify(plan, digest, settings)
    return Built(plan, image_id, digest, False, time.monotonic() - started)


def engine_id(engine: Engine, tag: str) -> str | None:
    """Return the id of a local image, or None."""
    found = engine.image(tag)
    return str(found["Id"]) if found else None


def push_tags(plan: BuildPlan, engine: Engine, settings: Settings) -> str:
    """Push every tag of a plan from the engine, with a bar, and return the digest that all of them have."""
    name = RepositoryName.parse(plan.repository)
    login = as_login(find_credential(name.registry or "", settings))
    found = {}
    for tag in plan.tags:
        size = int((engine.image(tag) or {}).get("Size") or 0)
        console.say(f"pushing {tag} ({console.size(size)} unpacked)")
        with console.progress("pushing", size) as advance:
            found[tag] = engine.push(plan.repository, tag.rpartition(":")[2], login, advance)
    digests = sorted(set(found.values()))
    if len(digests) != 1:
        raise RemoteChangedError(
            f"the tags of {plan.image} were pushed with different digests: {', '.join(digests)}",
            hint="another build moved one of them meanwhile; run this again",
        )
    return check_digest(digests[0])


def verify(plan: BuildPlan, digest: str, settings: Settings) -> None:
    """Read every pushed tag back; RemoteChangedError when one points at something else than was pushed."""
    repository = open_repository(plan.repository, settings)
    for tag in plan.tags:
        found = repository.head(tag.rpartition(":")[2])
        if found is None:
            raise ServiceRefusedError(f"{tag} is not there although its push succeeded", hint="push it again")
        if found.digest != digest:
            raise RemoteChangedError(
                f"{tag} is {found.digest}, but {digest} was pushed",
                hint="another job pushed the same tag; run this again",
            )


def registries_of(plan: BuildPlan) -> set[str]:
    """Return the registries that a build talks to: for its tags, its base, its caches, and DockerHub as the default."""
    texts = [plan.repository, *(text for text in plan.args.values() if "/" in text), plan.args.get(BASE, "")]
    caches = [found[1] for text in (*plan.cache_from, *plan.cache_to) for found in _CACHE_REF.finditer(text)]
    return {DOCKER_HUB, *(host for text in (*texts, *caches) for host in _registry(text))}


def _registry(text: str) -> Iterator[str]:
    head, slash, last = text.partition("@")[0].rpartition("/")
    try:
        name = RepositoryName.parse(f"{head}{slash}{last.partition(':')[0]}")
    except OmniError:  # an argument that is no image
        return
    if name.registry:
        yield name.registry


def docker_argv(plan: BuildPlan, client: Client, result: Path, *, host_network: bool = False) -> Argv:
    """Return the line that builds a plan with a docker client; pure. ``result`` is where it writes what it made.

    Proxies are named only: the client takes their values from its environment, so that none is in an argument.
    """
    options: list[tuple[str, str | Path | None]] = [
        ("--progress", "plain"),
        ("--file", plan.dockerfile),
        ("--platform", str(plan.platform)),
        ("--target", plan.target),
        ("--network", "host" if host_network else None),
        *(("--build-arg", f"{name}={value}") for name, value in plan.args.items()),
        *(("--build-arg", name) for name in plan.proxies),
        ("--build-arg", _INLINE_CACHE if not client.has_buildx and _INLINE in plan.cache_to else None),
        *(("--label", f"{name}={value}") for name, value in plan.labels.items()),
        *(("--tag", tag) for tag in plan.tags),
        *(("--secret", fields(id=secret.id, src=str(secret.file))) for secret in plan.secrets),
        *(("--cache-from", text) for text in _caches(plan, client)),
        *(("--cache-to", text) for text in (plan.cache_to if client.has_buildx else ())),
        *(("--output", text) for text in (_outputs(plan, client))),
        ("--metadata-file" if client.has_metadata_file else "--iidfile", result),
    ]
    words = [word for name, value in options if value is not None for word in (name, value)]
    return [*client.build, *words, str(plan.context)]


def _outputs(plan: BuildPlan, client: Client) -> tuple[str, ...]:
    """Return where the result goes. A client without buildx can only leave it in the engine, which then pushes it."""
    if not client.has_buildx:
        return ()
    return plan.outputs if client.has_metadata_file else ("type=docker",)


def _caches(plan: BuildPlan, client: Client) -> list[str]:
    if client.has_buildx:
        return list(plan.cache_from)
    return [found[1] for text in plan.cache_from if (found := _CACHE_REF.search(text))]


@dataclass(frozen=True)
class _Run:
    plan: BuildPlan
    settings: Settings
    logs: Path
    pauses: tuple[float, ...]
    started: float

    def reusable(self) -> Built | None:
        """Return what is there already, when the plan's tag names its recipe and so can hold nothing else."""
        if not self.plan.reusable:
            return None
        tag = self.plan.tags[0]
        if self.plan.push:
            found = open_repository(self.plan.repository, self.settings).head(tag.rpartition(":")[2])
            return self._done(None, found.digest, reused=True) if found else None
        if self.plan.engine is Builder.BUILDCTL:
            return None
        with open_engine(self.settings) as engine:
            image_id = engine_id(engine, tag)
        return self._done(image_id, None, reused=True) if image_id else None

    def local(self) -> Built:
        """Build with the host's engine."""
        with open_engine(self.settings) as engine, self._private() as environment:
            client = find_client(self.settings)
            self._warn_of_emulation(engine)
            with _result_file() as result:
                argv = docker_argv(self.plan, client, result, host_network=not engine.has_bridge())
                changes = {**environment, **engine.endpoint.environment(), **self.plan.proxies, "DOCKER_BUILDKIT": "1"}
                log = self._execute(argv, changes)
                said = _read_result(result, log)
            image_id, digest = said.get("image"), said.get("digest") if self.plan.push else None
            if image_id is None and not self.plan.push:
                image_id = engine_id(engine, self.plan.tags[0])
            if self.plan.push and digest is None:
                digest = push_tags(self.plan, engine, self.settings)
        return self._checked(image_id, digest, log)

    def remote(self, where: buildctl.Remote, pin: DownloadPin) -> Built:
        """Build on a remote buildkitd."""
        program = buildctl.find_program(self.settings, pin)
        with self._private() as environment, _result_file() as result:
            log = self._execute(buildctl.build_argv(program, where, self.plan, result), environment)
            said = _read_result(result, log)
        return self._checked(None, said.get("digest"), log)

    @contextmanager
    def _private(self) -> Iterator[Changes]:
        logins = find_logins(self.settings, registries_of(self.plan))
        with private_config(self.settings, logins) as private:
            yield private.environment()

    def _warn_of_emulation(self, engine: Engine) -> None:
        own = engine.version().platform
        if own != str(self.plan.platform):
            console.warn(f"the engine's own platform is {own}: building for {self.plan.platform} needs emulation there")

    def _execute(self, argv: Argv, environment: Changes) -> Path:
        """Run the builder, again after a pause while only pulling a base failed; return the log of the last run."""
        for pause in (*self.pauses, None):
            log = build_log.new_log(self.logs, self.plan)
            console.say(f"log: {log}")
            with log.open("xb") as file, build_log.following(log):
                code = process.stream(argv, cwd=paths.current_folder(), env=environment, to_file=file, check=False)
            if not code:
                return log
            error = build_log.failure(self.plan.image, log.read_text("utf-8", "replace"), log)
            if pause is None or not isinstance(error, TemporaryError):
                raise error
            console.warn(f"{error.message}; trying again in {pause:g} s")
            time.sleep(pause)
        raise AssertionError  # the last turn has no pause: it returned or raised

    def _checked(self, image_id: str | None, digest: str | None, log: Path) -> Built:
        if self.plan.push:
            if digest is None:
                raise DataError(
                    f"the builder did not say which digest it pushed for {self.plan.image}", hint=f"see {log}"
                )
            verify(self.plan, digest, self.settings)
        return self._done(image_id, digest, log=log)

    def _done(
        self, image_id: str | None, digest: str | None, *, reused: bool = False, log: Path | None = None
    ) -> Built:
        return Built(self.plan, image_id, digest, reused, time.monotonic() - self.started, log)


@contextmanager
def _result_file() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="omni-ci-image-") as folder:
        yield Path(folder) / "result"


def _read_result(file: Path, log: Path) -> Mapping[str, str]:
    """Read what a builder wrote: an image id, or BuildKit's metadata. ``digest`` is that of what was pushed."""
    try:
        text = file.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise DataError("the builder ended well but did not say what it made", hint=f"see {log}") from error
    if is_digest(text):
        return {"image": text}
    try:
        document = json.loads(text)
        found = {"digest": document.get("containerimage.digest"), "image": document.get("containerimage.config.digest")}
    except (ValueError, AttributeError) as error:
        raise DataError("the builder's account of what it made cannot be read", hint=f"see {log}") from error
    return {key: check_digest(value) for key, value in found.items() if isinstance(value, str)}
