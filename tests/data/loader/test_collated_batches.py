"""Batches of results of any size: `collate=`, and random windows and flips."""

import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from layoutkit import Collator, DataError, collate
from layoutkit.data import open_index, sampled_batcher
from layoutkit.data.loader import processing
from layoutkit.data.loader.collate import CollateStep

N = 23
WINDOW = {"pattern": "hwc->bchw", "h": 5, "w": 6}
RANDOM = {"offset": "random", "flip": "random"}
RESIZED = {**WINDOW, "resize": "bilinear", "dtype": "float32"}
CROPPED = {"collate": RESIZED, "offset": None, "flip": None, "crop": "random"}


def image(number, height, width):
    """Return an image whose pixels contain their row, their column and the image's number."""
    made = np.empty((height, width, 3), np.uint8)
    made[..., 0] = np.arange(height)[:, None]
    made[..., 1] = np.arange(width)
    made[..., 2] = number
    return made


def sizes(number):
    return 5 + number % 7, 6 + number * 3 % 5


def of_record(record):
    return image(int(record.array), *sizes(int(record.array)))


def batcher(source=None, *, get=of_record, **arguments):
    """Return a Batcher whose Collator has the keywords `collate`, offset, flip and crop."""
    given = {"batch_size": 4, "collate": WINDOW, "num_workers": 0, **RANDOM, **arguments}
    draws = {name: given.pop(name, None) for name in ("offset", "flip", "crop")}
    if isinstance(given["collate"], dict):
        given["collate"] = Collator(**given["collate"], **draws)
    return sampled_batcher(np.arange(N) if source is None else source, get=get, **given)


def windows_of(batch, layout="bchw"):
    """Return, by number of the image, the offset of its window, and True if it is flipped."""
    found = {}
    for planes in batch.input.forward_get("bchw").astype(int):
        rows, columns, numbers = planes
        assert (np.diff(rows, axis=0) == 1).all()
        assert (np.abs(np.diff(columns, axis=1)) == 1).all()
        found[numbers[0, 0]] = (rows[0, 0], columns.min(), bool(columns[0, 0] > columns[0, 1]))
    return found


def drawn(batches):
    found = {}
    for batch in batches:
        found.update(windows_of(batch))
    return found


def epoch_of(*args, **arguments):
    with batcher(*args, **arguments) as batches:
        return drawn(batches)


# ---- random windows ----------------------------------------------------------------------


def test_the_axes_of_a_window_are_drawn_independently():
    """Row and column offsets with equal ranges differ."""
    found = epoch_of(get=lambda record: image(int(record.array), 15, 16))
    rows, columns, _ = zip(*found.values(), strict=True)
    assert len(found) == N
    assert sum(row == column for row, column in zip(rows, columns, strict=True)) < N / 2


def test_windows_lie_inside_and_are_those_of_collate():
    with batcher() as batches:
        for batch in batches:
            assert repr(batch.input) == f"ImageView(bchw ({batch.count}, 3, 5, 6) uint8)"
            samples = [of_record(record) for record in batch.item]
            corners = windows_of(batch)
            said = [corners[int(record.array)] for record in batch.item]
            wanted = collate(
                samples, "hwc->bchw", h=5, w=6,
                offset={"h": [y for y, _, _ in said], "w": [x for _, x, _ in said]},
                flip={"w": [turned for _, _, turned in said]},
            )  # fmt: skip
            np.testing.assert_array_equal(batch.input.input, wanted)


def test_neither_batches_nor_orders_nor_partitions_make_a_difference():
    whole = epoch_of(seed=5)
    assert len(whole) == N
    assert epoch_of(seed=5, batch_size=7, sampler="shuffle") == whole
    assert epoch_of(seed=5, sampler="even_shuffled_sequential").items() <= whole.items()
    for partitions in (2, 5):
        parts = [
            open_index(np.arange(N), partition=p, partitions=partitions) for p in range(partitions)
        ]
        union = {}
        for part in parts:
            union |= epoch_of(part, seed=5)
        assert union == whole


def test_seeds_and_epochs_draw_anew():
    with batcher(seed=1) as batches:
        first, second = drawn(batches), drawn(batches)
        batches.set_epoch(0)
        assert drawn(batches) == first
    assert len({str(each) for each in (first, second, epoch_of(seed=2))}) == 3
    with batcher(seed=1, epoch=1) as batches:
        assert drawn(batches) == second


def test_every_window_comes_equally_often_and_so_does_every_flip():
    count = 3000
    source = np.broadcast_to(image(0, 8, 8), (count, 8, 8, 3))
    with batcher(source, get=None, batch_size=count) as b:
        (batch,) = b
    rows, columns = batch.input.input[:, 0, 0, 0], batch.input.input[:, 1].min((1, 2))
    turned = batch.input.input[:, 1, 0, 0] > batch.input.input[:, 1, 0, 1]
    seen = Counter(zip(rows.tolist(), columns.tolist(), turned.tolist(), strict=True))
    assert set(seen) == {(y, x, t) for y in range(4) for x in range(3) for t in (False, True)}
    expected = count / len(seen)
    chi_square = sum((n - expected) ** 2 / expected for n in seen.values())
    assert chi_square < 49.7  # with 23 degrees of freedom, larger in one of a thousand cases


def test_smaller_results_lie_anywhere_in_their_windows():
    count = 400
    source = np.broadcast_to(image(7, 3, 6), (count, 3, 6, 3))
    with batcher(
        source, get=None, batch_size=count, collate={**WINDOW, "fill": 255}, flip=None
    ) as batches:
        (batch,) = batches
    planes = batch.input.input
    inside = planes[:, 2, :, 0] == 7
    assert set(inside.argmax(1)) == {0, 1, 2}  # the whole image is in the window, at any offset
    assert (inside.sum(1) == 3).all()
    assert (planes[:, :, ~inside[0]][0] == 255).all()


def test_axes_one_by_one():
    at_top = {"offset": {"h": 0, "w": "random"}, "flip": {"h": "random", "w": True}}
    with batcher(**at_top) as batches:
        planes = np.concatenate([batch.input.input for batch in batches])
    down = planes[:, 0, 0, 0] == 0
    assert (np.where(down, planes[:, 0, 0, 0], planes[:, 0, -1, 0]) == 0).all()
    assert {True, False} == {*down.tolist()}
    assert (planes[:, 1, 0, 0] > planes[:, 1, 0, 1]).all()
    assert set(epoch_of(flip="w").values()) != set(epoch_of(flip=None).values())
    # Offsets depend on the axis' name, and not on arguments for another axis.
    random = {number: x for number, (_, x, _) in epoch_of(flip=None).items()}
    fixed = {
        number: x for number, (_, x, _) in epoch_of(offset=at_top["offset"], flip=None).items()
    }
    assert fixed == random


def test_part_files_draw_by_file_and_line(tmp_path):
    for file in range(4):
        (tmp_path / f"part-{file}").write_text("".join(f"{file * 8 + k}\n" for k in range(8)))

    def get(record):
        with Path(record.url).open("rb") as file:
            file.seek(record.offset)
            return image(int(file.read(record.length)), 40, 40)

    words = {"get": get, "sampler": "part-linear"}
    whole = epoch_of(open_index(tmp_path, kind="parts"), **words)
    assert len({tuple(whole[file * 8] for file in range(4))}) == 1
    assert len({whole[file * 8] for file in range(4)}) > 1
    union = {}
    for part in range(3):
        union |= epoch_of(open_index(tmp_path, kind="parts", partition=part, partitions=3), **words)
    assert union == whole
    assert (
        epoch_of(
            open_index(tmp_path, kind="parts"),
            **{**words, "sampler": "part-permutation-permutation"},
        )
        == whole
    )


# ---- dropped records ---------------------------------------------------------------------


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_record_that_fails_shifts_nothing(num_workers):
    def get(record):
        if record.position in (2, 8):
            raise OSError("gone")
        return None if record.position == 5 else of_record(record)

    whole = epoch_of()
    with batcher(get=get, num_workers=num_workers) as batches:
        found = list(batches)
    assert drawn(found) == {n: w for n, w in whole.items() if n not in (2, 5, 8)}
    assert [batch.count for batch in found[:3]] == [3, 3, 3]
    assert [place for batch in found for _, place, _ in batch.dropped] == [2, 5, 8]
    with batcher(get=get, refill=True) as batches:
        found = list(batches)
    assert drawn(found) == {n: w for n, w in whole.items() if n not in (2, 5, 8)}
    assert {batch.count for batch in found} == {4}


ODD = {
    1: (np.zeros((4, 9, 3), np.uint8), "ShapeError", "size 4 along h, but its window of 5"),
    3: (np.zeros((9, 9, 3), np.float32), "DtypeError", "dtype float32, but most .* uint8"),
    6: (np.zeros((9, 9), np.uint8), "ShapeError", "rank 2"),
    9: (np.zeros((9, 9, 4), np.uint8), "ShapeError", r"sizes \(any, any, 4\) in hwc"),
    11: (np.array(["a"], object), "DtypeError", "object"),
}


@pytest.mark.parametrize("num_workers", [0, 2])
def test_results_that_no_window_can_be_cut_from(num_workers):
    get = lambda r: ODD[r.position][0] if r.position in ODD else of_record(r)
    with batcher(get=get, num_workers=num_workers) as batches:
        found = list(batches)
    dropped = [entry for batch in found for entry in batch.dropped]
    assert [place for _, place, _ in dropped] == [*ODD]
    for (_, place, error), (_, name, words) in zip(dropped, ODD.values(), strict=True):
        assert type(error).__name__ == name, place
        with pytest.raises(type(error), match=words):
            raise error
    assert drawn(found) == {n: w for n, w in epoch_of().items() if n not in ODD}


def test_an_odd_one_at_the_start_of_a_batch_leaves_the_others_in():
    three = {**WINDOW, "mean": (1, 2, 3)}
    gray = np.zeros((9, 9, 1), np.uint8)
    get = lambda r: gray if r.position == 0 else of_record(r)
    with batcher(get=get, collate=three) as batches:
        batch = next(iter(batches))
    assert batch.index.tolist() == [1, 2, 3]
    assert "has sizes (any, any, 1) in hwc" in str(batch.dropped[0][2])


def test_on_error_raise_names_the_record_and_goes_on_from_there():
    get = lambda r: ODD[1][0] if r.position == 5 else of_record(r)
    with batcher(get=get, on_error="raise") as batches:
        loop = iter(batches)
        next(loop)
        with pytest.raises(DataError, match=r"record 5: ShapeError: the result has size 4 along h"):
            next(loop)
        assert batches.state_dict()["position"] == 4


def test_nothing_but_odd_ones_is_an_error():
    words = r"none of the first .* its window of 5"
    none = batcher(get=lambda r: np.zeros((2, 2, 3), np.uint8))
    with none as batches, pytest.raises(DataError, match=words):
        list(batches)


# ---- input and output --------------------------------------------------------------------


def test_memory_of_results_may_be_used_again():
    buffer = np.empty((6, 8, 3), np.uint8)

    def get(record):
        buffer[...] = record.position
        return buffer

    with batcher(get=get, num_workers=1) as batches:
        for batch in batches:
            rows = [record.position for record in batch.item]
            assert batch.input.input[:, 0, 0, 0].tolist() == rows


def test_rows_of_an_array_are_read_where_they_lie(tmp_path):
    photos = np.stack([image(n, 8, 9) for n in range(N)])
    np.save(tmp_path / "x.npy", photos)
    found = []
    for source in (photos, tmp_path / "x.npy", {"x": photos, "y": np.arange(N) % 3}):
        with batcher(source, get=None) as batches:
            found.append([batch.input.input for batch in batches])
            for view in found[-1]:
                view[...] = 0
        with batcher(source, get=None) as batches:
            found[-1] = np.concatenate([batch.input.input for batch in batches])
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])
    with batcher(photos, get=lambda record: record.array) as batches:
        one_by_one = np.concatenate([batch.input.input for batch in batches])
    np.testing.assert_array_equal(found[0], one_by_one)
    part = open_index(photos, partition=1, partitions=2)
    spaced = {**WINDOW, "pattern": "h w c -> b c h w"}
    with batcher(part, get=None, collate=spaced) as batches:
        half = np.concatenate([batch.input.input for batch in batches])
    np.testing.assert_array_equal(found[0][1::2], half)
    small = np.zeros((20, 4, 9, 3), np.uint8)
    words = r"none of the first 16 .* its window of 5"
    with batcher(small, get=None) as batches, pytest.raises(DataError, match=words):
        next(iter(batches))
    with batcher(photos, get=None, processor=lambda x, out: x[1:]) as batches:
        assert next(iter(batches)).input.input[:, 0, 0, 0].min() >= 1
    assert photos[:, :, :, 2].tolist() == [[[n] * 9] * 8 for n in range(N)]


@pytest.mark.parametrize(
    ("pattern", "layout", "shape"),
    [
        ("hwc->chwb", "chwb", (3, 5, 6, 4)),
        ("hwc->bf", "b(hwc)", (4, 90)),
    ],
)
def test_batches_in_any_layout(pattern, layout, shape):
    with batcher(collate={**WINDOW, "pattern": pattern}) as batches:
        found = list(batches)
    assert found[0].input.input.shape == shape
    assert str(found[0].input.layout) == layout
    plain = list(batcher())
    for one, other in zip(found, plain, strict=True):
        if layout == "chwb":
            np.testing.assert_array_equal(one.input.forward_get("bchw"), other.input.input)


@pytest.mark.parametrize("resize", [None, "bilinear"])
def test_batches_lie_in_the_order_of_memory(resize):
    """Of results, and of rows of one array; also with several Collators."""
    plain = {**WINDOW, "resize": resize}
    last = {**plain, "memory": "bhwc"}
    images = np.stack([image(n, 9, 10) for n in range(N)])
    for source, get in [(np.arange(N), of_record), (images, None)]:
        given = {"offset": None, "flip": "random", "num_workers": 2}
        with (
            batcher(source, get=get, collate=last, **given) as laid,
            batcher(source, get=get, collate=plain, **given) as batches,
        ):
            for found, wanted in zip(laid, batches, strict=True):
                x = found.input.forward_get("bchw")
                np.testing.assert_array_equal(x, wanted.input.forward_get("bchw"))
                assert x.transpose(0, 2, 3, 1).flags.c_contiguous


def test_targets_and_several_sources_and_a_formula():
    normalized = {**WINDOW, "dtype": "float32", "scale": 1 / 255}
    source = {"x": np.arange(N), "y": [*"abc"] * 7 + ["a", "b"]}
    with batcher(source, collate=normalized) as batches:
        batch = next(iter(batches))
    assert (batch.input.dtype, batch.label) == (np.float32, ["a", "b", "c", "a"])

    def pair(one, two, out):
        return one, int(two)

    numbers = np.arange(N) * 2
    with batcher([np.arange(N), numbers], get=[of_record, None], processor=pair) as batches:
        assert next(iter(batches)).target.input.tolist() == [0, 2, 4, 6]


def test_channels_make_results_alike():
    def get(record):
        photo = of_record(record)
        return np.dstack([photo, photo[..., :1]]) if record.position % 2 else photo

    with batcher(get=get, collate={**WINDOW, "channels": (0, 1, 2)}) as batches:
        assert drawn(batches) == epoch_of()


@pytest.mark.parametrize("waits", [True, False])
def test_a_consumer_that_waits_makes_the_batch(waits, monkeypatch):
    makers = []
    made = threading.Event()
    make = CollateStep.batch

    def batch(self, *args):
        makers.append(threading.current_thread().name)
        made.set()
        return make(self, *args)

    def get(record):
        time.sleep(0.02)
        return np.zeros((8, 8, 3), np.uint8)

    monkeypatch.setattr(CollateStep, "batch", batch)
    with batcher(get=get, num_workers=1, batch_size=4, prefetch=2) as batches:
        steps = iter(batches)
        next(steps)
        if not waits:  # the second batch is complete before it is requested
            made.clear()
            assert made.wait(5)
        next(steps)
    assert makers[0] == "MainThread"  # nothing is ready at the start
    assert (makers[1] == "MainThread") == waits


@pytest.mark.parametrize(
    ("workers", "own", "expected"),
    [(0, None, None), (1, None, 7), (7, None, 1), (9, None, 1), (4, 3, 3)],
)
def test_workers_leave_threads_for_the_collator(workers, own, expected, monkeypatch):
    monkeypatch.setattr(processing, "get_num_threads", lambda: 8)
    threads = set()
    make = Collator.__call__

    def called(self, *args, **keywords):
        threads.add(self.windows.convert.threads)
        return make(self, *args, **keywords)

    monkeypatch.setattr(Collator, "__call__", called)
    with batcher(collate={**WINDOW, "threads": own}, num_workers=workers) as batches:
        assert len(list(batches)) == 6
    assert threads == {expected}


def test_images_are_decoded_by_threads(tmp_path):
    pytest.importorskip("PIL.Image")
    from layoutkit.images import read
    from tests.helpers.photographs import noise, save

    for number in range(5):
        save(tmp_path / f"{number}.png", noise(number, 20 + number, 30 - number, 3))
    window = Collator("hwc->bchw", h=8, w=12)
    words = {"batch_size": 5, "collate": window}
    with sampled_batcher(tmp_path, processor=lambda x, out: read(x), **words) as batches:
        (batch,) = batches
    photos = [read(record.url) for record in batch.item]
    np.testing.assert_array_equal(batch.input.input, collate(photos, "hwc->bchw", h=8, w=12))
    with sampled_batcher(tmp_path, size=(16, 16), **words) as batches:
        assert next(iter(batches)).input.input.shape == (5, 3, 8, 12)
    with sampled_batcher(tmp_path, **words) as batches:
        made = next(iter(batches)).input.input
    np.testing.assert_array_equal(made, collate(photos, "hwc->bchw", h=8, w=12))


# ---- results that are resized ------------------------------------------------------------


def crops_of(**arguments):
    """Return the resized crops of an epoch, in the order of the images' numbers."""
    with batcher(**{**CROPPED, "get": large, **arguments}) as batches:
        crops = np.concatenate([batch.input.input for batch in batches])
    assert len(crops) == N
    return crops[crops[:, 2, 0, 0].argsort()]


def large(record):
    return image(int(record.array), 60 + int(record.array), 90)


def test_results_are_resized_whole():
    with batcher(**{**CROPPED, "crop": None, "get": large}) as batches:
        for batch in batches:
            made = batch.input.forward_get("bchw")
            samples = [large(record) for record in batch.item]
            expected = collate(samples, "hwc->bchw", h=5, w=6, resize="bilinear", dtype="float32")
            np.testing.assert_array_equal(made, expected)


def test_results_smaller_than_the_window_are_enlarged():
    with batcher(**{**CROPPED, "get": lambda record: image(int(record.array), 2, 3)}) as batches:
        assert sum(batch.count for batch in batches) == N


def test_random_crops_depend_on_seed_epoch_and_position_only():
    crops = crops_of(seed=3)
    for same in ({"batch_size": 7, "num_workers": 2}, {"sampler": "shuffle"}):
        np.testing.assert_allclose(crops_of(seed=3, **same), crops, atol=1e-4)
    for other in ({"seed": 4}, {"seed": 3, "epoch": 1}):
        assert not np.allclose(crops_of(**other), crops, atol=0.1)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"collate": print}, "give a Collator"),
        ({"collate": Collator("bhwc->bchw")}, "remove b on the left"),
        ({"collate": Collator("hwc->(bh)wc", h=4)}, "including b"),
        ({"collate": Collator("h w c -> batch h w c")}, "has one letter per axis"),
        ({"collate": Collator("...c->b...c")}, "has one letter per axis"),
        ({"input_dims": (5, 6, 3)}, "either collate or input_dims, not both"),
        ({"input_dims": len}, "either collate or input_dims, not both"),
        ({"dtype": "float32"}, "collate or dtype, .* give it to the Collator"),
        ({"convert": 3}, "collate or convert"),
        ({"layout": "bhwc"}, "layout='bhwc', but batches .* are bchw"),
        ({"random_crop": True}, r'give collate=Collator\(.*, offset="random"\)'),
    ],
)
def test_what_cannot_be_is_said_at_once(options, words):
    with pytest.raises(DataError, match=words):
        batcher(**options)


def test_a_reader_as_the_processor_decodes_small_images_for_the_collator(tmp_path):
    pytest.importorskip("PIL.Image")
    from layoutkit.images import Reader
    from tests.helpers.photographs import encoded, noise

    for number in range(4):
        data = encoded(noise(number, 64 + 8 * number, 80, 3), "JPEG")
        (tmp_path / f"{number}.jpg").write_bytes(data)
    read = Reader((16, 20))
    views = Collator("hwc->bchw", h=16, w=20, resize="bilinear", dtype="float32")
    for workers in 0, 2:
        with sampled_batcher(
            tmp_path, batch_size=4, collate=views, processor=read, num_workers=workers
        ) as batches:
            (batch,) = batches
            images = [read(path.read_bytes()) for path in sorted(tmp_path.iterdir())]
            assert [image.shape[:2] for image in images] == [(32, 40), (36, 40), (40, 40), (44, 40)]
            np.testing.assert_array_equal(batch.input.forward_get("bchw"), views(images))


@pytest.mark.parametrize("wrap", [lambda step: step, lambda step: [step], lambda step: {"a": step}])
def test_a_key_of_samples_is_an_error_before_the_first_batch(wrap):
    step = Collator("hwc->bchw", h=4, w=4, key="image")
    with pytest.raises(DataError, match=r"Collator with key='image'.*omit key="):
        sampled_batcher(np.zeros((4, 6, 6, 3)), batch_size=2, collate=wrap(step))
