"""Settings: which value wins, what is refused, and that secrets stay inside."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tasks.support.errors import ConfigurationError, CredentialsError, OmniError, UsageError
from tasks.support.profiles import Profile
from tasks.support.settings import CHECKOUT, Settings, load, on_buildkite, secret_values
from tasks.support.variables import ALL, INHERITED, OWN, PREFIX

SECRETS = [variable.name for variable in ALL if variable.secret]


def with_file(tmp_path: Path, text: str, **environment: str) -> Settings:
    file = tmp_path / "pyproject.toml"
    file.write_text(text)
    return load(environment=environment, file=file)


# Which value wins


def test_flag_then_environment_then_file_then_default(tmp_path: Path) -> None:
    file = tmp_path / "pyproject.toml"
    file.write_text('[tool.omni-ci]\nprofile = "ci"\nstore = "file:///file"\nsource = "file"\npython = "pyfile"\n')
    environment = {
        "OMNI_CI_PROFILE": "production",
        "OMNI_CI_STORE": "file:///env",
        "OMNI_CI_SOURCE": "env",
        "OMNI_CI_PYTHON": "pyenv",
    }

    def values(settings: Settings) -> tuple[object, ...]:
        return settings.profile, settings.store, settings.source, settings.python

    flags = load(
        profile="local", store="file:///flag", source="flag", python="pyflag", environment=environment, file=file
    )
    assert values(flags) == (Profile.LOCAL, "file:///flag", "flag", "pyflag")
    assert values(load(environment=environment, file=file)) == (Profile.PRODUCTION, "file:///env", "env", "pyenv")
    assert values(load(environment={}, file=file)) == (Profile.CI, "file:///file", "file", "pyfile")
    file.write_text("")
    default = (CHECKOUT / ".omni-ci" / "store").as_uri()
    assert values(load(environment={}, file=file)) == (Profile.LOCAL, default, None, None)


@pytest.mark.parametrize("variable", [variable for variable in OWN if variable.key], ids=lambda variable: variable.name)
def test_every_own_variable_and_its_key_reach_the_settings(tmp_path: Path, variable: object) -> None:
    name = getattr(variable, "name", "")
    key = getattr(variable, "key", "")
    value = "ci" if name == "OMNI_CI_PROFILE" else "value"
    for settings in (
        with_file(tmp_path, "", **{name: value}),
        with_file(tmp_path, f'[tool.omni-ci]\n{key} = "{value}"\n'),
    ):
        found = getattr(settings, key.replace("-", "_"))
        assert (found.value if isinstance(found, Profile) else found) == value


def test_an_empty_variable_counts_as_not_set(tmp_path: Path) -> None:
    settings = with_file(tmp_path, '[tool.omni-ci]\nsource = "file"\n', OMNI_CI_SOURCE="", OMNI_CI_PROFILE="", X="")
    assert (settings.source, settings.profile, settings.variable("X")) == ("file", Profile.LOCAL, None)


@pytest.mark.parametrize("flag", ["profile", "store", "source", "python"])
def test_an_empty_flag_is_refused(flag: str) -> None:
    with pytest.raises(UsageError, match=f"--{flag} has no value"):
        load(environment={}, **{flag: ""})  # type: ignore[arg-type]


def test_the_environment_is_the_process_own_unless_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNI_CI_SOURCE", "/from/process")
    settings = load()
    assert settings.source == "/from/process"
    monkeypatch.setenv("OMNI_CI_SOURCE", "/later")
    assert settings.variable("OMNI_CI_SOURCE") == "/from/process"  # a snapshot
    with pytest.raises(TypeError):
        settings.environment["X"] = "1"  # type: ignore[index]


@pytest.mark.parametrize(("value", "on"), [("1", True), ("0", False), ("true", False), ("", False), (" 1", False)])
def test_a_switch_is_on_when_exactly_1(value: str, on: bool) -> None:
    assert load(environment={"NIGHTLY": value}).switch("NIGHTLY") is on
    assert not load(environment={}).switch("NIGHTLY")


@pytest.mark.parametrize(("value", "on"), [("true", True), ("false", False), ("", False), ("1", False)])
def test_buildkite(value: str, on: bool) -> None:
    assert on_buildkite({"BUILDKITE": value}) is on


# What is refused


@pytest.mark.parametrize("name", ["OMNI_CI_STOER", "OMNI_CI_store", "OMNI_CI_", "OMNI_CI_PROFILES"])
def test_unknown_own_variables_are_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"unknown environment variable {name}$") as refused:
        load(environment={name: "x", "UNRELATED": "y"})
    assert refused.value.exit_code == 78


def test_the_hint_has_the_closest_name() -> None:
    with pytest.raises(ConfigurationError) as refused:
        load(environment={"OMNI_CI_STOER": "x"})
    assert "OMNI_CI_STORE" in str(refused.value.hint)


def test_an_unknown_profile_is_a_usage_error_with_the_closest_one() -> None:
    with pytest.raises(UsageError, match="unknown profile 'prodction'") as refused:
        load(profile="prodction", environment={})
    assert "production" in str(refused.value.hint)


@pytest.mark.parametrize(
    "text",
    [
        "not toml",
        "tool = 3",
        "[tool]\nomni-ci = 3",
        "[tool.omni-ci]\nsotre = 'x'",
        "[tool.omni-ci]\nwheels = 3",
        "[tool.omni-ci]\nstore = false",
        "[tool.omni-ci]\npython = 3",
        "[tool.omni-ci]\nsource = ''",
        "[tool.omni-ci.wheels]\nvariantes = []",
        "[tool.omni-ci.wheels]\nvariants = 'cu130'",
        "[tool.omni-ci.wheels]\nvariants = [1]",
        "[tool.omni-ci.wheels]\nvariants = ['(']",
        "[tool.omni-ci.wheels]\nrequired-nightly = [1]",
        "[tool.omni-ci.wheels]\nkeep-nightlies = true",
        "[tool.omni-ci.wheels]\nkeep-nightlies = '14'",
        "[tool.omni-ci.wheels]\nkeep-nightlies = 1.5",
        "[tool.omni-ci.wheels]\nmax-prune-share = true",
        "[tool.omni-ci.wheels]\nproject = 3",
    ],
)
def test_a_wrong_file_is_a_configuration_error_naming_it(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        with_file(tmp_path, text)
    assert str(tmp_path / "pyproject.toml") in refused.value.message


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("max-prune-share", ["nan", "inf", "-inf", "20", "1.001", "-0.1", "-nan", "9" * 400]),
        ("keep-nightlies", ["0", "-1", "-99999999999999999999"]),
        ("project", ["''", "'-x'", "'x-'", "'a b'", "'a/b'", "'json'", "'nightly'", "'<b>'", '"a\\n"', "'ä'"]),
        ("alias-of-default", ["''", "'json'", "'nightly'", "'_x'", "'a/b'", "'.'", "'..'", "'<b>'", "'vllm-omni'"]),
        ("alias-of-default", [f"'{'a' * 40}'", '"cu130\\n"', "'CU130'", "'-x'", "'a&b'"]),
        ("public-url", ["''", "'ftp://h/'", "'h/x'", "'https://'", "'https://u:p@h/'", "'https://u@h'", "'file:///x'"]),
        ("public-url", ["'https://h/?q'", "'https://h/?'", "'https://h/#f'", "'https://h/#'", "'http://h:x/'"]),
        ("public-url", ["'http://[h'", "'javascript:x'", "'http://h/a b'", '"http://h/\\n"', "'http://h/<b>'"]),
        ("required-nightly", ["['']", "[' ']", "['a/b']", "['ok', '']"]),
        ("variants", ["['']", "['.*']", "['x?']", "['json']", "['[a-z]+']", "['cu', 'j.*']", "['vllm-omni']", "['[']"]),
    ],
)
def test_a_value_that_cannot_be_meant_is_refused_naming_its_key(tmp_path: Path, key: str, values: list[str]) -> None:
    for value in values:
        with pytest.raises(ConfigurationError) as refused:
            with_file(tmp_path, f"[tool.omni-ci.wheels]\n{key} = {value}\n")
        assert refused.value.message.startswith(f"{key} in [tool.omni-ci.wheels] of {tmp_path}"), value
        assert "\n" not in refused.value.message
        assert "u:p" not in refused.value.message


@pytest.mark.parametrize("name", ["vllm_omni", "VLLM-omni", "vllm.omni", "vllm-_omni"])
def test_the_normalised_project_name_is_told(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigurationError, match="'vllm-omni'"):
        with_file(tmp_path, f"[tool.omni-ci.wheels]\nproject = '{name}'\n")


@pytest.mark.parametrize(
    "text",
    [
        "max-prune-share = 0",
        "max-prune-share = 1.0",
        "keep-nightlies = 1",
        "project = 'a'",
        "alias-of-default = 'cu130'",
        "alias-of-default = 'rocm7.2'",
        "public-url = 'https://wheels.invalid/omni'",
        "public-url = 'http://127.0.0.1:8000/'",
        "public-url = 'http://[::1]:8000/a%20b/'",
        "required-nightly = ['*.whl', 'a-?.whl']",
        "variants = ['cu\\d{2,3}', 'xpu']",
    ],
)
def test_a_value_at_the_edge_is_taken(tmp_path: Path, text: str) -> None:
    with_file(tmp_path, f"[tool.omni-ci.wheels]\n{text}\n")


@pytest.mark.parametrize("text", ["x = " + "[" * 5000, "x = " + "{a=" * 5000, "x = " + "9" * 5000])
def test_a_file_that_overwhelms_the_parser_is_a_configuration_error(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigurationError, match="cannot read the settings"):
        with_file(tmp_path, text)


def test_a_file_that_cannot_be_read_is_a_configuration_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="nowhere"):
        load(environment={}, file=tmp_path / "nowhere")
    (tmp_path / "latin").write_bytes(b"# \xe9\n")
    with pytest.raises(ConfigurationError, match="latin"):
        load(environment={}, file=tmp_path / "latin")


def test_wheel_settings_of_the_right_types_are_taken(tmp_path: Path) -> None:
    text = "[tool.omni-ci.wheels]\nproject = 'p'\nvariants = ['a', 'b']\nkeep-nightlies = 3\nmax-prune-share = 1\n"
    wheels = with_file(tmp_path, text).wheels
    assert (wheels.project, wheels.variants, wheels.keep_nightlies) == ("p", ("a", "b"), 3)
    assert wheels.max_prune_share == 1.0
    assert isinstance(wheels.max_prune_share, float)


def test_this_checkouts_own_file_is_accepted() -> None:
    assert load(environment={}).profile is Profile.LOCAL


# Secrets


@pytest.mark.parametrize("name", SECRETS)
def test_no_secret_is_in_the_text_of_the_settings(name: str) -> None:
    settings = load(environment={name: "hush-hush"})
    assert "hush" not in repr(settings)
    assert "hush" not in str(settings)


@pytest.mark.parametrize("value", [None, ""])
def test_a_missing_secret_names_the_variable_and_the_purpose(value: str | None) -> None:
    settings = load(environment={} if value is None else {"PYPI_TOKEN": value})
    with pytest.raises(CredentialsError, match="PYPI_TOKEN is not set: it is needed to upload") as missing:
        settings.secret("PYPI_TOKEN", purpose="to upload")
    assert missing.value.exit_code == 77


def test_a_secret_is_given_to_who_asks() -> None:
    assert load(environment={"PYPI_TOKEN": "t"}).secret("PYPI_TOKEN", purpose="to upload") == "t"


def test_every_secret_value_is_known_for_masking() -> None:
    environment = {name: f"value of {name}\n" for name in SECRETS} | {"HOME": "/h", SECRETS[0]: " "}
    assert secret_values(environment) == {f"value of {name}" for name in SECRETS[1:]}


# The table of variables


def test_the_table_is_consistent() -> None:
    names = [variable.name for variable in ALL]
    assert len(names) == len(set(names))
    assert all(variable.meaning for variable in ALL)
    assert all(variable.name.startswith(PREFIX) for variable in OWN)
    assert not any(variable.name.startswith(PREFIX) for variable in INHERITED)


def asked_for(source: str) -> Iterator[str]:
    """Find the variables that a module asks the settings for, or looks up in an environment."""
    for node in ast.walk(ast.parse(source)):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in {"variable", "secret", "switch"}
            and node.args
            and isinstance(node.args[0], ast.Constant)
        ):
            yield str(node.args[0].value)


def test_every_variable_that_is_read_is_in_the_table() -> None:
    found = {name for path in (CHECKOUT / "tasks").rglob("*.py") for name in asked_for(path.read_text())}
    assert {"HOME", "DOCKERHUB_TOKEN", "BUILDKITE_COMMIT"} <= found
    assert found - {"HOME", "PATH"} <= {variable.name for variable in ALL}


def test_every_foreseen_settings_error_is_one_line(tmp_path: Path) -> None:
    for text in ("not toml", "[tool.omni-ci]\nx = '''a\nb'''", "[tool.omni-ci]\nstore = ['a',\n'b']"):
        with pytest.raises(OmniError) as refused:
            with_file(tmp_path, text)
        assert "\n" not in refused.value.message
