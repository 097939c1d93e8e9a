"""Runs the upload server: pypi_server.py PORT FOLDER TOKEN_FILE. Uploading needs the user __token__ and that token."""

from __future__ import annotations

import sys
from pathlib import Path
from wsgiref.simple_server import make_server

import pypiserver  # type: ignore[import-untyped]


def main(port: str, folder: str, token_file: str) -> None:
    token = Path(token_file).read_text(encoding="utf-8")
    # Its own password files need passlib, which nobody keeps up; this is the same check with one user.
    app = pypiserver.app(
        roots=[Path(folder)],
        auther=lambda user, password: (user, password) == ("__token__", token),
        authenticate=["update"],
        disable_fallback=True,
        hash_algo="sha256",
    )
    make_server("127.0.0.1", int(port), app).serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
