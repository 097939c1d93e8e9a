"""What every wheels task starts with: the store it works on, the files and the commit it means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tasks.support import announcing, console, paths, profiles, source
from tasks.support.errors import DataError, MissingInputError, UsageError
from tasks.support.settings import CHECKOUT, Settings
from tasks.support.source import Source, Where
from tasks.support.store import ObjectStore, open_store
from tasks.support.store_file import FileStore
from tasks.wheels.index import Index, timestamp
from tasks.wheels.state import TimeSource
from tasks.wheels.upload import CommitTime
from tasks.wheels.views import AskAncestry, unknown_ancestry


def open_index(settings: Settings, deed: profiles.Deed | None = None, *, dry_run: bool = False) -> Index:
    """Open the index in the settings' store; a deed is checked against the profile, then named in the first line."""
    store = open_store(settings.store)
    if deed is not None:
        announcing.announce(settings.profile, deed, [store.url], store.url, dry_run=dry_run)
    return Index(store, settings.wheels)


def require_folder(store: ObjectStore) -> None:
    """Raise MissingInputError when the store is a folder that is not there; a bucket's own answers say as much."""
    if isinstance(store, FileStore) and not paths.is_folder(store.root):
        raise MissingInputError(
            f"there is no folder {store.root}", hint="correct --store or OMNI_CI_STORE; the first upload makes it"
        )


def find_source(settings: Settings, *, checkout: Path = CHECKOUT) -> Path | None:
    """Return the source when there is one; only a given one must exist."""
    found = locate_source(settings, checkout=checkout)
    return found.path if found is not None else None


def locate_source(settings: Settings, *, checkout: Path = CHECKOUT) -> Source | None:
    """Return the source and how it was found, or None; only a given one must exist."""
    try:
        return source.locate_source(settings, paths.current_folder(), checkout=checkout)
    except MissingInputError:
        if settings.source is not None:
            raise
        return None


@dataclass(frozen=True)
class Subject:
    """The commit that a task is about, and the checkout that is asked about it, where there is one.

    ``origin`` says where the commit comes from; None when ``--commit`` names it.
    """

    commit: str
    checkout: Path | None
    origin: str | None = field(default=None, compare=False)

    def tell(self) -> None:
        """Say which commit is meant and why, unless a flag names it."""
        if self.origin is not None:
            console.say(f"commit {self.commit} ({self.origin})")


def choose_subject(
    settings: Settings,
    flag: str | None,
    found: Source | None,
    *,
    files: Sequence[Path] = (),
    checkout: Path = CHECKOUT,
) -> Subject:
    """Choose the commit that a task writes about, and say where it comes from unless ``flag`` names it."""
    subject = find_subject(settings, flag, found, files=files, checkout=checkout)
    subject.tell()
    return subject


def find_subject(
    settings: Settings,
    flag: str | None,
    found: Source | None,
    *,
    files: Sequence[Path] = (),
    checkout: Path = CHECKOUT,
) -> Subject:
    """Choose the commit that a task writes about.

    ``--commit``, else BUILDKITE_COMMIT, else HEAD of the checkout that the given ``files`` lie in, else HEAD of the
    source. Raises UsageError when that would be a guess: the files lie in several checkouts, in another one than the
    given source, or the source was only found beside this tool's ``checkout``.
    """
    path = found.path if found is not None else None
    named = source.named_commit(settings, flag, path)
    if named is not None:
        commit, origin = named
        return Subject(commit, path, origin if flag is None else None)
    tops = {top: source.commit_of(top) for file in files if (top := _top_around(file, checkout)) is not None}
    if found is not None and (found.where is Where.GIVEN or not tops):
        tops.setdefault(found.path, source.commit_of(found.path))
    if len(set(tops.values())) > 1:
        heads = " and ".join(f"{commit[:12]} (HEAD of {top})" for top, commit in sorted(tops.items()))
        raise UsageError(f"which commit is meant? {heads}", hint="pass --commit with the full hash")
    if not tops:
        raise UsageError("no commit is given", hint="pass --commit with the full hash")
    top, commit = next(iter(tops.items()))
    if found is not None and top == found.path and found.where is Where.SIBLING:
        raise UsageError(
            f"no commit is given, and HEAD of {top}, the folder beside this tool, would be a guess",
            hint="pass --commit with the full hash, or --source DIR for the HEAD of that checkout",
        )
    return Subject(commit, top, f"HEAD of {top}")


def commit_to_build(settings: Settings, flag: str | None, path: Path) -> str:
    """Return the commit to build: ``--commit``, BUILDKITE_COMMIT or HEAD of the source; says so unless a flag does."""
    named = source.named_commit(settings, flag, path)
    commit, origin = named if named is not None else (source.commit_of(path), f"HEAD of {path}")
    if flag is None:
        console.say(f"commit {commit} ({origin})")
    return commit


def given_files(names: Sequence[str]) -> list[Path]:
    """Return the files and folders that a person named, absolute."""
    return [paths.absolute(paths.as_path(name, "--wheel or --dist")) for name in names]


def _top_around(file: Path, checkout: Path) -> Path | None:
    """Return the checkout that a file or folder lies in, unless that is this tool's own."""
    folder = file if paths.is_folder(file) else file.parent
    top = source.git_top(folder) if paths.is_folder(folder) else None
    return None if top is None or top.resolve() == checkout.resolve() else top


def commit_time(checkout: Path | None, commit: str, given: str | None) -> CommitTime | None:
    """Return a commit's time from git, else the given one, else None (the upload's own time will do)."""
    from tasks.support.arguments import parse_moment

    moment = parse_moment(given, "--commit-time") if given is not None else None
    if checkout is not None and source.has_git(checkout):
        try:
            return CommitTime(timestamp(source.commit_time(checkout, commit)), TimeSource.GIT)
        except MissingInputError:
            pass
    return CommitTime(timestamp(moment), TimeSource.GIVEN) if moment is not None else None


def ask_ancestry(checkout: Path | None) -> AskAncestry:
    """Return what answers questions of ancestry: the source's git, where there is one."""
    return partial(source.ancestry, checkout) if checkout is not None else unknown_ancestry


def choose_files(dist: str | None, files: Sequence[str] | None, checkout: Path | None, *, sdist: bool) -> list[Path]:
    """Return the files to upload: the named ones, else all wheels (and sdists) of the ``dist`` folder.

    Raises DataError when the folder holds none.
    """
    named = [paths.as_path(name, "--wheel") for name in files or ()]
    for path in named:
        if not paths.is_there(path):
            raise MissingInputError(f"there is no file {paths.shown(path)}", hint="correct --wheel")
    folder = paths.as_path(dist, "--dist") if dist is not None else (checkout or paths.current_folder()) / "dist"
    if named and dist is None and not sdist:
        return named
    if not paths.is_folder(folder):
        hint = "run invoke wheels.build, or say where the wheels are: --dist DIR, --wheel FILE"
        raise MissingInputError(f"there is no folder {paths.shown(folder)}", hint=hint)
    found = [] if named else paths.matching(folder, "*.whl")
    if not named and not found:
        raise DataError(f"{folder} holds no wheel", hint="run invoke wheels.build")
    sdists = paths.matching(folder, "*.tar.gz") if sdist else []
    if sdist and not sdists:
        raise DataError(f"{folder} holds no sdist", hint="run invoke wheels.build")
    return [*named, *found, *sdists]
