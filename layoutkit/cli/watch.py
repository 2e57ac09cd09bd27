"""`layoutkit watch`: run a program, and report its copies because of layouts."""

import argparse
import os
import runpy
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from .._utils.errors import describe_error
from .._utils.files import replace_atomically
from .._utils.validation import escape_controls
from ..errors import ArgumentError
from .printing import OptionalStream, escape_unencodable_output, open_closed_streams


def watch(arguments: argparse.Namespace) -> int:
    """Run a script as `python SCRIPT ARGUMENT...` does; print the report, also after an error."""
    if find_spec("torch") is None:
        raise ArgumentError(
            "watch records the operations of PyTorch, which is not installed; install torch"
        )
    script = Path(arguments.script)
    if not script.is_file():
        raise ArgumentError(f"{script} is not a file; give the path of a Python program")
    outputs = {
        name: Path(path).absolute()  # the program may change the working folder
        for name, path in (("json", arguments.json), ("html", arguments.html))
        if path
    }
    for path in outputs.values():
        if not os.access(path.resolve().parent, os.W_OK):
            raise ArgumentError(f"{path}: its folder is not writable; choose another path")
    from ..torch import watch as watch_copies

    with watch_copies(arguments.min_bytes) as report:
        code = _run_program(script, arguments.arguments)
    output = OptionalStream(sys.stdout)
    _optionally(lambda: print(f"\n{report}", file=output, flush=True))
    for name, path in outputs.items():
        _optionally(partial(_write, path, getattr(report, f"to_{name}")))
    return code


def _run_program(script: Path, arguments: list[str]) -> int:
    """Run a script as the main program; return the exit code that Python would return."""
    names = ("argv", "path", "stdin", "stdout", "stderr")
    before = {name: getattr(sys, name) for name in names}
    sys.argv = [str(script), *arguments]
    sys.path = [str(script.resolve().parent), *sys.path]
    try:
        runpy.run_path(str(script), run_name="__main__")
    except SystemExit as stop:
        if stop.code is None or isinstance(stop.code, int):
            return int(stop.code or 0)
        _optionally(partial(print, stop.code, file=sys.stderr))
        return 1
    except BaseException as error:
        _optionally(lambda: sys.excepthook(*sys.exc_info()))
        return 128 + signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
    finally:
        with suppress(Exception):  # the program may have closed it
            sys.stdout.flush()
        for name, value in before.items():
            setattr(sys, name, value)
        open_closed_streams()
        escape_unencodable_output()
    return 0


def _write(path: Path, make_text: Callable[[], str]) -> None:
    with replace_atomically(path) as file:
        # A file name may have bytes that are not UTF-8.
        file.write(make_text().encode(errors="backslashreplace"))


def _optionally(action: Callable[[], object]) -> None:
    """Run an action; an error is a message, since the exit code belongs to the program."""
    try:
        action()
    except Exception as error:
        with suppress(Exception):
            message = describe_error(error)
            print(f"layoutkit: error: watch: {escape_controls(message)}", file=sys.stderr)
