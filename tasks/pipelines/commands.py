"""The pipelines tasks: render, upload, bootstrap, explain, check, compare and install what CI runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tasks.support.task import task

if TYPE_CHECKING:
    from collections.abc import Sequence

_JSON = "print the result as JSON on stdout"
_DRY_RUN = "print the plan and stop"
_PROFILE = "local, ci or production: what may be changed"
_SOURCE = "checkout of the library; default: OMNI_CI_SOURCE, or around the current directory"
_WHICH = {
    "cell": "cell whose steps are looked at, for example cuda_ready",
    "file": "pipeline file in Buildkite's form, with or without our keys",
}
_CHOICE = {
    "all": "every step, whatever changed and whatever the gates say",
    "e2e": "only the end-to-end tests, whatever changed",
    "only_group": "only the groups with this text in their title, whatever changed",
    "step": "only this step and what it needs, whatever changed; repeatable",
}
_BASE = "compare with the merge base with this branch or commit; default: what the build says"
_COMMIT = "commit that is looked at; default: BUILDKITE_COMMIT, else HEAD of the source"
_STORE = "wheel store with the records of uploads; default: OMNI_CI_STORE"


@task(
    example="pipelines.render --cell cuda_ready",
    help={
        **_WHICH,
        **_CHOICE,
        "inline": "write the commands out instead of calling this tool; a file has them written out already",
        "against": "show what differs from this rendered pipeline, instead of the pipeline",
        "base": _BASE,
        "commit": _COMMIT,
        "source": _SOURCE,
        "json": "print JSON on stdout instead of YAML",
    },
    iterable=["step"],
)
def render(
    _ctx: Any,
    cell: str | None = None,
    file: str | None = None,
    all: bool = False,  # noqa: A002 - the flag's name
    e2e: bool = False,
    only_group: str | None = None,
    step: Sequence[str] | None = None,
    inline: bool = False,
    against: str | None = None,
    base: str | None = None,
    commit: str | None = None,
    source: str | None = None,
    json: bool = False,
) -> None:
    """Print what an upload would hand to Buildkite, and why.

    Why each step is in it or not is shown on stderr.
    """
    from tasks.pipelines import begin, showing

    choice = begin.choose(run_all=all, e2e=e2e, group=only_group, steps=step, inline=inline)
    wanted = begin.Wanted(cell, file, base, commit)
    decided = begin.decide(begin.open_run(source=source), wanted, choice)
    showing.decisions(decided.explanation)
    document = begin.document(decided)
    if against is not None:
        from tasks.pipelines import comparing

        showing.differences(comparing.diff(begin.read_rendered(against), document), json=json)
    else:
        showing.pipeline(document, json=json)


@task(
    example="pipelines.upload --cell cuda_ready",
    help={
        **_WHICH,
        **_CHOICE,
        "inline": "write the commands out instead of calling this tool; a file has them written out already",
        "base": _BASE,
        "source": _SOURCE,
        "store": _STORE,
        "profile": _PROFILE,
        "dry_run": _DRY_RUN,
        "json": _JSON,
    },
    iterable=["step"],
)
def upload(
    _ctx: Any,
    cell: str | None = None,
    file: str | None = None,
    all: bool = False,  # noqa: A002 - the flag's name
    e2e: bool = False,
    only_group: str | None = None,
    step: Sequence[str] | None = None,
    inline: bool = False,
    base: str | None = None,
    source: str | None = None,
    store: str | None = None,
    profile: str | None = None,
    dry_run: bool = False,
    json: bool = False,
) -> None:
    """Add the steps that this build needs to it, and say on its page why."""
    from tasks.pipelines import begin, explaining, showing, uploading
    from tasks.support import console

    choice = begin.choose(run_all=all, e2e=e2e, group=only_group, steps=step, inline=inline)
    wanted = begin.Wanted(cell, file, base)
    run = begin.open_run(profile=profile, source=source, store=store)
    begin.announce(run.settings, wanted.name, dry_run=dry_run)
    decided = begin.decide(run, wanted, choice, notes=True)
    parts = begin.parts(decided)
    showing.decisions(decided.explanation)
    if dry_run:
        console.dry_run(uploading.plan(parts, decided.explanation), json=json)
        return
    uploading.upload(run.settings, parts, decided.explanation)
    begin.record(decided, wanted, choice)
    if json:
        console.emit_json({"uploads": len(parts), **explaining.as_data(decided.explanation)})


@task(
    example="pipelines.bootstrap cuda",
    help={
        "device": "cuda, rocm, xpu or npu",
        "tier": "only this tier, whatever its gate says; repeatable",
        "base": _BASE,
        "source": _SOURCE,
        "store": _STORE,
        "profile": _PROFILE,
        "dry_run": "print the pipeline on stdout instead of uploading it",
        "json": "print the result, or with --dry-run the pipeline, as JSON on stdout",
    },
    iterable=["tier"],
)
def bootstrap(
    _ctx: Any,
    device: str,
    tier: Sequence[str] | None = None,
    base: str | None = None,
    source: str | None = None,
    store: str | None = None,
    profile: str | None = None,
    dry_run: bool = False,
    json: bool = False,
) -> None:
    """Begin a device's build: its image, and an upload for each open tier."""
    from tasks.pipelines import begin, showing, starting, uploading
    from tasks.support import console

    run = begin.open_run(profile=profile, source=source, store=store)
    begin.announce(run.settings, device, dry_run=dry_run)
    found = starting.bootstrap(run, device, tuple(tier or ()), base=base)
    showing.bootstrapped(found)
    if dry_run:
        showing.pipeline(found.document, json=json)
        return
    uploading.upload_bootstrap(run.settings, found)
    if json:
        console.emit_json(showing.bootstrapped_data(found))


@task(
    example="pipelines.explain --cell cuda_merge --commit 3f2c1ab",
    help={
        **_WHICH,
        **_CHOICE,
        "base": _BASE,
        "commit": _COMMIT,
        "source": _SOURCE,
        "annotation": "print the text for the build's page on stdout",
        "json": _JSON,
    },
    iterable=["step"],
)
def explain(
    _ctx: Any,
    cell: str | None = None,
    file: str | None = None,
    all: bool = False,  # noqa: A002 - the flag's name
    e2e: bool = False,
    only_group: str | None = None,
    step: Sequence[str] | None = None,
    base: str | None = None,
    commit: str | None = None,
    source: str | None = None,
    annotation: bool = False,
    json: bool = False,
) -> None:
    """Show for every step whether it runs, and the one reason."""
    from tasks.pipelines import begin, showing

    begin.exclude({"--annotation": annotation, "--json": json})
    choice = begin.choose(run_all=all, e2e=e2e, group=only_group, steps=step)
    wanted = begin.Wanted(cell, file, base, commit)
    decided = begin.decide(begin.open_run(source=source), wanted, choice, notes=True)
    showing.explained(decided.explanation, json=json, annotation=annotation)


@task(
    example="pipelines.check --file .buildkite/test-ready.yml",
    help={
        "file": "check this file only; default: the file of every cell, and what they are together",
        "strict": "let warnings fail the check too",
        "today": "day that quarantines are judged on, for example 2026-01-31; default: today",
        "source": _SOURCE,
        "json": _JSON,
    },
)
def check(
    _ctx: Any,
    file: str | None = None,
    strict: bool = False,
    today: str | None = None,
    source: str | None = None,
    json: bool = False,
) -> None:
    """Check pipeline files for what can be known before they run."""
    from tasks.pipelines import begin, checking, showing

    found = begin.check(file, today=today, source=source)
    showing.findings(found, json=json)
    begin.require_clean(found, failed=checking.fails(found, strict=strict))


@task(
    example="pipelines.diff before.yml after.yml",
    help={"old": "rendered pipeline", "new": "another one, which it is compared with", "json": _JSON},
)
def diff(_ctx: Any, old: str, new: str, json: bool = False) -> None:
    """Show what differs between two rendered pipelines, step by step."""
    from tasks.pipelines import begin, comparing, showing

    showing.differences(comparing.diff(begin.read_rendered(old), begin.read_rendered(new)), json=json)


@task(
    example="pipelines.install --source ../vllm-omni --address https://example.com/{commit}.tar",
    help={
        "source": _SOURCE,
        "address": "where the tool's archive will be, {commit} for its commit; default: as in the lock before",
        "archive": "folder to write the archive into, for putting it there",
        "check": "write nothing: fail when something is not as it would be written",
        "profile": _PROFILE,
        "dry_run": _DRY_RUN,
        "json": _JSON,
    },
)
def install(
    _ctx: Any,
    source: str | None = None,
    address: str | None = None,
    archive: str | None = None,
    check: bool = False,
    profile: str | None = None,
    dry_run: bool = False,
    json: bool = False,
) -> None:
    """Write the entry pipelines and this tool's lock into the library."""
    from tasks.pipelines import begin, installing, showing, starting
    from tasks.support import console

    begin.exclude({"--check": check, "--dry-run": dry_run})
    begin.exclude({"--check": check, "--archive": archive is not None})
    begin.exclude({"--check": check, "--address": address is not None})
    run = starting.open_install(source, profile=profile, writes=not (dry_run or check))
    if check:
        showing.checked(starting.check(run), run.source, json=json)
        return
    found = starting.plan(run, address)
    if dry_run:
        console.dry_run(showing.installation_plan(found.files, archive), json=json)
        return
    path = installing.write_archive(found.archive, starting.folder(archive)) if archive else None
    showing.installation(installing.install(run.source, found.files), json=json, archive=path)
