"""Spaces: what a batch may look like, and how it becomes a batch of another look.

    VectorSpace(3072)                   a matrix, one row a sample; also sparse
    Conv2DSpace((32, 32), 3, "bchw")    images, their axes in any order
    IndexSpace(10, 1)                   labels 0 to 9
    VectorSequenceSpace, IndexSequenceSpace      one sequence of any length
    CompositeSpace((images, labels))    several of these, nested at will
    NullSpace()                         no data at all

Every space has `validate(batch)`, `format_as(batch, other)` and `undo_format_as(batch, other)`.
`DataSpecsMapping` flattens nested (space, source) pairs and nests data back.

The house: one file for each kind of space, on `base.py` and `arrayspace.py`; `routes.py` says
which space becomes which, `moves.py`, `trees.py` and `sparse.py` do it, and `libraries.py` knows
JAX and PyTorch, neither of which is imported before it is needed.
"""

from .base import Space
from .composite import CompositeSpace
from .conv2d import Conv2DSpace
from .index import IndexSpace
from .mapping import DataSpecsMapping
from .null import NullSpace
from .predicates import is_flat_source, is_flat_space, is_flat_specs
from .sequence import IndexSequenceSpace, VectorSequenceSpace
from .vector import VectorSpace

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
