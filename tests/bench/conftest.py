"""Whatever a benchmark sets in the environment is gone when its test ends."""

import pytest

from layoutkit.bench.host import WAIT_POLICY


@pytest.fixture(autouse=True)
def _openmp_is_not_told(monkeypatch):
    monkeypatch.setenv(WAIT_POLICY, "")  # so that it is known what to bring back
    monkeypatch.delenv(WAIT_POLICY)
