"""Folder listings of web servers, and files at URLs: one client, bounded time and bytes."""

import io
import struct
import subprocess
import sys
import time
from contextlib import suppress

import fsspec
import numpy as np
import pytest

from layoutkit import ArgumentError, DataError
from layoutkit.data import Dataset, open_index
from layoutkit.data.io import filesystem, http
from layoutkit.data.io.http import parse_listing
from layoutkit.data.io.reader import Reader
from tests.helpers.loopback import serving
from tests.helpers.lying import BODY, SLOW, answering, head, sent

PLACE = "http://host/some/parts/"


@pytest.fixture
def home(site):
    with serving(site) as home:
        yield home


def listing(*links, before=""):
    return (before + "".join(f'<li><a href="{link}">x</a>' for link in links)).encode()


def page(*links, **lines):
    said = [f"{name}: {value}".replace("_", "-") for name, value in lines.items()]
    return sent(200, listing(*links), "Content-Type: text/html; charset=utf-8", *said)


@pytest.mark.parametrize(
    ("link", "name"),
    [
        ("one", "one"),
        ("./one", "one"),
        (" one\n", "one"),
        ("one#top", "one"),
        ("/some/parts/one", "one"),
        ("//host/some/parts/one", "one"),
        ("http://host/some/parts/one", "one"),
        ("HTTP://HOST:80/some/parts/one", "one"),
        ("https://host/some/parts/one", "one"),
        ("/some/p%61rts/one", "one"),
        ("below/../one", "one"),
        ("a%20b", "a%20b"),
        ("a%3Fb", "a%3Fb"),
        ("a&amp;b", "a&b"),
        ("part=1,x;y", "part=1,x;y"),
        ("", None),
        ("#top", None),
        ("?C=N;O=D", None),
        ("one?raw=1", None),
        ("/", None),
        ("..", None),
        ("../", None),
        ("../one", None),
        ("http://host/some/parts/../one", None),
        ("../parts2/one", None),
        ("%2e%2e", None),
        ("below/", None),
        ("below/one", None),
        ("below%2Fone", None),
        ("/one", None),
        ("//other/some/parts/one", None),
        ("http://other/some/parts/one", None),
        ("http://host.other/some/parts/one", None),
        ("http://host@other/some/parts/one", None),
        ("http://host:81/some/parts/one", None),
        ("ftp://host/some/parts/one", None),
        ("file:///some/parts/one", None),
        ("mailto:one@host", None),
        ("javascript:one", None),
        ("http://[", None),
        ("http://host:x/some/parts/one", None),
        ("memory://a/b", None),
        ("./memory://a/b", None),
    ],
)
@pytest.mark.parametrize("place", [PLACE, PLACE.rstrip("/")])
def test_a_file_is_a_link_into_the_folder_itself(link, name, place):
    assert parse_listing(listing(link), place) == ([] if name is None else [name])


@pytest.mark.parametrize(
    "text",
    [
        "<a href=one>",
        "<A HREF='one'>",
        '<a\n class="x"\n hReF = "one"\n>',
        '<a href="one" href="two">',
        "<!-- <a href=two> --><a href=one>",
        "<script>'<a href=two>'</script><a href=one>",
        "<a>two</a><a href>two</a><link href=two><a href=one><a href=one>",
        "http://host/some/parts/two <a href=one>",
        "<a href=one><a href=two",
        '<a href="&#111;ne">',
        "\u00e4\ud800<a href=one>",
    ],
)
def test_links_are_those_of_html(text):
    assert parse_listing(text.encode("utf-8", "surrogatepass"), PLACE) == ["one"]


@pytest.mark.parametrize("tag", ["<a", "<!--", '<a href="', "<a \n", "<a/", "</a ", "<!", "<?x"])
@pytest.mark.parametrize("end", ["", ">"])
def test_no_page_takes_long(tag, end):
    began = time.monotonic()
    with suppress(ValueError):
        parse_listing((tag * (300_000 // len(tag)) + end).encode(), PLACE)
    assert time.monotonic() - began < 20


def test_links_across_pieces(monkeypatch):
    monkeypatch.setattr(http, "_PIECE", 7)
    names = [f"part-{number}" for number in range(50)]
    assert parse_listing(listing(*names), PLACE) == names


# ---- as servers send them --------------------------------------------------------------------


def test_part_files_of_a_page():
    links = ("b", "a%20b", "_SUCCESS", ".hidden", "http://other/x/c", "/x/d", "../y", "?C=M")
    with answering(page(*links)) as url:
        for folder in (url, f"{url}/"):
            index = open_index(folder)
            assert index.parts == [f"{url}/{name}" for name in ("a%20b", "b", "d")]


def test_a_folder_whose_files_are_all_hidden_or_elsewhere_is_empty():
    found = "has no records: there are no files in the folder"
    links = page("../", "_SUCCESS", "http://other/x/c")
    with answering(links) as url, pytest.raises(DataError, match=found):
        open_index(url)


def test_a_folder_may_be_redirected(site, home):
    site.script["/parts"] = ["/v3/parts/"]
    site.files["/v3/parts/"] = listing("one", "/v3/parts/two", "/parts/three")
    assert filesystem.list_files(f"{home}/parts") == ["one", "two"]


def test_folders_and_files_are_looked_for_with_patience(site, home):
    site.files["/parts/"] = listing("b", "a")
    site.script["/parts/"] = ["reset", 503, "cut"]
    assert filesystem.list_files(f"{home}/parts/") == ["a", "b"]
    site.script["/parts/"] = [503, "reset"]
    assert filesystem.exists(f"{home}/parts/")
    site.script["/parts/"] = [500, 404]
    assert not filesystem.exists(f"{home}/parts/")
    assert site.asked == ["/parts/"] * 9


@pytest.mark.parametrize(("status", "found"), [(200, True), (403, False), (404, False)])
def test_a_file_is_there_or_not(status, found):
    with answering(sent(status, b"x" * 10**6)) as url:
        assert filesystem.exists(url) == found


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_server_that_does_not_say_is_an_error(status):
    with answering(sent(status, b"")) as url, pytest.raises(DataError, match=str(status)):
        filesystem.exists(url)


NO_FOLDERS = {
    "a file": (sent(200, b"<a href=x>", "Content-Type: image/png"), "file of type image/png"),
    "packed": (page("x", Content_Encoding="gzip"), "Content-Encoding"),
    "no links": (
        sent(200, b"<p>Welcome", "Content-Type: text/html"),
        "page has no links: the folder is empty",
    ),
    "endless tag": (sent(200, b"<a " * 10**6), "tag of more than 262144 characters"),
    "nothing there": (sent(404, b"<a href=x>"), "404"),
    "part of a page": (
        sent(206, b"<a href=x>", "Content-Range: bytes 0-9/99"),
        "byte range that was not",
    ),
}


@pytest.mark.parametrize("case", NO_FOLDERS)
def test_what_is_no_folder_says_so(case):
    answer, words = NO_FOLDERS[case]
    with answering(answer) as url, pytest.raises(DataError, match=f"{url} cannot.*{words}"):
        open_index(url)


@pytest.mark.parametrize("more", ["?dir=x", "#x"])
def test_a_folder_has_no_query(more):
    with (
        answering(page("x")) as url,
        pytest.raises(DataError, match="is not the URL of a folder; omit the"),
    ):
        open_index(f"{url}/{more}")


@pytest.mark.budget(6)
@pytest.mark.parametrize("case", SLOW)
@pytest.mark.parametrize("ask", [filesystem.list_files, filesystem.exists])
def test_asking_has_an_end(case, ask, monkeypatch):
    monkeypatch.setattr(filesystem, "SECONDS_IN_ALL", 0.2)  # but the minimum is one second
    pieces, endless, every = SLOW[case]
    began = time.monotonic()
    with answering(*pieces, endless=endless, every=every) as url, suppress(DataError):
        assert ask(url) is True  # a complete header is a sufficient answer
    assert time.monotonic() - began < 8


@pytest.mark.parametrize("case", BODY)
def test_a_page_has_no_more_bytes_than_it_may(case, monkeypatch):
    monkeypatch.setattr(http, "MAX_PAGE_BYTES", 10**6)
    start, endless = BODY[case]
    with (
        answering(start, endless=endless) as url,
        pytest.raises(DataError, match="1000000 bytes that the page of a folder may have; spread"),
    ):
        open_index(url)


@pytest.mark.budget(0)
def test_http_is_read_without_a_second_client():
    code = (
        "import sys; sys.modules['aiohttp'] = sys.modules['fsspec'] = None\n"
        "from layoutkit.data import open_index; from layoutkit.data.io.filesystem import exists\n"
        "print(open_index(sys.argv[1]).parts, exists(sys.argv[1]))"
    )
    with answering(page("a")) as url:
        ran = subprocess.run([sys.executable, "-c", code, url], capture_output=True, text=True)
    assert ran.stdout.strip() == f"{[url + '/a']} True", ran.stderr


# ---- tables, arrays and part files at URLs ---------------------------------------------------

NAMES = ["x.csv", "x.tsv", "x.npy", "x.npz", "x.safetensors", "x.pt"]


@pytest.fixture
def _little(monkeypatch):
    monkeypatch.setenv("LAYOUTKIT_URL_LIMIT", "1M")


@pytest.mark.usefixtures("_little")
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("case", BODY)
def test_what_is_opened_at_a_url_has_an_end(name, case):
    for module in {"x.pt": ["torch"], "x.safetensors": ["safetensors"]}.get(name, []):
        pytest.importorskip(module)
    start, endless = BODY[case]
    words = r"1048576 bytes that a table or array at a URL may have; LAYOUTKIT_URL_LIMIT= in"
    with answering(start, endless=endless) as url, pytest.raises(DataError, match=words):
        open_index(f"{url}/{name}")


@pytest.mark.usefixtures("_little")
@pytest.mark.parametrize("endless", [b"\n" * 65536, b"x" * 65536])
def test_a_part_file_at_a_url_has_an_end(endless, monkeypatch):
    monkeypatch.setattr("layoutkit.data.sources.partfiles.list_files", lambda _: ["one"])
    with answering(head(200, "Connection: close"), endless=endless) as url:
        index = open_index(url)
        with pytest.raises(DataError, match="LAYOUTKIT_URL_LIMIT"):
            len(index)


def test_a_file_at_a_url_may_have_as_many_bytes_as_it_may(site, home, monkeypatch):
    np.save(file := io.BytesIO(), np.arange(100))
    site.files["/x.npy"] = data = file.getvalue()
    site.script["/x.npy"] = ["cut"]  # bytes before the cut count, too
    monkeypatch.setenv("LAYOUTKIT_URL_LIMIT", str(len(data)))
    assert Dataset(f"{home}/x.npy")._shape() == (100,)
    monkeypatch.setenv("LAYOUTKIT_URL_LIMIT", str(len(data) - 1))
    found = f"it has {len(data)} bytes, more than the {len(data) - 1} bytes"
    with pytest.raises(DataError, match=found):
        Dataset(f"{home}/x.npy")
    monkeypatch.setenv("LAYOUTKIT_URL_LIMIT", "much")
    with pytest.raises(ArgumentError, match="LAYOUTKIT_URL_LIMIT: 'much' is not a number of bytes"):
        Dataset(f"{home}/x.npy")


@pytest.mark.usefixtures("_little")
def test_what_is_packed_at_a_url_counts_as_it_is_unpacked(site, home):
    np.savez_compressed(file := io.BytesIO(), a=np.zeros(1 << 16), b=np.zeros(1 << 17))
    assert len(file.getvalue()) < 1 << 13
    site.files["/x.npz"] = file.getvalue()
    with pytest.raises(DataError, match="it has 1572864 bytes, more than the 1048576"):
        open_index(f"{home}/x.npz")


@pytest.mark.parametrize(
    ("shape", "words"),
    [("(1 << 40,)", "cannot be read"), ("(1099511627776,)", "8796093022208 bytes are missing")],
)
def test_a_shape_at_a_url_is_believed_up_to_the_bytes_there(site, home, shape, words):
    text = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    site.files["/x.npy"] = b"\x93NUMPY\x01\x00" + struct.pack("<H", 118) + text.encode()
    with pytest.raises(DataError, match=words):
        open_index(f"{home}/x.npy")


@pytest.mark.usefixtures("_little")
def test_local_files_have_any_size(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros(1 << 18))
    assert len(open_index(f"file://{tmp_path}/x.npy")) == 1 << 18


# ---- other protocols -------------------------------------------------------------------------


class Endless(fsspec.AbstractFileSystem):
    """A file system of endless files, or of a stated size, that records the requested sizes."""

    protocol = "endless"
    cachable = False
    asked: list
    size = None
    pause = 0.0

    def _open(self, path, mode="rb", **_):
        return self

    def cat_file(self, path, start=None, end=None, **_):
        return b"x" * 1000  # ignores the requested range

    def read(self, count):
        time.sleep(self.pause)
        Endless.asked.append(count)
        return b"x" * count

    def close(self):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


@pytest.fixture
def endless(monkeypatch):
    fsspec.register_implementation("endless", Endless, clobber=True)
    monkeypatch.setattr(Endless, "asked", [], raising=False)
    return Endless


@pytest.mark.parametrize("most", [0, 10, 10**6])
def test_no_more_than_one_byte_too_many_is_read_of_a_record(endless, most):
    with pytest.raises(DataError, match=f"more than the {most} bytes that a record may have"):
        Reader(max_record_bytes=most).read("endless://x/y")
    assert sum(endless.asked) == most + 1


def test_a_size_that_is_too_large_is_believed(endless, monkeypatch):
    monkeypatch.setattr(Endless, "size", 10**15)
    with pytest.raises(DataError, match=f"it has {10**15} bytes, more than the 9 bytes"):
        Reader(max_record_bytes=9).read("endless://x/y")
    with pytest.raises(DataError, match=f"it has {10**15} bytes, more than the {1 << 30} bytes"):
        open_index("endless://x/y.csv")
    assert endless.asked == []


@pytest.mark.usefixtures("endless")
def test_more_than_the_part_that_was_asked_for_is_an_error():
    with pytest.raises(DataError, match="1000 bytes came, and 10 were asked for from byte 5"):
        Reader().read("endless://x/y", 5, 10)


@pytest.mark.usefixtures("_little")
def test_what_is_opened_by_other_protocols_has_an_end(endless):
    with pytest.raises(DataError, match="LAYOUTKIT_URL_LIMIT"):
        open_index("endless://x/y.csv")
    assert sum(endless.asked) <= 3 << 20  # read twice, to name the line, plus a piece


def test_time_is_looked_at_between_pieces(endless, monkeypatch):
    monkeypatch.setattr(filesystem, "SECONDS_IN_ALL", 0.2)  # but the minimum is one second
    monkeypatch.setattr("layoutkit.data.io.filesystem.CHUNK", 10)
    monkeypatch.setattr(Endless, "pause", 0.1)
    with pytest.raises(DataError, match="takes too long"):
        Reader().read("endless://x/y")
    assert 5 < len(endless.asked) < 15
