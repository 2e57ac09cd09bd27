"""Whatever a benchmark sets in the environment is gone when its test ends."""

import pytest

from layoutkit.bench.host import VARIABLE


@pytest.fixture(autouse=True)
def _openmp_is_not_told(monkeypatch):
    monkeypatch.setenv(VARIABLE, "")  # so that it is known what to bring back
    monkeypatch.delenv(VARIABLE)
