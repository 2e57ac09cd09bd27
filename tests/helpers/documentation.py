"""Every code block of README.md, docs/ and docs/recipes/ is a test, in the order of the page.

Python blocks of one page share their names, and where a block shows `>>>` its output is
compared. Shell blocks are run by bash with the command `layoutkit` at hand, and must succeed.
Both work in an empty folder that a page has to itself. Blocks marked `text` are not run.

A page is all that its reader sees: no code is hidden in comments. Only what says which blocks are
skipped stands there, and may ask whether packages are missing, or a program:

    <!-- skip: start if(missing("torch"), reason="PyTorch is not installed") -->
    <!-- skip: start if(no_command("java"), reason="Java is not installed") -->
"""

import doctest
import os
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from typing import Any

from sybil import Example, Sybil
from sybil.parsers.markdown import CodeBlockParser, PythonCodeBlockParser, SkipParser

__all__ = ["pytest_collect_file"]


def _run_shell(example: Example) -> None:
    commands = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{commands}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", example.parsed],
        env=environment,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise AssertionError(f"exit code {done.returncode}\n{done.stdout}{done.stderr}")


def _missing(*packages: str) -> bool:
    """Whether one of these packages is not installed."""
    return any(find_spec(package) is None for package in packages)


def _no_command(name: str) -> bool:
    """Whether a program is not installed."""
    return which(name) is None


def _enter_folder(names: dict[str, Any]) -> None:
    names["missing"], names["no_command"] = _missing, _no_command
    names["_folder"] = tempfile.TemporaryDirectory()
    names["_before"] = Path.cwd()
    os.chdir(names["_folder"].name)


def _leave_folder(names: dict[str, Any]) -> None:
    os.chdir(names["_before"])
    names["_folder"].cleanup()


pytest_collect_file = Sybil(
    parsers=[
        PythonCodeBlockParser(doctest_optionflags=doctest.ELLIPSIS),
        CodeBlockParser(language="bash", evaluator=_run_shell),
        SkipParser(),
    ],
    path=str(Path(__file__).parents[2]),
    patterns=["README.md", "docs/*.md", "docs/recipes/*.md"],
    setup=_enter_folder,
    teardown=_leave_folder,
).pytest()
