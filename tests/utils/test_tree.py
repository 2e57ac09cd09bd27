"""Walking nested tuples: leaves in order, values back into their places, errors with paths."""

import pytest

from layoutkit import ShapeError
from layoutkit._utils.tree import each, each_leaf, leaves, matched, paths, placed, rebuilt

NEST = (1, (2, (), (3,)), 4)


def test_leaves_and_values_keep_their_places():
    assert leaves(NEST) == [1, 2, 3, 4]
    assert paths(NEST) == [(0,), (1, 0), (1, 2, 0), (2,)]
    assert rebuilt(NEST, "abcd") == ("a", ("b", (), ("c",)), "d")
    assert rebuilt(NEST, leaves(NEST)) == NEST
    assert rebuilt(NEST, leaves(NEST), list) == [1, [2, [], [3]], 4]
    assert (leaves("one"), paths("one"), rebuilt("one", [5])) == (["one"], [()], 5)


def test_values_that_nest_alike():
    assert matched(NEST, ["a", ("b", [], ["c"]), "d"], "names") == list("abcd")
    assert matched(NEST, ("a", "b", "d"), "names", shared=True) == list("abbd")
    assert matched(NEST, None, "names", shared=True) == [None] * 4
    assert matched("one", ("a", "b"), "names") == [("a", "b")]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (("a", "b"), "names: 2 given for 3 components"),
        ("abc", "names: a str given for 3 components"),
        (("a", "b", "c"), "names: a str given for 3 components; give a sequence of 3, nested"),
        (("a", ("b", (), ()), "c"), "names: 0 given for 1 components"),
    ],
)
def test_values_that_nest_otherwise(value, words):
    with pytest.raises(ShapeError, match=words):
        matched(NEST, value, "names")


def refuse(leaf, *more):
    if leaf == 3:
        raise ShapeError("too wide")
    return (leaf, *more)


def test_errors_say_where():
    with pytest.raises(ShapeError, match=r"^component \[1\]\[2\]\[0\]: too wide$") as caught:
        each_leaf(refuse, NEST, "abcd")
    with pytest.raises(ShapeError, match=r"^component \[1\]: too wide$"):
        each(refuse, (2, 3))
    again = placed(caught.value, 7, 0)
    assert str(again) == "component [7][0][1][2][0]: too wide"
    assert placed(again) is again
    with pytest.raises(ShapeError, match=r"^too wide$"):
        each_leaf(refuse, 3)


def test_other_errors_are_left_alone():
    with pytest.raises(ZeroDivisionError, match="division by zero"):
        each_leaf(lambda leaf: 1 / (leaf - 3), NEST)


def test_each_value_meets_its_leaf():
    assert each_leaf(refuse, (1, (2,)), "ab", "cd") == [(1, "a", "c"), (2, "b", "d")]
    assert each(refuse, (1, 2), "ab") == ((1, "a"), (2, "b"))
