"""Restore environment variables that a benchmark sets."""

import pytest

from layoutkit.bench.host import WAIT_POLICY


@pytest.fixture(autouse=True)
def _openmp_is_not_told(monkeypatch):
    monkeypatch.setenv(WAIT_POLICY, "")  # so that monkeypatch restores it
    monkeypatch.delenv(WAIT_POLICY)
