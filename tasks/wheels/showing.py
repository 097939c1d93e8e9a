"""What the wheels tasks print: plans and reports as tables on stderr, and as JSON on stdout when asked."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from packaging.utils import canonicalize_name

from tasks.support import console
from tasks.wheels.drawing import Drawn
from tasks.wheels.index import Index
from tasks.wheels.state import FileRecord, Revision, ViewState
from tasks.wheels.upload import Standing, UploadPlan, UploadReport
from tasks.wheels.views import Move, Moved, Outcome

if TYPE_CHECKING:
    from tasks.wheels.adopting import AdoptPlan, AdoptReport, Judged
    from tasks.wheels.building import BuildPlan, BuildResult
    from tasks.wheels.checking import CheckReport
    from tasks.wheels.distribution import DistributionFacts
    from tasks.wheels.pruning import PrunePlan, PruneReport
    from tasks.wheels.yanking import YankPlan

Action = tuple[str, str, str]

_HASH = re.compile(r"\b[0-9a-f]{40}\b")
_SHOWN_KEYS = 3


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


_COMPARED = {Standing.PUBLISHED: "already there: recorded with the same sha256, and the object has the same size"}


def upload_plan(index: Index, plan: UploadPlan) -> None:
    """Show the files of an upload."""
    rows = [
        (
            file.facts.filename,
            console.size(file.facts.size),
            file.facts.variant or "default",
            f"sha256:{file.facts.sha256[:12]}",
            _COMPARED.get(file.standing, file.standing.value),
        )
        for file in plan.files
    ]
    console.table(("file", "size", "variant", "digest", "state"), rows)
    console.say(f"commit {plan.commit} of {_moment(plan.time.moment)} ({plan.time.source.value})")
    for warning in (*plan.warnings, *_strangers(index, plan)):
        console.warn(warning)


def _strangers(index: Index, plan: UploadPlan) -> list[str]:
    """Return a sentence for each project that is not the configured one."""
    own = canonicalize_name(index.rules.project)
    return [
        f"{project} is not {own}, the project of this index: pip finds it there, but the store's page does not show it"
        for project in sorted({file.facts.project for file in plan.files} - {own})
    ]


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


def dry_moves(moves: Sequence[Move], others: Sequence[tuple[str, str]], *, json: bool) -> None:
    """Show what moves would do, and which views stay where they are."""
    rows = [action for move in moves for action in move.actions()]
    console.dry_run([*rows, *(("keep", f"{view}/", reason) for view, reason in others)], json=json)


def moved(
    index: Index,
    views: Sequence[Moved],
    others: Sequence[tuple[str, str]] = (),
    *,
    refused: bool = False,
    json: bool,
) -> None:
    """Show what became of each view, and the ``others`` that stay with the reason; an error says why one is refused."""
    rows = [
        (
            _short(view.view),
            view.outcome.value,
            _short(view.reason),
            _pages(view.drawn),
            f"{index.store.url}/{view.view}/",
        )
        for view in views
    ]
    rows += [(view, Outcome.KEPT.value, reason, "", "") for view, reason in others]
    if not refused:
        console.table(("view", "outcome", "reason", "pages", "where"), rows)
    if json:
        console.emit_json({"store": index.store.url, "views": [_moved(index, view) for view in views]})


def _moved(index: Index, view: Moved) -> dict[str, Any]:
    commit = view.revision.commit if view.revision is not None else None
    held = {"commit": commit, "revision": view.number, "files": held_keys(index, view)}
    return {
        "view": view.view,
        "outcome": view.outcome.name.lower(),
        "reason": view.reason,
        **held,
        **_drawn(view.drawn),
    }


def held_keys(index: Index, view: Moved) -> list[str]:
    """Return the keys of the files that a view holds now, sorted."""
    if view.revision is None:
        return []
    projects = (index.project(name).state for name in view.revision.counts)
    return sorted(record.key for state in projects for record in view.revision.records_of(state))


def drawn(result: Drawn, *, json: bool) -> None:
    """Show what a drawing wrote and deleted."""
    if result.written or result.deleted:
        console.say(_pages(result))
    else:
        console.say("nothing to do: every page is up to date")
    if json:
        console.emit_json(_drawn(result))


def revisions(state: ViewState, target: Revision | None) -> None:
    """Show a view's history with the present revision and the one to go back to."""
    rows = []
    for revision in reversed(state.revisions):
        mark = "now" if revision is state.current else "back to" if revision is target else ""
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


def yanked(index: Index, plan: YankPlan, result: Drawn, *, json: bool) -> None:
    """Show what a yank changed."""
    if plan.changed:
        console.say(f"{console.plural(len(plan.changed), 'file')} changed, {_pages(result)}")
    else:
        drawn(result, json=False)
    if json:
        names = ("key", "commit", "version")
        files = [
            {**{name: getattr(record, name) for name in names}, "changed": record in plan.changed}
            for record in plan.found
        ]
        numbers = {view: index.view(view).state.current for view in plan.views}
        views = [{"view": view, "revision": now.number if now else None} for view, now in numbers.items()]
        asked = {"project": plan.request.project, "version": str(plan.request.version), "reason": plan.request.reason}
        console.emit_json({"store": index.store.url, **asked, "files": files, "views": views, **_drawn(result)})


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


def prune_report(index: Index, report: PruneReport, *, json: bool) -> None:
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
        files = [key for key in report.deleted if key.endswith((".whl", ".tar.gz"))]
        done = {"commits": report.commits, "files": files, "deleted": report.deleted, "freed": report.freed}
        console.emit_json({"store": index.store.url, **done, "kept": kept})


def adopt_left(plan: AdoptPlan) -> None:
    """Say what lies in the store and is not taken over."""
    by_reason: dict[str, list[str]] = {}
    for key, reason in plan.left:
        by_reason.setdefault(reason, []).append(key)
    for reason, keys in by_reason.items():
        more = f" and {len(keys) - _SHOWN_KEYS} more" if len(keys) > _SHOWN_KEYS else ""
        console.warn(f"not taken over: {', '.join(keys[:_SHOWN_KEYS])}{more} ({reason})")


def adopt_judged(index: Index, plan: AdoptPlan, judged: Sequence[Judged]) -> None:
    """Show the files of an adoption before it is done."""
    records = _records(index)
    rows = [_adopt_row(stored.key, stored.size, facts, "new") for stored, facts in judged]
    rows += [_adopt_row(known.key, known.size, records.get(known.key), "known before") for known in plan.known]
    _adopt_table(rows)


def adopted(index: Index, plan: AdoptPlan, report: AdoptReport, *, json: bool) -> None:
    """Show what was taken over; the caller raises for what was refused."""
    sizes = {stored.key: stored.size for stored in (*plan.new, *plan.known)}
    records = _records(index)
    rows = [_adopt_row(key, sizes[key], records.get(key), "adopted") for key in report.adopted]
    rows += [_adopt_row(key, sizes[key], reason, "") for key, reason in report.refused]
    rows += [_adopt_row(key, sizes[key], records.get(key), "known before") for key in report.known]
    _adopt_table(rows)
    known = console.plural(len(report.known), "file")
    console.say(f"{console.plural(len(report.adopted), 'file')} adopted, {known} known before")
    if json:
        refused = [{"key": key, "reason": reason} for key, reason in report.refused]
        left = [{"key": key, "reason": reason} for key, reason in plan.left]
        done = {"adopted": list(report.adopted), "known": list(report.known), "refused": refused, "left": left}
        console.emit_json({"store": index.store.url, **done})


def _records(index: Index) -> dict[str, FileRecord]:
    states = (index.project(name).state for name in index.project_names())
    return {key: record for state in states for key, record in state.files.items()}


def _adopt_row(
    key: str, size: int, facts: DistributionFacts | FileRecord | str | None, state: str
) -> tuple[str, str, str, str, str]:
    commit, _, name = key.partition("/")
    if facts is None or isinstance(facts, str):
        return name, console.size(size), "", commit, f"refused: {facts}" if facts else state
    return name, console.size(size), facts.variant or "default", commit, state


def _adopt_table(rows: Sequence[tuple[str, str, str, str, str]]) -> None:
    if rows:
        console.table(("file", "size", "variant", "commit", "state"), rows)


def _short(text: str) -> str:
    """Shorten the hashes in a table's cell; another cell, or the JSON, has them whole."""
    return _HASH.sub(lambda found: found[0][:12], text)


def _drawn(result: Drawn) -> dict[str, Any]:
    return {"written": list(result.written), "deleted": list(result.deleted)}


def _pages(result: Drawn) -> str:
    drawn = f"{console.plural(len(result.written), 'page')} drawn"
    return f"{drawn}, {len(result.deleted)} deleted" if result.deleted else drawn


def _moment(stamp: str) -> str:
    """Return a recorded moment to the second."""
    return f"{stamp[:10]} {stamp[11:19]} UTC"
