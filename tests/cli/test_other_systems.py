"""Windows and macOS, simulated on Linux by removing the functions that they lack.

A child process first removes the names that are missing on the other system from modules of the
standard library; then it imports layoutkit and runs calls and commands of users.
"""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

MACOS = {
    "os": "O_TMPFILE posix_fallocate posix_fadvise sched_getaffinity sched_setaffinity O_DIRECT "
    "O_PATH sendfile copy_file_range memfd_create eventfd splice getrandom preadv pwritev",
    "mmap": "MAP_POPULATE",
}
WINDOWS = {
    "os": MACOS["os"] + " O_CLOEXEC O_NOFOLLOW O_NONBLOCK O_DIRECTORY link fchmod fchown geteuid "
    "getuid getgid getegid getpgid killpg fork forkpty register_at_fork pread pwrite readv writev "
    "sysconf sysconf_names mkfifo mknod getloadavg nice statvfs fstatvfs setsid chown lchown "
    "wait3 wait4 waitid lockf fdatasync sync",
    "mmap": "MAP_POPULATE MAP_PRIVATE MAP_SHARED MAP_ANON MAP_ANONYMOUS PROT_READ PROT_WRITE",
    "signal": "SIGALRM SIGHUP SIGKILL SIGUSR1 SIGUSR2 SIGCHLD SIGPIPE SIGQUIT alarm setitimer "
    "pthread_sigmask sigwait",
    "modules": "fcntl resource pwd grp termios",
}

TAKE = """
import importlib, sys
for module, names in {lacks!r}.items():
    for name in names.split():
        if module == "modules":
            sys.modules[name] = None
        else:
            importlib.import_module(module).__dict__.pop(name, None)
"""

COMMANDS = """
import numpy as np
import layoutkit
from layoutkit.cli import main

def run(*words):
    try:
        return main([*words])
    except SystemExit as end:
        return end.code

assert run("bench", "--help") == 0
layoutkit.show_config()
for pattern in ("bhwc->bchw", "bhwc->chwb", "bhwc->(bh)wc"):
    for _ in range(2):  # a new file, and one that is replaced
        assert run("convert", "x.npy", "y.npy", pattern, "--quiet", "--chunk", "2") == 0
assert np.load("y.npy").shape == (20, 5, 3)
assert run("convert", "photos/cats", "p.npy", "bhwc->bchw", "--dtype", "float32") == 0
assert run("batches", "photos", "--preview", "b.png", "--size", "8x8") == 0
assert run("explain", "bhwc->bchw", "--shape", "2,4,5,3", "--svg", "e.svg") == 0
assert run("convert", "none.npy", "y.npy", "bhwc->bchw") == 2
from layoutkit.data import Dataset
assert Dataset("x.npy", layout="bhwc")[1:3]().shape == (2, 4, 5, 3)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="plays systems that this one already is")
@pytest.mark.parametrize("lacks", [MACOS, WINDOWS], ids=["macos", "windows"])
def test_what_another_system_lacks(tmp_path, monkeypatch, lacks):
    np.save(tmp_path / "x.npy", np.ones((5, 4, 5, 3), "f4"))
    for name in ("cats", "dogs"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        Image.new("RGB", (9, 8)).save(tmp_path / "photos" / name / "a.png")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.chdir(tmp_path)
    code = TAKE.format(lacks=lacks) + COMMANDS
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    hidden = {name for name in (path.name for path in tmp_path.iterdir()) if name.startswith(".")}
    assert hidden == set()
