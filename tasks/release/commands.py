"""The release tasks: what one command does for a whole channel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tasks.support.task import task

if TYPE_CHECKING:
    from collections.abc import Sequence

_CHANNEL = "nightly or release"
_STORE = "wheel store with the ledger and the results: file:///folder, a folder's path or s3://bucket/prefix"
_PUBLIC = "repository where users pull: registry/name, file:///folder or a folder's path (/folder, ./folder)"
_PROFILE = "local, ci or production: what may be changed"
_DRY_RUN = "print the plan and stop"
_JSON = "print the result as JSON on stdout"
_MOVING = {"public": _PUBLIC, "store": _STORE, "profile": _PROFILE, "dry_run": _DRY_RUN, "json": _JSON}


@task(
    example="release.rehearse nightly --source ../vllm-omni",
    help={
        "channel": "nightly",
        "source": "checkout of the library to build; default: a small sample project",
        "device": "cuda, rocm, xpu, npu or cpu; repeatable; default: cuda",
        "json": "print the result as JSON on stdout",
    },
    iterable=["device"],
)
def rehearse(
    _ctx: Any, channel: str, source: str | None = None, device: Sequence[str] | None = None, json: bool = False
) -> None:
    """Rehearse a whole nightly on this machine; nothing public changes."""
    from tasks.release import rehearsal
    from tasks.support import settings

    request = rehearsal.Request.parse(channel, source, device)
    report = rehearsal.run(settings.load(profile="local", source=source), request)
    rehearsal.show(report, json=json)


@task(
    example="release.publish release --version 0.28.0 --commit SHA --dry-run",
    help={
        "channel": _CHANNEL,
        "commit": "full commit hash; default: BUILDKITE_COMMIT, else HEAD of the source",
        "version": "version of a release, for example 0.28.0; default: Buildkite's meta-data release-version",
        "move_latest": "move latest also to an older or a pre-release version; recorded",
        "untested": "why a commit without a green cuda_merge is released all the same; recorded",
        "commit_time": "time of the commit where git does not know it, for example 2026-08-28T03:00:00Z",
        "source": "checkout of the library, for the commit's time and ancestry",
        "staging": "repository where CI pushed the images: registry/name, file:///folder or a folder's path",
        **_MOVING,
    },
)
def publish(
    _ctx: Any,
    channel: str,
    commit: str | None = None,
    version: str | None = None,
    move_latest: bool = False,
    untested: str | None = None,
    commit_time: str | None = None,
    source: str | None = None,
    staging: str | None = None,
    public: str | None = None,
    store: str | None = None,
    profile: str | None = None,
    dry_run: bool = False,
    json: bool = False,
) -> None:
    """Promote a commit's staged images to a channel's public tags."""
    from tasks.release import begin, showing
    from tasks.release.promotion_plan import plan_publish
    from tasks.support import console, settings
    from tasks.support.announcing import announce
    from tasks.support.profiles import Deed
    from tasks.wheels.begin import ask_ancestry

    chosen = settings.load(profile=profile, store=store, source=source, staging=staging, public=public)
    request, about = begin.read_request(
        chosen,
        channel,
        commit=commit,
        version=version,
        move_latest=move_latest,
        untested=untested,
        given_time=commit_time,
    )
    parties = begin.open_parties(chosen)
    targets = [str(parties.public.name), parties.store.url]
    announce(chosen.profile, Deed.MOVE, targets, begin.first_line(parties, request), dry_run=dry_run)
    about.tell()
    begin.require_ledger(chosen, parties.public.name, dry_run=dry_run)
    plan = plan_publish(parties, request, ask_ancestry(about.checkout))
    showing.publish_plan(plan)
    if dry_run:
        console.dry_run(plan.actions(), json=json)
        if plan.refusal is not None:
            raise begin.foretold(plan.refusal)
        return
    report, waited = begin.run_publish(chosen, parties, plan)
    showing.publish_report(chosen, report, waited, json=json)


@task(
    example="release.record cuda_merge --step test-1 --step test-2",
    help={
        "cell": "device and tier, for example cuda_merge",
        "commit": "full commit hash; default: BUILDKITE_COMMIT",
        "step": "key of a step of the cell in this build; repeat it for every one",
        "store": _STORE,
        "profile": _PROFILE,
        "dry_run": _DRY_RUN,
        "json": _JSON,
    },
    iterable=["step"],
)
def record(
    _ctx: Any,
    cell: str,
    commit: str | None = None,
    step: Sequence[str] | None = None,
    store: str | None = None,
    profile: str | None = None,
    dry_run: bool = False,
    json: bool = False,
) -> None:
    """Record how a cell's steps ended, in a trusted step after them."""
    from tasks.release import begin, repositories, results, showing
    from tasks.support import settings
    from tasks.support.announcing import announce
    from tasks.support.profiles import Deed
    from tasks.support.store import open_store

    chosen = settings.load(profile=profile, store=store)
    name = results.check_cell(cell)
    about = begin.record_subject(chosen, commit)
    sha = about.commit
    objects = open_store(chosen.store)
    announce(chosen.profile, Deed.RECORD, [objects.url], f"{name} of {sha} · {objects.url}", dry_run=dry_run)
    about.tell()
    begin.require_ledger(chosen, repositories.choose(chosen).public, dry_run=dry_run)
    made = results.make_record(chosen, sha, name, results.ask_outcomes(chosen, sha, step or ()))
    written = results.write(objects, made) if not dry_run else False
    showing.record_report(made, results.key_of(sha, name), written=written, json=json)


@task(
    example="release.status --channel nightly --history",
    help={
        "channel": "nightly or release; default: both",
        "history": "show the newest runs of the ledger too, and which of them were undone",
        "check": "end with 65 when a tag does not show what the ledger says",
        "public": _PUBLIC,
        "store": _STORE,
        "profile": _PROFILE,
        "json": _JSON,
    },
)
def status(
    _ctx: Any,
    channel: str | None = None,
    history: bool = False,
    check: bool = False,
    public: str | None = None,
    store: str | None = None,
    profile: str | None = None,
    json: bool = False,
) -> None:
    """Show what public tags point at, and where the ledger disagrees."""
    from tasks.release import begin, showing
    from tasks.release.channels import Channel
    from tasks.release.past_runs import past_runs
    from tasks.release.status import channel_status, drift_error
    from tasks.support import settings

    channels = [Channel.parse(channel)] if channel is not None else list(Channel)
    chosen = settings.load(profile=profile, store=store, public=public)
    parties = begin.open_parties(chosen)
    begin.announce_look(chosen, parties)
    rows = [row for one in channels for row in channel_status(parties.public, parties.store, one)]
    runs = [run for one in channels for run in past_runs(parties.public, parties.store, one)] if history else None
    showing.status_report(parties, rows, runs, json=json)
    error = drift_error(rows)
    if check and error is not None:
        raise error


@task(
    example="release.rollback nightly --dry-run",
    help={
        "channel": _CHANNEL,
        "to": "tag, digest or its first 12 digits to go back to; default: what the channel showed before",
        "run": "take this run back: an id from release.status, or a build's number",
        **_MOVING,
    },
)
def rollback(
    _ctx: Any,
    channel: str,
    to: str | None = None,
    run: str | None = None,
    public: str | None = None,
    store: str | None = None,
    profile: str | None = None,
    dry_run: bool = False,
    json: bool = False,
) -> None:
    """Move a channel's tags, all of them, back to what they showed before."""
    from tasks.release import begin, showing
    from tasks.release.channels import Channel
    from tasks.release.moving import Run
    from tasks.release.undo import execute_rollback, plan_rollback
    from tasks.support import console, settings
    from tasks.support.announcing import announce
    from tasks.support.profiles import Deed

    chosen = settings.load(profile=profile, store=store, public=public)
    name = Channel.parse(channel)
    parties = begin.open_parties(chosen)
    targets = [str(parties.public.name), parties.store.url]
    announce(chosen.profile, Deed.MOVE, targets, f"rollback of {name.value} · {begin.places(parties)}", dry_run=dry_run)
    begin.require_ledger(chosen, parties.public.name, dry_run=dry_run)
    begin.require_folder(parties.public.name)
    plan = plan_rollback(parties.public, parties.store, name, to=to, run=run)
    if dry_run:
        console.dry_run(plan.actions(), json=json)
        return
    done = execute_rollback(parties.public, parties.store, plan, Run.start(chosen))
    showing.rollback_report(done, json=json)


@task(
    example="release.cleanup --keep 14 --dry-run",
    help={
        "keep": "how many of the newest nightlies stay; default: as docker/images.yml says",
        "younger_than": "keep what was pushed within this age too, for example 14d",
        "max": "refuse a plan that deletes more tags; default: as docker/images.yml says",
        "reclaim": "delete the manifests that no tag needs any more, too",
        "without_ledger": "clean up although the ledger knows none of the moving tags: no rollback is provided for",
        **_MOVING,
    },
)
def cleanup(
    _ctx: Any,
    keep: str | None = None,
    younger_than: str | None = None,
    max: str | None = None,  # noqa: A002 - the option's name
    reclaim: bool = False,
    without_ledger: bool = False,
    public: str | None = None,
    store: str | None = None,
    profile: str | None = None,
    dry_run: bool = False,
    json: bool = False,
) -> None:
    """Delete old public nightlies, never what a rollback may need."""
    from tasks.release import begin, showing
    from tasks.release import cleanup as cleaning
    from tasks.support import console, settings
    from tasks.support.announcing import announce
    from tasks.support.profiles import Deed

    chosen = settings.load(profile=profile, store=store, public=public)
    rule = cleaning.read_rule(keep, younger_than, max)
    parties = begin.open_parties(chosen)
    announce(
        chosen.profile,
        Deed.CLEAN,
        [str(parties.public.name), parties.store.url],
        begin.places(parties),
        dry_run=dry_run,
    )
    begin.require_ledger(chosen, parties.public.name, dry_run=dry_run)
    begin.require_folder(parties.public.name)
    planned = cleaning.plan_cleanup(chosen, parties, rule, reclaim=reclaim, without_ledger=without_ledger)
    showing.cleanup_plan(planned.plan, dry_run=dry_run)
    if dry_run:
        console.dry_run(planned.plan.actions(), json=json)
        if planned.refusal is not None:
            raise begin.foretold(planned.refusal)
        return
    report, error = cleaning.run_cleanup(planned)
    showing.cleanup_report(report, json=json)
    if error is not None:
        raise error
