"""The page docs/promises.md: its tests, limits and locks exist in the code."""

import importlib
import re
from pathlib import Path

import pytest

HOME = Path(__file__).parent.parent.parent
PAGE = (HOME / "docs" / "promises.md").read_text()
NAMED = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", PAGE)  # a file, or one test of it


def test_promises_name_their_tests():
    assert len(NAMED) > 25
    assert PAGE.count("tests/") == len(NAMED)


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_the_test_of_a_promise_is_there(file, name):
    text = (HOME / file).read_text()
    found = rf"^ *(def {name or 'test_'}|class {name}\b|{name} = )"
    assert re.search(found, text, re.MULTILINE)


def test_named_tests_run_without_all():
    """A test with `budget(0)` runs only with the option of `make test-all`."""
    omitted = []
    for file, name in NAMED:
        before, found, _ = (HOME / file).read_text().partition(f"\ndef {name}(")
        decorators = before.rpartition("\n\n")[2] if name and found else ""
        omitted += [name] if "budget(0" in decorators else []
    assert omitted == []


# Words of the page that name limits, and the constants of the modules that apply them.
LIMITS = [
    ("NumPy's limit of 64 (ShapeError)", {"layout.pattern.MAX_NDIM": 64}),
    ("| threads of a conversion | 256 |", {"options.MAX_THREADS": 256}),
    (
        "by default 2 GiB or an eighth",
        {"threads.limits.MAX_IDLE_BYTES": 2 << 30, "threads.limits.IDLE_SHARE": 8},
    ),
    ("sums of an Accumulator | 512 |", {"_utils.cache.MAX_KEPT": 512}),
    (
        "| 64 MiB, counted as 8 KiB each and 32 bytes per channel of constants; the 4 latest",
        {
            "_utils.cache.MAX_BYTES": 64 << 20,
            "_utils.cache.PROGRAM_SIZE_ESTIMATE": 8 << 10,
            "cpu.program._BYTES_A_CHANNEL": 32,
            "_utils.cache._MIN_KEPT": 4,
        },
    ),
    ("else 1 GiB. Bytes", {"data.io.reader.DEFAULT_MAX_BYTES": 1 << 30}),
    ("`LAYOUTKIT_URL_LIMIT`, by default 1 GiB |", {"threads.limits.MOST_AT_URL": 1 << 30}),
    ("lists a folder | 64 MiB |", {"data.io.http.MAX_PAGE_BYTES": 64 << 20}),
    (
        "| 30 seconds, and one more second for each 64 KiB received |",
        {"data.io.filesystem.SECONDS_IN_ALL": 30, "data.io.http.BYTES_PER_SECOND": 64 << 10},
    ),
    (
        "a header of 10,000 bytes with 32 nested brackets",
        {"data.io.npy._MAX_HEADER": 10_000, "data.io.npy._MAX_DEPTH": 32},
    ),
    ("at most 1,032 times its bytes", {"data.io.npy.MAX_DEFLATE_RATIO": 1032}),
    (
        "| csv of numbers | 64 MiB per line, compared after each MiB |",
        {"data.io.csv._MAX_LINE": 64 << 20, "data.io.csv.BLOCK_BYTES": 1 << 20},
    ),
    (
        "| 1 MiB per line, compared after each 256 KiB; numbers of 18 digits |",
        {
            "data.sources.recordio._MAX_LINE": 1 << 20,
            "data.sources.recordio._BLOCK": 256 << 10,
            "data.sources.recordio._DIGITS": 18,
        },
    ),
    ("| TFRecord | 1 TiB per record", {"data.sources.tfrecord._MAX_LENGTH": 1 << 40}),
    (
        "0 to 2^62 bytes that follow each other; 16 MiB per extended header or label; 100 extended",
        {
            "data.sources.webdataset._MAX_MEMBER": 1 << 62,
            "data.sources.webdataset._MAX_LABEL": 16 << 20,
            "data.sources.webdataset._MAX_READS": 2 * 100,  # a header and its content
        },
    ),
    (
        "| mean image | 1 GiB, 32 axes |",
        {"data.io.image_record._MAX_MEAN_BYTES": 1 << 30, "data.io.image_record._MAX_AXES": 32},
    ),
    ("up to 30 s longer", {"kernels.cpu.object_cache.LOCK_TIMEOUT": 30}),
    ("after 90 days without a read", {"kernels.cpu.object_cache.KEEP_SECONDS": 90 * 24 * 3600}),
]


@pytest.mark.parametrize(("words", "constants"), LIMITS, ids=[words for words, _ in LIMITS])
def test_limits_on_the_page_are_those_of_the_code(words, constants):
    assert words in " ".join(PAGE.split())
    for name, value in constants.items():
        module, _, constant = name.rpartition(".")
        assert getattr(importlib.import_module(f"layoutkit.{module}"), constant) == value


def test_every_cache_is_in_the_table_with_its_limit():
    """Compare the table of docs/caches.md with the decorators and `cache_put` in the code."""
    page = (HOME / "docs" / "caches.md").read_text()
    lines = page.partition("| cached | module |")[2].partition("\n\n")[0].splitlines()[2:]
    table = [line.strip("|").split("|") for line in lines]
    assert len(table) > 40
    missing = []
    for path in sorted((HOME / "layoutkit").rglob("*.py")):
        name = path.relative_to(HOME / "layoutkit").as_posix()
        found = re.findall(r"lru_cache\(maxsize=(\w+)|(?<!def )(cache_put)\(", path.read_text())
        sizes = {size.replace("MAX_KEPT", "512") or "512" for size, _ in found} - {"1"}
        limits = " ".join(
            row[3] for row in table for module in re.findall(r"`(.+?)`", row[1])
            if name == module or (module.endswith("/") and name.startswith(module))
        )  # fmt: skip
        missing += [(name, size) for size in sizes if f"{int(size):,}" not in limits]
    assert missing == []


def section(title):
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def rows(title, columns):
    """Return the cells of the table with these columns in a section."""
    head = f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}\n"
    table = section(title).partition(head)[2].partition("\n\n")[0]
    return [line.strip("|").split("|") for line in table.splitlines()]


def test_the_page_says_of_every_class_in_which_threads_it_may_be_used():
    pages = (page.read_text() for page in sorted((HOME / "docs" / "reference").glob("*.md")))
    named = {name for page in pages for name in re.findall(r"^::: layoutkit\.(.+)$", page, re.M)}
    short = {re.sub(r"^(data\.recordio|data|images)\.", "", name) for name in named}
    classes = {name for name in short if re.fullmatch(r"(\w+\.)?[A-Z]\w+", name)}
    listed = [
        name
        for row in rows("Thread safety", ["class", "threads"])
        for name in re.findall(r"`([\w.]+)`", row[0])
    ]
    assert len(listed) == len(set(listed))
    assert set(listed) == classes


def test_the_page_names_the_locks_that_there_are():
    """Each guard is a name in a module of its row, and every module with a lock is in the table."""
    table = rows("Thread safety", ["state", "module", "guard", "test"])
    listed = set()
    for _, modules, guards, _ in table:
        paths = re.findall(r"`([\w/]+\.py)`", modules)
        text = "".join((HOME / path).read_text() for path in paths)
        assert [name for name in re.findall(r"`(\w+)`", guards) if name not in text] == []
        listed.update(paths)
    locks = re.compile(r"threading\.(R?Lock|Condition|local)\(\)")
    found = {
        path.relative_to(HOME).as_posix()
        for folder in ("layoutkit", "kernels")
        for path in (HOME / folder).rglob("*.py")
        if locks.search(path.read_text())
    }
    assert len(found) > 10
    assert found <= listed
