"""Writers whose clock is wrong: before they write anything that stays, and what repairs a store that they wrote to."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tasks.support.errors import ConfigurationError, DataError, OmniError
from tasks.support.store import ObjectStore, Stored, open_store
from tasks.wheels import layout, pruning
from tasks.wheels.index import Index, timestamp
from tests.factory_index import commit, held, index_of, upload
from tests.faults import Wrapped, broken

WRONG = [timedelta(hours=2), timedelta(days=8), timedelta(days=366 * 50)]


@dataclass
class OtherClock(Wrapped):
    """A store whose server's clock is this much ahead of this machine's."""

    ahead: timedelta = field(default=timedelta())

    def head(self, key: str) -> Stored | None:
        found = super().head(key)
        return None if found is None else replace(found, modified=found.modified + self.ahead)

    def list(self, prefix: str = "") -> Iterator[Stored]:
        return (replace(found, modified=found.modified + self.ahead) for found in super().list(prefix))


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(str(tmp_path / "a store's folder"))


@pytest.mark.slow
@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("first", [True, False])
def test_an_upload_by_a_wrong_clock_records_nothing(
    store: ObjectStore, wrong: timedelta, sign: int, first: bool
) -> None:
    right = index_of(store)
    if not first:
        upload(right, 1)
    before = {stored.key: stored.etag for stored in store.list("_state/")}
    with pytest.raises(ConfigurationError, match="clock") as caught:
        upload(index_of(OtherClock(store, ahead=sign * wrong)), 2)
    assert "set this machine's clock" in str(caught.value.hint)
    assert {stored.key: stored.etag for stored in store.list("_state/")} == before
    assert not [stored for stored in store.list(commit(2)) if stored.key.endswith((".html", ".json"))]
    upload(right, 2)
    assert held(right, commit(2)) == [f"{commit(2)}/sample-0.2-py3-none-any.whl"]
    assert broken(store) == []


@pytest.mark.parametrize("minutes", [-50, -1, 0, 1, 50])
def test_a_clock_that_is_nearly_right_will_do(store: ObjectStore, minutes: int) -> None:
    other = index_of(OtherClock(store, ahead=timedelta(minutes=minutes)))
    upload(other, 1)
    upload(other, 2)
    assert broken(store) == []


def written_ahead(index: Index, ahead: timedelta, *, objects: bool) -> None:
    """Upload two commits, as a writer would whose clock is ahead; an S3 server dates the objects by its own."""
    upload(index, 1)
    upload(index, 2)
    later = datetime.now(UTC) + ahead
    index.change_project(
        "sample",
        lambda state: state.with_files(
            {
                key: replace(record, uploaded=timestamp(later))
                for key, record in state.files.items()
                if record.commit == commit(1)
            }
        ),
    )
    if objects:
        for key in (f"{commit(1)}/sample-0.1-py3-none-any.whl", layout.project_state("sample")):
            path = Path(index.store.root, key)  # type: ignore[attr-defined]
            os.utime(path, (later.timestamp(), later.timestamp()))


def removed(index: Index, days: int) -> list[str]:
    plan = pruning.plan_prune(
        index, keep=1, younger_than=timedelta(days=7), max_share=1, now=datetime.now(UTC) + timedelta(days=days)
    )
    return sorted(choice.commit for choice in plan.choices if choice.verdict == pruning.REMOVE)


@pytest.mark.parametrize("ahead", [*WRONG, timedelta(days=366 * 900)])
def test_a_recorded_time_that_is_yet_to_come_stops_no_prune(store: ObjectStore, ahead: timedelta) -> None:
    index = index_of(store)
    written_ahead(index, ahead, objects=False)
    assert removed(index, 0) == []
    later = 8 if ahead > timedelta(days=20) else 20
    assert removed(index, later) == [commit(1), commit(2)]


@pytest.mark.parametrize("ahead", WRONG)
def test_the_hint_repairs_a_folder_that_was_written_to_by_a_wrong_clock(store: ObjectStore, ahead: timedelta) -> None:
    index = index_of(store)
    written_ahead(index, ahead, objects=True)
    hints = []
    for attempt, kind in ((lambda: removed(index, 0), DataError), (lambda: upload(index, 3), ConfigurationError)):
        with pytest.raises(OmniError, match="clock") as caught:
            attempt()
        assert isinstance(caught.value, kind)
        hints.append(caught.value.hint)
    assert hints[0] == hints[1]
    advice, _, command = str(hints[0]).partition("; if it is right: ")
    assert advice == "set this machine's clock"
    subprocess.run(command, shell=True, check=True)
    upload(index, 3)
    assert removed(index, 0) == []
    assert commit(2) in removed(index, 20)
    assert broken(store) == []
