"""What a missing package means: a machine that lacks a dependency group, not a bug."""

from __future__ import annotations

import sys

from tasks.support.errors import ConfigurationError

_OURS = "tasks"


def missing_package(error: ModuleNotFoundError) -> ConfigurationError | None:
    """Return the error to show for an import that failed, or None when no package that could be installed is missing.

    Packages are imported where they are needed, so each import in a function may fail; the Task class asks here.
    """
    package = (error.name or "").partition(".")[0]
    if not package or package == _OURS or package in sys.stdlib_module_names:
        return None
    return not_installed(package)


def not_installed(package: str) -> ConfigurationError:
    """Make the error for a package that is not installed beside this tool."""
    return ConfigurationError(f"{package} is not installed here", hint="install this tool's dependency group 'release'")
