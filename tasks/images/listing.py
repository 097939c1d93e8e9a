"""What `images.list` shows: each image of the catalogue, from what it is built and where it goes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tasks.images.catalogue import Catalogue, GitContext, Image
from tasks.support.console import Cell

COLUMNS = ("image", "for", "device", "platforms", "built from", "tags")


def rows(catalogue: Catalogue) -> Sequence[Sequence[Cell]]:
    """Return the table's rows, in the catalogue's order."""
    return [
        (
            image.name,
            image.title,
            image.device,
            tuple(map(str, image.platforms)),
            _origin(image),
            tuple(_tags(catalogue, image)),
        )
        for image in catalogue.images.values()
    ]


def as_data(catalogue: Catalogue) -> list[dict[str, Any]]:
    """Return the same and what the table has no room for, as machine output."""
    return [
        {
            "image": image.name,
            "title": image.title,
            "device": image.device,
            "platforms": [str(platform) for platform in image.platforms],
            "context": str(image.context) if isinstance(image.context, GitContext) else image.context.value,
            "dockerfile": image.dockerfile,
            "target": image.target,
            "base": image.base,
            "needs": list(image.needs),
            "engine": image.engine.value,
            "repository": catalogue.repositories[image.repository].address,
            "pushed": not catalogue.repositories[image.repository].local,
            "tags": list(image.tags),
            "index": list(image.index),
        }
        for image in catalogue.images.values()
    ]


def _origin(image: Image) -> str:
    where = f"{image.context} " if isinstance(image.context, GitContext) else ""
    return f"{where}{image.dockerfile}{f' · {image.target}' if image.target else ''}"


def _tags(catalogue: Catalogue, image: Image) -> list[str]:
    repository = catalogue.repositories[image.repository]
    where = "on the host, " if repository.local else ""
    return [f"{where}{repository.address}:{tag}" for tag in (*image.tags, *image.index)]
