"""Reading and changing the index's state: every change is a conditional write, redone when it loses its race."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Generic, TypeVar

from tasks.support.errors import RemoteChangedError
from tasks.support.settings import WheelSettings
from tasks.support.store import ABSENT, Expected, ObjectStore, redo_on_conflict
from tasks.wheels import layout
from tasks.wheels.state import ProjectState, ViewState

State = TypeVar("State", ProjectState, ViewState)


def timestamp(moment: datetime) -> str:
    """Write a moment as RFC 3339 in UTC with microseconds, as PEP 700 asks for."""
    # strftime would not pad the years before 1000.
    return f"{moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec='microseconds')}Z"


def now() -> str:
    """Return the present moment as the index writes it."""
    return timestamp(datetime.now(UTC))


@dataclass(frozen=True)
class Read(Generic[State]):
    """A state together with the condition under which it may be written back."""

    state: State
    etag: Expected


@dataclass(frozen=True)
class Index:
    """The package index in one store, with the rules of ``[tool.omni-ci.wheels]``."""

    store: ObjectStore
    rules: WheelSettings = field(repr=False)
    _last: dict[str, Read[ProjectState]] = field(default_factory=dict, repr=False, compare=False)

    def project(self, name: str) -> Read[ProjectState]:
        """Read a project's state; a project that was never published reads as empty."""
        key = layout.project_state(name)
        # One upload reads its project's state several times, nearly always the same; parsing it is the cost.
        known = self._last.get(key)
        if known is not None and self.still_current(key, known.etag):
            return known
        blob = self.store.get(key)
        if blob is None:
            return Read(ProjectState(name), ABSENT)
        return self._remember(key, Read(ProjectState.decode(blob.data, key), blob.etag))

    def _remember(self, key: str, read: Read[ProjectState]) -> Read[ProjectState]:
        self._last.clear()
        self._last[key] = read
        return read

    def view(self, name: str) -> Read[ViewState]:
        """Read a view's state; a view that was never published reads as empty."""
        key = layout.view_state(name)
        blob = self.store.get(key)
        if blob is None:
            return Read(ViewState(name), ABSENT)
        return Read(ViewState.decode(blob.data, key), blob.etag)

    def project_names(self) -> list[str]:
        """List every project that has a state."""
        return self._names(layout.PROJECT_STATES)

    def view_names(self) -> list[str]:
        """List every view that has a state."""
        return self._names(layout.VIEW_STATES)

    def known_view(self, view: str) -> str:
        """Return the name under which a view is there already; a release may be spelled otherwise, v1.0 or v1.0.0."""
        if not layout.is_release(view) or self.store.head(layout.view_state(view)) is not None:
            return view
        there = self._names(layout.VIEW_STATES, "v")
        return next((name for name in there if layout.same_view(name, view)), view)

    def pruned_commits(self) -> list[str]:
        """List every commit that a prune is removing, or began to remove before it was stopped."""
        return self._names(layout.PRUNINGS)

    def refuse_pruned(self, commits: Iterable[str]) -> None:
        """Raise RemoteChangedError when a prune is removing one of the commits.

        To be asked after the state was read and, by whoever makes a view hold the commit, once more after that: a
        prune first writes its note, then looks at the views, so that one of the two always sees the other.
        """
        for commit in commits:
            if self.store.head(layout.pruning(commit)) is not None:
                raise RemoteChangedError(
                    f"commit {commit} is being removed by wheels.prune",
                    hint="run wheels.prune again if it was stopped, then this",
                )

    def _names(self, prefix: str, start: str = "") -> list[str]:
        keys = (stored.key for stored in self.store.list(f"{prefix}{start}"))
        return sorted(key.removeprefix(prefix).removesuffix(".json") for key in keys)

    def change_project(self, name: str, change: Callable[[ProjectState], ProjectState]) -> ProjectState:
        """Apply ``change`` to a project's state; returning the state it was given means no write."""

        def attempt() -> ProjectState:
            read = self.project(name)
            changed = change(read.state)
            if changed is not read.state:
                key = layout.project_state(name)
                etag = self._write(key, changed.encode(), read.etag)
                self._remember(key, Read(changed, etag))
            return changed

        return redo_on_conflict(attempt, what=f"state of project {name}")

    def change_view(self, name: str, change: Callable[[ViewState], ViewState]) -> ViewState:
        """Apply ``change`` to a view's state; returning the state it was given means no write."""

        def attempt() -> ViewState:
            read = self.view(name)
            changed = change(read.state)
            if changed is not read.state:
                self._write(layout.view_state(name), changed.encode(), read.etag)
            return changed

        return redo_on_conflict(attempt, what=f"state of view {name}")

    def _write(self, key: str, data: bytes, expected: Expected) -> str:
        return self.store.put(key, data, layout.headers_for(key), expected=expected)

    def write_page(self, key: str, data: bytes, expected: Expected) -> None:
        """Write a page; ConditionFailedError when it is no longer the one that was read."""
        self._write(key, data, expected)

    def still_current(self, key: str, etag: Expected) -> bool:
        """Say whether the object under ``key`` is still the one that was read."""
        stored = self.store.head(key)
        return (stored.etag if stored else ABSENT) == etag
