"""Every keyword of every public function, class and method changes something, or is an error."""

import inspect
import re
from pathlib import Path

import pytest

for library in ("PIL", "cv2", "torch", "keras", "sklearn"):
    pytest.importorskip(library, reason=f"{library} is not installed")

import layoutkit
from tests.helpers.keyword_calls import ANY, IGNORED, TABLE, keywords_of, outcome

pytestmark = pytest.mark.budget(240, all=360)

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
ROWS = [(name, keyword) for name, calls in TABLE.items() for keyword in calls.rows]


def public_callables():
    """Return the functions, classes and methods of the reference by name."""
    pages = "\n".join(page.read_text() for page in sorted(REFERENCE.glob("*.md")))
    found = {}
    for name in re.findall(r"^::: layoutkit\.(.+)$", pages, re.M):
        target = layoutkit
        for part in name.split("."):
            target = getattr(target, part)
        if not callable(target) or getattr(target, "_is_protocol", False):
            continue
        found[name] = target
        if inspect.isclass(target):
            for method, function in vars(target).items():
                if callable(function) and (method == "__call__" or not method.startswith("_")):
                    found[f"{name}.{method}"] = function
    return found


def test_every_keyword_has_a_row():
    public = {name: {*keywords_of(function)} for name, function in public_callables().items()}
    lacking = {f"{n}: {k}" for n, names in public.items() for k in names if k not in rows_of(n)}
    assert lacking == {*IGNORED}, "add a row for each keyword to tests/helpers/keyword_calls.py"
    stale = {f"{n}: {k}" for n, k in ROWS if k not in public.get(n, ())}
    assert not stale


def rows_of(name):
    return TABLE[name].rows if name in TABLE else ()


@pytest.mark.parametrize(("name", "keyword"), ROWS)
def test_a_keyword_changes_something(name, keyword):
    case = TABLE[name].rows[keyword]
    argument = keyword.removeprefix("**")
    first = {} if case.instead is ANY else {argument: case.instead}
    before, _ = outcome(name, {**case.others, **first})
    after, error = outcome(name, {**case.others, argument: case.value})
    assert case.refused == (error is not None), error
    assert before != after
