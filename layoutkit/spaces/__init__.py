"""Spaces: what a batch may look like, and how it becomes a batch of another look.

    VectorSpace(3072)                   a matrix, one row a sample; also sparse
    Conv2DSpace((32, 32), 3, "bchw")    images, their axes in any order
    IndexSpace(10, 1)                   labels 0 to 9
    VectorSequenceSpace, IndexSequenceSpace      one sequence of any length
    CompositeSpace((images, labels))    several of these, nested at will
    NullSpace()                         no data at all

Every space has `validate(batch)`, `format_as(batch, other)` and `undo_format_as(batch, other)`.
`DataSpecsMapping` flattens nested (space, source) pairs and nests data back.

checks.py                     what a batch has to be
moves.py, trees.py            how one array and several become others; sparse.py those of SciPy
routes.py                     the table of which space becomes which, and by what
viewing.py                    the table of layouts, Views and spaces
asking.py                     what a view asks a space
base.py, arrayspace.py        what all spaces can do, and those of one array
vector.py, conv2d.py, ...     the kinds of spaces
predicates.py, mapping.py     data specs

Each knows only those above it. Views are known, by which spaces are not. A new kind of space is a
file of its own, its rows in routes.py and in viewing.py, and its name here.
"""

from .array_spaces import (
    Conv2DSpace,
    IndexSequenceSpace,
    IndexSpace,
    NullSpace,
    VectorSequenceSpace,
    VectorSpace,
)
from .base import Space
from .composite import CompositeSpace
from .data_specs import DataSpecsMapping, is_flat_source, is_flat_space, is_flat_specs

__all__ = [
    "CompositeSpace",
    "Conv2DSpace",
    "DataSpecsMapping",
    "IndexSequenceSpace",
    "IndexSpace",
    "NullSpace",
    "Space",
    "VectorSequenceSpace",
    "VectorSpace",
    "is_flat_source",
    "is_flat_space",
    "is_flat_specs",
]
