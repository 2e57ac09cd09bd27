"""No test waits as long as a reader does before it asks a server again."""

import pytest

from layoutkit.data.reading import urls


@pytest.fixture(autouse=True)
def _servers_are_asked_again_at_once(monkeypatch):
    monkeypatch.setattr(urls, "FIRST_PAUSE", 0.001)
