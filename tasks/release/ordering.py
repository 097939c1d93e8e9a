"""Whether a channel's floating tags may move: nightly only forward, latest only to the newest stable version."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from packaging.version import Version

from tasks.release import next_steps
from tasks.release.channels import Channel
from tasks.release.ledger import Entry
from tasks.release.shown import Shown, moment_of
from tasks.support.errors import MissingInputError
from tasks.support.source import Ancestry

AskAncestry = Callable[[str, str], Ancestry]
"""Answers how an older commit (first) relates to a newer one (second)."""


@dataclass(frozen=True)
class Verdict:
    """Whether the floating tags move, and why or why not."""

    moves: bool
    reason: str


@dataclass(frozen=True)
class Candidate:
    """What is to be published. ``commit_time`` is RFC 3339; ``back`` is the rollback that took this image back."""

    digest: str
    commit: str
    commit_time: str | None
    version: Version | None = None
    back: Entry | None = None


def judge_nightly(current: Shown | None, candidate: Candidate, ask: AskAncestry) -> Verdict:
    """Decide whether nightly moves: by ancestry where it is known, else by the commits' times.

    Raises MissingInputError when two commits' order cannot be told.
    """
    if current is None:
        return Verdict(moves=True, reason="first publish")
    if current.digest == candidate.digest:
        return Verdict(moves=True, reason="already there")
    if candidate.back is not None:
        return Verdict(moves=False, reason=_taken_back(Channel.NIGHTLY, candidate))
    if current.commit is None:
        return Verdict(moves=True, reason="what it shows does not say its commit")
    return _by_order(current, current.commit, candidate, ask)


def _by_order(current: Shown, there: str, candidate: Candidate, ask: AskAncestry) -> Verdict:
    relation = ask(there, candidate.commit) if there != candidate.commit else Ancestry.ANCESTOR
    if relation is Ancestry.ANCESTOR:
        return Verdict(moves=True, reason=f"descends from {there}")
    if relation is Ancestry.DESCENDANT:
        return Verdict(moves=False, reason=f"nightly stays at {there}, which descends from this commit")
    return _by_time(current, candidate)


def _by_time(current: Shown, candidate: Candidate) -> Verdict:
    there, ours = moment_of(current.commit_time), moment_of(candidate.commit_time)
    if there is None or ours is None or there == ours:
        raise _order_unknown(f"{current.commit} (now nightly)", candidate.commit, there, ours)
    if there < ours:
        return Verdict(moves=True, reason=f"newer than {current.commit} of {current.commit_time}")
    stays = f"nightly stays at {current.commit} of {current.commit_time}"
    return Verdict(moves=False, reason=f"{stays} (this commit of {candidate.commit_time} is older)")


def _order_unknown(current: str, candidate: str, there: float | None, ours: float | None) -> MissingInputError:
    """Say which commit lacks its time, and what helps: --commit-time is only about the one that is published."""
    history = "run it where the library's history holds both commits (--source)"
    if there is None:
        lacks = f"the time of {current} is not known" if ours is not None else "the time of neither is known"
        hint = history
    elif ours is None:
        lacks, hint = f"the time of {candidate} is not known", f"pass --commit-time, or {history}"
    else:
        lacks, hint = "they have the same time", history
    message = f"cannot tell which is newer, {current} or {candidate}: {lacks}"
    return MissingInputError(message, hint=f"nothing was changed; {hint}")


def judge_latest(
    current: Shown | None, newest: Version | None, candidate: Candidate, *, move_latest: bool = False
) -> Verdict:
    """Decide whether latest moves. ``newest`` is the newest stable version among the tags when there is no latest."""
    version = candidate.version
    if version is None:
        raise ValueError("a release has a version")
    if current is not None and current.digest == candidate.digest:
        return Verdict(moves=True, reason="already there")
    if move_latest:
        return Verdict(moves=True, reason="--move-latest")
    at = current.version if current is not None else newest
    obstacle = _obstacle(current, at, candidate, version)
    if obstacle is None:
        return Verdict(moves=True, reason="first publish" if current is None else f"newer than {at}")
    return Verdict(moves=False, reason=obstacle)


def _obstacle(current: Shown | None, at: Version | None, candidate: Candidate, version: Version) -> str | None:
    """Say why latest stays, or None when it moves."""
    if candidate.back is not None:
        return _taken_back(Channel.RELEASE, candidate)
    stays = "there is no latest yet" if current is None else f"latest stays at {at or current.digest}"
    if version.is_prerelease:
        return f"{stays} ({version} is a pre-release)"
    if current is not None and at is None:
        return f"{stays} (its version is not known; --move-latest moves it all the same)"
    if at is not None and version < at:
        return f"{stays} ({version} is older)" if current is not None else f"{stays} ({version} is older than {at})"
    return None


def _taken_back(channel: Channel, candidate: Candidate) -> str:
    name = candidate.version or candidate.commit
    run = candidate.back.run if candidate.back is not None else ""
    return (
        f"{channel.floating} stays where run {run} rolled it back to: {name} was taken back "
        f"({next_steps.rollback(channel, candidate.digest)} brings it again)"
    )
