"""Pickles before and after the first use, and in other processes."""

import functools
import hashlib
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest

import layoutkit
from layoutkit import (
    ArraySpec,
    ClassView,
    Collator,
    CompositeSpace,
    Conv2DSpace,
    Converter,
    DataSpecsMapping,
    ImageView,
    IndexSequenceSpace,
    IndexSpace,
    ListView,
    VectorSequenceSpace,
    VectorSpace,
    columns,
    images,
)
from layoutkit.data import ArrayProvider, Dataset, open_index
from tests.helpers.children import python

X = np.arange(4 * 8 * 9 * 3, dtype=np.uint8).reshape(4, 8, 9, 3)
FORMULA = {"dtype": "float32", "scale": 1 / 255, "mean": (1, 2, 3), "std": [1.0, 2.0, 3.0]}


def use_converter(to):
    for _ in range(70):  # the direct path begins after 64 calls
        y = to(X)
    to.plan(X), repr(to), hash(to), to == to, to.spec_of(X)
    to.backward(np.ones(y.shape, "f4"), like=X)


def use_collator(collator):
    collator([*X]), repr(collator), hash(collator), collator.plan([*X])


def use_space(space, batch):
    space.validate(batch), repr(space), hash(space), space.batch_size(batch)


def random_collator():
    return Collator("hwc->bchw", h=4, w=5, offset="random", flip="random", seed=3)


CASES = {
    "Converter": (lambda: Converter("bhwc->bchw", **FORMULA), use_converter),
    "of names": (lambda: Converter("n (h hh) w c->n c (w hh) h", hh=2), use_converter),
    "of f": (lambda: Converter("bhwc->bf", memory="fb"), use_converter),
    "of an ellipsis": (lambda: Converter("...c->c(...)", clip=(2, 9)), use_converter),
    "padded": (
        lambda: Converter("bhwc->bchw", pad_to={"h": 12}, channels=(2, 1, 0)),
        use_converter,
    ),
    "Collator": (random_collator, use_collator),
    "resized": (lambda: Collator("hwc->bchw", h=4, w=5, resize="area", **FORMULA), use_collator),
    "in memory order": (lambda: Collator("hwc->bchw", h=4, w=5, memory="bhwc"), use_collator),
    "Columns": (
        lambda: columns(a=Converter("bhwc->bchw"), b=random_collator()),
        lambda both: (both({"a": X, "b": [*X]}), hash(both), repr(both)),
    ),
    "ArraySpec": (lambda: ArraySpec("b (h w) c", (2, 6, 3), "f4"), repr),
    "Plan": (lambda: layoutkit.plan("bhwc->bchw", X.shape, "u1", **FORMULA), repr),
    "Plan of f": (lambda: layoutkit.plan("bf->bhwc", (4, 216), "u1", h=8, w=9), repr),
    "VectorSpace": (lambda: VectorSpace(12), lambda s: use_space(s, np.zeros((3, 12), "f4"))),
    "Conv2DSpace": (
        lambda: Conv2DSpace(shape=(8, 9), num_channels=3, axes=("b", 0, 1, "c"), dtype="uint8"),
        lambda s: use_space(s, X),
    ),
    "IndexSpace": (
        lambda: IndexSpace(max_labels=5, dim=1),
        lambda s: use_space(s, np.ones((2, 1), int)),
    ),
    "VectorSequenceSpace": (
        lambda: VectorSequenceSpace(4),
        lambda s: use_space(s, np.zeros((3, 4), "f4")),
    ),
    "IndexSequenceSpace": (
        lambda: IndexSequenceSpace(max_labels=5, dim=1),
        lambda s: use_space(s, np.ones((3, 1), int)),
    ),
    "CompositeSpace": (
        lambda: CompositeSpace([VectorSpace(12), IndexSpace(max_labels=3, dim=1)]),
        lambda s: use_space(s, (np.zeros((2, 12), "f4"), np.zeros((2, 1), int))),
    ),
    "DataSpecsMapping": (
        lambda: DataSpecsMapping((CompositeSpace([VectorSpace(12), VectorSpace(3)]), ("a", "b"))),
        lambda specs: (specs.flatten((1, 2)), specs.nest((1, 2))),
    ),
    "ImageView": (lambda: ImageView("bhwc", X), lambda v: (v.forward_get("bchw", "f4"), repr(v))),
    "ListView": (
        lambda: ListView([ImageView("bhwc", X), ClassView("b", np.arange(4))]),
        lambda view: view.forward_get(("bchw", "b")),
    ),
    "Index": (
        lambda: open_index({"x": X, "y": np.array([3, 4, 3, 9])}),
        lambda index: (index.groups, index.labels, index.members(3), [*index], repr(index)),
    ),
    "Dataset": (lambda: Dataset({"x": X}), lambda data: (data[0], data[1:3].x(), len(data))),
    "ArrayProvider": (
        lambda: ArrayProvider(X, batch_size=2, layout="bhwc"),
        lambda p: (p.state_dict(), p.epoch, p.num_batches, next(iter(p)), p.set_epoch(0)),
    ),
    "Augmenter": (
        lambda: images.Augmenter((3, 4, 4), rand_crop=True),
        lambda augment: (augment.finish, augment._needs_warp, repr(augment)),
    ),
}


def digest(case):
    return hashlib.sha256(pickle.dumps(CASES[case][0]())).hexdigest()


@pytest.mark.parametrize("case", CASES)
def test_a_pickle_does_not_change_with_the_first_use(case):
    make, use = CASES[case]
    value = make()
    before = pickle.dumps(value)
    use(value)
    assert pickle.dumps(value) == before
    use(pickle.loads(before))
    assert pickle.dumps(make()) == before


def caches():
    """Return the bounded caches of functions: of values, not of machine code or modules."""
    modules = [module for name, module in sys.modules.items() if name.startswith("layoutkit.")]
    values = [value for module in modules for value in vars(module).values()]
    cached = [value for value in values if isinstance(value, functools._lru_cache_wrapper)]
    return [cache for cache in cached if cache.cache_parameters()["maxsize"]]


@pytest.mark.parametrize("case", CASES)
def test_a_pickle_does_not_depend_on_what_caches_hold(case):
    before = digest(case)
    assert len(caches()) > 10
    for cache in caches():
        digest(case)
        cache.cache_clear()
        assert digest(case) == before, cache.__wrapped__


def test_a_plan_equals_its_pickle():
    plan = CASES["Plan"][0]()
    assert pickle.loads(pickle.dumps(plan)) == plan


def test_pickles_are_equal_in_every_process():
    script = (
        "import sys; sys.path[:0] = sys.argv[1:]\n"
        "from test_pickling import CASES, digest\n"
        "for case in CASES: print(digest(case))"
    )
    own = [digest(case) for case in CASES]
    assert (
        python(script, [str(Path(__file__).parent), *sys.path], PYTHONHASHSEED="3").split() == own
    )
