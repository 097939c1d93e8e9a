"""A package that says which version it is."""

from importlib.metadata import version

__version__ = version("omni-ci-rehearsal-sample")
