"""What the wheels tasks print: plans and reports as tables on stderr, and as JSON on stdout when asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tasks.support import console
from tasks.wheels.drawing import Drawn
from tasks.wheels.index import Index
from tasks.wheels.rolling_back import RollbackPlan
from tasks.wheels.upload import UploadPlan, UploadReport
from tasks.wheels.views import Moved

if TYPE_CHECKING:
    from tasks.wheels.adopting import AdoptReport
    from tasks.wheels.building import BuildPlan, BuildResult
    from tasks.wheels.checking import CheckReport
    from tasks.wheels.pruning import PrunePlan, PruneReport
    from tasks.wheels.yanking import YankPlan

Action = tuple[str, str, str]


def dry_run(actions: Sequence[Action], *, json: bool) -> None:
    """Show a plan's actions in their order."""
    if actions:
        console.table(("action", "what", "why"), actions)
    console.say(f"dry run: {console.plural(len(actions), 'action')}, nothing was changed")
    if json:
        names = ("action", "what", "why")
        console.emit_json({"dry_run": True, "actions": [dict(zip(names, row, strict=True)) for row in actions]})


def build_plan(plan: BuildPlan) -> None:
    """Show what a build will do."""
    console.say(f"building {plan.source} at {plan.commit} for {plan.device}")
    for warning in plan.warnings:
        console.warn(warning)


def build_result(result: BuildResult, *, json: bool) -> None:
    """Show what a build made."""
    rows = [
        (fact.filename, console.size(fact.size), fact.variant or "default", f"sha256:{fact.sha256[:12]}")
        for fact in result.facts
    ]
    console.table(("file", "size", "variant", "digest"), rows)
    made = f"{console.plural(len(rows), 'file')} in {result.plan.dist}, built in {result.seconds:.1f} s"
    console.say(f"{made} · log: {result.log}")
    if json:
        console.emit_json(result.as_json())


def upload_plan(plan: UploadPlan) -> None:
    """Show the files of an upload."""
    rows = [
        (
            file.facts.filename,
            console.size(file.facts.size),
            file.facts.variant or "default",
            f"sha256:{file.facts.sha256[:12]}",
            file.standing.value,
        )
        for file in plan.files
    ]
    console.table(("file", "size", "variant", "digest", "state"), rows)
    console.say(f"commit {plan.commit} of {_moment(plan.time.moment)} ({plan.time.source.value})")
    for warning in plan.warnings:
        console.warn(warning)


def upload_report(index: Index, report: UploadReport, *, json: bool) -> None:
    """Show what an upload did and where to look."""
    new = len(report.plan.missing)
    if new or report.drawn.written:
        files = f"{console.plural(new, 'file')} uploaded, {console.plural(len(report.drawn.written), 'page')} drawn"
        console.say(f"{files} · {index.store.url}/{report.plan.commit}/")
    else:
        console.say("nothing to do: every file and page is there")
    if json:
        console.emit_json(
            {
                "commit": report.plan.commit,
                "files": [
                    {
                        "key": file.key,
                        "sha256": file.facts.sha256,
                        "size": file.facts.size,
                        "new": file in report.plan.missing,
                    }
                    for file in report.plan.files
                ],
                **_drawn(report.drawn),
            }
        )


def moved(index: Index, views: Sequence[Moved], *, json: bool) -> None:
    """Show what became of each view."""
    rows = [
        (view.view, view.outcome.value, view.reason, _pages(view.drawn), f"{index.store.url}/{view.view}/")
        for view in views
    ]
    console.table(("view", "outcome", "reason", "pages", "where"), rows)
    if json:
        console.emit_json(
            {
                "views": [
                    {"view": v.view, "outcome": v.outcome.name.lower(), "reason": v.reason, **_drawn(v.drawn)}
                    for v in views
                ]
            }
        )


def drawn(result: Drawn, *, json: bool) -> None:
    """Show what a drawing wrote and deleted."""
    if result.written or result.deleted:
        console.say(_pages(result))
    else:
        console.say("nothing to do: every page is up to date")
    if json:
        console.emit_json(_drawn(result))


def revisions(plan: RollbackPlan) -> None:
    """Show a view's history with the present revision and the one to go back to."""
    current = plan.state.current
    rows = []
    for revision in reversed(plan.state.revisions):
        mark = "now" if revision is current else "back to" if revision is plan.target else ""
        files = sum(sum(counts.values()) for counts in revision.counts.values())
        rows.append((mark, str(revision.number), _moment(revision.moved), revision.commit, str(files), revision.note))
    console.table(("", "revision", "moved", "commit", "files", "note"), rows)


def yank_plan(plan: YankPlan) -> None:
    """Show which files a yank is about and what becomes of each."""
    reason = plan.request.reason
    verdict = "no longer yanked" if reason is None else f"yanked: {reason}" if reason else "yanked"
    rows = [
        (record.filename, record.commit, verdict if record in plan.changed else f"already {verdict}")
        for record in plan.found
    ]
    console.table(("file", "commit", "becomes"), rows)


def findings(report: CheckReport, *, json: bool) -> None:
    """Show what a check found."""
    rows = [(found.severity.value, found.key, found.what, found.hint or "") for found in report.findings]
    if rows:
        console.table(("severity", "where", "what", "what to do"), rows)
    looked = f"{console.plural(report.pages, 'page')} and {console.plural(report.files, 'file')} looked at"
    console.say(f"{report.view}: {console.plural(len(rows), 'finding')}, {looked}")
    if json:
        names = ("severity", "key", "what", "hint")
        console.emit_json({"view": report.view, "findings": [dict(zip(names, row, strict=True)) for row in rows]})


def prune_plan(plan: PrunePlan) -> None:
    """Show which commits stay and which go."""
    rows = [(choice.verdict, choice.commit, choice.reason) for choice in plan.choices]
    console.table(("", "commit", "why"), rows)


def prune_report(report: PruneReport, *, json: bool) -> None:
    """Show what a prune deleted."""
    if report.commits:
        commits, deleted = console.plural(len(report.commits), "commit"), console.plural(len(report.deleted), "object")
        console.say(f"{commits} pruned, {deleted} deleted, {console.size(report.freed)} freed")
    else:
        console.say("nothing to do: every commit is needed or young")
    for commit, reason in report.kept:
        console.warn(f"{commit} was kept after all: {reason}")
    if json:
        kept = [{"commit": commit, "reason": reason} for commit, reason in report.kept]
        console.emit_json({"commits": report.commits, "deleted": report.deleted, "freed": report.freed, "kept": kept})


def adopted(report: AdoptReport, *, json: bool) -> None:
    """Show what was taken over; the caller raises for what was refused."""
    known = console.plural(len(report.known), "file")
    console.say(f"{console.plural(len(report.adopted), 'file')} adopted, {known} known before")
    for key, reason in report.refused:
        console.warn(f"{key}: {reason}")
    if json:
        refused = [{"key": key, "reason": reason} for key, reason in report.refused]
        console.emit_json({"adopted": list(report.adopted), "known": list(report.known), "refused": refused})


def _drawn(result: Drawn) -> dict[str, Any]:
    return {"written": list(result.written), "deleted": list(result.deleted)}


def _pages(result: Drawn) -> str:
    if not result.deleted:
        return f"{len(result.written)} drawn"
    return f"{len(result.written)} drawn, {len(result.deleted)} deleted"


def _moment(stamp: str) -> str:
    """Return a recorded moment to the second."""
    return f"{stamp[:10]} {stamp[11:19]} UTC"
