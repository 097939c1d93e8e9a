"""A native file's kept steps as the pipeline that Buildkite gets: presets written out, nothing of ours left in it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from tasks.pipelines import dollar
from tasks.pipelines.build_facts import Build
from tasks.pipelines.expanding import choose, expand, without_secrets
from tasks.pipelines.model import Group, NativeFile, Step
from tasks.pipelines.writing import to_json, to_yaml
from tasks.suites.presets import Preset, Presets
from tasks.support.errors import DataError, did_you_mean

__all__ = ["PRIVATE_KEYS", "render", "to_json", "to_yaml"]

PRIVATE_KEYS = frozenset({
    "source_file_dependencies", "mirror_hardwares", "imports", "grade", "agent_pool", "working_dir",
    "run_all", "ignore", "unmatched", "docs", "areas", "selection_tests",
})  # fmt: skip
"""Keys that are ours, on steps, groups or at the top; Buildkite does not get them."""

TOP_KEYS = frozenset({"env", "agents", "notify", "image", "secrets", "priority", "checkout", "steps"})
_COMMON = frozenset({"allow_dependency_failure", "depends_on", "id", "identifier", "if", "key", "label", "name"})
GROUP_KEYS = _COMMON | {"group", "if_changed", "notify", "skip", "steps"}
COMMAND_KEYS = _COMMON | {
    "agents", "artifact_paths", "branches", "cache", "cancel_on_build_failing", "checkout", "command", "commands",
    "concurrency", "concurrency_group", "concurrency_method", "env", "if_changed", "image", "matrix", "notify",
    "parallelism", "plugins", "priority", "retry", "secrets", "signature", "skip", "soft_fail",
    "timeout_in_minutes", "type",
}  # fmt: skip
WAIT_KEYS = _COMMON | {"branches", "continue_on_failure", "type", "wait", "waiter"}
ASKING_KEYS = _COMMON | {
    "allowed_teams", "block", "blocked_state", "branches", "fields", "input", "manual", "prompt", "type",
}  # fmt: skip
TRIGGER_KEYS = _COMMON | {"async", "branches", "build", "if_changed", "skip", "soft_fail", "trigger", "type"}

_FAMILIES = (
    (frozenset({"wait", "waiter"}), WAIT_KEYS),
    (frozenset({"block", "input", "manual"}), ASKING_KEYS),
    (frozenset({"trigger"}), TRIGGER_KEYS),
)


def render(kept: Iterable[Step], file: NativeFile, presets: Presets, build: Build) -> dict[str, Any]:
    """Return the pipeline of the ``kept`` steps of a file, in the file's order; groups without steps are left out.

    Steps of a fork's build are handed no secret. A build that stops at the first failure cancels its other jobs
    (``cancel_on_build_failing``), and one that measures coverage sets COV_ENABLED.

    Raises DataError with file, line and step for presets that do not fit (`expanding.choose`), for keys that Buildkite
    does not have, and for a ``$`` that the agent would refuse or that would write a secret into the pipeline.
    """
    wanted = {id(step) for step in kept}
    writer = _Writer(file, presets, build)
    top = writer.top()
    steps: list[Any] = []
    for entry in file.entries:
        if isinstance(entry, Step):
            if id(entry) in wanted:
                steps.append(writer.step(entry))
        elif inner := [writer.step(step) for step in entry.steps if id(step) in wanted]:
            steps.append(writer.group(entry, inner))
    return {**top, "steps": steps}


class _Writer:
    """Writes the parts of one file for one build."""

    def __init__(self, file: NativeFile, presets: Presets, build: Build) -> None:
        self.file, self.presets, self.build = file, presets, build
        env = file.top.get("env")
        self.declared: frozenset[str] = frozenset(map(str, env)) if isinstance(env, Mapping) else frozenset()
        self.agents_above = bool(file.top.get("agents"))

    def top(self) -> dict[str, Any]:
        """Return what stands above the steps."""
        where = f"{self.file.name}:1"
        own = {key: value for key, value in self.file.top.items() if not str(key).startswith("x-") and key != "steps"}
        top = self._public(own, TOP_KEYS, where, self.file.lines, "the pipeline")
        if self.build.fork:
            top = without_secrets(top)
        if not isinstance(top.get("env") or {}, Mapping):
            raise DataError(f"{self.file.name}:{self.file.lines.get('env', 1)}: env must be a mapping")
        if self.build.coverage:
            top["env"] = {**(top.get("env") or {}), "COV_ENABLED": "1"}
        return top

    def group(self, group: Group, steps: list[Any]) -> dict[str, Any]:
        """Return a group around its rendered steps."""
        body = self._public(group.body, GROUP_KEYS, group.where, group.lines, f"group {group.label!r}")
        return {"group": body.pop("group", None), **body, "steps": steps}

    def step(self, step: Step) -> Any:
        """Return one step, its preset written out."""
        body = step.body
        preset = choose(step, self.presets, agents_above=self.agents_above)
        known = next((keys for words, keys in _FAMILIES if words & {*body, str(body.get("type"))}), COMMAND_KEYS)
        public = self._public(body, known, step.where, step.lines, f"step {step.name!r}")
        if preset is not None:
            if "working_dir" in body:
                public["working_dir"] = body["working_dir"]
            public = self._expanded(public, preset, step)
        elif self.build.fork:
            public = without_secrets(public)
        if not public:
            raise DataError(f"{step.where}: step {step.name!r} has nothing that Buildkite would run")
        if self.build.fail_fast and known is COMMAND_KEYS:
            public.setdefault("cancel_on_build_failing", True)
        (word, value), *more = public.items()
        return word if not more and value is None else public

    def _expanded(self, public: Mapping[str, Any], preset: Preset, step: Step) -> dict[str, Any]:
        try:
            return expand(public, preset, trusted=not self.build.fork, env_above=self.declared)
        except DataError as error:
            raise DataError(f"{step.where}: step {step.name!r}: {error.message}", hint=error.hint) from error

    def _public(
        self, body: Mapping[str, Any], known: Collection[str], where: str, lines: Mapping[str, int], what: str
    ) -> dict[str, Any]:
        """Return a mapping without our keys; DataError for keys nobody knows and texts that may not be uploaded."""
        public = {key: value for key, value in body.items() if key not in PRIVATE_KEYS}
        for key, value in public.items():
            place = f"{where.rpartition(':')[0]}:{lines[key]}" if key in lines else where
            if key not in known:
                hint = did_you_mean(str(key), {*known, *PRIVATE_KEYS})
                raise DataError(f"{place}: {what} has a key that Buildkite does not know: {key!r}", hint=hint)
            for text in _texts(value):
                self._check(text, place, what)
        return public

    def _check(self, text: str, place: str, what: str) -> None:
        for use in dollar.scan(text, self.declared):
            if use.kind in {dollar.Kind.REJECTED, dollar.Kind.SECRET}:
                line = text.count("\n", 0, use.start)
                fixed = dollar.repaired(text, self.declared).splitlines()[line].strip()
                raise DataError(f"{place}: {what}: {dollar.reason(use)}", hint=f"write {fixed}")


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        if "$" in value:
            yield value
    elif isinstance(value, Mapping):
        for key, child in value.items():
            yield from _texts(key)
            yield from _texts(child)
    elif isinstance(value, list):
        for child in value:
            yield from _texts(child)
