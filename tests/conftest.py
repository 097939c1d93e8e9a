"""Options that every test sees."""

from __future__ import annotations

import os
import signal

import pytest
from hypothesis import settings

# A shell starts what it puts in the background with Ctrl-C ignored, and children inherit that; tests send it.
signal.signal(signal.SIGINT, signal.default_int_handler)


# In a git hook these name the hook's repository, and the repositories that tests make would be that one.
for _name in [name for name in os.environ if name.startswith("GIT_")]:
    del os.environ[_name]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--repetitions", type=int, default=2, metavar="N", help="how often race tests repeat themselves (default: 2)"
    )
    parser.addoption(
        "--sweep", action="store_true", help="try every case and every boundary of large sets, not a sample: slow"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Try fewer generated cases in the fast set; a run of everything tries hypothesis' own number.

    A run that is started by nohup or from a hook inherits signals that are ignored: the tests of signals need them as
    a person's shell hands them out.
    """
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL if number != signal.SIGINT else signal.default_int_handler)
    if "not slow" in config.option.markexpr:
        settings.register_profile("fast", max_examples=20)
        settings.load_profile("fast")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--sweep"):
        return
    left_out = [item for item in items if item.get_closest_marker("sweep") is not None]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item.get_closest_marker("sweep") is None]


@pytest.fixture
def kill_step(request: pytest.FixtureRequest) -> int:
    """Return how many changes lie between two kills on S3."""
    return 1 if request.config.getoption("--sweep") else 29


@pytest.fixture
def repetitions(request: pytest.FixtureRequest) -> int:
    """Return how often a race test repeats itself."""
    count: int = request.config.getoption("--repetitions")
    return count
