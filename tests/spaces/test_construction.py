"""Spaces: fields, equality, repr, totals, origins, and parts of composites."""

import copy
import dataclasses
import pickle

import ml_dtypes
import numpy as np
import pytest
import scipy.sparse

import layoutkit
from layoutkit import (
    ArgumentError,
    CompositeSpace,
    Conv2DSpace,
    DataError,
    DataSpecsMapping,
    DtypeError,
    IndexSequenceSpace,
    IndexSpace,
    LayoutkitError,
    NullSpace,
    PatternError,
    ShapeError,
    Space,
    SpaceError,
    VectorSequenceSpace,
    VectorSpace,
)
from layoutkit.spaces.array_spaces import LabelSpace
from layoutkit.spaces.base import ArraySpace
from tests.helpers.children import python
from tests.helpers.spaces_of import assert_batches_equal

IMAGES = Conv2DSpace((2, 3), 4, ("c", 0, 1, "b"), "float64")
EACH = [
    VectorSpace(3),
    VectorSpace(3, sparse=True, dtype="float64"),
    VectorSpace(3, dtype=None),
    VectorSpace(3, dtype="bfloat16"),
    IMAGES,
    Conv2DSpace((2, 3), 4, "bchw", None),
    IndexSpace(4, 2),
    IndexSpace(4, 2, "uint8"),
    VectorSequenceSpace(3),
    IndexSequenceSpace(4, 2),
    CompositeSpace(()),
    CompositeSpace([VectorSpace(3)]),
    CompositeSpace((VectorSpace(3), CompositeSpace((NullSpace(), IndexSpace(4, 1))))),
    NullSpace(),
]
names = pytest.mark.parametrize("space", EACH, ids=repr)


# ---- identity ----------------------------------------------------------------------------


@names
def test_a_space_is_read_back_from_its_repr(space):
    assert eval(repr(space), vars(layoutkit) | {"VectorSpace": VectorSpace}) == space


@names
def test_copies_are_equal_and_hash_alike(space):
    for other in (copy.deepcopy(space), pickle.loads(pickle.dumps(space))):
        assert other == space
        assert hash(other) == hash(space)
        assert other is not space


def test_different_spaces_differ():
    for at, space in enumerate(EACH):
        assert [other == space for other in EACH] == [at == i for i in range(len(EACH))]
    assert len(set(EACH)) == len(EACH)


@names
def test_spaces_are_frozen(space):
    for name in ("dim", "dtype", "axes", "components", "anything"):
        with pytest.raises(AttributeError):
            setattr(space, name, 3)


def test_equality_looks_at_all_fields_and_the_class():
    assert VectorSpace(3) != VectorSpace(4)
    assert VectorSpace(3) != VectorSpace(3, sparse=True)
    assert VectorSpace(3) != VectorSpace(3, dtype="float64")
    assert VectorSpace(3) != VectorSequenceSpace(3)
    assert CompositeSpace([VectorSpace(3)]) != VectorSpace(3)
    assert dataclasses.replace(IMAGES, axes=("c", 1, 0, "b")) != IMAGES
    assert IndexSpace(4, 2) != IndexSpace(2, 4)
    a, b = VectorSpace(3), IndexSpace(3, 1)
    assert CompositeSpace((a, b)) != CompositeSpace((b, a))
    assert VectorSpace(3) != 3


def test_a_subclass_is_another_space():
    class Mine(VectorSpace):
        pass

    assert Mine(3) != VectorSpace(3)
    assert VectorSpace(3) != Mine(3)


@pytest.mark.parametrize("space", [s for s in EACH if isinstance(s, ArraySpace)], ids=repr)
def test_any_dtype_is_equal_to_no_dtype(space):
    """NumPy's float64 equals None, so such spaces once were equal, but had different hashes."""
    anything = space.with_dtype(None)
    wide = space.with_dtype("int64" if isinstance(space, LabelSpace) else "float64")
    assert anything != wide
    assert wide != anything
    assert CompositeSpace((NullSpace(), anything)) != CompositeSpace((NullSpace(), wide))
    assert anything == space.with_dtype(None)
    assert hash(anything) == hash(space.with_dtype(None))
    assert wide == space.with_dtype(wide.dtype)
    assert len({anything, wide, space.with_dtype(None)}) == 2


def test_routes_and_data_specs_tell_any_dtype_from_float64():
    wide, anything = VectorSpace(3, dtype="float64"), VectorSpace(3, dtype=None)
    batch = np.zeros((2, 3), "float32")
    for other, dtype in ((wide, "float64"), (anything, "float32"), (wide, "float64")):
        assert VectorSpace(3).format_as(batch, other).dtype == dtype
    both = CompositeSpace((wide, anything))
    mapping = DataSpecsMapping((both, ("x", "x")))
    assert mapping.n_unique_specs == 2
    same = DataSpecsMapping((CompositeSpace((wide, wide)), ("x", "x")))
    with pytest.raises(DataError, match="their values differ"):
        same.flatten(both)


def test_equal_dtypes_are_equal_however_they_are_written():
    spaces = {VectorSpace(3, dtype=d) for d in ("f4", "float32", np.float32, np.dtype(">f4"))}
    assert len(spaces) == 1
    assert VectorSpace(3, dtype=ml_dtypes.bfloat16) == VectorSpace(3, dtype="bfloat16")
    assert VectorSpace(3).dtype == np.dtype("float32")
    assert VectorSpace(3).dtype.isnative


def test_sizes_are_kept_as_plain_ints():
    space = Conv2DSpace([np.int64(2), np.uint8(3)], np.int16(4))
    assert space.shape == (2, 3)
    assert [type(n) for n in (*space.shape, space.num_channels)] == [int] * 3


def test_axes_may_be_written_as_a_layout():
    assert Conv2DSpace((2, 3), 4, "c h w b", "float64") == IMAGES
    assert Conv2DSpace((2, 3), 4, ["c", np.int64(0), 1, "b"], "float64") == IMAGES
    assert IMAGES.axes == ("c", 0, 1, "b")
    assert IMAGES.layout == "chwb"
    assert Conv2DSpace((2, 3), 4).axes == ("b", 0, 1, "c")


@pytest.mark.parametrize("size", [0, -1, 2.5, 2.0, "3", None, True, np.True_, (3,)])
def test_sizes_are_ints_of_at_least_one(size):
    for make in (
        VectorSpace,
        VectorSequenceSpace,
        lambda n: IndexSpace(n, 1),
        lambda n: IndexSpace(3, n),
        lambda n: IndexSequenceSpace(n, 1),
        lambda n: Conv2DSpace((n, 3), 3),
        lambda n: Conv2DSpace((3, n), 3),
        lambda n: Conv2DSpace((3, 3), n),
    ):
        with pytest.raises(ShapeError, match="whole number of at least 1"):
            make(size)


@pytest.mark.parametrize("shape", [3, None, (3,), (3, 3, 3), "33a"])
def test_a_shape_is_a_pair(shape):
    with pytest.raises(ShapeError, match="pair"):
        Conv2DSpace(shape, 3)


@pytest.mark.parametrize(
    "axes",
    [
        ("b", 0, 1), ("b", 0, 1, "c", "c"), ("b", "b", 0, 1), ("b", 0, 1, "d"),
        ("b", "c", "0", "1"),
        ("b", False, True, "c"), ("b", 0.0, 1.0, "c"), ("b", 0, 2, "c"), ("b", [0], 1, "c"),
        "bc01", "bhw", "bhwd", "bhwcd", "b(hw)c", "", 3, None,
    ],
)  # fmt: skip
def test_axes_are_a_permutation(axes):
    with pytest.raises(PatternError, match='"b", 0'):
        Conv2DSpace((2, 3), 4, axes)


@pytest.mark.parametrize("sparse", [1, 0, None, "csr"])
def test_sparse_is_a_bool(sparse):
    with pytest.raises(ArgumentError, match="sparse="):
        VectorSpace(3, sparse)


@pytest.mark.parametrize("dtype", ["string", "no such", object, "U0", 5])
def test_dtypes_are_of_elements_that_can_be_moved(dtype):
    for make in (VectorSpace, VectorSequenceSpace):
        with pytest.raises(DtypeError):
            make(3, dtype=dtype)


@pytest.mark.parametrize("dtype", ["float32", "bool", "complex64", "bfloat16"])
def test_labels_are_integers(dtype):
    for make in (IndexSpace, IndexSequenceSpace):
        with pytest.raises(DtypeError, match="integers"):
            make(3, 1, dtype)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "datetime64[s]", "float8_e4m3fn"])
def test_scipy_has_no_sparse_matrices_of_some_dtypes(dtype):
    with pytest.raises(DtypeError, match=r"scipy\.sparse"):
        VectorSpace(3, sparse=True, dtype=dtype)
    with pytest.raises(DtypeError, match=r"scipy\.sparse"):
        VectorSpace(3, sparse=True, dtype=None).get_origin_batch(2, dtype=dtype)


@pytest.mark.parametrize(("components", "where"), [([VectorSpace(3), 3], r"\[1\]"), (3, "list"),
                         (VectorSpace(3), "list"), ("ab", "list")])  # fmt: skip
def test_components_are_spaces(components, where):
    with pytest.raises(SpaceError, match=where):
        CompositeSpace(components)


# ---- dtypes ------------------------------------------------------------------------------


def test_with_dtype_leaves_the_space_alone():
    space = VectorSpace(3)
    assert space.with_dtype("float64") == VectorSpace(3, dtype="float64")
    assert space.with_dtype(None) == VectorSpace(3, dtype=None)
    assert space == VectorSpace(3)


def test_with_dtype_of_a_composite():
    space = CompositeSpace((VectorSpace(3), CompositeSpace((NullSpace(), IMAGES))))
    assert space.dtype == (np.float32, (None, np.float64))
    assert space.with_dtype("float16").dtype == (np.float16, (None, np.float16))
    assert space.with_dtype(("int8", "float16")).dtype == (np.int8, (None, np.float16))
    assert space.with_dtype(("int8", ("int8", None))).dtype == (np.int8, (None, None))


def test_with_dtype_refuses_what_the_space_refuses():
    labels = CompositeSpace((VectorSpace(3), CompositeSpace((NullSpace(), IndexSpace(4, 1)))))
    with pytest.raises(DtypeError, match="integers"):
        IndexSpace(4, 1).with_dtype("float32")
    with pytest.raises(DtypeError, match=r"component \[1\]\[1\]: .*integers"):
        labels.with_dtype("float32")
    with pytest.raises(DtypeError, match="3 dtypes for a composite of 2"):
        labels.with_dtype(("float32",) * 3)
    with pytest.raises(DtypeError, match=r"component \[1\]: 1 dtypes"):
        labels.with_dtype(("float32", ("int8",)))
    with pytest.raises(DtypeError, match=r"component \[0\]"):
        labels.with_dtype(("no such", None))


# ---- totals and origins ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("space", "total"),
    [(VectorSpace(3), 3), (IMAGES, 24), (IndexSpace(4, 2), 2), (NullSpace(), 0),
     (CompositeSpace(()), 0), (CompositeSpace((VectorSpace(3), CompositeSpace((IMAGES, NullSpace(),
      IndexSpace(4, 2))))), 29)],
)  # fmt: skip
def test_total_dimension(space, total):
    assert space.get_total_dimension() == total


def test_sequences_have_no_total_and_no_origin():
    for space in (VectorSequenceSpace(3), IndexSequenceSpace(4, 2)):
        nested = CompositeSpace((NullSpace(), CompositeSpace((space,))))
        for ask in (
            lambda s: s.get_total_dimension(),
            lambda s: s.get_origin(),
            lambda s: s.get_origin_batch(1),
        ):
            with pytest.raises(SpaceError, match="any length"):
                ask(space)
            with pytest.raises(SpaceError, match=r"component \[1\]\[0\]: .*any length"):
                ask(nested)


@pytest.mark.parametrize(
    ("space", "shape", "dtype"),
    [(VectorSpace(3), (3,), "float32"), (VectorSpace(3, dtype="int8"), (3,), "int8"),
     (VectorSpace(3, sparse=True), (3,), "float32"), (IMAGES, (4, 2, 3), "float64"),
     (Conv2DSpace((2, 3), 4), (2, 3, 4), "float32"), (IndexSpace(4, 2), (2,), "int64"),
     (IndexSpace(4, 2, "uint8"), (2,), "uint8"), (VectorSpace(3, dtype=None), (3,), "float32"),
     (IndexSpace(4, 2, None), (2,), "int64")],
)  # fmt: skip
def test_origin(space, shape, dtype):
    assert_batches_equal(space.get_origin(), np.zeros(shape, dtype))


def test_origin_batches():
    assert_batches_equal(VectorSpace(3).get_origin_batch(5), np.zeros((5, 3), "float32"))
    assert_batches_equal(VectorSpace(3).get_origin_batch(0, "int8"), np.zeros((0, 3), "int8"))
    assert_batches_equal(IMAGES.get_origin_batch(5), np.zeros((4, 2, 3, 5)))
    assert_batches_equal(IndexSpace(4, 2).get_origin_batch(5), np.zeros((5, 2), "int64"))
    sparse = VectorSpace(3, sparse=True).get_origin_batch(5, "float64")
    assert_batches_equal(sparse, scipy.sparse.csr_matrix((5, 3), dtype="float64"))
    assert NullSpace().get_origin_batch(5) is None


def test_origins_of_composites_nest():
    space = CompositeSpace((VectorSpace(3), CompositeSpace((NullSpace(), IndexSpace(4, 2)))))
    assert_batches_equal(space.get_origin(), (np.zeros(3, "float32"), (None, np.zeros(2, "int64"))))
    wanted = (np.zeros((5, 3), "float64"), (None, np.zeros((5, 2), "int8")))
    assert_batches_equal(space.get_origin_batch(5, ("float64", (None, "int8"))), wanted)
    wanted = (np.zeros((5, 3), "float32"), (None, np.zeros((5, 2), "int8")))
    assert_batches_equal(space.get_origin_batch(5, (None, "int8")), wanted)
    assert CompositeSpace(()).get_origin_batch(5) == ()


def test_a_maker_of_batches_needs_a_dtype():
    nested = CompositeSpace((NullSpace(), VectorSpace(3, dtype=None)))
    for space in (VectorSpace(3, dtype=None), IndexSpace(3, 1, None), IMAGES.with_dtype(None)):
        with pytest.raises(DtypeError, match="pass one"):
            space.get_origin_batch(2)
        assert space.get_origin_batch(2, "int16").dtype == np.int16
    with pytest.raises(DtypeError, match=r"component \[1\]: .*pass one"):
        nested.get_origin_batch(2)
    with pytest.raises(DtypeError, match="integers"):
        IndexSpace(3, 1).get_origin_batch(2, "float32")


@pytest.mark.parametrize("n", [-1, 2.0, None, True, "2"])
def test_a_batch_has_a_number_of_samples(n):
    for space in (VectorSpace(3), IMAGES, CompositeSpace((VectorSpace(3),)), NullSpace()):
        with pytest.raises(ShapeError, match="n="):
            space.get_origin_batch(n)


# ---- parts of composites -----------------------------------------------------------------

THREE = CompositeSpace((VectorSpace(3), IndexSpace(4, 2), CompositeSpace((NullSpace(),))))


def test_restrict():
    a, b, c = THREE.components
    assert THREE.restrict([1]) is b
    assert THREE.restrict((2,)) is c
    assert THREE.restrict([2, 0]) == CompositeSpace((c, a))
    assert THREE.restrict([0, 0, -1]) == CompositeSpace((a, a, c))
    assert THREE.restrict([np.int64(0), 1, 2]) == THREE
    assert THREE.restrict([]) == CompositeSpace(())


def test_restrict_batch():
    batch = THREE.get_origin_batch(5)
    assert THREE.restrict_batch(batch, [1]) is batch[1]
    chosen = THREE.restrict_batch(batch, [2, -3])
    assert chosen[0] is batch[2]
    assert chosen[1] is batch[0]
    THREE.restrict([2, -3]).validate(chosen)
    assert THREE.restrict_batch(batch, []) == ()


@pytest.mark.parametrize("indices", [[3], [-4], [0, 3], 1, None, "0", [0.0], [True], [None]])
def test_restrict_refuses_what_is_not_there(indices):
    for ask in (THREE.restrict, lambda i: THREE.restrict_batch(THREE.get_origin_batch(1), i)):
        with pytest.raises(ShapeError, match=r"restrict needs|component|whole number"):
            ask(indices)


def test_restrict_batch_validates():
    with pytest.raises(SpaceError, match="tuple"):
        THREE.restrict_batch([1, 2, 3], [0])
    with pytest.raises(ShapeError, match=r"component \[0\]"):
        THREE.restrict_batch((np.zeros((5, 4)), *THREE.get_origin_batch(5)[1:]), [1])


# ---- the package -------------------------------------------------------------------------


def test_every_name_is_exported_and_lazy():
    code = """
import sys, layoutkit
print("layoutkit.spaces" in sys.modules, "VectorSpace" in dir(layoutkit))
from layoutkit import *
print(VectorSpace(3), layoutkit.VectorSpace is VectorSpace, "layoutkit.spaces" in sys.modules)
try:
    layoutkit.NoSuchSpace
except AttributeError as error:
    print(error)
"""
    assert python(code).splitlines() == [
        "False True",
        'VectorSpace(dim=3, dtype="float32") True True',
        "module 'layoutkit' has no attribute 'NoSuchSpace'",
    ]
    assert set(layoutkit.spaces.__all__) <= set(layoutkit.__all__)


def test_no_other_library_is_loaded_by_dense_batches():
    code = """
import sys, numpy as np
from layoutkit import *
both = CompositeSpace((Conv2DSpace((2, 3), 4), IndexSpace(4, 2)))
batch = both.get_origin_batch(5)
vectors = CompositeSpace((VectorSpace(24), VectorSpace(4)))
both.undo_format_as(both.format_as(batch, both), both)
vectors.validate(both.format_as(batch, vectors))
print([name for name in ("jax", "torch", "scipy") if name in sys.modules])
"""
    assert python(code) == "[]\n"


def test_old_names_are_the_same_methods():
    assert Space.np_validate is Space.validate
    assert Space.np_format_as is Space.format_as
    assert Space.undo_np_format_as is Space.undo_format_as
    assert VectorSpace(3).np_validate(np.zeros((2, 3))) is None
    with pytest.raises(ShapeError):
        VectorSpace(3).np_validate(np.zeros((2, 4)))


def test_all_errors_are_of_this_library():
    for make in (lambda: VectorSpace(0), lambda: CompositeSpace(3), lambda: IndexSpace(3, 1, "f4")):
        with pytest.raises(LayoutkitError):
            make()


@pytest.mark.parametrize(
    "use",
    [
        lambda space: space.validate(np.zeros(3)),
        lambda space: space.batch_size(np.zeros(3)),
        lambda space: space.get_total_dimension(),
        lambda space: space.get_origin(),
        lambda space: space.get_origin_batch(2),
        lambda space: space.with_dtype("float32"),
        lambda space: CompositeSpace((space,)).validate((np.zeros(3),)),
    ],
)
def test_a_class_without_the_methods_of_a_space_is_named(use):
    class Bare(Space):
        pass

    with pytest.raises(LayoutkitError, match=r"Bare does not define \w+, which its batches need"):
        use(Bare())
