"""Pure moves: any pattern, rank, dtype and strides, against the slow reference, bit by bit."""

import copy
import itertools
import mmap
import pickle
import tracemalloc
from math import prod

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from layoutkit import ArgumentError, Converter, collate, convert
from layoutkit.kernels.cpu import launch
from tests.helpers.arrays_of import BF16, LAYINGS, MOVED, ODD, assert_same, laid, random_array
from tests.helpers.children import python
from tests.helpers.reference import reference_convert
from tests.helpers.streaming import stream_rows

pytestmark = pytest.mark.budget(3)

BHWC = ("bhwc", "bchw", "chwb")
quick = settings(
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)


@st.composite
def conversions(draw):
    """Draw (pattern, shape, sizes): axes are moved, folded, unfolded, dropped and added."""
    letters = draw(st.permutations("abcdghwz"))[: draw(st.integers(1, 8))]
    limit = {1: 300, 2: 70, 3: 17, 4: 9}.get(len(letters), 3)
    sizes = {
        letter: draw(st.integers(0 if draw(st.booleans()) else 1, limit)) for letter in letters
    }
    source = list(letters)
    target = list(draw(st.permutations(letters)))
    if draw(st.booleans()):  # drop an axis of size 1
        sizes["p"] = 1
        source.insert(draw(st.integers(0, len(source))), "p")
    if draw(st.booleans()):  # add an axis of size 1
        target.insert(draw(st.integers(0, len(target))), "q")
    left, right = (_folded(draw, side) for side in (source, target))
    text = "->".join(
        "".join(g if len(g) == 1 else f"({g})" for g in side) for side in (left, right)
    )
    shape = tuple(int(np.prod([sizes[x] for x in group])) for group in left)
    return text, shape, {letter: sizes[letter] for letter in source}


def _folded(draw, letters):
    groups = []
    for letter in letters:
        if groups and draw(st.integers(0, 3)) == 0:
            groups[-1] += letter
        else:
            groups.append(letter)
    return groups


@quick
@given(conversions(), st.sampled_from(MOVED), st.sampled_from(LAYINGS), st.integers(0, 99))
def test_any_move(conversion, dtype, how, seed):
    pattern, shape, sizes = conversion
    x = laid(random_array(np.random.default_rng(seed), shape, dtype), how)
    before = x.tobytes()
    y = convert(x, pattern, copy=True, **sizes)
    assert_same(y, reference_convert(x, pattern, **sizes))
    assert y.flags.c_contiguous
    assert x.tobytes() == before


@quick
@given(conversions(), st.sampled_from(LAYINGS[1:6]), st.sampled_from(MOVED), st.integers(0, 99))
def test_any_out(conversion, how, dtype, seed):
    pattern, shape, sizes = conversion
    x = random_array(np.random.default_rng(seed), shape, dtype)
    wanted = reference_convert(x, pattern, **sizes)
    out = laid(np.zeros(wanted.shape, wanted.dtype), how)
    assert convert(x, pattern, out=out, **sizes) is out
    assert_same(out, wanted)


@pytest.mark.parametrize("item", [1, 2, 4, 8, 16])
def test_tile_edges(item):
    """Transpose with lengths near the sizes of registers, tiles and cache lines on both axes."""
    rng = np.random.default_rng(item)
    edges = [1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129]
    whole = random_array(rng, (2, 129, 129), f"u{item}" if item < 16 else "c16")
    for n, m in itertools.product(edges, edges):
        x = whole[:, :n, :m]
        np.testing.assert_array_equal(
            convert(x, "bwc->bcw").view(np.uint8), x.transpose(0, 2, 1).copy().view(np.uint8)
        )


@pytest.mark.parametrize("pair", list(itertools.permutations(BHWC, 2)), ids="->".join)
@pytest.mark.parametrize("channels", [1, 2, 3, 4, 5, 17, 32, 33, 64])
def test_images(pair, channels):
    """Move short and long channel axes and odd pixel counts, with and without streaming stores."""
    cases = itertools.product((1, 2, 4), ((3, 7, 9), (2, 64, 65)))
    for item, shape in cases:
        if (item, shape[0], channels) == (2, 2, 64):
            continue  # test_launch.py streams items of two bytes
        sizes = dict(zip("bhw", shape, strict=True), c=channels)
        source, target = pair
        x = random_array(np.random.default_rng(1), [sizes[a] for a in source], f"u{item}")
        wanted = x.transpose([source.index(a) for a in target])
        np.testing.assert_array_equal(convert(x, f"{source}->{target}"), wanted)


@pytest.fixture
def streaming(monkeypatch):
    """Use streaming stores for small outputs too."""
    stream_rows(monkeypatch, 256)


@pytest.mark.budget(1)
@pytest.mark.parametrize("dtype", ["u1", "f4", ODD], ids=str)
def test_streamed_to_any_address(streaming, dtype):
    """The ends of a run outside of whole cache lines are stored, and nothing beyond the run."""
    rng, dtype = np.random.default_rng(0), np.dtype(dtype)
    cases = [("bwc->bcw", (2, 193, 3)), ("bcw->bwc", (2, 3, 193)), ("bwc->bwc", (2, 33, 9))]
    # For bytes, a transpose that stores its last rows one by one takes seconds to compile.
    cases += [("bwc->bcw", (3, 65, 37))] if dtype.itemsize > 1 else []
    for pattern, shape in cases:
        x = random_array(rng, shape, dtype)
        wanted = reference_convert(x, pattern)
        for offset in (0, 1, 4, 8, 60, 64):
            raw = np.full(wanted.nbytes + 128, 77, np.uint8)
            out = raw[offset : offset + wanted.nbytes].view(dtype).reshape(wanted.shape)
            Converter(pattern)(x, out)  # planned anew, with the small limit
            assert_same(out, wanted)
            assert (raw[:offset] == 77).all()
            assert (raw[offset + wanted.nbytes :] == 77).all()


@pytest.mark.budget(1)
@pytest.mark.parametrize("around", [-1, 0, 1])
def test_about_the_size_that_streams(around):
    items = launch.STREAM_BYTES // 4 // 64 + around
    x = np.arange(64 * items, dtype=np.int32).reshape(items, 64)
    np.testing.assert_array_equal(convert(x, "bc->cb"), x.T)
    np.testing.assert_array_equal(convert(x, "bc->bc", copy=True), x)


@pytest.mark.parametrize("period", [255, 256, 257])
def test_about_the_longest_table(period):
    x = random_array(np.random.default_rng(0), (5, 2, 2 * period, 3), "u2")[:, :, ::2]
    for target in ("bdac", "dbca", "acbd"):
        assert_same(convert(x, f"abdc->{target}"), reference_convert(x, f"abdc->{target}"))


@pytest.mark.budget(0)
@pytest.mark.parametrize("rank", [9, 12, 16])
def test_more_axes_than_a_kernel_walks(rank):
    """Convert up to sixteen axes that cannot be fused, also with a cast and a formula."""
    letters = "abcdefghijklmnop"[:rank]
    x = np.arange(2**rank, dtype=np.uint16).reshape((2,) * rank)
    target = letters[::2][::-1] + letters[1::2]
    wanted = x.transpose([letters.index(a) for a in target])
    np.testing.assert_array_equal(convert(x, f"{letters}->{target}"), wanted)
    y = convert(x, f"{letters}->{target}", dtype="f4", mean=[1, 2])
    shape = [-1 if a == "c" else 1 for a in target]
    np.testing.assert_array_equal(y, wanted - np.array([1, 2], "f4").reshape(shape))


def test_inner_loop_of_the_output_that_is_not_contiguous():
    x = random_array(np.random.default_rng(0), (3, 40, 50), "f4")
    room = np.zeros((3, 50, 40), [("pad", "u1"), ("value", "<f4"), ("more", "<f8")])
    convert(x, "bwc->bcw", out=room["value"])
    assert_same(np.ascontiguousarray(room["value"]), x.transpose(0, 2, 1).copy())
    assert not room["pad"].any()
    assert not room["more"].any()


def test_memory_mapped(tmp_path):
    values = random_array(np.random.default_rng(0), (4, 9, 8, 3), "f4")
    np.save(tmp_path / "x.npy", values)
    x = np.load(tmp_path / "x.npy", mmap_mode="r")
    y = convert(x, "bhwc->bchw")
    assert_same(y, values.transpose(0, 3, 1, 2).copy())
    assert type(y) is np.ndarray


def test_subclasses_become_plain_arrays():
    x = np.arange(6).reshape(2, 3).view(np.recarray)
    assert type(convert(x, "bc->cb")) is np.ndarray


FIXED = ["S1", "S3", "S16", "S40", "U1", "U3", "V1", "V2", "V5", "V12", "V33", "M8[s]", "m8[ms]"]


def elements(dtype, shape):
    """Return random elements of any dtype of fixed size."""
    count, item = prod(shape), np.dtype(dtype).itemsize
    if np.dtype(dtype).kind == "U":
        codes = np.random.default_rng(0).integers(97, 123, (count, item // 4), np.int32)
        return codes.astype(np.dtype(dtype).str[0] + "i4").view(dtype).reshape(shape)
    raw = np.random.default_rng(0).integers(1, 127, (count, item), np.uint8)
    return raw.view(dtype).reshape(shape)


@pytest.mark.parametrize(
    "dtype", [*FIXED, ">U3", ">M8[s]", [("a", "S5"), ("b", "<i2")], [("a", ">i4"), ("b", "V3")]],
    ids=str,
)  # fmt: skip
def test_every_element_of_fixed_size_is_moved(dtype):
    x = elements(dtype, (2, 9, 5, 3))
    moved = x.transpose(0, 3, 1, 2).astype(x.dtype.newbyteorder("="))
    for pattern, wanted in [
        ("bhwc->bchw", moved),
        ("bhwc->b(chw)", moved.reshape(2, -1)),
        ("bhwc->chwb", moved.transpose(1, 2, 3, 0)),
    ]:
        assert_same(convert(x, pattern, copy=True), np.ascontiguousarray(wanted))
        out = np.zeros(wanted.shape, x.dtype)
        np.testing.assert_array_equal(convert(x, pattern, out=out), wanted)
    np.testing.assert_array_equal(convert(x, "bhwc->bchw", channels=(2, 0)), moved[:, [2, 0]])
    padded = np.zeros((2, 3, 10, 5), moved.dtype)
    padded[:, :, :9] = moved
    to = {"pad_to": {"h": 10}, "pad_before": {"h": 0}}
    np.testing.assert_array_equal(convert(x, "bhwc->bchw", **to), padded)
    flips = {"h": 4, "w": 5, "offset": {"h": 2}, "flip": "w"}
    wanted = moved[:, :, 2:6, ::-1]
    np.testing.assert_array_equal(collate([*x], "hwc->bchw", **flips), wanted)


def test_byte_order_of_the_result_is_native():
    x = np.arange(6, dtype=">i4").reshape(2, 3)
    assert_same(convert(x, "bc->cb"), np.arange(6, dtype="=i4").reshape(2, 3).T.copy())
    assert_same(convert(x, "bc->bc"), np.arange(6, dtype="=i4").reshape(2, 3))
    out = np.zeros((3, 2), ">i4")
    assert_same(convert(x, "bc->cb", out=out), x.T.copy())


def test_an_out_of_the_other_byte_order_has_the_dtype_of_the_option():
    x = np.arange(6, dtype="f4").reshape(2, 3)
    out = np.zeros((3, 2), x.dtype.newbyteorder())
    assert convert(x, "bc->cb", dtype="float32", out=out) is out
    np.testing.assert_array_equal(out, x.T)


def test_elements_without_bytes():
    x = np.zeros((2, 3), np.dtype([]))
    assert convert(x, "bc->cb").shape == (3, 2)


@pytest.mark.budget(0)
def test_far_more_than_two_billion_elements():
    """Convert more than 2**31 elements; the source is broadcast to save memory."""
    try:
        x = np.broadcast_to(np.arange(7, dtype=np.uint8), (2**31 // 7 + 3, 7))
        room = mmap.mmap(-1, x.size)
        if hasattr(mmap, "MADV_HUGEPAGE"):  # page faults of 4 KiB took most of the time
            room.madvise(mmap.MADV_HUGEPAGE)
        y = convert(x, "bc->cb", out=np.frombuffer(room, np.uint8).reshape(x.shape[::-1]))
    except (MemoryError, OSError):
        pytest.skip("needs 2 GiB")
    assert y.size > 2**31
    assert [int(y[c, at]) for c in range(7) for at in (0, -1)] == [
        c for c in range(7) for _ in "ab"
    ]
    last = y.reshape(-1)[-(2**20) :]
    assert (last == 6).all()


def test_one_converter_takes_any_shape_strides_and_dtype():
    converter = Converter("bhwc->bchw")
    for shape, dtype in itertools.product([(1, 2, 3, 4), (2, 5, 5, 3)], ["u1", "f4", BF16]):
        x = random_array(np.random.default_rng(0), shape, dtype)
        for how in LAYINGS:
            assert_same(
                converter(laid(x.copy(), how)).copy(),
                reference_convert(laid(x.copy(), how), "bhwc->bchw"),
            )


class Named(Converter):
    """A user's subclass of Converter that adds an attribute."""

    def __init__(self, name, pattern):
        super().__init__(pattern)
        self.name = name


def test_copies_and_pickles_of_a_users_converter_keep_what_is_the_users():
    made = Named("mine", "bhwc->bchw")
    x = np.arange(24, dtype="f4").reshape(2, 2, 2, 3)
    expected = made(x)
    for found in (copy.copy(made), copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert (type(found), found.name, found.pattern) == (Named, "mine", "bhwc->bchw")
        np.testing.assert_array_equal(found(x), expected)


def test_subclasses_of_numpys_array_are_its_arrays():
    """Subclasses, such as memory maps, are converted without the modules for other libraries."""
    code = """
import sys
import numpy as np
import layoutkit
x = np.arange(24, dtype="f4").reshape(2, 2, 2, 3).view(np.recarray)
out = np.empty((2, 3, 2, 2), "f4").view(np.recarray)
assert layoutkit.convert(x, "bhwc->bhwc") is x
assert layoutkit.convert(x, "bhwc->bchw", out=out) is out
assert type(layoutkit.convert(x, "bhwc->bchw")) is np.ndarray
assert (np.asarray(out) == np.asarray(x).transpose(0, 3, 1, 2)).all()
print("layoutkit.backends" in sys.modules)
"""
    assert python(code) == "False\n"


class Odd(type):
    """A metaclass whose classes cannot be hashed."""

    __hash__ = None


@pytest.mark.parametrize(
    "x", [type("X", (), {"__module__": None})(), Odd("Y", (), {})(), object()], ids=["X", "Y", "o"]
)
def test_odd_classes_are_no_arrays(x):
    with pytest.raises(ArgumentError, match="not a NumPy array"):
        convert(x, "b->b")


@pytest.mark.budget(0)
def test_constants_of_many_channels_are_kept_within_bounds():
    """A Converter caches up to 512 batch sizes; 200,000 means once took 22 MB for each."""
    converter = Converter("bc->cb", mean=np.arange(200_000.0), dtype="float32")
    x = np.zeros((16, 200_000), np.uint8)
    wanted = converter(x[:1])
    tracemalloc.start()
    for size in range(1, 17):
        converter(x[:size])
    kept = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert kept < 100 << 20
    np.testing.assert_array_equal(converter(x)[:, :1], wanted)
    few = Converter("bc->cb", mean=[1.0, 2.0], dtype="float32")
    for size in range(1, 17):
        few(x[:size, :2])
    assert len(few._programs) == 16
