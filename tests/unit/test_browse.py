"""The human pages as text: what they hold, where their links lead, and that nothing in them is live."""

from __future__ import annotations

import random
import re
import shlex
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.wheels import browse, layout, pages
from tasks.wheels.state import FileRecord, Revision, count_variants

HOST = "https://wheels.invalid/"
TIME = "2026-08-27T10:11:12.000000Z"
CSP = "default-src 'none'; style-src 'unsafe-inline'"
ALIVE = {"script", "img", "link", "iframe", "object", "embed", "form", "input", "svg", "math", "base", "video", "audio"}


def commit(number: int) -> str:
    return f"{number:040x}"


def record(version: str, *, number: int = 1, tags: str | None = "py3-none-any", **changed: Any) -> FileRecord:
    filename = f"sample-{version}-{tags}.whl" if tags else f"sample-{version}.tar.gz"
    facts: dict[str, Any] = {
        "version": version,
        "size": 1_234_567,
        "sha256": "ab" * 32,
        "uploaded": TIME,
        "commit_time": TIME,
        "commit_time_from": "git",
    }
    return FileRecord(key=f"{commit(number)}/{filename}", **{**facts, **changed})


def revision(counts: dict[str, dict[str, int]], **changed: Any) -> Revision:
    plain = Revision(
        number=1, commit=commit(1), commit_time=TIME, commit_time_from="git", moved=TIME, note="", counts=counts
    )
    return replace(plain, **changed)


class Page(HTMLParser):
    """A page as a browser would take it: its text, links, tags and the copyable lines."""

    def __init__(self, key: str, data: bytes) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.hrefs: list[str] = []
        self.rows: list[list[str]] = []
        self.copyable: list[str] = []
        self.text = ""
        self._open: list[tuple[str, dict[str, str | None]]] = []
        self.feed(data.decode())
        self.close()
        assert self._open == []
        self.targets = [unquote(urlsplit(urljoin(HOST + key, href)).path)[1:] for href in self.hrefs]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        self.tags.append((tag, attributes))
        if tag not in {"meta", "br"}:
            self._open.append((tag, attributes))
        if tag == "a":
            self.hrefs.append(attributes["href"] or "")
        elif tag == "tr":
            self.rows.append([])
        elif tag in {"td", "th"}:
            self.rows[-1].append("")
        elif tag == "code" and "all" in (attributes.get("class") or "").split():
            self.copyable.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop()[0] == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1][0] == "style":
            return
        self.text += data
        if any(tag in {"td", "th"} for tag, _ in self._open):
            self.rows[-1][-1] += data
        if any(tag == "code" and "all" in (attributes.get("class") or "") for tag, attributes in self._open):
            self.copyable[-1] += data

    def commands(self) -> list[str]:
        return [line for line in self.copyable if " " in line]


def only(made: dict[str, bytes]) -> Page:
    ((key, data),) = made.items()
    return Page(key, data)


def view_of(records: list[FileRecord], *, view: str = "nightly", **options: Any) -> Page:
    options = {"alias_of_default": None, "public_url": "https://wheels.invalid/omni", **options}
    counts = {"sample": count_variants(records)}
    return only(browse.view_page(view, revision(counts), records, **options))


def check_inert(page: Page) -> None:
    """Assert that nothing on the page can run, or reach for anything elsewhere."""
    assert ("meta", {"http-equiv": "Content-Security-Policy", "content": CSP}) in page.tags
    for tag, attributes in page.tags:
        assert tag not in ALIVE
        assert not {name for name in attributes if name.startswith("on") or name in {"src", "style", "srcset"}}
    for href in page.hrefs:
        parts = urlsplit(href)
        assert not parts.scheme
        assert not parts.netloc


# Names, versions and digests are checked before they reach the state; only this is a person's own words.
words = st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=60) | st.sampled_from(
    ["</small><script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "&lt;b&gt;", "</style>{}%s", "javascript:"]
)
versions = st.sampled_from(["1.0", "1.0.dev5+gabc", "1.0+cu130", "1!2.0rc1", "0.1.post1"])


@st.composite
def file_records(draw: st.DrawFn) -> FileRecord:
    return record(
        draw(versions),
        number=draw(st.integers(0, 5)),
        tags=draw(st.sampled_from([None, "py3-none-any", "1-cp312-abi3-manylinux_2_31_x86_64"])),
        size=draw(st.integers(0, 2**40)),
        variant=draw(st.sampled_from([None, "cu130", "rocm7.2"])),
        yanked=draw(st.none() | words),
        commit_time=f"2026-08-{draw(st.integers(10, 28))}T10:11:12.000000Z",
        commit_time_from=draw(st.sampled_from(["git", "given", "upload"])),
    )


some_records = st.lists(file_records(), max_size=6, unique_by=lambda one: one.key)


@settings(deadline=None, max_examples=60)
@given(some_records, words, st.randoms(use_true_random=False))
def test_every_page_is_inert_complete_and_the_same_in_any_order(
    records: list[FileRecord], note: str, shuffler: random.Random
) -> None:
    shuffled = list(records)
    shuffler.shuffle(shuffled)
    now = revision({"sample": count_variants(records)}, note=note)

    def render(given_records: list[FileRecord]) -> list[dict[str, bytes]]:
        return [
            browse.view_page("nightly", now, given_records, alias_of_default=None),
            browse.project_page("nightly", now, "sample", given_records, alias_of_default=None),
            browse.store_page("sample", given_records, now, ["v1.0"]),
        ]

    made = render(records)
    assert made == render(shuffled)
    view, project, store = (only(one) for one in made)
    for page in (view, project, store):
        check_inert(page)
    for page in (view, project):
        assert note in page.text
        for one in records:
            assert one.key in page.targets
            assert one.sha256 in page.copyable
            assert one.yanked is None or one.yanked in page.text
    assert {layout.BROWSE, "nightly/browse.html"} <= set(project.targets)
    assert {f"{one.commit}/browse.html" for one in records} <= set(store.targets)
    assert {"nightly/browse.html", "v1.0/browse.html"} <= set(store.targets)


def test_links_for_tools_lead_to_the_machine_pages() -> None:
    records = [record("1.0")]
    now = revision({"sample": {"": 1}})
    view = only(browse.view_page("nightly", now, records, alias_of_default=None))
    made = pages.root_pages("nightly", None, ["sample"])
    assert set(made) <= set(view.targets)
    project = only(browse.project_page("nightly", now, "sample", records, alias_of_default=None))
    made = pages.project_pages("nightly", None, "sample", records)
    assert {key for key in made if key.endswith(("index.html", "index.json"))} <= set(project.targets)


def test_a_row_says_what_people_choose_by() -> None:
    page = view_of([record("1.0.dev5+gabc", yanked="It eats memory")])
    assert page.rows[0] == ["Version", "Commit", "Date (UTC)", "Size", "SHA-256"]
    (row,) = page.rows[1:]
    assert row[0] == "1.0.dev5+gabc yankedpy3-none-anyIt eats memory"
    assert row[1:4] == [commit(1)[:12], "2026-08-27\N{NO-BREAK SPACE}10:11", "1.2 MB"]
    assert row[4] == "ab" * 32, "the whole digest can be copied"
    assert ("a", {"href": f"../{commit(1)}/browse.html", "title": commit(1)}) in page.tags


def test_a_time_that_is_only_the_upload_is_said_to_be_one() -> None:
    assert "first upload" in view_of([record("1.0", commit_time_from="upload")]).text
    assert "first upload" not in view_of([record("1.0")]).text


def test_files_are_newest_first_and_wheels_before_the_sdist() -> None:
    older = "2026-08-01T00:00:00.000000Z"
    page = view_of(
        [
            record("2.0", number=2, commit_time=older),
            record("1.9", tags=None),
            record("1.9"),
            record("1.10"),
        ]
    )
    shown = [row[0] for row in page.rows[1:]]
    assert shown == ["1.10py3-none-any", "1.9py3-none-any", "1.9source distribution", "2.0py3-none-any"]
    assert "sample==1.10" in page.commands()[0], "the newest is the one to install"


def test_a_long_list_is_cut_after_the_newest_and_says_so() -> None:
    records = [record(f"1.{n}") for n in range(browse.NEWEST_FILES + 2)]
    page = view_of(records)
    shown = [row[0].removesuffix("py3-none-any") for row in page.rows[1:]]
    assert shown == [f"1.{n}" for n in range(browse.NEWEST_FILES + 1, 1, -1)]
    assert "2 older files in the simple index" in page.text
    assert "older" not in view_of(records[2:]).text
    yanked = [records[0], *(replace(one, yanked="") for one in records[1:])]
    assert all("sample==1.0" in line for line in view_of(yanked).commands()), "it may be one that is not shown"


@pytest.mark.parametrize(
    ("version", "pip"),
    [
        ("1.0+cu130", [["pip", "install", "--extra-index-url", "{url}", "sample==1.0+cu130"]]),
        (
            "1!1.0.dev5",
            [
                ["pip", "install", "--no-deps", "--index-url", "{url}", "sample==1!1.0.dev5"],
                ["pip", "install", "sample==1!1.0.dev5"],
            ],
        ),
    ],
)
@pytest.mark.parametrize("public_url", ["https://wheels.invalid/omni", "https://wheels.invalid/omni/", None])
def test_install_lines_are_shell_commands_with_an_absolute_address(
    version: str, pip: list[list[str]], public_url: str | None
) -> None:
    page = view_of([record(version)], public_url=public_url)
    base = "https://wheels.invalid/omni" if public_url else browse.PLACEHOLDER
    url = f"{base}/nightly/"
    first, second = page.commands()
    words = [[url if word == "{url}" else word for word in command] for command in pip]
    assert [shlex.split(command) for command in first.split(" && ")] == words
    assert shlex.split(second) == ["uv", "pip", "install", "--index", url, f"sample=={version}"]
    assert ("does not know its own address" in page.text) == (public_url is None)
    assert (browse.PLACEHOLDER in page.text) == (public_url is None)


def test_each_build_has_its_own_line_and_the_reason_is_given_once() -> None:
    page = view_of([record("1.0"), record("1.0+cu130", variant="cu130"), record("1.0+xpu", variant="xpu")])
    urls = [re.findall(r"https://\S+", line)[0] for line in page.commands()]
    base = "https://wheels.invalid/omni/nightly/"
    assert urls == [base, base, f"{base}cu130/", f"{base}cu130/", f"{base}xpu/", f"{base}xpu/"]
    assert page.text.count("public indexes refuse versions") == 1


def test_a_single_variant_is_shown_once_and_installed_from_the_root() -> None:
    page = view_of([record("1.0+cu130", variant="cu130")])
    assert len(page.commands()) == 2
    assert all(" https://wheels.invalid/omni/nightly/ " in line for line in page.commands())
    assert "cu130" in page.text
    assert "Default build" not in page.text


def test_an_alias_is_named_and_its_files_shown_once() -> None:
    page = view_of([record("1.0")], alias_of_default="cu129")
    assert "Default build also as cu129" in page.text
    assert page.targets.count(record("1.0").key) == 1


def test_no_line_installs_a_yanked_file() -> None:
    newest = record("2.0", yanked="")
    assert all("sample==1.0" in line for line in view_of([record("1.0"), newest]).commands())
    page = view_of([newest])
    assert page.commands() == []
    assert "Every file of this build is yanked" in page.text


def test_a_view_of_several_projects_is_made_from_counts_alone() -> None:
    now = revision({"sample": {"": 1, "cu130": 2}, "other": {"xpu": 1200}})
    page = only(browse.view_page("v1.0", now, None, alias_of_default=None))
    check_inert(page)
    assert page.rows == [["Project", "Builds", "Files"], ["other", "xpu", "1,200"], ["sample", "default cu130", "3"]]
    assert {"v1.0/other/browse.html", "v1.0/sample/browse.html"} <= set(page.targets)


@pytest.mark.parametrize("counts", [{}, {"sample": {}}])
def test_an_empty_view_says_so(counts: dict[str, dict[str, int]]) -> None:
    page = only(browse.view_page("nightly", revision(counts), [] if counts else None, alias_of_default=None))
    assert "There are no files" in page.text


def test_a_commit_is_shown_in_full_on_its_own_page_only() -> None:
    records = [record("1.0")]
    assert commit(1) in view_of(records, view=commit(1)).copyable
    assert commit(1) not in view_of(records).copyable


def test_the_store_page_lists_views_and_the_hundred_newest_commits() -> None:
    records = [
        record(f"1.0.dev{n}+g{n:07x}", number=n, commit_time=f"2026-01-01T00:{n // 60:02}:{n % 60:02}.000000Z")
        for n in range(150)
    ]
    page = only(browse.store_page("sample", records, None, ["v0.9.0", "v0.10.0rc1", "v0.10.0"]))
    assert [target for target in page.targets if target.startswith("v")] == [
        "v0.10.0/browse.html",
        "v0.10.0rc1/browse.html",
        "v0.9.0/browse.html",
    ]
    commits = [target for target in page.targets if not target.startswith("v")]
    assert commits == [f"{commit(n)}/browse.html" for n in range(149, 49, -1)]


def test_the_store_page_sums_a_commit_up() -> None:
    size = 1_500_000_000
    records = [
        record("1.0.dev5+gabc", size=size),
        record("1.0.dev5+gabc.cu130", size=size, variant="cu130"),
        record("2.0", size=1),
        record("2.0+xpu", size=1, variant="xpu"),
    ]
    page = only(browse.store_page("sample", records, revision({}), []))
    assert page.rows[1:] == [
        [commit(1)[:12], "2026-08-27\N{NO-BREAK SPACE}10:11", "2.01.0.dev5+gabc", "default cu130 xpu", "3.0 GB"]
    ]


def test_a_commit_has_the_time_that_is_known_best_whatever_the_order() -> None:
    uploaded = record("1.0", commit_time="2026-08-01T00:00:00.000000Z", commit_time_from="upload")
    known = record("1.0", tags=None, commit_time="2026-08-02T00:00:00.000000Z", commit_time_from="git")
    for records in ([uploaded, known], [known, uploaded]):
        page = only(browse.store_page("sample", records, None, []))
        assert page.rows[1][1] == "2026-08-02\N{NO-BREAK SPACE}00:00"


def test_an_empty_store_says_so() -> None:
    page = only(browse.store_page("sample", [], None, []))
    assert "There are no files" in page.text
    assert "Nothing was released yet" in page.text
