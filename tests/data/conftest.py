"""Fixtures for all data tests: no threads of other test files, and short pauses between retries."""

import pytest

from layoutkit.data.io import filesystem
from tests.helpers.batches_of import forget_others


@pytest.fixture(autouse=True, scope="module")
def _threads_of_other_files_are_theirs():
    forget_others()


@pytest.fixture(autouse=True)
def _servers_are_asked_again_at_once(monkeypatch):
    monkeypatch.setattr(filesystem, "FIRST_PAUSE", 0.001)
