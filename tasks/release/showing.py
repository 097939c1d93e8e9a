"""What the release tasks print: tables on stderr, JSON on stdout when asked, and an annotation on Buildkite."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from tasks.registry.cleaning import CleanupReport
from tasks.registry.copying import CopyReport, ManifestReport, Way
from tasks.registry.references import RepositoryName
from tasks.registry.retention import KEEP, CleanupPlan, plan_rows
from tasks.release import next_steps
from tasks.release.ledger import moment
from tasks.release.moving import TagPlan
from tasks.release.past_runs import PastRun
from tasks.release.promotion import PublishReport
from tasks.release.promotion_plan import Parties, PublishPlan
from tasks.release.results import Record
from tasks.release.staged import Staged
from tasks.release.status import TagStatus
from tasks.release.undo import RollbackPlan
from tasks.support import buildkite, console
from tasks.support.settings import Settings

Rows = list[tuple[str, ...]]
_IMAGE_COLUMNS = ("platform", "digest", "size", "blobs")
_TAG_COLUMNS = ("tag", "digest", "platforms", "before", "state")


def publish_plan(plan: PublishPlan) -> None:
    """Show what a publish will do, before it is done."""
    for warning in plan.warnings:
        console.warn(warning)
    if plan.copy is not None:
        parts = [f"{console.size(plan.copy.size(way))} to {way.value}" for way in (Way.STREAM, Way.MOUNT)]
        console.say(f"{', '.join(parts)}, {console.size(plan.copy.size(Way.THERE))} there already")


def publish_report(settings: Settings, report: PublishReport, waited: str, *, json: bool) -> None:
    """Show what a publish did, here and on Buildkite, with the lines to pull it and to undo it."""
    plan = report.plan
    images, tags = _image_rows(report), [_tag_row(tag, report) for tag in plan.tags]
    if images:
        console.table(_IMAGE_COLUMNS, images)
    console.table(_TAG_COLUMNS, tags)
    for line in (*_results(report, waited), *filter(None, (pull_line(plan), undo_line(plan)))):
        console.say(line)
    if report.wrote:
        buildkite.annotate(settings, _markdown(report, images, tags, waited), context=f"publish-{_channel(plan)}")
    if json:
        console.emit_json(_publish_json(report))


def pull_line(plan: PublishPlan) -> str:
    """Return the line with which a user gets what was published."""
    tag = plan.tags[-1].tag
    name = RepositoryName.parse(plan.public)
    if name.folder is not None:
        return f"inspect: skopeo inspect --raw {shlex.quote(f'oci:{name.folder}:{tag}')}"
    return f"pull: docker pull {plan.public.removeprefix('docker.io/')}:{tag}"


def undo_line(plan: PublishPlan) -> str | None:
    """Return the line that takes the floating tags back; None when none moved, or there was nothing before."""
    last = plan.tags[-1]
    if not (last.floating and last.writes and last.old):
        return None
    return f"undo: {next_steps.rollback(plan.request.channel, last.old)}"


def _channel(plan: PublishPlan) -> str:
    return plan.request.channel.value


def _results(report: PublishReport, waited: str) -> list[str]:
    plan, copied = report.plan, report.copied
    notes = [] if plan.verdict.moves else [plan.verdict.reason]
    if not report.wrote:
        done = "already published: nothing to do"
        if plan.mixed is not None:
            done = f"already published, and the floating tags are not in order: {plan.mixed}"
        if plan.unfinished is not None:
            done = f"wrote the missing result of run {plan.unfinished.run}"
        if plan.unrecorded:
            done = f"already published, and now in the ledger, which did not know it (run {report.run.id})"
        return [*notes, f"{done}, {console.span(report.seconds)}"]
    if copied is not None:
        parts = [f"copied {console.size(copied.copied.size)}"]
        parts += [f"mounted {console.size(copied.mounted.size)}"] if copied.mounted.blobs else []
        parts += [f"{console.size(copied.there.size)} there already"] if copied.there.blobs else []
        again = f", {console.plural(copied.retries, 'repetition')}" if copied.retries else ""
        notes.append(f"{', '.join(parts)} in {console.span(report.seconds)}{again}")
    return [*notes, *filter(None, (waited,))]


def _image_rows(report: PublishReport) -> Rows:
    if report.copied is None:
        return []
    return [
        (str(staged.platform), staged.top.digest, console.size(_size(staged)), _blobs(_part(report.copied, staged)))
        for staged in report.plan.images
    ]


def _part(copied: CopyReport, staged: Staged) -> ManifestReport | None:
    return next((part for part in copied.manifests if part.descriptor.digest == staged.image.digest), None)


def _size(staged: Staged) -> int:
    return sum({blob.digest: blob.size for blob in staged.image.blobs}.values())


def _blobs(part: ManifestReport | None) -> str:
    if part is None:
        return "there"
    counts = ((part.there.blobs, "there"), (part.mounted.blobs, "mounted"), (part.copied.blobs, "copied"))
    return ", ".join(f"{count} {what}" for count, what in counts if count)


def _tag_row(tag: TagPlan, report: PublishReport) -> tuple[str, ...]:
    before = "new" if tag.old is None else "same" if not tag.writes else f"was {_short(tag.old)}"
    state = "verified" if report.wrote else "in place"
    return (tag.tag, tag.digest, ", ".join(tag.platforms), before, state)


def _short(digest: str) -> str:
    return digest.removeprefix("sha256:")[:12]


def _markdown(report: PublishReport, images: Rows, tags: Rows, waited: str) -> str:
    plan = report.plan
    title = f"**{_channel(plan)}** of `{plan.request.commit}` published to `{plan.public}`"
    parts = [title, _markdown_table(_IMAGE_COLUMNS, images), _markdown_table(_TAG_COLUMNS, tags)]
    parts += [f"warning: {warning}" for warning in plan.warnings]
    parts += _results(report, waited)
    parts += [f"`{line}`" for line in filter(None, (pull_line(plan), undo_line(plan)))]
    return "\n\n".join(parts) + "\n"


def _markdown_table(columns: Sequence[str], rows: Rows) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def _publish_json(report: PublishReport) -> dict[str, Any]:
    plan, copied = report.plan, report.copied
    tallies = {"copied": copied.copied, "mounted": copied.mounted, "there": copied.there} if copied else {}
    return {
        "channel": _channel(plan),
        "commit": plan.request.commit,
        "version": str(plan.request.version) if plan.request.version is not None else None,
        "run": report.run.id if report.wrote else None,
        "staging": plan.staging,
        "public": plan.public,
        "index": plan.index,
        "wrote": report.wrote,
        "sources": plan.sources,
        "tags": [tag_json(tag) for tag in plan.tags],
        "blobs": {name: {"number": tally.blobs, "bytes": tally.size} for name, tally in tallies.items()},
        "moves": plan.verdict.moves,
        "reason": plan.verdict.reason,
        "warnings": list(plan.warnings),
        "seconds": round(report.seconds, 3),
    }


def tag_json(tag: TagPlan) -> dict[str, Any]:
    """Return a tag for machines."""
    return {
        "tag": tag.tag,
        "digest": tag.digest,
        "before": tag.old,
        "moved": tag.writes,
        "platforms": list(tag.platforms),
    }


def rollback_report(plan: RollbackPlan, *, json: bool) -> None:
    """Show what a rollback did."""
    rows = [(tag.tag, tag.digest, _short(tag.old or "nothing"), "verified") for tag in plan.tags]
    console.table(("tag", "digest", "before", "state"), rows)
    target = plan.target
    what = target.version or (f"commit {target.commit}" if target.commit else None)
    shows = f" ({what})" if what else ""
    undone = f" · run {plan.undone.run} is undone" if plan.undone is not None else ""
    console.say(
        f"{plan.channel.floating} is {target.digest}{shows}{undone}" if plan.writes else "nothing to do: in place"
    )
    last = plan.tags[-1]
    if last.writes and last.old:
        console.say(f"undo: {next_steps.rollback(plan.channel, last.old)}")
    if json:
        console.emit_json(
            {
                "channel": plan.channel.value,
                "public": plan.public,
                "digest": target.digest,
                "commit": target.commit,
                "version": str(target.version) if target.version else None,
                "undone": plan.undone.run if plan.undone is not None else None,
                "tags": [tag_json(tag) for tag in plan.tags],
            }
        )


def status_report(
    parties: Parties, rows: Sequence[TagStatus], runs: Sequence[PastRun] | None = None, *, json: bool
) -> None:
    """Show what tags point at, and the channel's runs when they were asked for."""
    shown = [
        (
            row.tag,
            row.shown.digest if row.shown else "-",
            _commit(row.shown.commit if row.shown else None),
            str(row.shown.version or "-") if row.shown else "-",
            _since(row.since),
            row.run or "-",
            row.note,
        )
        for row in rows
    ]
    console.table(("tag", "digest", "commit", "version", "since", "run", "ledger"), shown)
    if runs is not None:
        _runs(runs)
    if json:
        document: dict[str, Any] = {"public": str(parties.public.name), "ledger": parties.store.url}
        document["tags"] = [row.as_json() for row in rows]
        if runs is not None:
            document["runs"] = [run.as_json() for run in runs]
        console.emit_json(document)


def _runs(runs: Sequence[PastRun]) -> None:
    rows = []
    for run in runs:
        entry = run.entry
        notes = [f"not tested: {entry.untested}"] if entry.untested is not None else []
        notes += ["--move-latest"] if entry.moved_latest else []
        what = (entry.channel.value, entry.deed.value, _commit(entry.commit), entry.version or "-")
        who = entry.build_url or entry.build or "-"
        rows.append((_moment(entry.time), *what, entry.run, who, run.state, "; ".join(notes)))
    columns = ("time", "channel", "deed", "commit", "version", "run", "build", "state", "notes")
    console.say()
    if rows:
        console.table(columns, rows)
    else:
        console.say("the ledger has no run")


def _commit(commit: str | None) -> str:
    return commit[:12] if commit is not None else "-"


def _moment(time: str) -> str:
    return f"{moment(time).astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def _since(time: str | None) -> str:
    if time is None:
        return "-"
    return f"{_moment(time)} ({console.age(datetime.now(UTC) - moment(time))} ago)"


def record_report(record: Record, key: str, *, written: bool, json: bool) -> None:
    """Show what was recorded of a cell."""
    console.table(("step", "outcome"), list(record.steps.items()))
    verdict = "green" if record.green else "not green"
    console.say(f"{record.cell} of {record.commit} is {verdict} · {key}{'' if written else ' (as before)'}")
    if json:
        console.emit_json({"key": key, "green": record.green, "steps": dict(record.steps), "written": written})


def cleanup_plan(plan: CleanupPlan, *, dry_run: bool) -> None:
    """Show what a clean-up keeps and deletes; a dry run shows what it deletes at its end."""
    rows = [row for row in plan_rows(plan) if row[0] == KEEP or not dry_run]
    if rows:
        console.table(("action", "tag", "digest", "pushed (UTC)", "why"), rows)
    console.say(f"{console.plural(len(plan.deletions), 'tag')} to delete in {plan.repository}")


def cleanup_report(report: CleanupReport, *, json: bool) -> None:
    """Show what a clean-up did."""
    for tag, reason in report.kept:
        console.say(f"kept {tag}: {reason}")
    for digest, reason in report.unreclaimed:
        console.say(f"kept {digest}: {reason}")
    parts = [f"{console.plural(len(report.deleted), 'tag')} deleted"]
    parts += [f"{len(report.gone)} gone already"] if report.gone else []
    parts += [f"{console.plural(len(report.reclaimed), 'manifest')} reclaimed"] if report.reclaimed else []
    console.say(f"{', '.join(parts)} · {report.repository}")
    if json:
        console.emit_json(report.as_json())
