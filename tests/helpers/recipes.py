"""The recipes of the pages for authors: tests run the very code that a page shows."""

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def blocks(heading, page="how-it-runs.md"):
    """Return the blocks of text under a heading of a page, in order."""
    part = re.split(rf"\n##+ {re.escape(heading)}", (DOCS / page).read_text())[1].split("\n##")[0]
    return re.findall(r"```text\n(.*?)```", part, re.DOTALL)
