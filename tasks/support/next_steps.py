"""Command lines for people to copy: they name the same places as the run that prints them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any

_given: ContextVar[Mapping[str, Any]] = ContextVar("given", default=MappingProxyType({}))


@contextmanager
def given(values: Mapping[str, Any]) -> Iterator[None]:
    """Remember a task's arguments by parameter name while the block runs; what was not given is None or False."""
    before = _given.set(MappingProxyType(dict(values)))
    try:
        yield
    finally:
        _given.reset(before)


def command(task: str, *words: str, flags: Sequence[str] = ()) -> str:
    """Return the line that runs a task, with those of ``flags`` (parameter names) that this run was given itself.

    What came from the environment is left out: a shell that has it passes it on.
    """
    return shlex.join(["invoke", task, *words, *_repeated(flags)])


def flag(name: str) -> str | None:
    """Return the value that this run was given for a flag, or None."""
    value = _given.get().get(name)
    return value if isinstance(value, str) else None


def _repeated(flags: Sequence[str]) -> Iterator[str]:
    for name in flags:
        value = _given.get().get(name)
        option = f"--{name.replace('_', '-')}"
        if value is True:
            yield option
            continue
        for text in value if isinstance(value, (list, tuple)) else [value]:
            if isinstance(text, str) and text:
                yield from (option, text)
