"""`layoutkit watch`: run a program, and report its copies because of layouts."""

import argparse
import os
import runpy
import sys
from importlib.util import find_spec
from pathlib import Path

from .._utils.files import replace_atomically
from ..errors import ArgumentError


def watch(arguments: argparse.Namespace) -> int:
    """Run a script as `python SCRIPT ARGUMENT...` does; print the report, also after an error."""
    if find_spec("torch") is None:
        raise ArgumentError("watch records the operations of PyTorch, which is not installed")
    script = Path(arguments.script)
    if not script.is_file():
        raise ArgumentError(f"{script} is not a file; give the path of a Python program")
    outputs = [Path(path) for path in (arguments.json, arguments.html) if path]
    for path in outputs:
        if not os.access(path.resolve().parent, os.W_OK):
            raise ArgumentError(f"{path}: its folder is not writable; choose another path")
    from ..torch import watch as watch_copies

    before = sys.argv, sys.path
    sys.argv = [str(script), *arguments.arguments]
    sys.path = [str(script.resolve().parent), *sys.path]
    code = 0
    try:
        with watch_copies(arguments.min_bytes) as report:
            runpy.run_path(str(script), run_name="__main__")
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        if isinstance(stop.code, str):
            print(stop.code, file=sys.stderr)
    except Exception:
        sys.excepthook(*sys.exc_info())
        code = 1
    finally:
        sys.argv, sys.path = before
        print(f"\n{report}")
        for path, text in ((arguments.json, report.to_json()), (arguments.html, report.to_html())):
            if path:
                with replace_atomically(Path(path)) as file:
                    # A file name may have bytes that are not UTF-8.
                    file.write(text.encode(errors="backslashreplace"))
    return code
