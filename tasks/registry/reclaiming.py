"""Deleting the manifests that no tag and no rollback needs any more: the index first, then what only it held."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from tasks.registry.documents import INDEXES
from tasks.registry.interface import Repository
from tasks.registry.retention import CleanupPlan, Contents, StoredTag, digests_of
from tasks.support.errors import CredentialsError, OmniError, TemporaryError

_READERS = 4


@dataclass
class Reclaimed:
    """What became of the manifests: the deleted ones (or gone already), those that stay, and what ended it early."""

    deleted: list[str] = field(default_factory=list)
    kept: list[tuple[str, str]] = field(default_factory=list)
    failure: OmniError | None = None


def read_contents(repository: Repository, digests: Iterable[str]) -> Contents:
    """Read what each manifest holds: one request for each, and one for each index inside an index.

    A digest that the repository does not have is left out. Raises what the repository raises: what could not be
    read could hold anything.
    """
    wanted = sorted(set(digests))
    with ThreadPoolExecutor(_READERS) as pool:
        found = pool.map(lambda digest: _below(repository, digest), wanted)
        return {digest: below for digest, below in zip(wanted, found, strict=True) if below is not None}


def _below(repository: Repository, root: str) -> tuple[str, ...] | None:
    """Return every digest below a manifest, parents first; None when the manifest is not there."""
    below: dict[str, None] = {}
    queue = [root]
    for digest in queue:  # which grows while it is read
        manifest = repository.manifest(digest)
        if manifest is None and digest == root:
            return None
        for child in manifest.children if manifest else ():
            if child.media_type in INDEXES and child.digest not in below:
                queue.append(child.digest)
            below.setdefault(child.digest)
    return tuple(below)


def reclaim(
    repository: Repository,
    plan: CleanupPlan,
    tags: Sequence[StoredTag],
    tell: Callable[[str], None],
    check: Callable[[], None] = lambda: None,
) -> Reclaimed:
    """Delete the plan's manifests, unless one of ``tags`` (all that there are now) needs them.

    A refusal (403: another manifest refers to it) and a deletion that the registry only queues (500) are noted and
    go on; any other failure, and what ``check`` raises before a deletion, ends it, and is returned with what was done.
    """
    result = Reclaimed()
    try:
        going = {item.digest for item in plan.reclaims}
        contents = read_contents(repository, digests_of(tags, going))
        needed: dict[str, str] = {}
        for tag in tags:
            if tag.digest is not None:
                needed |= dict.fromkeys((tag.digest, *contents.get(tag.digest, ())), tag.name)
        for item in plan.reclaims:
            for digest in (item.digest, *item.children):
                holders = [other for other in going if digest in contents.get(other, ())]
                why = _why_kept(digest, needed, holders, result) or _delete(repository, digest, check)
                if why is None:
                    result.deleted.append(digest)
                    tell(f"deleted manifest {digest}")
                else:
                    result.kept.append((digest, why))
    except OmniError as error:
        result.failure = error
    return result


def _why_kept(digest: str, needed: Mapping[str, str], holders: Iterable[str], result: Reclaimed) -> str | None:
    if digest in needed:
        return f"{needed[digest]} needs it"
    stays = next((holder for holder in holders if holder not in result.deleted), None)
    return f"{stays} stays and holds it" if stays else None


def _delete(repository: Repository, digest: str, check: Callable[[], None]) -> str | None:
    """Delete a manifest; return why it stays, None when it is gone."""
    check()
    try:
        repository.delete_manifest(digest)
    except CredentialsError as error:
        return f"refused: something refers to it, or the token lacks the right ({error.message})"
    except TemporaryError as error:
        # DockerHub answers 500 to a deletion that it does later.
        return f"perhaps deleted later ({error.message})" if repository.head(digest) else None
    return None
