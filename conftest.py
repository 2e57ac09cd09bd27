"""What all tests share: the blocks of the documentation among them, and the machine's GPU."""

import gc
import os
import signal
from importlib.util import find_spec
from typing import Any

import pytest

# They are made of classes of a library, so that without it there is nothing to import.
_MADE_OF = {
    "layoutkit/torch.py": "torch",
    "layoutkit/backends/torch*.py": "torch",
    "layoutkit/keras.py": "keras",
    "layoutkit/sklearn.py": "sklearn",
}
collect_ignore_glob = [path for path, library in _MADE_OF.items() if not find_spec(library)]

# Keras takes TensorFlow where it is told nothing, and fails where that is not installed.
_BACKENDS = [name for name in ("jax", "torch", "numpy") if find_spec(name)]
os.environ.setdefault("KERAS_BACKEND", _BACKENDS[0])

# On a machine where nothing can be installed, the tests of its GPU run without the documentation's.
if find_spec("sybil"):
    from documentation import pytest_collect_file

    __all__ = ["pytest_collect_file"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option of `make test-all`."""
    parser.addoption("--all", action="store_true", help="run every parameter set of every test")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without --all, keep at most n parameter sets of each test that is marked `budget(n)`."""
    if config.getoption("--all"):
        return
    sets: dict[tuple[str, str], list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("budget") is not None:
            sets.setdefault((str(item.path), getattr(item, "originalname", item.name)), []).append(item)
    omitted: set[pytest.Item] = set()
    for same_test in sets.values():
        marker = same_test[0].get_closest_marker("budget")
        count = marker.args[0] if marker is not None else len(same_test)
        total = len(same_test)
        kept = {round(n * (total - 1) / max(1, count - 1)) for n in range(count)}
        omitted.update(item for n, item in enumerate(same_test) if n not in kept)
    config.hook.pytest_deselected(items=[item for item in items if item in omitted])
    items[:] = [item for item in items if item not in omitted]


def pytest_configure() -> None:
    """Make the tests see the same on an idle machine, a busy one, and in the background."""
    # A script's shell starts what it puts in the background with SIGINT ignored; Python then raises
    # no KeyboardInterrupt, and every process inherits that from the one that starts it.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if find_spec("hypothesis"):
        from hypothesis import settings

        # An example may take as long as it takes: time says how busy a machine is.
        settings.register_profile("layoutkit", deadline=None)
        settings.load_profile("layoutkit")


def pytest_collection_finish() -> None:
    """Spare the garbage collector what stays to the end, a million objects of tests and libraries.

    A full collection took half a second, of which tests of memory ask for hundreds.
    """
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """At the end of the interpreter libraries complain of objects that nobody collects."""
    gc.unfreeze()


@pytest.fixture(scope="session")
def machine() -> None:
    """A machine with a GPU; without one the run ends, as nothing that is missing is skipped."""
    from layoutkit import DeviceError
    from layoutkit.cuda.runtime import check_device, runtime

    try:
        check_device("cuda:0")
    except DeviceError as error:
        pytest.exit(str(error), returncode=1)
    print(f"\n{runtime().describe()}")


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A GPU that is none, for as long as a test runs: memory of the host, and the real kernels."""
    from fake_cuda import install

    found = install(monkeypatch)
    yield found
    found.check()


@pytest.fixture
def site() -> Any:
    """Files for an HTTP server on this machine (`loopback.serving`), and what was asked of it."""
    from loopback import Site

    return Site()
