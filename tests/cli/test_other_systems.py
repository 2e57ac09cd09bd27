"""Windows and macOS, simulated on Linux by removing the functions that they lack.

A child process first removes the names that are missing on the other system from modules of the
standard library, and makes the files of /proc and /sys unreadable; then it imports layoutkit and
runs calls and commands of users. Linux with all functions but without these files is the third
system. `sys.platform` stays, as Numba and llvmlite load libraries by it.
"""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.helpers.children import environment

MACOS = {
    "os": "O_TMPFILE posix_fallocate posix_fadvise sched_getaffinity sched_setaffinity O_DIRECT "
    "O_PATH sendfile copy_file_range memfd_create eventfd splice getrandom preadv pwritev",
    "mmap": "MAP_POPULATE MADV_HUGEPAGE MADV_NOHUGEPAGE",
}
WINDOWS = {
    "os": MACOS["os"] + " O_CLOEXEC O_NOFOLLOW O_NONBLOCK O_DIRECTORY link fchmod fchown geteuid "
    "getuid getgid getegid getpgid killpg fork forkpty register_at_fork pread pwrite readv writev "
    "sysconf sysconf_names listxattr mkfifo mknod getloadavg nice statvfs fstatvfs setsid chown "
    "lchown wait3 wait4 waitid lockf fdatasync sync",
    "mmap": MACOS["mmap"] + " MAP_PRIVATE MAP_SHARED MAP_ANON MAP_ANONYMOUS PROT_READ PROT_WRITE",
    "signal": "SIGALRM SIGHUP SIGKILL SIGUSR1 SIGUSR2 SIGCHLD SIGPIPE SIGQUIT alarm setitimer "
    "pthread_sigmask sigwait siginterrupt",
    "modules": "fcntl resource pwd grp termios",
}

TAKE = """
import builtins, errno, importlib, io, os, sys

for module, names in {lacks!r}.items():
    for name in names.split():
        if module == "modules":
            sys.modules[name] = None
        else:
            importlib.import_module(module).__dict__.pop(name, None)

def refuse(path):
    if str(path).startswith(("/proc/", "/sys/")):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))

def hidden(function):
    def call(path, *arguments, **options):
        refuse(path)
        return function(path, *arguments, **options)
    return call

builtins.open = io.open = hidden(io.open)
os.open, os.stat = hidden(os.open), hidden(os.stat)
"""

# A module that a child of multiprocessing imports, too, so that it lacks the same.
WORK = """
def work(folder):
    import numpy as np
    from layoutkit.data import sampled_batcher
    with sampled_batcher(f"{folder}/x.npy", batch_size=2, layout="bhwc", num_workers=2) as batches:
        return [batch.input.forward_get("bchw").shape for batch in batches]
"""

LIBRARY = """
from lacking import work
import multiprocessing
from pathlib import Path
import numpy as np
import layoutkit
from layoutkit.kernels.cpu import object_cache

if __name__ == "__main__":
    rng = np.random.default_rng(0)
    layoutkit.set_num_threads(2)
    big = rng.integers(0, 256, (16, 256, 256, 3), np.uint8)
    for _ in range(3):
        planes = layoutkit.convert(big, "bhwc->bchw")
        assert (planes == big.transpose(0, 3, 1, 2)).all()

    folder = Path("cache", "kernels").absolute()
    assert object_cache.is_trusted(folder)
    path = folder / object_cache.file_name("engine", "key")
    with object_cache.compile_lock(path):
        object_cache.write(path, "key", b"code")
    assert object_cache.read(path, "key") == b"code"
    assert [path.name for path in folder.iterdir()] == [path.name]

    shapes = [(2, 3, 4, 5), (2, 3, 4, 5), (1, 3, 4, 5)]
    assert work(".") == shapes
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        assert pool.map(work, [".", "."]) == [shapes, shapes]
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


SYSTEMS = {"macos": MACOS, "windows": WINDOWS, "no files": {}}
needs_linux = pytest.mark.skipif(
    sys.platform != "linux", reason="plays systems that this one already is"
)


def run(folder, code):
    """Run a program in a folder, and check that it succeeds and that no hidden file is left."""
    (folder / "program.py").write_text(code)
    env = environment(PYTHONPATH=Path(__file__).parents[2])
    command = [sys.executable, "program.py"]
    done = subprocess.run(
        command, cwd=folder, env=env, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []


@pytest.mark.budget(1)
@needs_linux
@pytest.mark.parametrize("lacks", SYSTEMS.values(), ids=SYSTEMS)
def test_commands_on_another_system(tmp_path, lacks):
    np.save(tmp_path / "x.npy", np.ones((5, 4, 5, 3), "f4"))
    for name in ("cats", "dogs"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        Image.new("RGB", (9, 8)).save(tmp_path / "photos" / name / "a.png")
    run(tmp_path, TAKE.format(lacks=lacks) + COMMANDS)


@pytest.mark.budget(0)
@needs_linux
@pytest.mark.parametrize("lacks", SYSTEMS.values(), ids=SYSTEMS)
def test_threads_caches_and_processes_on_another_system(tmp_path, lacks):
    np.save(tmp_path / "x.npy", np.ones((5, 4, 5, 3), "f4"))
    (tmp_path / "lacking.py").write_text(TAKE.format(lacks=lacks) + WORK)
    run(tmp_path, LIBRARY)
