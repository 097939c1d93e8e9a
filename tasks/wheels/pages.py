"""The pages that pip and uv read: pure functions from file records to bytes; the same records give the same bytes.

HTML follows PEP 503, 592, 629, 658 and 714, JSON follows PEP 691 and 700, both in version 1.4 (PEP 833 freezes
HTML there). Links are relative, so that a view can be copied, served under any prefix, or read from a folder.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
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

# A record with its file name and its URL relative to the store's root: what all pages need, made once.
_Listed = tuple[FileRecord, str, str]

_META = f'{{"api-version":"{API_VERSION}"}}'
_PLAIN = re.compile(r"[A-Za-z0-9_.~/+-]*")


def group_by_variant(records: Iterable[FileRecord], alias_of_default: str | None) -> dict[str | None, list[FileRecord]]:
    """Return which of a project's files each of a view's lists holds: None is the root list, else a variant's.

    The root lists the default files; without any, the files of the only variant, so that the project can be found;
    with several variants and no default file it is empty. ``alias_of_default`` names the variant whose list holds
    the default files too; DataError when files of that variant exist beside default ones.
    """
    groups: dict[str | None, list[FileRecord]] = {None: []}
    for record in records:
        groups.setdefault(record.variant, []).append(record)
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
    depth = root.count("/") + 2
    files = [(record, record.filename, _url(record.key)) for record in sorted(records, key=_by_name)]
    return {
        f"{root}/{project}/{INDEX_HTML}": _project_html(project, files, "../" * depth),
        f"{root}/{layout.JSON_FOLDER}/{project}/{INDEX_JSON}": _project_json(project, files, "../" * (depth + 1)),
        f"{root}/{project}/{METADATA_JSON}": _metadata_json(files, "../" * depth),
    }


def root_pages(view: str, variant: str | None, projects: Iterable[str]) -> dict[str, bytes]:
    """Return the two pages that list the projects of a view, or of a variant of it, and nothing else, by key."""
    root = layout.root(view, variant)
    names = sorted(set(projects))
    rows = (f'    <a href="{layout.relative_url(name, 0)}/">{escape(name)}</a><br>\n' for name in names)
    listed = ",".join(f'{{"name":{_text(name)}}}' for name in names)
    return {
        f"{root}/{INDEX_HTML}": _html("Simple index", rows),
        f"{root}/{layout.JSON_FOLDER}/{INDEX_JSON}": f'{{"meta":{_META},"projects":[{listed}]}}\n'.encode(),
    }


def _url(key: str) -> str:
    """Return what layout.relative_url does, by a short cut where only a plus needs encoding, as nearly always."""
    return key.replace("+", "%2B") if _PLAIN.fullmatch(key) else layout.relative_url(key, 0)


def _by_name(record: FileRecord) -> tuple[str, str]:
    return record.filename, record.key


def _html(title: str, rows: Iterable[str]) -> bytes:
    return f"{_HEAD.format(version=API_VERSION, title=escape(title))}{''.join(rows)}{_TAIL}".encode()


def _project_html(project: str, files: Sequence[_Listed], up: str) -> bytes:
    rows = [
        f'    <a href="{up}{url}#sha256={record.sha256}"{_attributes(record)}>{escape(name)}</a><br>\n'
        for record, name, url in files
    ]
    return _html(f"Links for {project}", rows)


def _attributes(record: FileRecord) -> str:
    text = ""
    if record.requires_python:
        text += f' data-requires-python="{escape(record.requires_python)}"'
    if digest := record.metadata_sha256:
        # PEP 714: clients that know only the first name of the attribute are still in use.
        text += f' data-core-metadata="sha256={digest}" data-dist-info-metadata="sha256={digest}"'
    if record.yanked is not None:
        text += f' data-yanked="{escape(record.yanked)}"'
    return text


def _project_json(project: str, files: Sequence[_Listed], up: str) -> bytes:
    versions = ",".join(_text(version) for version in sorted({record.version for record, _, _ in files}))
    rows = ",\n".join([_file(record, name, up + url) for record, name, url in files])
    head = f'"meta":{_META},"name":{_text(project)},"versions":[{versions}]'
    return f'{{{head},"files":[\n{rows}\n]}}\n'.encode()


def _file(record: FileRecord, name: str, url: str) -> str:
    text = (
        f'{{"filename":{_text(name)},"url":{_text(url)},"hashes":{{"sha256":{_text(record.sha256)}}},'
        f'"size":{record.size},"upload-time":{_text(record.uploaded)}'
    )
    if record.requires_python:
        text += f',"requires-python":{_text(record.requires_python)}'
    if record.metadata_sha256:
        text += f',"core-metadata":{{"sha256":{_text(record.metadata_sha256)}}}'
    if record.yanked is not None:
        text += f',"yanked":{_text(record.yanked) if record.yanked else "true"}'
    return text + "}"


def _metadata_json(files: Sequence[_Listed], up: str) -> bytes:
    rows = ",\n".join([_wheel(name, up + url) for _, name, url in files if name.endswith(".whl")])
    return f"[\n{rows}\n]\n".encode()


def _wheel(filename: str, url: str) -> str:
    """Describe a wheel in the shape that set-up scripts already read; the parts are the file name's own (PEP 427)."""
    head, python_tag, abi_tag, platform_tag = filename.removesuffix(".whl").rsplit("-", 3)
    name, version, *build = head.split("-")
    return (
        f'{{"package_name":{_text(name)},"version":{_text(version)},"build_tag":{_text(build[0]) if build else "null"},'
        f'"python_tag":{_text(python_tag)},"abi_tag":{_text(abi_tag)},"platform_tag":{_text(platform_tag)},'
        f'"filename":{_text(filename)},"path":{_text(url)}}}'
    )
