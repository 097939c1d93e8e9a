"""The Task class: turns errors into exit codes, ``--dry`` into ``--dry-run``, and a positional ``--help`` into help."""

from __future__ import annotations

import inspect
import signal
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Any

from invoke.program import Program
from invoke.tasks import Task
from invoke.tasks import task as invoke_task

from tasks.support import next_steps
from tasks.support.errors import OmniError, UsageError
from tasks.support.packages import missing_package

INTERRUPTED = 130
OUR_BUG = 70
BROKEN_PIPE = 141


class OmniTask(Task[Any]):
    """An invoke task whose failures have exit codes and, when foreseen, no traceback."""

    may_be_empty: frozenset[str] = frozenset()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the body; the process exits with the code of whatever error leaves it."""
        signal.signal(signal.SIGTERM, _terminate)
        try:
            self._refuse_option_as_value(kwargs)
            self._refuse_empty(kwargs)
            if args[0].config.run.dry:
                self._turn_dry(kwargs)
            with next_steps.given(kwargs):
                return super().__call__(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - the outermost layer: everything becomes an exit code here
            raise SystemExit(report(error)) from None
        except KeyboardInterrupt:
            raise SystemExit(report_interrupt()) from None

    def _refuse_option_as_value(self, values: Mapping[str, Any]) -> None:
        # invoke hands the word after a task to its required argument, even when it is an option.
        for name in self.positional or ():
            value = values.get(name)
            if value == "--help":
                self._show_help()
            if isinstance(value, str) and value.startswith("-"):
                hint = f"see invoke --help {self._called_as()}"
                raise UsageError(f"{value!r} is not a value for {name.upper()}", hint=hint)

    def _refuse_empty(self, values: Mapping[str, Any]) -> None:
        # A script whose variable is not set passes an empty word; taking the default then would do something else.
        for name, value in values.items():
            words = value if isinstance(value, list) else [value]
            if "" in words and name not in self.may_be_empty:
                raise UsageError(f"--{name.replace('_', '-')} is empty", hint="give it a value, or leave it out")

    def _show_help(self) -> None:
        from tasks.support.settings import CHECKOUT

        Program().run(["invoke", "-r", str(CHECKOUT), "--help", self._called_as()], exit=False)
        raise SystemExit(0)

    def _called_as(self) -> str:
        # A task knows its own name only, not the collection that it was called through.
        own = self.name.replace("_", "-")
        return next((word for word in sys.argv[1:] if word.split(".")[-1] == own), own)

    def _turn_dry(self, values: dict[str, Any]) -> None:
        if "dry_run" not in inspect.signature(self.body).parameters:
            raise UsageError(f"{self._called_as()} has no --dry-run", hint="run it without --dry (-R)")
        values["dry_run"] = True


def _terminate(number: int, _frame: FrameType | None) -> None:
    """End as after a signal, but through every clean-up on the way, such as aborting an upload in parts."""
    raise SystemExit(128 + number)


def report_interrupt() -> int:
    """Say that the person stopped it, and return the exit code for that (128 + SIGINT)."""
    from tasks.support import console

    console.say("interrupted; nothing is half-done, running it again is safe")
    return INTERRUPTED


def report(error: Exception) -> int:
    """Show an error to people and return its exit code; only unforeseen ones show a traceback."""
    from tasks.support import console

    if isinstance(error, ModuleNotFoundError):
        error = missing_package(error) or error
    if isinstance(error, OmniError):
        console.show_error(error)
        return error.exit_code
    if isinstance(error, BrokenPipeError):
        if sys.stderr is not None:
            sys.stderr.close()
        return BROKEN_PIPE
    console.say("".join(traceback.format_exception(error)).rstrip())
    console.say("error: this is a bug in the automation, not in your input")
    return OUR_BUG


def task(
    *,
    help: Mapping[str, str],  # noqa: A002 - invoke's own word
    example: str | None = None,
    iterable: Sequence[str] = (),
    may_be_empty: Sequence[str] = (),
) -> Callable[[Callable[..., Any]], OmniTask]:
    """Make a task of a function.

    Parameters without a default are positional; every other one is a flag. ``help`` has a line for each. An empty
    word is refused except for the parameters in ``may_be_empty``. ``example`` is a command line without its
    ``invoke``, shown by ``--help``, whose usage line names no positional.
    """

    def decorate(body: Callable[..., Any]) -> OmniTask:
        if example is not None:
            body.__doc__ = f"{(body.__doc__ or '').rstrip()}\n\nExample: invoke {example}\n"
        made: OmniTask = invoke_task(klass=OmniTask, help=dict(help), iterable=list(iterable), auto_shortflags=False)(
            body
        )
        made.may_be_empty = frozenset(may_be_empty)
        return made

    return decorate
