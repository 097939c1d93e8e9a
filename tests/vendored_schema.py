"""Buildkite's own schema of a pipeline, the copy that check-jsonschema ships, as a judge of what we write."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

from jsonschema.validators import Draft7Validator


@cache
def schema() -> dict[str, Any]:
    """Return the schema."""
    file = files("check_jsonschema") / "builtin_schemas" / "vendor" / "buildkite.json"
    document: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return document


@cache
def _validator() -> Draft7Validator:
    return Draft7Validator(schema())


def faults(document: object) -> list[str]:
    """Return what the schema says against a pipeline."""
    return [error.message for error in _validator().iter_errors(document)]
