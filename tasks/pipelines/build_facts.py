"""What Buildkite's environment says of the build that runs, read once and frozen; off Buildkite most of it is empty."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from tasks.suites.gates import SCHEDULES
from tasks.support.errors import ConfigurationError
from tasks.support.settings import Settings, on_buildkite
from tasks.support.source import named_commit

RUN_ALL_LABEL = "ready-run-all-tests"
NO_FAIL_FAST_LABEL = "ci-no-fail-fast"
DEFAULT_MIRROR = "amdproduction"
_MIRROR_OF_SLUG = {"fastcheck": "amdtentative"}
_NUMBER = re.compile(r"[1-9][0-9]{0,17}")
_SCP_ADDRESS = re.compile(r"(?:[^@/:]+@)?([^/:\[\]]+|\[[^\]]+\]):(?!//)(.*)")
_USUAL_PORTS = {"https": 443, "http": 80, "ssh": 22, "git": 9418}


@dataclass(frozen=True)
class Build:
    """A build's facts. Names that come from outside (branches, labels) are kept as they are: data, never text of ours.

    ``base_branch`` is what a pull request or a merge queue's group goes into, else None; ``merge_queue_base`` is that
    group's base commit as it was given, unchecked. ``mirror_hw`` chooses the steps of a file in AMD's form.
    """

    on_buildkite: bool = False
    branch: str | None = None
    default_branch: str = "main"
    commit: str | None = None
    pull_request: int | None = None
    base_branch: str | None = None
    merge_queue_base: str | None = None
    fork: bool = False
    labels: frozenset[str] = frozenset()
    schedules: frozenset[str] = frozenset()
    run_all: bool = False
    docs_only_disable: bool = False
    fail_fast: bool = False
    mirror_hw: str = DEFAULT_MIRROR
    coverage: bool = False

    @property
    def is_main(self) -> bool:
        """Say whether this is a trusted build of the default branch: no pull request, no fork, whatever its name."""
        return self.branch == self.default_branch and self.pull_request is None and not self.fork


def read_build(settings: Settings) -> Build:
    """Read the build's facts from the environment.

    A pull request from a repository that is not known to be ours is a fork. Raises ConfigurationError for a pull
    request that is no number and for a FAIL_FAST that is neither yes nor no, UsageError for a BUILDKITE_COMMIT that is
    no full hash.
    """
    named = named_commit(settings, None, None)
    default_branch = settings.variable("BUILDKITE_PIPELINE_DEFAULT_BRANCH") or "main"
    pull_request = _pull_request(settings)
    labels = _labels(settings)
    return Build(
        on_buildkite=on_buildkite(settings.environment),
        branch=settings.variable("BUILDKITE_BRANCH"),
        default_branch=default_branch,
        commit=named[0] if named else None,
        pull_request=pull_request,
        base_branch=_base_branch(settings, pull_request, default_branch),
        merge_queue_base=settings.variable("BUILDKITE_MERGE_QUEUE_BASE_COMMIT"),
        fork=_is_fork(settings, pull_request),
        labels=labels,
        schedules=frozenset(name for name in SCHEDULES if settings.switch(name)),
        run_all=settings.switch("RUN_ALL") or RUN_ALL_LABEL in labels,
        docs_only_disable=settings.switch("DOCS_ONLY_DISABLE"),
        fail_fast=_fail_fast(settings, pull_request, labels),
        mirror_hw=_mirror(settings),
        coverage=settings.switch("COV_ENABLED"),
    )


def _pull_request(settings: Settings) -> int | None:
    value = settings.variable("BUILDKITE_PULL_REQUEST")
    if value is None or value == "false":
        return None
    if not _NUMBER.fullmatch(value):  # a pull request that passes for none would pass for main
        raise ConfigurationError(f"BUILDKITE_PULL_REQUEST is neither a number nor false: {value!r}")
    return int(value)


def _labels(settings: Settings) -> frozenset[str]:
    words = (settings.variable("BUILDKITE_PULL_REQUEST_LABELS") or "").split(",")
    return frozenset(word.strip() for word in words if word.strip())


def _base_branch(settings: Settings, pull_request: int | None, default_branch: str) -> str | None:
    queue = settings.variable("BUILDKITE_MERGE_QUEUE_BASE_BRANCH")
    if pull_request is None:
        return queue
    return settings.variable("BUILDKITE_PULL_REQUEST_BASE_BRANCH") or default_branch


def _is_fork(settings: Settings, pull_request: int | None) -> bool:
    theirs = settings.variable("BUILDKITE_PULL_REQUEST_REPO")
    ours = settings.variable("BUILDKITE_REPO")
    if theirs is None:
        return pull_request is not None
    return ours is None or repository_name(theirs) != repository_name(ours)


def repository_name(address: str) -> str:
    """Return what all addresses of one repository have in common: host and path, no login, scheme, ``.git`` or case.

    Knows URLs and git's ``user@host:path`` (git-fetch(1), GIT URLS). What it cannot read stays as it is.
    """
    if not address.isprintable():  # the parser of URLs drops line breaks and tabs without a word
        return address
    scp = _SCP_ADDRESS.fullmatch(address)
    if scp:
        host, path = scp[1], scp[2]
    else:
        try:
            parts = urlsplit(address)
            usual = parts.port in (None, _USUAL_PORTS.get(parts.scheme))
        except ValueError:
            return address
        host = f"{parts.hostname or ''}{'' if usual else f':{parts.port}'}"
        path = parts.path + (f"?{parts.query}" if parts.query else "")
    name = f"{host}/{path.strip('/').removesuffix('.git').rstrip('/')}"
    return name.lower() if name.isascii() else name


def _fail_fast(settings: Settings, pull_request: int | None, labels: frozenset[str]) -> bool:
    value = settings.variable("FAIL_FAST")
    if value is None:
        return pull_request is not None and NO_FAIL_FAST_LABEL not in labels
    if value.lower() not in ("1", "true", "0", "false"):
        raise ConfigurationError(f"FAIL_FAST is neither 1, true, 0 nor false: {value!r}")
    return value.lower() in ("1", "true")


def _mirror(settings: Settings) -> str:
    by_slug = _MIRROR_OF_SLUG.get(settings.variable("BUILDKITE_PIPELINE_SLUG") or "")
    return by_slug or settings.variable("AMD_MIRROR_HW") or settings.variable("MIRROR_HW") or DEFAULT_MIRROR
