"""Calls that machine code takes over after some calls (kernels/cpu/direct.py)."""

import os
import pickle
import threading

import numpy as np
import pytest

from layoutkit import ArgumentError, Converter, ShapeError, buffers, convert, set_num_threads
from layoutkit.buffers import empty
from layoutkit.converter import FEWEST_CALLS
from layoutkit.cpu.program import NUMPY_BYTES
from layoutkit.memory import HAS_KNOWN_HEADER
from layoutkit.threads import limits
from layoutkit.threads.pool import pool
from tests.helpers.children import python

pytestmark = pytest.mark.skipif(
    not HAS_KNOWN_HEADER, reason="this NumPy stores the fields of arrays in another order"
)
SHAPE = (2, 8, 6, 4)
OUT = (2, 4, 8, 6)
BYTES = 2 * 8 * 6 * 4 * 4


def values(seed=0, shape=SHAPE, dtype=np.float32):
    return np.random.default_rng(seed).integers(0, 100, shape).astype(dtype)


def aligned(shape=SHAPE, dtype=np.float32, value=0):
    """Return an array that begins on a cache line, as the arrays of the first calls do."""
    array = empty(shape, np.dtype(dtype))
    array[...] = value
    return array


@pytest.fixture
def direct():
    """Return the compiled function that a Converter tries first after some calls."""
    converter = Converter("bhwc->bchw")
    x, out = aligned(value=values()), aligned(OUT)
    for _ in range(FEWEST_CALLS):
        converter(x, out=out)
    return converter._direct


def expected(x):
    return x.transpose(0, 3, 1, 2)


def test_arrays_of_the_same_kind_are_converted(direct):
    for seed in range(3):
        x, out = aligned(value=values(seed)), aligned(OUT)
        assert direct(x, out) == 1
        np.testing.assert_array_equal(out, expected(x))


class Special(np.ndarray):
    pass


def beside(offset):
    """Return x and an out that begins `offset` bytes after x, in one block of memory."""
    memory = aligned((4 * BYTES,), np.uint8)
    views = memory[BYTES:], memory[BYTES + offset :]
    x, out = (view[:BYTES].view(np.float32) for view in views)
    return x.reshape(SHAPE), out.reshape(OUT)


def read_only(out):
    out.flags.writeable = False
    return out


OTHERS = {
    "dtype of x": lambda x, out: (x.view(np.int32), out),
    "dtype of out": lambda x, out: (x, out.view(np.uint32)),
    "byte order": lambda x, out: (x.view(">f4"), out),
    "size": lambda x, out: (x[:1], out[:1]),
    "rank": lambda x, out: (x[0], out[0]),
    "larger rank": lambda x, out: (x[..., None], out[..., None]),
    "strides of x": lambda x, out: (x[:, :, ::-1], out),
    "strides of out": lambda x, out: (x, aligned((2, 3, 5, 12))[..., ::2]),
    "alignment": lambda x, out: (
        x,
        aligned((BYTES + 64,), "u1")[4 : 4 + BYTES].view("f4").reshape(OUT),
    ),
    "subclass": lambda x, out: (x.view(Special), out),
    "subclass of out": lambda x, out: (x, out.view(Special)),
    "the same memory": lambda x, out: beside(0),
    "the last item in common": lambda x, out: beside(BYTES - 64),
    "the first item in common": lambda x, out: beside(64 - BYTES),
    "read-only": lambda x, out: (x, read_only(out)),
    "no array": lambda x, out: ([x], out),
    "no array as out": lambda x, out: (x, memoryview(out)),
}


@pytest.mark.parametrize("other", OTHERS)
def test_other_arguments_are_left_to_python(direct, other):
    x, out = OTHERS[other](aligned(value=values()), aligned(OUT))
    before = np.array(out)
    assert direct(x, out) == 0
    np.testing.assert_array_equal(np.asarray(out), before)


@pytest.mark.parametrize("offset", [-BYTES, BYTES])
def test_neighbors_do_not_overlap(direct, offset):
    assert BYTES % 64 == 0  # keeps both arrays aligned
    x, out = beside(offset)
    x[...] = values()
    assert direct(x, out) == 1
    np.testing.assert_array_equal(out, expected(x))


def test_the_first_item_is_not_always_at_the_beginning():
    converter = Converter("bhwc->bchw")
    x, out = aligned(value=values()), aligned(OUT)
    for _ in range(FEWEST_CALLS + 1):
        converter(x[::-1, ::-1], out=out)
    out[...] = 0
    assert converter._direct(x[::-1, ::-1], out) == 1
    np.testing.assert_array_equal(out, expected(x[::-1, ::-1]))


@pytest.mark.parametrize(
    ("size", "strides", "offset"), [(2, (4, 8), 0), (1, (8, 4), 0), (2, (8, 4), 4)], ids=str
)
def test_each_word_of_a_description_is_compared(size, strides, offset):
    """An array that differs in only one size or stride is not mistaken for the first one."""
    memory = np.arange(64, dtype=np.float32)
    converter, out = Converter("ab->ba"), np.zeros((2, 2), np.float32)
    first = np.lib.stride_tricks.as_strided(memory, (2, 2), (8, 4))
    for _ in range(FEWEST_CALLS + 1):
        converter(first, out=out)
    x = np.lib.stride_tricks.as_strided(memory[offset // 4 :], (size, 2), strides)
    out = np.zeros((2, size), np.float32)
    np.testing.assert_array_equal(converter(x, out=out), x.T)


def test_errors_are_those_of_python(direct):
    converter = Converter("bhwc->bchw")
    x, out = aligned(value=values()), aligned(OUT)
    for _ in range(FEWEST_CALLS):
        converter(x, out=out)
    for bad, message in [
        (read_only(aligned(OUT)), "out is read-only"),
        (x.reshape(OUT), "out shares memory with x"),
    ]:
        with pytest.raises(ArgumentError, match=message):
            converter(x, out=bad)
    with pytest.raises(ArgumentError, match="x is a list"):
        converter([1, 2], out=out)
    with pytest.raises(ShapeError):
        converter(x, out=aligned((2, 3, 5, 7)))


@pytest.mark.budget(0)
def test_functions_and_copies_of_converters():
    x, out = values(), np.empty(OUT, np.float32)
    for _ in range(FEWEST_CALLS + 2):
        out[:] = 0
        convert(x, "bhwc->bchw", out=out)
        np.testing.assert_array_equal(out, expected(x))
    converter = Converter("bhwc->bchw", scale=0.5, dtype="float32")
    for _ in range(FEWEST_CALLS + 2):
        converter(x, out=out)
    copy = pickle.loads(pickle.dumps(converter))
    assert copy == converter
    np.testing.assert_array_equal(copy(x, out=np.empty_like(out)), out)


@pytest.mark.parametrize("shape", [SHAPE, (4, 60, 61, 3)], ids=["with the GIL", "without it"])
def test_threads_with_arrays_of_two_shapes(shape):
    """Each thread's shape replaces the compiled call for the shape of the other threads."""
    converter = Converter("bhwc->bchw")
    wrong = []

    def run(seed):
        batch = shape[0] + seed % 2
        x = values(seed, (batch, *shape[1:]))
        out = np.empty((batch, shape[3], *shape[1:3]), np.float32)
        for _ in range(3 * FEWEST_CALLS):
            out[:] = -1
            if not np.array_equal(converter(x, out=out), expected(x)):
                wrong.append(seed)

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_options_of_several_steps_go_through_python():
    x = values()
    converter = Converter("bhwc->bchw", pad_to={"h": 10, "w": 8})
    out = np.empty((2, 4, 10, 8), np.float32)
    for _ in range(FEWEST_CALLS + 2):
        converter(x, out=out)
    np.testing.assert_array_equal(out[:, :, 1:9, 1:7], expected(x))


# ---- several threads ---------------------------------------------------------------------

LARGE = (16, 24, 24, 64)  # 4.7 MB read and written: shared with the workers


@pytest.fixture
def usual_threads():
    before = limits.chosen_threads
    yield
    limits.chosen_threads = before


def test_shared_calls_follow_the_number_of_threads(usual_threads):
    x = values(shape=LARGE)
    converter = Converter("bhwc->bchw")
    out = converter(x)
    for _ in range(FEWEST_CALLS):
        converter(x, out=out)
    for count in (1, 3, 2):
        set_num_threads(count)
        out[...] = 0
        assert converter._direct(x, out) == 1
        np.testing.assert_array_equal(out, expected(x))
        assert pool.workers >= count - 1


FORKED = """
import os
import numpy as np
from layoutkit import Converter, set_num_threads
from layoutkit.converter import FEWEST_CALLS
set_num_threads(2)
x = np.random.default_rng(0).random((16, 24, 24, 64), np.float32)
converter = Converter("bhwc->bchw")
out = converter(x)
for _ in range(FEWEST_CALLS):
    converter(x, out=out)
child = os.fork()
if child == 0:
    out[...] = 0
    converter(x, out=out)
    os._exit(0 if (out == x.transpose(0, 3, 1, 2)).all() else 1)
print(os.waitpid(child, 0)[1])
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_shared_calls_in_a_forked_child():
    assert python(FORKED) == "0\n"


# ---- new results -------------------------------------------------------------------------


def after_many_calls(converter, x):
    """Return the compiled function that a Converter tries first without out=, after some calls."""
    for _ in range(FEWEST_CALLS):
        converter(x)
    return converter._direct_new


@pytest.mark.budget(0)
@pytest.mark.parametrize("keywords", [{}, {"dtype": "float16", "scale": 0.5}], ids=["move", "cast"])
def test_new_results_are_of_the_call(keywords):
    converter = Converter("bhwc->bchw", **keywords)
    to_new = after_many_calls(converter, values())
    results = [to_new(values(seed)) for seed in range(3)]
    assert len({result.ctypes.data for result in results}) == 3
    for seed, result in enumerate(results):
        wanted = (expected(values(seed)) * keywords.get("scale", 1)).astype(result.dtype)
        assert result.flags.c_contiguous
        assert result.flags.writeable
        assert result.dtype == converter.infer_spec(converter.spec_of(values())).dtype
        np.testing.assert_array_equal(result, wanted)


@pytest.mark.parametrize(
    "other",
    [
        lambda x: x.view(np.int32),
        lambda x: x.view(">f4"),
        lambda x: x[:1],
        lambda x: x[0],
        lambda x: x[:, :, ::-1],
        lambda x: x.view(Special),
        lambda x: [x],
    ],
    ids=["dtype", "byte order", "size", "rank", "strides", "subclass", "no array"],
)
def test_other_arrays_are_left_to_python_without_out(other):
    assert after_many_calls(Converter("bhwc->bchw"), values())(other(values())) is None


def test_x_at_any_address():
    converter = Converter("bhwc->bchw")
    to_new = after_many_calls(converter, values())
    x = np.empty(BYTES + 1, np.uint8)[1:].view(np.float32).reshape(SHAPE)
    x[...] = values(7)
    np.testing.assert_array_equal(to_new(x), expected(values(7)))


@pytest.mark.parametrize(("count", "is_new"), [(-1, True), (0, True), (1, False)])
def test_large_results_come_from_the_pool(count, is_new):
    x = np.arange(NUMPY_BYTES // 8 + count, dtype=np.float64).reshape(1, -1, 1)
    converter = Converter("abc->cba", scale=2.0)
    assert (after_many_calls(converter, x) is not None) == is_new
    held = buffers.stats()["held"]
    result = converter(x)
    assert (buffers.stats()["held"] == held) == is_new
    np.testing.assert_array_equal(result, 2 * x.transpose())


def test_reversed_results():
    """The last item of the output is the first that the kernel visits."""
    x = values()[:, ::-1, ::-1]
    converter = Converter("bhwc->bchw")
    to_new = after_many_calls(converter, x)
    np.testing.assert_array_equal(to_new(x), expected(x))


def test_views_of_x_stay_views():
    x = values()
    converter = Converter("bhwc->b(hwc)", copy=False)
    assert after_many_calls(converter, x) is None
    assert np.shares_memory(converter(x), x)


def test_large_arrays_in_between_keep_the_call():
    small, large = values(), np.zeros((2, 200, 200, 4), np.float32)
    converter = Converter("bhwc->bchw")
    after_many_calls(converter, small)
    for _ in range(2 * FEWEST_CALLS):
        converter(large)
    np.testing.assert_array_equal(converter._direct_new(small), expected(small))
