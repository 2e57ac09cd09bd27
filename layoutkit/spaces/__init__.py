"""Spaces: descriptions of batches, and conversions of batches from one space to another.

    VectorSpace(3072)                   a matrix, one row per sample; also sparse
    Conv2DSpace((32, 32), 3, "bchw")    images, their axes in any order
    IndexSpace(10, 1)                   labels 0 to 9
    VectorSequenceSpace, IndexSequenceSpace      one sequence of any length
    CompositeSpace((images, labels))    a tuple of spaces, nested at will
    NullSpace()                         no data

Every space has `validate(batch)`, `format_as(batch, other)` and `undo_format_as(batch, other)`.
`DataSpecsMapping` flattens nested (space, source) pairs and nests data back.

validation.py       checks of a batch
sparse.py           matrices of scipy.sparse
convert.py          the table of conversions between spaces, and their implementations
views.py            the correspondence of layouts, Views and spaces
base.py             the base classes `Space` and `ArraySpace`
array_spaces.py     the spaces of single arrays, and `NullSpace`
composite.py        `CompositeSpace`
data_specs.py       data specs and `DataSpecsMapping`

Each module imports only modules above it. layoutkit/views does not import this package. A new
space of arrays in a layout is a subclass of `ArraySpace`, in any package; other kinds also have
rows in convert.py and views.py.
"""

from .array_spaces import (
    Conv2DSpace,
    IndexSequenceSpace,
    IndexSpace,
    NullSpace,
    VectorSequenceSpace,
    VectorSpace,
)
from .base import ArraySpace, Space
from .composite import CompositeSpace
from .data_specs import DataSpecsMapping, is_flat_source, is_flat_space, is_flat_specs

__all__ = [
    "ArraySpace",
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
