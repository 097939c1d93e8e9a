"""Buildkite's limit for one upload: how many jobs a pipeline makes, and the pipeline in parts that are small enough."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from tasks.support.errors import DataError

JOBS_PER_UPLOAD = 500
"""What Buildkite takes in one upload; parallel jobs and those of a matrix count each, and so does a group itself."""

_NUMBER = re.compile(r"[0-9]{1,6}")
_ONCE = frozenset({"notify"})  # what each part would do again


def job_count(step: Any) -> int:
    """Return how many jobs a rendered step or group makes."""
    if not isinstance(step, Mapping):
        return 1
    if isinstance(step.get("steps"), list):
        return 1 + sum(job_count(inner) for inner in step["steps"])
    parallelism = str(step.get("parallelism"))
    times = max(int(parallelism), 1) if _NUMBER.fullmatch(parallelism) else 1
    return times * _combinations(step.get("matrix"))


def split(document: Mapping[str, Any], *, limit: int = JOBS_PER_UPLOAD) -> tuple[dict[str, Any], ...]:
    """Return a rendered pipeline in parts of at most ``limit`` jobs, in its order; none when it has no steps.

    A group is never cut: Buildkite would show two. What stands above the steps is in every part, except ``notify``,
    which would notify once a part. Raises DataError for a step or group that is larger than the limit by itself.
    """
    parts: list[list[Any]] = []
    jobs = limit
    for step in document.get("steps") or ():
        count = job_count(step)
        if count > limit:
            raise DataError(
                f"{_called(step)} makes {count} jobs, and one upload may make {limit}",
                hint="split the group in the file, or lower the step's parallelism",
            )
        if jobs + count > limit:
            parts.append([])
            jobs = 0
        parts[-1].append(step)
        jobs += count
    top = {key: value for key, value in document.items() if key != "steps"}
    later = {key: value for key, value in top.items() if key not in _ONCE}
    return tuple({**(later if number else top), "steps": steps} for number, steps in enumerate(parts))


def _combinations(matrix: Any) -> int:
    """Return how many jobs a matrix makes: every combination, with the adjustments that add one or leave one out."""
    if isinstance(matrix, list):
        return max(len(matrix), 1)
    if not isinstance(matrix, Mapping):
        return 1
    setup = matrix.get("setup")
    if isinstance(setup, list):
        axes = {"": setup}
    elif isinstance(setup, Mapping):
        axes = {str(name): values for name, values in setup.items() if isinstance(values, list)}
    elif setup is None:
        axes = {}
    else:
        raise DataError(f"matrix.setup must be a list or a mapping, not {setup!r}", hint="see pipelines.check")
    count = math.prod(len(values) for values in axes.values())
    adjustments = matrix.get("adjustments") or []
    if not isinstance(adjustments, list):
        raise DataError(f"matrix.adjustments must be a list, not {adjustments!r}", hint="see pipelines.check")
    for adjustment in adjustments:
        count += _adjusted(adjustment, axes)
    return max(count, 1)


def _adjusted(adjustment: Any, axes: Mapping[str, list[Any]]) -> int:
    """Return by how much one adjustment changes the number of combinations."""
    if not isinstance(adjustment, Mapping):
        return 0
    chosen = adjustment.get("with")
    values = chosen if isinstance(chosen, Mapping) else {"": chosen}
    there = all(value in axes.get(str(name), ()) for name, value in values.items())
    left_out = adjustment.get("skip") not in (None, False, "")
    if there:
        return -1 if left_out else 0
    return 0 if left_out else 1


def _called(step: Any) -> str:
    if not isinstance(step, Mapping):
        return f"step {step!r}"
    kind = "group" if "steps" in step else "step"
    name = step.get("key") or step.get("group") or step.get("label") or step.get("command") or kind
    return f"{kind} {str(name)[:100]!r}"
