"""skopeo, as a judge of images that knows nothing of ours."""

from __future__ import annotations

import os
import subprocess
import tempfile

from tests.services import find_program, service_missing

_TIMEOUT = 120.0


def skopeo(*words: str) -> str:
    """Run skopeo without anybody's logins and return what it prints, to the byte; its failure is the test's."""
    program = find_program("skopeo")
    if program is None:
        service_missing("the judge is missing: no `skopeo` (apt-get install skopeo)")
    with tempfile.TemporaryDirectory() as home:
        environment = {"PATH": os.defpath, **dict.fromkeys(("HOME", "TMPDIR", "XDG_RUNTIME_DIR"), home)}
        argv = [program, "--insecure-policy", *words]
        done = subprocess.run(argv, capture_output=True, check=False, env=environment, timeout=_TIMEOUT)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()
