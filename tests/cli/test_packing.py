"""`layoutkit pack`, `layoutkit index`, and `layoutkit batches` on files of many records."""

import io
import os
import shutil
from unittest.mock import patch

import numpy as np
import pytest

from tests.helpers.command_batches import run_batches
from tests.helpers.photographs import encoded, noise, save
from tests.helpers.record_files import image, tar, write_rec

Image = pytest.importorskip("PIL.Image")

from layoutkit.cli import main, pack
from layoutkit.data import open_index
from layoutkit.data.io.image_record import unpack_image
from layoutkit.data.io.reader import Reader
from layoutkit.data.recordio import read_records


@pytest.fixture
def photos(tmp_path):
    """Write seven images of two classes, and files that are not images."""
    for number in range(7):
        label = ("ant", "bee")[number % 2]
        save(tmp_path / "photos" / label / f"{number}.png", noise(number, 8, 9, 3))
    (tmp_path / "photos/ant/bad.jpg").write_bytes(b"not an image")
    (tmp_path / "photos/ant/notes.txt").write_text("none")
    save(tmp_path / "photos" / "alone.png", noise(0, 8, 8, 3))
    return tmp_path / "photos"


def run(*words):
    return main([str(word) for word in words])


def unpacked(path):
    """Return (label or labels, id, image bytes) of image records."""
    result = [unpack_image(payload) for payload in read_records(path)]
    return [(header.labels, header.id, data) for header, data in result]


def decoded(data):
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


ORDER = [0, 2, 4, 6, 1, 3, 5]  # by path: ants, then bees


def test_labelled_folders_become_records_an_index_and_a_list(photos, tmp_path, capsys):
    assert run("pack", photos, tmp_path / "t.rec", "--encoding", "png") == 0
    records = unpacked(tmp_path / "t.rec")
    assert [labels for labels, _, _ in records] == [(0.0,)] * 4 + [(1.0,)] * 3
    assert [number for _, number, _ in records] == list(range(7))
    for number, (_, _, data) in zip(ORDER, records, strict=True):
        np.testing.assert_array_equal(decoded(data), noise(number, 8, 9, 3))
    index = open_index(tmp_path / "t.rec")
    assert [record.label for record in index] == [0] * 4 + [1] * 3
    lines = (tmp_path / "t.lst").read_text().splitlines()
    assert lines[0] == "0\t0\tphotos/ant/0.png"
    assert lines[4] == "4\t1\tphotos/bee/1.png"
    assert (tmp_path / "t.idx").read_text().splitlines()[0] == "0\t0"
    output = capsys.readouterr()
    assert "t.rec, 7 images" in output.out
    assert "labels: 0 ant, 1 bee" in output.out
    for words in ("left out", "bad.jpg", "alone.png: it is not in a labeled folder", "skipped"):
        assert words in output.err


def test_a_list_is_packed_as_it_says(photos, tmp_path):
    (photos / "a.lst").write_text("70\t1.5\t2\tbee/1.png\n0\t5\tant/0.png\n6\t0\tant/none.png\n")
    assert run("pack", photos / "a.lst", tmp_path / "t.rec", "--pass-through") == 0
    expected = [(photos / name).read_bytes() for name in ("bee/1.png", "ant/0.png")]
    assert unpacked(tmp_path / "t.rec") == [
        ((1.5, 2.0), 70, expected[0]),
        ((5.0,), 0, expected[1]),
    ]
    assert (tmp_path / "t.idx").read_text().split()[::2] == ["70", "0"]
    lines = ["70\t1.5\t2\tphotos/bee/1.png\n", "0\t5\tphotos/ant/0.png\n"]
    assert (tmp_path / "t.lst").read_text() == "".join(lines)
    before = (photos / "a.lst").read_text()
    assert run("pack", photos / "a.lst", photos / "a.rec") == 0
    assert (photos / "a.lst").read_text() == before  # the packed list is unchanged


def test_the_options_of_im2rec(photos, tmp_path):
    """Write a list and pack its images from their folder, by the commands of docs/providers.md."""
    assert run("pack", photos, tmp_path / "t.rec", "--list") == 0
    (tmp_path / "lists").mkdir()
    relative = (tmp_path / "t.lst").read_text().replace("photos/", "")
    (tmp_path / "lists/a.lst").write_text(relative)
    words = ["--root", photos, "--encoding", ".png", "--num-thread", "2", "--chunks", "2"]
    assert run("pack", tmp_path / "lists/a.lst", tmp_path / "a.rec", *words) == 0
    parts = [unpacked(tmp_path / f"a.part00{part}.rec") for part in range(2)]
    for number, (_, _, data) in zip(ORDER, parts[0] + parts[1], strict=True):
        np.testing.assert_array_equal(decoded(data), noise(number, 8, 9, 3))
    first = (tmp_path / "a.part000.lst").read_text().splitlines()[0]
    assert first == "0\t0\tphotos/ant/0.png"


@pytest.mark.parametrize("workers", [1, 3])
def test_parts_share_a_random_order(photos, tmp_path, workers):
    words = ["--pass-through", "--shuffle", "--seed", 3, "--parts", 3, "--workers", workers]
    assert run("pack", photos, tmp_path / "t.rec", *words) == 0
    parts = [unpacked(tmp_path / f"t.part{part:03}.rec") for part in range(3)]
    assert sorted(map(len, parts)) == [2, 2, 3]
    together = [record for part in parts for record in part]
    assert [number for _, number, _ in together] == list(range(7))
    images = [(photos / ("ant", "bee")[n % 2] / f"{n}.png").read_bytes() for n in ORDER]
    result = [data for _, _, data in together]
    assert sorted(result) == sorted(images)
    assert result != images
    assert len(open_index(tmp_path / "t.part{000..002}.rec")) == 7
    assert run("pack", photos, tmp_path / "u.rec", "--pass-through", "--shuffle", "--seed", 3) == 0
    assert unpacked(tmp_path / "u.rec") == together
    assert run("pack", photos, tmp_path / "v.rec", "--pass-through", "--shuffle", "--seed", 4) == 0
    assert [data for _, _, data in unpacked(tmp_path / "v.rec")] != result


@pytest.mark.parametrize(
    ("words", "shape", "kind"),
    [
        (["--resize", "16"], (16, 18), "JPEG"),
        (["--resize", "4", "--quality", "100"], (4, 4), "JPEG"),
        (["--encoding", "png", "--quality", "0"], (8, 9), "PNG"),
    ],
)
def test_images_are_resized_and_encoded(photos, tmp_path, words, shape, kind):
    assert run("pack", photos, tmp_path / "t.rec", *words) == 0
    _, _, data = unpacked(tmp_path / "t.rec")[0]
    assert decoded(data).shape == (*shape, 3)
    assert Image.open(io.BytesIO(data)).format == kind


def test_quality_0_of_png_is_no_compression(tmp_path):
    (tmp_path / "photos" / "ant").mkdir(parents=True)
    Image.new("RGB", (90, 80)).save(tmp_path / "photos" / "ant" / "black.png")
    sizes = []
    for quality in ("0", "1"):
        words = ["--encoding", "png", "--quality", quality]
        assert run("pack", tmp_path / "photos", tmp_path / "t.rec", *words) == 0
        ((_, _, data),) = unpacked(tmp_path / "t.rec")
        sizes.append(len(data))
    assert sizes[0] > 90 * 80 * 3 > 10 * sizes[1]


def test_pixels_are_kept_as_an_array(photos, tmp_path):
    assert run("pack", photos, tmp_path / "t.rec", "--encoding", "npy") == 0
    _, _, data = unpacked(tmp_path / "t.rec")[0]
    np.testing.assert_array_equal(np.load(io.BytesIO(data)), noise(0, 8, 9, 3))


def test_turned_tiffs_are_packed_upright(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    pixels = noise(0, 24, 40, 3)
    save(tmp_path / "photos/a/0.tif", np.rot90(pixels).copy(), exif=exif)
    assert run("pack", tmp_path / "photos", tmp_path / "t.rec", "--encoding", "png") == 0
    ((_, _, data),) = unpacked(tmp_path / "t.rec")
    np.testing.assert_array_equal(decoded(data), pixels)


def test_a_list_alone_is_written(photos, tmp_path):
    assert run("pack", photos, tmp_path / "t.rec", "--list") == 0
    assert {path.name for path in tmp_path.iterdir()} == {"photos", "t.lst"}
    assert len((tmp_path / "t.lst").read_text().splitlines()) == 8  # one is not readable


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--pass-through", "--resize", "8"], "--resize: --pass-through"),
        (["--quality", "101"], "--quality 101: for jpg it is 1 to 100"),
        (["--encoding", "npy", "--quality", "1"], "npy has no quality"),
        (["--seed", "3"], "--seed: applies only with --shuffle"),
        (["--root", "none"], "--root none: no such folder"),
        (["--root", "."], "--root: is the folder of the paths in a .lst"),
        (["--parts", "257"], "--parts 257: the maximum is 256"),
        (["--parts", "0"], "--parts"),
    ],
)
def test_options_that_do_not_fit_are_refused(photos, tmp_path, capsys, words, message):
    assert run("pack", photos, tmp_path / "t.rec", *words) == 2
    assert message in capsys.readouterr().err
    assert os.listdir(tmp_path) == ["photos"]


def test_sources_and_targets_that_cannot_be_are_refused(photos, tmp_path, capsys):
    for source, target, words in (
        (tmp_path / "none", tmp_path / "t.rec", "no such folder or file"),
        (photos / "ant/0.png", tmp_path / "t.rec", "neither a folder"),
        (photos / "ant", tmp_path / "t.rec", "or none in labeled folders"),
        (photos, tmp_path / "t.npz", "is a .rec file"),
        (photos, tmp_path / "no/t.rec", "there is no folder"),
    ):
        assert run("pack", source, target) == 2
        assert words in capsys.readouterr().err
    assert os.listdir(tmp_path) == ["photos"]


UNLISTABLE = {b"\xff\xfe.png": "not UTF-8", b"tab\t.png": "tabs", b"line\n.png": "newlines"}


@pytest.mark.parametrize("words", [[], ["--list"], ["--parts", "2"], ["--pass-through"]])
@pytest.mark.parametrize("folder", ["ant", os.fsdecode(b"\xff")])
def test_names_that_a_list_cannot_contain_are_left_out_first(folder, words, tmp_path, capsys):
    save(tmp_path / "photos/bee/0.png", noise(1, 8, 9, 3))
    for name in UNLISTABLE:
        save(tmp_path / "photos" / folder / os.fsdecode(name), noise(0, 8, 9, 3))
    with patch.object(pack, "AtomicFiles", side_effect=RuntimeError("work begins")):
        assert run("pack", tmp_path / "photos", tmp_path / "t.rec", *words) == 70
    lines = capsys.readouterr().err.splitlines()
    left_out = [line for line in lines if "left out" in line]
    assert len(left_out) == 3
    for reason in UNLISTABLE.values() if folder == "ant" else ["not UTF-8"]:
        assert any(reason in line for line in left_out)
    assert "work begins" in lines[-1]
    assert run("pack", tmp_path / "photos", tmp_path / "t.rec", *words) == 0
    lists = [path.read_text().splitlines() for path in sorted(tmp_path.glob("*.lst"))]
    label = int(folder == "ant")
    assert [line for part in lists for line in part] == [f"0\t{label}\tphotos/bee/0.png"]
    shutil.rmtree(tmp_path / "photos/bee")
    assert run("pack", tmp_path / "photos", tmp_path / "u.rec", *words) == 2
    assert "none of 3 images can be packed" in capsys.readouterr().err


def test_other_names_and_folders_may_be_bytes(photos, tmp_path):
    odd = tmp_path / os.fsdecode(b"\xff")
    odd.mkdir()
    photos.rename(odd / "photos")
    assert run("pack", odd / "photos", odd / "t.rec") == 0
    assert (odd / "t.lst").read_text().splitlines()[0] == "0\t0\tphotos/ant/0.png"
    words = "--size", "8x8", "--preview", tmp_path / "s.png"
    assert run("batches", odd / "photos", "--missing", "-1", *words) == 0


def test_nothing_is_written_where_nothing_can_be_read(tmp_path, capsys):
    (tmp_path / "photos/ant").mkdir(parents=True)
    for number in range(3):
        (tmp_path / f"photos/ant/{number}.jpg").write_bytes(b"\xff\xd8 not an image")
    for words in ([], ["--pass-through"], ["--parts", "2"]):
        assert run("pack", tmp_path / "photos", tmp_path / "t.rec", *words) == 2
        output = capsys.readouterr().err
        assert "none of 3 images can be read" in output
        assert all(f"{number}.jpg" in output for number in range(3))
    assert os.listdir(tmp_path) == ["photos"]


# ---- index -----------------------------------------------------------------------------------


def test_an_index_is_written_beside_a_file(tmp_path, capsys):
    write_rec(tmp_path / "a.rec", [image(b"x" * n, n) for n in range(20)])
    before = (tmp_path / "a.idx").read_text()
    (tmp_path / "a.idx").write_text("0\t4\n")  # must not be read
    assert run("index", tmp_path / "a.rec") == 0
    assert (tmp_path / "a.idx").read_text() == before
    assert "20 records" in capsys.readouterr().out


@pytest.mark.parametrize("change", ["cut", "tail", "head"])
def test_of_a_damaged_file_no_index_is_written(tmp_path, capsys, change):
    offsets = write_rec(tmp_path / "a.rec", [image(b"pict", n) for n in range(5)], index=False)
    data = bytearray((tmp_path / "a.rec").read_bytes())
    if change == "cut":
        del data[-4:]
    elif change == "tail":
        data += b"tail"
    else:
        data[offsets[4]] ^= 1
    (tmp_path / "a.rec").write_bytes(data)
    assert run("index", tmp_path / "a.rec") == 2
    place = len(data) - 4 if change == "tail" else offsets[4]
    assert f"byte {place}" in capsys.readouterr().err
    assert os.listdir(tmp_path) == ["a.rec"]
    assert run("index", tmp_path / "none.rec") == 2


# ---- batches ---------------------------------------------------------------------------------


@pytest.fixture
def batches(tmp_path, monkeypatch):
    def run(source, *words):
        options = ("--size", "8x8", "--preview", tmp_path / "sheet.png", *words)
        result = run_batches(monkeypatch, source, *options)
        assert Image.open(tmp_path / "sheet.png").size[0] > 8
        return result

    return run


IMAGES = [encoded(noise(number, 8, 8, 3)) for number in range(5)]


def check(result, name, count=5):
    np.testing.assert_array_equal(result["input"], [noise(n, 8, 8, 3) for n in range(count)])
    files = [(url.rpartition("/")[2], position) for url, position in result["name"]]
    assert files == [(name, n) for n in range(count)]


def test_batches_of_records_are_drawn(tmp_path, capsys, batches):
    write_rec(tmp_path / "a.rec", [image(data, n % 2, n) for n, data in enumerate(IMAGES)])
    result = batches(tmp_path / "a.rec", "--batch-size", 2)
    check(result, "a.rec")
    assert (result["target"], result["classes"]) == ([0, 1, 0, 1, 0], [0, 1])
    write_rec(tmp_path / "b.rec", [image(data, [n, 0.5], n) for n, data in enumerate(IMAGES)])
    result = batches(tmp_path / "b.rec")
    assert result["target"] == [[n, 0.5] for n in range(5)]
    assert not result["classes"]
    check(batches(f"{tmp_path}/[a].rec", "--partition", "0/1"), "a.rec")
    write_rec(tmp_path / "a.rec", [image(IMAGES[0], 1), image(b"not an image", 1)])
    capsys.readouterr()
    check(batches(tmp_path / "a.rec"), "a.rec", 1)
    offset = open_index(tmp_path / "a.rec")[1].offset
    assert f"left out {tmp_path}/a.rec, byte {offset}: " in capsys.readouterr().err


def test_batches_of_an_archive_are_drawn(tmp_path, batches):
    members = [(f"{n}.{name}", data) for n, p in enumerate(IMAGES) for name, data in _pair(n, p)]
    (tmp_path / "s.tar").write_bytes(tar(members))
    result = batches(tmp_path / "s.tar")
    check(result, "s.tar")
    assert result["classes"] == ["bee", "cat"]


def _pair(number, data):
    return [("png", data), ("txt", (b"cat", b"bee")[number % 2])]


def test_batches_of_a_table_are_drawn(tmp_path, batches):
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    from pyarrow import parquet, table

    columns = table({"image": IMAGES, "label": [1, 2, 3, 4, 5]})
    parquet.write_table(columns, tmp_path / "a.parquet")
    result = batches(tmp_path / "a.parquet")
    check(result, "a.parquet")
    assert result["target"] == [0, 1, 2, 3, 4]


def test_the_reader_gives_what_the_folder_has(photos, tmp_path):
    """The default getter returns the bytes of an image, from folders and from records."""
    assert run("pack", photos, tmp_path / "t.rec", "--pass-through") == 0
    index = open_index(tmp_path / "t.rec")
    get = index.getter(Reader())
    files = [(photos / ("ant", "bee")[n % 2] / f"{n}.png").read_bytes() for n in ORDER]
    assert [get(record) for record in index] == files
