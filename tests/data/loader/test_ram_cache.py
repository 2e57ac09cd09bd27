"""`cache="ram"`: later epochs read records from memory, and batches are the same as without."""

import multiprocessing
import os
import pickle
import signal
from pathlib import Path

import numpy as np
import pytest

from layoutkit import ArgumentError, Collator, DataError
from layoutkit.data import RamCache, open_index, sampled_batcher
from layoutkit.data.io.ram_cache import encode
from layoutkit.data.loader.kept_records import estimate_num_kept
from tests.helpers.open_files import count_open_files, lists_open_files
from tests.helpers.photographs import noise, save

COUNT = 23
SIZED = {"size": (8, 12)}
RANDOM = Collator("hwc->bchw", h=8, w=8, resize="bilinear", crop="random", flip="random")
OPTIONS = {"batch_size": 4, "sampler": "shuffle", "seed": 3}


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Write images of different sizes into folders of two labels."""
    pytest.importorskip("PIL")
    folder = tmp_path_factory.mktemp("photos")
    for number in range(COUNT):
        save(folder / "ab"[number % 2] / f"{number}.png", noise(number, 20 + number, 30, 3))
    return folder


STEPS = [
    SIZED,
    {"collate": RANDOM},
    {**SIZED, "collate": Collator("hwc->bchw", h=6, w=6, offset="random", scale=1 / 255)},
    {"collate": [RANDOM, Collator("hwc->bhwc", h=5, w=5, resize="nearest")]},
]


def arrays(batch):
    inputs = batch.input if isinstance(batch.input, tuple) else (batch.input,)
    return [np.asarray(x.input).tobytes() for x in (*inputs, batch.target)]


def read_epochs(source, epochs, **options):
    """Return the bytes of all batches of some epochs, the state after each batch, and the stats."""
    found, states, stats = [], [], []
    with sampled_batcher(source, **{**OPTIONS, **options}) as batches:
        for _ in range(epochs):
            for batch in batches:
                found.append(arrays(batch))
                states.append(batches.state_dict())
            stats.append(batches.stats())
    return found, states, stats


@pytest.mark.parametrize("workers", [0, 3])
@pytest.mark.parametrize("steps", STEPS, ids=["size", "crops", "both", "several"])
@pytest.mark.parametrize("limit", ["16 MiB", 20_000])
def test_batches_and_states_are_those_without_a_cache(photos, steps, limit, workers):
    plain = read_epochs(photos, 3, num_workers=workers, **steps)
    kept = read_epochs(photos, 3, num_workers=workers, cache="ram", cache_bytes=limit, **steps)
    assert kept[:2] == plain[:2]
    for stats in kept[2]:
        assert stats.cache_bytes <= stats.cache_limit
        assert stats.cache_records == kept[2][0].cache_records
    assert kept[2][1].cache_hits == kept[2][2].cache_hits == kept[2][0].cache_records
    if limit == "16 MiB":
        assert kept[2][0].cache_records == COUNT


@pytest.mark.parametrize("place", range(7))
def test_a_loop_resumes_with_and_without_a_cache_at_every_batch(photos, place):
    found, states, _ = read_epochs(photos, 2, **SIZED)
    for more in ({}, {"cache": "ram", "cache_bytes": 16_000}):
        with sampled_batcher(photos, **OPTIONS, **SIZED, **more) as batches:
            batches.load_state_dict(states[place])
            rest = [arrays(batch) for _ in range(2) for batch in batches]
        assert rest[: len(found) - place - 1] == found[place + 1 :]


def kept_numbers(source, limit, **options):
    """Return the numbers of the records that are not read in the second epoch."""
    numbers = []

    def get(record):
        numbers.append(record.position)
        return np.full((record.position % 7 + 1, 50), record.position)

    collate = Collator("tf->btf", t="longest")
    with sampled_batcher(
        source, get=get, collate=collate, cache="ram", cache_bytes=limit, **OPTIONS | options
    ) as batches:
        for _ in batches:
            pass
        first = len(numbers)
        for _ in batches:
            pass
        used = batches.stats().cache_bytes
    return {*range(len(source["x"]))} - {*numbers[first:]}, used


@pytest.mark.budget(1)
@pytest.mark.parametrize("count", [10, 127, 128, 129, 500])
def test_the_same_records_are_kept_in_every_run(count):
    source = {"x": np.arange(count)}
    limit = 8192 + 64 * count + 900 * count  # about half of them
    kept, used = kept_numbers(source, limit, num_workers=0)
    assert 0.25 * count <= len(kept) <= 0.8 * count
    assert used <= limit
    for more in [{"num_workers": 3}, {"seed": 9}, {"sampler": "linear"}, {"batch_size": 7}]:
        assert kept_numbers(source, limit, **more)[0] == kept
    more_kept, _ = kept_numbers(source, 2 * limit + 400 * count, num_workers=0)
    assert kept < more_kept


def test_the_number_of_kept_records_is_exact_for_records_of_one_size():
    sizes = np.full(64, 1000)
    assert estimate_num_kept(sizes, 500, 100_999) == 100
    assert estimate_num_kept(sizes, 500, 9_000) == 9
    assert estimate_num_kept(sizes, 500, 10**9) == 500
    assert estimate_num_kept(sizes[:10], 10, 10**4) == 10
    assert estimate_num_kept(np.zeros(64, np.int64), 500, 9_000) == 500


def test_records_of_different_sizes_fit():
    rng = np.random.default_rng(0)
    for _ in range(50):
        sizes = rng.lognormal(10, 0.5, 2000).astype(np.int64)
        room = int(sizes.sum() * rng.uniform(0.1, 0.9))
        number = estimate_num_kept(sizes[:128], 2000, room)
        assert 0.7 * room < sizes[:number].sum() < 1.01 * room


def test_a_function_of_the_caller_runs_in_every_epoch_on_its_own_copy(photos):
    calls = []

    def mark(image, out):
        calls.append(image[0, 0, 0])
        image[...] += 1
        return image[:4, :4]

    def read(record):
        return np.zeros((5, 5, 1), np.uint8)

    options = {"layout": "bhwc", "processor": mark, "batch_size": 4, "get": read}
    with sampled_batcher({"x": range(8)}, cache="ram", **options) as batches:
        for _ in range(3):
            for batch in batches:
                assert (batch.input.input == 1).all()
                batch.input.input[...] = 9
    assert calls == [0] * 24


def test_batches_do_not_share_the_memory_of_the_cache(photos):
    for steps in ({"collate": Collator("hwc->bhwc", h=20, w=30)}, SIZED):
        with sampled_batcher(photos, cache="ram", batch_size=1, num_workers=0, **steps) as batches:
            first = [batch.input.input.copy() for batch in batches]
            for batch in batches:
                batch.input.input[...] = 0
            for batch, image in zip(batches, first, strict=True):
                np.testing.assert_array_equal(batch.input.input, image)


@pytest.mark.parametrize("pairs", [False, True])
def test_images_that_are_not_kept_yet_are_resized_by_one_call(photos, monkeypatch, pairs):
    paths = sorted(photos.glob("*/*.png"))
    damaged = {3, 4, 20}

    class Items:
        def __len__(self):
            return COUNT

        def __getitem__(self, i):
            data = b"no image" if i in damaged else paths[i].read_bytes()
            return (data, i) if pairs else data

    calls = []
    collate = Collator.__call__
    monkeypatch.setattr(
        Collator, "__call__", lambda self, x, **o: calls.append(len(x)) or collate(self, x, **o)
    )
    found = []
    for options in ({}, {"cache": "ram", "cache_bytes": "4 MiB"}):
        calls.clear()
        with sampled_batcher(
            Items(), **SIZED, **{**OPTIONS, "batch_size": COUNT}, num_workers=0, **options
        ) as batches:
            (batch,) = batches
            found.append(arrays(batch) if pairs else batch.input.input.tobytes())
    assert found[0] == found[1]
    assert (len(calls), sum(calls)) == (1, COUNT - len(damaged))


def test_a_record_that_is_drawn_twice_is_read_once(photos):
    image = next(photos.glob("*/*.png")).read_bytes()
    reads = []

    def get(record):
        reads.append(record.position)
        return image

    source = {"x": range(300), "y": [0] * 300}  # more than are read before the first batch
    weights = [1] * 20 + [0] * 280
    with sampled_batcher(
        source, get=get, **SIZED, batch_size=50, num_workers=0, weights=weights, cache="ram"
    ) as batches:
        for _ in batches:
            pass
    assert len(reads) == len({*reads}) > 128


def test_targets_of_items_are_kept():
    class Items:
        reads = 0

        def __len__(self):
            return 6

        def __getitem__(self, number):
            Items.reads += 1
            return np.full(3, number, np.float32), number % 2

    with sampled_batcher(Items(), batch_size=3, cache="ram") as batches:
        for _ in range(3):
            pairs = [(x.input.tolist(), y.input.tolist()) for x, y in batches]
    assert pairs[0][1] == [0, 1, 0]
    assert Items.reads == 6


def test_fields_are_kept_and_a_field_in_memory_is_not(photos):
    paths = sorted(photos.glob("*/*"), key=lambda path: int(path.stem))
    boxes = np.arange(COUNT, dtype=np.float32).reshape(COUNT, 1, 1)
    fields = {"image": RANDOM, "boxes": "ragged"}
    sources = {"image": paths, "boxes": boxes}
    found = []
    for more in ({}, {"cache": "ram"}):
        with sampled_batcher(sources, collate=fields, **OPTIONS, **more) as batches:
            for _ in range(2):
                epoch = [b.input["image"].input.tobytes() for b in batches]
                numbers = [
                    b.tolist() for batch in batches.repeated(1) for b in batch.input["boxes"].data
                ]
            found.append((epoch, numbers))
            hits = batches.stats().cache_hits
    assert found[0] == found[1]
    assert hits > 0


def test_records_that_fail_are_read_again_and_dropped_in_every_epoch():
    tries = []

    def read(record):
        tries.append(record.position)
        if record.position == 3:
            raise OSError("no such record")
        return None if record.position == 4 else np.zeros(2)

    with sampled_batcher({"x": range(6)}, get=read, batch_size=6, cache="ram") as batches:
        for _ in range(3):
            [batch] = batches
            assert [(record.position, str(e)) for record, _, e in batch.dropped] == [
                (3, "no such record"),
                (4, "None"),
            ]
    assert tries.count(0) == 1
    assert tries.count(3) == tries.count(4) == 4  # three epochs, and the sample of the first


def test_data_that_cannot_be_kept_is_an_error():
    read = lambda record: (x for x in [1])
    with (
        sampled_batcher({"x": range(6)}, get=read, batch_size=6, cache="ram") as batches,
        pytest.raises(DataError, match=r"a generator cannot be pickled.*or omit cache="),
    ):
        next(iter(batches))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"cache": "disk"}, 'give cache="ram"'),
        ({"cache": True}, 'give cache="ram"'),
        ({"cache_bytes": 5}, 'limits cache="ram"'),
        ({"cache": "ram", "cache_bytes": 5}, "too small"),
        ({"cache": "ram", "cache_bytes": "1000 TiB"}, "bytes of memory are available; give fewer"),
        ({"cache": "ram", "cache_bytes": "lots"}, "'lots' is not a number of bytes"),
        ({"cache": "ram", "cache_bytes": 2.5}, "whole number"),
    ],
)
def test_invalid_arguments(photos, options, text):
    with pytest.raises((DataError, ArgumentError), match=text):
        sampled_batcher(photos, batch_size=2, **SIZED, **options)


def test_sources_that_need_no_cache_or_have_no_number_of_records(tmp_path):
    with pytest.raises(DataError, match="are in memory; omit cache="):
        sampled_batcher({"x": np.zeros((4, 2))}, batch_size=2, cache="ram")
    (tmp_path / "part-0").write_text("1\n2\n")
    index = open_index(f"file://{tmp_path}", kind="parts")
    with pytest.raises(DataError, match="cache= needs the number of records"):
        sampled_batcher(index, sampler="part-linear", batch_size=2, processor=len, cache="ram")


# ---- shared memory ---------------------------------------------------------------------------


def read_record(record):
    return np.full(1000, record.position, np.int64)


def use_shared(cache, queue):
    with sampled_batcher(
        {"x": range(10)}, get=read_record, batch_size=5, cache=cache, num_workers=0
    ) as batches:
        values = [batch.input.input[:, 0].tolist() for batch in batches]
        queue.put((values, batches.stats().cache_hits))


@pytest.mark.budget(0)
@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_processes_share_a_cache(start):
    context = multiprocessing.get_context(start)
    queue = context.Queue()
    with RamCache("1 MiB") as cache:
        for _ in range(2):
            child = context.Process(target=use_shared, args=(cache, queue), daemon=True)
            child.start()
            values, hits = queue.get(timeout=60)
            child.join(60)
            assert values == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
            assert hits == 10  # of the first process, records of its sample
        assert cache.use.records == 10


def die_inside(cache, queue):
    cache.use_for("test", [10])
    cache.write(0, 1, encode(np.arange(5)))
    queue.put("written")
    queue.close()
    queue.join_thread()
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_a_killed_process_leaves_its_records(start):
    context = multiprocessing.get_context(start)
    queue = context.Queue()
    with RamCache("1 MiB") as cache:
        cache.use_for("test", [10])
        child = context.Process(target=die_inside, args=(cache, queue), daemon=True)
        child.start()
        assert queue.get(timeout=60) == "written"
        child.join(60)
        assert child.exitcode == -signal.SIGKILL
        assert cache.read(0, 1, False).tolist() == [0, 1, 2, 3, 4]
        cache.write(0, 2, encode("next"))
        assert cache.read(0, 2, False) == "next"


def write_at_random(cache, seed):
    cache.use_for("test", [500])
    for number in np.random.default_rng(seed).permutation(500).tolist():
        cache.write(0, number, encode(np.full(number, number)))


def test_processes_that_write_at_once_never_mix_their_records():
    context = multiprocessing.get_context("spawn")
    with RamCache("8 MiB") as cache:
        cache.use_for("test", [500])
        children = [context.Process(target=write_at_random, args=(cache, seed)) for seed in (1, 2)]
        for child in children:
            child.start()
        for child in children:
            child.join(60)
            assert child.exitcode == 0
        assert cache.use.records == 500
        for number in range(500):
            np.testing.assert_array_equal(cache.read(0, number, False), np.full(number, number))


def test_a_batcher_that_began_before_a_fork_shares_its_cache():
    with sampled_batcher(
        {"x": range(10)}, get=read_record, batch_size=5, cache="ram", cache_bytes="1 MiB"
    ) as batches:
        next(iter(batches))
        read_end, write_end = os.pipe()
        child = os.fork()
        if not child:
            list(batches)
            os.write(write_end, str(batches.stats().cache_hits).encode())
            os._exit(0)
        os.waitpid(child, 0)
        assert int(os.read(read_end, 100)) == 10
        os.close(read_end)
        os.close(write_end)


def shared_memory_bytes():
    lines = Path("/proc/self/status").read_text().splitlines()
    [line] = [line for line in lines if line.startswith("RssShmem")]
    return int(line.split()[1]) * 1024


def test_close_frees_the_memory():
    before = shared_memory_bytes()
    options = {"get": lambda record: np.ones(1 << 20, np.uint8), "batch_size": 4}
    with sampled_batcher({"x": range(8)}, cache="ram", cache_bytes="32 MiB", **options) as batches:
        list(batches)
        assert shared_memory_bytes() - before >= 8 << 20
    assert batches.stats().cache_records == 8
    assert shared_memory_bytes() - before < 1 << 20


@lists_open_files
def test_memory_is_flat_over_20_epochs(photos):
    """Files of earlier tests may be closed meanwhile."""
    files_before = count_open_files()
    with sampled_batcher(
        photos, **OPTIONS, collate=RANDOM, cache="ram", cache_bytes=60_000
    ) as batches:
        list(batches)
        bytes_after_one, files = batches.stats().cache_bytes, count_open_files()
        for _ in range(20):
            list(batches)
            assert batches.stats().cache_bytes == bytes_after_one
        assert count_open_files() <= files
    assert count_open_files() <= files_before


def test_a_cache_is_for_one_source(photos):
    with RamCache("1 MiB") as cache:
        with sampled_batcher(photos, **OPTIONS, **SIZED, cache=cache) as batches:
            list(batches)
        with sampled_batcher(photos, **OPTIONS, **SIZED, cache=cache) as batches:
            list(batches)
            assert batches.stats().cache_hits == COUNT
        for other in ({"size": (9, 9)}, {"collate": RANDOM}):
            with pytest.raises(DataError, match="keeps the records of other sources"):
                sampled_batcher(photos, **OPTIONS, **other, cache=cache)
        with pytest.raises(DataError, match="keeps the records of other sources"):
            sampled_batcher(open_index(photos)[:5], batch_size=2, **SIZED, cache=cache)
        with pytest.raises(DataError, match="has a limit already"):
            sampled_batcher(photos, **OPTIONS, **SIZED, cache=cache, cache_bytes=10_000)
    with pytest.raises(DataError, match="closed; make a new one"):
        sampled_batcher(photos, **OPTIONS, **SIZED, cache=cache)
    with pytest.raises(DataError, match="is closed"):
        pickle.dumps(cache)


def test_a_cache_of_a_process_that_has_ended_is_an_error():
    cache = RamCache("1 MiB")
    function, (process, file, token) = cache.__reduce__()
    assert function(process, file, token) is cache
    cache.close()
    del cache
    with pytest.raises(DataError, match="has closed it or ended"):
        function(process, file, token)


def test_a_table_larger_than_the_cache_is_an_error():
    with pytest.raises(DataError, match="no room for the offsets of 1,000,000 records"):
        sampled_batcher(
            {"x": range(10**6)}, get=read_record, batch_size=5, cache="ram", cache_bytes="1 MiB"
        )
