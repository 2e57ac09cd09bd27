"""Run every code block of README.md, docs/ and docs/recipes/ as a test, in the order of the page.

Python blocks of one page share their names; the output of blocks with `>>>` (`pycon`) is compared.
Shell blocks are run by bash with the `layoutkit` command on PATH, and must succeed. Each page has
an empty working directory. Blocks marked `text` are not run.

A page has no hidden code in comments, except the conditions for skipping blocks, which can test
for missing packages or programs:

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
from sybil.evaluators.python import PythonEvaluator
from sybil.parsers.markdown import CodeBlockParser, PythonCodeBlockParser, SkipParser

__all__ = ["pytest_collect_file"]


def _run_shell(example: Example) -> None:
    commands = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{commands}:{os.environ['PATH']}"}
    process = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", example.parsed],
        env=environment,
        capture_output=True,
        text=True,
    )
    if process.returncode:
        raise AssertionError(f"exit code {process.returncode}\n{process.stdout}{process.stderr}")


def _missing(*packages: str) -> bool:
    """Return True if one of these packages is not installed."""
    return any(find_spec(package) is None for package in packages)


def _no_command(name: str) -> bool:
    """Return True if a program is not installed."""
    return which(name) is None


def _enter_folder(names: dict[str, Any]) -> None:
    names["__name__"] = "page"  # the module of its classes, which is builtins without a name
    names["missing"], names["no_command"] = _missing, _no_command
    names["_folder"] = tempfile.TemporaryDirectory()
    names["_before"] = Path.cwd()
    os.chdir(names["_folder"].name)


def _leave_folder(names: dict[str, Any]) -> None:
    os.chdir(names["_before"])
    names["_folder"].cleanup()


# Blocks with prompts are `pycon`: the copy button of the site omits prompts and outputs there.
_examples = PythonCodeBlockParser(doctest_optionflags=doctest.ELLIPSIS)
_examples.codeblock_parser = CodeBlockParser("pycon", PythonEvaluator())

pytest_collect_file = Sybil(
    parsers=[
        PythonCodeBlockParser(),
        _examples,
        CodeBlockParser(language="bash", evaluator=_run_shell),
        SkipParser(),
    ],
    path=str(Path(__file__).parents[2]),
    patterns=["README.md", "docs/*.md", "docs/recipes/*.md"],
    setup=_enter_folder,
    teardown=_leave_folder,
).pytest()
