"""The pins task: recording what is downloaded."""

from __future__ import annotations

from typing import Any

from tasks.support.task import task


@task(
    example="pins.set buildctl",
    help={
        "name": "a download of docker/pins.yml, for example buildctl",
        "replace": "record another digest than the present one",
        "dry_run": "print the plan and stop",
        "json": "print the digests as JSON on stdout",
    },
)
def set(_ctx: Any, name: str, replace: bool = False, dry_run: bool = False, json: bool = False) -> None:  # noqa: A001 - the task's name
    """Record a download's sha256, computed from what is fetched."""
    from tasks.pins import recording
    from tasks.support import console

    plan = recording.plan_pin(name)
    if dry_run:
        console.dry_run(plan.actions(), json=json)
        return
    found = recording.execute_pin(plan, replace=replace)
    console.table(("platform", "sha256"), [*found.items()])
    console.say(f"recorded in {recording.FILE}: commit it")
    if json:
        console.emit_json({"download": name, "version": plan.pin.version, "sha256": found})
