"""Random damage to the kept corpus, each a function of a seed and its number.

`python -m tests.helpers.fuzz_files --seed 1 --seconds 60` opens damaged inputs in a child process
with a limit on time and memory. A result or an error of layoutkit is right. The input of anything
else is written to tests/corpus/failed/, with a line that tells how to repeat it. `--open PATH`
opens one input, and shows the traceback of a wrong outcome.
"""

import argparse
import mmap
import os
import signal
import sys
import time
import traceback
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from . import corpus

INPUT_SECONDS = 20.0  # for one input; requests of one input may take several seconds
MEMORY = 1 << 30  # bytes of memory beyond those of the valid inputs
ADDRESSES = 1 << 33  # bytes of address space; Pillow reserves the 4 GiB that a chunk may claim
MAX_FAILURES = 20  # the run ends after so many different ones
TOO_LARGE = 3  # the exit code of a child that used too much memory
TOLD = set()  # the failures of this run


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--inputs", type=int, default=0, help="0: as many as there is time for")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--kinds", nargs="*", default=[], help=" ".join(corpus.READERS))
    parser.add_argument("--open", type=Path, help="open this input only")
    asked = parser.parse_args()
    if asked.open:
        return open_one(asked.open)
    inputs = [each for each in corpus.kept_inputs() if not asked.kinds or each.kind in asked.kinds]
    stop = asked.first + asked.inputs if asked.inputs else sys.maxsize
    end = time.monotonic() + asked.seconds
    number, failures = hunt(inputs, asked.seed, asked.first, stop, end)
    print(
        f"{number - asked.first} damaged inputs of seed {asked.seed}: {failures or 'none'} failed"
    )
    return 1 if failures else 0


def open_one(path):
    """Open one input in this process; return 1 and print a traceback if the outcome is wrong."""
    kind = path.resolve().parent.name
    paths = sorted(path.parent.glob(f"{path.stem}.*")) if kind == "records" else [path]
    files = tuple((each.suffix, each.read_bytes()) for each in paths)
    with corpus.bounded(), TemporaryDirectory() as folder:
        error = corpus.failure(corpus.Input(kind, path.stem, files, str(path)), Path(folder))
    if error is not None:
        traceback.print_exception(error)
    return 0 if error is None else 1


# ---- one child process after another ---------------------------------------------------------


def hunt(inputs, seed, first, stop, end):
    """Open damaged inputs until `end`; return (the next number, number of failures)."""
    place = np.frombuffer(mmap.mmap(-1, 24), np.int64)  # shared with the child
    place[:] = first, now(), 0  # the input, when it began, different failures
    while place[0] < stop and time.monotonic() < end and place[2] < MAX_FAILURES:
        child = os.fork()
        if not child:
            exit_code = 1
            try:
                exit_code = work(inputs, seed, place, stop, end)
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                os._exit(exit_code)
        ending = watched(child, place)
        if ending:
            number = int(place[0])
            place[2] += tell(corpus.mutated(inputs, seed, number), ending, seed, number)
        place[0] += bool(ending)
        place[1] = now()
    return int(place[0]), int(place[2])


def now():
    return int(time.monotonic() * 1000)


def watched(child, place):
    """Wait for a child; return why it ended or was killed, "" if it did all inputs."""
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            if os.WIFSIGNALED(status):
                return signal.Signals(os.WTERMSIG(status)).name
            if os.WEXITSTATUS(status) not in (0, TOO_LARGE):
                raise RuntimeError("the child process failed, see above")
            return "memory" if status else ""
        if now() - place[1] > INPUT_SECONDS * 1000:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return "hang"
        time.sleep(0.02)


def work(inputs, seed, place, stop, end):
    """Open damaged inputs, count and write those that fail; return the exit code."""
    with corpus.bounded(), TemporaryDirectory() as folder, Quiet():
        for each in inputs:  # imports what readers need, before memory is limited
            corpus.failure(each, Path(folder))
            place[1] = now()
        before = limit_memory()
        place[1] = now()
        while place[0] < stop and time.monotonic() < end and place[2] < MAX_FAILURES:
            number = int(place[0])
            tried = corpus.mutated(inputs, seed, number)
            error = corpus.failure(tried, Path(folder))
            if error is None and peak_memory() > before + MEMORY:
                return TOO_LARGE  # the next child has its own peak
            if error is not None:
                place[2] += tell(tried, named(error), seed, number)
            place[:2] = number + 1, now()
    return 0


class Quiet:
    """A context in which messages of C libraries on stderr are discarded."""

    def __enter__(self):
        sys.stderr.flush()
        self._kept = os.dup(2)
        with Path(os.devnull).open("wb") as nothing:
            os.dup2(nothing.fileno(), 2)

    def __exit__(self, *_):
        sys.stderr.flush()
        os.dup2(self._kept, 2)
        os.close(self._kept)


def limit_memory():
    """Limit the address space of this process, if the system can; return the peak so far."""
    try:
        import resource

        pages = int(Path("/proc/self/statm").read_text().split()[0])
        size = pages * resource.getpagesize() + ADDRESSES
        resource.setrlimit(resource.RLIMIT_AS, (size, resource.RLIM_INFINITY))
    except (ImportError, OSError, ValueError):
        pass  # macOS has no limit of this kind
    return peak_memory()


def peak_memory():
    """Return the peak of this process's memory in bytes; 0 if the system does not tell."""
    try:
        import resource
    except ImportError:
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


# ---- what failed -----------------------------------------------------------------------------


def named(error):
    """Return the type of an exception and the innermost function of layoutkit."""
    functions = [
        frame.f_code.co_name
        for frame, _ in traceback.walk_tb(error.__traceback__)
        if "layoutkit" in Path(frame.f_code.co_filename).parts
        and "tests" not in Path(frame.f_code.co_filename).parts
    ]
    return "-".join([type(error).__name__, *functions[-1:]])


def tell(tried, why, seed, number):
    """Write the input of a failure and print how to repeat it; return 1, or 0 for a repetition."""
    key = f"{tried.kind}/{why}"
    if key in corpus.KNOWN or key in TOLD:
        return 0
    TOLD.add(key)
    folder = corpus.FAILED / tried.kind
    folder.mkdir(parents=True, exist_ok=True)
    if any(each.stem == why for each in folder.iterdir()):
        why = f"{why}-{seed}-{number}"
    for suffix, content in tried.files:
        path = folder / f"{why}{suffix}"
        path.write_bytes(content)
    print(
        f"{why}: number {number} of seed {seed}, from {tried.kept}\n"
        f"  repeat it with: python -m tests.helpers.fuzz_files --open {os.path.relpath(path)}",
        flush=True,
    )
    return 1


if __name__ == "__main__":
    sys.exit(main())
