from __future__ import annotations

from tasks.support.store import ABSENT, Headers, ObjectStore

HTML = Headers("text/html; charset=utf-8", "no-cache")


def test_smoke(store_any: ObjectStore) -> None:
    store_any.put("a", b"1", HTML, expected=ABSENT)
