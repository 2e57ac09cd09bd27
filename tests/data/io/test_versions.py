"""Remote files that are replaced on their server while they are read."""

import io
import tarfile

import numpy as np
import pytest

from layoutkit import DataError
from layoutkit.data import open_index, sampled_batcher
from layoutkit.data.io.filesystem import open_binary, read_all
from layoutkit.data.io.http import ByteRange
from layoutkit.data.io.reader import RangeFile, Reader
from layoutkit.data.io.responses import ChangedFileError, FileVersion
from tests.helpers.loopback import serving

ROWS = 60_000
OLD, NEW = ("filename\n" + "".join(f"{v}/{i:06}.bin\n" for i in range(ROWS)) for v in "ab")
OLD, NEW = OLD.encode(), NEW.encode()
TAGS = {
    "etag": ({"ETag": '"1"'}, {"ETag": '"2"'}),
    "weak etag": ({"ETag": 'W/"1"'}, {"ETag": 'W/"2"'}),
    "modified": (
        {"Last-Modified": "Sun, 22 Nov 2026 10:00:00 GMT"},
        {"Last-Modified": "Sun, 22 Nov 2026 10:00:01 GMT"},
    ),
}


def replace(site, path, data, headers, answer="ok"):
    """Return a script's function that replaces a file before it is sent."""

    def answer_with_new():
        site.files[path] = data
        site.headers[path] = headers
        return answer

    return answer_with_new


def tar_of(images):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, data in images.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return file.getvalue()


@pytest.mark.parametrize("ranges", [True, False])
@pytest.mark.parametrize("tag", TAGS)
def test_a_table_that_changes_while_it_is_read_is_an_error(site, tag, ranges):
    old, new = TAGS[tag]
    site.ranges = ranges
    site.files["/i.csv"], site.headers["/i.csv"] = OLD, old
    site.script["/i.csv"] = ["cut", replace(site, "/i.csv", NEW, new)]
    with serving(site) as url, pytest.raises(DataError) as error:
        open_index(f"{url}/i.csv")
    text = str(error.value)
    assert f"{url}/i.csv changed on its server" in text
    assert all(value in text for value in (*old.values(), *new.values()))


def test_a_table_of_another_length_is_an_error_without_a_validator(site):
    site.files["/i.csv"] = OLD
    site.script["/i.csv"] = ["cut", replace(site, "/i.csv", NEW + b"b/x.bin\n", {})]
    with serving(site) as url, pytest.raises(DataError, match=f"it was {len(OLD)} bytes"):
        open_index(f"{url}/i.csv")


@pytest.mark.parametrize("etag", [None, '"1"', 'W/"1"'])
def test_no_weak_etag_is_sent_with_a_range(etag):
    """A server sends the whole file if a weak ETag is in `If-Range`."""
    headers = ByteRange(5, 3, None, FileVersion(etag)).headers
    assert headers["Range"] == "bytes=5-7"
    assert headers.get("If-Range") == (etag if etag == '"1"' else None)


def test_an_unchanged_table_is_resumed(site):
    site.files["/i.csv"], site.headers["/i.csv"] = OLD, TAGS["etag"][0]
    site.script["/i.csv"] = ["cut", "cut"]
    with serving(site) as url:
        index = open_index(f"{url}/i.csv")
        assert len(index) == ROWS
        assert index[ROWS - 1].url.endswith(f"a/{ROWS - 1:06}.bin")
    assert site.asked.count("/i.csv") == 3


def test_a_file_that_changes_before_its_first_bytes_is_read_anew(site):
    site.files["/i.csv"], site.headers["/i.csv"] = OLD, TAGS["etag"][0]
    site.script["/i.csv"] = ["reset", replace(site, "/i.csv", NEW, TAGS["etag"][1])]
    with serving(site) as url, open_binary(f"{url}/i.csv") as file:
        assert file.read() == NEW


def test_a_file_that_is_read_whole_is_read_once_more(site):
    site.files["/x"], site.headers["/x"] = OLD, TAGS["etag"][0]
    site.script["/x"] = ["cut", replace(site, "/x", NEW, TAGS["etag"][1])]
    with serving(site) as url:
        assert read_all(f"{url}/x").read() == NEW


@pytest.mark.parametrize("cached", [False, True])
def test_records_of_an_archive_that_was_replaced_are_errors(site, tmp_path, cached):
    first = tar_of({f"{i}.jpg": bytes([i]) * 700 for i in range(3)})
    site.files["/a.tar"], site.headers["/a.tar"] = first, TAGS["etag"][0]
    second = tar_of({f"{i}.jpg": bytes([i + 9]) * 700 for i in range(3)})
    keywords = {"cache_dir": tmp_path} if cached else {}
    with serving(site) as url:
        index = open_index(f"{url}/a.tar")
        assert len(index) == 3
        site.files["/a.tar"], site.headers["/a.tar"] = second, TAGS["etag"][1]
        read = index.getter(Reader())
        with pytest.raises(DataError, match=r'it was ETag "1", .* and is ETag "2"'):
            read(index[1])
        keywords["processor"] = lambda data, out: np.frombuffer(data, np.uint8)
        with (
            pytest.raises(DataError, match="changed on its server"),
            sampled_batcher(index, batch_size=3, on_error="raise", **keywords) as batcher,
        ):
            list(batcher)
        again = open_index(f"{url}/a.tar")
        assert again.getter(Reader())(again[1]) == bytes([10]) * 700


def test_a_part_of_another_length_is_an_error(site):
    site.files["/x.bin"] = bytes(1000)
    with serving(site) as url:
        file = RangeFile(f"{url}/x.bin")
        assert file.read_at(10, 5) == bytes(5)
        site.files["/x.bin"] = bytes(1001)
        with pytest.raises(ChangedFileError, match="it was 1000 bytes, and is 1001 bytes"):
            file.read_at(10, 5)


def test_lines_of_a_part_that_was_replaced_are_errors(site):
    page = b'<a href="part-0">part-0</a>'
    site.files.update({"/parts/": page, "/parts": page, "/parts/part-0": b"one\ntwo\n"})
    site.headers["/parts/"] = site.headers["/parts"] = {"Content-Type": "text/html"}
    site.headers["/parts/part-0"] = {"ETag": '"1"'}
    with serving(site) as url:
        index = open_index(f"{url}/parts", kind="parts")
        assert index.getter(Reader())(index[1]) == b"two"
        site.files["/parts/part-0"] = b"ten\nsix\n"
        site.headers["/parts/part-0"] = {"ETag": '"2"'}
        with pytest.raises(ChangedFileError):
            index.getter(Reader())(index[1])


@pytest.mark.parametrize(
    ("before", "after", "changed"),
    [
        (FileVersion('"1"', "a", 5), FileVersion('"1"', "b", 5), False),  # the ETag decides
        (FileVersion('W/"1"', None, 5), FileVersion('"1"', None, 5), False),
        (FileVersion('"1"', None, 5), FileVersion('"1"', None, 6), True),
        (FileVersion(None, "a", 5), FileVersion('"1"', "b", 5), True),
        (FileVersion(None, "a", None), FileVersion(None, "a", 6), False),
        (FileVersion(), FileVersion('"1"', "b", 5), False),
    ],
)
def test_two_versions_differ(before, after, changed):
    assert before.differs(after) is after.differs(before) is changed
