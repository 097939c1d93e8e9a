"""Logging in to real registries: passwords, tokens that the registry checks itself, and who gets to see them."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from tasks.registry.distribution import DistributionRepository
from tasks.registry.documents import OCI_LAYER, Descriptor, digest_of
from tasks.registry.interface import Repository
from tasks.support.errors import CredentialsError, OmniError, TemporaryError
from tests import factory_image
from tests.registry_auth import (
    IDENTITY,
    PASSWORD,
    USER,
    TokenServer,
    password_registry_in,
    token_registry_in,
    with_login,
    write_login,
)
from tests.registry_proxy import NO_ADDRESSES, Change, Reply, proxy_before, times
from tests.registry_servers import Registry

pytestmark = pytest.mark.service

DATA = b"layer" * 5000
BLOB = Descriptor(OCI_LAYER, digest_of(DATA), len(DATA))
ALL = frozenset({"pull", "push", "delete"})


@pytest.fixture(scope="module")
def password_registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    with password_registry_in(tmp_path_factory.mktemp("password-registry")) as server:
        yield server


@pytest.fixture(scope="module")
def token_pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Registry, TokenServer]]:
    with token_registry_in(tmp_path_factory.mktemp("token-registry")) as pair:
        yield pair


@pytest.fixture
def tokens(token_pair: tuple[Registry, TokenServer]) -> TokenServer:
    server = token_pair[1]
    server.asked.clear()
    server.rights, server.anonymous = ALL, frozenset({"pull"})
    server.lifetime, server.said_lifetime = 300, None
    return server


@pytest.fixture
def nobody(token_pair: tuple[Registry, TokenServer], tokens: TokenServer, tmp_path: Path) -> Registry:
    """Return the registry that wants tokens, for somebody who is not logged in."""
    return replace(token_pair[0], environment={**token_pair[0].environment, "DOCKER_CONFIG": str(tmp_path / "none")})


@pytest.fixture
def releaser(nobody: Registry, tmp_path: Path) -> Registry:
    """Return the registry that wants tokens, for somebody with the password."""
    return with_login(nobody, tmp_path / "login")


def store(registry: Registry, name: str) -> DistributionRepository:
    repository = registry.repository(name)
    assert isinstance(repository, DistributionRepository)
    repository.put_blob(BLOB, iter([DATA]))
    return repository


def scopes(tokens: TokenServer) -> list[str]:
    return [" ".join(form.get("scope", [])) for _, form, _ in tokens.asked]


def test_a_password_lets_in(password_registry: Registry, tmp_path: Path) -> None:
    registry = with_login(password_registry, tmp_path)
    made = factory_image.image()
    repository = registry.repository(registry.new_name())
    factory_image.store(made, repository, "v1")
    assert repository.manifest("v1") == made.top


@pytest.mark.parametrize("password", [None, "wrong-password"])
def test_without_the_right_password_nobody_gets_in(
    password_registry: Registry, tmp_path: Path, password: str | None
) -> None:
    registry = password_registry
    if password is not None:
        registry = with_login(registry, tmp_path, username=USER, password=password)
    with proxy_before(registry) as proxy:
        if password is not None:
            write_login(proxy.registry, username=USER, password=password)
        repository = proxy.registry.repository(registry.new_name())
        with pytest.raises(CredentialsError) as caught:
            repository.head("v1")
        assert len(proxy.seen) == (1 if password is None else 2)
    assert str(repository.name) in caught.value.message
    assert "docker login" in (caught.value.hint or "")
    assert "wrong-password" not in f"{caught.value!r}{caught.value.hint}"


@pytest.mark.parametrize(
    "ask",
    [
        lambda repository: repository.head("v1"),
        lambda repository: repository.manifest("v1"),
        lambda repository: repository.tags(),
        lambda repository: repository.has_blob(BLOB.digest),
        lambda repository: next(repository.read_blob(BLOB.digest)),
        lambda repository: repository.put_blob(BLOB, iter([DATA])),
        lambda repository: repository.put_manifest(factory_image.image().top, "v1"),
        lambda repository: repository.delete_manifest(BLOB.digest),
    ],
    ids=["head", "manifest", "tags", "has blob", "read blob", "put blob", "put manifest", "delete manifest"],
)
def test_whoever_is_refused_is_told_which_credential_was_sent(
    password_registry: Registry, tmp_path: Path, ask: Callable[[Repository], object]
) -> None:
    """There may be several on a machine, in variables and in files, and the wrong one does not show itself."""
    registry = with_login(password_registry, tmp_path, username=USER, password="wrong-password")
    with pytest.raises(CredentialsError) as caught:
        ask(registry.repository(registry.new_name()))
    assert f"the credential is that of {tmp_path / 'config.json'}" in caught.value.message
    assert "wrong-password" not in f"{caught.value!r}{caught.value.hint}"


def test_anybody_may_read_with_a_token(releaser: Registry, nobody: Registry, tokens: TokenServer) -> None:
    name = releaser.new_name()
    store(releaser, name)
    tokens.asked.clear()
    assert nobody.repository(name).has_blob(BLOB.digest)
    assert b"".join(nobody.repository(name).read_blob(BLOB.digest)) == DATA
    assert tokens.asked == [("GET", {"service": ["registry for tests"], "scope": [f"repository:{name}:pull"]}, None)]


def test_a_missing_right_is_said_once_with_the_registry_s_code(nobody: Registry, tokens: TokenServer) -> None:
    repository = nobody.repository(nobody.new_name())
    with pytest.raises(CredentialsError, match=r"cannot send .*401 UNAUTHORIZED") as caught:
        repository.put_blob(BLOB, iter([DATA]))
    assert str(repository.name) in caught.value.message
    assert f"docker login {nobody.address}" in (caught.value.hint or "")
    assert len(tokens.asked) == 1


def test_one_token_serves_all_threads(releaser: Registry, tokens: TokenServer) -> None:
    name = releaser.new_name()
    store(releaser, name)
    fresh = replace(releaser, environment={**releaser.environment, "HOME": "/nowhere"})  # another client
    tokens.asked.clear()
    start = threading.Barrier(8)

    def work(_number: int) -> bool:
        start.wait()
        return all(fresh.repository(name).has_blob(BLOB.digest) for _ in range(5))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))
    assert scopes(tokens) == [f"repository:{name}:pull"]


def test_reading_asks_for_no_more_than_reading(releaser: Registry, tokens: TokenServer) -> None:
    name = releaser.new_name()
    repository = store(releaser, name)
    repository.head("v1")
    repository.delete_manifest(BLOB.digest)
    assert scopes(tokens) == [
        f"repository:{name}:pull,push",
        f"repository:{name}:pull",
        f"repository:{name}:pull,push,delete",
    ]


def test_a_mount_asks_for_the_source_as_well(releaser: Registry, tokens: TokenServer) -> None:
    one, two = sorted((releaser.new_name(), releaser.new_name()))
    source, target = store(releaser, one), releaser.repository(two)
    tokens.asked.clear()
    assert target.mount(BLOB, source) is True
    assert scopes(tokens) == [f"repository:{one}:pull repository:{two}:pull,push"]
    assert target.has_blob(BLOB.digest)


def test_a_mount_from_what_may_not_be_read_is_not_possible(
    releaser: Registry, tokens: TokenServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = releaser.new_name()
    source, target = store(releaser, name), releaser.repository(releaser.new_name())
    granted = tokens.token
    monkeypatch.setattr(
        tokens, "token", lambda asked, rights: granted([one for one in asked if name not in one], rights)
    )
    assert target.mount(BLOB, source) is False
    target.put_blob(BLOB, iter([DATA]))
    assert target.has_blob(BLOB.digest)


def test_a_token_that_ran_out_is_renewed_once(releaser: Registry, tokens: TokenServer) -> None:
    """The registry lets 60 more seconds pass; the server here says that its tokens live for long."""
    tokens.lifetime, tokens.said_lifetime = -57, 300
    repository = store(releaser, releaser.new_name())
    tokens.asked.clear()
    time.sleep(4)
    tokens.lifetime = 300
    repository.put_blob(Descriptor(OCI_LAYER, digest_of(b"2"), 1), iter([b"2"]))
    assert len(tokens.asked) == 1


def test_a_short_lived_token_is_renewed_before_it_runs_out(releaser: Registry, tokens: TokenServer) -> None:
    tokens.said_lifetime = 1
    repository = store(releaser, releaser.new_name())
    tokens.asked.clear()
    time.sleep(1)
    with proxy_before(releaser) as proxy:
        assert proxy.seen == []
        repository.put_blob(Descriptor(OCI_LAYER, digest_of(b"3"), 1), iter([b"3"]))
    assert tokens.asked


def test_tokens_that_are_never_good_end_after_one_renewal(releaser: Registry, tokens: TokenServer) -> None:
    tokens.lifetime, tokens.said_lifetime = -500, 300
    with pytest.raises(CredentialsError, match="401 UNAUTHORIZED"):
        releaser.repository(releaser.new_name()).manifest("v1")
    assert len(tokens.asked) == 1
    with pytest.raises(CredentialsError, match="401 UNAUTHORIZED"):
        releaser.repository(releaser.new_name()).manifest("v1")  # now with a token from the start
    assert len(tokens.asked) == 3


def test_a_token_refused_in_the_middle_of_an_upload_is_temporary(releaser: Registry, tokens: TokenServer) -> None:
    with proxy_before(releaser) as proxy:
        write_login(proxy.registry)
        challenge = f'Bearer realm="{tokens.realm}",service="registry for tests",error="invalid_token"'
        proxy.rule = times(1, lambda seen: seen.method == "PATCH", Reply(401, {"WWW-Authenticate": challenge}))
        repository = proxy.registry.repository(releaser.new_name())
        with pytest.raises(TemporaryError, match="token was no longer good"):
            repository.put_blob(BLOB, iter([DATA]))
        repository.put_blob(BLOB, iter([DATA]))
        assert repository.has_blob(BLOB.digest)


def test_a_refused_password_is_not_tried_again_and_not_shown(
    nobody: Registry, tokens: TokenServer, tmp_path: Path
) -> None:
    registry = with_login(nobody, tmp_path / "wrong", username=USER, password="not-the-password")
    with pytest.raises(CredentialsError, match="401 incorrect username or password") as caught:
        registry.repository("x").head("v1")
    assert "config.json" in caught.value.message
    assert "not-the-password" not in repr(caught.value)
    assert len(tokens.asked) == 1


def test_an_identity_token_is_exchanged(nobody: Registry, tokens: TokenServer, tmp_path: Path) -> None:
    registry = with_login(nobody, tmp_path / "identity", identitytoken=IDENTITY)
    name = registry.new_name()
    store(registry, name)
    method, form, authorization = tokens.asked[0]
    assert method == "POST"
    assert authorization is None
    assert form["grant_type"] == ["refresh_token"]
    assert form["refresh_token"] == [IDENTITY]
    assert form["scope"] == [f"repository:{name}:pull,push"]


def test_a_registry_token_is_sent_as_it_is(nobody: Registry, tokens: TokenServer, tmp_path: Path) -> None:
    name = nobody.new_name()
    own = tokens.token([f"repository:{name}:pull,push"], ALL)
    store(with_login(nobody, tmp_path / "direct", registrytoken=own), name)
    assert tokens.asked == []


@pytest.mark.parametrize("user", [USER, "<token>"])
def test_a_credential_helper_is_asked(
    nobody: Registry, tokens: TokenServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user: str
) -> None:
    secret = PASSWORD if user == USER else IDENTITY
    program = tmp_path / "bin" / "docker-credential-for-tests"
    program.parent.mkdir()
    answer = json.dumps({"ServerURL": nobody.address, "Username": user, "Secret": secret})
    program.write_text(
        f'#!/bin/sh\nread host\necho "$host $1" >>{tmp_path}/asked\n'
        f"if [ \"$host\" = {nobody.address} ]; then echo '{answer}'; exit; fi\n"
        "echo credentials not found in native keychain\nexit 1\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    folder = tmp_path / "helper"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"credHelpers": {nobody.address: "for-tests"}}))
    registry = replace(nobody, environment={**nobody.environment, "DOCKER_CONFIG": str(folder)})
    store(registry, registry.new_name())
    store(registry, registry.new_name())
    assert (tmp_path / "asked").read_text() == f"{nobody.address} get\n"


def test_no_other_host_sees_a_credential(releaser: Registry, other_registry: Registry, tokens: TokenServer) -> None:
    """Storage that blobs come from, and an upload's address elsewhere, are other hosts: even on another port."""
    name = releaser.new_name()
    store(releaser, name)
    with proxy_before(releaser) as proxy, proxy_before(other_registry) as elsewhere:
        write_login(proxy.registry)
        repository = proxy.registry.repository(name)
        target = f"http://{elsewhere.address}"
        elsewhere.rule = lambda seen: Reply(200, {}, DATA) if seen.is_blob else Reply(202)
        proxy.rule = lambda seen: (
            Reply(307, {"Location": f"{target}{seen.path}"})
            if seen.is_blob and "authorization" in seen.headers
            else None
        )
        assert b"".join(repository.read_blob(BLOB.digest)) == DATA
        assert repository.has_blob(BLOB.digest)

        def away(headers: dict[str, str], _body: bytes) -> tuple[dict[str, str], bytes]:
            return {**headers, "Location": f"{target}/v2/elsewhere/blobs/uploads/1?token=x"}, b""

        proxy.rule = lambda seen: Change(away) if seen.method == "POST" and "authorization" in seen.headers else None
        repository.put_blob(Descriptor(OCI_LAYER, digest_of(b"away"), 4), iter([b"away"]))
        assert [one.method for one in elsewhere.seen] == ["GET", "HEAD", "PATCH", "PUT"]
        assert not any("authorization" in one.headers for one in elsewhere.seen)
        assert all("authorization" in one.headers for one in proxy.seen[1:])


@pytest.mark.parametrize("fault", [Reply(500), Reply(200, {}, b"{}"), Reply(200, {}, b"<html>"), Reply(302)])
def test_a_token_server_that_fails_is_named(releaser: Registry, tokens: TokenServer, fault: Reply) -> None:
    with proxy_before(releaser) as registry, proxy_before(releaser) as broken:
        broken.rule = lambda seen: fault
        challenge = f'Bearer realm="http://{broken.address}/token",service="x"'
        registry.rule = lambda seen: Reply(401, {"WWW-Authenticate": challenge})
        with pytest.raises(OmniError, match=f"cannot get a token for {registry.address}"):
            registry.registry.repository("x").head("v1")


@pytest.mark.parametrize(
    ("challenge", "says"),
    [
        ("", "does not say how to log in"),
        ("Negotiate", "does not say how to log in"),
        ('Bearer realm="http://tokens.example/token"', "not https"),
        ('Bearer realm="https://user:word@tokens.example/token"', "not https"),
        ("Bearer", "no address"),
        *((f'Bearer realm="{realm}"', r"cannot get a token for 127\.0\.0\.1:.* no address") for realm in NO_ADDRESSES),
    ],
)
def test_a_challenge_that_cannot_be_answered_is_said_to_be_so(registry: Registry, challenge: str, says: str) -> None:
    with proxy_before(registry) as proxy:
        proxy.rule = lambda seen: Reply(401, {"WWW-Authenticate": challenge})
        with pytest.raises(OmniError, match=says):
            proxy.registry.repository("x").head("v1")
        assert len(proxy.seen) == 1


def test_amazon_s_public_registry_gives_anybody_a_token_for_everything(registry: Registry) -> None:
    """Its challenge names the scope ``aws`` and no repository."""
    with proxy_before(registry) as front, proxy_before(registry) as giver:
        giver.rule = lambda seen: Reply(200, {}, b'{"token": "abc"}')
        challenge = f'Bearer realm="http://{giver.address}/token/",service="public.ecr.aws",scope="aws"'
        wanted = Reply(401, {"WWW-Authenticate": challenge}, b'{"errors":[{"code":"UNAUTHORIZED"}]}')
        front.rule = lambda seen: None if seen.headers.get("authorization") == "Bearer abc" else wanted
        repository = front.registry.repository(registry.new_name())
        repository.put_blob(BLOB, iter([DATA]))
        assert b"".join(repository.read_blob(BLOB.digest)) == DATA
        assert [one.status for one in front.seen].count(401) == 1
        first = giver.seen[0]
        assert (first.path, first.query) == ("/token/", {"service": "public.ecr.aws", "scope": "aws"})
        assert not any("authorization" in one.headers for one in giver.seen)


def test_a_server_that_says_a_secret_aloud_is_not_repeated(releaser: Registry) -> None:
    with proxy_before(releaser) as proxy:
        write_login(proxy.registry)
        repository = proxy.registry.repository("x")
        assert repository.manifest("v1") is None
        proxy.rule = lambda seen: Reply(403, {}, f"{USER} may not, with {PASSWORD}".encode())
        for call in (repository.tags, lambda: repository.manifest("v1")):
            with pytest.raises(CredentialsError, match=f"403 {USER} may not, with ") as caught:
                call()
            assert PASSWORD not in repr(caught.value)
        proxy.rule = lambda seen: Reply(401, {"WWW-Authenticate": "Basic realm=x"}, PASSWORD.encode())
        with pytest.raises(CredentialsError) as caught:
            repository.manifest("v1")
        assert PASSWORD not in repr(caught.value)
