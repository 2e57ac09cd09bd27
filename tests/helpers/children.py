"""Other processes for tests: what a fresh interpreter does, and what it leaves behind."""

import os
import signal
import subprocess
import sys

TIMEOUT = 120  # seconds; a hang is a failure, not a wait


def environment(**variables):
    """This process's environment with some variables changed."""
    # Newer Pythons warn of forks beside threads, which is what some of the tests are about.
    changed = {**os.environ, "PYTHONWARNINGS": "ignore::DeprecationWarning", **variables}
    return {name: str(value) for name, value in changed.items()}


def start(code, sys_argv=(), **variables):
    """Run `code` in a new interpreter and don't wait for it."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *sys_argv],
        env=environment(**variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def finish(process):
    """What a started interpreter printed. It has to end well and say nothing on stderr."""
    try:
        out, err = process.communicate(timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # with the children that it has forked
        process.communicate()
        raise
    assert (process.returncode, err) == (0, ""), f"exit code {process.returncode}\n{out}{err}"
    return out


def python(code, sys_argv=(), **variables):
    """What `code` prints in a new interpreter."""
    return finish(start(code, sys_argv, **variables))
