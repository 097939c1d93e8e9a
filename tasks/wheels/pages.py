"""The pages that pip and uv read: pure functions from file records to bytes; the same records give the same bytes.

HTML follows PEP 503, 592, 629, 658 and 714, JSON follows PEP 691 and 700, both in version 1.4 (PEP 833 freezes
HTML there). Links are relative, so that a view can be copied, served under any prefix, or read from a folder.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache
from html import escape
from json.encoder import encode_basestring as _text

from tasks.support.errors import DataError
from tasks.wheels import layout
from tasks.wheels.state import FileRecord

API_VERSION = "1.4"
INDEX_HTML = "index.html"
INDEX_JSON = "index.json"
METADATA_JSON = "metadata.json"

_HEAD = """<!DOCTYPE html>
<html lang="en">
  <head>
    <meta charset="utf-8">
    <meta name="pypi:repository-version" content="{version}">
    <title>{title}</title>
  </head>
  <body>
"""
_TAIL = "  </body>\n</html>\n"

_META = f'{{"api-version":"{API_VERSION}"}}'
# For texts that most files share.
_escaped = lru_cache(maxsize=1000)(escape)


def group_by_variant(records: Iterable[FileRecord], alias_of_default: str | None) -> dict[str | None, list[FileRecord]]:
    """Return which of a project's files each of a view's lists holds: None is the root list, else a variant's.

    The root lists the default files; without any, the files of the only variant, so that the project can be found;
    with several variants and no default file it is empty. ``alias_of_default`` names the variant whose list holds
    the default files too; DataError when files of that variant exist beside default ones.
    """
    groups: dict[str | None, list[FileRecord]] = defaultdict(list)
    for record in records:
        groups[record.variant].append(record)
    default = groups[None]
    if default and alias_of_default:
        if alias_of_default in groups:
            raise DataError(
                f"{groups[alias_of_default][0].key} is of variant {alias_of_default}, which is the alias of the "
                f"default variant, and {default[0].key} is a default file",
                hint="publish one of the two only, or change the alias",
            )
        groups[alias_of_default] = default
    elif not default:
        variants = [group for variant, group in groups.items() if variant]
        groups[None] = variants[0] if len(variants) == 1 else []
    return {variant: groups[variant] for variant in sorted(groups, key=lambda name: name or "")}


def project_pages(view: str, variant: str | None, project: str, records: Sequence[FileRecord]) -> dict[str, bytes]:
    """Return a project's three pages in a view, or in a variant of it, by key."""
    root = layout.root(view, variant)
    up = "../" * (root.count("/") + 2)
    links, files, wheels = [], [], []
    for name, _, record in sorted((record.filename, record.key, record) for record in records):
        url = up + layout.relative_url(record.key, 0)
        links.append(_link(record, name, url))
        quoted = _text(name)
        files.append(_file(record, quoted, f"../{url}"))
        if name.endswith(".whl"):
            wheels.append(_wheel(quoted, url))
    versions = sorted({record.version for record in records})
    return {
        f"{root}/{project}/{INDEX_HTML}": _html(f"Links for {project}", links),
        f"{root}/{layout.JSON_FOLDER}/{project}/{INDEX_JSON}": _project_json(project, versions, files),
        f"{root}/{project}/{METADATA_JSON}": _lines("[\n", wheels, "\n]\n"),
    }


def root_pages(view: str, variant: str | None, projects: Iterable[str]) -> dict[str, bytes]:
    """Return the two pages that list the projects of a view, or of a variant of it, and nothing else, by key."""
    root = layout.root(view, variant)
    names = sorted(set(projects))
    rows = [f'    <a href="{layout.relative_url(name, 0)}/">{escape(name)}</a><br>\n'.encode() for name in names]
    listed = ",".join(f'{{"name":{_text(name)}}}' for name in names)
    return {
        f"{root}/{INDEX_HTML}": _html("Simple index", rows),
        f"{root}/{layout.JSON_FOLDER}/{INDEX_JSON}": f'{{"meta":{_META},"projects":[{listed}]}}\n'.encode(),
    }


def _html(title: str, rows: Iterable[bytes]) -> bytes:
    head = _HEAD.format(version=API_VERSION, title=escape(title))
    return b"".join([head.encode(), *rows, _TAIL.encode()])


def _lines(head: str, rows: Iterable[bytes], tail: str) -> bytes:
    """Return a JSON document with a row a line, joined once: copies of a large page cost more than its rows."""
    lines = [*rows] or [b""]
    lines[0] = head.encode() + lines[0]
    lines[-1] += tail.encode()
    return b",\n".join(lines)


def _link(record: FileRecord, name: str, url: str) -> bytes:
    attributes = _attributes(record)
    return f'    <a href="{url}#sha256={record.sha256}"{attributes}>{escape(name)}</a><br>\n'.encode()


def _attributes(record: FileRecord) -> str:
    text = ""
    if record.requires_python:
        text += f' data-requires-python="{_escaped(record.requires_python)}"'
    if digest := record.metadata_sha256:
        # PEP 714: clients that know only the first name of the attribute are still in use.
        text += f' data-core-metadata="sha256={digest}" data-dist-info-metadata="sha256={digest}"'
    if record.yanked is not None:
        text += f' data-yanked="{escape(record.yanked)}"'
    return text


def _project_json(project: str, versions: Iterable[str], files: Iterable[bytes]) -> bytes:
    listed = ",".join(map(_text, versions))
    head = f'"meta":{_META},"name":{_text(project)},"versions":[{listed}]'
    return _lines(f'{{{head},"files":[\n', files, "\n]}\n")


def _file(record: FileRecord, name: str, url: str) -> bytes:
    """Describe a file; ``name`` is its name as JSON, and a URL is the same in JSON."""
    text = (
        f'{{"filename":{name},"url":"{url}","hashes":{{"sha256":"{record.sha256}"}},'
        f'"size":{record.size},"upload-time":"{record.uploaded}"'
    )
    if record.requires_python:
        text += f',"requires-python":{_text(record.requires_python)}'
    if record.metadata_sha256:
        text += f',"core-metadata":{{"sha256":"{record.metadata_sha256}"}}'
    if record.yanked is not None:
        text += f',"yanked":{_text(record.yanked) if record.yanked else "true"}'
    return f"{text}}}".encode()


def _wheel(name: str, url: str) -> bytes:
    """Describe a wheel in the shape that set-up scripts already read; the parts are the file name's own (PEP 427).

    ``name`` is the file's name as JSON. An escape sequence has no hyphen, so that its parts are JSON too.
    """
    head, python_tag, abi_tag, platform_tag = name[1:].removesuffix('.whl"').rsplit("-", 3)
    package, version, *build = head.split("-")
    build_tag = f'"{build[0]}"' if build else "null"
    return (
        f'{{"package_name":"{package}","version":"{version}","build_tag":{build_tag},'
        f'"python_tag":"{python_tag}","abi_tag":"{abi_tag}","platform_tag":"{platform_tag}",'
        f'"filename":{name},"path":"{url}"}}'
    ).encode()
