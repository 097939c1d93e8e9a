"""Disk care of an engine's host: what it uses, and which of it nobody needs; never what a running job may use.

What goes is decided here from the engine's own account and removed one by one, without force: the engine itself
refuses whatever a container has taken into use since. A general prune does neither: it goes by when an image was
made and not by when it came here, takes named volumes on older engines, and breaks classic builds under way.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import Any

from tasks.images.engine import Engine
from tasks.support import console
from tasks.support.errors import MissingInputError, ServiceRefusedError

THRESHOLD = 0.7
OLDER_THAN = timedelta(hours=72)
GRACE = timedelta(hours=1)
"""What an untagged image or a volume without a name is spared for: a build or a job may be about to use it."""

# `<commit>`, `<commit>-x86_64`, `nightly-<commit>`: whoever needs it again can pull or build it.
_COMMIT_TAG = re.compile(r"(?:^|[-_.])[0-9a-f]{40}(?:$|[-_.])")
_ANONYMOUS = re.compile(r"[0-9a-f]{64}")
_ANONYMOUS_LABEL = "com.docker.volume.anonymous"
_NEVER = datetime(1970, 1, 1, tzinfo=UTC)
_STOPPED = frozenset({"exited", "dead", "created"})


class Kind(Enum):
    """What kind of thing goes."""

    CONTAINER = "container"
    IMAGE = "image"
    TAG = "tag"
    VOLUME = "volume"
    CACHE = "build cache"


@dataclass(frozen=True)
class Removal:
    """One thing that goes. ``size`` is in bytes and 0 where the engine cannot tell; ``image`` is what a tag is on."""

    kind: Kind
    name: str
    why: str
    size: int = 0
    image: str = ""


@dataclass(frozen=True)
class Holdings:
    """What an engine holds, as its API tells it; ``images`` and ``containers`` have their details by id."""

    images: tuple[Mapping[str, Any], ...] = ()
    containers: tuple[Mapping[str, Any], ...] = ()
    volumes: tuple[Mapping[str, Any], ...] = ()
    cache: tuple[Mapping[str, Any], ...] = ()
    tagged: Mapping[str, datetime] = field(default_factory=dict)
    """When each unused image was last given a tag here, by id."""
    stopped: Mapping[str, datetime] = field(default_factory=dict)
    """When each stopped container ended, by id."""


@dataclass(frozen=True)
class Use:
    """How full the file system of the engine's data is; ``share`` is None where this machine cannot see it."""

    root: Path
    share: float | None
    free: int | None
    images: int
    containers: int
    volumes: int
    cache: int


@dataclass(frozen=True)
class DiskPlan:
    """What would go, in order. ``due`` says whether a run removes it; ``why`` says why, or why not."""

    address: str
    use: Use
    due: bool
    why: str
    removals: tuple[Removal, ...]

    def actions(self) -> list[tuple[str, str, str]]:
        """Return the plan as rows of action, what and why; empty when nothing is due."""
        return [(f"remove {item.kind.value}", item.name, item.why) for item in self.removals] if self.due else []


@dataclass(frozen=True)
class DiskReport:
    """What a run removed, and what it kept after all, with the reason."""

    plan: DiskPlan
    removed: tuple[Removal, ...]
    kept: tuple[tuple[Removal, str], ...]
    share_after: float | None


def plan_disk(
    engine: Engine, now: datetime, *, threshold: float = THRESHOLD, prune: bool = False, older_than: timedelta
) -> DiskPlan:
    """Look at the engine and decide what goes; changes nothing. With ``prune`` it is due below the threshold too."""
    holdings = survey(engine)
    use = measure(engine.data_root(), holdings, local=engine.endpoint.is_local)
    full = use.share is not None and use.share > threshold
    if prune:
        why = "asked for"
    elif use.share is None:
        why = f"{use.root} is on another machine or cannot be seen from here: only --prune removes something"
    else:
        why = f"{use.share:.0%} used, the threshold is {threshold:.0%}"
    return DiskPlan(engine.endpoint.shown(), use, prune or full, why, tuple(choose_removals(holdings, now, older_than)))


def measure(root: Path, holdings: Holdings, *, local: bool) -> Use:
    """Return how full the engine's file system is, and what the engine says of its own things, in bytes."""
    share, free = _file_system(root) if local else (None, None)
    return Use(
        root=root,
        share=share,
        free=free,
        images=sum(_size(image) for image in holdings.images),
        containers=sum(int(container.get("SizeRw") or 0) for container in holdings.containers),
        volumes=sum(_volume_size(volume) for volume in holdings.volumes),
        cache=sum(int(record.get("Size") or 0) for record in holdings.cache if not record.get("Shared")),
    )


def _file_system(root: Path) -> tuple[float | None, int | None]:
    try:
        found = os.statvfs(root)
    except OSError:  # the engine sees another file tree than we do
        return None, None
    # As df(1): what is kept for root is neither used nor free.
    used, free = found.f_blocks - found.f_bfree, found.f_bavail
    return used / max(used + free, 1), free * found.f_frsize


def survey(engine: Engine) -> Holdings:
    """Ask the engine what it holds; what goes away while it is asked is left out."""
    held = engine.disk_use()
    images, containers = held.get("Images") or (), held.get("Containers") or ()
    return Holdings(
        images=tuple(images),
        containers=tuple(containers),
        volumes=tuple(held.get("Volumes") or ()),
        cache=tuple(held.get("BuildCache") or ()),
        tagged=_details(engine, _unused(images, containers), "image"),
        stopped=_details(engine, (one for one in containers if one.get("State") in _STOPPED), "container"),
    )


def _unused(images: Iterable[Mapping[str, Any]], containers: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the images that no container has, running or not."""
    used = {container["ImageID"] for container in containers}
    return [image for image in images if image["Id"] not in used]


def _details(engine: Engine, things: Iterable[Mapping[str, Any]], what: str) -> dict[str, datetime]:
    """Return the moment that counts for each thing: an image's last tag, a container's end."""
    moments = {}
    for thing in things:
        try:
            with engine.api(f"looking at {what} {thing['Id']}") as client:
                if what == "image":
                    facts = client.inspect_image(thing["Id"])
                    moments[thing["Id"]] = moment((facts.get("Metadata") or {}).get("LastTagTime"))
                else:
                    facts = client.inspect_container(thing["Id"])
                    moments[thing["Id"]] = moment(facts["State"].get("FinishedAt"))
        except MissingInputError:
            continue
    return moments


def choose_removals(holdings: Holdings, now: datetime, older_than: timedelta = OLDER_THAN) -> Iterator[Removal]:
    """Decide what goes; pure. Ages count from the last time that something was made, tagged, stopped or used here.

    Containers come first and the rest by its names, whatever order the engine tells things in.
    """
    grace = min(GRACE, older_than)
    unused = _unused(holdings.images, holdings.containers)
    kinds = (
        _containers(holdings, now, older_than),
        (item for image in unused for item in _image(image, holdings, now, older_than, grace)),
        _volumes(holdings, now, grace),
        _cache(holdings, now, older_than),
    )
    for kind in kinds:
        yield from sorted(kind, key=lambda item: (item.kind.value, item.image, item.name))


def _containers(holdings: Holdings, now: datetime, older_than: timedelta) -> Iterator[Removal]:
    for container in holdings.containers:
        ended = holdings.stopped.get(container["Id"])
        if container.get("State") not in _STOPPED or ended is None:
            continue
        age = _age(now, ended, moment(container.get("Created")))
        if age > older_than:
            name = next((name.lstrip("/") for name in container.get("Names") or ()), "") or container["Id"][:12]
            size = int(container.get("SizeRw") or 0)
            yield Removal(Kind.CONTAINER, name, f"stopped {console.age(age)} ago", size, container["Id"])


def _image(
    image: Mapping[str, Any], holdings: Holdings, now: datetime, older_than: timedelta, grace: timedelta
) -> Iterator[Removal]:
    key = image["Id"]
    if key not in holdings.tagged:
        return
    age = _age(now, moment(image.get("Created")), holdings.tagged[key])
    tags = [tag for tag in image.get("RepoTags") or () if tag != "<none>:<none>"]
    digests = [digest for digest in image.get("RepoDigests") or () if not digest.startswith("<none>")]
    if not tags:
        # One that was pulled by digest has no tag either, and came here at a time that the engine does not keep.
        if age > (older_than if digests else grace):
            yield Removal(Kind.IMAGE, key, f"untagged and unused, {console.age(age)} ago", _size(image), key)
        return
    if age <= older_than or not all(map(_is_one_commits, tags)):
        return
    for number, tag in enumerate(sorted(tags)):
        size = _size(image) if number == len(tags) - 1 else 0  # freed with the last tag
        yield Removal(Kind.TAG, tag, f"one commit's and unused, {console.age(age)} ago", size, key)


def _is_one_commits(name: str) -> bool:
    return _COMMIT_TAG.search(name.rpartition(":")[2]) is not None


def _volumes(holdings: Holdings, now: datetime, grace: timedelta) -> Iterator[Removal]:
    """Choose unused volumes that docker named itself; one that a person named may be a cache of models."""
    for volume in holdings.volumes:
        used = (volume.get("UsageData") or {}).get("RefCount", -1) != 0
        named = _ANONYMOUS_LABEL not in (volume.get("Labels") or {}) and not _ANONYMOUS.fullmatch(volume["Name"])
        age = _age(now, moment(volume.get("CreatedAt")))
        if not used and not named and age > grace:
            yield Removal(
                Kind.VOLUME, volume["Name"], f"unused and without a name, {console.age(age)} ago", _volume_size(volume)
            )


def _cache(holdings: Holdings, now: datetime, older_than: timedelta) -> Iterator[Removal]:
    for record in holdings.cache:
        age = _age(now, moment(record.get("LastUsedAt")), moment(record.get("CreatedAt")))
        if not record.get("InUse") and age > older_than:
            size = 0 if record.get("Shared") else int(record.get("Size") or 0)
            yield Removal(Kind.CACHE, record["ID"], f"last used {console.age(age)} ago", size)


def execute_disk(engine: Engine, plan: DiskPlan) -> DiskReport:
    """Remove what the plan says, one by one and without force; what is in use by now stays and is reported."""
    removed, kept = [], []
    for item in plan.removals if plan.due else ():
        reason = _remove(engine, item)
        if reason is None:
            removed.append(item)
        else:
            kept.append((item, reason))
    after = _file_system(plan.use.root)[0] if engine.endpoint.is_local else None
    return DiskReport(plan, tuple(removed), tuple(kept), after)


def _remove(engine: Engine, item: Removal) -> str | None:
    """Remove one thing and return None, or return why it stays."""
    try:
        with engine.api(f"removing {item.kind.value} {item.name}") as client:
            if item.kind is Kind.CONTAINER:
                client.remove_container(item.image)
            elif item.kind is Kind.VOLUME:
                client.remove_volume(item.name)
            elif item.kind is Kind.CACHE:
                # Only that one, and not if a build uses it now. The engine has no other call for it.
                client.prune_builds(filters={"id": item.name}, all=True)
            elif item.kind is Kind.TAG and client.inspect_image(item.name)["Id"] != item.image:
                return "the tag is on another image by now"
            else:
                client.remove_image(item.name)
    except MissingInputError:
        return None  # gone already
    except ServiceRefusedError as error:
        return error.message
    return None


def _size(image: Mapping[str, Any]) -> int:
    """Return what removing an image frees at most: layers that others share stay. -1 means that nobody counted."""
    return int(image.get("Size") or 0) - max(int(image.get("SharedSize") or 0), 0)


def _volume_size(volume: Mapping[str, Any]) -> int:
    return max(int((volume.get("UsageData") or {}).get("Size") or 0), 0)


def moment(stamp: object) -> datetime:
    """Return a time as the engine writes it: seconds since 1970, or RFC 3339 with nanoseconds; 1970 for none."""
    if isinstance(stamp, int) and stamp > 0:
        return datetime.fromtimestamp(stamp, UTC)
    text = stamp if isinstance(stamp, str) else ""
    try:
        found = datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", text))
    except ValueError:
        return _NEVER
    return max(found.astimezone(UTC) if found.tzinfo and found.year > 1 else _NEVER, _NEVER)


def _age(now: datetime, *moments: datetime) -> timedelta:
    """Return the time since the latest of these; none at all when no moment is known, so that the thing stays."""
    latest = max(moments)
    return now - latest if latest > _NEVER else timedelta()
