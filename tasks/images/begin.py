"""What every images task starts with: the facts that plans are made from, and what the profile allows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from tasks.images import facts, tool_context
from tasks.images.catalogue import Catalogue, Folder, load
from tasks.images.engine import Endpoint
from tasks.images.indexing import Indexed, push_index
from tasks.images.planning import BuildPlan, Facts, Request, SourceFacts, parse_args, plan_build, plan_chain
from tasks.registry.references import RepositoryName
from tasks.support import announcing, paths, profiles, settings
from tasks.support.errors import MissingInputError, unknown_choice
from tasks.support.settings import Settings
from tasks.support.source import check_commit, resolve_source

_NO_COMMIT = "0" * 40


@dataclass(frozen=True)
class Run:
    """One run's settings and catalogue."""

    settings: Settings
    catalogue: Catalogue


def open_run(*, profile: str | None = None, source: str | None = None) -> Run:
    """Read the settings and the catalogue."""
    return Run(settings.load(profile=profile, source=source), load())


def now() -> datetime:
    """Return the present moment."""
    return datetime.now(UTC)


def request(
    run: Run, name: str, *, platform: str | None = None, push: bool = False, args: Sequence[str] | None = None
) -> Request:
    """Return what is asked for, with the addresses that the settings put in the place of the catalogue's."""
    given = {"staging": run.settings.staging, "public": run.settings.public}
    return Request(
        image=name,
        platform=platform,
        push=push,
        args=parse_args(list(args or ())),
        variables=run.settings.environment,
        # An OCI layout's folder is no name for an engine: a build without a push does not need one.
        addresses={key: value for key, value in given.items() if value and (push or not value.startswith("file:"))},
    )


def bake_requests(
    run: Run, names: Sequence[str], *, platform: str | None, push: bool, args: Sequence[str] | None
) -> list[Request]:
    """Return a request for each image and platform, or for the one platform; local images are not pushed."""
    found = []
    for name in names:
        image = run.catalogue.image(name)
        pushed = push and not run.catalogue.repository(image.repository).local
        platforms = [platform] if platform else list(map(str, image.platforms))
        found += [request(run, name, platform=one, push=pushed, args=args) for one in platforms]
    return found


def bakeable(run: Run, platform: str | None) -> list[str]:
    """Return the images that are built for a platform; all of them where none is asked for."""
    images = run.catalogue.images.values()
    found = [image.name for image in images if platform is None or platform in map(str, image.platforms)]
    if not found:
        raise unknown_choice("platform", platform or "", {str(one) for image in images for one in image.platforms})
    return found


def announce(chosen: Settings, plans: Sequence[BuildPlan], *, dry_run: bool) -> None:
    """Say what the profile promises and where images go, and refuse a push that it forbids."""
    targets = sorted({str(RepositoryName.parse(plan.repository)) for plan in plans if plan.push})
    where = ", ".join(targets) or "this machine's engine, no push"
    announcing.announce(chosen.profile, profiles.Deed.STAGE, targets, where, dry_run=dry_run)


def announce_care(chosen: Settings, endpoint: Endpoint, *, dry_run: bool, due: bool) -> None:
    """Say what the profile promises; ``local`` cleans up no engine of another machine."""
    shown = endpoint.shown()
    targets = [shown] if due and not endpoint.is_local else []
    announcing.announce(chosen.profile, profiles.Deed.CLEAN, targets, shown, dry_run=dry_run)


def gather(
    run: Run, names: Sequence[str], *, commit: str | None, allow_dirty: bool = False, push: bool = False
) -> Facts:
    """Return the facts that these images are planned from; a source is needed only if one of them is made of it.

    The commit is ``--commit``, else BUILDKITE_COMMIT where it is a hash, else the source's HEAD, and the source must
    be at it.
    """
    chosen, catalogue = run.settings, run.catalogue
    needed = any(_needs_source(catalogue, name) for name in names)
    try:
        checkout = resolve_source(chosen, paths.current_folder())
    except MissingInputError:
        if needed or chosen.source is not None:
            raise
        nobodys = SourceFacts(Path("/nonexistent"), _NO_COMMIT, "", datetime.fromtimestamp(0, UTC), catalogue.source)
        return Facts(nobodys, tool_context.facts())
    wanted = commit
    if wanted is None and chosen.variable("BUILDKITE_COMMIT") != "HEAD":
        wanted = chosen.variable("BUILDKITE_COMMIT")
    if wanted is not None:
        check_commit(wanted, "--commit" if commit is not None else "BUILDKITE_COMMIT", checkout)
    if not needed:
        allow_dirty, push = True, False
    return facts.gather(checkout, catalogue.source, commit=wanted, allow_dirty=allow_dirty, push=push)


def make_plans(run: Run, requests: Sequence[Request], found: Facts) -> list[BuildPlan]:
    """Return the plans of what is asked for and of what that is built from, each once, in the order to build them.

    MissingInputError for a secret whose file is not there.
    """
    plans = {plan.tags: plan for asked in requests for plan in plan_chain(run.catalogue, asked, found)}
    for secret in (secret for plan in plans.values() for secret in plan.secrets):
        if not secret.file.is_file():
            raise MissingInputError(
                f"the secret {secret.id} is no file: {secret.file}",
                hint="correct the variable that names it, or unset it",
            )
    return list(plans.values())


def index(run: Run, asked: Request, found: Facts) -> Indexed | None:
    """Put the index of an image's platforms, when it was pushed and has one; what it waits for is in the answer."""
    image = run.catalogue.image(asked.image)
    if not asked.push or not image.index:
        return None
    plans = [plan_build(run.catalogue, replace(asked, platform=str(platform)), found) for platform in image.platforms]
    return push_index(plans, run.settings)


def _needs_source(catalogue: Catalogue, name: str) -> bool:
    image = catalogue.image(name)
    return image.context is Folder.SOURCE or any(_needs_source(catalogue, need) for need in image.needs)
