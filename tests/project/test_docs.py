"""README.md and docs/: no code that is never run, no hidden code, and no broken links."""

import ast
import re
import runpy
from pathlib import Path

import pytest

import layoutkit

HOME = Path(__file__).parents[2]
DOCS = HOME / "docs"
PAGES = [HOME / "README.md", *sorted(DOCS.rglob("*.md"))]
SITE = (HOME / "mkdocs.yml").read_text()

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(HOME)))


@every_page
def test_every_block_says_whether_it_is_run(page):
    fences = re.findall(r"^ *```+(.*)$", page.read_text(), re.MULTILINE)
    opening = fences[::2]
    assert len(fences) % 2 == 0
    assert set(opening) <= {"python", "pycon", "bash", "text"}


@every_page
def test_prompts_are_not_copied(page):
    """The button that copies a block omits the prompts and outputs of `pycon`."""
    for language, block in re.findall(r"^```(\w+)\n(.*?)^```", page.read_text(), re.M | re.S):
        assert (language == "pycon") == block.startswith(">>>")
    assert "[data-md-copying] .gp" in (DOCS / "copy.css").read_text()
    assert "extra_css: [copy.css]" in SITE


def test_the_index_for_language_models_is_up_to_date():
    """Run `python building/llms.py` if this test fails."""
    assert (DOCS / "llms.txt").read_text() == runpy.run_path(str(HOME / "building/llms.py"))[
        "llms"
    ]()


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("recipes/detection-segmentation.md", ["segmentation", "bounding box", "keypoint"]),
        ("recipes/pytorch.md", ["persistent_workers", "mixed precision", "pin_memory"]),
        ("data.md", ["validation split", "k-fold"]),
        ("sizes.md", ["pad_sequence"]),
    ],
)
def test_the_search_finds_words_of_other_libraries_on_the_page_that_answers(page, words):
    text = (DOCS / page).read_text()
    assert [word for word in words if word not in text] == []


def test_the_site_names_the_version():
    assert f"copyright: layoutkit {layoutkit.__version__}," in SITE


@every_page
def test_no_code_is_hidden_from_the_reader(page):
    comments = re.findall(r"<!--(.*?)-->", page.read_text(), re.DOTALL)
    assert [
        comment for comment in comments if not re.match(r" skip: (start|next|end)", comment)
    ] == []


@every_page
def test_a_page_with_code_says_what_it_needs(page):
    text = page.read_text()
    if re.search(r"^```+(python|bash)", text, re.MULTILINE):
        assert re.search(r"needs? (layoutkit|no more|NumPy|Pillow|PyTorch|scipy)|pip install", text)


@every_page
def test_links_within_the_repository_lead_somewhere(page):
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text())
    targets = [link for link in links if "://" not in link]
    assert [link for link in targets if not (page.parent / link).exists()] == []


@every_page
def test_anchors_within_the_pages_are_those_of_headings(page):
    """Check anchors without building the site; the site's builder checks anchors, too."""
    wrong = []
    for link, anchor in re.findall(r"\]\(([^)#:]*)#([^)]*)\)", page.read_text()):
        target = (page.parent / link) if link else page
        headings = re.findall(r"^#+ (.*)$", target.read_text(), re.MULTILINE)
        if anchor not in {_anchor(heading) for heading in headings}:
            wrong.append(f"{link}#{anchor}")
    assert wrong == []


def test_the_site_leads_to_every_page():
    listed = re.findall(r"^ +- (?:.*: )?(\S+\.md)$", SITE, re.MULTILINE)
    there = [str(page.relative_to(DOCS)) for page in PAGES[1:]]
    assert sorted(listed) == sorted(there)


def test_the_reference_has_every_public_name():
    pages = "".join(page.read_text() for page in (DOCS / "reference").glob("*.md"))
    described = re.findall(r"^::: (\S+)$", pages, re.MULTILINE)
    rooms = {"data", "images", "plugins"}
    public = {f"layoutkit.{name}" for name in {*layoutkit.__all__} - rooms}
    public -= {f"layoutkit.{name}" for name in vars(layoutkit.errors)}
    rooms_and_modules = ("data/__init__.py", "data/recordio.py", "images/__init__.py")
    for path in (*rooms_and_modules, "plugins.py", "keras.py", "sklearn.py", "torch.py"):
        room = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        public |= {f"layoutkit.{room}.{name}" for name in _public(HOME / "layoutkit" / path)}
    assert sorted(described) == sorted({*public, "layoutkit.errors"})


def _public(path):
    """Return the names that a module exports, without importing it: libraries may be missing."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return ast.literal_eval(node.value)
    raise AssertionError(f"{path} has no __all__")


def test_readme_leads_to_the_pages():
    links = set(re.findall(r"\]\(docs/([^)#]+\.md)", PAGES[0].read_text()))
    guides = {page.name for page in DOCS.glob("*.md")} - {"index.md"}
    assert guides <= links


def _anchor(heading):
    """Return the anchor that code hosts and the site's builder give to a heading."""
    plain = re.sub(r"[^\w\- ]", "", heading.lower())
    return re.sub(r" +", "-", plain.strip())
