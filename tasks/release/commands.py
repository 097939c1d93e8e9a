"""The release tasks: what one command does for a whole channel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tasks.support.task import task

if TYPE_CHECKING:
    from collections.abc import Sequence


@task(
    help={
        "channel": "nightly",
        "source": "checkout of the library to build; default: a small sample project",
        "device": "cuda, rocm, xpu, npu or cpu; repeatable; default: cuda",
        "json": "print the result as JSON on stdout",
    },
    iterable=["device"],
)
def rehearse(
    _ctx: Any, channel: str, source: str | None = None, device: Sequence[str] | None = None, json: bool = False
) -> None:
    """Rehearse a whole nightly on this machine; nothing public changes."""
    from tasks.release import rehearsal
    from tasks.support import settings

    request = rehearsal.Request.parse(channel, source, device)
    report = rehearsal.run(settings.load(profile="local", source=source), request)
    rehearsal.show(report, json=json)
