"""A run's own docker configuration: what is in it, who can read it, and that it goes."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tasks.images.docker_config import as_login, find_logins, private_config
from tasks.registry.credentials import Credential, find_credential
from tasks.support.errors import ConfigurationError
from tasks.support.settings import CHECKOUT, Settings, load


def person(folder: Path, **document: object) -> Settings:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(document))
    return load(environment={"DOCKER_CONFIG": str(folder)})


def left(base: Path) -> list[Path]:
    return sorted(base.rglob("*"))


def test_only_the_needed_logins_are_in_it_and_only_the_user_can_read_it(tmp_path: Path) -> None:
    auths = {
        "one.example": {"auth": "dTpv"},
        "two.example": {"identitytoken": "tok"},
        "three.example": {"auth": "dTp0"},
    }
    settings = person(
        tmp_path / "docker", auths=auths, proxies={"default": {"httpProxy": "http://p"}}, credsStore="", HttpHeaders={}
    )
    base = tmp_path / "base"
    base.mkdir()
    logins = find_logins(settings, ["one.example", "two.example", "nobody.example"])
    with private_config(settings, logins, base) as private:
        file = private.folder / "config.json"
        written = json.loads(file.read_text())
        assert written == {
            "auths": {"one.example": {"auth": "dTpv"}, "two.example": {"identitytoken": "tok"}},
            "proxies": {"default": {"httpProxy": "http://p"}},
        }
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        for folder in (private.folder, private.folder.parent):
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert private.environment()["DOCKER_CONFIG"] == str(private.folder)
    assert left(base) == []


def test_dockerhub_has_the_key_that_docker_knows(tmp_path: Path) -> None:
    settings = load(
        environment={"DOCKERHUB_USERNAME": "u", "DOCKERHUB_TOKEN": "o", "DOCKER_CONFIG": str(tmp_path / "none")}
    )
    assert find_logins(settings, ["docker.io"]) == {"https://index.docker.io/v1/": {"auth": "dTpv"}}
    assert as_login(find_credential("docker.io", settings)) == {"username": "u", "password": "o"}
    assert as_login(Credential("test", identity_token="t")) == {"identitytoken": "t"}
    assert as_login(Credential("test", registry_token="t")) == {"registrytoken": "t"}
    assert as_login(None) == {}


def test_plugins_and_builders_of_the_person_are_still_found(tmp_path: Path) -> None:
    settings = person(tmp_path / "docker")
    for name in ("cli-plugins", "buildx"):
        (tmp_path / "docker" / name).mkdir()
    with private_config(settings, {}, tmp_path) as private:
        written = json.loads((private.folder / "config.json").read_text())
        assert written["cliPluginsExtraDirs"] == [str(tmp_path / "docker" / "cli-plugins")]
        assert private.environment()["BUILDX_CONFIG"] == str(tmp_path / "docker" / "buildx")
    own = load(environment={"DOCKER_CONFIG": str(tmp_path / "docker"), "BUILDX_CONFIG": "/elsewhere"})
    with private_config(own, {}, tmp_path) as private:
        assert "BUILDX_CONFIG" not in private.environment()


@pytest.mark.parametrize("text", ["", "{", "[]", '"x"', "\xff"])
def test_a_broken_configuration_of_the_person_is_not_taken_over(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    settings = load(environment={"DOCKER_CONFIG": str(tmp_path)})
    with private_config(settings, {"one.example": {"auth": "dTpv"}}, tmp_path) as private:
        assert json.loads((private.folder / "config.json").read_text()) == {"auths": {"one.example": {"auth": "dTpv"}}}


def test_it_goes_after_an_error_too(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), private_config(load(environment={}), {}, tmp_path):
        raise KeyboardInterrupt
    assert left(tmp_path) == []


def test_runs_at_the_same_time_have_their_own_and_leave_nothing(tmp_path: Path, repetitions: int) -> None:
    together = threading.Barrier(8)

    def run(number: int) -> Path:
        together.wait()
        for turn in range(20 * repetitions):
            auths = {"one.example": {"auth": f"{number}-{turn}"}}
            with private_config(load(environment={}), auths, tmp_path) as private:
                assert json.loads((private.folder / "config.json").read_text()) == {"auths": auths}
        return private.folder

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(run, range(8)))) == 8
    assert left(tmp_path) == []


KILLED = """
import os, signal, sys
from pathlib import Path
from tasks.images.docker_config import private_config
from tasks.support.settings import load
with private_config(load(environment={}), {"one.example": {"auth": "secret"}}, Path(sys.argv[1])):
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_run_left_goes_with_the_next_and_a_living_ones_stays(tmp_path: Path) -> None:
    with private_config(load(environment={}), {}, tmp_path) as living:
        killed = subprocess.run(
            [sys.executable, "-c", KILLED, tmp_path], env={**os.environ, "PYTHONPATH": str(CHECKOUT)}, check=False
        )
        assert killed.returncode == -9
        assert len(list(tmp_path.glob("*/*"))) == 2
        with private_config(load(environment={}), {}, tmp_path) as following:
            assert set(tmp_path.glob("*/*")) == {living.folder, following.folder}
    assert left(tmp_path) == []


@pytest.mark.parametrize("kind", ["open to others", "a link", "a file"])
def test_a_folder_that_others_could_have_put_there_is_refused(tmp_path: Path, kind: str) -> None:
    parent = tmp_path / f"omni-ci-logins-{os.getuid()}"
    if kind == "open to others":
        parent.mkdir()
        parent.chmod(0o777)
    elif kind == "a link":
        (tmp_path / "real").mkdir(0o700)
        parent.symlink_to(tmp_path / "real")
    else:
        parent.touch()
    with pytest.raises(ConfigurationError, match="only this user"), private_config(load(environment={}), {}, tmp_path):
        pass


def test_it_is_kept_in_memory_where_the_system_has_a_folder_for_that(tmp_path: Path) -> None:
    with private_config(load(environment={"XDG_RUNTIME_DIR": str(tmp_path)}), {}) as private:
        assert private.folder.is_relative_to(tmp_path)
    with private_config(load(environment={"XDG_RUNTIME_DIR": str(tmp_path / "none")}), {}) as private:
        assert not private.folder.is_relative_to(tmp_path / "none")
