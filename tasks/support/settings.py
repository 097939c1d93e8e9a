"""Settings: a flag wins over an environment variable, which wins over ``[tool.omni-ci]``; read on call, then frozen.

This is the only module that reads the environment.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tasks.support import wheel_rules
from tasks.support.errors import ConfigurationError, CredentialsError, UsageError, did_you_mean
from tasks.support.profiles import Profile
from tasks.support.variables import ALL, OWN, PREFIX

CHECKOUT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class WheelSettings:
    """What ``[tool.omni-ci.wheels]`` says: the project and the rules of its index."""

    project: str = "vllm-omni"
    variants: tuple[str, ...] = ()
    alias_of_default: str | None = None
    public_url: str | None = None
    required_nightly: tuple[str, ...] = ()
    keep_nightlies: int = 14
    max_prune_share: float = 0.2


@dataclass(frozen=True)
class Settings:
    """One run's settings. ``environment`` is the snapshot that everything else is asked from.

    ``store_given`` says whether somebody named the store, or it is the folder of this checkout.
    """

    profile: Profile
    store: str
    source: str | None
    python: str | None
    pypi_upload_url: str | None
    pypi_index_url: str | None
    hub_url: str | None
    staging: str | None
    public: str | None
    wheels: WheelSettings
    environment: Mapping[str, str] = field(repr=False)
    store_given: bool = True

    def variable(self, name: str) -> str | None:
        """Return an environment variable's value; an empty one counts as not set."""
        return self.environment.get(name) or None

    def switch(self, name: str) -> bool:
        """Say whether a schedule variable is exactly ``1``."""
        return self.environment.get(name) == "1"

    def secret(self, name: str, *, purpose: str) -> str:
        """Return a secret from the environment, or raise CredentialsError naming the variable."""
        value = self.variable(name)
        if value is None:
            raise CredentialsError(
                f"{name} is not set: it is needed {purpose}", hint=f"export {name} and run this again"
            )
        return value


def load(
    *,
    profile: str | None = None,
    store: str | None = None,
    source: str | None = None,
    python: str | None = None,
    staging: str | None = None,
    public: str | None = None,
    environment: Mapping[str, str] | None = None,
    file: Path = CHECKOUT / "pyproject.toml",
) -> Settings:
    """Read the settings of one run.

    Raises ConfigurationError for unknown keys in the file and unknown ``OMNI_CI_`` variables,
    UsageError for a flag without a value and for a profile that does not exist.
    """
    env = MappingProxyType(dict(os.environ if environment is None else environment))
    _refuse_unknown_variables(env)
    table = _read_table(file)
    wheels = _wheel_settings(table.pop("wheels", {}), file)
    flags = {"profile": profile, "store": store, "source": source, "python": python}
    flags |= {"staging": staging, "public": public}
    _refuse_empty_flags(flags)
    known = {variable.key: variable.name for variable in OWN if variable.key}
    _refuse_unknown_keys(table, known, f"[tool.omni-ci] of {file}")
    _refuse_other_than_text(table, f"[tool.omni-ci] of {file}")
    chosen = {key: _first(flags.get(key), env.get(name) or None, table.get(key)) for key, name in known.items()}
    return Settings(
        profile=Profile.parse(chosen["profile"] or "local"),
        store=chosen["store"] or (CHECKOUT / ".omni-ci" / "store").as_uri(),
        source=chosen["source"],
        python=chosen["python"],
        pypi_upload_url=chosen["pypi-upload-url"],
        pypi_index_url=chosen["pypi-index-url"],
        staging=chosen["staging"],
        public=chosen["public"],
        hub_url=chosen["hub-url"],
        wheels=wheels,
        environment=env,
        store_given=bool(chosen["store"]),
    )


def secret_values(environment: Mapping[str, str] | None = None) -> frozenset[str]:
    """Return the values that must never be shown, for masking."""
    env = os.environ if environment is None else environment
    # Stripped, because a line break at the end of a token is not printed with it.
    values = (env.get(variable.name, "").strip() for variable in ALL if variable.secret)
    return frozenset(value for value in values if value)


def inherited_environment() -> dict[str, str]:
    """Return a copy of this process's environment, for a child."""
    return dict(os.environ)


def on_buildkite(environment: Mapping[str, str] | None = None) -> bool:
    """Say whether this runs on a Buildkite agent."""
    env = os.environ if environment is None else environment
    return env.get("BUILDKITE") == "true"


def _first(*values: str | None) -> str | None:
    return next((value for value in values if value is not None), None)


def _refuse_empty_flags(flags: Mapping[str, str | None]) -> None:
    for name, value in flags.items():
        if value == "":  # most often a shell variable that is not set: the default is not what was meant
            raise UsageError(f"--{name} has no value", hint=f"give it one, or leave --{name} out")


def _refuse_unknown_variables(environment: Mapping[str, str]) -> None:
    known = {variable.name for variable in OWN}
    for name in sorted(environment):
        if name.startswith(PREFIX) and name not in known:
            raise ConfigurationError(f"unknown environment variable {name}", hint=did_you_mean(name, known))


def _refuse_unknown_keys(table: Mapping[str, Any], known: Mapping[str, Any], where: str) -> None:
    for key in table:
        if key not in known:
            raise ConfigurationError(f"unknown key {key!r} in {where}", hint=did_you_mean(key, known))


def _refuse_other_than_text(table: Mapping[str, Any], where: str) -> None:
    for key, value in table.items():
        if not isinstance(value, str) or not value:
            raise ConfigurationError(f"{key} in {where} must be a text, not {value!r}")


def _read_table(file: Path) -> dict[str, Any]:
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:  # ValueError: also numbers of thousands of digits
        raise ConfigurationError(f"cannot read the settings in {file}: {error}") from error
    tool = document.get("tool", {})
    table = tool.get("omni-ci", {}) if isinstance(tool, dict) else tool
    if not isinstance(table, dict):
        raise ConfigurationError(f"[tool.omni-ci] of {file} is not a table")
    return dict(table)


def _wheel_settings(table: Any, file: Path) -> WheelSettings:
    where = f"[tool.omni-ci.wheels] of {file}"
    if not isinstance(table, dict):
        raise ConfigurationError(f"{where} is not a table")
    known = {item.name.replace("_", "-"): item for item in fields(WheelSettings)}
    _refuse_unknown_keys(table, known, where)
    values: dict[str, Any] = {}
    for key, value in table.items():
        expected = type(known[key].default) if known[key].default is not None else str
        converted = tuple(value) if expected is tuple and isinstance(value, list) else value
        if expected is float and isinstance(converted, int) and not isinstance(converted, bool):
            with suppress(OverflowError):  # an integer that no float can hold is refused below
                converted = float(converted)
        texts = converted if isinstance(converted, tuple) else ()
        if type(converted) is not expected or not all(isinstance(text, str) for text in texts):
            raise ConfigurationError(f"{key} in {where} must be a {expected.__name__}, not {value!r}")
        values[known[key].name] = converted
    settings = WheelSettings(**values)
    wheel_rules.check(settings, where)
    return settings
