"""What holds for all tests of data: whose threads are whose, and how long a reader waits."""

import pytest
from batches_of import forget_others

from layoutkit.data.io import filesystem


@pytest.fixture(autouse=True, scope="module")
def _threads_of_other_files_are_theirs():
    forget_others()


@pytest.fixture(autouse=True)
def _servers_are_asked_again_at_once(monkeypatch):
    monkeypatch.setattr(filesystem, "FIRST_PAUSE", 0.001)
