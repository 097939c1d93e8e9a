"""Builds the namespace that ``invoke`` lists and runs; importing this package loads nothing else.

``ns`` is made on first use, so that ordinary code and the noxfile can import from ``tasks`` without
loading invoke.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from invoke.collection import Collection

DOMAINS = ("wheels", "images", "pins", "pipelines", "release")


def _build_namespace() -> Collection:
    import gc
    from importlib import import_module

    from invoke.collection import Collection

    gc.set_threshold(50_000)  # most runs are over before there is anything to collect, and looking is a tenth of them
    namespace = Collection()
    for domain in _wanted():
        module = import_module(f"tasks.{domain}.commands")
        namespace.add_collection(Collection.from_module(module, name=domain))
    namespace.add_task(import_module("tasks.support.commands").doctor)
    return namespace


def _wanted() -> tuple[str, ...]:
    """Return the domains that the command line names, since loading the others takes time; all when it names none.

    A word that only looks like a task's name loads a domain too many.
    """
    import sys

    named = tuple(domain for domain in DOMAINS if any(word.startswith(f"{domain}.") for word in sys.argv[1:]))
    listing = any(word in ("-l", "--list", "--complete") or word.startswith("--list=") for word in sys.argv[1:])
    return DOMAINS if listing or not named else named


def __getattr__(name: str) -> Any:
    if name != "ns":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        namespace = _build_namespace()
    except AttributeError as error:
        # invoke reads an AttributeError here as "no namespace" and reports "No tasks found".
        raise RuntimeError(f"the task namespace cannot be built: {error}") from error
    globals()["ns"] = namespace
    return namespace
