"""Tar archives: the order of members, suffixes, names with dots, and links."""

import io
import itertools
import json
import tarfile

import numpy as np
import pytest
from PIL import Image

from layoutkit import DataError, images
from layoutkit.data import open_index, sampled_batcher
from layoutkit.images.suffixes import image_suffixes
from tests.helpers.loopback import serving
from tests.helpers.record_files import contents, tar


def write(tmp_path, members, name="s.tar"):
    (tmp_path / name).write_bytes(tar(members))
    return str(tmp_path / name)


def test_the_first_member_may_be_named_as_a_compression(tmp_path):
    assert contents(open_index(write(tmp_path, [("BZhang/1.jpg", b"i")]))) == [b"i"]


# ---- The order of members ---------------------------------------------------------------------

ORDERS = {  # of the members 0.IMAGE, 0.LABEL, 1.IMAGE, 1.LABEL
    "images first": (0, 2, 1, 3),
    "labels first": (1, 3, 0, 2),
    "labels reversed": (1, 3, 2, 0),
    "one label late": (0, 2, 3, 1),
    "one image late": (1, 2, 3, 0),
}


def four(folder, image, label):
    text = {"cls": "%d", "txt": "word %d", "json": '{"n": %d}'}[label.rpartition(".")[2]]
    return [
        member
        for key in "01"
        for member in (
            (f"{folder}{key}.{image}", b"image " + key.encode()),
            (f"{folder}{key}.{label}", (text % int(key)).encode()),
        )
    ]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("folder", ["", "./", "a.b/c/"])
@pytest.mark.parametrize(
    ("image", "label"), [("jpg", "cls"), ("TIFF", "txt"), ("left.png", "json")]
)
def test_members_that_are_not_sorted_by_sample_are_refused(tmp_path, order, folder, image, label):
    columns = {"image": image} if "." in image else {}
    columns |= {"label": "json:n"} if label == "json" else {}
    members = four(folder, image, label)
    path = write(tmp_path, [members[place] for place in ORDERS[order]])
    with pytest.raises(DataError, match=r"belong to one sample.* tar --sort=name") as error:
        open_index(path, columns=columns or None)
    named = [name for name, _ in members if repr(name) in str(error.value)]
    assert len(named) == 2
    assert named[0].partition(image)[0] == named[1].partition(label)[0]

    for pair in itertools.permutations(range(2)):  # either order within a sample is right
        ordered = [members[2 * key + place] for key in range(2) for place in pair]
        index = open_index(write(tmp_path, ordered), columns=columns or None)
        assert contents(index) == [b"image 0", b"image 1"]
        assert len(index.labels) == 2
        assert index.skipped == 0


@pytest.mark.parametrize("kind", ["wildcards", "braces", "remote"])
@pytest.mark.parametrize("names", [("a-0", "a-1"), ("a-1", "a-0")])
def test_images_and_labels_in_two_archives_are_refused(tmp_path, site, kind, names):
    members = four("", "jpg", "cls")
    archives = {f"{names[0]}.tar": members[::2], f"{names[1]}.tar": members[1::2]}
    pattern = {"wildcards": "a-*.tar", "braces": "a-{0..1}.tar", "remote": "a-{0..1}.tar"}[kind]
    for name, part in archives.items():
        write(tmp_path, part, name)
        site.files[f"/{name}"] = tar(part)
    with serving(site) as home, pytest.raises(DataError, match=r"0\.jpg.*0\.cls") as error:
        len(open_index(f"{home}/{pattern}" if kind == "remote" else f"{tmp_path}/{pattern}"))
    assert all(name in str(error.value) for name in (*archives, "into one folder"))


def test_keys_may_begin_anew_in_each_archive(tmp_path):
    """Test a shard without labels, and one that has a sample without image."""
    write(tmp_path, four("", "jpg", "cls"), "a-0.tar")
    write(tmp_path, four("", "jpg", "cls")[:2], "a-1.tar")
    write(tmp_path, four("", "jpg", "cls")[1:], "a-2.tar")
    index = open_index(f"{tmp_path}/a-*.tar")
    assert contents(index) == [b"image 0", b"image 1", b"image 0", b"image 1"]
    assert (index.skipped, [record.label for record in index]) == (1, [0, 1, 0, 1])
    assert repr(index) == "<tar index of 4 records, 2 labels, 1 skipped>"


# ---- Suffixes ---------------------------------------------------------------------------------

NOT_DECODED = {".bufr", ".emf", ".eps", ".grib", ".h5", ".hdf", ".mpeg", ".mpg", ".ps", ".wmf"}


def test_the_table_has_every_suffix_that_pillow_decodes():
    Image.init()
    registered = Image.registered_extensions()
    opened = {suffix for suffix, kind in registered.items() if kind in {*Image.OPEN, "MPO"}}
    assert opened - NOT_DECODED == {*image_suffixes()} & {*registered}


def encoded(suffix):
    """Return a small image in the format of a suffix; None if Pillow cannot save it."""
    kind = Image.registered_extensions().get(suffix)
    for mode in ("RGB", "L", "1"):
        file = io.BytesIO()
        try:
            Image.new(mode, (16, 16)).save(file, kind)
            return file.getvalue()
        except (OSError, KeyError, ValueError):
            continue
    return None


@pytest.mark.filterwarnings("ignore:IM image format")
def test_members_of_every_image_suffix_are_records(tmp_path):
    Image.init()
    pairs = ((suffix, encoded(suffix)) for suffix in image_suffixes())
    data = {suffix: image for suffix, image in pairs if image is not None}
    assert len(data) > 25
    members = [(f"{key}{suffix}", image) for key, (suffix, image) in enumerate(data.items())]
    index = open_index(write(tmp_path, members))
    assert contents(index) == [image for _, image in members]
    for suffix, image in data.items():
        assert images.read(image).shape[2] == 3, suffix


@pytest.mark.parametrize(
    ("names", "columns", "words"),
    [
        (["0.cls", "1.cls"], None, r"the suffixes are cls \(2\); .*columns="),
        (["0.jpg", "1.png"], {"image": "tif"}, r"jpg \(1\), png \(1\); .*columns="),
        (["0", "a/README"], None, r"none \(2\)"),
        (["0.bin", "1.mp4", "1.txt"], None, r"bin \(1\), mp4 \(1\), txt \(1\)"),
        ([], None, "no files are in it"),
    ],
)
@pytest.mark.parametrize("remote", [False, True])
def test_archives_without_an_image_are_refused(tmp_path, site, names, columns, words, remote):
    members = [(name, b"1") for name in names]
    site.files["/s.tar"] = tar(members)
    path = write(tmp_path, members)
    with (
        serving(site) as home,
        pytest.raises(DataError, match=rf"s\.tar has no records: .*{words}"),
    ):
        len(open_index(f"{home}/s.tar" if remote else path, columns=columns))


# ---- Names with dots --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "suffix"),
    [
        (["2020.01.05.jpg", "2020.01.06.jpg"], "01.05.jpg"),
        (["a.jpg", "2020.01.05.PNG"], "01.05.png"),
        (["d.e/0.jpg", "d.e/1.jpg", "d.e/photo.v1.bmp"], "v1.bmp"),
        (["0.left.png", "0.right.png"], "left.png"),
        (["0.jpg", "1.cls", "1.v1.jpg"], "v1.jpg"),
    ],
)
def test_an_image_with_dots_in_its_name_is_not_lost(tmp_path, names, suffix):
    path = write(tmp_path, [(name, b"1") for name in names])
    with pytest.raises(DataError, match="ends at the first dot") as error:
        open_index(path)
    cure = f"columns={{'image': '{suffix}'}}"
    assert cure in str(error.value)
    assert len(open_index(path, columns={"image": suffix})) == 1


def test_further_members_of_a_sample_may_lack_an_image(tmp_path):
    """Test a mask without image in an archive whose other samples have both."""
    members = [("0.jpg", b"0"), ("0.seg.png", b"m"), ("1.seg.png", b"m"), ("2.jpg", b"2")]
    index = open_index(write(tmp_path, members))
    assert (contents(index), index.skipped) == ([b"0", b"2"], 1)


# ---- Links ------------------------------------------------------------------------------------


def write_links(path, members):
    """Write (name, bytes), or (name, target, type of link)."""
    with tarfile.open(path, "w") as archive:
        for name, data, *kind in members:
            member = tarfile.TarInfo(name)
            if kind:
                member.type, member.linkname = kind[0], data
                archive.addfile(member)
            else:
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
    return str(path)


HARD, SYMBOLIC = tarfile.LNKTYPE, tarfile.SYMTYPE


@pytest.mark.parametrize("folder", ["", "./", "a/b/"])
@pytest.mark.parametrize("remote", [False, True])
def test_links_to_members_are_followed(tmp_path, site, folder, remote):
    members = [
        (f"{folder}0.cls", b"4"),
        (f"{folder}0.jpg", b"image"),
        (f"{folder}1.cls", f"{folder}0.cls", HARD),
        (f"{folder}1.jpg", f"{folder}0.jpg", HARD),
        (f"{folder}2.cls", "9.cls", SYMBOLIC),  # a later member
        (f"{folder}2.jpg", "1.jpg", SYMBOLIC),  # a link to a link
        (f"{folder}3.jpg", "../shared/x.jpg", SYMBOLIC),
        (f"{folder}9.cls", b"5"),
        (f"{folder}../shared/x.jpg", b"shared"),
    ]
    path = write_links(tmp_path / "s.tar", members)
    site.files["/s.tar"] = (tmp_path / "s.tar").read_bytes()
    with serving(site) as home:
        index = open_index(f"{home}/s.tar" if remote else path, missing=-1)
        assert contents(index) == [b"image", b"image", b"image", b"shared", b"shared"]
    assert [record.label for record in index] == [4, 4, 5, None, None]


@pytest.mark.parametrize("target", ["0.jpg", "nowhere.jpg", "/etc/hostname", "../../x.jpg", "d"])
@pytest.mark.parametrize("kind", [HARD, SYMBOLIC])
@pytest.mark.parametrize("suffix", ["jpg", "cls"])
def test_a_link_that_leads_nowhere_costs_its_record(tmp_path, target, kind, suffix):
    links = [(f"0.{suffix}", target.replace("jpg", suffix), kind)]
    members = [("0.jpg", b"image"), *links] if suffix == "cls" else links
    path = write_links(tmp_path / "s.tar", [*members, ("1.jpg", b"good"), ("1.cls", b"1")])
    with sampled_batcher(path, batch_size=2, processor=lambda data, out: np.zeros(2)) as batches:
        assert [batch.count for batch in batches] == [1]
    assert batches.dropped == 1


def test_labels_of_links_are_those_of_their_targets(tmp_path):
    about = json.dumps({"n": 3}).encode()
    members = [("0.json", about), ("0.npy", b"0"), ("1.json", "0.json", HARD), ("1.npy", b"1")]
    path = write_links(tmp_path / "s.tar", members)
    index = open_index(path, columns={"label": "json:n"}, partition=1, partitions=2)
    assert [record.label for record in index] == [3]
