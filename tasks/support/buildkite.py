"""Talking to the Buildkite agent: group markers, annotations, meta-data, step outcomes and uploads of pipelines."""

from __future__ import annotations

import shutil

from tasks.support import console, paths
from tasks.support.command_line import TIMED_OUT, last_useful_line
from tasks.support.errors import (
    ConfigurationError,
    MissingInputError,
    OmniError,
    ServiceRefusedError,
    TemporaryError,
)
from tasks.support.process import Captured, capture
from tasks.support.settings import Settings, on_buildkite

AGENT = "buildkite-agent"
_TIMEOUT = 60.0
_UPLOAD_TIMEOUT = 600.0  # the agent tries again by itself for some minutes while Buildkite does not answer
_NOT_SET = 100  # the agent's exit code for a meta-data key that nobody set


def group(title: str) -> None:
    """Begin a group of lines in Buildkite's log; elsewhere nothing is printed."""
    if on_buildkite():
        console.say(f"--- {title}")


def annotate(settings: Settings, markdown: str, *, context: str, style: str = "success") -> None:
    """Show text on the build's page, replacing what the same context showed; nothing when this is no build.

    A failure is a warning: what the text tells of has been done.
    """
    if not on_buildkite(settings.environment):
        return
    try:
        argv = ("annotate", "--style", style, "--context", context)
        answer = _agent(settings, *argv, stdin=console.mask(markdown).encode())
        if answer.code:
            console.warn(f"the build was not annotated: {last_useful_line(answer.stderr)}")
    except OmniError as error:
        console.warn(f"the build was not annotated: {error.message}")


def meta_data(settings: Settings, key: str) -> str | None:
    """Return the build's meta-data under a key without the line end; None when it is not set or this is no build."""
    if not on_buildkite(settings.environment):
        return None
    answer = _agent(settings, "meta-data", "get", key)
    if answer.code == _NOT_SET:
        return None
    if answer.code:
        raise ServiceRefusedError(f"cannot read Buildkite's meta-data {key}: {last_useful_line(answer.stderr)}")
    return answer.text.removesuffix("\n") or None


def step_outcome(settings: Settings, step: str) -> str:
    """Return a step's outcome as Buildkite calls it (``passed``, ``soft_failed``, ``hard_failed``, ``errored``, ...).

    Raises MissingInputError when the build has no such step, or the step has not ended.
    """
    answer = _agent(settings, "step", "get", "outcome", "--step", step)
    if answer.code:
        raise MissingInputError(f"no outcome of step {step}: {last_useful_line(answer.stderr)}")
    outcome = answer.text.strip()
    if not outcome:
        raise MissingInputError(f"step {step} has no outcome yet", hint="make this step depend on it")
    return outcome


def upload_pipeline(settings: Settings, document: bytes) -> None:
    """Add a pipeline's steps to the running build, right after the step that runs.

    The agent interpolates ``$`` in it, and refuses it when it holds the value of a variable with a secret's name.
    Raises ServiceRefusedError with the agent's own last line, TemporaryError when the agent did not end in time.
    """
    answer = _agent(settings, "pipeline", "upload", "--reject-secrets", stdin=document, timeout=_UPLOAD_TIMEOUT)
    if answer.code == TIMED_OUT:
        raise TemporaryError(f"{AGENT} did not end its upload within {_UPLOAD_TIMEOUT:.0f} s")
    if answer.code:
        said = last_useful_line(answer.stderr or answer.stdout) or "it said nothing"
        raise ServiceRefusedError(f"{AGENT} did not upload the pipeline (exit code {answer.code}): {said}")


def _agent(settings: Settings, *words: str, stdin: bytes | None = None, timeout: float = _TIMEOUT) -> Captured:
    program = shutil.which(AGENT, path=settings.variable("PATH"))
    if program is None:
        raise ConfigurationError(
            f"{AGENT} is not on PATH", hint="in a container, mount the agent (mount-buildkite-agent: true)"
        )
    return capture((program, *words), cwd=paths.current_folder(), stdin=stdin, timeout=timeout, check=False)
