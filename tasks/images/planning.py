"""From an image of the catalogue to everything a builder must be told; pure but for reading our own Dockerfiles."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType

from tasks.images import dockerfile, placeholders
from tasks.images.catalogue import (
    ARCHITECTURES,
    Catalogue,
    Engine,
    Folder,
    GitContext,
    Image,
    Repository,
)
from tasks.registry.documents import Platform
from tasks.registry.references import RepositoryName, check_image, check_tag
from tasks.support.errors import DataError, UsageError, did_you_mean
from tasks.support.redaction import is_secret_name, redact
from tasks.support.settings import CHECKOUT

BASE = "BASE_IMAGE"
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
"""Passed to a build whose image says `proxy: true`; BuildKit knows them and keeps them out of the image's history."""

_ARG = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RECIPE_DIGITS = 12
_LABEL = "org.opencontainers.image"
_REF = re.compile(r"[0-9a-f]{40}|v?[0-9]+(?:\.[0-9]+)+(?:(?:a|b|rc|\.post|\.dev)[0-9]+)*")


@dataclass(frozen=True)
class SourceFacts:
    """What is known about the library's checkout.

    ``created`` is the commit's time, so that a second build of a commit has the same labels. ``ancestors`` are commits
    whose images are worth asking for cached layers, the likeliest first.
    """

    folder: Path
    commit: str
    version: str
    created: datetime
    url: str
    ancestors: tuple[str, ...] = ()


@dataclass(frozen=True)
class ToolFacts:
    """What is known about this tool: the folder that its image is made from, and a digest of what will be in it."""

    folder: Path
    digest: str


@dataclass(frozen=True)
class Facts:
    """What plans are made from beside the catalogue and the request."""

    source: SourceFacts
    tool: ToolFacts


@dataclass(frozen=True)
class SecretFile:
    """A file that is mounted into build steps under an id, and is in no layer."""

    id: str
    file: Path


@dataclass(frozen=True)
class BuildPlan:
    """One build of one image for one platform, with nothing left to decide.

    ``context`` is a folder or a git address with a reference; ``dockerfile`` is a file on this machine for a folder,
    and a path inside the context for git. ``tags`` are full references. ``recipe`` is a digest of what decides the
    result apart from the source; a ``reusable`` image has it in its tag: one that is there need not be built again. A
    ``local`` one is never pushed. ``index`` are the tags for an index of all ``index_platforms``, once each is pushed.
    """

    image: str
    device: str
    platform: Platform
    engine: Engine
    context: Path | GitContext
    dockerfile: Path | str
    target: str | None
    args: Mapping[str, str]
    tags: tuple[str, ...]
    labels: Mapping[str, str]
    recipe: str
    reusable: bool
    local: bool
    repository: str
    index: tuple[str, ...] = ()
    index_platforms: tuple[Platform, ...] = ()
    cache_from: tuple[str, ...] = ()
    cache_to: tuple[str, ...] = ()
    secrets: tuple[SecretFile, ...] = ()
    proxies: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), repr=False)
    push: bool = False

    @property
    def outputs(self) -> tuple[str, ...]:
        """Return where the result goes, as BuildKit's `--output` takes it: to the registry, or to the host's engine.

        buildctl has no host to load into: without a push its result stays in the builder, as a check.
        """
        if self.push:
            return ("type=image,push=true",)
        return ("type=docker",) if self.engine is Engine.DOCKER else ()


@dataclass(frozen=True)
class Request:
    """What is asked for: an image, for one platform or its first one, pushed or not, with arguments that win.

    ``variables`` is the environment, of which only what the catalogue names is read; ``addresses`` replaces addresses
    of repositories by name.
    """

    image: str
    platform: str | None = None
    push: bool = False
    args: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    variables: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), repr=False)
    addresses: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


def plan_build(catalogue: Catalogue, request: Request, facts: Facts) -> BuildPlan:
    """Return the plan of one build; UsageError for a platform or argument that the image does not have."""
    return plan_chain(catalogue, request, facts)[-1]


def plan_chain(catalogue: Catalogue, request: Request, facts: Facts) -> tuple[BuildPlan, ...]:
    """Return the plans of an image and of every image that it is built from, in the order to build them.

    Arguments of the request go to the image itself only. What an image is built from is pushed when the image is,
    unless it is local.
    """
    image = catalogue.image(request.image)
    platform = choose_platform(image, request.platform)
    plans: dict[str, BuildPlan] = {}

    def visit(wanted: Image) -> None:
        if wanted.name in plans:
            return
        for need in wanted.needs:
            visit(catalogue.image(need))
        if platform not in wanted.platforms:
            raise DataError(
                f"{wanted.where}: image {wanted.name} is not built for {platform}, which {image.name} needs"
            )
        plans[wanted.name] = _plan(catalogue, wanted, request, facts, platform=platform, needs=plans)

    visit(image)
    return tuple(plans.values())


def choose_platform(image: Image, wanted: str | None) -> Platform:
    """Return the platform asked for, or the image's first; UsageError when the image is not built for it."""
    if wanted is None:
        return image.platforms[0]
    known = [str(platform) for platform in image.platforms]
    if wanted not in known:
        hint = did_you_mean(wanted, known) or f"it is built for {', '.join(known)}"
        raise UsageError(f"image {image.name} is not built for {wanted!r}", hint=hint)
    return Platform.parse(wanted)


def repository_of(repository: Repository, variables: Mapping[str, str], addresses: Mapping[str, str]) -> RepositoryName:
    """Return where a repository is: as asked for, as the environment's variables say, or as the catalogue says."""
    if repository.name in addresses:
        return RepositoryName.parse(addresses[repository.name])
    name = RepositoryName.parse(repository.address)
    head, _, last = str(name).rpartition("/")
    registry = variables.get(repository.registry_variable or "") or head
    return RepositoryName.parse(f"{registry}/{variables.get(repository.name_variable or '') or last}")


def parse_args(words: tuple[str, ...] | list[str]) -> Mapping[str, str]:
    """Read `--arg K=V` words; UsageError for one without a name, or a name that is there twice."""
    found: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not _ARG.fullmatch(name):
            raise UsageError(f"not a build argument's name: {name!r}", hint="write it as --arg NAME=VALUE")
        if name in found:
            raise UsageError(f"build argument {name} is given twice")
        found[name] = value
    return MappingProxyType(found)


def _plan(
    catalogue: Catalogue,
    image: Image,
    request: Request,
    facts: Facts,
    *,
    platform: Platform,
    needs: Mapping[str, BuildPlan],
) -> BuildPlan:
    source = facts.source
    repository = catalogue.repository(image.repository)
    name = repository_of(repository, request.variables, request.addresses)
    values = {
        "arch": ARCHITECTURES[platform.architecture],
        "commit": source.commit,
        "repository": _spoken(name),
        **{f"{placeholders.PIN}{pin}": value for pin, value in catalogue.pins.values.items()},
        **{f"{placeholders.IMAGE}{need}": plan.tags[0] for need, plan in needs.items()},
        **catalogue.pins.variables(image.device),
        **{key: request.variables[key] for key in image.environment if request.variables.get(key)},
    }
    context = _context(image, facts, values)
    args = _args(image, values, request.args if image.name == request.image else {})
    recipe = _recipe(image, context, args, platform, facts.tool)
    values["recipe"] = recipe
    push = request.push and not repository.local
    if request.push and repository.local and image.name == request.image:
        raise UsageError(
            f"image {image.name} stays on the host that builds it",
            hint="it has no registry: build it without --push, where it is needed",
        )
    return BuildPlan(
        image=image.name,
        device=image.device,
        platform=platform,
        engine=image.engine,
        context=context,
        dockerfile=image.dockerfile if isinstance(image.context, GitContext) else CHECKOUT / image.dockerfile,
        target=image.target,
        args=MappingProxyType(args),
        tags=tuple(_reference(name, placeholders.fill(tag, values)) for tag in image.tags),
        labels=MappingProxyType(_labels(image, source, recipe)),
        recipe=recipe,
        reusable=image.reusable,
        local=repository.local,
        repository=_spoken(name),
        index=tuple(_reference(name, placeholders.fill(tag, values)) for tag in image.index),
        index_platforms=image.platforms if image.index else (),
        cache_from=tuple(_caches(image.cache_from, values, source)),
        cache_to=tuple(_caches(image.cache_to, values, source)),
        secrets=tuple(_secrets(image, request.variables)),
        proxies=MappingProxyType(_proxies(request.variables) if image.proxy else {}),
        push=push,
    )


def _context(image: Image, facts: Facts, values: Mapping[str, str]) -> Path | GitContext:
    if isinstance(image.context, Folder):
        return facts.source.folder if image.context is Folder.SOURCE else facts.tool.folder
    ref = placeholders.fill(image.context.ref, values)
    if not _REF.fullmatch(ref):
        raise UsageError(
            f"image {image.name} cannot be built from {ref!r}: a branch would change under the same recipe",
            hint="give a version tag such as v0.27.0, or a full commit hash",
        )
    return GitContext(image.context.url, ref)


def _args(image: Image, values: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """Return the build arguments: the base, the catalogue's, and those given on the command line, which win."""
    args = {BASE: placeholders.fill(image.base, values)} if image.base else {}
    args |= {key: placeholders.fill(value, values) for key, value in image.args.items()}
    if isinstance(image.context, Folder):
        file = dockerfile.read(CHECKOUT / image.dockerfile)
        for key in given:
            if key not in file.arguments:
                hint = did_you_mean(key, file.arguments) or f"it has {', '.join(sorted(file.arguments))}"
                raise UsageError(f"{image.dockerfile} has no build argument {key!r}", hint=hint)
            if key in file.bases:
                _check_base(key, given[key])
    for key, value in given.items():
        if is_secret_name(key) or redact(value) != value:
            raise UsageError(
                f"build argument {key} holds a credential, and arguments stay readable in the image's history",
                hint="put it into a file in the form of ~/.netrc, and set NETRC to its path",
            )
        if not value.isprintable():
            raise UsageError(f"build argument {key} holds a line break or a control character")
    return args | dict(given)


def _check_base(key: str, value: str) -> None:
    try:
        check_image(value)
    except UsageError as error:
        raise UsageError(f"build argument {key}: {error.message}", hint=error.hint) from None


def _recipe(
    image: Image, context: Path | GitContext, args: Mapping[str, str], platform: Platform, tool: ToolFacts
) -> str:
    """Return a digest of what decides an image, the source apart (ADR 11)."""
    document = {
        "context": str(context) if isinstance(context, GitContext) else image.dockerfile,
        "dockerfile": dockerfile.digest(CHECKOUT / image.dockerfile)
        if isinstance(image.context, Folder)
        else image.dockerfile,
        "target": image.target,
        "args": dict(args),
        "platform": str(platform),
        "tool": tool.digest if image.context is Folder.TOOL else None,
    }
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:_RECIPE_DIGITS]


def _labels(image: Image, source: SourceFacts, recipe: str) -> dict[str, str]:
    """Return the labels (OCI image specification, annotations.md); of an image without the source only its recipe."""
    ours = {"omni-ci.image": image.name, "omni-ci.recipe": recipe}
    if image.context is not Folder.SOURCE:
        return ours
    created = source.created.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        f"{_LABEL}.revision": source.commit,
        f"{_LABEL}.version": source.version,
        f"{_LABEL}.source": source.url,
        f"{_LABEL}.created": created,
        **ours,
    }


def _caches(texts: tuple[str, ...], values: Mapping[str, str], source: SourceFacts) -> Iterator[str]:
    for text in texts:
        if "ancestor" not in placeholders.names(text):
            yield placeholders.fill(text, values)
            continue
        for ancestor in source.ancestors:
            yield placeholders.fill(text, {**values, "ancestor": ancestor})


def _secrets(image: Image, variables: Mapping[str, str]) -> Iterator[SecretFile]:
    for secret in image.secrets:
        value = variables.get(secret.variable)
        if value:
            yield SecretFile(secret.id, Path(value))


def _proxies(variables: Mapping[str, str]) -> dict[str, str]:
    found = {name: variables.get(name) or variables.get(name.lower()) for name in PROXIES}
    return {name: value for name, value in found.items() if value}


def _reference(name: RepositoryName, tag: str) -> str:
    return f"{_spoken(name)}:{check_tag(tag)}"


def _spoken(name: RepositoryName) -> str:
    """Return a repository as engines and BuildKit take it; they have no name for an OCI layout's folder."""
    if name.folder is not None:
        raise UsageError(f"an image cannot be tagged with a folder: {name}", hint="give a registry's repository")
    return str(name)
