"""Rehearsing the images of a nightly: staged for two architectures, published, cleaned up and rolled back.

Staging and public are OCI layouts in the rehearsal's folder. With an engine the images of the two nightlies are built
from a Dockerfile without a base; without one they are made of bytes, as those of the older nightlies always are.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

from tasks.registry.documents import Platform
from tasks.registry.oci_layout import LayoutRepository
from tasks.release import rehearsal_image, status
from tasks.release.channels import ARCHITECTURES, Channel, source_tag
from tasks.release.cleanup import plan_cleanup, read_rule, run_cleanup
from tasks.release.moving import Run
from tasks.release.promotion import PublishReport, execute_publish
from tasks.release.promotion_plan import Parties, Request, plan_publish
from tasks.release.rehearsal_image import Nightly, made_up_commit
from tasks.release.undo import execute_rollback, plan_rollback
from tasks.support.console import plural
from tasks.support.errors import DataError
from tasks.support.settings import Settings
from tasks.support.store import ObjectStore

OLDER = 18
"""With the two of the rehearsal these make twenty nightlies, of which a clean-up keeps fourteen."""

TakeStep = Callable[[str, Callable[[], str]], None]
"""Runs one step under its name, timed, and shows what it returns."""


@dataclass(frozen=True)
class _Images:
    """The images' part of a rehearsal: who takes part, and what makes an image of a nightly for a platform."""

    settings: Settings
    parties: Parties
    make: Callable[[Nightly, Platform], None]

    def stage(self, nightly: Nightly) -> str:
        for platform in ARCHITECTURES.values():
            self.make(nightly, platform)
        return f"{nightly.commit[:8]} for {' and '.join(map(str, ARCHITECTURES.values()))}"

    def publish(self, nightly: Nightly) -> PublishReport:
        request = Request(Channel.NIGHTLY, nightly.commit, commit_time=nightly.time)
        return execute_publish(self.parties, plan_publish(self.parties, request), Run.start(self.settings))

    def shown(self) -> str:
        """Return the digest that the public nightly shows."""
        found = self.parties.public.head(Channel.NIGHTLY.floating)
        if found is None:
            raise DataError("there is no public nightly")
        return found.digest


def rehearse(
    settings: Settings, folder: Path, store: ObjectStore, nightlies: tuple[Nightly, Nightly], step: TakeStep
) -> None:
    """Rehearse the images of two nightlies, the older one first; whatever is not as it should be is an error."""
    first, second = nightlies
    registry = folder / "registry"
    staging, public = LayoutRepository(registry / "staging"), LayoutRepository(registry / "public")
    parties = Parties(staging, public, store)
    older = _Images(settings, parties, lambda nightly, platform: rehearsal_image.make(staging, nightly, platform))
    step(f"publish images of {OLDER} older nightlies", lambda: _publish_older(older, first))
    with ExitStack() as stack:
        images, how = older, "made of bytes: there is no engine here"
        with suppress(rehearsal_image.NoEngineError):
            make = stack.enter_context(rehearsal_image.builder(settings, folder / "images", staging))
            images, how = replace(older, make=make), "built by the engine"
        step(f"stage images ({how})", lambda: images.stage(first))
        step("publish them as nightly", lambda: _publish(images, first))
        before = images.shown()
        step("publish them again", lambda: _publish_again(images, first))
        step("stage the second nightly's images", lambda: images.stage(second))
        step("publish them as nightly", lambda: _publish(images, second))
    step("publish the first nightly's images again", lambda: _stays(images, first))
    step("clean up 20 nightlies", lambda: _clean_up(images))
    step("roll nightly's images back", lambda: _roll_back(images, before))
    step("compare the tags with the ledger", lambda: _status(images))


def _publish_older(images: _Images, first: Nightly) -> str:
    newest = datetime.fromisoformat(first.time)
    for number in range(OLDER, 0, -1):
        nightly = Nightly(made_up_commit(str(number)), (newest - timedelta(days=number)).isoformat())
        images.stage(nightly)
        images.publish(nightly)
    return f"{len(images.parties.public.tags())} tags"


def _publish(images: _Images, nightly: Nightly) -> str:
    """Publish a nightly, and check that what users pull is what was staged."""
    report = images.publish(nightly)
    public, staging = images.parties.public, images.parties.staging
    index = public.manifest(Channel.NIGHTLY.floating)
    fixed = public.head(f"nightly-{nightly.commit}")
    if index is None or fixed is None or fixed.digest != index.digest:
        raise DataError(f"nightly does not show the commit {nightly.commit}")
    found = {str(child.platform): child.digest for child in index.children}
    for architecture, platform in ARCHITECTURES.items():
        staged = staging.head(source_tag(nightly.commit, architecture))
        if staged is None or found.get(str(platform)) != staged.digest:
            raise DataError(f"the image for {platform} is not the one that was staged")
    return f"{plural(len(report.plan.writes), 'tag')}, digests as staged"


def _publish_again(images: _Images, nightly: Nightly) -> str:
    report = images.publish(nightly)
    if report.wrote or report.copied is not None:
        raise DataError("publishing the same images again wrote something")
    return "nothing to write"


def _stays(images: _Images, first: Nightly) -> str:
    there = images.shown()
    report = images.publish(first)
    if report.plan.verdict.moves or images.shown() != there:
        raise DataError("nightly went back to the older commit")
    return f"refused: {report.plan.verdict.reason}"


def _clean_up(images: _Images) -> str:
    rule = read_rule(None, None, None)
    cleanup = plan_cleanup(images.settings, images.parties, rule, reclaim=True)
    report, error = run_cleanup(cleanup, tell=lambda _line: None)
    if error is not None:
        raise error
    left = [tag for tag in images.parties.public.tags() if re.fullmatch(rule.pattern, tag)]
    if len(left) != rule.keep or len(report.deleted) != OLDER + 2 - rule.keep:
        raise DataError(f"{len(left)} nightlies are left and {len(report.deleted)} went, of {OLDER + 2}")
    return f"{plural(len(report.deleted), 'tag')} deleted, {len(left)} nightlies left"


def _roll_back(images: _Images, before: str) -> str:
    parties = images.parties
    plan = plan_rollback(parties.public, parties.store, Channel.NIGHTLY)
    execute_rollback(parties.public, parties.store, plan, Run.start(images.settings))
    if images.shown() != before:
        raise DataError(f"nightly is not back at {before}")
    return f"nightly is {before[:19]} again"


def _status(images: _Images) -> str:
    rows = status.channel_status(images.parties.public, images.parties.store, Channel.NIGHTLY)
    drift = [f"{row.tag}: {row.note}" for row in rows if row.note != status.AS_RECORDED]
    if drift:
        raise DataError(f"the ledger does not agree with the tags: {'; '.join(drift)}")
    return f"{plural(len(rows), 'tag')} as recorded"
