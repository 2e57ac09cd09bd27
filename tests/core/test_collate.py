"""`collate` and `Collator`: windows of many samples in one batch."""

import pickle
import re
import threading
import warnings

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import layoutkit
from layoutkit import Collator, ImageView, collate, convert
from layoutkit.options import parse_collate_options
from layoutkit.planning.batch.arguments import CropArgs
from layoutkit.planning.batch.placement import place
from layoutkit.threads.pool import Job
from tests.helpers.arrays_of import BF16, assert_same
from tests.helpers.guarded import guarded, why_not

pytestmark = pytest.mark.budget(4)

RNG = np.random.default_rng(0)
IMAGENET = {
    "dtype": "float32",
    "scale": 1 / 255,
    "mean": (0.485, 0.456, 0.406),
    "std": (0.229, 0.224, 0.225),
}
FORMULAS = [
    {},
    IMAGENET,
    {"dtype": "float64"},
    {"dtype": "float16", "mean": 0.5},
    {"dtype": BF16, "scale": 0.5},
    {"dtype": "int16", "casting": "saturate", "scale": 300.0, "clip": (1, 200)},
    {"dtype": "uint8", "casting": "unsafe", "scale": -1.5},
]
# Layout of a sample -> layouts of batches.
PATTERNS = {
    "hwc": ["bchw", "bhwc", "chwb", "b(hwc)", "bf", "(bh)wc", "cbwh", "b1hwc", "h(bw)c"],
    "chw": ["bhwc", "bchw", "hwcb", "b(ch)w"],
    "whc": ["bchw"],
    "h1wc": ["bhwc"],
}
# Every dtype and every formula, most of them once, because each pair needs another kernel for every
# move. Pairs in RARE are tested with the first layout of batches only.
CASTS = [
    ("uint8", {}),
    ("uint8", IMAGENET),
    ("uint8", FORMULAS[6]),
    ("float32", {}),
    ("complex64", {}),
]
RARE = [("float32", FORMULAS[2]), ("int32", FORMULAS[5]), (BF16, FORMULAS[4]), (">u2", FORMULAS[3])]


def photo(shape, dtype="uint8"):
    values = RNG.integers(0, 200, shape)
    return values.astype(dtype)


def at(value, number):
    """Return the value of an argument for one sample: the common value, or an item of the list."""
    return value if np.ndim(value) == 0 else value[number]


def window_of(x, layout, sizes, offset, flip, fill, channels, number):
    """Return the window of a sample, cut with NumPy's indexing: the reference."""
    shape = []
    begins = []
    holes = []
    for axis, size in zip(layout, x.shape, strict=True):
        wide = sizes.get(axis, size)
        shape.append(wide)
        begins.append(at(offset[axis], number) if axis in offset else round((size - wide) / 2))
    made = np.zeros(shape, x.dtype)
    if fill is not None:
        along = [-1 if axis == "c" else 1 for axis in layout]
        made[...] = np.array(fill).astype(x.dtype).reshape(along if np.ndim(fill) else [1] * x.ndim)
    for wide, begin, size in zip(shape, begins, x.shape, strict=True):
        holes.append([(p, begin + p) for p in range(wide) if 0 <= begin + p < size])
    to = np.ix_(*[[p for p, _ in hole] for hole in holes])
    made[to] = x[np.ix_(*[[q for _, q in hole] for hole in holes])]
    if channels is not None:
        made = np.take(made, channels, layout.index("c"))
    for axis, turned in flip.items():
        if at(turned, number):
            made = np.flip(made, layout.index(axis))
    return made


def stacked(samples, layout, *, offset=None, flip=None, fill=None, channels=None, **sizes):
    """Return the windows of all samples, stacked: the reference for a batch."""
    flip = {flip: True} if isinstance(flip, str) else flip or {}
    said = sizes, offset or {}, flip, fill, channels
    return np.stack([window_of(x, layout, *said, n) for n, x in enumerate(samples)])


@st.composite
def calls(draw):
    """Draw samples, their layout, the layout of the batch, window arguments and the conversion."""
    layout = draw(st.sampled_from(sorted(PATTERNS)))
    dtype, keywords = draw(st.sampled_from(CASTS + RARE))
    usual = (dtype, keywords) in CASTS
    to = draw(st.sampled_from(PATTERNS[layout][: None if usual else 1]))
    axes = layout.replace("1", "o")
    count = draw(st.integers(1, 5))
    common = {"h": draw(st.integers(1, 9)), "w": draw(st.integers(1, 20)), "c": 3, "o": 1}
    sizes = {a: draw(st.integers(1, 12)) for a in "hw" if draw(st.booleans())}
    fill = draw(st.sampled_from([None, 0, 7, (1, 2, 3)]))
    samples = []
    offset = {}
    for _ in range(count):
        more = {a: draw(st.integers(0, 5)) for a in sizes}
        shape = [common[a] + more.get(a, 0) for a in axes]
        if fill is None:
            shape = [max(n, sizes.get(a, 0)) for a, n in zip(axes, shape, strict=True)]
        x = photo(shape, dtype)
        samples.append(x if draw(st.booleans()) else np.asfortranarray(x)[:, ::-1])
    for a in sizes:
        if draw(st.booleans()):
            spans = [x.shape[axes.index(a)] - sizes[a] for x in samples]
            if fill is None:
                offset[a] = [draw(st.integers(0, span)) for span in spans]
            else:
                offset[a] = [draw(st.integers(-15, 15)) for _ in spans]
    flip = {a: draw(st.lists(st.booleans(), min_size=count, max_size=count)) for a in "hwc"}
    flip = {a: turned for a, turned in flip.items() if draw(st.booleans())}
    channels = draw(st.sampled_from([None, (2, 1, 0), (0, 2, 1), (1, 1, 1), (2, 0, 0)]))
    windows = {"offset": offset, "flip": flip, "fill": fill, "channels": channels, **sizes}
    return samples, layout, to, windows, keywords


@pytest.mark.budget(0)
@given(calls())
def test_a_batch_is_the_conversion_of_the_stacked_windows(call):
    samples, layout, to, windows, keywords = call
    letters = layout.replace("1", "o")
    wanted = convert(stacked(samples, letters, **windows), f"b{layout}->{to}", **keywords)
    before = [x.copy() for x in samples]
    found = collate(samples, f"{layout}->{to}", **windows, **keywords)
    assume(not isinstance(found, layoutkit.Packed))  # no axis has a window
    assert_same(found, wanted)
    out = np.empty([n + 1 for n in wanted.shape], wanted.dtype)[tuple(map(slice, wanted.shape))]
    assert collate(samples, f"{layout}->{to}", out=out, **windows, **keywords) is out
    assert_same(np.ascontiguousarray(out), wanted)
    for x, old in zip(samples, before, strict=True):
        assert_same(x, old)


@given(st.data())
def test_rows_of_one_array(data):
    left = data.draw(st.sampled_from(["bhwc", "hwbc", "hwcb"]))
    to = data.draw(st.sampled_from(["bchw", "chwb", "b(hwc)"]))
    x = photo([{"b": 6, "h": 5, "w": 7, "c": 3}[a] for a in left])[..., ::-1]
    rows = data.draw(st.lists(st.integers(-6, 5), max_size=9))
    keywords = data.draw(st.sampled_from([{}, IMAGENET, FORMULAS[6]]))
    offset = {"h": data.draw(st.integers(0, 2))}
    flip = {"w": [bool(row % 2) for row in rows]}
    samples = [np.moveaxis(x, left.index("b"), 0)[row] for row in rows]
    found = collate(x, f"{left}->{to}", indices=rows, h=3, offset=offset, flip=flip, **keywords)
    if not rows:
        assert found.shape[to.index("b")] == 0
        return
    windows = stacked(samples, left.replace("b", ""), h=3, offset=offset, flip=flip)
    assert_same(found, convert(windows, f"b{left.replace('b', '')}->{to}", **keywords))


def test_all_of_one_array_and_an_array_of_rows():
    x = photo((6, 5, 7, 3))
    assert_same(collate(x, "bhwc->bchw", **IMAGENET), convert(x, "bhwc->bchw", **IMAGENET))
    rows = np.array([5, -1, 0], np.int32)
    assert_same(collate(x, "bhwc->bchw", indices=rows), convert(x[rows], "bhwc->bchw"))
    same = collate(x, "bhwc->bhwc")
    assert not np.shares_memory(same, x)


def test_names_dots_folds_and_any_rank():
    frames = [photo((2, 6, 8, 3)) for _ in range(3)]
    wanted = convert(np.stack(frames)[:, :, 1:5], "bthwc->btchw")
    assert_same(collate(frames, "...hwc->b...chw", h=4), wanted)
    long = "time height width c -> batch time c height width"
    assert_same(collate(frames, long, height=4), wanted)
    flat = [frame.reshape(2, 48, 3) for frame in frames]
    assert_same(collate(flat, "t(hw)c->btchw", h=6), convert(np.stack(frames), "bthwc->btchw"))
    flat = [frame.reshape(-1) for frame in frames]
    assert_same(collate(flat, "f->bthwc", t=2, h=6, w=8), np.stack(frames))
    deep = [photo((2, 3, 2, 3, 2, 3, 4)) for _ in range(2)]
    wanted = convert(np.stack(deep)[:, :, :, :, :, :, :2], "baidefgh->bhgfedia")
    assert_same(collate(deep, "aidefgh->bhgfedia", g=2), wanted)


@pytest.mark.parametrize("n", [1, 2, 63, 64, 65])
@pytest.mark.parametrize("side", [1, 31, 32, 33, 200])
def test_thresholds_of_lines_streams_and_threads(n, side):
    samples = [photo((side + k % 3, side + k % 2, 3)) for k in range(n)]
    asked = {
        "h": side,
        "w": side,
        "offset": {"h": 0, "w": 0},
        "flip": {"w": [k % 2 == 0 for k in range(n)]},
    }
    wanted = convert(stacked(samples, "hwc", **asked), "bhwc->bchw", **IMAGENET)
    for threads in (1, 2, 5):
        before = layoutkit.get_num_threads()
        layoutkit.set_num_threads(threads)
        try:
            assert_same(collate(samples, "hwc->bchw", **asked, **IMAGENET), wanted)
        finally:
            layoutkit.set_num_threads(before)


@pytest.mark.budget(0)
@pytest.mark.skipif(bool(why_not()), reason=str(why_not()))
@pytest.mark.parametrize("at_end", [True, False])
@pytest.mark.parametrize("width", [5, 16, 21, 64])
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_nothing_beside_samples_is_read(at_end, width, channels):
    shape = (7, width, channels)
    rooms = []
    for _ in range(3):
        room, x = guarded(shape, "u1", (width * channels, channels, 1), at_end=at_end)
        x[...] = photo(shape)
        room.seal()
        rooms.append((room, x))
    samples = [x for _, x in rooms]
    for windows in (
        {},
        {"flip": {"w": [True, False, True]}},
        {"h": 5, "w": width, "flip": "h"},
        {"h": 9, "w": width - 2, "offset": {"w": [-3, 0, 2], "h": -1}, "fill": 9, "flip": "w"},
    ):
        for keywords in ({}, {"dtype": "float32", "scale": 0.5}):
            for to in ("bchw", "bhwc", "chwb"):
                wanted = convert(stacked(samples, "hwc", **windows), f"bhwc->{to}", **keywords)
                assert_same(collate(samples, f"hwc->{to}", **windows, **keywords), wanted)


@pytest.mark.skipif(bool(why_not()), reason=str(why_not()))
@pytest.mark.parametrize("at_end", [True, False])
def test_nothing_beside_the_output_is_written(at_end):
    samples = [photo((9, 21, 3)) for _ in range(3)]
    wanted = convert(stacked(samples, "hwc", h=5, w=19), "bhwc->bchw", **IMAGENET)
    room, out = guarded(wanted.shape, "f4", wanted.strides, at_end=at_end)
    before = room.pages.copy()
    collate(samples, "hwc->bchw", h=5, w=19, out=out, **IMAGENET)
    assert_same(np.ascontiguousarray(out), wanted)
    room.twin(before, out)[...] = wanted
    np.testing.assert_array_equal(room.pages, before)


def test_many_threads_share_a_collator():
    to = Collator("hwc->bchw", h=20, w=20, **IMAGENET)
    batches = [[photo((24 + k, 22 + n, 3)) for n in range(6)] for k in range(4)]
    wanted = [to(batch) for batch in batches]
    wrong = []

    def work():
        for _ in range(20):
            for batch, expected in zip(batches, wanted, strict=True):
                if not np.array_equal(to(batch), expected):
                    wrong.append(batch)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_collator_says_pickles_and_equals():
    to = Collator("hwc->bchw", h=24, w=32, fill=(1, 2, 3), channels=(2, 1, 0), **IMAGENET)
    same = Collator("hwc->bchw", w=32, h=24, fill=[1, 2, 3], channels=[2, 1, 0], **IMAGENET)
    assert (to, hash(to)) == (same, hash(same))
    assert to != Collator("hwc->bchw", h=24, w=32, fill=(1, 2, 3), **IMAGENET)
    assert eval(repr(to), {"Collator": Collator}) == to
    samples = [photo((20, 40, 3)), photo((30, 33, 3))]
    batch = to(samples)
    again = pickle.loads(pickle.dumps(to))
    assert again == to
    assert_same(again(samples), batch)
    assert (to.pattern, to.device) == ("hwc->bchw", None)


def test_a_plan_says_how():
    to = Collator("hwc->bchw", h=24, w=32, fill=0, **IMAGENET)
    said = str(to.plan([photo((20, 40, 3)), photo((30, 33, 3))]))
    assert "hwc->bchw: uint8 bhwc (2, 24, 32, 3) on cpu -> float32 bchw (2, 3, 24, 32)" in said
    assert "in 2 kinds of windows: split (2)" in said
    said = str(Collator("hwc->chwb", **IMAGENET).plan([photo((8, 9, 3))] * 4))
    assert "gathered as they are" in said


ORDERS = [
    ("hwc->bchw", "bhwc"),
    ("hwc->bchw", "chwb"),
    ("hwc->b(hw)c", "(hw)cb"),
    ("hwc->b1hwc", "cb1hw"),
]
WAYS = [
    {},
    {"fill": 3, "offset": {"h": -2}},
    {"resize": "bilinear"},
    {"resize": "nearest", "flip": "w", "channels": (2, 0, 1)},
]
CASTS_IN_ORDER = [{}, IMAGENET, {"dtype": "float64"}]  # NumPy casts in the last


@pytest.mark.budget(1)
@pytest.mark.parametrize(("pattern", "memory"), ORDERS)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("formula", CASTS_IN_ORDER)
def test_memory_is_in_the_order_that_is_asked_for(pattern, memory, way, formula):
    samples = [photo((9, 11, 3)), photo((10, 12, 3))]
    asked = {"h": 6, "w": 8, **way, **formula}
    batch = collate(samples, pattern, memory=memory, **asked)
    assert_same(batch, collate(samples, pattern, **asked))
    right = pattern.split("->")[1]
    assert convert(batch, f"{right}->{memory}", copy=False).flags.c_contiguous
    to = Collator(pattern, memory=memory, **asked)
    assert to(samples).strides == batch.strides
    said = str(to.plan(samples))
    assert f"stored as {memory}" in said
    assert str(batch.shape) in said


@pytest.mark.budget(0)
@pytest.mark.parametrize("swapped", [(0, 1, 2, 3), (0, 2), (1, 3), (3,)])
def test_samples_of_either_byte_order_make_a_native_batch(swapped):
    samples = [RNG.integers(0, 60000, (10, 12 + i, 3)).astype("u2") for i in range(4)]
    mixed = [x.astype(">u2") if i in swapped else x for i, x in enumerate(samples)]
    whole = np.stack([x[:, :12] for x in samples])
    for resize in (None, "nearest", "bilinear", "area"):
        for keywords in ({}, {"dtype": "f4", "scale": 0.5}):
            collator = Collator("hwc->bchw", h=7, w=8, resize=resize, **keywords)
            wanted = collator(samples)
            assert wanted.dtype.isnative
            assert_same(collator(mixed), wanted)
            assert_same(collator(mixed, out=np.empty_like(wanted)), wanted)
            assert "  samples   4" in str(collator.plan(mixed))
        collator = Collator("bhwc->bchw", h=7, w=8, resize=resize)
        assert_same(collator(whole.astype(">u2"), indices=[3, 1]), collator(whole, indices=[3, 1]))


def test_memory_in_order_of_one_array_and_of_items():
    images = photo((5, 9, 11, 3))
    to = Collator("bhwc->bchw", h=6, memory="bhwc")
    assert_same(to(images, indices=[4, 0]), collate(images, "bhwc->bchw", h=6, indices=[4, 0]))
    assert to(images).transpose(0, 2, 3, 1).flags.c_contiguous
    x, labels = Collator("hwc->bchw", memory="bhwc")([(images[0], 3), (images[1], 4)])
    assert x.strides == convert(images[:2], "bhwc->bchw", memory="bhwc").strides
    assert labels.tolist() == [3, 4]


@pytest.mark.parametrize("resize", [None, "bilinear"])
def test_memory_in_order_of_tensors(resize):
    torch = pytest.importorskip("torch")
    last = {"memory_format": torch.channels_last}
    to = Collator("hwc->bchw", h=6, w=8, resize=resize, memory="bhwc", **IMAGENET)
    wanted = to(PAIR)
    tensors = [torch.from_numpy(x) for x in PAIR]
    learned = [x.clone().requires_grad_() for x in tensors]
    traced = torch.compile(lambda samples: to(samples), backend="eager", fullgraph=True)
    for batch in (to(tensors), to(learned), traced(tensors)):
        np.testing.assert_allclose(batch.detach().numpy(), wanted, rtol=1e-5, atol=1e-5)
        assert batch.is_contiguous(**last)
    import layoutkit.torch

    of_torch = layoutkit.torch.Collator("hwc->bchw", h=6, w=8, memory="bhwc")
    assert of_torch(PAIR).is_contiguous(**last)
    assert of_torch == Collator("hwc->bchw", h=6, w=8, memory="bhwc")
    loader = torch.utils.data.DataLoader(PAIR, 2, collate_fn=of_torch, num_workers=1)
    assert next(iter(loader)).is_contiguous(**last)


def test_memory_in_order_has_no_output_and_pickles():
    to = Collator("hwc->bchw", h=4, memory="bhwc")
    assert eval(repr(to), {"Collator": Collator}) == pickle.loads(pickle.dumps(to)) == to
    out = np.zeros((2, 3, 4, 9), "u1")
    samples = [photo((8, 9, 3))] * 2
    with pytest.raises(layoutkit.ArgumentError, match="remove one of them"):
        to(samples, out=out)
    with pytest.raises(layoutkit.PatternError, match="not an order of the axes"):
        Collator("hwc->bchw", memory="bhw")
    assert not out.any()


@pytest.mark.parametrize("make", [Collator, lambda *a, **k: collate([SAMPLES[0]], *a, **k)])
@pytest.mark.parametrize(
    ("keywords", "cure"),
    [
        ({"pad_to": {"h": 64, "w": 48}, "fill": 114}, "h=64, w=48, fill=0"),
        ({"pad_to": [("h", 64)]}, "h=640, w=640, fill=0"),
        ({"copy": True}, "a batch is always in new memory"),
        ({"copy": False}, "omit it"),
    ],
)
def test_keywords_of_convert_that_a_batch_does_not_have(make, keywords, cure):
    with pytest.raises(layoutkit.ShapeError, match=cure):
        make("hwc->bchw", **keywords)
    make("hwc->bchw", h=64, w=48, fill=0)  # the cure


def test_a_batch_has_the_number_of_threads_that_is_asked_for(monkeypatch):
    threads = []
    run = Job.run
    monkeypatch.setattr(Job, "run", lambda job, *a: (threads.append(job.threads), run(job, *a))[1])
    samples = [photo((8, 9, 3))] * 2
    for resize in (None, "bilinear"):
        for dtype in ("uint8", "float64"):  # float64 in a conversion of the whole batch
            asked = {"h": 4, "w": 5, "resize": resize, "dtype": dtype}
            Collator("hwc->bchw", threads=1, **asked)(samples)
            collate(samples, "hwc->bchw", threads=1, **asked)
    assert {*threads} == {1}


def test_views_take_batches():
    samples = [photo((20, 40, 3)), photo((30, 33, 3))]
    batch = collate(samples, "hwc->bchw", h=16, w=16)
    view = ImageView("bchw", batch)
    assert_same(view.forward_get("bhwc"), stacked(samples, "hwc", h=16, w=16))


def test_memory_comes_from_the_pool_and_no_sample_is_held():
    import sys
    import weakref

    x = photo((300, 300, 3))
    alive = weakref.ref(x)
    count = sys.getrefcount(x)
    batch = collate([x, x], "hwc->bchw", **IMAGENET)
    assert sys.getrefcount(x) == count
    del x
    assert alive() is None
    held = layoutkit.buffers.stats()["held"]
    del batch
    assert layoutkit.buffers.stats()["held"] < held


SAMPLES = [np.zeros((8, 9, 3), np.uint8), np.zeros((7, 9, 3), np.uint8)]


@pytest.mark.parametrize(
    ("pattern", "keywords", "error", "words"),
    [
        ("hwc->chw", {}, layoutkit.PatternError, "no axis of samples on the right"),
        ("(bh)wc->bhwc", {}, layoutkit.PatternError, "an axis of its own"),
        ("hwc->bchw", {}, layoutkit.ShapeError, "sample 1 has size 7 along h, but sample 0 has 8"),
        (
            "hwc->bchw",
            {"h": 4, "offset": {"h": [4, 4]}},
            layoutkit.ShapeError,
            "sample 1 has size 7",
        ),
        ("hwc->bchw", {"h": 4, "offset": {"h": 4}}, layoutkit.ShapeError, "goes from 4 to 8"),
        ("hwc->bchw", {"h": 4, "offset": {"h": [4, 3, 2]}}, layoutkit.ShapeError, "3 values for 2"),
        ("hwc->bchw", {"h": 4, "offset": 0}, layoutkit.ArgumentError, "it must be a dict"),
        ("hwc->bchw", {"h": 4, "offset": {"h": 0.5}}, layoutkit.ArgumentError, "a whole number"),
        (
            "hwc->bchw",
            {"h": 4, "offset": {"q": 1}},
            layoutkit.ArgumentError,
            "the axes are h, w, c",
        ),
        ("hwc->bchw", {"h": 4, "flip": {"w": 1}}, layoutkit.ArgumentError, "give a bool"),
        ("hwc->bchw", {"h": 4, "flip": "wh"}, layoutkit.ArgumentError, "no flip along 'wh'"),
        ("hwc->bchw", {"h": 4, "flip": {"w": [True]}}, layoutkit.ShapeError, "1 values for 2"),
        (
            "hwc->bchw",
            {"h": 4, "indices": [0]},
            layoutkit.ArgumentError,
            "indices= selects samples of one",
        ),
        ("hwc->bchw", {"h": 4, "channels": (0, 3)}, layoutkit.ShapeError, "has 3 channels"),
        ("hwc->bchw", {"h": 4, "channels": (-1,)}, layoutkit.ArgumentError, "counted from 0"),
        ("hwc->bchw", {"h": 4, "channels": (0,), "c": 1}, layoutkit.ArgumentError, "remove c"),
        ("h(wc)->bchw", {"channels": (0,)}, layoutkit.PatternError, "no axis c of its own"),
        (
            "hwc->bchw",
            {"h": 4, "fill": 256},
            layoutkit.DtypeError,
            "fill=256 cannot be represented in uint8",
        ),
        ("hwc->bchw", {"h": 4, "fill": (1, 2)}, layoutkit.ShapeError, "fill has 2 values"),
        ("hwc->bchw", {"h": 4, "dtype": "int8"}, layoutkit.DtypeError, "int8"),
        ("hwc->bchw", {"h": 4, "mean": (1, 2)}, layoutkit.ShapeError, "mean has 2 values"),
        (
            "hwc->bchw",
            {"h": 4, "mean": (1, 2), "channels": (0, 1, 2)},
            layoutkit.ShapeError,
            "mean",
        ),
        ("hwc->bchw", {"h": 4, "q": 4}, layoutkit.ShapeError, "q=4 is neither a keyword"),
        ("hw->bhw", {}, layoutkit.ShapeError, "layout hw has 2 axes"),
    ],
)
def test_what_cannot_be_is_said_before_anything_is_written(pattern, keywords, error, words):
    out = np.zeros((2, 3, 4, 9), np.float64)
    with pytest.raises(error, match=words):
        collate(SAMPLES, pattern, out=out, **keywords)
    assert not out.any()


def test_odd_samples_are_named():
    good = np.zeros((4, 5, 3), np.uint8)
    with pytest.raises(
        layoutkit.DtypeError, match="sample 2 has dtype int8, but sample 0 has uint8"
    ):
        collate([good, good, good.astype("i1")], "hwc->bchw")
    with pytest.raises(layoutkit.ShapeError, match="sample 1 has 2 axes, but sample 0 has 3"):
        collate([good, good[0], good], "hwc->bchw")
    with pytest.raises(layoutkit.ShapeError, match="there are no samples"):
        collate([], "hwc->bchw")
    with pytest.raises(layoutkit.ShapeError, match=r"on samples of shape \(20, 25\): layout hwc"):
        collate([np.zeros((20, 25))], "hwc->bchw")
    for window in ({}, {"h": 8, "w": 8}):
        words = r"one array of shape \(20, 25, 3\), which is one sample in hwc; pass .*\[x\]"
        with pytest.raises(layoutkit.ShapeError, match=words):
            collate(np.zeros((20, 25, 3)), "hwc->bchw", **window)
    with pytest.raises(layoutkit.ShapeError, match=r'have different shapes.*as in "hwc->bchw"'):
        collate([good, good[1:]], "b h w c->b c h w", h=2, w=2)
    vectors = np.empty(2, object)  # has the rank of a sample, but contains samples
    vectors[:] = [np.arange(3), np.arange(3)]
    assert collate(vectors, "l->bl").shape == (2, 3)
    with pytest.raises(layoutkit.ArgumentError, match="needs a sequence of arrays"):
        collate(3, "hwc->bchw")
    with pytest.raises(layoutkit.ArgumentError, match="sample 1 is a list"):
        collate([good, [1, 2]], "hwc->bchw")


def test_one_array_of_another_rank():
    with pytest.raises(layoutkit.ShapeError, match="layout bhwc has 4 axes"):
        collate(np.zeros((4, 5, 3), np.uint8), "bhwc->bchw")


@pytest.mark.parametrize("number", [2**63, 2**64 - 1])
def test_numbers_that_int64_cannot_hold(number):
    """Refuse uint64 values that would wrap to negative offsets."""
    x = photo((2, 8, 9, 3))
    numbers = np.array([0, number], np.uint64)
    with pytest.raises(layoutkit.ArgumentError, match=r"offset\['h'\] is array"):
        collate(x, "bhwc->bchw", h=4, fill=0, offset={"h": numbers})
    small = np.array([3, 1], np.uint64)
    assert_same(
        collate(x, "bhwc->bhwc", h=4, offset={"h": small}), np.stack([x[0, 3:7], x[1, 1:5]])
    )


def test_an_output_is_of_its_own_memory():
    x = np.zeros((3, 4, 4), np.uint8)
    with pytest.raises(layoutkit.ArgumentError, match="out shares memory with sample 1"):
        collate([np.zeros((4, 4), np.uint8), x[2]], "hw->bhw", out=x[1:])
    with pytest.raises(layoutkit.ArgumentError, match="out shares memory with x"):
        collate(x, "bhw->bwh", indices=[0, 1, 2], out=x)
    out = np.zeros((2, 4, 4), np.uint8)
    out.flags.writeable = False
    with pytest.raises(layoutkit.ArgumentError, match="read-only"):
        collate([x[0], x[1]], "hw->bhw", out=out)
    with pytest.raises(layoutkit.ShapeError, match=r"makes \(2, 4, 4\)"):
        collate([x[0], x[1]], "hw->bhw", out=np.zeros((4, 4, 2), np.uint8))


def test_windows_far_outside_are_all_fill():
    found = collate(
        [photo((4, 5, 3))] * 2, "hwc->bchw", offset={"h": [10**15, -(10**15)]}, fill=9, h=3
    )
    assert (found == 9).all()
    with pytest.raises(layoutkit.ArgumentError, match="a whole number"):
        collate([photo((4, 5, 3))], "hwc->bchw", offset={"h": 10**30}, fill=9)


def test_empty_windows_and_empty_samples():
    assert collate([photo((4, 5, 3))], "hwc->bchw", h=0).shape == (1, 3, 0, 5)
    found = collate([photo((0, 5, 3))], "hwc->bchw", h=2, fill=4, **IMAGENET)
    assert_same(found, convert(np.full((1, 2, 5, 3), 4, np.uint8), "bhwc->bchw", **IMAGENET))


# ---- arrays of other libraries -----------------------------------------------------------

WINDOWS = {
    "h": 6,
    "w": 8,
    "offset": {"h": [-1, 2], "w": [3, -4]},
    "flip": {"w": [True, False], "h": True},
    "fill": (1, 2, 3),
}
PAIR = [photo((9, 11, 3), "float32"), photo((8, 10, 3), "float32")]


def test_tensors():
    torch = pytest.importorskip("torch")
    samples = [torch.from_numpy(x) for x in PAIR]
    wanted = collate(PAIR, "hwc->bchw", **WINDOWS, **IMAGENET)
    found = collate(samples, "hwc->bchw", **WINDOWS, **IMAGENET)
    assert type(found) is torch.Tensor
    assert_same(found.numpy(), wanted)
    out = torch.zeros(found.shape)
    assert collate(samples, "hwc->bchw", **WINDOWS, **IMAGENET, out=out) is out
    assert_same(out.numpy(), wanted)
    half = [x.bfloat16() for x in samples]
    assert collate(half, "hwc->bchw", **WINDOWS).dtype == torch.bfloat16
    mixed = collate([PAIR[0], samples[1]], "hwc->bchw", **WINDOWS, **IMAGENET)
    assert_same(mixed, wanted)
    rows = collate(torch.stack([samples[0]] * 3), "bhwc->bchw", indices=[2, 0])
    assert_same(rows.numpy(), convert(np.stack([PAIR[0]] * 2), "bhwc->bchw"))


@pytest.mark.parametrize("channels", [None, (2, 1, 0), (0, 2, 1)])
def test_gradients_of_tensors_are_recorded(channels):
    torch = pytest.importorskip("torch")
    asked = {**WINDOWS, **IMAGENET, "channels": channels}
    samples = [torch.from_numpy(x).requires_grad_() for x in PAIR]
    found = collate(samples, "hwc->bchw", **asked)
    assert_same(found.detach().numpy(), collate(PAIR, "hwc->bchw", **asked))
    found.sum().backward()
    inside = stacked([np.ones_like(x) for x in PAIR], "hwc", **{**WINDOWS, "fill": 0}).sum()
    scale = np.mean(1 / 255 / np.array(IMAGENET["std"]))
    np.testing.assert_allclose(sum(float(x.grad.sum()) for x in samples), inside * scale, 1e-4)
    mixed = collate([PAIR[0], samples[1]], "hwc->bchw", **asked)
    assert mixed.requires_grad


def test_arrays_of_jax():
    jax = pytest.importorskip("jax")
    samples = [jax.numpy.asarray(x) for x in PAIR]
    wanted = collate(PAIR, "hwc->bchw", **WINDOWS, **IMAGENET)
    to = Collator("hwc->bchw", h=6, w=8, fill=(1, 2, 3), **IMAGENET)
    said = {"offset": WINDOWS["offset"], "flip": WINDOWS["flip"]}
    found = to(samples, **said)
    assert isinstance(found, jax.Array)
    assert_same(np.asarray(found), wanted)
    traced = jax.jit(lambda *each: to(each, **said))(*samples)
    np.testing.assert_allclose(np.asarray(traced), wanted, rtol=1e-5, atol=1e-6)


def test_memory_maps_and_subclasses(tmp_path):
    np.save(tmp_path / "x.npy", np.stack([PAIR[0]] * 4))
    x = np.load(tmp_path / "x.npy", mmap_mode="r")
    found = collate(x, "bhwc->bchw", indices=[3, 1], flip="w")
    assert type(found) is np.ndarray
    assert_same(found, convert(np.stack([PAIR[0][:, ::-1]] * 2), "bhwc->bchw"))
    masked = np.ma.masked_array(PAIR[0])
    with pytest.raises(layoutkit.ArgumentError, match="sample 1 is a masked array"):
        collate([PAIR[0], masked], "hwc->bchw")


def test_it_is_a_collate_fn():
    torch = pytest.importorskip("torch")
    samples = [torch.from_numpy(x[:8, :10].copy()) for x in PAIR] * 2
    to = Collator("hwc->bchw", **IMAGENET)
    batches = list(torch.utils.data.DataLoader(samples, batch_size=2, collate_fn=to))
    assert [tuple(batch.shape) for batch in batches] == [(2, 3, 8, 10)] * 2


def test_images_of_pillow():
    image = pytest.importorskip("PIL.Image")
    arrays = [photo((20 + n, 30, 3)) for n in range(3)]
    found = collate([image.fromarray(x) for x in arrays], "hwc->bchw", h=16, w=16)
    assert type(found) is np.ndarray
    assert_same(found, collate(arrays, "hwc->bchw", h=16, w=16))


def test_one_plan_serves_images_of_all_sizes_and_two_the_flipped():
    to = Collator("hwc->bchw", h=8, w=40, **IMAGENET)
    samples = [photo((8 + n % 3, 41 + n, 3)) for n in range(120)]
    for flips in (False, np.arange(120) % 3 == 0):
        expected = stacked(samples, "hwc", h=8, w=40)
        expected[flips] = expected[flips][:, :, ::-1]
        wanted = convert(expected, "bhwc->bchw", **IMAGENET)
        assert_same(to(samples, flip={"w": flips}), wanted)
        assert_same(to(samples, flip={"w": flips}), wanted)
    assert len(to.plan(samples).plans) == 1
    assert len(to.plan(samples, flip={"w": flips}).plans) == 2


@pytest.mark.budget(1)
@pytest.mark.parametrize("layout", ["hwc", "chw", "whc"])
def test_samples_that_lie_in_all_ways(layout):
    """Mix more strides than are cached: any order of axes, gaps, reversed and repeated axes."""
    samples = []
    for number in range(150):
        order = RNG.permutation(3)
        steps = RNG.choice([1, 2, -1, -2], 3)
        sizes = [2 * size for size in (5, 6, 3)]
        whole = photo([sizes[axis] for axis in order]).transpose(np.argsort(order))
        part = whole[tuple(slice(None, None, step) for step in steps)][:5, :6, :3]
        samples.append(np.broadcast_to(part[:1], part.shape) if number % 7 == 0 else part)
    pattern = f"{layout}->b{layout[::-1]}"
    for keywords in ({}, {"dtype": "float32", "scale": 2.0}):
        wanted = convert(np.stack(samples), f"b{pattern}", **keywords)
        to = Collator(pattern, **keywords)
        assert_same(to(samples), wanted)
        assert_same(to(samples[::-1]), wanted[::-1])


def test_an_output_between_samples_is_written():
    """The bytes of `out` and samples alternate; only NumPy's search finds that none is shared."""
    whole = photo((2, 6, 8, 4))
    samples = [whole[0, :, :, :3], whole[1, :, :, :3]]
    out = whole[..., 3]
    wanted = np.stack([x[..., 1] for x in samples])
    assert_same(collate(samples, "hwc->bhwc", channels=(1,))[..., 0], wanted)
    before = whole[..., :3].copy()
    collate(samples, "hwc->bhwc", channels=(1,), out=out[..., None])
    assert_same(out, wanted)
    assert_same(whole[..., :3], before)


def test_arrays_whose_objects_are_not_known_are_asked(monkeypatch):
    samples = [photo((9, 12 + n, 3)) for n in range(5)]
    keywords = {"offset": {"w": range(5)}, "flip": {"h": [True, False, True, False, True]}}
    to = Collator("hwc->bchw", h=8, w=9, fill=3)
    wanted = to(samples, **keywords)
    monkeypatch.setattr("layoutkit.cpu.window_table.HAS_KNOWN_HEADER", False)
    assert_same(to(samples, **keywords), wanted)
    with pytest.raises(layoutkit.DtypeError, match="sample 1 has dtype int16"):
        to([samples[0], samples[1].astype("i2")])


def test_a_dtype_that_is_another_object_is_the_same():
    """Unpickling makes a new object each time for a dtype of the other byte order."""
    first, second = (photo((4, 5)).astype(np.dtype(">u2").newbyteorder(">")) for _ in range(2))
    second.dtype = pickle.loads(pickle.dumps(np.dtype(">u2")))
    assert_same(collate([first, second], "hw->bhw"), np.stack([first, second]))


@pytest.mark.parametrize(("begin", "is_refused"), [(14, True), (15, True), (16, False)])
def test_an_out_that_begins_within_the_last_element_of_a_sample_is_refused(begin, is_refused):
    memory = np.zeros(64, np.uint8)
    x = memory[:16].view("f4")
    x[:] = 7
    out = memory[begin : begin + 32].view("f4").reshape(2, 4)
    if not is_refused:
        assert (collate([x, x], "w->bw", out=out) == 7).all()
        return
    with pytest.raises(layoutkit.ArgumentError, match="out shares memory with sample 0"):
        collate([x, x], "w->bw", out=out)
    assert (x == 7).all()


def test_windows_that_no_memory_can_hold_are_an_error():
    for sizes in ({"h": 2**62}, {"h": 2**31, "w": 2**31}):
        with pytest.raises(layoutkit.ShapeError, match="which no memory holds"):
            collate([np.zeros((2, 2))], "hw->bhw", fill=0, **sizes)
    with pytest.raises(MemoryError, match="cannot allocate"):
        collate([np.zeros((2, 2))], "hw->bhw", fill=0, h=2**50)
    names = " ".join(f"a{n}" for n in range(64))
    with pytest.raises(layoutkit.ShapeError, match="65 axes, and NumPy allows 64"):
        collate([np.zeros((1,) * 64)], f"{names} -> b {names}")


# ---- every offset of a window -------------------------------------------------------------


@pytest.mark.budget(12)
@pytest.mark.parametrize("fill", [None, 9])
@pytest.mark.parametrize("axis", ["h", "w"])
@pytest.mark.parametrize("size", [1, 2, 5])
def test_windows_at_every_place(axis, size, fill):
    """Cut windows at every offset, up to one element beyond both ends of a sample."""
    x = photo((5, 6, 3))
    length = x.shape["hwc".index(axis)]
    options = {axis: size} if fill is None else {axis: size, "fill": fill}
    collator = Collator("hwc->bhwc", **options)
    for begin in range(-size - 1, length + 2):
        call = {"offset": {axis: [begin, 0]}}
        inside = 0 <= begin <= length - size
        if fill is None and not inside:
            with pytest.raises(layoutkit.ShapeError, match=f"{begin} to {begin + size}"):
                collator([x, x], **call)
            continue
        assert_same(collator([x, x], **call), stacked([x, x], "hwc", **call, **options))


@pytest.mark.parametrize("rows", [None, [2, 0, 2]])
def test_the_placement_of_windows_is_that_of_the_python_functions(rows):
    """Compare `place`, which GPUs and traced functions use, with the compiled table."""
    batch = photo((3, 9, 8, 3))
    samples = batch if rows is None else batch[rows]
    options = parse_collate_options("bhwc->bhwc", fill=None, channels=None, h=4, w=5)
    axes = options.find_sample_axes(3)
    for number in range(40):
        said = np.random.default_rng(number)
        offset = {"h": said.integers(0, 6, 3)} if number % 3 else {}
        offset |= {"w": int(said.integers(0, 4))} if number % 2 else {}
        flip = {"w": said.random(3) < 0.5, "h": bool(number % 5)} if number % 4 else None
        shapes = np.tile([9, 8, 3], (3, 1))
        placed = place(options, axes, (4, 5, 3), shapes, CropArgs(offset, flip))
        windows = []
        for x, (top, left, _), turned in zip(samples, placed.begins, placed.flips, strict=True):
            window = x[top : top + 4, left : left + 5]
            windows.append(np.flip(window, np.flatnonzero(turned)))
        call = {"offset": offset or None, "flip": flip}
        made = collate(batch, "bhwc->bhwc", indices=rows, h=4, w=5, **call)
        assert_same(made, np.stack(windows))
        assert_same(collate(list(samples), "hwc->bhwc", h=4, w=5, **call), made)


@pytest.mark.budget(4)
@pytest.mark.parametrize("count", [1, 2, 3])
def test_samples_whose_equal_dtypes_are_several_objects(count):
    """Such samples fill the table from a list of addresses, with a row for each sample."""
    samples = [photo((6 + n, 9 - n, 3), ">u2") for n in range(count)]
    assert len({id(x.dtype) for x in samples}) == count
    made = collate(samples, "hwc->bhwc", h=4, w=5)
    np.testing.assert_array_equal(made, stacked(samples, "hwc", h=4, w=5))


def test_channels_of_samples_whose_equal_dtypes_are_several_objects():
    """Keep the sizes of samples in the list of addresses while they are checked."""
    samples = [photo((6 + n, 9 - n, 4), ">u2") for n in range(2)]
    assert len({id(x.dtype) for x in samples}) == 2
    call = {"h": 4, "w": 5, "channels": (3, 1)}
    made = collate(samples, "hwc->bhwc", **call)
    np.testing.assert_array_equal(made, stacked(samples, "hwc", **call))


@pytest.mark.budget(4)
@pytest.mark.parametrize("channels", [(0, 1), (2, 0), (2, 1, 0), (1, 1, 2)])
def test_a_fill_per_channel_with_channels(channels):
    x = photo((3, 4, 3))
    call = {"h": 6, "w": 7, "fill": (201, 202, 203), "channels": channels}
    assert_same(collate([x, x], "hwc->bhwc", **call), stacked([x, x], "hwc", **call))


@pytest.mark.parametrize(("layout", "wide"), [("h(wc)", (1, 2, 3)), ("h(cw)", (1, 2, 3))])
def test_fill_values_of_channels_in_a_fold(layout, wide):
    x = np.arange(2 * 12, dtype=np.uint8).reshape(2, 12) + 100
    made = collate([x], f"{layout}->bhwc", h=4, c=3, fill=wide)
    assert (made[0, [0, 3]] == wide).all()
    assert_same(made[:, 1:3], collate([x], f"{layout}->bhwc", c=3))


@pytest.mark.parametrize(
    ("counts", "channels"), [((3, 4), (0, 1, 2)), ((4, 3, 3), (0, 1, 2)), ((1, 2), (0,))]
)
@pytest.mark.parametrize("options", [{}, {"h": 4, "w": 4, "resize": "nearest"}])
def test_samples_of_other_channels_name_those_that_all_have(counts, channels, options):
    samples = [np.full((4, 4, count), count, np.uint8) for count in counts]
    message = re.escape(f"give samples of one size; or give channels={channels}, which all samples")
    with pytest.raises(layoutkit.ShapeError, match=message):
        layoutkit.collate(samples, "hwc->bchw", **options)
    batch = layoutkit.collate(samples, "hwc->bchw", channels=channels, **options)
    assert batch[:, 0, 0, 0].tolist() == [*counts]
    assert batch.shape == (len(counts), len(channels), 4, 4)


def test_samples_of_other_bands_are_cropped():
    samples = [np.zeros((8, 8, count), np.uint8) for count in (6, 5)]
    with pytest.raises(layoutkit.ShapeError, match="or give its window, as in c=5 or"):
        layoutkit.collate(samples, "hwc->bchw")


@pytest.mark.parametrize(
    ("shape", "options", "warns"),
    [
        ((3, 40, 30), {"h": 16, "w": 16, "resize": "bilinear"}, True),
        ((3, 40, 30), {"h": 50, "w": 50, "fill": 0}, True),
        ((4, 9, 5), {"h": 5, "w": 5, "resize": "area"}, True),
        ((4, 9, 5), {"h": 4, "w": 5, "resize": "area"}, False),
        ((5, 9, 5), {"h": 6, "w": 5, "resize": "area"}, False),
        ((4, 9, 4), {"h": 5, "w": 5, "resize": "area"}, False),
    ],
)
def test_channels_that_are_enlarged_as_rows_are_a_warning(shape, options, warns):
    with warnings.catch_warnings(record=True) as issued:
        warnings.simplefilter("always")
        layoutkit.collate([np.zeros(shape, np.uint8)] * 2, "hwc->bchw", **options)
    assert [("begins with chw->" in str(x.message)) for x in issued] == [True] * warns


def test_channels_of_several_widths_are_not_given_a_window():
    samples = [np.zeros((3, 40, width), np.uint8) for width in (30, 60)]
    with pytest.raises(layoutkit.ShapeError, match="begins with chw->"):
        layoutkit.collate(samples, "hwc->bchw", h=16, w=16, resize="bilinear")


@pytest.mark.parametrize("change", ["clear", "pop", "double", "replace"])
@pytest.mark.parametrize("argument", ["offset", "flip"])
@pytest.mark.parametrize("keywords", [{}, {"resize": "bilinear", "crop": {"h": 5}}])
def test_a_list_of_samples_may_change_during_the_call(change, argument, keywords):
    """Use the samples that the list had when the call began."""
    samples = [photo((9, 8, 3)) for _ in range(3)]
    expected = collate(list(samples), "hwc->bchw", h=4, **keywords)

    class Changing:
        def __array__(self, dtype=None, copy=None):
            if change == "replace":
                samples[:] = [None] * 3
            else:
                {"clear": samples.clear, "pop": samples.pop}.get(change, lambda: samples * 2)()
                samples.extend(samples if change == "double" else [])
            return np.array([False] * 3) if argument == "flip" else np.array([2, 2, 2])

    made = collate(samples, "hwc->bchw", h=4, **keywords, **{argument: {"h": Changing()}})
    assert_same(made, expected)
