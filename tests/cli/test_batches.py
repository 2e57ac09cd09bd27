"""`layoutkit batches`: its batches, previews, printed tables, dropped images and errors."""

import io
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.batches_of import forget_others, our_threads
from tests.helpers.command_batches import run_batches

Image = pytest.importorskip("PIL.Image")

from layoutkit.cli import main
from layoutkit.cli.contactsheet import MAX_IMAGES, Caption, contact_sheet
from layoutkit.data import sampler

SIDE = 8
COLORS = {"ant": (200, 30, 40), "bee": (240, 200, 10), "cat": (20, 60, 180)}


def _noise(seed, *shape):
    return np.random.default_rng(seed).integers(0, 256, shape or (SIDE, SIDE, 3), dtype=np.uint8)


def _save(path, array, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(array).save(path, **options)


@pytest.fixture
def photos(tmp_path):
    """Write seven images of three classes, of exactly the requested size."""
    for number, label in enumerate(["ant", "ant", "ant", "bee", "bee", "cat", "cat"]):
        _save(tmp_path / "photos" / label / f"{number}.png", _noise(number))
    return tmp_path / "photos"


def _run(source, *options, size=f"{SIDE}x{SIDE}"):
    return main(["batches", str(source), "--size", size, *map(str, options)])


@pytest.fixture
def batches(monkeypatch):
    def run(source, *options, size=f"{SIDE}x{SIDE}"):
        return run_batches(monkeypatch, source, "--size", size, *options)

    return run


def _file_names(actual):
    return [Path(name).name for name, _ in actual["name"]]


# ---- batches -------------------------------------------------------------------------------


def test_all_images_labels_and_names_come_in_order(photos, batches):
    actual = batches(photos, "--batch-size", 3)
    np.testing.assert_array_equal(actual["input"], [_noise(number) for number in range(7)])
    assert actual["input"].dtype == np.uint8
    assert actual["target"] == [0, 0, 0, 1, 1, 2, 2]
    assert actual["classes"] == ["ant", "bee", "cat"]
    assert _file_names(actual) == [f"{number}.png" for number in range(7)]


def test_the_order_is_the_samplers(photos, batches):
    options = ["--sampler", "permutation", "--seed", 5, "--epoch", 2, "--batch-size", 3]
    actual = batches(photos, *options, "--workers", 2)
    order = list(sampler("permutation", 7, seed=5, epoch=2))
    assert order != sorted(order)
    assert _file_names(actual) == [f"{number}.png" for number in order]
    np.testing.assert_array_equal(actual["input"], [_noise(number) for number in order])
    again = batches(photos, *options, "--workers", 0)
    np.testing.assert_array_equal(again["input"], actual["input"])


@pytest.mark.parametrize(("limit", "count"), [(1, 3), (2, 6), (3, 7), (9, 7)])
def test_a_limit_ends_after_so_many_batches(photos, limit, count, batches):
    actual = batches(photos, "--batch-size", 3, "--limit", limit)
    assert len(actual["input"]) == len(actual["target"]) == len(actual["name"]) == count


def test_partitions_have_every_image_once_and_the_same_classes(photos, batches):
    parts = [batches(photos, "--partition", f"{number}/3") for number in range(3)]
    names = [name for part in parts for name in _file_names(part)]
    assert sorted(names) == [f"{number}.png" for number in range(7)]
    assert {tuple(part["classes"]) for part in parts} == {("ant", "bee", "cat")}
    assert [len(part["name"]) for part in parts] == [3, 2, 2]


def test_images_without_labels_have_no_targets(tmp_path, batches):
    _save(tmp_path / "flat" / "a.png", _noise(0))
    assert batches(tmp_path / "flat")["classes"] is None


def test_images_beside_labelled_folders_have_rank_minus_one(photos, batches):
    _save(photos / "zebra.png", _noise(9))
    assert batches(photos, "--missing", "-1")["target"] == [0, 0, 0, 1, 1, 2, 2, -1]
    assert len(batches(photos, "--missing", "drop")["target"]) == 7


def test_an_image_beside_labelled_folders_is_an_error_with_a_cure(photos, capsys):
    _save(photos / "zebra.png", _noise(9))
    assert _run(photos) == 2
    assert "give --missing drop to omit such records, or --missing -1" in capsys.readouterr().err


def test_columns_of_a_table_are_given_by_name(photos, tmp_path, capsys, batches):
    (tmp_path / "t.csv").write_text("photo,class\nphotos/bee/3.png,2\nphotos/ant/0.png,10\n")
    assert _run(tmp_path / "t.csv") == 2
    assert "say which it is: --columns image=photo" in capsys.readouterr().err
    actual = batches(tmp_path / "t.csv", "--columns", "image=photo,label=class")
    assert (actual["classes"], actual["target"]) == (["2", "10"], [0, 1])
    assert batches(tmp_path / "t.csv", "--columns", "image=photo,label=")["classes"] is None


def test_shuffle_names_the_sampler(photos, capsys):
    assert _run(photos, "--shuffle") == 2
    assert "unrecognized arguments: --shuffle; give --sampler shuffle" in capsys.readouterr().err
    assert _run(photos, "--sampler", "shuffle") == 0


# ---- tables --------------------------------------------------------------------------------


@pytest.mark.parametrize(("suffix", "comma"), [("csv", ","), ("tsv", "\t")])
def test_a_table_names_images_and_labels(photos, tmp_path, suffix, comma, batches):
    table = tmp_path / f"list.{suffix}"
    rows = [
        ["filename", "label"],
        ["photos/cat/6.png", "Felis, the cat"],
        ["photos/ant/0.png", "b"],
    ]
    quoted = [comma.join(f'"{cell}"' for cell in row) for row in rows]
    table.write_text("\n".join(quoted) + "\n")
    actual = batches(table)
    np.testing.assert_array_equal(actual["input"], [_noise(6), _noise(0)])
    assert [actual["classes"][n] for n in actual["target"]] == ["Felis, the cat", "b"]


def test_a_table_leads_to_images_inside_of_one_file(tmp_path, batches):
    parts = []
    for seed in range(3):
        buffer = io.BytesIO()
        Image.fromarray(_noise(seed)).save(buffer, "PNG")
        parts.append(buffer.getvalue())
    (tmp_path / "all.bin").write_bytes(b"".join(parts))
    lines = ["filename,offset,length,label"]
    for seed, part in enumerate(parts):
        lines.append(f"all.bin,{sum(map(len, parts[:seed]))},{len(part)},{'xyz'[seed]}")
    (tmp_path / "list.csv").write_text("\n".join(lines))
    actual = batches(tmp_path / "list.csv")
    np.testing.assert_array_equal(actual["input"], [_noise(seed) for seed in range(3)])
    assert actual["classes"] == ["x", "y", "z"]


# ---- decoded images ------------------------------------------------------------------------


@pytest.fixture
def decoded(tmp_path, batches):
    def run(array, size, name="a.png", **options):
        _save(tmp_path / "one" / name, array, **options)
        return batches(tmp_path / "one", size=size)["input"][0]

    return run


def test_gray_is_repeated_and_alpha_dropped(tmp_path, batches):
    gray = _noise(0, SIDE, SIDE)
    rgba = _noise(1, SIDE, SIDE, 4)
    _save(tmp_path / "one" / "a.png", gray)
    _save(tmp_path / "one" / "b.png", rgba)
    actual = batches(tmp_path / "one")["input"]
    np.testing.assert_array_equal(actual[0], np.repeat(gray[..., None], 3, axis=2))
    np.testing.assert_array_equal(actual[1], rgba[..., :3])


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_photograph_is_turned_upright(orientation, decoded):
    exif = Image.Exif()
    exif[0x0112] = orientation
    # Four plain quarters survive a JPEG, and each of the eight orientations is a different image.
    corners = np.array([[(250, 0, 0), (0, 250, 0)], [(0, 0, 250), (250, 250, 250)]], np.uint8)
    stored = corners.repeat(64, axis=0).repeat(64, axis=1)
    turned = {
        1: lambda x: x,
        2: lambda x: x[:, ::-1],
        3: lambda x: x[::-1, ::-1],
        4: lambda x: x[::-1],
        5: lambda x: x.transpose(1, 0, 2),
        6: lambda x: np.rot90(x, -1),
        7: lambda x: x[::-1, ::-1].transpose(1, 0, 2),
        8: lambda x: np.rot90(x),
    }[orientation](corners)
    actual = decoded(stored, "16x16", "a.jpg", quality=95, exif=exif)
    middles = actual[4::8, 4::8].astype(int)
    assert np.abs(middles - turned).max() < 16


def test_what_juts_out_is_cut_off_on_both_sides(tmp_path, decoded):
    wide = np.zeros((SIDE, 3 * SIDE, 3), np.uint8)
    wide[:, SIDE : 2 * SIDE] = _noise(0)
    np.testing.assert_array_equal(decoded(wide, f"{SIDE}x{SIDE}"), _noise(0))
    high = wide.transpose(1, 0, 2)
    (tmp_path / "one" / "a.png").unlink()
    expected = _noise(0).transpose(1, 0, 2)
    np.testing.assert_array_equal(decoded(high, f"{SIDE}x{SIDE}"), expected)


def test_an_image_keeps_its_shape(decoded):
    """A circle stays a circle: an image twice as wide as high is not squeezed."""
    y, x = np.mgrid[:200, :400]
    disc = np.where((y - 100) ** 2 + (x - 200) ** 2 < 60**2, 255, 0).astype(np.uint8)
    actual = decoded(np.repeat(disc[..., None], 3, 2), "40x40")[..., 0] > 127
    rows = actual.any(axis=1).sum()
    columns = actual.any(axis=0).sum()
    assert (rows, columns) == (24, 24)


def test_a_large_photograph_is_near_the_one_decoded_whole(decoded):
    """A JPEG is decoded at a fraction of its size, which changes only the last bits."""
    y, x = np.mgrid[:480, :640]
    waves = np.stack([128 + 100 * np.sin(y / 40), 128 + 100 * np.cos(x / 50), (x + y) / 5], axis=2)
    actual = decoded(waves.astype(np.uint8), "48x48", "a.jpg", quality=95)
    square = waves[:, 80:560].reshape(48, 10, 48, 10, 3).mean(axis=(1, 3))
    assert np.abs(actual.astype(float) - square).max() < 6


# ---- dropped images ------------------------------------------------------------------------


def test_what_is_no_image_is_named_and_left_out(photos, capsys, batches):
    full = (photos / "bee" / "3.png").read_bytes()
    (photos / "ant" / "notes.txt").write_text("not an image")
    (photos / "bee" / "broken.png").write_bytes(full[: len(full) // 2])
    (photos / "cat" / "empty.jpg").write_bytes(b"")
    _save(photos / "cat" / "float.tif", np.ones((SIDE, SIDE), np.float32))
    actual = batches(photos, "--batch-size", 4)
    assert _file_names(actual) == [f"{number}.png" for number in range(7)]
    captured = capsys.readouterr()
    assert "7 records in 3 batches, 4 left out" in captured.out
    lines = captured.err.splitlines()
    assert len(lines) == 4
    for line, name in zip(
        lines, ["notes.txt", "broken.png", "empty.jpg", "float.tif"], strict=True
    ):
        assert line.startswith(f"layoutkit: left out {photos}/")
        assert name in line
    assert "not one that Pillow can read" in lines[0]
    assert "gray values are floats from 1 to 1" in lines[3]


def test_an_image_that_is_suspiciously_large_is_left_out(photos, capsys, monkeypatch):
    _save(photos / "cat" / "bomb.png", _noise(0, 40, 40, 3))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    assert _run(photos) == 0
    captured = capsys.readouterr()
    assert "7 records in 1 batch, 1 left out" in captured.out
    assert "bomb.png: DataError: 40x40 are 1,600 pixels, more than 1,000" in captured.err
    assert "give a larger --max-pixels" in captured.err


def test_a_vanished_file_of_a_table_is_left_out(photos, tmp_path, capsys, batches):
    table = tmp_path / "list.csv"
    table.write_text("filename,label\nphotos/ant/0.png,a\nphotos/ant/gone.png,a\n")
    assert batches(table)["target"] == [0]
    assert f"left out {tmp_path}/photos/ant/gone.png" in capsys.readouterr().err


def test_nothing_but_failures_is_an_error_and_writes_nothing(tmp_path, capsys):
    (tmp_path / "texts").mkdir()
    for name in "abc":
        (tmp_path / "texts" / name).write_text(name)
    assert _run(tmp_path / "texts", "--preview", tmp_path / "x.png") == 2
    error = capsys.readouterr().err
    assert error.count(f"layoutkit: left out {tmp_path}/texts/") == 3
    assert f"layoutkit: error: none of the 3 records can be used. {tmp_path}/texts/a" in error
    assert sorted(os.listdir(tmp_path)) == ["texts"]


# ---- printed tables ------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 2])
def test_the_report_says_what_came_and_where_the_time_went(photos, tmp_path, capsys, workers):
    preview = tmp_path / "x.png"
    options = ["--batch-size", 4, "--to", "bchw", "--dtype", "float32", "--workers", workers]
    assert _run(photos, *options, "--preview", preview) == 0
    first, shape, speed, blank, head, *stages, last = capsys.readouterr().out.splitlines()
    assert first == f"{photos}: 7 records in 2 batches, 0 left out"
    assert shape == f"first batch: bchw (4, 3, {SIDE}, {SIDE}) float32"
    assert "records/s in" in speed
    assert (blank, head.split()) == ("", ["stage", "seconds", "share"])
    names = ["get", "decode", "resize", "wait", "convert", "preview"]
    assert [line[:16].strip() for line in stages] == names
    assert ["on threads" in line for line in stages] == [workers > 0] * 3 + [False] * 3
    shares = [float(line[25:33].strip().rstrip("%")) for line in stages]
    own = shares if workers == 0 else shares[3:]
    assert all(share >= 0 for share in shares)
    assert sum(own) <= 103  # rounded
    assert last == f"written: {preview}"


def test_the_ceiling_is_measured_with_one_batch(photos, capsys):
    assert _run(photos, "--profile", "--to", "bchw", "--batch-size", 4) == 0
    *table, blank, line = capsys.readouterr().out.splitlines()
    number, words = line.split(" ", 1)
    assert (blank, words) == ("", "records/s if one batch is read and converted again and again")
    assert float(number.replace(",", "")) > float(table[2].split()[0].replace(",", ""))


def test_records_per_second_are_of_those_that_came(photos, capsys):
    (photos / "ant" / "notes.txt").write_text("not an image")
    assert _run(photos) == 0
    speed = capsys.readouterr().out.splitlines()[2].split()
    records = float(speed[0].replace(",", ""))
    seconds = float(speed[3])
    assert speed[1:3] == ["records/s", "in"]
    assert abs(records * seconds - 7) <= 0.006 * records + 0.5 * seconds + 0.01


# ---- the contact sheet ---------------------------------------------------------------------


def test_the_preview_shows_the_first_batch_as_it_was_decoded(tmp_path):
    folder = tmp_path / "plain"
    for label, color in COLORS.items():
        _save(folder / label / "p.png", np.full((20, 20, 3), color, np.uint8))
    (folder / "bee" / "broken.png").write_bytes(b"not an image")
    target = tmp_path / "sheet.png"
    options = ["--to", "bchw", "--dtype", "float32", "--mean", "9", "--preview", target]
    assert _run(folder, *options, size="20x20") == 0
    with Image.open(target) as image:
        sheet = np.asarray(image.convert("RGB"))
    places = [_place(sheet, color) for color in COLORS.values()]
    # Three images of 160 x 160 in one row, 12 pixels apart, and no fourth one.
    left = places[0][0]
    top = places[0][1]
    assert places == [(left + 172 * k, top, 160, 160) for k in range(3)]
    assert sheet.shape[1] == left + 3 * 172 - 12 + left
    captions = sheet[top + 160 :]
    for number in range(3):
        column = captions[:, left + 172 * number : left + 172 * number + 160]
        assert (column[10:25] < 100).all(axis=2).sum() > 40  # the label in ink
    assert (captions[:, left + 3 * 172 - 12 :] == 255).all()


def _place(sheet, color):
    """Return left, top, width and height of the region of a color."""
    rows, columns = np.nonzero((sheet == color).all(axis=2))
    width = np.ptp(columns) + 1
    height = np.ptp(rows) + 1
    assert width * height == len(rows)
    return int(columns.min()), int(rows.min()), int(width), int(height)


def _sheet(count, height=10, width=10, label="cat", name="a.png"):
    images = np.full((count, height, width, 3), (10, 200, 90), np.uint8)
    captions = [Caption(label, name, number % 3) for number in range(count)]
    return np.asarray(contact_sheet(images, captions, "title"))


@pytest.mark.parametrize("count", [1, 2, 7, 24, MAX_IMAGES, MAX_IMAGES + 1])
def test_every_image_is_on_the_sheet_up_to_a_hundred(count):
    sheet = _sheet(count)
    pixels = (sheet == (10, 200, 90)).all(axis=2).sum()
    assert pixels == min(count, MAX_IMAGES) * 160 * 160
    assert sheet.shape[1] <= 13 * 172 - 12 + 2 * 20


@pytest.mark.parametrize(
    ("height", "width", "cell"),
    [(1, 1, (160, 160)), (28, 20, (140, 100)), (160, 160, (160, 160)), (480, 640, (120, 160))],
)
def test_small_images_grow_by_whole_numbers_and_large_ones_shrink(height, width, cell):
    sheet = _sheet(1, height, width)
    assert _place(sheet, (10, 200, 90))[2:] == cell[::-1]


@pytest.mark.parametrize(
    ("height", "width", "is_exact"),
    [
        (28, 20, True), (40, 80, True), (100, 160, True),
        (100, 320, False), (320, 100, False), (161, 161, False),
    ],
)  # fmt: skip
def test_only_images_that_shrink_are_smoothed(height, width, is_exact):
    black_or_white = _noise(0, 1, height, width, 1) // 128 * np.uint8(255)
    images = np.repeat(black_or_white, 3, axis=3)
    sheet = np.asarray(contact_sheet(images, [Caption("", "", -1)], ""))
    assert (set(np.unique(sheet)) == {0, 255}) == is_exact


def test_a_caption_stays_within_its_cell():
    short = _sheet(2)
    long = _sheet(2, label="w" * 500, name="é" * 300 + "\n")
    assert long.shape == short.shape
    left, _, _, _ = _place(_sheet(1), (10, 200, 90))
    assert (long[:, left + 160 : left + 172] == 255).all()  # the gap between the two


# ---- errors --------------------------------------------------------------------------------


def _refused(capsys, *arguments):
    assert main(["batches", *map(str, arguments)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("layoutkit: error: ")
    assert captured.err.count("\n") <= 3
    assert "Traceback" not in captured.err
    return captured.err


def test_a_missing_source_is_named(tmp_path, capsys):
    for name in ("nowhere", "nowhere.csv"):
        error = _refused(capsys, tmp_path / name)
        assert f"{tmp_path}/{name}: no such folder or file; check the path" in error


def test_an_empty_folder_and_an_empty_partition_have_no_files(photos, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    assert f"{tmp_path}/empty has no records: there are no files" in _refused(
        capsys, tmp_path / "empty"
    )
    error = _refused(capsys, photos, "--partition", "8/9")
    assert "there are no files in partition 8/9" in error


def test_a_source_of_another_kind_is_refused(photos, tmp_path, capsys):
    np.save(tmp_path / "x.npy", np.zeros((2, 2)))
    assert "images come from a folder" in _refused(capsys, tmp_path / "x.npy")
    (tmp_path / "x.txt").write_text("no image")
    assert "is not an index" in _refused(capsys, tmp_path / "x.txt")


def test_records_are_drawn_by_the_weights_of_labels(photos, batches):
    actual = batches(photos, "--weights", "ant=0,bee=3,cat=1", "--batch-size", 400, "--limit", 1)
    labels = np.bincount(actual["target"], minlength=3)
    assert labels[0] == 0
    assert 0.65 < labels[1] / labels.sum() < 0.85


def test_several_sources_are_read_in_shares(photos, capsys):
    words = "--size", "8x8", "--batch-size", "3"
    sources = str(photos / "ant"), str(photos / "bee")
    assert main(["batches", *sources, *words]) == 2
    assert "give one, or the share of each, as in --mix 1,1" in capsys.readouterr().err
    for end, is_whole in ([], False), (["--on-end", "drop"], True):
        assert main(["batches", *sources, *words, "--mix", "1,9", *end]) == 0
        assert ("and 1 more: 5 records in" in capsys.readouterr().out) == is_whole


def test_a_glob_names_images(photos, capsys):
    assert main(["batches", f"{photos}/ant/*.png", "--batch-size", "2"]) == 0
    assert "2 batches" in capsys.readouterr().out
    assert "no file" in _refused(capsys, f"{photos}/ant/*.gif")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--sampler", "sorted"], ["no sampler is called 'sorted'", "permutation"]),
        (["--sampler", "part-linear"], ["part"]),
        (["--sampler", "weighted"], ["weights"]),
        (["--weights", "cow=1"], ["weights has 'cow', but no record has that label"]),
        (["--weights", "cat=1", "--sampler", "linear"], ["weights mean nothing for linear"]),
        (["--weights", "cat"], ["is not labels and their weights, such as cat=2,dog=1"]),
        (["--mix", "1,2"], ["--mix has 2 weights for 1 SRC; give one for each"]),
        (["--on-end", "drop"], ["--on-end: applies only to a mixture; give --mix, too"]),
        (["--sampler", "random_slice", "--batch-size", "8"], ["8", "7"]),
        (["--sampler", "even_sequential", "--batch-size", "8"], ["no batches", "--batch-size"]),
        (["--partition", "3/3"], ["partition=3", "partitions=3"]),
        (["--partition", "0/0"], ["partitions=0"]),
        (["--to", "bwd"], ["bhwc->bwd"]),
        (["--dtype", "float99"], ["float99"]),
        (["--dtype", "uint8", "--scale", "2"], ["float32", "uint8"]),
        (["--mean", "1,2"], ["mean", "2", "3"]),
        (["--preview", "x.jpg"], ["x.jpg: the result is a .png file"]),
        (["--preview", "none/x.png"], ["there is no folder"]),
    ],
)
def test_what_makes_no_sense_is_refused(photos, capsys, options, words):
    error = _refused(capsys, photos, "--size", "8x8", *options)
    for word in words:
        assert word in error


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--batch-size", "0"),
        ("--size", "8"),
        ("--seed", "-1"),
        ("--epoch", "x"),
        ("--workers", "1.5"),
        ("--partition", "1"),
        ("--partition", "a/2"),
        ("--limit", "0"),
    ],
)
def test_values_that_cannot_be_read_name_their_option(photos, capsys, option, value):
    error = _refused(capsys, photos, f"{option}={value}")
    assert option in error
    assert "layoutkit batches --help" in error


def test_a_full_disk_leaves_the_file_as_it_was(photos, tmp_path, capsys, monkeypatch):
    import errno

    target = tmp_path / "x.png"
    target.write_bytes(b"as it was")

    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("PIL.Image.Image.save", full)
    error = _refused(capsys, photos, "--size", "8x8", "--preview", target)
    assert f"{target}: No space left on device; make room" in error
    assert target.read_bytes() == b"as it was"
    assert sorted(os.listdir(tmp_path)) == ["photos", "x.png"]


def test_an_interruption_ends_the_threads_and_leaves_no_file(photos, tmp_path, capsys, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    forget_others()
    monkeypatch.setattr("layoutkit.cli.batches.StageTimes.add", interrupt)
    assert (
        main(["batches", str(photos), "--size", "8x8", "--preview", str(tmp_path / "x.png")]) == 130
    )
    assert capsys.readouterr().err == "layoutkit: interrupted\n"
    assert os.listdir(tmp_path) == ["photos"]
    assert our_threads() == []


def test_without_pillow_the_extra_is_named(photos, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    error = _refused(capsys, photos)
    assert 'images need Pillow, but PIL is not installed: pip install "layoutkit[images]"' in error


def test_it_runs_as_a_command(photos):
    code = "import sys; from layoutkit.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "batches", str(photos), "--size", "8x8", "--limit", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "7 records in 1 batch, 0 left out" in done.stdout
    assert done.stderr == ""
