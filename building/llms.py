"""Write docs/llms.txt: the pages with their first sentences, for language models.

    python building/llms.py

The format is that of https://llmstxt.org: a title, a summary, and links. A test compares the file
with what this script would write.
"""

import re
from pathlib import Path

DOCS = Path(__file__).parent.parent / "docs"
_SECTION = re.compile(r"^  - ([A-Z][\w ]+):$")
_PAGE = re.compile(r"^ *- ([\w/-]+\.md)$")


def llms() -> str:
    """Return the text of docs/llms.txt."""
    _, summary = _title_and_first_sentence(DOCS / "index.md")
    lines = ["# layoutkit", "", f"> {summary}", ""]
    nav = (DOCS.parent / "mkdocs.yml").read_text().partition("\nnav:\n")[2].partition("\n\n")[0]
    for line in nav.splitlines():
        if section := _SECTION.match(line):
            lines += ["", f"## {section[1]}", ""]
        elif page := _PAGE.match(line):
            title, sentence = _title_and_first_sentence(DOCS / page[1])
            lines.append(f"- [{title}]({page[1]}): {sentence}")
    return "\n".join(lines) + "\n"


def _title_and_first_sentence(page: Path) -> tuple[str, str]:
    title, _, rest = page.read_text().partition("\n")
    paragraph = " ".join(rest.strip().partition("\n\n")[0].split())
    sentence = re.split(r"(?<=[.:]) (?=[A-Z`])", paragraph)[0]
    return title.removeprefix("# "), re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", sentence)


if __name__ == "__main__":
    (DOCS / "llms.txt").write_text(llms())
