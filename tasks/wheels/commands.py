"""The wheels tasks: build, upload, index, check, serve and care for the package index."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tasks.support.task import task

if TYPE_CHECKING:
    from collections.abc import Sequence

_STORE = "wheel store: file:///folder, a folder's path or s3://bucket/prefix"
_PROFILE = "local, ci or production: what may be changed"
_SOURCE = "checkout of the library; default: the one around this folder, else ../vllm-omni beside this tool"
_COMMIT = "full commit hash; default: BUILDKITE_COMMIT, else HEAD of the source (of ../vllm-omni only with --source)"
_COMMIT_OF_FILES = "full commit hash; default: BUILDKITE_COMMIT, else HEAD of the checkout that the files lie in"
_DRY_RUN = "print the plan and stop"
_JSON = "print the result as JSON on stdout"
_CHANGING = {"store": _STORE, "profile": _PROFILE, "dry_run": _DRY_RUN, "json": _JSON}


@task(
    example="wheels.build --source ../vllm-omni --device rocm",
    help={
        "source": _SOURCE,
        "device": "cuda, rocm, xpu, npu or cpu: sets VLLM_OMNI_TARGET_DEVICE",
        "dist": "folder for the wheel and the sdist; default: dist in the source",
        "commit": "commit of a source without git",
        "allow_dirty": "build uncommitted changes too",
        "dry_run": _DRY_RUN,
        "json": _JSON,
    },
)
def build(
    _ctx: Any,
    source: str | None = None,
    device: str = "cuda",
    dist: str | None = None,
    commit: str | None = None,
    allow_dirty: bool = False,
    dry_run: bool = False,
    json: bool = False,
) -> None:
    """Build the sdist and the wheel of the source, isolated."""
    from tasks.support import console, paths, settings
    from tasks.support.source import resolve_source
    from tasks.wheels import begin, building, showing

    chosen = settings.load(source=source)
    checkout = resolve_source(chosen, paths.current_folder())
    request = building.BuildRequest(
        source=checkout,
        dist=paths.absolute(paths.as_path(dist, "--dist")) if dist is not None else checkout / "dist",
        commit=begin.commit_to_build(chosen, commit, checkout),
        device=device,
        allow_dirty=allow_dirty,
    )
    plan = building.plan_build(request, building.survey(checkout, request.commit, request.dist))
    showing.build_plan(plan)
    building.check_dist(plan, chosen.wheels.variants)
    if dry_run:
        console.dry_run([(what, str(plan.dist), why) for what, why in plan.actions], json=json)
        return
    showing.build_result(building.run_build(plan, chosen.wheels.variants), json=json)


@task(
    example="wheels.upload --commit SHA --dist ../vllm-omni/dist",
    help={
        "commit": _COMMIT_OF_FILES,
        "dist": "folder whose wheels are uploaded; default: dist in the source",
        "wheel": "a wheel to upload; repeatable",
        "sdist": "upload the folder's sdist too",
        "commit_time": "time of the commit where git does not know it, for example 2026-08-28T03:00:00Z",
        "source": _SOURCE,
        **_CHANGING,
    },
    iterable=["wheel"],
)
def upload(
    _ctx: Any,
    commit: str | None = None,
    dist: str | None = None,
    wheel: Sequence[str] | None = None,
    sdist: bool = False,
    commit_time: str | None = None,
    source: str | None = None,
    store: str | None = None,
    profile: str | None = None,
    dry_run: bool = False,
    json: bool = False,
) -> None:
    """Upload one commit's wheels and draw the commit's view."""
    from tasks.support import console, settings
    from tasks.support.profiles import Deed
    from tasks.wheels import begin, showing
    from tasks.wheels.distribution import read_facts
    from tasks.wheels.upload import check_labels, execute_upload, plan_upload

    chosen = settings.load(profile=profile, store=store, source=source)
    index = begin.open_index(chosen, Deed.STAGE, dry_run=dry_run)
    found = begin.locate_source(chosen)
    given = [*(wheel or ()), *([dist] if dist is not None else ())]
    about = begin.choose_subject(chosen, commit, found, files=begin.given_files(given))
    files = begin.choose_files(dist, wheel, found.path if found else None, sdist=sdist)
    facts = [read_facts(file, chosen.wheels.variants) for file in files]
    check_labels(about.commit, facts)
    plan = plan_upload(index, about.commit, begin.commit_time(about.checkout, about.commit, commit_time), facts)
    showing.upload_plan(index, plan)
    if dry_run:
        console.dry_run(plan.actions(), json=json)
        return
    with console.progress("uploading", sum(file.facts.size for file in plan.missing)) as progress:
        report = execute_upload(index, plan, progress)
    showing.upload_report(index, report, json=json)


@task(
    example="wheels.index nightly --commit SHA",
    help={
        "view": "nightly, v<version>, a full commit hash, or auto: what CI wants",
        "commit": _COMMIT,
        "source": _SOURCE,
        **_CHANGING,
    },
)
def index(
    _ctx: Any,
    view: str,
    commit: str | None = None,
    source: str | None = None,
    store: str | None = None,
    profile: str | None = None,
    dry_run: bool = False,
    json: bool = False,
) -> None:
    """Move a view of the index to a commit's wheels."""
    from tasks.support import announcing, console, settings
    from tasks.support.profiles import Deed
    from tasks.wheels import begin, layout, showing
    from tasks.wheels.views import execute_move, foresee, plan_move
    from tasks.wheels.wanted import AUTO, left_alone, refusal, views_wanted

    chosen = settings.load(profile=profile, store=store, source=source)
    auto, nightly = view == AUTO, chosen.switch("NIGHTLY")
    staged = auto or layout.is_commit(view)
    opened = begin.open_index(chosen, Deed.STAGE if staged else Deed.MOVE, dry_run=dry_run)
    about = begin.choose_subject(chosen, commit, begin.locate_source(chosen))
    names = views_wanted(opened, view, about.commit, nightly=nightly)
    if staged and not all(map(layout.is_commit, names)):
        announcing.permit(chosen.profile, Deed.MOVE, opened.store.url, dry_run=dry_run)
    ancestry = begin.ask_ancestry(about.checkout)
    moves = [plan_move(opened, name, about.commit, ancestry) for name in names]
    for loss in (loss for move in moves for loss in move.losses):
        console.warn(loss)
    others = list(left_alone(opened, about.commit, nightly=nightly)) if auto else []
    if dry_run:
        moves = [foresee(opened, move) for move in moves]
        showing.dry_moves(moves, others, json=json)
        error = None if auto else refusal(opened, about.commit, moves)
    else:
        moved = [execute_move(opened, move, ancestry) for move in moves]
        error = None if auto else refusal(opened, about.commit, moved)
        showing.moved(opened, moved, others, refused=error is not None, json=json)
    if error is not None:
        raise error


@task(example="wheels.redraw --dry-run", help=_CHANGING)
def redraw(
    _ctx: Any, store: str | None = None, profile: str | None = None, dry_run: bool = False, json: bool = False
) -> None:
    """Draw all pages anew from the state."""
    from tasks.support import console, settings
    from tasks.support.profiles import Deed
    from tasks.wheels import begin, showing
    from tasks.wheels.redrawing import plan_redraw, redraw_all

    opened = begin.open_index(settings.load(profile=profile, store=store), Deed.MOVE, dry_run=dry_run)
    if dry_run:
        plan = plan_redraw(opened)
        console.dry_run(plan.actions(), json=json)
        if plan.error is not None:
            raise plan.error
        return
    showing.drawn(redraw_all(opened), json=json)


@task(
    example="wheels.check nightly --strict",
    help={
        "view": "nightly, v<version> or a full commit hash",
        "strict": "warnings fail too (65)",
        "online": "ask the public index whether names of this view are free there",
        "deep": "read every file and compare its sha256; without it only the sizes of files are compared",
        "store": _STORE,
        "json": _JSON,
    },
)
def check(
    _ctx: Any,
    view: str,
    strict: bool = False,
    online: bool = False,
    deep: bool = False,
    store: str | None = None,
    json: bool = False,
) -> None:
    """Check a view's published pages against state and objects."""
    from tasks.support import settings
    from tasks.wheels import begin, checking, layout, showing

    chosen = settings.load(store=store)
    opened = begin.open_index(chosen)
    begin.require_folder(opened.store)
    public = checking.public_index(chosen) if online else None
    report = checking.check_view(opened, layout.check_view(view), online=public, deep=deep)
    showing.findings(report, json=json)
    error = checking.report_error(report, strict=strict)
    if error is not None:
        raise error


@task(
    example="wheels.serve --port 8080",
    help={"store": _STORE, "port": "port on 127.0.0.1; default: a free one", "log": "print a line for each request"},
)
def serve(_ctx: Any, store: str | None = None, port: str = "0", log: bool = False) -> None:
    """Serve a store's index on this machine until Ctrl-C."""
    from tasks.support import settings
    from tasks.support.arguments import parse_count
    from tasks.wheels import begin
    from tasks.wheels.serving import serve_forever

    opened = begin.open_index(settings.load(store=store))
    number = parse_count(port, "--port")
    begin.require_folder(opened.store)
    serve_forever(opened, port=number, log=log)


@task(
    example="wheels.prune --keep 14 --dry-run",
    help={
        "keep": "how many nightlies stay; default: keep-nightlies in pyproject.toml",
        "younger_than": "commits to which something was uploaded within this time stay; default: 7d",
        "max_share": "refuse to remove a larger share than this; default: max-prune-share in pyproject.toml (20%)",
        **_CHANGING,
    },
)
def prune(
    _ctx: Any,
    keep: str | None = None,
    younger_than: str = "7d",
    max_share: str | None = None,
    store: str | None = None,
    profile: str | None = None,
    dry_run: bool = False,
    json: bool = False,
) -> None:
    """Delete old commits that no view needs."""
    from tasks.support import arguments, console, settings
    from tasks.support.profiles import Deed
    from tasks.wheels import begin, pruning, showing

    chosen = settings.load(profile=profile, store=store)
    opened = begin.open_index(chosen, Deed.CLEAN, dry_run=dry_run)
    rules = chosen.wheels
    plan = pruning.plan_prune(
        opened,
        keep=rules.keep_nightlies if keep is None else arguments.parse_count(keep, "--keep", least=1),
        younger_than=arguments.parse_age(younger_than, "--younger-than"),
        max_share=rules.max_prune_share if max_share is None else arguments.parse_share(max_share, "--max-share"),
    )
    showing.prune_plan(plan)
    if dry_run:
        console.dry_run(plan.actions(), json=json)
        if plan.refusal is not None:
            raise pruning.foretold(plan.refusal)
        return
    showing.prune_report(opened, pruning.execute_prune(opened, plan), json=json)


@task(
    example="wheels.yank 0.28.0 --reason 'crashes on start; use 0.28.1'",
    help={
        "version": "version whose files are yanked (PEP 592)",
        "reason": "one line for users; may be empty",
        "project": "project; default: the one in pyproject.toml",
        "commit": "only this commit's files",
        "file": "only the file of this name; repeatable",
        "undo": "take the yank back",
        **_CHANGING,
    },
    iterable=["file"],
    may_be_empty=["reason"],
)
def yank(
    _ctx: Any,
    version: str,
    reason: str | None = None,
    project: str | None = None,
    commit: str | None = None,
    file: Sequence[str] | None = None,
    undo: bool = False,
    store: str | None = None,
    profile: str | None = None,
    dry_run: bool = False,
    json: bool = False,
) -> None:
    """Mark a version's files as yanked, or take that back."""
    from tasks.support import console, settings
    from tasks.support.profiles import Deed
    from tasks.wheels import begin, showing, yanking

    chosen = settings.load(profile=profile, store=store)
    opened = begin.open_index(chosen, Deed.MOVE, dry_run=dry_run)
    request = yanking.request(
        project or chosen.wheels.project, version, commit=commit, files=tuple(file or ()), reason=reason, undo=undo
    )
    plan = yanking.plan_yank(opened, request)
    showing.yank_plan(plan)
    if dry_run:
        console.dry_run(plan.actions(), json=json)
        return
    showing.yanked(opened, plan, yanking.execute_yank(opened, plan), json=json)


@task(
    example="wheels.rollback nightly --to 12",
    help={"view": "nightly or v<version>", "to": "number of the revision; default: the one before", **_CHANGING},
)
def rollback(
    _ctx: Any,
    view: str,
    to: str | None = None,
    store: str | None = None,
    profile: str | None = None,
    dry_run: bool = False,
    json: bool = False,
) -> None:
    """Go back to an older revision of a view."""
    from tasks.support import arguments, console, settings
    from tasks.support.profiles import Deed
    from tasks.wheels import begin, layout, showing
    from tasks.wheels.rolling_back import NoRevisionError, execute_rollback, foresee, plan_rollback

    chosen = settings.load(profile=profile, store=store)
    opened = begin.open_index(chosen, Deed.MOVE, dry_run=dry_run)
    number = None if to is None else arguments.parse_count(to, "--to", least=1)
    name = layout.check_moving_view(view)
    try:
        plan = plan_rollback(opened, name, number)
    except NoRevisionError as error:
        showing.revisions(error.state, None)
        raise
    showing.revisions(plan.state, plan.target)
    if dry_run:
        console.dry_run(foresee(opened, plan).actions(), json=json)
        return
    showing.moved(opened, [execute_rollback(opened, plan)], json=json)


@task(
    example="wheels.adopt --store s3://bucket/prefix --dry-run",
    help={
        "commit": "only this commit's folder; repeatable; default: every commit folder",
        "sdist": "take over sdists too",
        "source": _SOURCE,
        **_CHANGING,
    },
    iterable=["commit"],
)
def adopt(
    _ctx: Any,
    commit: Sequence[str] | None = None,
    sdist: bool = False,
    source: str | None = None,
    store: str | None = None,
    profile: str | None = None,
    dry_run: bool = False,
    json: bool = False,
) -> None:
    """Take over wheels that lie in the store without state."""
    from functools import partial

    from tasks.support import console, settings
    from tasks.support.profiles import Deed
    from tasks.wheels import adopting, begin, layout, showing

    chosen = settings.load(profile=profile, store=store, source=source)
    opened = begin.open_index(chosen, Deed.MOVE, dry_run=dry_run)
    checkout = begin.find_source(chosen)
    commits = [layout.check_commit(sha) for sha in commit or ()]
    begin.require_folder(opened.store)
    plan = adopting.plan_adopt(opened, commits, sdists=sdist)
    showing.adopt_left(plan)
    if dry_run:
        judged = adopting.judge(opened, plan)
        showing.adopt_judged(opened, plan, judged)
        console.dry_run(plan.actions(judged), json=json)
        error = adopting.judged_error(judged)
        if error is not None:
            raise error
        return
    with console.progress("hashing", plan.size) as progress:
        time_of = partial(begin.commit_time, checkout, given=None)
        report = adopting.execute_adopt(opened, plan, time_of, progress)
    showing.adopted(opened, plan, report, json=json)
    error = adopting.report_error(report)
    if error is not None:
        raise error


@task(
    example="wheels.publish --version 0.28.0 --commit SHA --dry-run",
    help={
        "version": "version to publish, with or without a leading v",
        "commit": "commit whose wheels are published; default: the newest of those with all files of the version",
        "sdist": "publish the sdist too",
        **_CHANGING,
    },
)
def publish(
    _ctx: Any,
    version: str | None = None,
    commit: str | None = None,
    sdist: bool = False,
    store: str | None = None,
    profile: str | None = None,
    dry_run: bool = False,
    json: bool = False,
) -> None:
    """Publish a version's wheels from the store to PyPI."""
    from tasks.wheels import pypi

    pypi.run_command(
        version=version, commit=commit, sdist=sdist, store=store, profile=profile, dry_run=dry_run, json=json
    )
