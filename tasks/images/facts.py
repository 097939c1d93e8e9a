"""What plans are made from: the source's commit, version and history, and this tool's own content."""

from __future__ import annotations

import re
from pathlib import Path

from tasks.images import tool_context
from tasks.images.planning import Facts, SourceFacts
from tasks.support.errors import DataError, UsageError
from tasks.support.settings import CHECKOUT
from tasks.support.source import commit_of, commit_time, git, is_dirty

MAIN = "origin/main"
_DESCRIBED = re.compile(r"v?(?P<version>[0-9].*)-(?P<distance>[0-9]+)-(?P<node>g[0-9a-f]+)")
_LAST_NUMBER = re.compile(r"(.*?)([0-9]+)")
_NODE_DIGITS = 9


def gather(
    source: Path,
    url: str,
    *,
    commit: str | None = None,
    version: str | None = None,
    allow_dirty: bool = False,
    push: bool = False,
    checkout: Path = CHECKOUT,
) -> Facts:
    """Read the facts of a git checkout and of this tool's ``checkout``.

    What is built is what lies in the source: UsageError when its HEAD is not ``commit``, and for a source with changes,
    whose image would bear a commit that it is not, unless that is allowed and nothing is pushed. Raises
    MissingInputError for a source without git.
    """
    head = commit_of(source)
    if commit is not None and commit != head:
        raise UsageError(
            f"the source is at {head}, not at {commit}",
            hint=f"check out that commit in {source}, or leave --commit out",
        )
    if (push or not allow_dirty) and is_dirty(source):
        raise UsageError(
            f"{source} has changes, and its image would bear commit {head} all the same",
            hint="commit or remove them" if push else "commit or remove them, or pass --allow-dirty",
        )
    return Facts(
        source=SourceFacts(
            folder=source,
            commit=head,
            version=version or version_of(source, head),
            created=commit_time(source, head),
            url=url,
            ancestors=ancestors_of(source, head),
        ),
        tool=tool_context.facts(checkout),
    )


def version_of(source: Path, commit: str) -> str:
    """Return a commit's version as setuptools_scm writes it: the tag's, or the next one's with `.devN+g<commit>`."""
    found = git(source, "describe", "--tags", "--long", "--match", "*[0-9]*", commit, or_no=True)
    if found.code:
        return f"0.1.dev0+g{commit[:_NODE_DIGITS]}"
    described = _DESCRIBED.fullmatch(found.text.strip())
    if described is None:
        raise DataError(f"the newest tag of {source} is no version: {found.text.strip()}", hint="pass --version")
    version, distance, node = described["version"], int(described["distance"]), described["node"]
    if not distance:
        return version
    following = _LAST_NUMBER.fullmatch(version)
    upcoming = f"{following[1]}{int(following[2]) + 1}" if following else version
    return f"{upcoming}.dev{distance}+{node}"


def ancestors_of(source: Path, commit: str) -> tuple[str, ...]:
    """Return the commits whose images can hold layers of this one: its parent, and where it left the main branch."""
    asked = (
        git(source, "rev-parse", "--verify", "--quiet", f"{commit}^1", or_no=True),
        git(source, "merge-base", commit, MAIN, or_no=True),
    )
    found = (answer.text.strip() for answer in asked if not answer.code)
    return tuple(dict.fromkeys(name for name in found if name and name != commit))
