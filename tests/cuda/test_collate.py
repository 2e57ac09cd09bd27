"""Batches that are collated on a GPU, from samples on the CPU or on the GPU."""

import threading
from math import prod

import numpy as np
import pytest

from layoutkit import (
    ArgumentError,
    Collator,
    DeviceError,
    DtypeError,
    ImageView,
    ShapeError,
    collate,
)
from layoutkit.cuda import collate as device_collate
from layoutkit.cuda import transfers
from layoutkit.cuda.cupy_runtime import CupyRuntime
from layoutkit.data import sampled_batcher
from tests.helpers.arrays_of import UNALIGNED, assert_same, laid
from tests.helpers.cuda_shim import needs_compiler
from tests.helpers.fake_cuda import FakeArray, values_of
from tests.helpers.fake_gpus import PINNED

pytestmark = [pytest.mark.budget(2), needs_compiler]

FORMULA = {"dtype": "f4", "scale": 1 / 255, "mean": (0.4, 0.5, 0.6), "std": (0.2, 0.3, 0.4)}
RNG = np.random.default_rng(0)
PHOTOS = [RNG.integers(0, 256, shape, np.uint8) for shape in [(9, 11, 3), (8, 10, 3), (9, 11, 3)]]
IMAGES = RNG.integers(0, 256, (7, 9, 11, 3), np.uint8)

# Keywords of a Collator, and of its call, by case.
WINDOWS = {
    "plain": ({"h": 6, "w": 8}, {}),
    "corners": ({"h": 6, "w": 8}, {"offset": {"h": [0, 2, 3], "w": 1}}),
    "flips": ({"h": 6}, {"flip": {"w": [True, False, True], "h": True, "c": True}}),
    "fill": ({"h": 12, "w": 8, "fill": 7}, {"offset": {"w": [-2, 4, -30]}}),
    "floor": ({"h": 6, "w": 14, "fill": 7, "center": "floor"}, {}),
    "pixel": ({"h": 6, "w": 14, "fill": (1, 2, 3)}, {"flip": "w", "offset": {"h": [4, -1, 0]}}),
    "turned": (
        {"h": 6, "w": 14, "fill": (1, 2, 3)},
        {"flip": {"c": [True, False, True]}, "offset": {"h": [4, -1, 0]}},
    ),
    "channels": ({"h": 6, "w": 8, "channels": (2, 0, 0, 1)}, {"flip": {"c": [True, False, True]}}),
    "all": (
        {"h": 6, "w": 12, "channels": (2, 1, 0), "fill": (9, 8, 7)},
        {"offset": {"h": [-1, 4, 0]}, "flip": {"w": [True, False, True]}},
    ),
}
TARGETS = ["bchw", "chwb"]
windows = pytest.mark.parametrize("name", WINDOWS)


def said(name):
    """Return the keywords of a Collator and of its call; all windows get the same width."""
    asked, each = WINDOWS[name]
    return {"w": 8, **asked} if "w" not in asked else asked, each


def formula(name):
    return {"dtype": "f4", "scale": 0.5} if name == "channels" else FORMULA


def on_gpu(gpu, photos=PHOTOS, ordinal=0):
    """Copy samples to a GPU; the last one has other strides."""
    there = [gpu.array(x, ordinal) for x in photos]
    there[-1] = gpu.array(np.asfortranarray(photos[-1])[::-1], ordinal)[::-1]
    return there


@pytest.mark.parametrize("how", UNALIGNED)
@pytest.mark.parametrize("keywords", [{}, FORMULA, {**FORMULA, "resize": "bilinear", "h": 5}])
@pytest.mark.parametrize("dtype", ["uint8", "int16"])
def test_unaligned_outputs_are_written(gpu, how, keywords, dtype):
    photos = [x.astype(dtype) for x in PHOTOS]
    collator = Collator("hwc->bchw", **{"h": 6, "w": 8, **keywords})
    out = gpu.array(laid(np.zeros_like(collator(photos)), how))
    assert collator([gpu.array(x) for x in photos], out=out) is out
    np.testing.assert_allclose(values_of(out), collator(photos), rtol=1e-5, atol=1e-5)


# ---- from the CPU ------------------------------------------------------------------------


@windows
@pytest.mark.parametrize("to", TARGETS)
def test_windows_are_gathered_here_and_converted_there(gpu, name, to):
    asked, each = said(name)
    for keywords in ({}, formula(name)):
        collator = Collator(f"hwc->{to}", device="cuda", **asked, **keywords)
        found = collator(PHOTOS, **each)
        assert isinstance(found, FakeArray)
        wanted = collate(PHOTOS, f"hwc->{to}", **each, **asked, **keywords)
        assert_same(values_of(found), wanted)
        out = gpu.array(np.zeros_like(wanted))
        assert collator(PHOTOS, out=out, **each) is out
        assert_same(values_of(out), wanted)


@pytest.mark.parametrize("left", ["bhwc", "hwbc"])
def test_rows_of_an_array_go_up(gpu, left):
    x = np.moveaxis(IMAGES, 0, left.index("b"))
    asked = {"h": 6, "w": 8, **FORMULA}
    each = {"indices": [5, -1, 5, 0], "flip": {"w": [True, False, False, True]}}
    found = collate(x, f"{left}->bchw", device="cuda:1", **asked, **each)
    assert found.ordinal == 1
    assert_same(values_of(found), collate(x, f"{left}->bchw", **asked, **each))


def test_only_the_bytes_of_windows_go_up(gpu, monkeypatch):
    to = Collator("hwc->bchw", h=6, w=8, device="cuda", **FORMULA)
    to(PHOTOS)  # uploads the constants of the formula, too
    sizes, copy = [], CupyRuntime.copy_in
    monkeypatch.setattr(
        CupyRuntime, "copy_in", lambda *args: sizes.append(args[2].nbytes) or copy(*args)
    )
    to(PHOTOS)
    assert sizes == [3 * 6 * 8 * 3]


def test_pinned_memory_is_used_again_and_bounded(gpu):
    to = Collator("hwc->bchw", h=6, w=8, device="cuda", **FORMULA)
    batches = [PHOTOS, PHOTOS[::-1], PHOTOS[:2], PHOTOS[:1], PHOTOS] * 3
    corners = [{"h": n % 3} for n in range(len(batches))]
    found = [to(batch, offset=offset) for batch, offset in zip(batches, corners, strict=True)]
    # The host has waited only for the staging buffers that it has filled again.
    for batch, offset, result in zip(batches, corners, found, strict=True):
        wanted = collate(batch, "hwc->bchw", h=6, w=8, offset=offset, **FORMULA)
        assert_same(values_of(result), wanted)
    assert (
        gpu.gpus.held(PINNED) <= transfers.PIECES * transfers.STAGING_BYTES + 4096
    )  # the 4096 are for constants


def test_batches_too_large_for_one_piece_are_made_before_they_go_up(gpu, monkeypatch):
    monkeypatch.setattr(transfers, "WHOLE_BYTES", 100)
    monkeypatch.setattr(transfers, "STAGING_BYTES", 64)
    found = collate(PHOTOS, "hwc->bchw", h=6, w=8, device="cuda")
    assert_same(values_of(found), collate(PHOTOS, "hwc->bchw", h=6, w=8))
    assert gpu.gpus.held(PINNED) <= transfers.PIECES * 512  # the fake rounds sizes to 512


@pytest.mark.parametrize("waits", [True, False])
def test_pieces_grow_with_batches(gpu, monkeypatch, waits):
    """Test that a staging buffer is freed only after the last copy that reads from it."""
    monkeypatch.setattr(transfers, "STAGING_BYTES", 16)
    batches = [*[PHOTOS[:1]] * transfers.PIECES, PHOTOS, PHOTOS[:1], PHOTOS[::-1]]
    results = []
    for samples in batches:
        results.append(collate(samples, "hwc->bchw", h=6, w=8, device="cuda"))
        if waits:
            values_of(results[-1])
    for samples, found in zip(batches, results, strict=True):
        assert_same(values_of(found), collate(samples, "hwc->bchw", h=6, w=8))
    gpu.check()


def test_threads_share_the_slots(gpu):
    to = Collator("hwc->bchw", h=6, w=8, device="cuda", **FORMULA)
    gpu.eager = True
    wrong = []

    def loop(number):
        offset = {"h": number % 3, "w": 1}
        wanted = collate(PHOTOS, "hwc->bchw", h=6, w=8, offset=offset, **FORMULA)
        for _ in range(20):
            found = to(PHOTOS, offset=offset)
            if not np.array_equal(found.memory, wanted):
                wrong.append(number)

    threads = [threading.Thread(target=loop, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_dtypes_that_only_the_cpu_casts_and_empty_batches(gpu):
    for dtype in (">f4", "f8", "?"):
        samples = [x.astype(dtype) for x in PHOTOS]
        found = collate(samples, "hwc->bchw", h=6, w=8, device="cuda", dtype="f8")
        assert_same(values_of(found), collate(samples, "hwc->bchw", h=6, w=8, dtype="f8"))
    found = collate(IMAGES, "bhwc->bchw", indices=[], device="cuda")
    assert (isinstance(found, FakeArray), found.shape) == (True, (0, 3, 9, 11))
    with pytest.raises(ShapeError, match="index 7 at position 0"):
        collate(IMAGES, "bhwc->bchw", indices=[7], device="cuda")
    with pytest.raises(ShapeError, match="goes from 4 to 10"):
        collate(PHOTOS, "hwc->bchw", h=6, w=8, offset={"h": 4}, device="cuda")
    with pytest.raises(ArgumentError, match="no offset along 'q'"):
        collate(PHOTOS, "hwc->bchw", h=0, w=8, offset={"q": 4}, device="cuda")


# ---- on the GPU --------------------------------------------------------------------------


@windows
@pytest.mark.parametrize("to", TARGETS)
def test_samples_are_read_where_they_are(gpu, name, to):
    asked, each = said(name)
    samples = on_gpu(gpu)
    for keywords in ({}, formula(name)):
        found = collate(samples, f"hwc->{to}", **asked, **each, **keywords)
        assert isinstance(found, FakeArray)
        wanted = collate(PHOTOS, f"hwc->{to}", **asked, **each, **keywords)
        assert_same(values_of(found), wanted)
    for x, y in zip(samples, PHOTOS, strict=True):
        assert_same(values_of(x), y)


@pytest.mark.parametrize("left", ["bhwc", "hwbc", "hwcb"])
def test_rows_of_an_array_that_is_there(gpu, left):
    x = np.moveaxis(IMAGES, 0, left.index("b"))
    there = gpu.array(x, 1)
    for rows in (None, [3], [6, -7, 2, 2], np.array([1, 0])):
        asked = {"h": 5, "fill": 3, "offset": {"h": 6}, "flip": "w", **FORMULA}
        found = collate(there, f"{left}->bchw", indices=rows, **asked)
        assert found.ordinal == 1
        assert_same(values_of(found), collate(x, f"{left}->bchw", indices=rows, **asked))
    assert collate(there, f"{left}->bchw", indices=[]).shape == (0, 3, 9, 11)


@pytest.mark.parametrize("dtype", ["i2", "c8"])
def test_dtypes_and_ranks(gpu, dtype):
    for shape, pattern in [((6, 7), "hw->bwh"), ((5,), "f->fb"), ((2, 4, 5, 3), "dhwc->bcdhw")]:
        samples = [RNG.integers(0, 2, shape).astype(dtype) for _ in range(3)]
        found = collate([gpu.array(x) for x in samples], pattern, flip=pattern[0])
        assert_same(values_of(found), collate(samples, pattern, flip=pattern[0]))


def test_there_and_back_and_into_an_output(gpu):
    samples = on_gpu(gpu, ordinal=1)
    wanted = collate(PHOTOS, "hwc->bchw", h=6, w=8, **FORMULA)
    to = Collator("hwc->bchw", h=6, w=8, **FORMULA)
    here = collate(samples, "hwc->bchw", h=6, w=8, device="cpu", **FORMULA)
    assert type(here) is np.ndarray
    assert_same(here, wanted)
    out = gpu.array(np.zeros_like(wanted), 1)
    assert to(samples, out=out) is out
    assert_same(values_of(out), wanted)
    same = collate(samples, "hwc->bchw", h=6, w=8, device="cuda:1", **FORMULA)
    assert_same(values_of(same), wanted)
    view = ImageView("bchw", to(samples))
    assert_same(values_of(view.forward_get("bhwc")), wanted.transpose(0, 2, 3, 1).copy())


def test_what_does_not_go_together(gpu):
    there, host = on_gpu(gpu), PHOTOS
    to = Collator("hwc->bchw", h=6, w=8)
    other = gpu.array(PHOTOS[1], 1)
    out = gpu.array(np.zeros((3, 3, 6, 8), np.uint8))
    with pytest.raises(DeviceError, match="sample 0 is on cuda:0, but sample 1 is on cuda:1"):
        to([there[0], other])
    with pytest.raises(DeviceError, match=r"sample 1 is a numpy.ndarray on cpu, but sample 0 is"):
        to([there[0], host[1]])
    with pytest.raises(DeviceError, match=r"sample 1 is .*on cuda:0"):
        to([host[0], there[1]])
    with pytest.raises(DeviceError, match=r"cuda:0.*cuda:1"):
        collate(there, "hwc->bchw", h=6, w=8, device="cuda:1")
    with pytest.raises(DeviceError, match="on cuda:0"):
        collate(there, "hwc->bchw", h=6, w=8, device="cuda", out=np.zeros((3, 3, 6, 8), np.uint8))
    with pytest.raises(DeviceError, match="out is on cuda:0"):
        to(host, out=out)
    with pytest.raises(ShapeError, match="sample 1 has 2 axes, but sample 0 has 3"):
        to([there[0], gpu.array(PHOTOS[1][0])])
    with pytest.raises(DtypeError, match="sample 2 has dtype float32, but sample 0 has uint8"):
        to([*there[:2], gpu.array(PHOTOS[2].astype("f4"))])
    with pytest.raises(ShapeError, match="sample 1 has size 8 along h, but sample 0 has 9"):
        collate(there, "hwc->bchw")
    with pytest.raises(ShapeError, match="sample 0 has size 9 along h, but its window of 10"):
        collate(there, "hwc->bchw", h=10, w=8)
    with pytest.raises(DtypeError, match="fill=300 cannot be represented in uint8"):
        collate(there, "hwc->bchw", h=10, w=8, fill=300)
    whole = gpu.array(np.zeros((4, 6, 8, 3), np.uint8))
    with pytest.raises(ArgumentError, match="out shares memory with x"):
        collate(whole, "bhwc->bhwc", indices=[0, 1], out=whole[1:3])
    with pytest.raises(ArgumentError, match="out shares memory with sample 1"):
        collate([whole[0], whole[2]], "hwc->bhwc", out=whole[1:3])


@pytest.mark.parametrize("to", ["bchw", "bhwc", "chwb"])
@pytest.mark.parametrize(
    "asked",
    [
        {}, {"fill": 3, "offset": {"h": -2}}, {"channels": (2, 0, 0)}, {"flip": "w"},
        {"resize": "bilinear"}, {"resize": "nearest", "fit": "pad"}, {"clip": (9, 90)},
    ],
    ids=str,
)  # fmt: skip
def test_a_batch_is_one_launch(gpu, to, asked):
    """Test that a call launches one kernel, with and without `out`."""
    there = on_gpu(gpu)
    each = {name: asked[name] for name in ("offset", "flip") if name in asked}
    fixed = {name: value for name, value in asked.items() if name not in each}
    collator = Collator(f"hwc->{to}", h=6, w=8, dtype="f4", **fixed)
    found = collator(there, **each)
    gpu.cupy.launched.clear()
    out = collator(there, **each)
    again = collator(there, out=found, **each)
    assert len(gpu.cupy.launched) == 2
    assert again is found
    assert_same(values_of(out), values_of(found))
    wanted = collator(PHOTOS, **each)
    np.testing.assert_allclose(values_of(out), wanted, rtol=0, atol=2e-3)


def test_conversions_that_kernels_do_not_do_follow(gpu):
    there = [gpu.array(x.astype("f4") * 1.7) for x in PHOTOS]
    keywords = {"h": 6, "w": 8, "dtype": "i4", "casting": "unsafe"}
    found = collate(there, "hwc->bchw", **keywords)
    wanted = collate([x.astype("f4") * 1.7 for x in PHOTOS], "hwc->bchw", **keywords)
    assert_same(values_of(found), wanted)


def test_a_batch_in_an_output_with_gaps(gpu):
    wanted = collate(PHOTOS, "hwc->bchw", h=6, w=8, dtype="f4")
    out = gpu.array(np.zeros((*wanted.shape[:-1], 20), "f4"))[..., 1:17:2]
    assert collate(on_gpu(gpu), "hwc->bchw", h=6, w=8, dtype="f4", out=out) is out
    assert_same(values_of(out).copy(), wanted)


def test_a_graph_cannot_capture_the_upload_of_the_table(gpu):
    there = on_gpu(gpu)
    collator = Collator("hwc->bchw", h=6, w=8)
    collator(there)
    with gpu.capturing() as graph, pytest.raises(DeviceError, match="CUDA graph is captured"):
        collator(there)
    assert graph[0].nodes == []


@pytest.mark.budget(0)
@pytest.mark.parametrize("keywords", [{}, {**FORMULA, "resize": "bilinear"}], ids=["move", "sum"])
def test_fixed_windows_of_one_array_are_described_once(gpu, monkeypatch, keywords):
    """Test arrays and outputs at other addresses: their alignments select the kernel."""
    described, prepare, empty = [], device_collate.prepare_launch, CupyRuntime.empty
    monkeypatch.setattr(
        device_collate, "prepare_launch", lambda *args: described.append(1) or prepare(*args)
    )

    def empty_after(self, shape, dtype, *where):  # by `before` bytes
        room = empty(self, (prod(shape) * np.dtype(dtype).itemsize + before,), np.uint8, *where)
        memory = room.memory[before:].view(dtype).reshape(shape)
        return FakeArray.of(memory, room.ordinal, room)

    monkeypatch.setattr(CupyRuntime, "empty", empty_after)

    make = lambda: Collator("bhwc->bchw", **{"h": 6, "w": 8, **keywords})
    collator, images = make(), IMAGES.astype("i2")
    room = np.zeros(2 * images.nbytes, np.uint8)
    for turn in range(3):
        for shift, before in ((0, 0), (1, 0), (4, 0), (0, 4)):  # noqa: B007  # read by `empty`
            x = room[shift : shift + images.nbytes].view("i2").reshape(images.shape)
            x[...] = images + turn + shift
            there, wanted = gpu.array(x), collator(x)
            results = [gpu.array(np.zeros_like(wanted)) for _ in range(2)]
            kernels = []
            for each, out in zip((make(), collator), results, strict=True):
                assert_same(values_of(each(there)), wanted)
                assert each(there, out=out) is out
                assert_same(values_of(out), wanted)
                kernels.append([function.defines for _, function in gpu.cupy.launched[-2:]])
            assert kernels[0] == kernels[1]
    assert len(described) == 3 * 4 * 2 + 3 * 2 + 3  # fresh Collators, layouts, other memory
    flip = {"w": [True, False, False] * 2 + [True]}
    assert_same(values_of(collator(there, flip=flip)), collator(x, flip=flip))
    memory = there.memory.reshape(-1).view(np.uint8)[: wanted.nbytes].view(wanted.dtype)
    with pytest.raises(ArgumentError, match="out shares memory with x"):
        collator(there, out=FakeArray.of(memory.reshape(wanted.shape), 0, there))


def test_tables_are_written_while_earlier_ones_are_copied(gpu):
    """Test that the host waits for the buffer that it fills again only, and never too late."""
    there = on_gpu(gpu)
    collator = Collator("hwc->bchw", h=6, w=8, **FORMULA)
    values_of(collator(there))  # uploads the constants of the formula, too
    calls = [{"offset": {"h": [n % 4, 0, n % 3], "w": n % 3}} for n in range(2 * transfers.PIECES)]
    results = []
    for n, each in enumerate(calls):
        waits = len(gpu.host_waits)
        results.append(collator(there, **each))
        assert len(gpu.host_waits) - waits == (n + 1 >= transfers.PIECES)
    for each, result in zip(calls, results, strict=True):
        assert_same(values_of(result), collator(PHOTOS, **each))


# ---- batches of records ------------------------------------------------------------------


@pytest.mark.parametrize("num_workers", [0, 2])
def test_batches_of_a_loop_are_made_on_the_gpu(gpu, num_workers):
    words = {"batch_size": 3, "num_workers": num_workers}
    asked = {"h": 6, "w": 8, "offset": "random", "flip": "random", **FORMULA}
    with sampled_batcher(IMAGES, collate=Collator("hwc->bchw", **asked), **words) as batches:
        wanted = [batch.input.input for batch in batches]
    there = Collator("hwc->bchw", device="cuda:1", **asked)
    with sampled_batcher(IMAGES, collate=there, **words) as batches:
        found = [batch.input.input for batch in batches]
    assert [x.ordinal for x in found] == [1, 1, 1]
    for x, y in zip(found, wanted, strict=True):
        assert_same(values_of(x), y)


# A kernel reads whole pixels, except if they have too many channels, if samples have different
# numbers of channels, or if there is a fill value for each channel.
SELECTIONS = [
    (3, (2, 1, 0)), (4, (2, 1, 0)), (4, (0, 1, 2)), (4, (3, 1)), (5, (4, 1)), (2, (1, 0, 0, 1, 1)),
    (8, (7, 0, 5, 2)), (9, (7, 0, 5, 2, 8)), (3, (0, 0, 1, 1, 2, 2, 0, 1, 2)), (3, (1,)),
]  # fmt: skip
INSIDE_OR_NOT = {
    "inside": {}, "one fill": {"fill": 7, "call": {"offset": {"h": -2, "w": 3}}},
    "fill by channel": {"fill": "by channel", "call": {"offset": {"h": -2, "w": 3}}},
    "flips": {"call": {"flip": {"w": [True, False, True]}}},
}  # fmt: skip


@pytest.mark.budget(2, all=24)
@pytest.mark.parametrize("resize", [None, "bilinear"])
@pytest.mark.parametrize("target", ["bchw", "bhwc", "chwb"])
@pytest.mark.parametrize("name", INSIDE_OR_NOT)
@pytest.mark.parametrize(("items", "channels"), SELECTIONS)
def test_selected_channels(gpu, items, channels, name, target, resize):
    options = {**INSIDE_OR_NOT[name]}
    call = options.pop("call", {})
    if options.get("fill") == "by channel":
        options["fill"] = tuple(range(1, items + 1))
    if resize:
        options["resize"] = resize
    rng = np.random.default_rng(items)
    photos = [rng.integers(0, 256, (12, 14, items), np.uint8) for _ in range(3)]
    there = [gpu.array(x) for x in photos]
    collator = Collator(f"hwc->{target}", h=9, w=11, channels=channels, dtype="f4", **options)
    expected = collator(photos, **call)
    np.testing.assert_allclose(values_of(collator(there, **call)), expected, rtol=0, atol=1e-4)
    gpu.check()
    if name == "fill by channel":
        return
    wider = [*photos[:2], rng.integers(0, 256, (12, 14, items + 1), np.uint8)]
    expected = collator(wider, **call)
    found = collator([gpu.array(x) for x in wider], **call)
    np.testing.assert_allclose(values_of(found), expected, rtol=0, atol=1e-4)
    gpu.check()


@pytest.mark.parametrize("resize", [None, "bilinear"])
@pytest.mark.parametrize(("target", "memory"), [("bchw", "bhwc"), ("bhwc", "chwb")])
def test_memory_is_in_the_order_that_is_asked_for(gpu, target, memory, resize):
    asked = {"h": 6, "w": 8, "resize": resize, "memory": memory, **FORMULA}
    collator = Collator(f"hwc->{target}", **asked)
    wanted = collator(PHOTOS)
    there = collator([gpu.array(x) for x in PHOTOS])
    up = Collator(f"hwc->{target}", **asked, device="cuda:0")(PHOTOS)
    for batch in (there, up):
        np.testing.assert_allclose(values_of(batch), wanted, rtol=0, atol=1e-4)
        assert tuple(batch.strides) == wanted.strides
    gpu.check()


@pytest.mark.parametrize("resize", [{}, {"w": 5, "resize": "bilinear"}])
def test_samples_are_padded_to_the_longest(gpu, resize):
    keywords = {"w": "longest", "fill": 7, "lengths": True, **FORMULA, **resize}
    collator = Collator("hwc->bchw", h="longest", **keywords)
    flip = {"h": [True, False, True], "w": "w" not in resize}
    expected = collator(PHOTOS, flip=flip)
    batch = collator([gpu.array(x) for x in PHOTOS], flip=flip)
    assert_same(batch.lengths, expected.lengths)
    np.testing.assert_allclose(values_of(batch.data), expected.data, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("empty", [(0,), (1,), (0, 1), (2,), (0, 1, 2)])
def test_packed_samples_without_elements(gpu, empty):
    shapes = [(0, 12, 3) if n in empty else (8, 4 * n + 4, 3) for n in range(3)]
    patches = [RNG.integers(0, 256, shape, np.uint8) for shape in shapes]
    collator = Collator("(hp)(wq)c->(bhw)(cpq)", p=4, q=4, dtype="f4", scale=2)
    expected = collator(patches)
    batch = collator([gpu.array(x) for x in patches])
    assert_same(batch.offsets, expected.offsets)
    assert_same(values_of(batch.data), expected.data)


@pytest.mark.parametrize("size", [(4, 5), [(4, 5), (6, 7), (4, 5)]])
@pytest.mark.parametrize("flip", [None, {"w": [True, False, True]}])
def test_packed_samples_of_equal_sizes(gpu, size, flip):
    collator = Collator("hwc->(bhw)c", resize="bilinear")
    images = [*IMAGES[:3]]
    expected = collator(images, size=size, flip=flip)
    batch = collator([gpu.array(x) for x in images], size=size, flip=flip)
    assert_same(batch.sizes, expected.sizes)
    np.testing.assert_array_equal(values_of(batch.data), expected.data)
    gpu.check()
