"""What the release tasks start with: who takes part, whether the profile allows it, and what is asked for."""

from __future__ import annotations

from pathlib import Path

from tasks.registry.copying import Way
from tasks.registry.distribution import DistributionRepository
from tasks.registry.gate import Waited
from tasks.registry.opening import open_repository
from tasks.registry.references import RepositoryName
from tasks.release import repositories
from tasks.release.channels import Channel, parse_version
from tasks.release.moving import Run
from tasks.release.promotion import PublishReport, execute_publish
from tasks.release.promotion_plan import Parties, PublishPlan, Request
from tasks.support import buildkite, console, paths
from tasks.support.errors import ConfigurationError, MissingInputError, OmniError, UsageError
from tasks.support.settings import CHECKOUT, Settings
from tasks.support.store import open_store
from tasks.support.transfers import transfers
from tasks.wheels.begin import Subject, commit_time, find_subject, locate_source

VERSION_KEY = "release-version"
"""The key of Buildkite's meta-data that a release's version is asked for under."""


def open_parties(settings: Settings) -> Parties:
    """Open the repositories and the store; nothing is asked of a registry or the store yet."""
    chosen = repositories.choose(settings)
    staging, public = open_repository(chosen.staging, settings), open_repository(chosen.public, settings)
    return Parties(staging, public, open_store(settings.store))


def require_ledger(settings: Settings, public: RepositoryName, *, dry_run: bool = False) -> None:
    """Raise ConfigurationError when a registry's ledger would lie in this checkout; a dry run only warns.

    An agent's folder is gone with its build, and then nobody knows what moved the tags.
    """
    if settings.store_given or public.folder is not None:
        return
    error = ConfigurationError(
        f"no store is named, and the ledger of {public} does not belong into a folder of this checkout",
        hint="pass --store, or set OMNI_CI_STORE",
    )
    if not dry_run:
        raise error
    console.warn(foretold(error).message)


def require_folder(public: RepositoryName) -> None:
    """Raise MissingInputError when a local repository is a folder that is not there."""
    if public.folder is not None and not paths.is_folder(public.folder):
        raise MissingInputError(
            f"there is no folder {public.folder}", hint="correct --public or OMNI_CI_PUBLIC; the first publish makes it"
        )


def foretold(refusal: OmniError) -> OmniError:
    """Return the error that a dry run ends in where a real run would be refused."""
    return type(refusal)(f"a real run would be refused: {refusal.message}", hint=refusal.hint)


def announce_look(settings: Settings, parties: Parties) -> None:
    """Say in the first line what is looked at, and when it is probably not what was meant."""
    console.say(f"release.status: nothing will change · {places(parties)}")
    public = parties.public.name
    if public.folder is not None and not paths.is_folder(public.folder):
        console.say(f"no such folder yet: {public.folder}")
    if public.folder is None and not settings.store_given:
        console.warn(f"no store is named: this is not the ledger of {public} (--store, OMNI_CI_STORE)")


def places(parties: Parties) -> str:
    """Return where users pull and where the ledger is, for a first line."""
    return f"{parties.public.name} · ledger {parties.store.url}"


def read_request(
    settings: Settings,
    word: str,
    *,
    commit: str | None,
    version: str | None,
    move_latest: bool,
    untested: str | None,
    given_time: str | None,
    checkout: Path = CHECKOUT,
) -> tuple[Request, Subject]:
    """Check the words of a publish; return what they ask for, and the commit and the source that are meant.

    A release's version is the given one, else Buildkite's meta-data ``release-version``.
    """
    channel = Channel.parse(word)
    if channel is Channel.NIGHTLY and (version is not None or move_latest or untested is not None):
        raise UsageError("--version, --move-latest and --untested belong to release, not to nightly")
    if untested is not None and not untested.strip():
        raise UsageError("--untested needs a reason", hint="it is written to the ledger")
    parsed = parse_version(version) if version is not None else None
    if channel is Channel.RELEASE and parsed is None:
        told = buildkite.meta_data(settings, VERSION_KEY)
        parsed = parse_version(told, f"Buildkite's {VERSION_KEY}") if told is not None else None
    about = find_subject(settings, commit, locate_source(settings, checkout=checkout), checkout=checkout)
    time = commit_time(about.checkout, about.commit, given_time)
    moment = time.moment if time is not None else None
    return Request(channel, about.commit, parsed, move_latest, untested, moment), about


def record_subject(settings: Settings, commit: str | None, *, checkout: Path = CHECKOUT) -> Subject:
    """Return the commit that a result is about; the source is not needed in a build."""
    in_build = settings.variable("BUILDKITE_COMMIT") is not None
    found = None if in_build else locate_source(settings, checkout=checkout)
    return find_subject(settings, commit, found, checkout=checkout)


def first_line(parties: Parties, request: Request) -> str:
    """Return what a publish is about, for its first line."""
    version = f" {request.version}" if request.version is not None else ""
    names = f"{parties.staging.name} -> {places(parties)}"
    return f"{request.channel.value}{version} · {request.commit[:8]} · {names}"


def run_publish(settings: Settings, parties: Parties, plan: PublishPlan) -> tuple[PublishReport, str]:
    """Publish as planned with its progress shown; return the report, and how long the registries let us wait."""
    total = sum(plan.copy.size(way) for way in (Way.STREAM, Way.MOUNT)) if plan.copy is not None else 0
    buildkite.group(f"publishing {plan.request.channel.value}")
    before = _waited(parties)
    with transfers("copying", total) as shown:
        report = execute_publish(parties, plan, Run.start(settings), shown)
    said = [f"{name}: {waited}" for name, after in _waited(parties).items() if str(waited := after - before[name])]
    return report, "; ".join(said)


def _waited(parties: Parties) -> dict[str, Waited]:
    both = (parties.staging, parties.public)
    return {str(one.name.registry): one.waited for one in both if isinstance(one, DistributionRepository)}
