"""A store with every kind of view, requests to ask of whatever serves it, and what our own server answers."""

from __future__ import annotations

from pathlib import Path

from tasks.support.store import ObjectStore, open_store
from tasks.wheels.negotiation import Form
from tasks.wheels.routing import Redirect, RefusedError, parse_target, route
from tests.factory_index import commit, index_of, move, nightly, upload

JSON, SIMPLE_HTML, HTML = (form.value for form in Form)
WHEEL = f"/{commit(1)}/sample_thing-1.0%2Bcu130-py3-none-any.whl"
PIP = f"{JSON}, {SIMPLE_HTML}; q=0.1, {HTML}; q=0.01"
UV = f"{JSON}, {SIMPLE_HTML};q=0.2, {HTML};q=0.01"
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8"
ACCEPTS = [
    None,
    "",
    " ",
    "*/*",
    PIP,
    UV,
    BROWSER,
    JSON,
    SIMPLE_HTML,
    HTML,
    "text/*",
    "application/*",
    "application/json",
    "image/png",
    f"{JSON};q=0, */*",
    f"{JSON};q=0.5, {HTML};q=0.6",
    f"{HTML}, {JSON}",
    f"{HTML};q=0",
    "application/vnd.pypi.simple.latest+json",
    "APPLICATION/VND.PYPI.SIMPLE.LATEST+HTML ; Q=0.3",
    f"{JSON};q=high, {HTML};q=0.001",
    "*/html, text",
    f"{HTML};q=0.1\n{JSON}",
]
PATHS = [
    "/",
    "/browse.html",
    "/nightly",
    "/nightly/",
    "/nightly/index.html",
    "/nightly/browse.html",
    "/nightly/json",
    "/nightly/json/",
    "/nightly/json/index.json",
    "/nightly/sample-thing",
    "/nightly/sample-thing/",
    "/nightly/sample-thing/metadata.json",
    "/nightly/Sample_Thing",
    "/nightly/Sample_Thing/",
    "/nightly/sample--thing/",
    "/nightly/sample%2Ething/?a=b",
    "/nightly/json/Sample.Thing",
    "/nightly/json/sample-thing",
    "/nightly/json/sample-thing/",
    "/nightly/json/sample-thing/index.json",
    "/nightly/JSON/",
    "/nightly/nothing/",
    "/nightly/nothing",
    "/nightly/sample-thing/deeper/",
    "/nightly/cu130",
    "/nightly/cu130/",
    "/nightly/CU130/",
    "/nightly/cu130/json/",
    "/nightly/cu130/Sample_Thing",
    "/nightly/cu130/sample-thing/",
    "/nightly/cu130/json/sample-thing/",
    "/nightly/rocm7.2",
    "/nightly/rocm7.2/",
    "/nightly/rocm7%2E2/sample-thing/",
    "/nightly/rocm7.2/json/SAMPLE-thing/",
    "/Nightly/",
    "/v1.0",
    "/v1.0/",
    "/v1.0/Sample_Thing/",
    "/v1/",
    "/v2!1.0rc1.post2.dev3",
    "/v2%211.0rc1.post2.dev3/Sample",
    f"/{commit(1)}",
    f"/{commit(1)}/",
    f"/{commit(1)}/Sample.thing",
    f"/{commit(1)[:12]}/",
    WHEEL,
    WHEEL.replace("%2B", "+"),
    WHEEL.replace("%2B", "%2b"),
    WHEEL.replace("%2B", "%20"),
    WHEEL.replace("_", "%5F"),
    f"{WHEEL}.metadata",
    f"{WHEEL}/",
    "/notes.txt",
    "/_state/views/nightly.json",
    "/%5Fstate/views/nightly.json",
    "/_probe",
    "/_",
    "/nightly/_state/",
    "//",
    "//_state/views/nightly.json",
    "/nightly//sample-thing/",
    "/nightly/../_state/",
    "/nightly/%2e%2E/_state/",
    "/nightly/..%2f_state/",
    "/nightly/%5c_state/",
    "/nightly/%00/",
    "/nightly/%zz/",
    "/nightly/%",
    "/nightly/%ff/",
    "/nightly/%ED%A0%80/",
    "/nightly/%E2%84%AA/",
    "/nightly/%C3%84/",
    "/nightly/(a)!*'/",
    "nightly/",
]

Answer = tuple[object, ...]


def filled_store(folder: Path) -> ObjectStore:
    """Return a store with every kind of view, of projects with and without variants."""
    filled = open_store(str(folder))
    index = index_of(filled)
    things = [("sample-thing", version) for version in ("1.0", "1.0+cu130", "1.0+rocm7.2")]
    nightly(index, 1, *things, ("other", "1.0"), ("sample", "1.0"))
    move(index, "v1.0", 1)
    upload(index, 2, ("sample", "2!1.0rc1.post2.dev3"))
    move(index, "v2!1.0rc1.post2.dev3", 2)
    return filled


def served(store: ObjectStore, path: str, accept: str | None) -> Answer:
    """Return what our own server does: the object, where it redirects to, or the status with which it refuses."""
    try:
        found = route(store, parse_target(path), accept and accept.replace("\n", ", "))
    except RefusedError as refused:
        return (refused.status.value, refused.varies)
    if isinstance(found, Redirect):
        return (found.status.value, found.path, found.varies)
    return (found.stored.key,)
