"""Hand a pipeline to Buildkite, in as many parts as its limits ask for, and say on the build's page what runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tasks.pipelines.model import KEYS
from tasks.pipelines.structure import kind_of_body, needs_of
from tasks.support import buildkite, console
from tasks.support.errors import ConfigurationError, DataError, ServiceRefusedError
from tasks.support.settings import Settings, on_buildkite

if TYPE_CHECKING:
    from tasks.pipelines.bootstrapping import Bootstrapped
    from tasks.pipelines.explaining import Explanation


_CONTEXT = 100  # characters that Buildkite takes for an annotation's context


def plan(parts: Sequence[bytes], explanation: Explanation) -> list[console.Action]:
    """Return what ``upload`` would do, in its order."""
    if not parts:
        return [("annotate", "the build", f"nothing is left to run: {explanation.summary}")]
    rows = [
        ("upload", _part(number, len(parts)), f"{console.size(len(part))} · {explanation.summary}")
        for number, part in enumerate(parts, 1)
    ]
    return [*rows, ("annotate", "the build", "every decision and its reason")]


def upload(settings: Settings, parts: Sequence[bytes], explanation: Explanation) -> None:
    """Upload the parts and annotate the build; without parts the build gets a visible annotation and nothing else.

    The parts go in their order, so that what a step needs is there before it; on the build's page a later part stands
    before an earlier one ("Insertion order" in Buildkite's page on ``pipeline upload``).

    Raises ConfigurationError outside of a build, ServiceRefusedError when the agent refuses a part; that says which
    parts are in the build already. An annotation that fails is a warning.
    """
    require_build(settings)
    _upload_parts(settings, parts)
    _annotate(settings, explanation, nothing=not parts)


def upload_bootstrap(settings: Settings, found: Bootstrapped) -> None:
    """Upload a device's first pipeline and annotate the build; without steps only the annotation is made."""
    from tasks.pipelines.bootstrapping import ANNOTATION_CONTEXT
    from tasks.pipelines.writing import to_yaml

    require_build(settings)
    if found.steps:
        _upload_parts(settings, [to_yaml(found.document).encode()])
    context = f"{ANNOTATION_CONTEXT}-{found.device}"
    title = f"**{found.device}**" if found.steps else f"**{found.device}: nothing is left to run**"
    style = "info" if found.steps else "warning"
    buildkite.annotate(settings, f"{title}\n\n{found.summary}\n", context=context, style=style)


def require_build(settings: Settings) -> None:
    """Raise ConfigurationError where there is no build to upload to."""
    if not on_buildkite(settings.environment):
        raise ConfigurationError(
            "this is no Buildkite build: there is nothing to upload to",
            hint="pipelines.render shows what would be uploaded, --dry-run the plan",
        )


def _upload_parts(settings: Settings, parts: Sequence[bytes]) -> None:
    for done, part in enumerate(parts):
        number = done + 1
        name = _part(number, len(parts))
        console.say(f"uploading {name}: {console.size(len(part))}")
        try:
            buildkite.upload_pipeline(settings, part)
        except ServiceRefusedError as error:
            there = f"{console.plural(done, 'other part')} of {len(parts)} went in before it" if done else ""
            hint = f"{there}: retrying this step would add those again, rebuild instead" if done else error.hint
            raise ServiceRefusedError(f"{name}: {error.message}" if done else error.message, hint=hint) from error


def _annotate(settings: Settings, explanation: Explanation, *, nothing: bool) -> None:
    from tasks.pipelines import explaining

    text = explaining.annotation(explanation)
    if nothing:
        text = f"**{explaining.escaped(explanation.title)}: nothing is left to run**\n\n{text}"
    context = f"omni-ci-pipelines-{settings.variable('BUILDKITE_STEP_KEY') or explanation.title}"[:_CONTEXT]
    buildkite.annotate(settings, text, context=context, style="warning" if nothing else "info")


def require_independence(parts: Sequence[Mapping[str, Any]]) -> None:
    """Raise DataError for parts that Buildkite would not hold together, since each upload stands for itself.

    A wait or a block outside of groups holds only its own part, and a need is only sure to be met when its key is there
    already.
    """
    if len(parts) < 2:  # noqa: PLR2004 - one part is the pipeline
        return
    split = f"the pipeline has to be uploaded in {len(parts)} parts"
    for part in parts:
        for step in part["steps"]:
            if step in ("wait", "block", "input") or (isinstance(step, Mapping) and kind_of_body(step)):
                raise DataError(
                    f"{split}, and a wait or block does not reach across them", hint="use depends_on instead"
                )
    seen: set[str] = set()
    later = [key for part in parts for step in part["steps"] for key in _keys(step)]
    for part in parts:
        own = {key for step in part["steps"] for key in _keys(step)}
        seen |= own
        for step in part["steps"]:
            for key in _needs(step):
                if key in later and key not in seen:
                    raise DataError(
                        f"{split}, and {key!r} is needed before its own part", hint="move it up in the file"
                    )


def _keys(step: Any) -> list[str]:
    found = [] if not isinstance(step, Mapping) else [str(step[name]) for name in KEYS if step.get(name)][:1]
    inner = step.get("steps") or () if isinstance(step, Mapping) else ()
    return found + [key for child in inner for key in _keys(child)]


def _needs(step: Any) -> list[str]:
    if not isinstance(step, Mapping):
        return []
    return [*needs_of(step), *(key for child in step.get("steps") or () for key in _needs(child))]


def _part(number: int, count: int) -> str:
    return "the pipeline" if count == 1 else f"part {number} of {count}"
