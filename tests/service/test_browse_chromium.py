"""The human pages in a real browser: what it lays out, which colours it uses, and that it runs nothing."""

from __future__ import annotations

import functools
import json
import re
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape, unescape
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tasks.wheels import browse
from tasks.wheels.state import FileRecord, Revision, count_variants
from tests.services import find_program, service_missing

pytestmark = pytest.mark.service

COMMIT = "0123456789abcdef0123456789abcdef01234567"
TIME = "2026-08-27T10:11:12.000000Z"
LONG = "a" * 300
HOSTILE = "<script>window.ran = 1</script><img src=nowhere onerror='window.ran = 1'>" + LONG
NAMES = ["chromium", "chromium-browser", "google-chrome"]
WIDTHS = [360, 390, 704, 720, 1280]

# Each page under test is in a frame with its own view port, so that no window's smallest width is in the way and one
# start of the browser measures many. The script is the frames' parent: the pages themselves allow no scripts at all.
FRAME = '<iframe style="display: block; width: {}px; height: 844px; border: 0" src="{}"></iframe>\n'
MEASURE = """<!DOCTYPE html>
<pre id="result"></pre>
<script>
function channels(colour) { return colour.match(/[\\d.]+/g).map(Number); }
function light(colour) {
  const [r, g, b] = channels(colour).map(c => c / 255).map(c => c <= .03928 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4);
  return .2126 * r + .7152 * g + .0722 * b;
}
function ground(view, node) {
  for (; node; node = node.parentElement) {
    const colour = view.getComputedStyle(node).backgroundColor;
    if (channels(colour)[3] !== 0) return colour;
  }
  return "rgb(255, 255, 255)";
}
function measure(view) {
  const inside = view.document, root = inside.documentElement;
  const contrasts = [...inside.querySelectorAll("main *")].filter(node => node.innerText).map(node => {
    const both = [light(view.getComputedStyle(node).color), light(ground(view, node))].sort((a, b) => b - a);
    return (both[0] + .05) / (both[1] + .05);
  });
  const outside = [...inside.querySelectorAll("main *")].filter(
    node => node.getBoundingClientRect().right > root.clientWidth + 1 && !node.closest(".digest"));
  return {
    ran: view.ran === 1,
    live: inside.querySelectorAll("script, img, iframe, [onerror], [onload]").length,
    width: root.clientWidth,
    scroll: root.scrollWidth,
    outside: outside.map(node => node.outerHTML.slice(0, 80)),
    contrast: Math.min(...contrasts),
    ground: light(view.getComputedStyle(inside.body).backgroundColor),
    text: inside.body.innerText,
    selectable: [...inside.querySelectorAll("code.all")].map(node => view.getComputedStyle(node).userSelect),
  };
}
addEventListener("load", () => {
  const found = [...document.querySelectorAll("iframe")].map(frame => measure(frame.contentWindow));
  document.getElementById("result").textContent = JSON.stringify(found);
});
</script>
"""


@dataclass
class Browser:
    """A browser with a loopback server in front of a folder, and the paths that it asked the server for."""

    program: str
    folder: Path
    address: str
    asked: list[str] = field(default_factory=list)

    def measure(self, *keys: str, width: int = 390, dark: bool = False) -> list[dict[str, Any]]:
        """Lay pages out at a width, in CSS pixels, and return what the script above found in each."""
        frames = "".join(FRAME.format(width, escape(key)) for key in keys)
        (self.folder / "measure.html").write_text(MEASURE + frames, encoding="utf-8")
        flags = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--no-first-run",
            # As on a phone, where they lie over the page.
            "--hide-scrollbars",
            "--no-proxy-server",
            f"--user-data-dir={self.folder.parent / 'profile'}",
            "--window-size=1600,1000",
            "--virtual-time-budget=5000",
            f"--blink-settings=preferredColorScheme={0 if dark else 1}",
        ]
        argv = [self.program, *flags, "--dump-dom", f"{self.address}/measure.html"]
        done = subprocess.run(argv, capture_output=True, text=True, encoding="utf-8", timeout=120, check=False)
        found = re.search(r'<pre id="result">(.+?)</pre>', done.stdout, re.DOTALL)
        assert found, done.stderr[-2000:]
        results: list[dict[str, Any]] = json.loads(unescape(found[1]))
        assert [result["width"] for result in results] == [width] * len(keys)
        return results


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    program = next(filter(None, map(find_program, NAMES)), None)
    if program is None:
        service_missing(f"no browser: none of {', '.join(NAMES)} is installed")
    asked: list[str] = []

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
            asked.append(self.path)

    folder = tmp_path / "site"
    folder.mkdir()
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield Browser(program, folder, f"http://127.0.0.1:{server.server_port}", asked)
        server.shutdown()


def record(version: str, *, variant: str | None = None, tags: str = "py3-none-any", **changed: Any) -> FileRecord:
    facts: dict[str, Any] = {
        "version": version,
        "size": 435_000_000,
        "sha256": "ab" * 32,
        "uploaded": TIME,
        "commit_time": TIME,
        "commit_time_from": "upload",
        "variant": variant,
    }
    return FileRecord(key=f"{COMMIT}/sample-{version}-{tags}.whl", **{**facts, **changed})


def revision(counts: dict[str, dict[str, int]], note: str = "") -> Revision:
    return Revision(
        number=1, commit=COMMIT, commit_time=TIME, commit_time_from="git", moved=TIME, note=note, counts=counts
    )


@pytest.fixture
def site(browser: Browser) -> list[str]:
    """Write each kind of page with the longest things that can be on it, and return the pages' keys."""
    variants = ["cu130", "rocm7.2", "xpu", "npu", "musa", "cpu"]
    records = [
        record("1.0", yanked=HOSTILE),
        record("1.0", tags="cp312-cp312-manylinux_2_31_x86_64"),
        record("1.0.dev1234567890+g0123456789abcdef", tags="9_long_build-cp312-abi3-manylinux_2_31_x86_64"),
        record(f"1.0+{LONG}"),
        *(record(f"1.0+{variant}", variant=variant) for variant in variants),
    ]
    options: dict[str, Any] = {"alias_of_default": None, "public_url": f"https://wheels.invalid/{LONG}"}
    single = revision({"sample": count_variants(records)}, note=HOSTILE)
    several = revision({"sample": dict.fromkeys(variants, 1000), LONG: {"": 1}})
    made = {
        **browse.view_page("nightly", single, records, **options),
        **browse.view_page(COMMIT, single, records, alias_of_default=None),
        **browse.project_page("nightly", single, "sample", records, **options),
        **browse.view_page("v1.0", several, None, **options),
        **browse.store_page("sample", records, single, [f"v0.{n}.0" for n in range(40)]),
    }
    for key, data in made.items():
        (browser.folder / key).parent.mkdir(parents=True, exist_ok=True)
        (browser.folder / key).write_bytes(data)
    return list(made)


@pytest.mark.parametrize("width", WIDTHS)
def test_no_page_scrolls_sideways(browser: Browser, site: list[str], width: int) -> None:
    for key, found in zip(site, browser.measure(*site, width=width), strict=True):
        assert found["scroll"] == width, key
        assert found["outside"] == [], key


@pytest.mark.parametrize("dark", [False, True])
def test_both_colour_schemes_can_be_read(browser: Browser, site: list[str], dark: bool) -> None:
    for key, found in zip(site, browser.measure(*site, dark=dark), strict=True):
        assert (found["ground"] < 0.1) == dark
        assert found["contrast"] >= 4.5, f"{key}: below level AA of WCAG 2.1"


def test_markup_in_words_is_shown_and_not_run(browser: Browser, site: list[str]) -> None:
    (browser.folder / "control.html").write_text(f"<!DOCTYPE html><main>{HOSTILE}", encoding="utf-8")
    control, *pages = browser.measure("control.html", "nightly/browse.html", "nightly/sample/browse.html")
    assert control["ran"], "the measurement would not notice"
    assert control["live"] > 0
    for found in pages:
        assert not found["ran"]
        assert found["live"] == 0
        assert found["text"].count(HOSTILE) == 2, "the note and the reason"


def test_the_policy_stops_a_script_even_if_it_were_not_escaped(browser: Browser, site: list[str]) -> None:
    page = browser.folder / "nightly/browse.html"
    page.write_text(page.read_text(encoding="utf-8").replace(escape(HOSTILE), HOSTILE), encoding="utf-8")
    (found,) = browser.measure("nightly/browse.html")
    assert found["live"] > 0, "the markup is in the page"
    assert not found["ran"]


def test_a_page_asks_for_nothing_but_itself(browser: Browser, site: list[str]) -> None:
    browser.measure(*site)
    assert set(browser.asked) - {"/favicon.ico"} == {"/measure.html", *(f"/{key}" for key in site)}


def test_lines_are_copied_whole_by_one_click(browser: Browser, site: list[str]) -> None:
    (found,) = browser.measure("nightly/browse.html")
    assert len(found["selectable"]) > 10
    assert set(found["selectable"]) == {"all"}
