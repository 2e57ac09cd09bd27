"""The page of promises names tests that there are."""

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
