"""Run layoutkit's tests on AArch64 in an emulator, on an x86-64 with Debian: `make test-arm`.

    python tests/arm/emulator.py [ARGUMENT ...]      the arguments of pytest; default: TESTS
    python tests/arm/emulator.py --wheel [FILE]      use an installed wheel, as a new user would

The first run downloads 110 MB of Debian packages (CPython 3.11 for arm64 and the emulator of QEMU)
and 70 MB of wheels into a folder outside of the project (`LAYOUTKIT_ARM`, by default in
`~/.cache`). Nothing is installed and root is not needed. It uses apt-get, dpkg-deb, gcc and pip.

The emulator maps the files of the root folder over those of the machine. Python is started by a
program for x86-64, so that child processes with `sys.executable` are emulated, too. Kernels are
compiled for AArch64 by this machine's Python, and cached in the folder.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).parents[2]
FOLDER = Path(os.environ.get("LAYOUTKIT_ARM") or Path.home() / ".cache" / "layoutkit-arm")
SUITE = "http://deb.debian.org/debian bookworm main"
KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
PACKAGES = ("python3.11", "libstdc++6", "libgomp1", "qemu-user-static:amd64")
WHEELS = ("numpy", "numba", "ml_dtypes", "tqdm", "pytest", "pytest-xdist")
WHEELS += ("hypothesis", "pillow", "threadpoolctl")
# The emulator shows x86-64's /proc/cpuinfo, so LLVM cannot find the features of the emulated CPU.
CPU = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": "+fp-armv8,+neon"}

TESTS = (
    "tests/kernels",
    "tests/core/test_conversion.py",
    "tests/core/test_formula.py",
    "tests/core/test_sums.py",
    "tests/core/test_collate.py",
    "tests/core/test_resize.py",
    "tests/core/test_nodata.py",
    "tests/core/test_packed.py",
    "tests/core/test_placements.py",
    "tests/core/test_clip_ends.py",
    "tests/core/test_guard_pages.py",
    "tests/threads/test_pool.py",
    "tests/threads/test_openmp.py",
)
# Tests that cannot pass in an emulator, by their reason.
DESELECTED = {
    "kernels are compiled by another process, which does not import Numba in this one": (
        "tests/kernels/test_compiler.py::test_a_second_process_finds_the_cache_and_imports_no_numba",
        "tests/kernels/test_compiler.py::test_the_folder_is_closed_to_others",
        "tests/kernels/test_compiler.py::test_a_process_compiles_again_what_is_damaged",
        "tests/kernels/test_compiler.py::test_the_code_of_a_folder_that_is_not_trusted_never_runs",
        "tests/kernels/test_compiler.py::test_kernels_do_not_depend_on_settings_for_debugging",
        "tests/kernels/test_recipe.py::test_a_kernel_is_one_module_one_row_and_one_tiling",
    ),
    "the emulator has no pseudoterminals": (
        "tests/kernels/test_shipped.py::test_the_first_compilation_is_said_once_on_a_terminal",
        "tests/kernels/test_shipped.py::test_on_a_terminal_it_is_said_where_nothing_is_kept",
    ),
    "the emulator reports a fault of a child process on its stderr": (
        "tests/core/test_guard_pages.py::test_who_touches_what_is_not_his_dies",
    ),
    "NumPy's casts of floats outside of the range of integers depend on the length of a row": (
        "tests/core/test_collate.py::test_a_batch_is_the_conversion_of_the_stacked_windows",
    ),
    "times of threads": (
        "tests/threads/test_pool.py::test_jobs_without_a_pause_wake_workers_after_a_while",
    ),
    "sizes of blocks that were measured on x86-64": (
        "tests/kernels/test_launch.py::test_blocks_have_about_the_measured_size",
    ),
}
LAUNCHER = """
#include <stdlib.h>
#include <unistd.h>
int main(int count, char **arguments) {
  char *first[] = {"QEMU", "-L", "ROOT", "-0", arguments[0], "ROOT/usr/bin/python3.11"};
  char **all = calloc(count + 6, sizeof *all);
  for (int i = 0; i < 6; i++) all[i] = first[i];
  for (int i = 1; i < count; i++) all[5 + i] = arguments[i];
  execv(all[0], all);
  return 127;
}
"""
FIRST_BATCHES = """
import sys
import numpy as np
import layoutkit
from layoutkit.kernels.cpu import compiler
rng = np.random.default_rng(0)
x = rng.integers(0, 256, (4, 40, 48, 3), np.uint8)
y = layoutkit.convert(x, "bhwc->bchw", dtype="float32", scale=2.0)
assert (y == 2 * x.transpose(0, 3, 1, 2).astype("f4")).all()
photographs = [rng.integers(0, 256, (h, w, 3), np.uint8) for h, w in ((300, 400), (500, 375))]
formula = {"mean": (120, 115, 100), "std": (58, 57, 57)}
z = layoutkit.collate(
    photographs, "hwc->bchw", h=224, w=224, resize="bilinear", dtype="float32", **formula
)
assert z.shape == (2, 3, 224, 224) and abs(z.mean()) < 0.5
origins = [(str(kernel.spec), kernel.origin) for kernel in compiler.loaded()]
assert "numba" not in sys.modules and {origin for _, origin in origins} == {"shipped"}, origins
layoutkit.show_config()
"""


def main(arguments):
    root = FOLDER / "root"
    if not (root / "complete").exists():
        make_root(root)
    if arguments[:1] == ["--wheel"]:
        return use_wheel(*arguments[1:])
    site = install(FOLDER / "site", *WHEELS)
    return emulate(
        ["-m", "pytest", "-p", "no:cacheprovider", *deselected(), *(arguments or TESTS)],
        PYTHONPATH=f"{Path(__file__).with_name('hook')}:{site}",
        LAYOUTKIT_CACHE_DIR=cache_folder("kernels"),
        HOST_PYTHON=sys.executable,
        PROJECT=PROJECT,
        **CPU,
    )


def make_root(root):
    """Download and unpack the packages, and build the program that starts Python."""
    apt = FOLDER / "apt"
    for name in ("etc/preferences.d", "state/lists/partial", "cache/archives/partial"):
        (apt / name).mkdir(parents=True, exist_ok=True)
    (apt / "etc" / "sources.list").write_text(f"deb [signed-by={KEYS}] {SUITE}\n")
    (apt / "status").touch()  # no package is installed
    options = {
        "Dir::Etc": apt / "etc",
        "Dir::State": apt / "state",
        "Dir::State::status": apt / "status",
        "Dir::Cache": apt / "cache",
        "APT::Architecture": "arm64",
        "APT::Architectures::": "amd64",
        "Debug::NoLocking": "1",
    }
    command = ["apt-get", "--quiet=2", *(f"--option={name}={options[name]}" for name in options)]
    run([*command, "update"])
    run([*command, "install", "--download-only", "--no-install-recommends", "--yes", *PACKAGES])
    for package in (apt / "cache" / "archives").glob("*.deb"):
        run(["dpkg-deb", "--extract", package, root])
    qemu = root / "usr" / "bin" / "qemu-aarch64-static"
    source = FOLDER / "launcher.c"
    source.write_text(LAUNCHER.replace("QEMU", str(qemu)).replace("ROOT", str(root)))
    run(["gcc", "-static", "-o", FOLDER / "python", source])
    (root / "complete").touch()


def install(folder, *packages):
    """Install wheels for AArch64 into a folder, once; return the folder."""
    if not folder.exists():
        unfinished = folder.with_suffix(".unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        platforms = [f"--platform=manylinux_2_{minor}_aarch64" for minor in (17, 27, 28)]
        platforms += ["--platform=manylinux2014_aarch64", "--python-version=3.11"]
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--only-binary=:all:"]
        run([*command, *platforms, f"--target={unfinished}", *packages])
        unfinished.rename(folder)
    return folder


def use_wheel(path=None):
    """Install a wheel for AArch64 into an empty folder, and convert with its kernels only."""
    path = path or next((PROJECT / "dist").glob("*manylinux*_aarch64.whl"), None)
    if path is None:
        sys.exit("dist/ has no wheel for AArch64: make wheel MACHINE=aarch64")
    site = FOLDER / "wheel"
    shutil.rmtree(site, ignore_errors=True)
    install(site, str(path))
    # -P: without the project's folder, whose layoutkit has no compiled kernels.
    arguments = ["-P", "-c", FIRST_BATCHES]
    return emulate(arguments, PYTHONPATH=site, LAYOUTKIT_CACHE_DIR=os.devnull, **CPU)


def emulate(arguments, **variables):
    """Run Python in the emulator with these environment variables only; return its exit code."""
    variables = {"PATH": os.environ["PATH"], "HOME": FOLDER, "LANG": "C.UTF-8", **variables}
    command = [FOLDER / "python", *arguments]
    env = {name: str(value) for name, value in variables.items()}
    return subprocess.run(command, env=env, cwd=PROJECT, check=False).returncode


def cache_folder(name):
    """Return a folder that no other user can write to, as caches of kernels must be."""
    folder = FOLDER / name
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def deselected():
    return [f"--deselect={test}" for tests in DESELECTED.values() for test in tests]


def run(command):
    subprocess.run([str(part) for part in command], check=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
