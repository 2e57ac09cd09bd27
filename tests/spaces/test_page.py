"""The tables of docs/spaces.md: a test for each row.

A row or cell without an entry in this module is an error, so that new text gets a test.
"""

import inspect
import itertools
import re
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse

import layoutkit
from layoutkit import (
    ClassView,
    CompositeSpace,
    Conv2DSpace,
    DataView,
    ImageView,
    IndexSequenceSpace,
    IndexSpace,
    LayoutkitError,
    ListView,
    NullSpace,
    SequenceView,
    ShapeError,
    SpaceError,
    VectorSequenceSpace,
    VectorSpace,
)
from tests.helpers.spaces_of import assert_batches_equal, random_batch, rows

PAGE = (Path(__file__).parents[2] / "docs" / "spaces.md").read_text()


def table(head):
    """Return the rows of the table with this head, as lists of cells without backquotes."""
    block = re.search(rf"^{re.escape(head)}\n\|[-|]+\n((?:\|.*\n)+)", PAGE, re.MULTILINE)[1]
    cells = [row.strip("|").split("|") for row in block.splitlines()]
    return [[cell.strip().replace("`", "") for cell in row] for row in cells]


# ---- batches of each space ---------------------------------------------------------------

DENSE = np.float32([[1, 0, 2], [0, 0, 3]])
# By the cell of the batch: arguments of the space, valid batches, and invalid batches.
BATCHES = {
    "(batch, dim)": ({"dim": 3}, [DENSE, DENSE[:0]], [DENSE[0], DENSE[:, :2]]),
    "four axes, in any order": ({}, [], []),  # see four_axes_in_any_order
    "(batch, dim), integers from 0 to max_labels - 1": (
        {"max_labels": 4, "dim": 2},
        [np.array([[0, 3]]), np.array([[0, 3], [1, 1]], np.uint8)],
        [np.array([[0, 4]]), np.array([[0, -1]]), np.array([[0.0, 1.0]]), np.array([0, 3])],
    ),
    "(time, dim) of any length": (
        {"dim": 3}, [DENSE, DENSE[:1], DENSE[:0]], [DENSE[None], DENSE[:, :2]],
    ),
    "(time, dim), labels": (
        {"max_labels": 4, "dim": 2},
        [np.array([[0, 3]] * 5)],
        [np.array([[0, 4]]), np.zeros((5, 2))],
    ),
    "a tuple, nested as the space is": (
        {"components": (VectorSpace(3), CompositeSpace((NullSpace(), VectorSpace(3))))},
        [(DENSE, (None, DENSE))],
        [(DENSE, None, DENSE), DENSE, (DENSE, (DENSE, None)), (DENSE, (None, DENSE[:1]))],
    ),
    "None": ({}, [None], [DENSE, ()]),
}  # fmt: skip


def one_sample(space):
    for length in (1, 2, 5):
        assert space.batch_size(np.zeros((length, space.dim), space.dtype)) == 1


REMARKS = {
    "": lambda space: None,
    "with sparse=True a matrix of scipy.sparse": lambda space: type(space)(3, sparse=True).validate(
        scipy.sparse.csr_matrix(DENSE)
    ),
    "a batch of one": one_sample,
    "what needs no data asks for this": lambda space: layoutkit.DataSpecsMapping((space, "")),
}


@pytest.mark.parametrize(("space", "batch", "remark"), table("| space | a batch | |"))
def test_a_batch_is_what_the_page_says(space, batch, remark):
    name, given = re.fullmatch(r"(\w+)\((.*)\)", space).groups()
    kind = getattr(layoutkit, name)
    names = [part.partition("=")[0].strip() for part in given.split(",") if part]
    assert list(inspect.signature(kind).parameters)[: len(names)] == names
    arguments, right, wrong = BATCHES[batch]
    if name == "Conv2DSpace":
        four_axes_in_any_order(kind)
        return
    made = kind(**arguments)
    assert set(arguments) <= set(names)
    for one in right:
        made.validate(one)
    for one in wrong:
        with pytest.raises(LayoutkitError):
            made.validate(one)
    REMARKS[remark](made)


def four_axes_in_any_order(kind):
    sizes = {"b": 5, 0: 2, 1: 3, "c": 4}
    for axes in itertools.permutations(sizes):
        space = kind((2, 3), 4, axes)
        space.validate(np.zeros([sizes[axis] for axis in axes], np.float32))
        with pytest.raises(ShapeError):
            space.validate(np.zeros([sizes[axis] + (axis == "c") for axis in axes], np.float32))
        with pytest.raises(ShapeError):
            space.validate(np.zeros((5, 24), np.float32))


# ---- from space to space -----------------------------------------------------------------

SEQUENCE = np.float32([[1, 2, 3], [4, 5, 6]])
VECTORS, IMAGES = VectorSpace(12), Conv2DSpace((2, 3), 2, "bchw")
LABELS = IndexSpace(4, 2)
SPACES = {  # 12 numbers per sample, so that no conversion fails because of sizes
    "vector": VECTORS,
    "images": IMAGES,
    "labels": IndexSpace(4, 3),
    "composite": CompositeSpace((VectorSpace(5), CompositeSpace((VectorSpace(7),)))),
    "sequences": VectorSequenceSpace(12),
    "null": NullSpace(),
}
ONE_HOT = {(0, 2): [1, 0, 0, 0, 0, 0, 1, 0], (3, 3): [0, 0, 0, 1, 0, 0, 0, 1]}


def never(a, b):
    is_sequence = a.family == "vector sequence"
    batch = np.ones((1, 12), np.float32) if is_sequence else a.get_origin_batch(1)
    a.validate(batch)
    with pytest.raises(SpaceError):
        a.format_as(batch, b)
    with pytest.raises(TypeError):
        a.format_as(batch, b, casting="unsafe")


def same_rows(a, b):
    """Check that all numbers of all samples are kept and that undo_format_as restores the batch."""
    batch = random_batch(a, 3)
    made = a.format_as(batch, b)
    b.validate(made)
    np.testing.assert_array_equal(rows(b, made), rows(a, batch))
    assert_batches_equal(a.undo_format_as(made, b), batch)


def dense_or_sparse(a, b):
    same_rows(a, b.with_dtype("float64"))
    sparse = VectorSpace(b.dim, sparse=True)
    for one, other in [(a, sparse), (sparse, b), (sparse, sparse)]:
        same_rows(one, other)


def other_axes(a, b):
    for axes in itertools.permutations(("b", 0, 1, "c")):
        same_rows(a, Conv2DSpace(b.shape, b.num_channels, axes))


def one_hot(a, b):
    assert a.format_as(np.array([[0, 1, 3]]), b).tolist() == [[1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1]]
    batch = np.array(list(ONE_HOT))
    blocks = LABELS.format_as(batch, VectorSpace(8))
    assert blocks.tolist() == list(ONE_HOT.values())
    there = LABELS.format_as(batch, VectorSpace(4))
    assert there.tolist() == [[1, 0, 1, 0], [0, 0, 0, 1]]


def labels_dtype(a, b):
    made = a.format_as(np.array([[0, 1, 3]]), b.with_dtype("int32"))
    assert (made.dtype, made.tolist()) == (np.int32, [[0, 1, 3]])


def each_component(a, b):
    wanted = CompositeSpace((VectorSpace(5, dtype="float64"), b.components[1]))
    same_rows(a, wanted)
    images = CompositeSpace((IMAGES, LABELS))
    parts = random_batch(IMAGES, 2), np.array([[0, 2], [3, 3]])
    made = images.format_as(parts, CompositeSpace((VECTORS, VectorSpace(8))))
    assert_batches_equal(made[0], IMAGES.format_as(parts[0], VECTORS))
    assert made[1].tolist() == list(ONE_HOT.values())


def of_sequences(a, b):
    values = np.arange(24, dtype=np.float32).reshape(2, 12)
    made = a.format_as(values, b.with_dtype("float64"))
    assert_batches_equal(made, values.astype("float64"))
    labels = IndexSequenceSpace(4, 2)
    batch = np.array(list(ONE_HOT))
    assert labels.format_as(batch, VectorSequenceSpace(8)).tolist() == list(ONE_HOT.values())
    assert labels.format_as(batch, labels.with_dtype("int32")).dtype == np.int32


def none(a, b):
    assert a.format_as(None, b) is None


WORDS = {
    "never": never,
    "dtype, dense or sparse": dense_or_sparse,
    "opened": same_rows,
    "flattened": same_rows,
    "split": same_rows,
    "joined": same_rows,
    "other axes": other_axes,
    "one-hot": one_hot,
    "dtype": labels_dtype,
    "each component": each_component,
    "dtype, one-hot": of_sequences,
    "None": none,
}
KINDS = ["vector", "images", "labels", "composite", "sequences", "null"]
WAYS = [
    (row[0], to, word)
    for row in table(f"| from, to | {' | '.join(KINDS)} |")
    for to, word in zip(KINDS, row[1:], strict=True)
]


@pytest.mark.parametrize(("source", "target", "word"), WAYS)
def test_one_space_becomes_another_as_the_page_says(source, target, word):
    WORDS[word](SPACES[source], SPACES[target])


def test_the_table_has_every_way():
    assert [way[:2] for way in WAYS] == list(itertools.product(KINDS, KINDS))


# ---- layouts, Views and spaces -----------------------------------------------------------

STEPS = np.array([[0, 3], [1, 2]])
# By the cell of the space: spaces and batches.
HELD = {
    "VectorSpace": [(VectorSpace(3), DENSE)],
    "Conv2DSpace": [
        (space := Conv2DSpace((2, 3), 2, axes), random_batch(space, 4))
        for axes in itertools.permutations(("b", 0, 1, "c"))
    ],
    "IndexSpace": [(LABELS, np.array([[0, 2]]))],
    "VectorSequenceSpace, IndexSequenceSpace": [
        (VectorSequenceSpace(3), SEQUENCE), (IndexSequenceSpace(4, 2), STEPS),
    ],
    "CompositeSpace": [
        (CompositeSpace((NullSpace(), VectorSpace(3), LABELS)), (None, DENSE, STEPS)),
    ],
    "NullSpace": [(NullSpace(), None)],
}  # fmt: skip


def is_view(kind, layout):
    def check(space, view):
        assert type(view) is kind
        assert view.layout == (layout or space.layout)

    return check


def is_list(space, view):
    assert type(view) is ListView
    assert [type(part) for part in view.components] == [DataView, ClassView]


def is_none(space, view):
    assert view is None


VIEWS = {
    "DataView, bf": is_view(DataView, "bf"),
    "ImageView, the layout of the space": is_view(ImageView, None),
    "ClassView, bt": is_view(ClassView, "bt"),
    "SequenceView, bwc": is_view(SequenceView, "bwc"),
    "ListView of the components that hold data": is_list,
    "None": is_none,
}
NUMBERS = np.float32([5, 6, 7])
# By the cell of the layouts: a View, a space, and the batch of that space that it is.
GOT = {
    "bf, and b of numbers for a dim of 1": lambda: [
        (DataView("bf", DENSE), VectorSpace(3), DENSE),
        (DataView("b", NUMBERS), VectorSpace(1), NUMBERS[:, None]),
    ],
    "b, h, w and c in any order": lambda: [
        (ImageView(space.layout, batch), IMAGES, space.format_as(batch, IMAGES))
        for space, batch in HELD["Conv2DSpace"]
    ],
    "b, bt and tb of a ClassView that has classes": lambda: [
        (ClassView("b", np.array([0, 3]), 4), IndexSpace(4, 1), np.array([[0], [3]])),
        (ClassView("bt", STEPS, 4), LABELS, STEPS),
        (ClassView("tb", STEPS.T, 4), LABELS, STEPS),
    ],
    "bwc of one sequence": lambda: [
        (SequenceView("bwc", SEQUENCE[None]), VectorSequenceSpace(3), SEQUENCE),
        (SequenceView("bwc", STEPS[None], 4), IndexSequenceSpace(4, 2), STEPS),
    ],
    "any nest of these": lambda: [
        (
            ListView([DataView("bf", DENSE), ListView([ClassView("bt", STEPS, 4)])]),
            CompositeSpace((VectorSpace(3), CompositeSpace((LABELS,)))),
            (DENSE, (STEPS,)),
        ),
    ],
    "": list,
}


@pytest.mark.parametrize(
    ("spaces", "views", "layouts"),
    table("| space | its View and layout | layouts that convert to this space |"),
)
def test_views_and_spaces_meet_as_the_page_says(spaces, views, layouts):
    kinds = [getattr(layoutkit, name) for name in spaces.split(", ")]
    assert list(dict.fromkeys(type(space) for space, _ in HELD[spaces])) == kinds
    for space, batch in HELD[spaces]:
        VIEWS[views](space, space.view(batch))
    for view, space, batch in GOT[layouts]():
        assert type(space) in kinds
        assert_batches_equal(view.forward_get(space), batch)
