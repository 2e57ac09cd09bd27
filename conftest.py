"""Shared configuration and fixtures of all tests, including the documentation tests."""

import gc
import os
import signal
from importlib.util import find_spec
from typing import Any

import pytest

# These modules cannot be imported without a library.
_REQUIRED_LIBRARIES = {
    "layoutkit/torch.py": "torch",
    "layoutkit/_graph.py": "torch",
    "layoutkit/backends/torch*.py": "torch",
    "layoutkit/watch/recorder.py": "torch",
    "tests/helpers/fake_torch.py": "torch",
    "tests/helpers/keyword_calls.py": "torch",
    "layoutkit/keras.py": "keras",
    "layoutkit/sklearn.py": "sklearn",
}
collect_ignore_glob = [
    path for path, library in _REQUIRED_LIBRARIES.items() if not find_spec(library)
]

# Keras selects TensorFlow by default, and fails if it is not installed.
_BACKENDS = [name for name in ("jax", "torch", "numpy") if find_spec(name)]
os.environ.setdefault("KERAS_BACKEND", _BACKENDS[0])

# On a GPU machine without package installation, the documentation tests are omitted.
if find_spec("sybil"):
    from tests.helpers.documentation import pytest_collect_file

    __all__ = ["pytest_collect_file"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of `make test-all` and `make test-exhaustive`."""
    parser.addoption("--all", action="store_true", help="run all tests, with 50 examples each")
    text = "run every parameter set, and 100 examples"
    parser.addoption("--exhaustive", action="store_true", help=text)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep at most n parameter sets of each test that is marked `budget(n)`.

    With --all, keep m of a test that is marked `budget(n, all=m)`, and every set of others; with
    --exhaustive, every set. Tests marked `budget(0)` take several seconds and need an option.
    """
    if config.getoption("--exhaustive"):
        return
    is_all = config.getoption("--all")
    sets: dict[tuple[str, str], list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("budget") is not None:
            sets.setdefault((str(item.path), getattr(item, "originalname", item.name)), []).append(
                item
            )
    omitted: set[pytest.Item] = set()
    for same_test in sets.values():
        marker = same_test[0].get_closest_marker("budget")
        total = len(same_test)
        count = total
        if marker is not None:
            count = marker.kwargs.get("all", total) if is_all else marker.args[0]
        kept = {round(n * (total - 1) / max(1, count - 1)) for n in range(count)}
        omitted.update(item for n, item in enumerate(same_test) if n not in kept)
    config.hook.pytest_deselected(items=[item for item in items if item in omitted])
    items[:] = [item for item in items if item not in omitted]


def pytest_configure(config: pytest.Config) -> None:
    """Make test results independent of machine load and of running in the background."""
    # A shell script starts background commands with SIGINT ignored; Python then does not raise
    # KeyboardInterrupt, and child processes inherit the setting.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if find_spec("hypothesis"):
        from hypothesis import HealthCheck, settings

        # No deadline and no check for slow examples: their time depends on the load of the machine.
        is_all, is_exhaustive = map(config.getoption, ("--all", "--exhaustive"))
        examples = 100 if is_exhaustive else 50 if is_all else 10
        settings.register_profile(
            "layoutkit",
            deadline=None,
            max_examples=examples,
            suppress_health_check=[HealthCheck.too_slow],
        )
        settings.load_profile("layoutkit")


@pytest.fixture(scope="module", autouse=True)
def _freeze() -> None:
    """Exclude imported modules from garbage collection: a million objects.

    A full collection took half a second, and tests of memory run hundreds of them.
    """
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """Unfreeze the objects: at exit, libraries complain of objects that are not collected."""
    gc.unfreeze()


@pytest.fixture(scope="session")
def machine() -> None:
    """Require a machine with a GPU; without one the run ends, because tests must not be skipped."""
    from layoutkit import DeviceError
    from layoutkit.cuda.runtime import check_device, runtime

    try:
        check_device("cuda:0")
    except DeviceError as error:
        pytest.exit(str(error), returncode=1)
    print(f"\n{runtime().describe()}")


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Install a fake GPU for the test: host memory, and the real kernels."""
    from tests.helpers.fake_cuda import install

    fake = install(monkeypatch)
    yield fake
    fake.check()


@pytest.fixture
def read_lengths(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets the length of every `RangeFile.read_at`."""
    from layoutkit.data.io.reader import RangeFile

    lengths: list[int] = []
    read_at = RangeFile.read_at

    def counted(file: RangeFile, start: int, length: int) -> bytes:
        lengths.append(length)
        return read_at(file, start, length)

    monkeypatch.setattr(RangeFile, "read_at", counted)
    return lengths


@pytest.fixture
def site() -> Any:
    """Return files for a local HTTP server (`loopback.serving`), which records its requests."""
    from tests.helpers.loopback import Site

    return Site()
