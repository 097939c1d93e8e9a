"""The first pipeline of a device's build: the image that its tests need, and a step that uploads each open tier.

Nothing here reads or writes anything: facts in, a pipeline and its reasons out. No name that a build brings with it
(its branch, its labels) gets into the pipeline: gates name the labels that our own data declares.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tasks.pipelines.build_facts import Build
from tasks.pipelines.dollar import double
from tasks.pipelines.expanding import expand
from tasks.pipelines.model import Reason, Why
from tasks.pipelines.skipping import Skip, SkipKind
from tasks.suites import gates
from tasks.suites.gates import Gate
from tasks.suites.presets import Presets
from tasks.suites.tiers import E2E, Bootstrap, Cell, ImageStep, OneStep, Tiers, chosen_cells, gate_of
from tasks.support.errors import UsageError

ANNOTATION_CONTEXT = "omni-ci-bootstrap"
_TOUCHED_ONLY = ("ready", "merge")  # tiers that a change of other cells' configuration does not concern


@dataclass(frozen=True)
class Start:
    """How a job outside our images gets this tool: words of a shell before ``omni-ci``, and what they read.

    ``prefix`` and the values of ``env`` are as a shell on the agent is to see them; dollars are doubled here.
    """

    prefix: str
    env: Mapping[str, str]


@dataclass(frozen=True)
class Part:
    """An image or a tier of the bootstrap, kept or left out, and the one reason for it.

    ``gate`` is what the step's ``if`` says; None where nothing is asked.
    """

    name: str
    key: str
    keep: bool
    reason: Reason
    gate: Gate | None = None


@dataclass(frozen=True)
class Bootstrapped:
    """A device's first pipeline. Without ``steps`` there is nothing to upload, and ``parts`` say why.

    ``not_covered`` are the tiers that nothing tests on this device.
    """

    device: str
    document: dict[str, Any]
    parts: tuple[Part, ...]
    not_covered: tuple[str, ...] = ()

    @property
    def steps(self) -> list[dict[str, Any]]:
        """Return the steps to upload."""
        found: list[dict[str, Any]] = self.document["steps"]
        return found

    @property
    def summary(self) -> str:
        """Return every part with its reason, in Markdown for an annotation; none of it comes from outside."""
        rows = (f"| {'run' if part.keep else 'drop'} | {part.name} | {part.reason.text} |" for part in self.parts)
        missing = ("", f"Nothing tests {', '.join(self.not_covered)} on {self.device}.") if self.not_covered else ()
        return "\n".join(("| | | |", "|---|---|---|", *rows, *missing))


def bootstrap(
    device: str,
    tiers: Tiers,
    presets: Presets,
    build: Build,
    skip: Skip | None = None,
    *,
    only: Sequence[str] = (),
    start: Start | None = None,
) -> Bootstrapped:
    """Return the first pipeline of a device's build.

    ``only`` are the tiers that ``--tier`` names: they run whole, whatever their gates and the skip decision say, since
    somebody asked for them; for a fork their gates count all the same. Tiers that do not run are left out, and so is
    their image, so that no step waits for what is not there. Raises UsageError for a device or tier that does not exist
    and for a tier that is named twice.
    """
    cells = chosen_cells(tiers, device, only)
    parts = tuple(_cell_part(cell, build, skip, chosen=bool(only)) for cell in cells)
    kept = [(cell, part) for cell, part in zip(cells, parts, strict=True) if part.keep]
    entry = tiers.bootstraps[device]
    maker = _Maker(entry, presets, start, build.fork)
    if entry.one_step is not None:
        steps = [maker.one_step(entry.one_step, part) for _, part in kept]
        parts = tuple(replace(part, key=entry.one_step.key) for part in parts)
        return Bootstrapped(device, _document(steps, start), parts, tiers.not_covered(device))
    images = tuple(_image_part(image, kept) for image in entry.images)
    keys = [image.key for image, part in zip(entry.images, images, strict=True) if part.keep]
    steps = [maker.image(image, part) for image, part in zip(entry.images, images, strict=True) if part.keep]
    for cell, part in kept:
        e2e = part.gate is not None and _only_e2e(cell, build, skip)
        steps.append(maker.upload(cell, part, keys, e2e=e2e))
    return Bootstrapped(device, _document(steps, start), (*images, *parts), tiers.not_covered(device))


def debug_tiers(value: str | None) -> tuple[str, ...]:
    """Return the tiers that DEBUG_TEST_YAML names: parted by commas, in any case, with spaces and a last comma allowed.

    Raises UsageError when it names none; unknown and doubled ones are the caller's ``bootstrap`` to refuse.
    """
    if value is None:
        return ()
    found = tuple(word.strip().lower() for word in value.split(",") if word.strip())
    if not found:
        raise UsageError(f"DEBUG_TEST_YAML names no tier: {value!r}", hint="for example: DEBUG_TEST_YAML=ready,merge")
    return found


def one_step_commands(step: OneStep) -> tuple[tuple[str, ...], ...]:
    """Return what one step on one host runs; ``suites.run`` arrives with the runner, and this is the only place it is.

    It builds the base where the host lacks it and the image, tests within the inner limit, and removes its own image
    and nothing else, also after a failure.
    """
    limit = ("--timeout", str(step.inner))
    return (("omni-ci", "suites.run", step.cell, "--in-image", "--build", "--remove-image", *limit),)


def is_skipped(cell: Cell, skip: Skip | None) -> bool:
    """Say whether a skip decision narrows a cell to the schedules on main.

    A change of CI configuration concerns the ready and merge tiers of other cells that way, and no nightly or weekly.
    """
    if skip is None or skip.kind is SkipKind.NONE:
        return False
    if skip.kind is SkipKind.CI_CONFIG:
        return cell.tier in _TOUCHED_ONLY and cell.name not in skip.cells
    return True


def skip_reason(cell: Cell, build: Build, skip: Skip | None) -> Reason | None:
    """Return why nothing of a cell runs, or None: what a schedule started on main runs whatever changed."""
    if skip is None or not is_skipped(cell, skip) or (build.is_main and build.schedules):
        return None
    return skip.reason


def _only_e2e(cell: Cell, build: Build, skip: Skip | None) -> bool:
    """Say whether ready or merge has its e2e group open and no other: their weekly run."""
    groups = [group.name for group in cell.open_groups(build, skipped=is_skipped(cell, skip))]
    return cell.tier in _TOUCHED_ONLY and groups == [E2E]


def _cell_part(cell: Cell, build: Build, skip: Skip | None, *, chosen: bool) -> Part:
    key = upload_key(cell)
    if chosen and not build.fork:
        return Part(cell.name, key, True, Reason(Why.CHOSEN, "asked for by name, whatever its gate"))
    skipped = is_skipped(cell, skip) and not chosen
    gate = gate_of(cell, skipped=skipped)
    opening = gates.opened_by(gate, build)
    if opening is not None:
        return Part(cell.name, key, True, Reason(Why.GATE, gates.described(opening)), gate)
    if skipped and skip is not None and gates.holds(cell.gate, build):
        return Part(cell.name, key, False, Reason(Why.SKIPPED, skip.reason.text))
    return Part(cell.name, key, False, Reason(Why.GATE, f"needs {gates.wanted(cell.gate)}"))


def _image_part(image: ImageStep, kept: Sequence[tuple[Cell, Part]]) -> Part:
    name = f"image {image.image}"
    if image.not_built:
        return Part(name, image.key, False, Reason(Why.HARDWARE, image.not_built))
    if not kept:
        return Part(name, image.key, False, Reason(Why.GATE, "no tier that runs needs it"))
    needed_by = Reason(Why.NEEDED, f"for {', '.join(cell.name for cell, _ in kept)}")
    open_gates = [part.gate for _, part in kept if part.gate is not None]
    gate = gates.union(open_gates) if len(open_gates) == len(kept) else None
    return Part(name, image.key, True, needed_by, gate)


def upload_key(cell: Cell) -> str:
    """Return the key of the step that uploads a cell; steps of the library's files depend on it."""
    return f"upload-{cell.tier}-pipeline"


def _document(steps: list[dict[str, Any]], start: Start | None) -> dict[str, Any]:
    env = {name: double(text) for name, text in start.env.items()} if start is not None and steps else {}
    return {"env": env, "steps": steps} if env else {"steps": steps}


@dataclass(frozen=True)
class _Maker:
    """Makes a device's steps."""

    entry: Bootstrap
    presets: Presets
    start: Start | None
    fork: bool

    def image(self, image: ImageStep, part: Part) -> dict[str, Any]:
        """Make the step that builds and pushes an image.

        The one step whose preset may hand out a login to a fork's build too: nothing of the fork's runs in it outside
        of the builder, and it is only there once somebody has put a label on the pull request.
        """
        words = ("omni-ci", "images.build", image.image, "--push", "--profile", "ci")
        body = {"label": image.title, "key": image.key, **self._when(part), "timeout_in_minutes": image.timeout}
        return self._step(body, [words], image.preset)

    def upload(self, cell: Cell, part: Part, needs: list[str], *, e2e: bool) -> dict[str, Any]:
        assert self.entry.upload is not None  # noqa: S101 - for the type checker: a bootstrap with images has it
        words = ["omni-ci", "pipelines.upload", "--cell", cell.name]
        if part.gate is None:
            words.append("--all")  # asked for by name: the upload is not to close the tier's gates again
        elif e2e:
            words.append("--e2e")
        body = {
            "label": f"Upload {cell.tier.capitalize()} Pipeline",
            "key": part.key,
            "depends_on": needs[0] if len(needs) == 1 else needs,
            **self._when(part),
            "timeout_in_minutes": self.entry.upload.timeout,
        }
        return self._step(body, [words], self.entry.upload.preset, trusted=not self.fork)

    def one_step(self, step: OneStep, part: Part) -> dict[str, Any]:
        body = {
            "label": step.title,
            "key": step.key,
            **self._when(part),
            "priority": step.priority,
            "timeout_in_minutes": step.timeout,
        }
        return self._step(body, one_step_commands(step), step.preset, trusted=not self.fork)

    @staticmethod
    def _when(part: Part) -> dict[str, str]:
        return {"if": double(gates.expression(part.gate))} if part.gate is not None else {}

    def _step(
        self, body: dict[str, Any], commands: Sequence[Sequence[str]], preset: str, *, trusted: bool = True
    ) -> dict[str, Any]:
        prefix = f"{self.start.prefix} " if self.start is not None else ""
        lines = [double(f"{prefix}{shlex.join(words)}") for words in commands]
        return expand({**body, "commands": lines}, self.presets.get(preset), trusted=trusted)
