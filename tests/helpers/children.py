"""Run code in fresh Python processes and return their output."""

import os
import signal
import subprocess
import sys

TIMEOUT = 120  # seconds; a hang is a failure, not a wait


def environment(**variables):
    """Return the environment of this process with some variables changed."""
    # Python 3.12 warns of forks in processes with threads, which some tests need.
    changed = {**os.environ, "PYTHONWARNINGS": "ignore::DeprecationWarning", **variables}
    return {name: str(value) for name, value in changed.items()}


def start(code, sys_argv=(), **variables):
    """Run `code` in a new interpreter and do not wait for it."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *sys_argv],
        env=environment(**variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def finish(process):
    """Return the output of a started interpreter; it must succeed and write nothing to stderr."""
    try:
        out, err = process.communicate(timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # including its forked children
        process.communicate()
        raise
    assert (process.returncode, err) == (0, ""), f"exit code {process.returncode}\n{out}{err}"
    return out


def python(code, sys_argv=(), **variables):
    """Run `code` in a new interpreter and return its output."""
    return finish(start(code, sys_argv, **variables))
