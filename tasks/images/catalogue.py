"""The catalogue of images, `docker/images.yml`, read strictly: what it names must exist, and nothing else is let in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from types import MappingProxyType

from tasks.images import placeholders
from tasks.images.pins import Pins, load_pins
from tasks.registry.documents import Platform
from tasks.registry.references import RepositoryName
from tasks.registry.retention import RetentionRule
from tasks.support import paths
from tasks.support.errors import DataError, OmniError, UsageError, did_you_mean, unknown_choice
from tasks.support.settings import CHECKOUT
from tasks.support.strict_yaml import Node, read_file

FILE = CHECKOUT / "docker" / "images.yml"
PINS = CHECKOUT / "docker" / "pins.yml"
DEVICES = ("cuda", "rocm", "xpu", "npu", "cpu")
ARCHITECTURES: Mapping[str, str] = MappingProxyType({"amd64": "x86_64", "arm64": "aarch64"})
"""What tags call an architecture (`uname -m`), by what platforms call it."""

_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_ARG = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*")


class Engine(Enum):
    """What runs a build: the host's Docker Engine with BuildKit, or buildctl against a remote buildkitd."""

    DOCKER = "docker"
    BUILDCTL = "buildctl"


class Folder(Enum):
    """A build context on this machine: the library's checkout, or a folder made from this tool."""

    SOURCE = "source"
    TOOL = "tool"


@dataclass(frozen=True)
class GitContext:
    """A build context that BuildKit fetches: a repository's address and a tag or full commit in it."""

    url: str
    ref: str

    def __str__(self) -> str:
        """Return the context as `docker build` takes it."""
        return f"{self.url}#{self.ref}"


@dataclass(frozen=True)
class Secret:
    """A file that a build may read and that is in no layer; ``variable`` holds its path, and unset means none."""

    id: str
    variable: str


@dataclass(frozen=True)
class Repository:
    """Where images are kept.

    ``local`` ones are names in the host's engine and are never pushed. ``registry_variable`` and ``name_variable`` name
    the environment variables that replace the address; ``pull_through`` is a cache from which hosts may pull instead.
    """

    name: str
    address: str
    local: bool = False
    pull_through: str | None = None
    registry_variable: str | None = None
    name_variable: str | None = None


@dataclass(frozen=True)
class Image:
    """One image as the catalogue has it; ``${...}`` is not yet filled in. ``where`` is its file and line."""

    name: str
    title: str
    device: str
    context: Folder | GitContext
    dockerfile: str
    platforms: tuple[Platform, ...]
    tags: tuple[str, ...]
    repository: str
    target: str | None = None
    base: str | None = None
    args: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    engine: Engine = Engine.DOCKER
    index: tuple[str, ...] = ()
    cache_from: tuple[str, ...] = ()
    cache_to: tuple[str, ...] = ()
    secrets: tuple[Secret, ...] = ()
    proxy: bool = False
    environment: tuple[str, ...] = ()
    where: str = ""

    @property
    def texts(self) -> tuple[str, ...]:
        """Return everything that may hold placeholders and decides what is built."""
        ref = (self.context.ref,) if isinstance(self.context, GitContext) else ()
        return (*ref, *filter(None, (self.base,)), *self.args.values())

    @property
    def needs(self) -> tuple[str, ...]:
        """Return the names of the catalogue's images that this one is built from."""
        named = (
            name for text in self.texts for name in placeholders.names(text) if name.startswith(placeholders.IMAGE)
        )
        return tuple(dict.fromkeys(name.removeprefix(placeholders.IMAGE) for name in named))

    @property
    def reusable(self) -> bool:
        """Say whether its tags name the recipe and not the commit: one that is there need not be built again."""
        return not any("commit" in placeholders.names(tag) for tag in self.tags)


@dataclass(frozen=True)
class Buildkitd:
    """The remote builder: its address where BUILDKITD_ADDR is not set, and the folder of its certificates."""

    address: str
    certificates: str


@dataclass(frozen=True)
class Catalogue:
    """Everything that `docker/images.yml` and `docker/pins.yml` say."""

    source: str
    repositories: Mapping[str, Repository]
    images: Mapping[str, Image]
    retention: RetentionRule
    buildkitd: Buildkitd
    pins: Pins

    def image(self, name: str) -> Image:
        """Return an image, or raise UsageError naming the closest one."""
        if name not in self.images:
            raise unknown_choice("image", name, self.images)
        return self.images[name]

    def repository(self, name: str) -> Repository:
        """Return a repository, or raise UsageError naming the closest one."""
        if name not in self.repositories:
            raise unknown_choice("repository", name, self.repositories)
        return self.repositories[name]


def load(file: Path = FILE, pins: Path = PINS) -> Catalogue:
    """Read the catalogue and the pins; DataError with file and line for the first thing that is wrong."""
    pinned = load_pins(pins)
    known = ("source", "repositories", "retention", "buildkitd", "images")
    table = read_file(file, shown_as=paths.from_checkout(file)).table("the catalogue", known, known)
    repositories = {name: _repository(name, node) for name, node in table["repositories"].items("repositories").items()}
    images = {name: _image(name, node) for name, node in table["images"].items("images").items()}
    for name, node in table["images"].items("images").items():
        _check_names(images[name], node, repositories, images, pinned)
    _refuse_circles(images)
    return Catalogue(
        source=_address(table["source"], "source"),
        repositories=MappingProxyType(repositories),
        images=MappingProxyType(images),
        retention=_retention(table["retention"]),
        buildkitd=_buildkitd(table["buildkitd"]),
        pins=pinned,
    )


def _repository(name: str, node: Node) -> Repository:
    _check_name(name, node, "a repository's name")
    known = ("address", "local", "pull-through", "registry-variable", "name-variable")
    table = node.table(f"repository {name}", known, ("address",))
    address = _parsed_repository(table["address"], "address")
    through = table.get("pull-through")
    return Repository(
        name=name,
        address=address,
        local=table["local"].flag("local") if "local" in table else False,
        pull_through=_parsed_repository(through, "pull-through") if through else None,
        registry_variable=_variable(table.get("registry-variable"), "registry-variable"),
        name_variable=_variable(table.get("name-variable"), "name-variable"),
    )


_IMAGE = (
    "title", "device", "context", "dockerfile", "target", "base", "args", "platforms", "tags", "index",
    "repository", "engine", "cache", "secrets", "proxy", "environment",
)  # fmt: skip
_IMAGE_NEEDS = ("title", "device", "context", "dockerfile", "platforms", "tags", "repository")


def _image(name: str, node: Node) -> Image:
    _check_name(name, node, "an image's name")
    table = node.table(f"image {name}", _IMAGE, _IMAGE_NEEDS)
    texts = {key: table[key].text(key) for key in ("title", "target", "base") if key in table}
    lists = {key: _some(table[key], key) if key in table else () for key in ("tags", "index", "environment")}
    cache = table["cache"].table("cache", ("from", "to")) if "cache" in table else {}
    for variable in lists["environment"]:
        if not _VARIABLE.fullmatch(variable):
            raise table["environment"].fail(f"not an environment variable's name: {variable!r}")
    return Image(
        name=name,
        title=texts["title"],
        device=table["device"].choice("device", DEVICES),
        context=_context(table["context"]),
        dockerfile=_inside(table["dockerfile"], "dockerfile"),
        platforms=_platforms(table["platforms"]),
        tags=lists["tags"],
        repository=table["repository"].text("repository"),
        target=texts.get("target"),
        base=texts.get("base"),
        args=_args(table["args"]) if "args" in table else MappingProxyType({}),
        engine=Engine(table["engine"].choice("engine", [e.value for e in Engine]) if "engine" in table else "docker"),
        index=lists["index"],
        cache_from=cache["from"].texts("cache from") if "from" in cache else (),
        cache_to=cache["to"].texts("cache to") if "to" in cache else (),
        secrets=_secrets(table["secrets"]) if "secrets" in table else (),
        proxy=table["proxy"].flag("proxy") if "proxy" in table else False,
        environment=lists["environment"],
        where=node.where,
    )


def _context(node: Node) -> Folder | GitContext:
    if isinstance(node.value, str):
        return Folder(node.choice("context", [folder.value for folder in Folder]))
    table = node.table("context", ("git", "ref"), ("git", "ref"))
    url = _address(table["git"], "git")
    if not url.endswith(".git"):
        raise table["git"].fail(f"{url} does not end in .git, so that builders would not take it for a repository")
    return GitContext(url, table["ref"].text("ref"))


def _args(node: Node) -> Mapping[str, str]:
    found = {}
    for key, value in node.items("args").items():
        if not _ARG.fullmatch(key):
            raise value.fail(f"not a build argument's name: {key!r}")
        found[key] = value.text(f"build argument {key}")
    return MappingProxyType(found)


def _platforms(node: Node) -> tuple[Platform, ...]:
    known = [f"linux/{architecture}" for architecture in ARCHITECTURES]
    for element in node.elements("platforms"):
        element.choice("platform", known)
    return tuple(Platform.parse(text) for text in _some(node, "platforms"))


def _secrets(node: Node) -> tuple[Secret, ...]:
    found = []
    for key, value in node.items("secrets").items():
        table = value.table(f"secret {key}", ("file-from",), ("file-from",))
        found.append(Secret(key, _variable(table["file-from"], "file-from") or ""))
    return tuple(found)


def _retention(node: Node) -> RetentionRule:
    keys = ("pattern", "keep", "protected", "cap")
    table = node.table("retention", keys, keys)
    for key in ("pattern", "protected"):
        entries = [table[key]] if key == "pattern" else table[key].elements(key)
        for entry in entries:
            try:
                re.compile(entry.text(key))
            except re.error as error:
                raise entry.fail(f"not a pattern: {error}") from error
    keep, cap = table["keep"].count("keep"), table["cap"].count("cap")
    if not keep:
        raise table["keep"].fail("keep must be at least 1")
    return RetentionRule(
        pattern=table["pattern"].text("pattern"),
        keep=keep,
        protected_patterns=table["protected"].texts("protected"),
        most_deletions=cap,
    )


def _buildkitd(node: Node) -> Buildkitd:
    keys = ("address", "certificates")
    table = node.table("buildkitd", keys, keys)
    address = table["address"].text("address")
    if not address.startswith(("tcp://", "unix://")):
        raise table["address"].fail(f"not a builder's address: {address!r}", "write it as tcp://host:port")
    return Buildkitd(address, table["certificates"].text("certificates"))


def _check_names(
    image: Image, node: Node, repositories: Mapping[str, Repository], images: Mapping[str, Image], pins: Pins
) -> None:
    """Refuse what the image names and nobody has, and placeholders where they mean nothing."""
    table = node.items(f"image {image.name}")
    if image.repository not in repositories:
        hint = did_you_mean(image.repository, repositories)
        raise table["repository"].fail(f"there is no repository {image.repository!r}", hint)
    if isinstance(image.context, Folder) and not (CHECKOUT / image.dockerfile).is_file():
        raise table["dockerfile"].fail(f"{image.dockerfile} is not in this checkout")
    if any({"commit", "recipe"}.isdisjoint(placeholders.names(tag)) for tag in image.tags):
        raise table["tags"].fail("a tag needs ${commit} or ${recipe}, or two builds would share it")
    if len(image.platforms) > 1 and not all("arch" in placeholders.names(tag) for tag in image.tags):
        raise table["tags"].fail("tags of an image for several platforms need ${arch}, or one would replace the other")
    own = {*image.environment, *pins.variables(image.device)}
    for key, texts, known in (
        ("context", (image.context.ref,) if isinstance(image.context, GitContext) else (), placeholders.RECIPE),
        ("base", filter(None, (image.base,)), placeholders.RECIPE),
        ("args", image.args.values(), placeholders.RECIPE),
        ("tags", image.tags, placeholders.TAG),
        ("index", image.index, placeholders.INDEX),
        ("cache", (*image.cache_from, *image.cache_to), placeholders.CACHE),
    ):
        for text in texts:
            try:
                placeholders.check(text, {*known, *own}, pins=pins.values, images=images)
            except UsageError as error:
                raise table[key].fail(error.message, error.hint) from error


def _refuse_circles(images: Mapping[str, Image]) -> None:
    def visit(name: str, path: tuple[str, ...]) -> None:
        if name in path:
            raise DataError(f"{images[name].where}: image {name} is built from itself: {' -> '.join((*path, name))}")
        for need in images[name].needs:
            visit(need, (*path, name))

    for name in images:
        visit(name, ())


def _check_name(name: str, node: Node, what: str) -> None:
    if not _NAME.fullmatch(name):
        raise node.fail(f"not {what}: {name!r}", "use lower-case letters, digits and single dashes")


def _some(node: Node, what: str) -> tuple[str, ...]:
    texts = node.texts(what)
    if not texts:
        raise node.fail(f"{what} is empty")
    return texts


def _variable(node: Node | None, what: str) -> str | None:
    if node is None:
        return None
    name = node.text(what)
    if not _VARIABLE.fullmatch(name):
        raise node.fail(f"{what} is not an environment variable's name: {name!r}")
    return name


def _address(node: Node, what: str) -> str:
    url = node.text(what)
    if not re.fullmatch(r"https://[a-z0-9.-]+(?:/[A-Za-z0-9._-]+)+", url):
        raise node.fail(f"{what} is not an https address: {url!r}")
    return url


def _inside(node: Node, what: str) -> str:
    path = node.text(what)
    if path.startswith("/") or any(part in {"", ".", ".."} for part in path.split("/")):
        raise node.fail(f"{what} must be a path inside the context or this checkout: {path!r}")
    return path


def _parsed_repository(node: Node, what: str) -> str:
    text = node.text(what)
    try:
        name = RepositoryName.parse(text)
    except OmniError as error:
        raise node.fail(error.message, error.hint) from error
    if name.folder is not None:
        raise node.fail(f"{what} must be a repository on a registry")
    return str(name)
