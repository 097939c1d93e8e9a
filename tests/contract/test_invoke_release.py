"""The release tasks as a person runs them."""

from __future__ import annotations

import pytest

from tests.contract.conftest import Invoke

COMMIT = "1" * 40
MOVING = {
    "publish": ("release.publish", "nightly", "--commit", COMMIT, "--commit-time", "2026-01-01T00:00:00Z"),
    "rollback": ("release.rollback", "nightly"),
    "cleanup": ("release.cleanup",),
    "record": ("release.record", "cuda_merge", "--commit", COMMIT),
}


@pytest.mark.parametrize("deed", MOVING)
def test_a_registrys_ledger_is_never_a_folder_that_nobody_named(deed: str, invoke: Invoke) -> None:
    refused = invoke(*MOVING[deed], "--profile", "production", env={"OMNI_CI_PUBLIC": "127.0.0.1:1/omni"})
    assert refused.code == 78, refused.err
    assert "no store is named" in refused.err
    first = refused.err.splitlines()[0]
    assert first.startswith("profile production: ")
    assert "/.omni-ci/store" in first
