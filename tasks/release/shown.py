"""What a public tag shows: its digest, and the commit, version and time behind it, as far as that is written down."""

from __future__ import annotations

from dataclasses import dataclass

from packaging.version import Version

from tasks.registry.documents import Manifest
from tasks.registry.interface import Repository
from tasks.release import next_steps
from tasks.release.channels import Channel, floating_group, version_of_tag
from tasks.release.labels import image_manifests, labels_of, read_config
from tasks.release.ledger import Entry, History
from tasks.support.arguments import parse_moment
from tasks.support.errors import DataError, MissingInputError, UsageError
from tasks.wheels.layout import is_commit


@dataclass(frozen=True)
class Shown:
    """What one tag points at. ``cause`` is the run that moved it there; None when the ledger does not know."""

    tag: str
    digest: str
    commit: str | None = None
    commit_time: str | None = None
    version: Version | None = None
    cause: Entry | None = None


def look(public: Repository, history: History, channel: Channel) -> Shown | None:
    """Return what a channel's floating tag shows, or None when there is no such tag.

    The ledger is asked first, then the image's labels; for ``latest`` also the version tags of the same digest.
    """
    tag = channel.floating
    found = public.head(tag)
    if found is None:
        return None
    shown = describe(public, history, tag, found.digest)
    if shown.version is None and channel is Channel.RELEASE:
        shown = Shown(
            tag, shown.digest, shown.commit, shown.commit_time, _version_by_tag(public, found.digest), shown.cause
        )
    return shown


def describe(public: Repository, history: History, tag: str, digest: str) -> Shown:
    """Return what is known of a digest under a tag."""
    cause = history.cause(tag, digest)
    # A run that found the digest in place did not bring it, but says what it is.
    known = cause or next((entry for entry, change in history.changes(tag) if change.new == digest), None)
    if known is not None and known.commit is not None:
        version = Version(known.version) if known.version is not None else None
        return Shown(tag, digest, known.commit, known.commit_time, version, cause)
    try:
        top = public.manifest(digest)
        images = image_manifests(public, top, f"{public.name}:{tag}") if top is not None else []
        labels = labels_of(read_config(public, images[0]), tag) if images else None
    except (DataError, MissingInputError):
        labels = None  # what others have pushed may be of any form
    if labels is None:
        return Shown(tag, digest, cause=cause)
    commit = labels.revision if labels.revision is not None and is_commit(labels.revision) else None
    return Shown(tag, digest, commit, labels.created, labels.public_version, cause)


def mixed(public: Repository, channel: Channel) -> str | None:
    """Say which of a channel's aliases show no image of its floating tag's index, and what mends that, or None.

    A tag that is not there is none of them; neither is any when the floating tag shows no index.
    """
    group = floating_group(channel)
    try:
        index = public.manifest(group.tag)
        if index is None or not index.is_index:
            return None
        tops = {alias: public.manifest(alias) for alias in group.aliases.values()}
    except (DataError, MissingInputError):
        return None
    within = {index.digest, *(child.digest for child in index.children)}
    strays = [alias for alias, top in tops.items() if top is not None and not _is_part(top, within)]
    if not strays:
        return None
    line = next_steps.rollback(channel, index.digest)
    return f"{', '.join(strays)}: no image of what {group.tag} shows ({line} mends that)"


def _is_part(top: Manifest, within: set[str]) -> bool:
    return top.digest in within or (bool(top.children) and all(child.digest in within for child in top.children))


def moment_of(text: str | None) -> float | None:
    """Return a written time in seconds since 1970, or None when it is missing or no time."""
    try:
        return parse_moment(text, "a time").timestamp() if text is not None else None
    except UsageError:
        return None


def newest_stable(public: Repository) -> Version | None:
    """Return the newest version among the tags ``v<version>`` that is no pre-release, or None."""
    versions = [version for version in map(version_of_tag, public.tags()) if version and not version.is_prerelease]
    return max(versions, default=None)


def _version_by_tag(public: Repository, digest: str) -> Version | None:
    tags = [(version, tag) for tag in public.tags() if (version := version_of_tag(tag)) is not None]
    for version, tag in sorted(tags, reverse=True):
        found = public.head(tag)
        if found is not None and found.digest == digest:
            return version
    return None
