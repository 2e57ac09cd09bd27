"""`collate` with `resize=`: windows of another size, against the definition in float64."""

import gc
import itertools
import pickle
import threading

import numpy as np
import pytest

import layoutkit
from layoutkit import (
    ArgumentError,
    Collator,
    DtypeError,
    Placement,
    ShapeError,
    buffers,
    collate,
    convert,
    taps,
)
from layoutkit._utils import cache as caching
from layoutkit.cpu import resize as cpu_resize
from layoutkit.data import sampled_batcher
from layoutkit.kernels.cpu import resize_params as t
from layoutkit.memory import data_pointer
from tests.helpers import resizing
from tests.helpers.arrays_of import assert_same
from tests.helpers.children import python
from tests.helpers.guarded import guarded, why_not
from tests.helpers.instruction_sets import lacking, named
from tests.helpers.reference import reference_convert
from tests.helpers.resizing import FILTERS, RNG, Case, photo


@pytest.mark.budget(0, all=40)
@pytest.mark.parametrize("resizes", [True, False])
@pytest.mark.parametrize("first", range(0, 2000, 5))
def test_random_collations(first, resizes):
    for seed in range(first, first + 5):
        try:
            Case(seed, resizes=resizes).check()
        except Exception as error:
            raise AssertionError(f"Case({seed}) differs from the definition") from error


ADDED = ["b1hw", "bchw", "bhwc", "1bhw", "h1bw", "bqhwn", "(bc)hw", "b(qhw)", "h(bq)w", "chwb"]


@pytest.mark.budget(0)
@pytest.mark.parametrize("fit", ["stretch", "cover", "pad"])
@pytest.mark.parametrize("right", ADDED)
def test_axes_that_only_the_batch_has(right, fit):
    """Compare batches of samples, of rows of an array and of a loop with the reference."""
    images = photo((5, 9, 11))
    keywords = {"h": 4, "w": 6, "fit": fit}
    for name in FILTERS:
        whole = Collator(f"bhw->{right}", resize=name, **keywords)
        windows = collate(images, "bhw->bhw", indices=[3, 0], resize=name, **keywords)
        expected = reference_convert(windows, f"bhw->{right}")
        assert_same(whole(images, indices=[3, 0]), expected)
        assert whole.plan(images).samples == 5
        if right.isalpha():  # other batches are not Views
            collator = Collator(f"hw->{right}", resize=name, **keywords)
            batch = next(iter(sampled_batcher(images, collate=collator, batch_size=5)))
            assert_same(np.asarray(batch.input), whole(images))


@pytest.mark.parametrize("keywords", [{"c": 1}, {"mean": (3.0,), "std": 2.0}, {"mean": {"q": [3]}}])
def test_options_of_an_axis_that_only_the_batch_has(keywords):
    images = photo((2, 9, 11))
    collated = collate(images, "bhw->bcqhw", h=4, w=6, resize="area", dtype="f4", **keywords)
    windows = collate(images, "bhw->bhw", h=4, w=6, resize="area", dtype="f4")
    assert_same(collated, convert(windows, "bhw->bcqhw", **keywords))


def test_channels_are_selected_beside_folded_axes_with_names():
    images = photo((2, 9, 8, 5))
    named = collate(
        list(images), "height (time width) c -> batch c height time width", time=2, height=4,
        channels=(3, 0), resize="bilinear",
    )  # fmt: skip
    letters = collate(list(images), "h(tw)c->bchtw", t=2, h=4, channels=(3, 0), resize="bilinear")
    assert_same(named, letters)


# ---- other libraries ---------------------------------------------------------------------

SHAPES = [((37, 50), (24, 24)), ((24, 24), (37, 50)), ((61, 9), (7, 40)), ((5, 5), (5, 11))]


@pytest.mark.parametrize("antialias", [True, False])
@pytest.mark.parametrize("name", ["bilinear", "bicubic"])
@pytest.mark.parametrize(("shape", "size"), SHAPES)
def test_floats_are_those_of_torch_in_float64(name, antialias, shape, size):
    torch = pytest.importorskip("torch")
    x = photo((*shape, 3), "float32")
    made = collate([x], "hwc->bchw", h=size[0], w=size[1], resize=name, antialias=antialias)
    planes = torch.from_numpy(x).double().permute(2, 0, 1)[None]
    expected = torch.nn.functional.interpolate(planes, size, mode=name, antialias=antialias)
    np.testing.assert_allclose(made, expected.numpy(), rtol=0, atol=1e-5 * np.abs(x).max())


@pytest.mark.parametrize("name", ["nearest", "bilinear", "bicubic", "lanczos"])
@pytest.mark.parametrize(("shape", "size"), SHAPES)
def test_bytes_are_within_one_of_pillow(name, shape, size):
    image = pytest.importorskip("PIL.Image")
    x = RNG.integers(90, 160, shape).astype(np.uint8)  # no pass is clipped to 0 to 255
    made = collate([x], "hw->bhw", h=size[0], w=size[1], resize=name)[0]
    methods = {"nearest": 0, "lanczos": 1, "bilinear": 2, "bicubic": 3}
    resized = np.asarray(image.fromarray(x).resize(size[::-1], methods[name]))
    assert np.abs(made.astype(int) - resized).max() <= (0 if name == "nearest" else 1)


@pytest.mark.parametrize(("shape", "size"), SHAPES)
def test_floats_without_antialias_are_those_of_opencv(shape, size):
    cv2 = pytest.importorskip("cv2")
    x = photo((*shape, 3), "float32")
    keywords = {"h": size[0], "w": size[1], "antialias": False}
    made = collate([x], "hwc->bhwc", resize="bilinear", **keywords)[0]
    expected = cv2.resize(x, size[::-1], interpolation=cv2.INTER_LINEAR)
    np.testing.assert_allclose(made, expected, rtol=0, atol=1e-4 * np.abs(x).max())
    shrinks = size[0] <= shape[0] and size[1] <= shape[1]
    enlarges = size[0] >= shape[0] and size[1] >= shape[1]
    if shrinks or enlarges:  # OpenCV has one rule for both axes
        made = collate([x], "hwc->bhwc", resize="area", **keywords)[0]
        expected = cv2.resize(x, size[::-1], interpolation=cv2.INTER_AREA)
        np.testing.assert_allclose(made, expected, rtol=0, atol=1e-4 * np.abs(x).max())


def test_areas_are_those_of_opencv_where_no_side_grows():
    cv2 = pytest.importorskip("cv2")
    x = photo((40, 37), "float32")
    for height, width in ((n, 1 + n * 23 % 37) for n in range(1, 41)):
        made = collate([x], "hw->bhw", h=height, w=width, resize="area")[0]
        expected = cv2.resize(x, (width, height), interpolation=cv2.INTER_AREA)
        np.testing.assert_allclose(made, expected, rtol=0, atol=1e-4 * np.abs(x).max())


@pytest.mark.parametrize(("height", "width"), [(20, 50), (61, 10), (52, 52)])
def test_areas_are_exact_means_where_a_side_grows(height, width):
    """For one of 20 to 52, OpenCV selects the pixel before the right one."""
    x = photo((30, 20), "float32")
    made = collate([x], "hw->bhw", h=height, w=width, resize="area")[0]
    rows, columns = (
        resizing.weights("area", True, 30, height),
        resizing.weights("area", True, 20, width),
    )
    np.testing.assert_allclose(made, rows @ x @ columns.T, rtol=0, atol=1e-3)


def test_the_shorter_side_is_that_of_torchvision():
    """Resize(20) of 33 x 50 gives 20 x 30, and CenterCrop(16, 24) begins at 2 and 3."""
    x = photo((33, 50, 3), "float32")
    made = collate([x], "hwc->bhwc", h=16, w=24, resize="bicubic", short_side=20)[0]
    whole = collate([x], "hwc->bhwc", h=20, w=30, resize="bicubic")[0]
    assert_same(made, whole[2:18, 3:27])
    odd = collate([x], "hwc->bhwc", h=15, w=23, resize="bicubic", short_side=20)[0]
    assert_same(odd, whole[2:17, 4:27])  # offsets 2.5 and 3.5 are rounded half to even
    wide = collate([x], "hwc->bhwc", h=24, w=24, resize="bicubic", short_side=20, fill=1)[0]
    assert_same(wide[2:22], whole[:, 3:27])
    assert (wide[:2] == 1).all()
    assert (wide[22:] == 1).all()


# ---- results -----------------------------------------------------------------------------


def test_results_depend_neither_on_neighbors_nor_on_threads():
    photos = [photo((int(h), int(w), 3)) for h, w in RNG.integers(40, 300, (12, 2))]
    collator = Collator("hwc->bchw", h=70, w=90, resize="bicubic", dtype="float32", mean=3)
    before = layoutkit.get_num_threads()
    batches = []
    try:
        for threads in (1, 2, 5):
            layoutkit.set_num_threads(threads)
            batches.append(collator(photos))
    finally:
        layoutkit.set_num_threads(before)
    assert_same(batches[1], batches[0])
    assert_same(batches[2], batches[0])
    for number, x in enumerate(photos):
        assert_same(collator([x])[0], batches[0][number])


def test_calls_of_several_threads_at_once():
    photos = [photo((50 + n, 60, 3)) for n in range(6)]
    collator = Collator("hwc->bhwc", h=33, w=44, resize="bilinear", dtype="float32")
    expected = [collator([x, x]) for x in photos]
    wrong = []

    def work(number):
        for _ in range(30):
            if not np.array_equal(collator([photos[number]] * 2), expected[number]):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_flipped_result_is_the_mirrored_one():
    x = photo((31, 47, 3), "float32")
    keywords = {"h": 20, "w": 64, "resize": "lanczos", "fit": "pad", "fill": 7}
    plain = collate([x], "hwc->bhwc", **keywords)
    for flip, axes in [("w", 2), ("h", 1), ({"h": True, "w": True}, (1, 2)), ("c", 3)]:
        assert_same(collate([x], "hwc->bhwc", flip=flip, **keywords), np.flip(plain, axes))


FILLED = {
    "padded": {"fit": "pad"},
    "scaled": {"short_side": 6},
    "cropped": {"crop": {"h": [15, 9]}, "offset": {"h": -4}},
    "outside": {"crop": {"w": 3}, "offset": {"w": [40, -3]}},
}


@pytest.mark.parametrize("how", FILLED)
@pytest.mark.parametrize("layout", ["hwc", "chw", "hcw"])
def test_fill_values_are_flipped_with_their_channels(layout, how):
    """Compare samples with and without a flip with the flipped result."""
    photos = [photo((7, 9, 3)), photo((8, 5, 3))]
    samples = [x.transpose(["hwc".index(axis) for axis in layout]) for x in photos]
    keywords = {"h": 12, "w": 11, "fill": (100, 150, 200), **FILLED[how]}
    calls = {name: keywords.pop(name) for name in ("crop", "offset") if name in keywords}
    for name in ("nearest", "bilinear"):
        for channels in (None, (2, 0, 1, 0)):
            collator = Collator(f"{layout}->bchw", resize=name, channels=channels, **keywords)
            plain = collator(samples, **calls)
            for flags in ([True, False], [True, True]):
                flipped = collator(samples, flip={"c": flags, "w": True}, **calls)
                expected = [
                    x[::-1, :, ::-1] if flag else x[..., ::-1]
                    for x, flag in zip(plain, flags, strict=True)
                ]
                assert_same(flipped, np.stack(expected))


@pytest.mark.parametrize("offset", [-9, -5, -4, 7, 8, 1 << 40, -(1 << 40)])
@pytest.mark.parametrize("fit", ["stretch", "cover", "pad"])
def test_a_crop_beside_its_sample_is_filled_as_a_window_is(fit, offset):
    x = photo((7, 9, 2), "float32")
    keywords = {"h": 4, "w": 9, "offset": {"h": offset}, "fill": (3, 5)}
    expected = collate([x], "hwc->bchw", **keywords)
    for name in FILTERS:
        made = collate([x], "hwc->bchw", resize=name, fit=fit, crop={"h": 4}, **keywords)
        assert_same(made, expected)


@pytest.mark.budget(30)
@pytest.mark.parametrize("is_flipped", [False, True])
@pytest.mark.parametrize("channels", [1, 2, 3, 5, 9])
@pytest.mark.parametrize("dtype", ["uint8", "float32", "float64"])
@pytest.mark.parametrize("name", ["nearest", "bilinear", "bicubic"])
def test_source_columns_without_taps_do_not_matter(name, dtype, channels, is_flipped):
    x = photo((21, 90, channels), dtype)
    has_taps = resizing.weights(name, False, 90, 7).any(0)
    expected = resizing.window(
        x, {0: 5, 1: 7}, name, antialias=False, flip=(1,) if is_flipped else ()
    )
    x[:, ~has_taps] = 251 if dtype == "uint8" else np.nan
    flip = "w" if is_flipped else None
    options = {"h": 5, "w": 7, "resize": name, "antialias": False, "flip": flip}
    made = collate([x], "hwc->bhwc", dtype=np.result_type(dtype, "float32"), **options)
    np.testing.assert_allclose(made[0], expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("is_unlucky", [False, True])
def test_samples_with_equal_taps_share_a_table(is_unlucky, monkeypatch):
    if is_unlucky:  # all rows have one key
        monkeypatch.setattr(taps, "_KEY_FACTORS", np.zeros_like(taps._KEY_FACTORS))
    photos = RNG.integers(0, 256, (6, 20, 30, 3), np.uint8)
    collator = Collator("bhwc->bchw", h=8, w=9, resize="bilinear")
    flips = [True, False, False, True, True, False]
    each = [collator(photos[i : i + 1], flip={"w": [flips[i]]}) for i in range(6)]
    assert_same(collator(photos, flip={"w": flips}), np.concatenate(each))
    placements = collator.place(photos, flip={"w": flips})
    tables = taps.make_tap_tables(collator.windows.resize, placements, [0, 1], np.dtype("f4"))
    assert [len({*x.tolist()}) for x in tables.addresses] == [1, 6 if is_unlucky else 2]


@pytest.mark.parametrize("summed", ["float32", "float64"])
@pytest.mark.parametrize("is_packed", [False, True])
def test_a_gpu_reads_positions_and_weights_of_tap_tables_in_words_of_16_bytes(is_packed, summed):
    photos = [photo((20, 30, 3)), photo((9, 11, 3)), photo((20, 31, 3)), photo((20, 30, 3))]
    if is_packed:  # windows of different sizes
        collator = Collator("(hp)(wq)c->(bhw)(pqc)", p=4, q=4, resize="bicubic", multiple=4)
    else:
        collator = Collator("hwc->bhwc", h=8, w=9, resize="bicubic")
    placements = collator.place(photos)
    tables = taps.make_tap_tables(collator.windows.resize, placements, [0, 1], np.dtype(summed))
    begin = data_pointer(tables.memory)
    for axis, (pitch, addresses) in enumerate(zip(tables.pitches, tables.addresses, strict=True)):
        assert pitch % (t.TAP_GROUP * np.dtype(summed).itemsize) == 0
        assert ((addresses - begin) % 16 == 0).all()
        heads = [table for group in tables.read_heads(axis) for table in group]
        for number, (address, table) in enumerate(
            zip(addresses, tables.numbers[axis], strict=True)
        ):
            count = int(tables.counts[axis, number])
            first = (address - begin) // 8 + t.HEAD
            words = tables.memory.view(np.int64)[first : first + t.POSITION * count]
            np.testing.assert_array_equal(heads[table], words.reshape(count, t.POSITION))
            one = placements.rows([number])
            (alone,) = taps.make_tap_tables(
                collator.windows.resize, one, [axis], np.dtype(summed)
            ).read_heads(0)
            np.testing.assert_array_equal(heads[table], alone[0])


def test_a_size_that_stays_is_moved_unchanged():
    x = photo((20, 30, 3))
    for name in FILTERS:
        assert_same(collate([x], "hwc->bchw", h=20, w=30, resize=name)[0], x.transpose(2, 0, 1))
        part = collate([x], "hwc->bhwc", h=9, w=7, resize=name, crop={"h": 9, "w": 7})
        assert_same(part, collate([x], "hwc->bhwc", h=9, w=7))


@pytest.mark.parametrize("name", ["bilinear", "bicubic", "lanczos", "area"])
def test_nan_reaches_the_results_that_it_is_averaged_into(name):
    x = photo((40, 50), "float32")
    x[17, 23] = np.nan
    made = collate([x], "hw->bhw", h=16, w=31, resize=name)[0]
    rows, columns = (resizing.weights(name, True, n, m) != 0 for n, m in ((40, 16), (50, 31)))
    allowed = np.outer(rows[:, 17], columns[:, 23])
    assert np.isnan(made).any()
    assert not (np.isnan(made) & ~allowed).any()


def test_the_second_of_two_pixels_is_the_nearest_to_a_center_between_them():
    row = np.array([[0, 200]], np.uint8)
    made = collate([row], "hw->bhw", h=1, w=7, resize="nearest")
    assert made.ravel().tolist() == [0, 0, 0, 200, 200, 200, 200]


STRUCTS = [np.dtype([(f"f{i}", "u1") for i in range(n)]) for n in (1, 2, 3, 5, 6, 7, 8, 9, 16, 17)]


def bytes_of(shape, dtype):
    """Return an array of random bytes, without NaN."""
    x = RNG.integers(0, 120, (*shape[:-1], shape[-1] * dtype.itemsize), np.uint8)
    return x.view(dtype)


@pytest.mark.budget(4)
@pytest.mark.parametrize("pattern", ["hwc->bchw", "hwc->bhwc", "hwc->chwb"])
@pytest.mark.parametrize(
    "dtype", ["i4", "u4", "i8", "u8", "f8", "c8", "c16", ">i4", "M8[s]", *STRUCTS], ids=str
)
def test_the_nearest_items_of_any_dtype_are_moved_by_kernels(dtype, pattern, monkeypatch):
    monkeypatch.delattr(cpu_resize, "view_memory")  # with which samples are copied
    x = bytes_of((13, 11, 3), np.dtype(dtype))
    rows, columns = (2 * np.arange(7) + 1) * 13 // 14, (2 * np.arange(17) + 1) * 11 // 34
    nearest = x[rows][:, columns]
    right = pattern.partition("->")[2]
    order = ["bhwc".index(letter) for letter in right]
    samples = [x, np.asfortranarray(x), np.repeat(x, 2, 1)[:, ::2], x[::-1].copy()[::-1]]
    for flip, axis in (None, ()), ("h", 0), ("w", 1), ("c", 2):
        made = collate(samples, pattern, h=7, w=17, resize="nearest", flip=flip)
        expected = np.stack([np.flip(nearest, axis)] * len(samples)).transpose(order)
        assert made.tobytes() == expected.astype(made.dtype).tobytes()


def test_long_tables_of_positions_are_kept_until_items_are_moved():
    x = np.arange(7)
    made = collate([x], "t->bt", t=700_000, resize="nearest")
    assert_same(made[0], np.repeat(x, 100_000))


@pytest.mark.parametrize("channels", [None, (2, 0), (1, 1, 2, 0)])
@pytest.mark.parametrize("dtype", ["i8", "u4", "c8"])
def test_moved_items_are_cropped_selected_and_filled(dtype, channels):
    """Compare with float32; `test_moves.py` compares crops with NumPy's indexing."""
    samples = [photo(shape, "uint8").astype(dtype) for shape in ((9, 14, 3), (20, 6, 3))]
    options = {"h": 8, "w": 10, "resize": "nearest", "fill": (5, 6, 7), "channels": channels}
    for fit in ({"fit": "pad"}, {"fit": "cover"}, {"short_side": 6}, {}):
        collator = Collator("hwc->bchw", **options, **fit)
        call = {"crop": {"h": [7, 12], "w": 6}, "offset": {"h": [-3, 12]}, "flip": "w"}
        floats = [x.real.astype("f4") for x in samples]
        assert_same(collator(samples, **call), collator(floats, **call).astype(dtype))


@pytest.mark.parametrize("name", FILTERS)
def test_channels_are_selected_from_samples_with_different_numbers_of_them(name):
    collator = Collator("hwc->bchw", h=5, w=6, resize=name, channels=(2, 0))
    samples = [photo((9, 14, count)) for count in (3, 4, 3)]
    for batch in (samples, samples[1:]):
        assert_same(collator(batch), np.concatenate([collator([x]) for x in batch]))


@pytest.mark.budget(3)
@pytest.mark.parametrize("name", FILTERS)
@pytest.mark.parametrize("dtype", ["uint8", "float32", "float64"])
@pytest.mark.parametrize("pattern", ["hwc->bchw", "hwc->bhwc", "wch->bhwc", "thw->bthw"])
def test_results_do_not_depend_on_the_order_of_memory(pattern, dtype, name):
    left = pattern.partition("-")[0]
    shape = {"h": 20, "w": 31, "c": 3, "t": 5}
    x = photo([shape[letter] for letter in left], dtype)
    sizes = {"h": 13, "w": 17} | ({"t": 3} if "t" in left else {})
    samples = [
        np.ascontiguousarray(x.transpose(order)).transpose(np.argsort(order))
        for order in itertools.permutations(range(3))
    ]
    samples += [x[::-1].copy()[::-1], np.repeat(x, 2, -1)[..., ::2]]
    collator = Collator(pattern, **sizes, resize=name, scale=0.5, dtype="float32")
    expected = collator(samples[:1])
    for sample in samples:
        assert_same(collator([sample]), expected)
    for row in collator(samples):
        assert_same(row[None], expected)


@pytest.mark.parametrize("name", FILTERS)
def test_float64_is_resized_in_float64(name):
    x = 1e9 + photo((20, 31, 3), "float64")
    sizes = {0: 13, 1: 40}
    made = collate([x], "hwc->bhwc", h=13, w=40, resize=name)[0]
    np.testing.assert_allclose(made, resizing.window(x, sizes, name), rtol=1e-14)


def test_integers_are_rounded_to_the_nearest_and_limited():
    x = np.array([[0, 255, 0, 255, 0, 255]], np.uint8)
    made = collate([x], "hw->bhw", h=1, w=11, resize="bicubic")
    exact = resizing.window(x, {1: 11}, "bicubic")
    assert exact.min() < 0
    assert exact.max() > 255
    assert_same(made[0], np.rint(exact).clip(0, 255).astype(np.uint8))


@pytest.mark.budget(1)
@pytest.mark.parametrize(
    ("name", "antialias"), [("bilinear", True), ("bilinear", False), ("area", True)]
)
@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("size", [(1, 64), (2, 65), (19, 97), (40, 700)])
def test_halved_bytes_are_rounded_floats(name, antialias, channels, size):
    """The samples are of several strides: rows apart, reversed rows, and crops."""
    height, width = size
    samples = [
        photo((2 * height, 2 * width + 5, channels))[:, :-5],
        photo((2 * height, 2 * width, channels))[::-1],
    ]
    samples += [np.full_like(samples[0], 255), np.zeros_like(samples[1])]
    keywords = {"h": height, "w": width, "resize": name, "antialias": antialias}
    floats = collate(samples, "hwc->bhwc", dtype="float32", **keywords)
    halved = collate(samples, "hwc->bhwc", **keywords)
    assert_same(halved, np.rint(floats).astype("uint8"))
    larger = [np.pad(x, [(1, 2), (3, 1), (0, 0)]) for x in samples]
    crop = {"h": 2 * height, "w": 2 * width}
    cropped = collate(larger, "hwc->bhwc", crop=crop, offset={"h": 1, "w": 3}, **keywords)
    assert_same(cropped, halved)


def test_scaled_bytes_are_not_rounded_before_the_formula():
    x = photo((9, 9, 1))
    made = collate([x], "hwc->bchw", h=5, w=5, resize="bilinear", scale=1 / 255)
    assert made.dtype == np.float32
    exact = resizing.window(x, {0: 5, 1: 5}, "bilinear")[..., 0] / 255
    np.testing.assert_allclose(made[0, 0], exact, atol=1e-6)
    assert np.abs(exact * 255 - np.rint(exact * 255)).max() > 0.1


@pytest.mark.parametrize(
    ("shape", "size"),
    [
        ((3000, 2), (5, 3)),
        ((2, 30011), (3, 17)),
        ((1, 1), (40, 33)),
        ((701, 1), (1, 2)),
        ((2, 2), (1, 5003)),
    ],
)
def test_extreme_sizes(shape, size):
    x = photo((*shape, 3))
    for name in ("bilinear", "area"):
        made = collate([x], "hwc->bhwc", h=size[0], w=size[1], resize=name, dtype="float32")[0]
        expected = resizing.window(x, dict(enumerate(size)), name)
        np.testing.assert_allclose(made, expected, rtol=0, atol=3e-3)


def test_samples_in_one_array_and_into_an_output():
    images = photo((7, 20, 24, 3))
    rows = [5, 0, -1, 5]
    keywords = {"h": 11, "w": 13, "resize": "bilinear", "dtype": "float32"}
    expected = collate([images[n] for n in rows], "hwc->bchw", **keywords)
    assert_same(collate(images, "bhwc->bchw", indices=rows, **keywords), expected)
    out = np.full((4, 13, 3, 11), np.nan, np.float32).transpose(0, 2, 3, 1)
    assert collate(images, "bhwc->bchw", indices=rows, out=out, **keywords) is out
    assert_same(np.ascontiguousarray(out), expected)
    assert collate(images, "bhwc->bchw", indices=[], **keywords).shape == (0, 3, 11, 13)


def test_tensors_on_the_cpu():
    torch = pytest.importorskip("torch")
    x = torch.from_numpy(photo((3, 20, 30)))
    made = collate([x], "chw->bchw", h=10, w=10, resize="area", scale=1 / 255)
    assert isinstance(made, torch.Tensor)
    assert_same(
        made.numpy(), collate([x.numpy()], "chw->bchw", h=10, w=10, resize="area", scale=1 / 255)
    )


# ---- traced samples ----------------------------------------------------------------------


def assert_close_to(made, expected):
    """Compare results whose sums were computed in another order."""
    made, expected = np.asarray(made), np.asarray(expected)
    assert made.dtype == expected.dtype
    wide = expected.astype(np.complex128)
    digits = {"float16": 2e-3, "bfloat16": 2e-2}.get(str(made.dtype), 2e-5)
    allowed = max(int(made.dtype.kind in "ui"), digits * max(1, np.abs(wide).max(initial=0)))
    np.testing.assert_allclose(made.astype(np.complex128), wide, rtol=0, atol=allowed)


@pytest.mark.budget(1, all=15)
@pytest.mark.parametrize("first", range(0, 400, 5))
def test_random_collations_of_samples_that_require_a_gradient(first):
    torch = pytest.importorskip("torch")
    for seed in range(first, first + 5):
        case = Case(seed)
        case.target = case.options["dtype"] = "float32"
        if case.dtype.kind != "f":
            continue
        samples = [torch.from_numpy(x.copy("C")).requires_grad_() for x in case.samples]
        made = case.made(samples)
        assert_close_to(made.detach().numpy(), case.made())
        direction = torch.from_numpy(case.rng.standard_normal(made.shape, np.float32))
        case.check_gradients(direction, torch.autograd.grad(made, samples, direction))


@pytest.mark.budget(1, all=10)
@pytest.mark.parametrize("first", range(0, 400, 4))
def test_random_collations_of_samples_traced_by_jax(first):
    jax = pytest.importorskip("jax")
    for seed in range(first, first + 4):
        case = Case(seed)
        wide = {case.dtype.itemsize, np.dtype(case.target).itemsize} & {8}
        if not wide:
            made = jax.jit(lambda *samples, case=case: case.made(list(samples)))(*case.samples)
            assert_close_to(made, case.made())


def test_gradients_are_those_of_torch():
    torch = pytest.importorskip("torch")
    x = torch.from_numpy(photo((2, 19, 23), "float64")).requires_grad_()
    made = collate([x], "chw->bchw", h=8, w=31, resize="bicubic")
    expected = torch.nn.functional.interpolate(
        x[None], (8, 31), mode="bicubic", antialias=True, align_corners=False
    )
    direction = torch.from_numpy(photo((1, 2, 8, 31), "float64"))
    for batch in (made, expected):
        (batch * direction).sum().backward(retain_graph=True)
    gradients = [torch.autograd.grad((y * direction).sum(), x)[0] for y in (made, expected)]
    np.testing.assert_allclose(*(g.numpy() for g in gradients), rtol=0, atol=1e-4)


@pytest.mark.budget(0)
def test_a_compiled_function_resizes_crops():
    torch = pytest.importorskip("torch")
    photos = [torch.from_numpy(photo((20, 30, 3))), torch.from_numpy(photo((25, 28, 3)))]
    collator = Collator("hwc->bchw", h=8, w=9, resize="bilinear", scale=1 / 255)

    def batch(*samples):
        whole = collator(list(samples))
        part = collate(list(samples), "hwc->bchw", h=8, w=9, resize="area", crop={"h": [9, 12]})
        return whole, collator(list(samples), crop={"w": 10}, offset={"w": [3, 4]}), part

    for made, expected in zip(torch.compile(batch)(*photos), batch(*photos), strict=True):
        assert_close_to(made, expected)


@pytest.mark.parametrize("name", ["nearest", "bilinear", "bicubic", "lanczos", "area"])
def test_traced_crops_are_filled_outside_of_samples(name):
    torch = pytest.importorskip("torch")
    x = torch.from_numpy(photo((10, 12), "float32"))
    collator = Collator("hw->bhw", h=24, w=9, resize=name, fill=7, crop={"h": 8, "w": 8})
    for offset in ({"h": -2, "w": 7}, {"h": 5, "w": -3}):
        made = collator([x.clone().requires_grad_()], offset=offset)
        assert_close_to(made.detach(), collator([x], offset=offset))


def test_a_traced_float64_sample_has_a_float64_window():
    torch = pytest.importorskip("torch")
    x = torch.from_numpy(photo((15, 20), "float64"))
    made = collate([x.clone().requires_grad_()], "hw->bhw", h=6, w=30, resize="lanczos")
    expected = resizing.window(x.numpy(), {0: 6, 1: 30}, "lanczos")
    np.testing.assert_allclose(made.detach().numpy()[0], expected, rtol=0, atol=2e-5)
    assert made.dtype == torch.float64


# Both sides shrink, both grow, and crops reach outside of samples or do not touch them.
HOLED = [
    {"h": 3, "w": 2},
    {"h": 9, "w": 7},
    {"h": 9, "w": 2, "fit": "pad"},
    {"h": 4, "w": 5, "crop": {"h": 9}, "offset": {"h": -3}, "fill": 1},
    {"h": 4, "w": 5, "crop": {"w": 3}, "offset": {"w": 50}, "fill": 1},
]


@pytest.mark.budget(9, all=12)
@pytest.mark.parametrize("keywords", HOLED)
@pytest.mark.parametrize("antialias", [True, False])
@pytest.mark.parametrize("name", FILTERS)
def test_nan_stays_in_the_results_of_its_taps(name, antialias, keywords):
    """Compare recorded and traced samples with the kernels, forward, and transposed, backward."""
    torch, jax = pytest.importorskip("torch"), pytest.importorskip("jax")
    if name == "lanczos" and not antialias:
        return
    keywords = {"resize": name, "antialias": antialias, **keywords}
    calls = {key: keywords.pop(key) for key in ("crop", "offset") if key in keywords}
    collator = Collator("hw->bhw", **keywords)
    holed = photo((2, 30, 6, 5), "float32")  # a sample for each place
    holed[0].reshape(30, 30)[np.arange(30), np.arange(30)] = np.nan
    holed[1].reshape(30, 30)[np.arange(30), np.arange(30)] = np.inf
    holed = holed.reshape(60, 6, 5)
    expected = collator(list(holed), **calls)
    traced = jax.jit(lambda x: collator([x], **calls))
    for x, batch in zip(holed, expected, strict=True):
        made = collator([torch.from_numpy(x).requires_grad_()], **calls)
        np.testing.assert_allclose(made.detach().numpy()[0], batch, rtol=0, atol=1e-3)
        np.testing.assert_allclose(traced(x)[0], batch, rtol=0, atol=1e-3)
    # reached[i, j]: the result at j depends on the input at i.
    reached = np.isnan(expected[:30]).reshape(30, -1)
    x = torch.from_numpy(np.zeros((6, 5), np.float32)).requires_grad_()
    result = collator([x], **calls)
    for j in range(0, result.numel(), 3):
        direction = torch.zeros(result.numel())
        direction[j] = np.nan
        direction = direction.reshape(result.shape)
        gradient = torch.autograd.grad(result, x, direction, retain_graph=True)[0]
        np.testing.assert_array_equal(np.isnan(gradient.numpy()).ravel(), reached[:, j])


def test_nan_stays_in_the_gradients_of_its_taps_in_compiled_functions():
    torch, jax = pytest.importorskip("torch"), pytest.importorskip("jax")
    collator = Collator("hw->bhw", h=4, w=9, resize="bicubic", fit="pad", fill=2)
    x = photo((9, 8), "float32")
    batch = collator([x])
    direction = np.zeros_like(batch)
    direction[0, 2, 4] = np.nan
    holed = torch.from_numpy(x).requires_grad_()
    (collator([holed]) * torch.from_numpy(direction)).sum().backward()
    expected = np.isnan(holed.grad.numpy())
    assert 0 < expected.sum() < expected.size
    gradient = jax.jit(jax.grad(lambda x: (collator([x]) * direction).sum()))(x)
    np.testing.assert_array_equal(np.isnan(gradient), expected)
    compiled = torch.from_numpy(x).requires_grad_()
    made = torch.compile(lambda x: collator([x]), backend="aot_eager", fullgraph=True)(compiled)
    (made * torch.from_numpy(direction)).sum().backward()
    np.testing.assert_array_equal(np.isnan(compiled.grad.numpy()), expected)


def test_dask_arrays_are_not_resized():
    dask = pytest.importorskip("dask.array")
    x = dask.from_array(photo((20, 30, 3)))
    with pytest.raises(ArgumentError, match="compute the samples first"):
        collate([x], "hwc->bchw", h=8, w=8, resize="area")


def test_a_collator_with_a_filter_is_compared_pickled_and_shown():
    keywords = {"h": 8, "w": 9, "resize": "bicubic", "fit": "pad", "pad_before": {"h": 1}}
    collator = Collator("hwc->bchw", antialias=False, **keywords)
    assert collator == pickle.loads(pickle.dumps(collator))
    assert collator != Collator("hwc->bchw", **keywords)
    assert eval(repr(collator), {"Collator": Collator}) == collator
    plan = collator.plan([photo((6, 18, 3))])
    assert "resize    resize='bicubic', antialias=False, fit='pad'" in str(plan)


def held():
    gc.collect()
    return buffers.stats()["held"]


@pytest.mark.budget(1)
@pytest.mark.parametrize(
    "call", [{"crop": {"h": [9, 8]}}, {"flip": "w"}, {"crop": {"h": 9}, "offset": {"h": 0}}]
)
def test_the_weights_of_crops_are_not_kept(call):
    samples = [photo((40, 50, 3)), photo((33, 61, 3))]
    collator = Collator("hwc->bchw", h=16, w=20, resize="bilinear")
    before = held()
    for size in range(16, 24):
        collator([x[size:] for x in samples], **call)
    assert held() == before


def test_weights_that_are_kept_are_counted_bounded_and_freed(monkeypatch):
    monkeypatch.setattr(caching, "counted", type(caching.counted)())
    monkeypatch.setattr(caching, "counted_bytes", 0)
    monkeypatch.setattr(caching, "MAX_BYTES", 4 << 20)
    before = held()
    samples = [photo((n, 2 * n)) for n in range(200, 216)]
    collators = [Collator("hw->bhw", h=n, w=n, resize="lanczos") for n in range(30, 70)]
    for collator in collators:
        for batch in (samples, samples[::-1], samples):  # the weights of the last batch only
            collator(batch)
    kept = [p.last_run[None].nbytes for c in collators for p in c._programs.values() if p.last_run]
    assert 4 < len(kept) < len(collators)
    assert sum(kept) < caching.counted_bytes <= 4 << 20
    assert sum(kept) <= held() - before < 1.5 * sum(kept)
    buffers.clear()
    assert held() <= before
    assert caching.counted_bytes < 2 << 20


def test_a_warm_call_allocates_nothing():
    photos = [photo((80, 90, 3)) for _ in range(4)]
    collator = Collator("hwc->bchw", h=32, w=32, resize="bilinear", dtype="float32")
    out = collator(photos)
    crops = {"crop": {"h": [40, 50, 60, 70]}, "offset": {"h": 3}}
    for _ in range(3):
        collator(photos, out=out, **crops)
    before = layoutkit.buffers.stats()["misses"]
    for _ in range(3):
        collator(photos, out=out, **crops)
    assert layoutkit.buffers.stats()["misses"] == before


# ---- placements --------------------------------------------------------------------------


WHOLE = (0, 0, 100, 100)


@pytest.mark.parametrize(
    ("options", "call", "expected"),
    [
        ({}, {}, Placement((0.5, 0.25), 0.0, 0.0, WHOLE)),
        ({"fit": "pad", "fill": 0}, {}, Placement((0.25, 0.25), 25.0, 0.0, WHOLE)),
        (
            {"fit": "pad", "pad_before": {"h": 0}},
            {},
            Placement((0.25, 0.25), 0.0, 0.0, WHOLE),
        ),
        ({"fit": "cover"}, {}, Placement((0.5, 0.5), 0.0, -50.0, WHOLE)),
        ({"short_side": 150}, {}, Placement((0.75, 0.75), -25.0, -100.0, WHOLE)),
        (
            {},
            {"crop": {"w": 200}, "offset": {"w": 10}},
            Placement((0.5, 0.5), 0.0, -5.0, WHOLE),
        ),
    ],
)
def test_points_of_samples_are_mapped_to_results(options, call, expected):
    collator = Collator("hwc->bchw", h=100, w=100, resize="bilinear", **options)
    placement = collator.place([(200, 400, 3)], **call)[0]
    assert placement == expected
    np.testing.assert_allclose(placement.to_image(placement.to_fitted([[30, 20]])), [[30, 20]])
    # The values of a ramp are positions in the image, which can be read off the result.
    y, x = np.mgrid[:200, :400].astype(np.float32)
    for ramp, axis in ((y, 0), (x, 1)):
        made = collator([ramp[..., None]], **call)[0, 0]
        at = placement.to_image([[50.5, 40.5]])[0][1 - axis]
        assert made[40, 50] == pytest.approx(at - 0.5, abs=0.51)


PLACED = [
    {}, {"fit": "pad", "center": "floor"}, {"fit": "cover"}, {"short_side": 50}, {"short_side": 90},
]  # fmt: skip


@pytest.mark.parametrize("options", PLACED)
@pytest.mark.parametrize("flip", ["h", "w", {"h": True, "w": True}, {"w": False}, "c"])
@pytest.mark.parametrize("place", ["Collator", "call", "call in place of the Collator's"])
def test_boxes_follow_flips(flip, options, place):
    """Find a box in the result, where its placement says."""
    box = [50, 40, 61, 53]
    image = np.zeros((101, 140, 2), np.float32)
    image[box[1] : box[3], box[0] : box[2]] = 1
    own = {"Collator": flip, "call": None}.get(place, {"h": True, "w": "random"})
    call = {} if place == "Collator" else {"flip": flip}
    collator = Collator(
        "hwc->bchw", h=64, w=60, resize="bilinear", fill=0, flip=own, antialias=False, **options
    )
    where = collator.place([image.shape], **call)[0]
    rows, columns = np.nonzero(collator([image], **call)[0, 0] > 0.5)
    found = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
    np.testing.assert_allclose(where.to_fitted(box), found, rtol=0, atol=0.75)
    np.testing.assert_allclose(where.to_image(where.to_fitted(box)), box, atol=1e-9)
    np.testing.assert_allclose(where.to_image(where.to_fitted([50, 40])), [50, 40], atol=1e-9)
    is_flipped = {"h": "h" in str(flip), "w": "w" in str(flip) and flip != {"w": False}}
    assert where.flip == tuple(is_flipped.values())


# ---- memory ------------------------------------------------------------------------------


@pytest.mark.skipif(bool(why_not()), reason=str(why_not()))
@pytest.mark.budget(6)
@pytest.mark.parametrize("at_end", [True, False])
@pytest.mark.parametrize("pattern", ["hwc->bchw", "chw->bhwc", "wch->bchw"])
@pytest.mark.parametrize("size", [(5, 3), (16, 31), (40, 33)])
def test_nothing_beside_samples_is_read(at_end, pattern, size):
    left = pattern.partition("-")[0]
    shape = [{"h": 23, "w": 17, "c": 3}[name] for name in left]
    values = photo(shape)
    strides = np.empty(shape, np.uint8).strides
    room, x = guarded(tuple(shape), "u1", strides, at_end=at_end)
    x[...] = values
    room.seal()
    for crop in (None, {"h": 7, "w": 5}):
        for name in ("bilinear", "lanczos"):
            keywords = {"h": size[0], "w": size[1], "resize": name}
            for offset in ({"h": 0, "w": 0}, {"h": 16, "w": 12}) if crop else (None,):
                made = collate([x, x], pattern, crop=crop, offset=offset, **keywords)
                again = collate([values], pattern, crop=crop, offset=offset, **keywords)
                assert_same(made[1:], again)


ON_ANOTHER = """
import sys
from itertools import product
import numpy as np
from layoutkit import collate
rng = np.random.default_rng(0)
images = [rng.integers(0, 256, (h, 45, 3), dtype=np.uint8) for h in (31, 60)]
made = [collate(images, "hwc->bchw", h=40, w=23, resize=name, dtype="float32")
        for name in ("bilinear", "lanczos", "area")]
np.save(sys.argv[1], made)
for channels, antialias in product((1, 3, 4), (True, False)):
    samples = [*rng.integers(0, 256, (3, 38, 194, channels), dtype=np.uint8)]
    halves = {"h": 19, "w": 97, "resize": "bilinear", "antialias": antialias}
    floats = collate(samples, "hwc->bhwc", dtype="float32", **halves)
    assert (collate(samples, "hwc->bhwc", **halves) == np.rint(floats)).all()
"""


@pytest.mark.budget(0)
@pytest.mark.parametrize("cpu", ["sse2", "avx2"])
def test_other_instruction_sets(cpu, tmp_path):
    if lacking(cpu):
        pytest.skip(f"this CPU has no {cpu}")
    results = []
    for name, variables in (("here", {}), ("there", named(cpu))):
        path = tmp_path / f"{name}.npy"
        code = ON_ANOTHER.replace("sys.argv[1]", repr(str(path)))
        python(code, **variables)
        results.append(np.load(path))
    np.testing.assert_allclose(*results, rtol=0, atol=255 * 1e-6)


# ---- errors ------------------------------------------------------------------------------

SIZES = {"h": 8, "w": 8}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"resize": "bilinar", **SIZES}, 'give resize="bilinear"'),
        ({"resize": 3, **SIZES}, "is not one of nearest"),
        ({"resize": "lanczos", "antialias": False, **SIZES}, "with antialias only"),
        ({"resize": "area", "antialias": 1, **SIZES}, "antialias=1"),
        ({"resize": "area", "fit": "crop", **SIZES}, "fit is 'crop'"),
        ({"resize": "area", "fit": "pad", "short_side": 9, **SIZES}, "remove one"),
        ({"resize": "area", "short_side": 0, **SIZES}, "short_side=0"),
        ({"resize": "area", "pad_before": {"h": 1}, **SIZES}, 'applies to fit="pad"'),
        ({"resize": "area", "fit": "pad", "pad_before": {"h": -1}, **SIZES}, "whole numbers"),
        ({"resize": "area", "fit": "pad", "pad_before": 3, **SIZES}, "whole numbers"),
        ({"resize": "area"}, "without a size"),
        ({"resize": "area", "c": 2, **SIZES}, "channels are not resized"),
        ({"fit": "pad", **SIZES}, "needs a filter"),
        ({"short_side": 9, **SIZES}, "needs a filter"),
        ({"antialias": False, **SIZES}, "needs a filter"),
        ({"pad_before": {"h": 1}, **SIZES}, "needs a filter"),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises(ArgumentError, match=message):
        Collator("hwc->bchw", **options)


@pytest.mark.parametrize(
    ("options", "call", "error", "message"),
    [
        ({}, {"crop": {"h": 0}}, ShapeError, "sample 0 has a crop of 0 along h"),
        ({}, {"crop": {"h": [9, 21]}}, ShapeError, "sample 1 has size 20 along h, but its crop"),
        ({}, {"crop": {"h": 9}, "offset": {"h": 12}}, ShapeError, "from 12 to 21; .* or fill=0"),
        ({}, {"crop": {"c": 1}}, ArgumentError, "along 'c'; the axes are h, w"),
        ({}, {"crop": 5}, ArgumentError, "it must be a dict"),
        ({}, {"crop": {"h": [1, 2, 3]}}, ShapeError, "3 values for 2 samples"),
        ({}, {"crop": {"h": 1.5}}, ArgumentError, "a whole number"),
        ({"short_side": 7}, {}, ShapeError, "a short_side of at least 8, or fill=0"),
        ({"fit": "pad", "pad_before": {"w": 4}}, {}, ShapeError, "w=4, but .* give at most"),
        ({"fit": "pad", "pad_before": {"c": 4}}, {}, ArgumentError, "the resized axes are h, w"),
        ({"fill": 0.5}, {}, DtypeError, "fill=0.5"),
        ({"dtype": "uint8", "scale": 2}, {}, DtypeError, "float32 to uint8"),
    ],
)
def test_wrong_calls(options, call, error, message):
    collator = Collator("hwc->bchw", h=8, w=8, resize="bilinear", **options)
    samples = [np.zeros((20, 10, 3), np.uint8), np.zeros((20, 30, 3), np.uint8)]
    out = np.full((2, 3, 8, 8), 77, options.get("dtype", "uint8"))
    with pytest.raises(error, match=message):
        collator(samples, out=out, **call)
    assert (out == 77).all()


LARGE = [2**31, 2**32, 2**55, 2**61, 2**62 - 1, 2**63, 2**64, 10**30]
LIMITED = {
    "short side": lambda x, n: collate([x], "hw->bhw", h=4, w=4, resize="area", short_side=n),
    "height": lambda x, n: collate([x], "hw->bhw", h=n, w=4, resize="nearest"),
    "crop": lambda x, n: collate([x], "hw->bhw", h=4, resize="area", crop={"h": n}, fill=0),
    "crops": lambda x, n: collate([x], "hw->bhw", h=4, resize="area", crop={"h": [n]}, fill=0),
    "own crop": lambda x, n: Collator("hw->bhw", h=4, resize="area", crop={"h": n}, fill=0)([x]),
    "padding": lambda x, n: collate(
        [x], "hw->bhw", h=4, resize="area", fit="pad", pad_before={"h": n}
    ),
    "placement": lambda x, n: Collator("hw->bhw", h=4, w=4, resize="area").place([(n, 5)]),
    "size": lambda x, n: layoutkit.images.fit(x, (4, n)),
    "scaled": lambda x, n: layoutkit.images.fit(x, (4, 4), short_side=n),
    "placed": lambda x, n: layoutkit.images.placement((n, n), (4, 4)),
    "decoder": lambda x, n: layoutkit.images.Decoder((n, 4)),
    "reader": lambda x, n: layoutkit.images.Reader((n, 4)),
}
EXTREME = {
    "window": lambda x, n: collate([x], "hw->bhw", h=n, fill=0),
    "inside": lambda x, n: collate([x], "hw->bhw", h=n),
    "canvas": lambda x, n: convert(x, "hw->hw", pad_to={"h": n}),
    "before": lambda x, n: convert(x, "hw->hw", pad_to={"h": n}, pad_before={"h": 1}),
    "offset": lambda x, n: collate([x], "hw->bhw", h=4, offset={"h": n}, fill=0),
    "scaled offset": lambda x, n: collate(
        [x], "hw->bhw", h=4, resize="area", offset={"h": n}, fill=0
    ),
}


@pytest.mark.parametrize("what", [*LIMITED, *EXTREME])
def test_sizes_have_a_limit(what):
    """Raise an error of the library, whatever the size; nothing is cut to 64 bits."""
    x = photo((7, 9))
    call = LIMITED.get(what) or EXTREME[what]
    for size in LARGE if what in LIMITED else [n for n in LARGE if n > 2**60]:
        with pytest.raises((ShapeError, ArgumentError)) as error:
            call(x, size)
        assert str(error.value).count(";") == 1, error.value


def test_the_largest_sizes_are_exact():
    x = photo((9, 9), "float32")
    side = 2**31 - 1
    for name in FILTERS:
        made = collate([x], "hw->bhw", h=2, w=3, resize=name, short_side=side)
        np.testing.assert_allclose(made[0], np.full((2, 3), x[4, 4]), rtol=1e-5)
    far = collate([x], "hw->bhw", h=2, w=3, resize="area", short_side=side // 9 * 9 - 9, fill=0)
    np.testing.assert_allclose(far[0], np.full((2, 3), x[4, 4]), rtol=1e-5)
    with pytest.raises(ShapeError, match=r"sample 0 has size 2761.* along w after short_side="):
        collate([x[:7]], "hw->bhw", h=2, w=3, resize="area", short_side=side)


def test_wrong_samples():
    collator = Collator("hwc->bchw", h=8, w=8, resize="bilinear")
    with pytest.raises(ShapeError, match="sample 1 has size 2 along c"):
        collator([np.zeros((9, 9, 3), np.uint8), np.zeros((9, 9, 2), np.uint8)])
    with pytest.raises(ShapeError, match="sample 0 has size 0 along h"):
        collator([np.zeros((0, 9, 3), np.uint8)])
    for dtype in ("int64", "complex64", "bool", "datetime64[s]"):
        with pytest.raises(DtypeError, match=r'resize="bilinear" does not average.*"nearest"'):
            collator([np.zeros((9, 9, 3), dtype)])
    with pytest.raises(ArgumentError, match=r"crop=.* give resize="):
        Collator("hwc->bchw", h=8, w=8)([np.zeros((9, 9, 3), np.uint8)], crop={"h": 4})
    x = np.zeros((1, 3, 8, 8), np.uint8)
    with pytest.raises(ArgumentError, match="shares memory with sample 0"):
        collator([x[0].transpose(1, 2, 0)], out=x)
