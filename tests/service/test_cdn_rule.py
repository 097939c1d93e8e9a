"""The rule for CloudFront, run in real JavaScript engines, answers as the server does that can look into the store."""

from __future__ import annotations

import json
import random
import re
import subprocess
from collections.abc import Callable, Iterable
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from tasks.support.settings import load
from tasks.support.store import ObjectStore
from tasks.wheels import layout
from tasks.wheels.routing import parse_target
from tests.factory_index import commit
from tests.fronts import ACCEPTS, BROWSER, HTML, JSON, PATHS, PIP, SIMPLE_HTML, WHEEL, Answer, filled_store, served
from tests.services import find_program, service_missing

pytestmark = pytest.mark.service

RULE = Path(__file__).parents[2] / "docs/cdn/cloudfront-function.js"

Request = tuple[str, str | None]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> ObjectStore:
    return filled_store(tmp_path_factory.mktemp("ruled") / "store")


@pytest.fixture(scope="module")
def asked(store: ObjectStore) -> dict[Request, Answer]:
    """Return requests, and what our own server answers: each path with each wish, and generated ones.

    The generated ones are others in each run; what differs is named, and belongs into the tables.
    """
    chance = random.Random()
    requests = [(path, accept) for path in PATHS for accept in ACCEPTS]
    requests += [(some_path(chance), some_accept(chance)) for _ in range(2000)]
    return {request: served(store, *request) for request in requests}


def in_chromium(script: str, folder: Path) -> str:
    """Run a script whose last value is text in a page, and return the text."""
    names = ["chromium", "chromium-browser", "google-chrome"]
    program = next(filter(None, map(find_program, names)), None)
    if program is None:
        service_missing(f"no browser: none of {', '.join(names)} is installed")
    page = folder / "rule.html"
    script += '\ndocument.getElementById("result").textContent = answers;\n'
    markup = f'<!DOCTYPE html><meta charset="utf-8"><pre id="result"></pre><script>{script}</script>'
    page.write_text(markup, encoding="utf-8")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
    flags += ["--disable-component-update", "--no-proxy-server", f"--user-data-dir={folder / 'profile'}"]
    done = run([program, *flags, "--dump-dom", page.as_uri()])
    found = re.search(r'<pre id="result">(.+?)</pre>', done.stdout, re.DOTALL)
    assert found, done.stderr[-2000:]
    return unescape(found[1])


def in_njs(script: str, folder: Path) -> str:
    """Run a script whose last value is text in njs, the engine nearest to CloudFront's own, and return the text."""
    program = find_program("njs")
    if program is None:
        service_missing("no njs: Debian's package of that name is not installed")
    source = folder / "rule.js"
    # console.log cuts long lines off.
    answers = folder / "answers"
    script += f"\nrequire('fs').writeFileSync({json.dumps(str(answers))}, answers);\n"
    source.write_text(script, encoding="utf-8")
    done = run([program, str(source)])
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    return answers.read_text(encoding="utf-8")


def run(argv: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, capture_output=True, text=True, encoding="utf-8", timeout=120, check=False)


@pytest.fixture(params=[in_chromium, in_njs])
def call(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Iterable[dict[str, Any]]], list[Any]]:
    """Return a function that gives events to the rule's handler in one engine, and returns what it answered."""

    def answers(events: Iterable[dict[str, Any]]) -> list[Any]:
        # No markup for the page to end at, and ASCII alone.
        given = json.dumps(list(events)).replace("<", "\\u003c")
        script = f"{RULE.read_text(encoding='utf-8')}\nconst answers = JSON.stringify({given}.map(handler));"
        found: list[Any] = json.loads(request.param(script, tmp_path))
        return found

    return answers


def viewer_request(path: str, accept: str | None) -> dict[str, Any]:
    """Return the event of a request: CloudFront keeps a path as it was sent, and the query and each header apart."""
    lines = [{"value": line} for line in (accept or "").split("\n")]
    headers = {} if accept is None else {"accept": lines[0] if len(lines) == 1 else {**lines[-1], "multiValue": lines}}
    request = {"method": "GET", "uri": path.partition("?")[0], "querystring": {}, "headers": headers, "cookies": {}}
    return {"version": "1.0", "context": {"eventType": "viewer-request"}, "request": request}


def ruled(store: ObjectStore, answer: dict[str, Any]) -> Answer:
    """Return the same for an answer of the rule; the bucket answers 404 for what it does not hold."""
    if "statusCode" not in answer:
        target = parse_target(answer["uri"])
        assert answer["uri"] == f"/{layout.relative_url(target.key, 0)}", "encoded once, in one way"
        return (target.key,) if store.head(target.key) else (404, False)
    headers = {name: header["value"] for name, header in answer["headers"].items()}
    assert headers.pop("cache-control") == "no-cache"
    varies = headers.pop("vary", None) == "Accept"
    place = [headers.pop("location")] if "location" in headers else []
    assert not headers
    return (answer["statusCode"], *place, varies)


def differences(
    store: ObjectStore, asked: dict[Request, Answer], call: Callable[..., list[Any]]
) -> list[tuple[Answer, ...]]:
    """Return the requests that the rule answers otherwise than our server.

    The rule does not know what is there: where our server finds nothing, it may redirect, to nothing.
    """
    wrong: list[tuple[Answer, ...]] = []
    moved: dict[Request, Answer] = {}
    answers = call(viewer_request(*request) for request in asked)
    for (request, right), answer in zip(asked.items(), answers, strict=True):
        found = ruled(store, answer)
        if right[0] == 404 and found[0] in (301, 302):
            target = (str(found[1]), request[1])
            moved[target] = served(store, *target)
        elif right != found and not (right[0] == 404 and found == (406, True)):
            wrong.append((request, right, found))
    if moved:
        assert {right[0] for right in moved.values()} == {404}
        wrong += differences(store, moved, call)
    return wrong


def test_it_answers_as_our_own_server(
    store: ObjectStore, asked: dict[Request, Answer], call: Callable[..., list[Any]]
) -> None:
    kinds = {str(right[0]) for right in asked.values()}
    assert {"301", "302", "400", "404", "406", "nightly/index.html", "nightly/json/index.json"} <= kinds
    assert differences(store, asked, call) == []


def some_path(chance: random.Random) -> str:
    """Return a path that is likely to mean something, each of its letters perhaps percent-encoded."""
    views = ["nightly", "v1.0", "v1.0.0", "v2!1.0rc1.post2.dev3", commit(1), commit(2), "_state", "Nightly", "json"]
    middle = ["json", "cu130", "rocm7.2", "rocm7", "xpu", "CU130", "cu1300", "sample-thing", "sample", "other"]
    last = ["index.html", "browse.html", "index.json", "metadata.json", "Sample_Thing", "sample--thing", "o.t.h.e.r"]
    wheels = [WHEEL.rpartition("/")[2].replace("%2B", "+"), f"a-1.0-py3-none-any.whl{layout.METADATA_SUFFIX}"]
    letters = "a.-_+%&!'()* ~;\\/:@\u00e9\u212a\x00\x1f"
    odd = ["", ".", "..", "views", "".join(chance.choices(letters, k=chance.randint(1, 5)))]
    pools = [views, middle, middle, last, wheels, odd]
    weights = [[90, 2, 2, 2, 2, 2], [0, 60, 0, 20, 15, 5], [0, 60, 0, 35, 0, 5], [1, 30, 0, 60, 0, 9]]
    names = [chance.choice(chance.choices(pools, weights[level])[0]) for level in range(chance.randint(1, 4))]
    escape = chance.choice([0.0, 0.02, 1.0])
    return "".join(f"/{encoded(name, escape, chance)}" for name in names) + chance.choice(["", "/", "/", "/?q=/x"])


def encoded(name: str, escape: float, chance: random.Random) -> str:
    """Percent-encode what must be, a share of the rest, and now and then not even the percent sign itself."""
    spelled = ""
    for letter in name:
        needed = not ("!" <= letter <= "~") or letter in "?#" or (letter == "%" and chance.random() < 0.9)
        if needed or chance.random() < escape:
            spelled += "".join(chance.choice([f"%{byte:02x}", f"%{byte:02X}"]) for byte in letter.encode())
        else:
            spelled += letter
    return spelled


def some_accept(chance: random.Random) -> str | None:
    """Return an Accept header, in one line or more, of parts that clients send and parts that they should not."""
    if chance.random() < 0.3:
        return chance.choice(ACCEPTS)
    latest = JSON.replace(".v1+", ".latest+")
    medias = [JSON, JSON, SIMPLE_HTML, HTML, latest, "*/*", "text/*", "application/*", "image/png", "*/x", "text", "/"]
    qualities = ["", "", ";q=1", ";q=0", "; q=0.5", ";q=0.001", ";Q=1.000", ";q=1.5", ";q=2", ";q=", ";q", ";v=1;q=.3"]
    parts = [chance.choice(medias) + chance.choice(qualities) for _ in range(chance.randint(1, 4))]
    return chance.choice([",", ", ", " ,\t", "\n"]).join(parts)


def test_answers_of_the_bucket_say_their_form_and_what_chose_it(call: Callable[..., list[Any]]) -> None:
    wheel, page, html = "application/octet-stream", JSON, layout.HTML.content_type
    table: list[tuple[str | None, str, str | None, str | None, str | None]] = [
        (html, PIP, None, SIMPLE_HTML, "Accept"),
        (html, BROWSER, None, html, "Accept"),
        (html, "*/*", "Accept-Encoding", html, "Accept-Encoding, Accept"),
        (page, PIP, None, page, None),
        (wheel, "*/*", None, wheel, None),
        (None, PIP, None, None, "Accept"),
    ]
    events = []
    for content_type, accept, old, _, _ in table:
        given = {"etag": "x", "content-type": content_type, "vary": old}
        headers = {name: {"value": value} for name, value in given.items() if value}
        event = viewer_request("/nightly/index.html", accept)
        event["context"]["eventType"] = "viewer-response"
        events.append({**event, "response": {"statusCode": 200, "statusDescription": "OK", "headers": headers}})
    for (_, _, _, content_type, varies), answer in zip(table, call(events), strict=True):
        right = {"etag": "x", "content-type": content_type, "vary": varies}
        assert answer["headers"] == {name: {"value": value} for name, value in right.items() if value}


def test_the_rule_knows_the_variants_of_the_settings() -> None:
    (declared,) = re.findall(r"^const VARIANTS = \[(.*)\];$", RULE.read_text(encoding="utf-8"), re.MULTILINE)
    assert tuple(json.loads(f"[{declared}]".replace("'", '"'))) == load(environment={}).wheels.variants


def test_the_rule_is_small_enough() -> None:
    assert RULE.stat().st_size <= 10_000, "CloudFront takes no more than 10 KB"
