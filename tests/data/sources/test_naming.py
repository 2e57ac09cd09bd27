"""The files that a table may name: at its own scheme, on web servers, or at allowed schemes."""

import uuid

import fsspec
import pytest

from layoutkit import DataError
from layoutkit.data import open_index
from layoutkit.data.io.reader import Reader
from layoutkit.data.sources import partfiles
from tests.helpers.loopback import serving


def at_url(text, name="x.csv", folder=None):
    folder = folder or f"memory://{uuid.uuid4()}"
    with fsspec.open(f"{folder}/{name}", "w") as file:
        file.write(text)
    return f"{folder}/{name}"


def at_path(tmp_path, text):
    (tmp_path / "x.csv").write_text(text)
    return tmp_path / "x.csv"


CHAINS = ["reference://x::http://h/r.json", "simplecache::http://h/x", "zip://a::/etc/hostname"]
OTHERS = ["memory://x/y", "local:///etc/hostname", "s3://b/x", "dir://x", "FILE:///etc/hostname"]
LOCAL = ["/etc/hostname", "file:///etc/hostname"]


@pytest.mark.parametrize("name", [*CHAINS, *OTHERS])
def test_a_local_table_names_files_and_web_servers(tmp_path, name):
    path = at_path(tmp_path, f"filename\na.png\n{name}\n")
    with pytest.raises(DataError, match=r"x\.csv, line 3: .*(schemes=|chains)"):
        open_index(path)


@pytest.mark.parametrize("name", [*CHAINS, *LOCAL, "s3://b/x", "local:///etc/hostname", "a::b"])
def test_a_table_at_a_url_names_no_local_files(name):
    with pytest.raises(DataError, match=r"x\.csv, line 2: .*(schemes=|chains)"):
        open_index(at_url(f"filename\n{name}\n"))


@pytest.mark.parametrize("prefix", ["/etc", "data", "file:///etc", "zip://a::http://h/b", "s3://b"])
def test_nor_do_its_names_begin_with_such(prefix):
    path = at_url("filename\nhostname\n")
    at_url(f"url_prefix\n{prefix}\n", "x-meta.csv", path.rpartition("/")[0])
    with pytest.raises(DataError, match=r"line 2: .*(schemes=|chains)"):
        open_index(path)


def test_what_is_allowed_is_read(tmp_path, site):
    site.files["/a"] = b"web"
    (tmp_path / "a").write_bytes(b"local")
    with serving(site) as home:
        table = at_url(f"filename\na\n{home}/a\nmemory://there/a\n")
        folder = table.rpartition("/")[0]
        for url in (f"{folder}/a", "memory://there/a"):
            with fsspec.open(url, "wb") as file:
                file.write(b"memory")
        found = [Reader().read(record.url) for record in open_index(table)]
        assert found == [b"memory", b"web", b"memory"]
        local = at_path(tmp_path, f"filename\na\n{tmp_path}/a\nfile://{tmp_path}/a\n{home}/a\n")
        found = [Reader().read(record.url) for record in open_index(local)]
        assert found == [b"local"] * 3 + [b"web"]


def test_more_is_allowed_by_name(tmp_path):
    table = at_url(f"filename\n{tmp_path}/a\nfile://{tmp_path}/a\n")
    assert len(open_index(table, schemes=("file",))) == 2
    local = at_path(tmp_path, "filename\ns3://b/x\n")
    assert open_index(local, schemes=["s3"])[0].url == "s3://b/x"
    with pytest.raises(DataError, match="chains"):
        open_index(at_path(tmp_path, "filename\nzip://a::s3://b\n"), schemes=["s3", "zip"])


@pytest.mark.parametrize("schemes", ["s3", None, [3], ("s3://",), [""]])
def test_schemes_are_words(tmp_path, schemes):
    with pytest.raises(DataError, match="schemes="):
        open_index(at_path(tmp_path, "filename\na\n"), schemes=schemes)


def test_names_out_of_a_listing_are_no_chains(monkeypatch):
    monkeypatch.setattr(partfiles, "list_files", lambda folder: ["a", "zip:b::http:c"])
    with pytest.raises(DataError, match="chain"):
        open_index("memory://x")


def test_a_local_name_may_have_colons(tmp_path):
    (tmp_path / "a::b").write_bytes(b"x")
    [record] = open_index(at_path(tmp_path, "filename\na::b\n"))
    assert Reader().read(record.url) == b"x"
