"""Walking nested tuples: leaves in order, values back into their places, errors with paths."""

import pytest

from layoutkit import ShapeError
from layoutkit._utils.tree import (
    leaf_paths,
    leaves,
    map_indexed,
    map_leaves,
    match_structure,
    unflatten,
    with_path_prefix,
)

NEST = (1, (2, (), (3,)), 4)


def test_leaves_and_values_keep_their_places():
    assert leaves(NEST) == [1, 2, 3, 4]
    assert leaf_paths(NEST) == [(0,), (1, 0), (1, 2, 0), (2,)]
    assert unflatten(NEST, "abcd") == ("a", ("b", (), ("c",)), "d")
    assert unflatten(NEST, leaves(NEST)) == NEST
    assert unflatten(NEST, leaves(NEST), list) == [1, [2, [], [3]], 4]
    assert (leaves("one"), leaf_paths("one"), unflatten("one", [5])) == (["one"], [()], 5)


def test_values_that_nest_alike():
    assert match_structure(NEST, ["a", ("b", [], ["c"]), "d"], "names") == list("abcd")
    assert match_structure(NEST, ("a", "b", "d"), "names", shared=True) == list("abbd")
    assert match_structure(NEST, None, "names", shared=True) == [None] * 4
    assert match_structure("one", ("a", "b"), "names") == [("a", "b")]


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
        match_structure(NEST, value, "names")


def refuse(leaf, *more):
    if leaf == 3:
        raise ShapeError("too wide")
    return (leaf, *more)


def test_errors_say_where():
    with pytest.raises(ShapeError, match=r"^component \[1\]\[2\]\[0\]: too wide$") as caught:
        map_leaves(refuse, NEST, "abcd")
    with pytest.raises(ShapeError, match=r"^component \[1\]: too wide$"):
        map_indexed(refuse, (2, 3))
    again = with_path_prefix(caught.value, 7, 0)
    assert str(again) == "component [7][0][1][2][0]: too wide"
    assert with_path_prefix(again) is again
    with pytest.raises(ShapeError, match=r"^too wide$"):
        map_leaves(refuse, 3)


def test_other_errors_are_left_alone():
    with pytest.raises(ZeroDivisionError, match="division by zero"):
        map_leaves(lambda leaf: 1 / (leaf - 3), NEST)


def test_each_value_meets_its_leaf():
    assert map_leaves(refuse, (1, (2,)), "ab", "cd") == [(1, "a", "c"), (2, "b", "d")]
    assert map_indexed(refuse, (1, 2), "ab") == ((1, "a"), (2, "b"))
