"""What the pipelines tasks show: tables for people on stderr, and pipelines or JSON on stdout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tasks.pipelines import explaining
from tasks.support import console

if TYPE_CHECKING:
    from tasks.pipelines.bootstrapping import Bootstrapped
    from tasks.pipelines.checks.findings import Finding
    from tasks.pipelines.comparing import Change
    from tasks.pipelines.explaining import Explanation
    from tasks.pipelines.installing import Installed, Lock


def explained(explanation: Explanation, *, json: bool = False, annotation: bool = False) -> None:
    """Show every step with its reason, and on stdout the same as JSON or Markdown when asked."""
    decisions(explanation)
    if annotation:
        console.emit_text(explaining.annotation(explanation))
    if json:
        console.emit_json(explaining.as_data(explanation))


def decisions(explanation: Explanation) -> None:
    """Show every step with its reason, and what the change set left out."""
    for line in explaining.lines(explanation):
        console.say(line)
    if explanation.changes.notice is not None:
        console.warn(explanation.changes.notice)


def pipeline(document: Mapping[str, Any], *, json: bool) -> None:
    """Print a pipeline on stdout, as YAML or JSON."""
    from tasks.pipelines.writing import to_json, to_yaml

    console.emit_text((to_json(document) if json else to_yaml(document)).removesuffix("\n"))


def bootstrapped(found: Bootstrapped) -> None:
    """Show each image and tier of a device's first pipeline with its reason."""
    width = max(len(part.name) for part in found.parts)
    for part in found.parts:
        console.say(f"  {'run' if part.keep else 'drop':<4}  {part.name:<{width}}  {part.reason.text}")
    console.say(f"{console.plural(len(found.steps), 'step')} begin {found.device}")


def bootstrapped_data(found: Bootstrapped) -> dict[str, Any]:
    """Return each image and tier of a device's first pipeline for machines."""
    parts = [
        {
            "name": part.name,
            "key": part.key,
            "run": part.keep,
            "why": part.reason.why.value,
            "reason": part.reason.text,
        }
        for part in found.parts
    ]
    return {"device": found.device, "steps": len(found.steps), "parts": parts}


def differences(found: tuple[Change, ...], *, json: bool) -> None:
    """Show what differs between two pipelines, step by step."""
    from tasks.pipelines.comparing import lines

    for line in lines(found):
        console.say(line)
    console.say(f"{console.plural(len(found), 'difference')}" if found else "the same pipeline")
    if json:
        rows = [{"how": one.how.name.lower(), "name": one.name, "details": one.details} for one in found]
        console.emit_json({"changes": rows})


def findings(found: Sequence[Finding], *, json: bool) -> None:
    """Show what a check found, each on a line that editors can jump to, and how many there are of each level."""
    from tasks.pipelines.checking import as_json

    for finding in found:
        named = not finding.step or finding.text.startswith(finding.step)
        step = "" if named else f"{finding.step}: "
        console.say(f"{finding.where}: {finding.level.value}: {step}{finding.text} [{finding.rule}]")
        if finding.hint:
            console.say(f"  {finding.hint}")
    counts = [(level, sum(one.level.value == level for one in found)) for level in ("error", "warning")]
    counted = " and ".join(console.plural(count, level) for level, count in counts if count)
    console.say(counted or "nothing is wrong")
    if json:
        console.emit_json({"findings": as_json(found)})


def installation_plan(files: Sequence[Installed], archive: str | None) -> list[console.Action]:
    """Return what an installation would write."""
    rows = [("write", str(file.path), file.state.value) for file in files if file.state.value != "same"]
    return [*rows, *([("write", archive, "the tool's archive")] if archive is not None else [])]


def checked(lock: Lock, source: Path, *, json: bool) -> None:
    """Say that a checkout holds what this tool installs."""
    console.say(f"{source} holds what pipelines.install writes, for commit {lock.commit}")
    if json:
        console.emit_json({"source": str(source), "commit": lock.commit, "sha256": lock.sha256})


def installation(files: Sequence[Installed], *, json: bool, archive: Path | None = None) -> None:
    """Show what was written into the library's checkout."""
    for file in files:
        console.say(f"wrote {file.path}")
    if not files:
        console.say("the entry pipelines and the lock are as they should be")
    if archive is not None:
        console.say(f"the tool's archive: {archive}")
    if json:
        written = [{"path": str(file.path), "state": file.state.value} for file in files]
        console.emit_json({"files": written, "archive": str(archive) if archive else None})
