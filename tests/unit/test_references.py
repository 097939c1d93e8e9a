"""Addresses of repositories: what is one, what is refused, and that no login in one is ever shown."""

from __future__ import annotations

import string
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.registry.references import RepositoryName, check_digest, check_image, check_reference, check_tag
from tasks.support.errors import UsageError

PASSWORD = "hunter2pw"
DIGEST = f"sha256:{'0' * 64}"

HOSTS = (
    "docker.io", "localhost", "localhost:1", "127.0.0.1:65535", "[::1]:5000", "[2001:db8::1]", "a-b.example:443",
    "[::ffff:127.0.0.1]:5000", f"{'a' * 63}.example",
)  # fmt: skip

NO_HOSTS = (
    "127.0.0.1:0", "127.0.0.1:00000", "127.0.0.1:65536", "127.0.0.1:99999", "127.0.0.1:abc", "127.0.0.1:",
    "127.0.0.1:123456", "127.0.0.1:\u0663", "[:::::]", "[:::::]:1", "[::zz]", "[]", "[1]", "[::1%eth0]", "[::1", "::1",
    "[::1]:99999", "a..b", ".a", "a.", "-a.b", "a-.b", "a_b.c", f"{'a' * 64}.example", f"{'a.' * 127}ab.c", "a.b\n",
)  # fmt: skip


@pytest.mark.parametrize("host", HOSTS)
def test_a_registry_is_a_name_or_an_address_with_a_port_that_there_is(host: str) -> None:
    assert str(RepositoryName.parse(f"{host}/x/y")) == f"{host}/x/y"


@pytest.mark.parametrize("host", NO_HOSTS)
def test_what_cannot_be_asked_is_no_registry(host: str) -> None:
    with pytest.raises(UsageError, match=r"^not a repository: "):
        RepositoryName.parse(f"{host}/x/y")


@pytest.mark.parametrize("folder", ["/a", "/a b", "/a@b", "/ü/\u6f22", "/a%b", "/a?b#c", "/a:b"])
def test_a_folder_is_read_as_it_is_written(folder: str) -> None:
    for start in ("file://", "file://localhost", "file:"):
        text = Path(folder).as_uri().replace("file://", start)
        assert RepositoryName.parse(text).folder == Path(folder)


@pytest.mark.parametrize(
    "rest", ["//h/x", "///x?y", "///x#y", "x", "", "//[::1", "///%ff", "///x%00", "//localhost/tmp/x%00", "///\udcff"]
)
def test_what_is_no_folder_is_refused(rest: str) -> None:
    with pytest.raises(UsageError):
        RepositoryName.parse(f"file:{rest}")


@pytest.mark.parametrize("letter", [*map(chr, range(0x20)), *map(chr, range(0x7F, 0xA0)), "\u2028", "\u2029"])
def test_a_folder_with_a_control_character_is_refused(letter: str) -> None:
    for text in (Path(f"/x{letter}y").as_uri(), f"file:///x{letter}y", f"file:///x/y{letter}"):
        with pytest.raises(UsageError) as caught:
            RepositoryName.parse(text)
        assert letter not in caught.value.message


LOGINS = (
    "https://{}@127.0.0.1:1/x/y", "http://{}@h/x", "{}@127.0.0.1:1/x/y", "{}@h/x", "{}@h", "file://{}@h/x",
    "file://{}@localhost/x", "file:{}@h/x", "docker://{}@h/x:tag", f"{{}}@h/x@{DIGEST}", "oci:{}@h/x", "//{}@h/x",
    "x/{}@h/y", "https://h/x?token={}", "h/x/{}@", "https://{}?a@h/x", "{}?a@h/x",
)  # fmt: skip
PAIRS = (
    f"user:{PASSWORD}", f":{PASSWORD}", PASSWORD, f"user:a@{PASSWORD}", f"user:{PASSWORD}@a", f"user:a/{PASSWORD}",
    f"user:{PASSWORD}/a", f"user:a {PASSWORD}", f"user:a\n{PASSWORD}", f"user:[{PASSWORD}", f"u:{'a' * 100}{PASSWORD}",
)  # fmt: skip


@pytest.mark.parametrize("form", LOGINS)
@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("read", [RepositoryName.parse, check_tag, check_digest, check_reference])
def test_no_login_is_shown(read: Callable[[str], object], form: str, pair: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(form.format(pair))
    assert PASSWORD not in f"{caught.value.message} {caught.value.hint}"
    assert "\n" not in caught.value.message


@pytest.mark.parametrize("form", LOGINS[:9])
def test_a_login_is_said_to_be_out_of_place(form: str) -> None:
    with pytest.raises(UsageError) as caught:
        RepositoryName.parse(form.format(f"user:{PASSWORD}"))
    assert "a login does not belong in an address" in (caught.value.hint or "")


@given(st.text(string.ascii_lowercase + string.digits + ":/@[]%?#. \n\t\0\udc80", max_size=30), st.booleans())
def test_any_text_is_an_address_that_is_read_again_or_refused(text: str, local: bool) -> None:
    try:
        name = RepositoryName.parse(f"file:{text}" if local else text)
    except UsageError:
        return
    assert RepositoryName.parse(str(name)) == name


def test_a_digest_is_no_login() -> None:
    with pytest.raises(UsageError, match=rf"h\.example/x:1@{DIGEST[:20]}"):
        RepositoryName.parse(f"h.example/x:1@{DIGEST}")


@pytest.mark.parametrize("host", ["", *(f"{host}/" for host in HOSTS)])
@pytest.mark.parametrize("name", ["a", "a/b", "a-b/c_d/e.f"])
@pytest.mark.parametrize("end", ["", ":1", ":v1.0_x", f"@{DIGEST}", f":1@{DIGEST}"])
def test_an_image_is_a_repository_perhaps_with_a_tag_and_a_digest(host: str, name: str, end: str) -> None:
    assert check_image(f"{host}{name}{end}") == f"{host}{name}{end}"


@pytest.mark.parametrize(
    "text",
    ["", " ", ":1", "@", f"@{DIGEST}", "a:", "a@", "a:1:2", "a:-", "A/b", "a b", "file:///a", "a\nb", "a@sha256:1"],
)
def test_what_is_no_image_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match="not an image"):
        check_image(text)


def test_a_login_before_an_image_is_not_shown() -> None:
    with pytest.raises(UsageError) as caught:
        check_image(f"user:{PASSWORD}@host.example/a:1")
    assert PASSWORD not in f"{caught.value!r}{caught.value.message}{caught.value.hint}"
