"""Shared memory of inputs and results: copy, out, views; x is never modified."""

import copy
import pickle
import threading

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from layoutkit import ArgumentError, Converter, accumulate, convert, memory
from layoutkit.memory import overlaps
from tests.helpers.arrays_of import laid

X = np.arange(48, dtype="f4").reshape(2, 4, 2, 3)
MOVES_NOTHING = [
    ("bhwc->bhwc", X),
    ("bhwc->bf", X),
    ("b(hwc)->b(hw)c", X.reshape(2, 24)),
    ("bhwc->b(hwc)t", X),
    ("bhwcq->bhwc", X[..., None]),
    ("bchw->bhwc", X.transpose(0, 3, 1, 2)),
    ("chwb->bhwc", X.transpose(3, 1, 2, 0)),
    ("bhwc->bchw", X[:, :, :1, :1]),
    ("bhwc->chwb", X[:1, :, :, 1:2].copy()),
    ("bc->cb", np.zeros((0, 3))),
]


@pytest.mark.parametrize(("pattern", "x"), MOVES_NOTHING[:7] + MOVES_NOTHING[8:9])
def test_nothing_moves(pattern, x):
    sizes = {"h": 4, "w": 2, "c": 3} if pattern.startswith("b(") else {}
    for allowed in (None, False):
        y = convert(x, pattern, copy=allowed, **sizes)
        assert np.shares_memory(x, y)
        assert y.flags.c_contiguous
    own = convert(x, pattern, copy=True, **sizes)
    assert not np.shares_memory(x, own)
    np.testing.assert_array_equal(own, y)


def test_a_result_that_is_x_is_x():
    assert convert(X, "bhwc->bhwc") is X
    assert convert(X, "bhwc->bhwc", dtype="f4", copy=False) is X
    assert Converter("bhwc->bhwc", copy=True)(X) is not X


def test_a_view_writes_through_and_a_copy_does_not():
    x = X.copy()
    convert(x, "bhwc->bf")[0, 0] = 99
    assert x[0, 0, 0, 0] == 99
    convert(x, "bhwc->bf", copy=True)[0, 0] = 7
    convert(x, "bhwc->bchw")[0, 0, 0, 0] = 7
    assert x[0, 0, 0, 0] == 99


def test_a_view_of_read_only_memory_is_read_only():
    x = laid(X.copy(), "readonly")
    assert not convert(x, "bhwc->bf").flags.writeable
    assert convert(x, "bhwc->bchw").flags.writeable


def test_a_result_that_is_not_contiguous_is_no_view():
    """A sliced x that has the target layout already is copied into contiguous memory."""
    x = np.zeros((4, 6))[:, ::2]
    y = convert(x, "bc->bc")
    assert y.flags.c_contiguous
    assert not np.shares_memory(x, y)
    with pytest.raises(ArgumentError, match="copy=False"):
        convert(x, "bc->bc", copy=False)


@pytest.mark.parametrize("keywords", [{"dtype": "f8"}, {"scale": 1}, {"out": np.empty_like(X)}])
def test_copy_false_where_bytes_move(keywords):
    with pytest.raises(ArgumentError, match="copy=False"):
        convert(X, "bhwc->bhwc", copy=False, **keywords)


def test_byte_order_moves_bytes():
    x = np.arange(6, dtype=">f4")
    assert not np.shares_memory(x, convert(x, "b->b"))


@pytest.mark.parametrize("how", ["plain", "backward", "readonly", "unaligned", "zero"])
def test_x_is_never_written(how):
    x = laid(X.copy(), how)
    before = x.copy()
    for keywords in (
        {},
        {"dtype": "f2"},
        {"mean": [1, 2, 3]},
        {"dtype": "u1", "casting": "unsafe"},
    ):
        convert(x, "bhwc->bchw", **keywords)[...] = 7
        np.testing.assert_array_equal(x, before)


def test_out_is_returned_as_it_is():
    class Mine(np.ndarray):
        pass

    out = np.zeros((2, 3, 4, 2), "f4").view(Mine)
    assert convert(X, "bhwc->bchw", out=out) is out
    np.testing.assert_array_equal(out, X.transpose(0, 3, 1, 2))


def test_out_may_interleave_with_x_but_not_overlap():
    room = np.zeros((2, 3, 8), "f4")
    room[..., ::2] = 5
    convert(room[..., ::2], "bwc->bwc", out=room[..., 1::2])
    assert (room == 5).all()
    for out in (room[..., ::2], room[..., 2:6], room[..., 3::-1]):
        x = room[..., :4]
        with pytest.raises(ArgumentError, match="out shares memory with x"):
            convert(x, "bwc->bwc", out=out)
    line = np.arange(20.0)
    with pytest.raises(ArgumentError, match="shares memory"):
        convert(line[:10], "b->b", out=line[9:19])
    convert(line[:10], "b->b", out=line[10:])
    assert (line[10:] == np.arange(10)).all()


@pytest.mark.parametrize("number", [0, 1, 2])
def test_no_part_of_a_sum_shares_memory_with_out(number):
    out = np.zeros((3, 4))
    parts = [(np.ones((3, 4)), "bc") for _ in range(3)]
    parts[number] = (out.T, "cb")
    with pytest.raises(ArgumentError, match=f"out shares memory with part {number}"):
        accumulate(parts, "bc", out=out)
    assert not out.any()


def test_overlap_is_asked_at_every_call():
    converter = Converter("bc->bc")
    a = np.ones((2, 3))
    b = np.zeros((2, 3))
    converter(a, b)
    with pytest.raises(ArgumentError):
        converter(b, b)
    b.flags.writeable = False
    with pytest.raises(ArgumentError):
        converter(a, b)


def test_out_backwards_and_in_fields():
    room = np.zeros((2, 3, 4, 2), [("a", "u1"), ("b", "f4")])
    convert(X, "bhwc->bchw", out=room["b"][:, ::-1])
    np.testing.assert_array_equal(room["b"][:, ::-1], X.transpose(0, 3, 1, 2))
    assert not room["a"].any()


def test_results_in_use_are_not_overwritten():
    converter = Converter("bhwc->bchw")
    kept = [converter(X + n) for n in range(8)]
    part = converter(X + 8)[1:, :2]  # only the view keeps the memory alive
    for n, y in enumerate([*kept]):
        np.testing.assert_array_equal(y, (X + n).transpose(0, 3, 1, 2))
    converter(X * 0)
    np.testing.assert_array_equal(part, (X + 8).transpose(0, 3, 1, 2)[1:, :2])


@pytest.mark.parametrize(
    "again", [lambda c: pickle.loads(pickle.dumps(c)), copy.copy, copy.deepcopy]
)
def test_converters_are_copied_and_pickled(again):
    """Pickle a Converter before or after its first use, as data loaders do for their workers."""
    for pattern, keywords in [
        ("bhwc->bchw", {"dtype": "bfloat16", "mean": [1, 2, 3], "std": 2}),
        ("bhwc->bf", {"copy": True}),
        ("bhwc->bchw", {"casting": "saturate", "dtype": "u1", "h": 4}),
    ]:
        converter = Converter(pattern, **keywords)
        wanted = converter(X)
        converter.backward(np.ones(wanted.shape, "f4"), like=X)
        other = again(converter)
        assert repr(other) == repr(converter)
        np.testing.assert_array_equal(other(X), wanted)


def test_repr_makes_the_same_converter():
    assert repr(Converter("bhwc->bchw")) == 'Converter("bhwc->bchw")'
    converter = Converter(
        "bf->bchw",
        dtype="bfloat16",
        scale=0.5,
        mean=[1, 2, 3],
        casting="unsafe",
        copy=True,
        h=4,
        w=2,
    )
    x = X.reshape(2, 24)
    again = eval(repr(converter))
    assert repr(again) == repr(converter)
    np.testing.assert_array_equal(again(x), converter(x))


def test_plans_are_kept_for_the_latest_shapes_only():
    converter = Converter("bc->cb")
    for n in range(1, 600):
        converter(np.zeros((n, 2), "u1"))
    assert len(converter._programs) <= 512


def test_one_converter_in_many_threads():
    converter = Converter("bhwc->bchw", mean=[1, 2, 3])
    wrong = []

    def work(seed):
        for n in range(60):
            x = np.full((1 + (n + seed) % 40, 4, 5, 3), seed, "u1")
            y = converter(x)
            if not (y == seed - np.array([1, 2, 3]).reshape(3, 1, 1)).all():
                wrong.append((seed, n))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_an_overlap_that_is_too_hard_to_find_is_assumed(monkeypatch):
    """NumPy's exact search for an overlap has a work limit, which this test lowers."""
    memory_block = np.zeros(20_000, "u1")
    first = as_strided(memory_block[40:], (8, 3, 5, 7), (782, 459, 663, 765))
    other = as_strided(memory_block, (2, 3, 6, 2), (168, 204, 112, 28))
    assert not overlaps(first, other)
    monkeypatch.setattr(memory, "MAX_WORK", 1)
    assert overlaps(first, other)
