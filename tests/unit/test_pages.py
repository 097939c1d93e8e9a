"""The machine pages, read back by independent parsers: pypi-simple, pip's own link parser and html.parser."""

from __future__ import annotations

import json
import random
import string
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any
from urllib.parse import quote, unquote, urljoin, urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pip._internal.index.collector import IndexContent, parse_links
from pip._internal.models.link import Link
from pypi_simple import DistributionPackage, IndexPage, ProjectPage

from tasks.support.errors import DataError
from tasks.wheels import layout, pages
from tasks.wheels.state import FileRecord

HOST = "https://wheels.invalid/"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
# No deadline: how long an example takes says more of the machine than of the code.
pages_property = settings(deadline=None, max_examples=60)
TIME = "2026-08-27T10:11:12.000000Z"


def record(filename: str, *, commit: str = COMMIT, **changed: Any) -> FileRecord:
    facts: dict[str, Any] = {
        "version": filename.split("-")[1].removesuffix(".tar.gz"),
        "size": 1234,
        "sha256": "ab" * 32,
        "uploaded": TIME,
        "commit_time": TIME,
        "commit_time_from": "git",
    }
    return FileRecord(key=f"{commit}/{filename}", **{**facts, **changed})


# Everything that HTML can carry: it has no way to write control characters other than white space.
free_text = st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=40) | st.sampled_from(
    [
        "",
        "\"'<>&",
        "</a><script>alert(1)</script>",
        "50%25 off + 100%",
        "&amp;&lt;",
        "-->",
        "ü\u2028\u202e",
        "two\nlines",
    ]
)
hexadecimal = st.integers(0, 2**256 - 1).map("{:064x}".format)
segment = st.text(string.ascii_letters + string.digits + "._+!~%&'\"<>;é ", min_size=1, max_size=12)
times = st.datetimes().map(lambda when: when.strftime("%Y-%m-%dT%H:%M:%S.%fZ").rjust(27, "0"))


@st.composite
def file_records(draw: st.DrawFn) -> FileRecord:
    name, version = draw(segment), draw(segment)
    if wheel := draw(st.booleans()):
        build = draw(st.sampled_from(["", "-1", "-2_local"]))
        filename = f"{name}-{version}{build}-{draw(segment)}-{draw(segment)}-{draw(segment)}.whl"
    else:
        filename = f"{name}-{version}.tar.gz"
    return FileRecord(
        key=f"{draw(st.integers(0, 2**160 - 1)):040x}/{filename}",
        version=version,
        size=draw(st.integers(0, 2**40)),
        sha256=draw(hexadecimal),
        uploaded=draw(times),
        commit_time=TIME,
        commit_time_from="git",
        requires_python=draw(st.none() | free_text.filter(bool)),
        metadata_sha256=draw(st.none() | hexadecimal) if wheel else None,
        yanked=draw(st.none() | free_text),
    )


places = st.tuples(
    st.sampled_from(["nightly", "v0.28.0", COMMIT]),
    st.sampled_from([None, "cu130", "rocm7.2"]),
    st.sampled_from(["vllm-omni", "a"]),
)
some_records = st.lists(file_records(), max_size=5, unique_by=lambda one: one.filename)


class Anchors(HTMLParser):
    """Collect what the standard library sees: the anchors with their attributes and text, the metas, other tags."""

    def __init__(self, page: bytes) -> None:
        super().__init__()
        self.anchors: list[tuple[dict[str, str | None], str]] = []
        self.metas: list[tuple[str, dict[str, str | None]]] = []
        self.tags: list[str] = []
        self._open: list[str] = []
        self._text = ""
        self._attributes: dict[str, str | None] = {}
        self.feed(page.decode())
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag == "meta":
            self.metas.append((self._open[-1], dict(attrs)))
        elif tag != "br":
            self._open.append(tag)
        if tag == "a":
            self._attributes, self._text = dict(attrs), ""
            assert len(self._attributes) == len(attrs), "an attribute occurs twice"

    def handle_data(self, data: str) -> None:
        self._text += data

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag
        if tag == "a":
            self.anchors.append((self._attributes, self._text))


def three(view: str, variant: str | None, project: str, records: list[FileRecord]) -> tuple[Any, ...]:
    """Return URL and bytes of the HTML page, the JSON page and metadata.json."""
    made = pages.project_pages(view, variant, project, records)
    root = layout.root(view, variant)
    keys = [f"{root}/{project}/index.html", f"{root}/json/{project}/index.json", f"{root}/{project}/metadata.json"]
    assert list(made) == keys
    return tuple((HOST + key, made[key]) for key in keys)


def expected_html(one: FileRecord) -> dict[str, str]:
    attributes = {}
    if one.requires_python is not None:
        attributes["data-requires-python"] = one.requires_python
    if one.metadata_sha256 is not None:
        attributes["data-core-metadata"] = f"sha256={one.metadata_sha256}"
        attributes["data-dist-info-metadata"] = f"sha256={one.metadata_sha256}"
    if one.yanked is not None:
        attributes["data-yanked"] = one.yanked
    return attributes


@pages_property
@given(places, some_records)
def test_html_gives_back_each_fact_to_the_standard_parser(
    place: tuple[str, str | None, str], records: list[FileRecord]
) -> None:
    (url, html), _, _ = three(*place, records)
    parsed = Anchors(html)
    assert [text for _, text in parsed.anchors] == sorted(one.filename for one in records)
    by_name = {one.filename: one for one in records}
    for attributes, text in parsed.anchors:
        href = attributes.pop("href")
        assert href
        assert attributes == expected_html(by_name[text])
        target = urlsplit(urljoin(url, href))
        assert target.fragment == f"sha256={by_name[text].sha256}"
        assert unquote(target.path) == f"/{by_name[text].key}"
    assert ("head", {"name": "pypi:repository-version", "content": "1.4"}) in parsed.metas
    assert set(parsed.tags) <= {"html", "head", "meta", "title", "body", "a", "br"}
    assert b"<title>" in html


@pages_property
@given(places, some_records)
def test_html_and_json_mean_the_same_to_pypi_simple(
    place: tuple[str, str | None, str], records: list[FileRecord]
) -> None:
    (html_url, html), (json_url, page), _ = three(*place, records)
    from_html = ProjectPage.from_html(place[2], html, base_url=html_url, from_encoding="utf-8")
    from_json = ProjectPage.from_json_data(json.loads(page), base_url=json_url)
    assert from_html.repository_version == from_json.repository_version == "1.4"
    assert from_json.project == place[2]
    assert from_json.versions == sorted({one.version for one in records})

    def facts(package: DistributionPackage) -> tuple[Any, ...]:
        # The two formats differ in how they say "yanked, for no reason".
        return (
            package.filename,
            package.url,
            package.digests,
            package.requires_python,
            package.metadata_digests or {},
            package.is_yanked,
            package.yanked_reason or None,
        )

    # pypi-simple strips the white space around an anchor's text.
    plain = [one for one in records if one.filename == one.filename.strip()]
    assert [facts(one) for one in from_html.packages if one.filename in {r.filename for r in plain}] == [
        facts(one) for one in from_json.packages if one.filename in {r.filename for r in plain}
    ]


@pages_property
@given(places, some_records)
def test_json_gives_back_each_fact_and_nothing_else(
    place: tuple[str, str | None, str], records: list[FileRecord]
) -> None:
    _, (url, page), _ = three(*place, records)
    document = json.loads(page)
    assert set(document) == {"meta", "name", "versions", "files"}
    assert document["meta"] == {"api-version": "1.4"}
    for one, file in zip(sorted(records, key=lambda each: each.filename), document["files"], strict=True):
        target = urlsplit(urljoin(url, file.pop("url")))
        assert unquote(target.path) == f"/{one.key}"
        assert target.fragment == ""
        expected: dict[str, Any] = {
            "filename": one.filename,
            "hashes": {"sha256": one.sha256},
            "size": one.size,
            "upload-time": one.uploaded,
        }
        if one.requires_python is not None:
            expected["requires-python"] = one.requires_python
        if one.metadata_sha256 is not None:
            expected["core-metadata"] = {"sha256": one.metadata_sha256}
        if one.yanked is not None:
            expected["yanked"] = one.yanked or True
        assert file == expected
        assert type(file["size"]) is int


@pages_property
@given(places, some_records)
def test_pip_reads_the_same_links_from_both_formats(
    place: tuple[str, str | None, str], records: list[FileRecord]
) -> None:
    (html_url, html), (json_url, page), _ = three(*place, records)

    def links(content: bytes, content_type: str, url: str) -> list[Link]:
        return list(parse_links(IndexContent(content, content_type, "utf-8", url, cache_link_parsing=False)))

    def facts(link: Link) -> tuple[Any, ...]:
        metadata = link.metadata_link()
        return (
            link.url_without_fragment,
            link.filename,
            dict(link._hashes),
            link.requires_python,
            link.is_yanked,
            link.yanked_reason or None,
            metadata.url_without_fragment if metadata else None,
            dict(metadata._hashes) if metadata else None,
        )

    from_html = links(html, layout.HTML.content_type, html_url)
    assert [facts(one) for one in from_html] == [
        facts(one) for one in links(page, layout.SIMPLE_JSON.content_type, json_url)
    ]
    for link, one in zip(from_html, sorted(records, key=lambda each: each.filename), strict=True):
        assert link.filename == one.filename
        assert (link.metadata_link() is not None) == (one.metadata_sha256 is not None)


@pages_property
@given(places, some_records)
def test_metadata_json_names_the_parts_of_each_wheel(
    place: tuple[str, str | None, str], records: list[FileRecord]
) -> None:
    _, _, (url, page) = three(*place, records)
    wheels = [one for one in sorted(records, key=lambda each: each.filename) if one.filename.endswith(".whl")]
    for one, row in zip(wheels, json.loads(page), strict=True):
        assert unquote(urlsplit(urljoin(url, row["path"])).path) == f"/{one.key}"
        assert row["filename"] == one.filename
        parts = ["package_name", "version", "build_tag", "python_tag", "abi_tag", "platform_tag"]
        assert list(row) == [*parts, "filename", "path"]
        assert "-".join(row[part] for part in parts if row[part] is not None) + ".whl" == one.filename
        assert (row["build_tag"] is not None) == (one.filename.count("-") == 5)


@pages_property
@given(places, some_records, st.randoms(use_true_random=False))
def test_bytes_do_not_depend_on_the_order_of_the_records(
    place: tuple[str, str | None, str], records: list[FileRecord], shuffler: random.Random
) -> None:
    shuffled = list(records)
    shuffler.shuffle(shuffled)
    assert pages.project_pages(*place, records) == pages.project_pages(*place, shuffled)


@pages_property
@given(st.text(max_size=30) | st.text("aZ0_.~/+-% é", max_size=8), st.integers(0, 3))
def test_keys_are_encoded_a_segment_at_a_time(key: str, depth: int) -> None:
    segments = [quote(segment, safe="") for segment in key.split("/")]
    assert layout.relative_url(key, depth) == "../" * depth + "/".join(segments)


def test_a_plus_sign_is_encoded_exactly_once() -> None:
    name = "vllm-0.11.2.dev363+ge2f56c309-cp38-abi3-manylinux_2_31_x86_64.whl"
    one = record(name, metadata_sha256="cd" * 32)
    (_, html), (_, page), (_, metadata) = three("nightly", None, "vllm", [one])
    encoded = name.replace("+", "%2B")
    assert f'<a href="../../{COMMIT}/{encoded}#sha256={one.sha256}"'.encode() in html
    assert f">{name}</a>".encode() in html
    assert json.loads(page)["files"][0]["url"] == f"../../../{COMMIT}/{encoded}"
    assert json.loads(page)["files"][0]["filename"] == name
    assert json.loads(metadata)[0]["path"] == f"../../{COMMIT}/{encoded}"
    for content in (html, page, metadata):
        assert b"%252B" not in content


def test_requires_python_is_escaped_and_absent_when_there_is_none() -> None:
    with_it = record("networkx-3.4.2-py3-none-any.whl", requires_python=">=3.10,<3.14")
    (_, html), (_, page), _ = three("nightly", None, "networkx", [with_it])
    assert b'data-requires-python="&gt;=3.10,&lt;3.14"' in html
    assert json.loads(page)["files"][0]["requires-python"] == ">=3.10,<3.14"
    (_, html), (_, page), _ = three("nightly", None, "networkx", [replace(with_it, requires_python=None)])
    assert b"requires-python" not in html + page


def test_json_never_has_the_old_name_of_core_metadata() -> None:
    files = [record("a-1.0-py3-none-any.whl", metadata_sha256="cd" * 32), record("a-1.0.tar.gz")]
    (_, html), (_, page), _ = three("nightly", "cu130", "a", files)
    assert b"dist-info-metadata" not in page
    assert html.count(b"data-core-metadata") == html.count(b"data-dist-info-metadata") == 1


@pytest.mark.parametrize(("variant", "root"), [(None, "nightly"), ("cu130", "nightly/cu130")])
def test_root_pages_list_projects_and_nothing_else(variant: str | None, root: str) -> None:
    made = pages.root_pages("nightly", variant, ["vllm-omni", "a", "vllm-omni"])
    assert set(made) == {f"{root}/index.html", f"{root}/json/index.json"}
    parsed = Anchors(made[f"{root}/index.html"])
    assert parsed.anchors == [({"href": "a/"}, "a"), ({"href": "vllm-omni/"}, "vllm-omni")]
    assert ("head", {"name": "pypi:repository-version", "content": "1.4"}) in parsed.metas
    assert IndexPage.from_html(made[f"{root}/index.html"]).projects == ["a", "vllm-omni"]
    document = json.loads(made[f"{root}/json/index.json"])
    assert document == {"meta": {"api-version": "1.4"}, "projects": [{"name": "a"}, {"name": "vllm-omni"}]}
    assert IndexPage.from_json_data(document).projects == ["a", "vllm-omni"]


def test_an_empty_view_still_has_valid_pages() -> None:
    made = pages.root_pages("nightly", None, [])
    assert IndexPage.from_html(made["nightly/index.html"]).projects == []
    assert json.loads(made["nightly/json/index.json"])["projects"] == []


def of_variant(variant: str | None) -> FileRecord:
    local = f"+{variant}" if variant else ""
    return record(f"a-1.0{local}-py3-none-any.whl", variant=variant)


@pytest.mark.parametrize(
    ("variants", "alias", "lists"),
    [
        ([], None, {None: []}),
        ([], "cu129", {None: []}),
        ([None], None, {None: [None]}),
        (["cu130"], None, {None: ["cu130"], "cu130": ["cu130"]}),
        (["rocm", "cu130"], None, {None: [], "cu130": ["cu130"], "rocm": ["rocm"]}),
        (["cu130", None], None, {None: [None], "cu130": ["cu130"]}),
        ([None], "cu129", {None: [None], "cu129": [None]}),
        (["rocm", None], "cu129", {None: [None], "cu129": [None], "rocm": ["rocm"]}),
        (["cu129"], "cu129", {None: ["cu129"], "cu129": ["cu129"]}),
        (["cu129", "rocm"], "cu129", {None: [], "cu129": ["cu129"], "rocm": ["rocm"]}),
    ],
)
def test_which_list_holds_which_files(
    variants: list[str | None], alias: str | None, lists: dict[str | None, list[str | None]]
) -> None:
    groups = pages.group_by_variant([of_variant(one) for one in variants], alias)
    assert {key: [one.variant for one in files] for key, files in groups.items()} == lists
    assert list(groups) == list(lists)


def test_a_real_variant_beside_its_alias_is_refused_naming_both() -> None:
    with pytest.raises(DataError) as caught:
        pages.group_by_variant([of_variant(None), of_variant("cu129")], "cu129")
    assert of_variant(None).key in caught.value.message
    assert of_variant("cu129").key in caught.value.message


@pages_property
@given(st.lists(st.sampled_from([None, "cu129", "cu130", "rocm7.2"]), max_size=6))
def test_every_file_is_in_the_list_of_its_own_variant(variants: list[str | None]) -> None:
    records = [record(f"a-1.{n}-py3-none-any.whl", variant=variant) for n, variant in enumerate(variants)]
    groups = pages.group_by_variant(records, None)
    for variant in set(variants):
        assert [one for one in groups[variant] if one.variant == variant] == [
            one for one in records if one.variant == variant
        ]
    for variant, files in groups.items():
        assert variant is None or {one.variant for one in files} == {variant}
        assert len({one.variant for one in files}) <= 1, "pip would choose between accelerators"
