"""What is masked although nobody declared it a secret."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.support.redaction import hide_login, is_secret_name, redact

NAMES = st.text("abcXYZ019-._~%", min_size=1, max_size=12)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://user:pw@host/p", "https://***@host/p"),
        ("https://token@host", "https://***@host"),
        ("https://u:p@ss@host/p@1", "https://***@host/p@1"),
        ("proxy http://a:b@c:1 and s3://k:v@d", "proxy http://***@c:1 and s3://***@d"),
        ("git+https://host/repo@main", "git+https://host/repo@main"),
        ("mail me@example.invalid", "mail me@example.invalid"),
        ("https://h/p?a=1&access_token=x&b=2", "https://h/p?a=1&access_token=***&b=2"),
        ("https://h/p?PASSWORD=x#frag", "https://h/p?PASSWORD=***#frag"),
        ("https://h/p?X-Amz-Credential=AK/1&X-Amz-Date=2", "https://h/p?X-Amz-Credential=***&X-Amz-Date=2"),
        ("Authorization: Bearer abc.def", "Authorization: ***"),
        ("authorization=abc", "authorization=***"),
        ("{'Authorization': 'Basic dTpw', 'Accept': 'x'}", "{'Authorization': '***', 'Accept': 'x'}"),
        ("curl sent Bearer abcdefgh12345", "curl sent Bearer ***"),
        ("basic usage and bearer bonds", "basic usage and bearer bonds"),
        ("plain text", "plain text"),
        ("", ""),
    ],
)
def test_redact(text: str, shown: str) -> None:
    assert redact(text) == shown


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("https://user:pw@host/p", "https://***@host/p"),
        ("user:pw@host/p", "***@host/p"),
        ("http://u:a b@c/d\ne@host:1", "http://***@host:1"),
        ("file://user:pw@host/p", "file://***@host/p"),
        ("https://u:p?w@host/p", "https://***"),
        ("https://host/p?x=a@b", "https://***"),
        ("https://host/p?x=secret", "https://host/p?***"),
        ("host/p", "host/p"),
        ("", ""),
    ],
)
def test_a_login_is_hidden_in_addresses_that_are_none(address: str, shown: str) -> None:
    assert hide_login(address) == shown


@given(NAMES, NAMES, NAMES)
def test_userinfo_of_any_address_is_gone(user: str, password: str, host: str) -> None:
    assert redact(f"see https://{user}:{password}@{host}/x.") == f"see https://***@{host}/x."


@given(st.text())
def test_redacting_twice_changes_nothing_more(text: str) -> None:
    assert redact(redact(text)) == redact(text)


@pytest.mark.parametrize(
    "name", ["HF_TOKEN", "MY_SECRET_X", "OPENAI_API_KEY", "aws_access_key_id", "DbPassword", "PRIVATE"]
)
def test_secret_names(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize("name", ["HOME", "CUDA_VISIBLE_DEVICES", "VLLM_OMNI_STORAGE_PATH", "BUILDKITE_COMMIT", ""])
def test_other_names(name: str) -> None:
    assert not is_secret_name(name)
