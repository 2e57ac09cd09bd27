"""README.md and docs/ hold no code that is never run, and no link that leads nowhere."""

import re
from pathlib import Path

import pytest

HOME = Path(__file__).parents[2]
PAGES = [HOME / "README.md", *sorted((HOME / "docs").glob("*.md"))]

pytestmark = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def test_every_block_says_whether_it_is_run(page):
    fences = re.findall(r"^ *```+(.*)$", page.read_text(), re.MULTILINE)
    opening = fences[::2]
    assert len(fences) % 2 == 0
    assert set(opening) <= {"python", "bash", "text"}


def test_links_within_the_repository_lead_somewhere(page):
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text())
    targets = [link for link in links if "://" not in link]
    assert [link for link in targets if not (page.parent / link).exists()] == []
