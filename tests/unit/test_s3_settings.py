"""AWS settings that no request can be made with: the right variable is named, and nothing is sent."""

from __future__ import annotations

import pytest

from tasks.support.errors import ConfigurationError, CredentialsError
from tasks.support.store import open_store

USABLE = {
    "AWS_ACCESS_KEY_ID": "key",
    "AWS_SECRET_ACCESS_KEY": "hush",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:9",
    "AWS_CONFIG_FILE": "/dev/null",
}


@pytest.fixture(autouse=True)
def _usable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_SESSION_TOKEN", raising=False)
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    for name, value in USABLE.items():
        monkeypatch.setenv(name, value)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["AWS_ACCESS_KEY_ID", "AWS_SESSION_TOKEN"])
@pytest.mark.parametrize("value", ["hu\nsh", "hush\n", "\nhush", "hu\rsh", "hush\r\n"])
def test_a_credential_with_a_line_break_is_no_broken_connection(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(CredentialsError, match=name) as refused:
        open_store("s3://bucket").head("k")
    assert "\n" not in refused.value.message
    assert "hush" not in refused.value.message


@pytest.mark.parametrize("region", ["not a region", "x/y", "é", "a" * 80])
def test_a_region_that_is_none_is_named(region: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", region)
    with pytest.raises(ConfigurationError, match="region") as refused:
        open_store("s3://bucket").head("k")
    assert "AWS_DEFAULT_REGION" in str(refused.value.hint)
    assert "ENDPOINT" not in refused.value.message


@pytest.mark.parametrize("address", ["nonsense", "http://a b/", "http://h:99999"])
def test_an_endpoint_that_is_none_is_named(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", address)
    with pytest.raises(ConfigurationError) as refused:
        open_store("s3://bucket").head("k")
    assert "AWS_ENDPOINT_URL_S3" in f"{refused.value.message} {refused.value.hint}"


def test_a_region_with_a_line_break_at_its_end_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1\n")
    with pytest.raises(CredentialsError, match="AWS_DEFAULT_REGION"):
        open_store("s3://bucket").head("k")
