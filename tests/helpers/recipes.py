"""The recipes of docs/how-it-runs.md: tests run the very code that the page shows."""

import re
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "how-it-runs.md").read_text()


def blocks(heading):
    """Return the blocks of text under a heading of the page, in order."""
    part = PAGE.split(f"\n### {heading}")[1].split("\n##")[0]
    return re.findall(r"```text\n(.*?)```", part, re.DOTALL)
