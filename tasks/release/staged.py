"""A commit's staged images, resolved to digests once and checked; everything after this works with digests."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from packaging.version import Version

from tasks.registry.assembling import Source, normal
from tasks.registry.documents import Manifest, Platform
from tasks.registry.interface import Repository
from tasks.release.channels import ARCHITECTURES, source_tag, version_tag
from tasks.release.labels import REVISION, VERSION, Labels, image_manifests, labels_of, read_config
from tasks.support.errors import DataError, MissingInputError
from tasks.support.next_steps import command, flag

_IMAGE = "cuda-release"


@dataclass(frozen=True)
class Staged:
    """One architecture's image: what its staging tag pointed at (``top``), and what the image says of itself."""

    architecture: str
    tag: str
    top: Manifest
    image: Manifest
    config: bytes
    labels: Labels

    @property
    def platform(self) -> Platform:
        """Return the platform that the architecture stands for."""
        return ARCHITECTURES[self.architecture]

    def source(self, repository: Repository) -> Source:
        """Return it as what an index is assembled from."""
        return Source(f"{repository.name}:{self.tag}", self.top, self.config, self.platform)


def resolve(repository: Repository, commit: str, version: Version | None) -> tuple[Staged, ...]:
    """Return every architecture's staged image of a commit, in the channel's order.

    Raises MissingInputError naming the platform when one is missing; DataError when one is of another platform or
    commit, or its label disagrees with a release's ``version`` (None: a nightly, any will do).
    """
    tops = {architecture: _top(repository, commit, architecture) for architecture in ARCHITECTURES}
    found = [_staged(repository, commit, architecture, top) for architecture, top in tops.items()]
    for staged in found:
        _check(repository, staged, commit, version)
    return tuple(found)


def _top(repository: Repository, commit: str, architecture: str) -> Manifest:
    tag, platform = source_tag(commit, architecture), ARCHITECTURES[architecture]
    top = repository.manifest(tag)
    if top is None:
        raise MissingInputError(
            f"staging image for {platform} is missing: {repository.name}:{tag} (404)",
            hint=f"nothing was changed. {_bring(repository, tag, commit, platform)}, and run this again",
        )
    return top


def _bring(repository: Repository, tag: str, commit: str, platform: Platform) -> str:
    """Say how an image comes into the staging repository; a folder is pushed to by no build."""
    if repository.name.folder is not None:
        return f"Copy it there (skopeo copy docker://IMAGE {shlex.quote(f'oci:{repository.name.folder}:{tag}')})"
    words = ("--platform", str(platform), "--commit", commit, "--push")
    line = command("images.build", _IMAGE, *words, flags=("source", "profile"))
    staging = flag("staging")
    return f"Build it ({f'OMNI_CI_STAGING={shlex.quote(staging)} ' if staging else ''}{line})"


def _staged(repository: Repository, commit: str, architecture: str, top: Manifest) -> Staged:
    tag = source_tag(commit, architecture)
    where = f"{repository.name}:{tag}"
    with _about(where):
        images = image_manifests(repository, top, where)
        if len(images) != 1:
            raise DataError(
                f"{where} holds {len(images)} images, not one for {ARCHITECTURES[architecture]}",
                hint="nothing was changed; push one image under each architecture's tag",
            )
        config = read_config(repository, images[0])
        return Staged(architecture, tag, top, images[0], config, labels_of(config, where))


@contextmanager
def _about(where: str) -> Iterator[None]:
    """Name the tag in an error that only knows a digest: people know the tag."""
    try:
        yield
    except (DataError, MissingInputError) as error:
        if where not in error.message:
            error.message = f"{where}: {error.message}"
        error.hint = error.hint or "nothing was changed; push that image again"
        raise


def _check(repository: Repository, staged: Staged, commit: str, version: Version | None) -> None:
    where, labels = f"{repository.name}:{staged.tag}", staged.labels
    listed = [child.platform for child in staged.top.children if child.digest == staged.image.digest]
    for platform in (labels.platform, *filter(None, listed)):
        if normal(platform) != normal(staged.platform):
            raise DataError(
                f"{where} is an image for {platform}, not for {staged.platform}",
                hint="nothing was changed; build it again on a machine of that architecture",
            )
    if labels.revision is not None and labels.revision != commit:
        raise DataError(
            f"{where} was built from commit {labels.revision}, not from {commit}",
            hint="nothing was changed; build the image of this commit again",
        )
    if labels.revision is None and version is not None:
        raise DataError(
            f"{where} has no label {REVISION}: nothing but its tag says which commit it is",
            hint="nothing was changed; build the image with its labels (invoke images.build), and run this again",
        )
    if version is not None and labels.public_version == version and str(labels.public_version) != str(version):
        raise DataError(
            f"{where} says that it is version {labels.version}, and the tag would be {version_tag(version)}",
            hint=f"nothing was changed; did you mean --version {labels.public_version}?",
        )
    if version is not None and labels.version is not None and labels.public_version != version:
        raise DataError(
            f"{where} says that it is version {labels.version}, not {version}",
            hint="nothing was changed; correct --version, or build the image of that version",
        )


def unlabelled(images: tuple[Staged, ...], version: Version | None) -> list[str]:
    """Return a warning for each image that does not say which commit it was built from, or which version it is."""
    warnings = [
        f"{staged.tag} has no label {REVISION}: nothing but its tag says which commit it is"
        for staged in images
        if staged.labels.revision is None
    ]
    if version is not None:
        warnings += [
            f"{staged.tag} has no label {VERSION}: nothing but the command line says that it is {version}"
            for staged in images
            if staged.labels.version is None
        ]
    return warnings
