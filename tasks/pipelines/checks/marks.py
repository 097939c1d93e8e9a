"""``-m`` expressions that do not go with the run level, the device or the hardware of their step; tests run twice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tasks.pipelines.checks.findings import Finding, Level, Script, Subject
from tasks.pipelines.checks.marks_grammar import Expression, read_expression
from tasks.pipelines.checks.pytest_calls import PytestCall, pytest_calls
from tasks.suites.presets import Preset, Presets

LEVELS = ("core_model", "advanced_model", "full_model")  # the marks that are run levels too; the first is the default
DEVICES = ("cuda", "rocm", "xpu", "npu", "musa")
_BORROWED: Mapping[str, tuple[str, ...]] = {"rocm": ("cuda",)}  # whose marks a device's tests carry besides its own


def check(subject: Subject, presets: Presets, device: str | None) -> Iterator[Finding]:
    """Yield what is wrong with the marks of each pytest call; ``device`` is the file's, for steps without a preset."""
    seen: dict[object, Script] = {}
    for script in subject.scripts():
        preset = preset_of(script, presets)
        for call in pytest_calls(script.text):
            on = preset.device if preset else device
            yield from _one(subject, script, call, device=on, preset=preset, presets=presets)
            key = _same(script, call)
            if key is not None:
                other = seen.setdefault(key, script)
                if other is not script:
                    text = f"the same tests as in {other.step.name} (line {other.step.where.rpartition(':')[2]})"
                    yield _finding(
                        subject, script, call, Level.WARNING, "twice", text=text, hint="remove one, or select others"
                    )


def _one(
    subject: Subject, script: Script, call: PytestCall, *, device: str | None, preset: Preset | None, presets: Presets
) -> Iterator[Finding]:
    if call.marks is None or "$" in call.marks:
        return
    expression = read_expression(call.marks)
    if expression is None:
        text = f"-m {call.marks!r} is no expression of marks"
        yield _finding(
            subject, script, call, Level.ERROR, "mark-expression", text=text, hint="join marks with and, or, not"
        )
        return
    yield from _level(subject, script, call, expression)
    if device is not None:
        for name in DEVICES:
            if expression.requires(name) and name != device and name not in _BORROWED.get(device, ()):
                text = f"-m {call.marks!r} asks for {name} tests on {device}"
                yield _finding(subject, script, call, Level.ERROR, "mark-device", text=text)
    if preset is not None and preset.marks:
        borrowed = {
            mark for other in presets if other.device in _BORROWED.get(preset.device, ()) for mark in other.marks
        }
        for name in sorted(presets.marks() - set(preset.marks) - borrowed):
            if expression.requires(name):
                text = f"-m {call.marks!r} asks for {name}, and {preset.name} has {' and '.join(preset.marks)}"
                yield _finding(subject, script, call, Level.ERROR, "mark-hardware", text=text)


def _level(subject: Subject, script: Script, call: PytestCall, expression: Expression) -> Iterator[Finding]:
    """Yield a mark of one level with the run level of another: the tests run, but check more or less than they say."""
    level = call.run_level
    if level is not None and ("$" in level or level not in LEVELS):
        return
    asked = [name for name in LEVELS if expression.requires(name)]
    if not asked or level in asked or (level is None and LEVELS[0] in asked):
        return
    said = f"--run-level is {level}" if level else f"there is no --run-level, which means {LEVELS[0]}"
    text = f"-m asks for {asked[0]} tests, but {said}"
    yield _finding(subject, script, call, Level.WARNING, "mark-level", text=text, hint=f"add --run-level {asked[0]}")


def preset_of(script: Script, presets: Presets) -> Preset | None:
    """Return the preset that a script's step names, by ``mirror_hardwares`` or AMD's ``agent_pool``."""
    for key in ("agent_pool", "mirror_hardwares"):
        name = script.step.body.get(key)
        if isinstance(name, str):
            return presets.find(name)
    return None


def _same(script: Script, call: PytestCall) -> object | None:
    """Return what two calls have in common that run the same tests in the same way; None where that cannot be told."""
    body = script.step.body
    if "matrix" in body or "parallelism" in body or any("$" in word for word in call.tests):
        return None
    place = body.get("agent_pool") or body.get("mirror_hardwares") or body.get("agents")
    image = body.get("plugins")
    environment = sorted((body.get("env") or {}).items(), key=str) if isinstance(body.get("env"), Mapping) else []
    return (
        str(place),
        str(image),
        str(environment),
        frozenset(call.environment),
        frozenset(test.rstrip("/") for test in call.tests),
        frozenset(call.ignored),
        call.marks,
        call.keyword,
        call.run_level,
        call.other,
    )


def _finding(
    subject: Subject, script: Script, call: PytestCall, level: Level, rule: str, *, text: str, hint: str | None = None
) -> Finding:
    lines = script.text.splitlines()
    fragment = lines[call.line] if call.line < len(lines) else None
    return subject.finding(level, rule, text, entry=script.step, key=script.key, fragment=fragment, hint=hint)
