"""What the images tasks show: tables for people on stderr, and JSON on stdout when asked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from tasks.support import console

if TYPE_CHECKING:
    from tasks.images.building import Built
    from tasks.images.catalogue import Catalogue
    from tasks.images.disk import DiskPlan, DiskReport, Removal
    from tasks.images.indexing import Indexed
    from tasks.images.linting import Finding
    from tasks.images.planning import BuildPlan


def catalogue(found: Catalogue, *, json: bool) -> None:
    """Show every image of the catalogue."""
    from tasks.images import listing

    console.table(listing.COLUMNS, listing.rows(found))
    if json:
        console.emit_json({"images": listing.as_data(found)})


def build_actions(plans: Iterable[BuildPlan], *, last: str) -> list[console.Action]:
    """Return the rows of what a build will do; ``last`` is the image that was asked for."""
    rows = []
    for plan in plans:
        why = "asked for" if plan.image == last else f"{last} is built from it"
        again = ", unless it is there" if plan.reusable else ""
        rows.append(
            (f"build {plan.image}", ", ".join(plan.tags), f"{why}{again} · {plan.platform}, {plan.engine.value}")
        )
        if plan.push:
            rows += [("push", tag, "--push") for tag in plan.tags]
    return rows


def build_plans(plans: Iterable[BuildPlan]) -> None:
    """Show what a build will do, one line for each image."""
    for plan in plans:
        target = f", target {plan.target}" if plan.target else ""
        console.say(f"{plan.image} for {plan.platform} with {plan.engine.value}{target}: {', '.join(plan.tags)}")


def built(results: Sequence[Built], index: Indexed | None = None, *, json: bool) -> None:
    """Show what became of each build, and of the index of all platforms where there is one."""
    rows = []
    for result in results:
        what = "there already" if result.reused else "pushed" if result.plan.push else "built"
        digest = result.digest or result.image_id or "in the builder only"
        rows.append(
            (result.plan.image, str(result.plan.platform), what, digest, console.span(result.seconds), result.plan.tags)
        )
    console.table(("image", "platform", "", "digest or image id", "time", "tags"), rows)
    for result in results:
        if result.digest:
            console.say(f"docker pull {result.plan.repository}@{result.digest}")
    if index is not None:
        tags = ", ".join(index.tags)
        waits = f"waits for {', '.join(index.waits_for)}, of which nothing is pushed yet"
        console.say(f"{tags}, index of {', '.join(index.platforms)}: {index.digest or waits}")
    if json:
        indexes = [index.as_json()] if index is not None else []
        console.emit_json({"images": [result.as_json() for result in results], "indexes": indexes})


def disk_plan(plan: DiskPlan) -> None:
    """Show how full the engine's disk is and what would go."""
    use = plan.use
    share = "not visible from here" if use.share is None else f"{use.share:.0%} used"
    free = "" if use.free is None else f", {console.size(use.free)} free"
    console.say(f"{use.root}: {share}{free} · {plan.address}")
    held = (
        ("images", use.images),
        ("containers", use.containers),
        ("volumes", use.volumes),
        ("build cache", use.cache),
    )
    console.say("the engine holds " + ", ".join(f"{name} {console.size(size)}" for name, size in held))
    console.say(f"{'removing' if plan.due else 'removing nothing'}: {plan.why}")


def disk_report(report: DiskReport, *, json: bool) -> None:
    """Show what was removed and what stayed after all."""
    rows = [(item.kind.value, item.name, console.size(item.size), item.why) for item in report.removed]
    if rows:
        console.table(("removed", "name", "size", "why"), rows)
    for item, reason in report.kept:
        console.warn(f"{item.kind.value} {item.name} stays: {reason}")
    after = "" if report.share_after is None else f", {report.share_after:.0%} used now"
    console.say(f"{console.plural(len(report.removed), 'thing')} removed{after}")
    if json:
        console.emit_json(disk_data(report))


def disk_data(report: DiskReport) -> dict[str, object]:
    """Return a report of disk care for machines."""
    return {
        "data_root": str(report.plan.use.root),
        "share": report.plan.use.share,
        "share_after": report.share_after,
        "due": report.plan.due,
        "why": report.plan.why,
        "removed": [_removal(item) for item in report.removed],
        "kept": [{**_removal(item), "reason": reason} for item, reason in report.kept],
    }


def _removal(item: Removal) -> dict[str, object]:
    return {"kind": item.kind.value, "name": item.name, "size": item.size, "why": item.why}


def findings(found: Sequence[Finding], *, json: bool) -> None:
    """Show what is wrong with the Dockerfiles, each on a line that editors can jump to."""
    for finding in found:
        console.say(str(finding))
    if not found:
        console.say("every Dockerfile is as it must be")
    if json:
        console.emit_json({"findings": [asdict(finding) for finding in found]})
