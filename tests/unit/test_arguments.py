from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.support.arguments import parse_moment
from tasks.support.errors import UsageError
from tasks.wheels.index import timestamp

OFFSETS = st.timedeltas(timedelta(hours=-23, minutes=-59), timedelta(hours=23, minutes=59)).map(
    lambda offset: timezone(timedelta(minutes=offset // timedelta(minutes=1)))
)
# So far from both ends of the calendar that every offset is possible.
FIRST, LAST = datetime.fromisoformat("0001-01-03"), datetime.fromisoformat("9999-12-29")


@given(
    st.datetimes(timezones=OFFSETS) | st.datetimes(min_value=datetime.fromisoformat("1970-01-01"), timezones=OFFSETS)
)
def test_every_moment_is_taken_from_1970_on_and_refused_before(moment: datetime) -> None:
    try:
        taken = parse_moment(moment.isoformat(), "--commit-time")
    except UsageError:
        inside = datetime(1970, 1, 2, tzinfo=UTC) <= moment <= datetime(9999, 12, 30, tzinfo=UTC)
        assert not inside
    else:
        assert taken == moment
        assert taken >= datetime(1970, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    "word",
    [
        "0001-01-01T00:00:00+14:00",
        "9999-12-31T23:59:59-14:00",
        "0999-01-01T00:00:00Z",
        "1969-12-31T23:59:59.999999Z",
        "1970-01-01T00:00:00+00:01",
        "99999999999999",
        "2026-01-01T00:00:00",
        "2026-01-01",
        "now",
        "",
        "-1",
    ],
)
def test_what_is_no_moment_from_1970_on_is_a_usage_error(word: str) -> None:
    with pytest.raises(UsageError, match="--commit-time takes a moment"):
        parse_moment(word, "--commit-time")


@given(st.datetimes(min_value=FIRST, max_value=LAST, timezones=OFFSETS))
def test_a_moment_is_written_in_one_form_which_sorts_as_time_does(moment: datetime) -> None:
    text = timestamp(moment)
    assert re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}Z", text)
    assert datetime.fromisoformat(text) == moment
