"""Who we are to a registry, from the environment, docker's configuration and its helpers; and that nobody sees it."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from tasks.registry.credentials import Credential, find_credential, login_hint
from tasks.registry.distribution import DistributionRepository
from tasks.registry.oci_layout import LayoutRepository
from tasks.registry.opening import open_repository
from tasks.registry.references import RepositoryName
from tasks.support.errors import ConfigurationError, CredentialsError, OmniError, UsageError
from tasks.support.settings import Settings, load

SECRET = "s3cr3t-word"


def settings(folder: Path, config: object = None, **environment: str) -> Settings:
    if config is not None:
        folder.mkdir(exist_ok=True)
        text = config if isinstance(config, str) else json.dumps(config)
        (folder / "config.json").write_text(text, encoding="utf-8")
    return load(environment={"DOCKER_CONFIG": str(folder), **environment})


def auth(user: str = "me", password: str = SECRET) -> str:
    return base64.b64encode(f"{user}:{password}".encode()).decode()


@pytest.mark.parametrize(
    ("registry", "key"),
    [
        ("host.example", "host.example"),
        ("host.example:5000", "host.example:5000"),
        ("host.example", "https://host.example"),
        ("host.example", "https://host.example/v2/"),
        ("127.0.0.1:5000", "http://127.0.0.1:5000/v1/"),
        ("docker.io", "https://index.docker.io/v1/"),
        ("docker.io", "docker.io"),
        ("docker.io", "registry-1.docker.io"),
    ],
)
@pytest.mark.parametrize(
    "entry", [{"auth": auth()}, {"username": "me", "password": SECRET}, {"auth": auth(), "email": ""}]
)
def test_docker_s_configuration_is_read(tmp_path: Path, registry: str, key: str, entry: dict[str, str]) -> None:
    found = find_credential(
        registry, settings(tmp_path, {"auths": {"other.example": {"auth": auth("x", "y")}, key: entry}})
    )
    assert found is not None
    assert (found.username, found.password) == ("me", SECRET)


@pytest.mark.parametrize(
    ("registry", "config"),
    [
        ("host.example", None),
        ("host.example", {}),
        ("host.example", {"auths": {}}),
        ("host.example", {"auths": {"host.example": {}}}),
        ("host.example", {"auths": {"host.example:5000": {"auth": auth()}}}),
        ("host.example", {"auths": {"https://index.docker.io/v1/": {"auth": auth()}}}),
        ("evil-host.example", {"auths": {"host.example": {"auth": auth()}}}),
        ("docker.io", {"auths": {"host.example": {"auth": auth()}}}),
    ],
)
def test_a_registry_gets_its_own_credential_or_none(tmp_path: Path, registry: str, config: object) -> None:
    assert find_credential(registry, settings(tmp_path, config)) is None


def test_a_password_may_hold_anything(tmp_path: Path) -> None:
    for password in ("a:b:c", "grüße 👋", " ", "x\ny"):
        found = find_credential(
            "h.example", settings(tmp_path, {"auths": {"h.example": {"auth": auth("me", password)}}})
        )
        assert found is not None
        assert found.password == password
        assert base64.b64decode(found.basic.removeprefix("Basic ")).decode() == f"me:{password}"


def test_hub_s_variables_win_and_are_for_hub_only(tmp_path: Path) -> None:
    own = settings(
        tmp_path,
        {"auths": {"docker.io": {"auth": auth("other")}}},
        DOCKERHUB_USERNAME="me",
        DOCKERHUB_TOKEN=f"{SECRET}\n",
    )
    found = find_credential("docker.io", own)
    assert found is not None
    assert (found.username, found.password) == ("me", SECRET)
    assert find_credential("public.ecr.aws", own) is None
    without = settings(tmp_path, DOCKERHUB_USERNAME="me")
    found = find_credential("docker.io", without)
    assert found is not None
    assert found.username == "other"


def test_a_hub_token_without_its_user_is_said_to_be_so(tmp_path: Path) -> None:
    with pytest.raises(CredentialsError, match="DOCKERHUB_USERNAME is not set") as caught:
        find_credential("docker.io", settings(tmp_path, DOCKERHUB_TOKEN=SECRET))
    assert SECRET not in repr(caught.value)


def test_without_a_variable_docker_s_folder_is_at_home(tmp_path: Path) -> None:
    (tmp_path / ".docker").mkdir()
    (tmp_path / ".docker" / "config.json").write_text(json.dumps({"auths": {"h.example": {"identitytoken": SECRET}}}))
    found = find_credential("h.example", load(environment={"HOME": str(tmp_path)}))
    assert found is not None
    assert found.identity_token == SECRET


@pytest.mark.parametrize(
    ("config", "error"),
    [
        (f'{{"auths": {{"h.example": {{"auth": "{SECRET}"', ConfigurationError),
        ("[]", ConfigurationError),
        ("", ConfigurationError),
        ("[" * 100_000, ConfigurationError),
        ({"auths": [SECRET]}, ConfigurationError),
        ({"auths": SECRET}, ConfigurationError),
        ({"credHelpers": ["x"]}, ConfigurationError),
        ({"credHelpers": {"h.example": 3}}, ConfigurationError),
        ({"credHelpers": {"h.example": "../evil"}}, ConfigurationError),
        ({"credsStore": "-x"}, ConfigurationError),
        ({"credsStore": "not-installed-anywhere"}, ConfigurationError),
        ({"auths": {"h.example": SECRET}}, CredentialsError),
        ({"auths": {"h.example": {"auth": SECRET}}}, CredentialsError),
        ({"auths": {"h.example": {"auth": 3}}}, CredentialsError),
        ({"auths": {"h.example": {"auth": base64.b64encode(SECRET.encode()).decode()}}}, CredentialsError),
        ({"auths": {"h.example": {"auth": base64.b64encode(b"\xff:\xff").decode()}}}, CredentialsError),
        ({"auths": {"h.example": {"username": ["me"], "password": SECRET}}}, CredentialsError),
        *(
            ({"auths": {"h.example": {"registrytoken": SECRET + odd}}}, CredentialsError)
            for odd in ("\r\n", "\u20ac", " ")
        ),
    ],
)
def test_what_cannot_be_used_is_one_line_without_the_secret(
    tmp_path: Path, config: Any, error: type[OmniError]
) -> None:
    with pytest.raises(error) as caught:
        find_credential("h.example", settings(tmp_path, config))
    chain = f"{caught.value!r} {caught.value.__cause__!r} {caught.value.hint}"
    assert SECRET not in chain
    assert base64.b64encode(SECRET.encode()).decode() not in chain
    assert "\n" not in caught.value.message


def test_a_configuration_that_is_not_text_or_not_readable_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(b'{"auths": "\xff"}')
    with pytest.raises(ConfigurationError, match=r"cannot be read: .*config\.json"):
        find_credential("h.example", settings(tmp_path))
    (tmp_path / "config.json").unlink()
    (tmp_path / "config.json").mkdir()
    with pytest.raises(ConfigurationError, match=r"cannot be read: .*config\.json"):
        find_credential("h.example", settings(tmp_path))


def helper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    program = tmp_path / "bin" / "docker-credential-mine"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("echo the vault is sealed; exit 1", "gives no credential for h.example (exit 1): the vault is sealed"),
        ("echo no network >&2; exit 3", "gives no credential for h.example (exit 3): no network"),
        (f'echo \'{{"Secret":"{SECRET}"}}\'; exit 1', "gives no credential for h.example (exit 1)"),
        (f"echo {SECRET}", "answers for h.example with something else"),
        (f'echo \'{{"Username":"me","Secret":["{SECRET}"]}}\'', "answers for h.example with something else"),
        ("true", "answers for h.example with something else"),
    ],
)
def test_a_helper_that_fails_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, says: str) -> None:
    helper(tmp_path, monkeypatch, script)
    with pytest.raises(CredentialsError) as caught:
        find_credential("h.example", settings(tmp_path, {"credsStore": "mine"}))
    assert caught.value.message.startswith(f"docker-credential-mine {says}")
    assert SECRET not in f"{caught.value.message}{caught.value.hint}"


def test_a_helper_that_has_nothing_leaves_what_the_file_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    helper(tmp_path, monkeypatch, "echo credentials not found in native keychain; exit 1")
    config = {"credsStore": "mine", "auths": {"h.example": {"auth": auth()}, "empty.example": {}}}
    found = find_credential("h.example", settings(tmp_path, config))
    assert found is not None
    assert found.username == "me"
    assert find_credential("empty.example", settings(tmp_path, config)) is None


def test_a_registry_s_own_helper_comes_before_the_store_and_hub_has_its_old_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    helper(tmp_path, monkeypatch, 'read host; echo "{\\"Username\\":\\"$host\\",\\"Secret\\":\\"x\\"}"')
    config = {"credsStore": "not-installed", "credHelpers": {"h.example": "mine", "docker.io": "mine"}}
    found = find_credential("h.example", settings(tmp_path, config))
    assert found is not None
    assert found.username == "h.example"
    found = find_credential("docker.io", settings(tmp_path, config))
    assert found is not None
    assert found.username == "https://index.docker.io/v1/"


def test_no_representation_shows_a_secret() -> None:
    credential = Credential("the file", "me", SECRET, SECRET, SECRET)
    assert SECRET not in f"{credential!r} {credential} {[credential]}"
    assert "the file" in repr(credential)


@pytest.mark.parametrize("registry", ["docker.io", "public.ecr.aws", "1.dkr.ecr.us-east-1.amazonaws.com", "h.example"])
def test_the_next_step_names_the_registry_or_its_variables(registry: str) -> None:
    assert registry in login_hint(registry) or "DOCKERHUB_TOKEN" in login_hint(registry)


def test_an_address_opens_a_registry_or_a_layout(tmp_path: Path) -> None:
    own = load(environment={})
    assert isinstance(open_repository(tmp_path.as_uri(), own), LayoutRepository)
    found = open_repository("vllm/vllm-omni", own)
    assert isinstance(found, DistributionRepository)
    assert str(found.name) == "docker.io/vllm/vllm-omni"
    assert open_repository(RepositoryName.parse("h.example/x"), own).name.registry == "h.example"
    for odd in ("", "h.example/x:tag", "H.example/X", "file:x"):
        with pytest.raises(UsageError):
            open_repository(odd, own)
