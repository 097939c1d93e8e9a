"""A build's plan as the JSON that `docker buildx bake --file -` runs (Bake file reference, docs.docker.com)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tasks.images.planning import BuildPlan
from tasks.support.errors import UsageError


def bake(plans: Iterable[BuildPlan]) -> dict[str, Any]:
    """Return a bake file of plans: a target each, and a group of them all. UsageError when there is none.

    A target that is built from another one of the file names it as a context, so that buildx builds both in order and
    takes the one for the other's base, which need not be in any registry.
    """
    chosen = tuple(plans)
    if not chosen:
        raise UsageError("there is nothing to bake", hint="name an image; images.list shows them")
    made_by = {tag: _name(plan) for plan in chosen for tag in plan.tags}
    targets = {_name(plan): _target(plan, made_by) for plan in chosen}
    return {"group": {"default": {"targets": list(targets)}}, "target": targets}


def _name(plan: BuildPlan) -> str:
    return f"{plan.image}-{plan.platform.architecture}"


def _target(plan: BuildPlan, made_by: dict[str, str]) -> dict[str, Any]:
    needs = {value: f"target:{made_by[value]}" for value in plan.args.values() if value in made_by}
    optional = {
        "target": plan.target,
        "args": _escaped({**plan.args, **_without_logins(plan.proxies)}),
        "contexts": needs,
        "cache-from": list(plan.cache_from),
        "cache-to": list(plan.cache_to) if plan.push else [],
        "secret": [f"id={secret.id},src={secret.file}" for secret in plan.secrets],
    }
    return {
        "context": str(plan.context),
        "dockerfile": str(plan.dockerfile),
        "platforms": [str(plan.platform)],
        "tags": list(plan.tags),
        "labels": _escaped(plan.labels),
        "output": ["type=registry"] if plan.push else ["type=docker"],
        **{key: value for key, value in optional.items() if value},
    }


def _without_logins(proxies: Mapping[str, str]) -> dict[str, str]:
    """Leave out a proxy with a password: what is printed here ends up in logs, and buildx has a setting of its own."""
    return {name: value for name, value in proxies.items() if "@" not in value}


def _escaped(texts: Mapping[str, str]) -> dict[str, str]:
    """Double what bake would take for the start of an expression: a file in JSON is HCL all the same."""
    return {key: value.replace("${", "$${").replace("%{", "%%{") for key, value in texts.items()}
