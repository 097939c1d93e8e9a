"""The images tasks: list, build, bake, push and lint the catalogue's images, and care for the engine's disk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tasks.support.task import task

if TYPE_CHECKING:
    from collections.abc import Sequence

_NAME = "image of docker/images.yml; images.list shows them"
_PROFILE = "local, ci or production: what may be changed"
_DRY_RUN = "print the plan and stop"
_JSON = "print the result as JSON on stdout"
_FROM = {
    "platform": "linux/amd64 or linux/arm64; default: the image's first",
    "arg": "build argument NAME=VALUE that wins over the catalogue's; repeatable",
    "source": "checkout of the library",
    "commit": "full commit hash that the source must be at; default: BUILDKITE_COMMIT, else its HEAD",
    "allow_dirty": "build uncommitted changes too (not for pushing)",
}


@task(help={"json": _JSON})
def list(_ctx: Any, json: bool = False) -> None:  # noqa: A001 - the task's name
    """List every image that can be built."""
    from tasks.images import catalogue, showing

    showing.catalogue(catalogue.load(), json=json)


@task(
    example="images.build cuda-release --platform linux/arm64 --push --profile ci",
    help={
        "name": _NAME,
        "push": "push it, and what it is built from, and verify what the registry has",
        **_FROM,
        "profile": _PROFILE,
        "dry_run": _DRY_RUN,
        "json": _JSON,
    },
    iterable=["arg"],
)
def build(
    _ctx: Any,
    name: str,
    push: bool = False,
    platform: str | None = None,
    arg: Sequence[str] | None = None,
    source: str | None = None,
    commit: str | None = None,
    allow_dirty: bool = False,
    profile: str | None = None,
    dry_run: bool = False,
    json: bool = False,
) -> None:
    """Build an image, and what it is built from where that is not there."""
    from tasks.images import begin, building, showing
    from tasks.support import console

    run = begin.open_run(profile=profile, source=source)
    request = begin.request(run, name, platform=platform, push=push, args=arg)
    found = begin.gather(run, [name], commit=commit, allow_dirty=allow_dirty, push=push)
    plans = begin.make_plans(run, [request], found)
    begin.announce(run.settings, plans, dry_run=dry_run)
    if dry_run:
        console.dry_run(showing.build_actions(plans, last=name), json=json)
        return
    showing.build_plans(plans)
    results = building.build_all(plans, run.settings, run.catalogue, found.tool)
    showing.built(results, begin.index(run, request, found), json=json)


@task(
    example="images.bake --image cuda-release | docker buildx bake --file -",
    help={"image": f"{_NAME}; repeatable; default: all", **_FROM, "push": "let bake push what it builds"},
    iterable=["image", "arg"],
)
def bake(
    _ctx: Any,
    image: Sequence[str] | None = None,
    platform: str | None = None,
    arg: Sequence[str] | None = None,
    source: str | None = None,
    commit: str | None = None,
    allow_dirty: bool = False,
    push: bool = False,
) -> None:
    """Print builds as JSON for docker buildx bake --file -."""
    from tasks.images import begin, tool_context
    from tasks.images.bake import bake as as_bake
    from tasks.support import console

    run = begin.open_run(source=source)
    names = [*(image or begin.bakeable(run, platform))]
    found = begin.gather(run, names, commit=commit, allow_dirty=allow_dirty, push=push)
    requests = begin.bake_requests(run, names, platform=platform, push=push, args=arg)
    plans = begin.make_plans(run, requests, found)
    if any(plan.context == found.tool.folder for plan in plans):
        tool_context.prepare(found.tool)
    console.emit_json(as_bake(plans))


@task(
    example="images.push cuda-release --profile ci",
    help={
        "name": _NAME,
        "platform": _FROM["platform"],
        "source": _FROM["source"],
        "commit": _FROM["commit"],
        "profile": _PROFILE,
        "dry_run": _DRY_RUN,
        "json": _JSON,
    },
)
def push(
    _ctx: Any,
    name: str,
    platform: str | None = None,
    source: str | None = None,
    commit: str | None = None,
    profile: str | None = None,
    dry_run: bool = False,
    json: bool = False,
) -> None:
    """Push an image that was built here, and verify what the registry has."""
    from tasks.images import begin, building, showing
    from tasks.support import console

    run = begin.open_run(profile=profile, source=source)
    request = begin.request(run, name, platform=platform, push=True)
    found = begin.gather(run, [name], commit=commit, push=True)
    plan = begin.make_plans(run, [request], found)[-1]
    begin.announce(run.settings, [plan], dry_run=dry_run)
    if dry_run:
        console.dry_run([("push", tag, "asked for") for tag in plan.tags], json=json)
        return
    showing.built([building.push_built(plan, run.settings)], begin.index(run, request, found), json=json)


@task(
    example="images.disk --threshold 70% --dry-run",
    help={
        "prune": "remove what nobody needs, however full the disk is",
        "threshold": "share of the disk above which it is done unasked, for example 70%",
        "older_than": "spare stopped containers, unused images of one commit and build cache younger than this",
        "dry_run": _DRY_RUN,
        "json": _JSON,
    },
)
def disk(
    _ctx: Any,
    prune: bool = False,
    threshold: str = "70%",
    older_than: str = "72h",
    dry_run: bool = False,
    json: bool = False,
) -> None:
    """Show the engine's disk use; above the threshold, prune."""
    from tasks.images import begin, showing
    from tasks.images import disk as care
    from tasks.images.engine import open_engine
    from tasks.support import console
    from tasks.support.arguments import parse_age, parse_share

    settings = begin.open_run().settings
    share, age = parse_share(threshold, "--threshold"), parse_age(older_than, "--older-than")
    with open_engine(settings) as engine:
        plan = care.plan_disk(engine, begin.now(), threshold=share, prune=prune, older_than=age)
        begin.announce_care(settings, engine.endpoint, dry_run=dry_run, due=plan.due)
        showing.disk_plan(plan)
        if dry_run:
            console.dry_run(plan.actions(), json=json)
            return
        showing.disk_report(care.execute_disk(engine, plan), json=json)


@task(help={"json": _JSON})
def lint(_ctx: Any, json: bool = False) -> None:
    """Check the Dockerfiles with hadolint and our own rules."""
    from tasks.images import catalogue, linting, showing

    found = linting.lint(catalogue.load())
    showing.findings(found, json=json)
    linting.require_clean(found)
