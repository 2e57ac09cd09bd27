"""The test run itself, started by a script in the background: without Ctrl-C or a terminal."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.children import TIMEOUT, environment

HOME = Path(__file__).parents[2]

# Ignores SIGINT, as a shell without job control does for a command with `&`.
IGNORING = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
os.execv(sys.executable, [sys.executable, "-m", "pytest", *sys.argv[1:]])
"""

# A test in the process of pytest, and a test in a child process.
INTERRUPTED = """
import os, signal
import pytest
from tests.helpers.children import python

def test_here():
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)

def test_in_a_child():
    assert python("import signal; print(signal.getsignal(signal.SIGINT).__name__)") == (
        "default_int_handler\\n"
    )
"""


@pytest.mark.budget(0)
@pytest.mark.skipif(os.name == "nt", reason="no signals between processes")
def test_interrupts_work_where_the_shell_ignores_them(tmp_path):
    (tmp_path / "test_interrupted.py").write_text(INTERRUPTED)
    # conftest is named, because it is not in the folder of this test or above.
    options = ["-p", "conftest", "-p", "no:cacheprovider", "-c", HOME / "pyproject.toml"]
    done = subprocess.run(
        [sys.executable, "-c", IGNORING, *options, tmp_path],
        env=environment(),
        cwd=HOME,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        start_new_session=True,
        timeout=TIMEOUT,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
