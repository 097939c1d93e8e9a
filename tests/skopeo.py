"""skopeo, as a judge of images that knows nothing of ours."""

from __future__ import annotations

import subprocess

from tests.services import find_program, service_missing


def skopeo(*words: str) -> str:
    """Run skopeo and return what it prints; its failure is the test's."""
    program = find_program("skopeo")
    if program is None:
        service_missing("the judge is missing: no `skopeo` (apt-get install skopeo)")
    done = subprocess.run([program, "--insecure-policy", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
