"""The one place that turns what went wrong into a line for a person and an exit code.

Tidegate's exceptions are meant to be read: their messages say what, where, what was expected and the next step. So are
the system's (a missing file, a port in use). Anything else is a fault in Tidegate and keeps its
traceback, and so does everything when TIDEGATE_DEBUG is set.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from tidegate.log_format import logs_objects

_logger = logging.getLogger(__name__)

# Import names of the packages of the extra `spark`, without which `tidegate job` cannot even be loaded.
SPARK_EXTRA = frozenset({"fastavro", "msgspec", "numpy", "py4j", "pyarrow", "pyspark", "regex"})
CHECKPOINTS_EXTRA = frozenset({"azure", "psycopg"})
TRACING_EXTRA = frozenset({"opentelemetry"})
CAPTURE_EXTRA = frozenset({"obstore"})


def run_and_explain(run: Callable[[], Any]) -> None:
    """Call `run` and leave the process with the exit code that its result or its exception means.

    Raises:
        SystemExit: always; 0 done (or what `run` returned), 1 could not be done, 2 asked wrongly, 130 Ctrl-C.
        Exception: a fault in Tidegate, or any error while TIDEGATE_DEBUG is set; with a log of JSON, it is logged.
    """
    try:
        code = run()
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except BrokenPipeError:
        # Our output's reader left, as in `tidegate tail … | head`; Python must not complain again when it flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except Exception as error:
        if _interrupted(error):
            sys.exit(130)
        message = explanation(error)
        is_fault = message is None or bool(os.environ.get("TIDEGATE_DEBUG"))
        if logs_objects():  # whoever collects them misses any other line
            told = message or f"{type(error).__name__}: {error}"
            _logger.critical("%s", told, exc_info=error if is_fault else None)
        elif is_fault:
            raise
        else:
            click.echo(f"tidegate: {message}", err=True)
        sys.exit(exit_code(error))
    sys.exit(code if isinstance(code, int) else 0)


def exit_code(error: Exception) -> int:
    """2 if the command was asked wrongly, 1 if it could not be done."""
    return error.exit_code if isinstance(error, click.ClickException) else 1


def explanation(error: Exception) -> str | None:
    """What a person should read instead of the traceback of `error`; None if it is a fault in Tidegate."""
    if isinstance(error, click.UsageError):
        path = error.ctx.command_path if error.ctx else "tidegate"
        said = _of_number(error) or _of_parent(error) or _uncapitalised(error.format_message())
        return f"{said}\ntry '{path} --help'"
    if isinstance(error, click.ClickException):
        return error.format_message()
    if isinstance(error, ModuleNotFoundError):
        return _missing_extra(error)
    if type(error).__module__.partition(".")[0] == "tidegate":
        return str(error)
    if isinstance(error, FileNotFoundError) and (folder := _missing_folder(error)) is not None:
        return f"{error.filename}: there is no folder '{folder}'; make it first"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return None


def _of_number(error: click.UsageError) -> str | None:
    """Say which numbers an option takes, where Click says that something is no valid integer range."""
    if not isinstance(error, click.BadParameter) or error.param is None:
        return None
    type_ = error.param.type
    got = re.match(r"(.+) is not (?:a valid|in the range)", error.message, re.DOTALL)
    if got is None or not isinstance(type_, click.types.IntParamType | click.types.FloatParamType):
        return None
    kind = "a whole number" if isinstance(type_, click.types.IntParamType) else "a number"
    least, most = getattr(type_, "min", None), getattr(type_, "max", None)
    if least is not None and most is not None:
        kind += f" from {least} to {most}"
    elif least is not None:
        kind += f" above {least}" if getattr(type_, "min_open", False) else f", {least} or more"
    elif most is not None:
        kind += f", at most {most}"
    return f"invalid value for '{error.param.opts[-1]}': expected {kind}, got {got[1]}"


def _of_parent(error: click.UsageError) -> str | None:
    """Say where an option belongs that a group before the command has."""
    if not isinstance(error, click.NoSuchOption) or error.ctx is None:
        return None
    option, group = error.option_name, error.ctx.parent
    while group is not None and not any(option in one.opts for one in group.command.params):
        group = group.parent
    if group is None:
        return None
    path = group.command_path
    rest = error.ctx.command_path.removeprefix(path)
    return f"{option} is an option of '{path}': give it there, as in '{path} {option} …{rest}'"


def _missing_folder(error: FileNotFoundError) -> Path | None:
    """Return the folder of a file that could not be opened, if there is no such folder."""
    if not isinstance(error.filename, str):
        return None
    folder = Path(error.filename).parent
    return None if folder.exists() else folder


def _interrupted(error: BaseException | None) -> bool:
    """Whether an interrupt is behind it: one in the middle of a call to Spark comes back as what Spark made of it."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__context__
    return False


def _missing_extra(error: ModuleNotFoundError) -> str | None:
    package = (error.name or "").partition(".")[0]
    if package in SPARK_EXTRA:
        return f'this needs Spark and its companions ({package} is missing): pip install "tidegate[spark]"'
    if package in CHECKPOINTS_EXTRA:
        return (
            f'this needs the clients of hubs and databases ({package} is missing): pip install "tidegate[checkpoints]"'
        )
    if package in TRACING_EXTRA:
        return f'traces need {package}: pip install "tidegate[tracing]"'
    if package in CAPTURE_EXTRA:
        return f'capture to an object store needs {package}: pip install "tidegate[capture]"'
    return None


def _uncapitalised(message: str) -> str:
    return message[:1].lower() + message[1:]
