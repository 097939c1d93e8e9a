"""The commands that a person is told to run next, with the flags that say where."""

from __future__ import annotations

from tasks.release.channels import Channel
from tasks.support.next_steps import command

_WHERE = ("public", "store", "profile")


def status() -> str:
    """Return the line that shows what the tags point at."""
    return command("release.status", flags=_WHERE)


def rollback(channel: Channel, to: str) -> str:
    """Return the line that moves a channel's floating tags to a digest or tag."""
    return command("release.rollback", channel.value, "--to", to, flags=_WHERE)


def rollback_of(channel: Channel, run: str) -> str:
    """Return the line that takes a run back."""
    return command("release.rollback", channel.value, "--run", run, flags=_WHERE)
