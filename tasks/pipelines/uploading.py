"""Hand a pipeline to Buildkite, in as many parts as its limits ask for, and say on the build's page what runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tasks.support import buildkite, console
from tasks.support.errors import ConfigurationError, ServiceRefusedError
from tasks.support.settings import Settings, on_buildkite

if TYPE_CHECKING:
    from tasks.pipelines.bootstrapping import Bootstrapped
    from tasks.pipelines.explaining import Explanation


def plan(parts: Sequence[bytes], explanation: Explanation) -> list[console.Action]:
    """Return what ``upload`` would do, in its order."""
    if not parts:
        return [("annotate", "the build", f"nothing is left to run: {explanation.summary}")]
    rows = [
        ("upload", _part(number, len(parts)), f"{console.size(len(part))} · {explanation.summary}")
        for number, part in _in_order(parts)
    ]
    return [*rows, ("annotate", "the build", "every decision and its reason")]


def upload(settings: Settings, parts: Sequence[bytes], explanation: Explanation) -> None:
    """Upload the parts and annotate the build; without parts the build gets a visible annotation and nothing else.

    Buildkite puts what a step uploads right after that step, so a later upload comes before an earlier one ("Insertion
    order" in its page on ``pipeline upload``): the last part goes first, and the steps stand in the file's order.
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
    for done, (number, part) in enumerate(_in_order(parts)):
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
    context = f"omni-ci-pipelines-{settings.variable('BUILDKITE_STEP_KEY') or explanation.title}"
    buildkite.annotate(settings, text, context=context, style="warning" if nothing else "info")


def _in_order(parts: Sequence[bytes]) -> list[tuple[int, bytes]]:
    return list(reversed(list(enumerate(parts, 1))))


def _part(number: int, count: int) -> str:
    return "the pipeline" if count == 1 else f"part {number} of {count}"
