"""A file appears complete or not at all; a full disk is an error before any work."""

import errno
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from layoutkit._utils.files import AtomicFiles, replace_atomically, reserve_space


@pytest.fixture(params=["unnamed", "named"])
def either_way(request, monkeypatch):
    """Hide unfinished files in both ways: without a name, or by a temporary name as a fallback."""
    if request.param == "named":
        monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    elif not hasattr(os, "O_TMPFILE"):
        pytest.skip("this system has no unnamed files")


@pytest.mark.usefixtures("either_way")
class TestReplacing:
    def test_the_file_appears_at_the_end(self, tmp_path):
        target = tmp_path / "x"
        with replace_atomically(target) as file:
            file.write(b"new")
            assert not target.exists()
        assert target.read_bytes() == b"new"
        assert os.listdir(tmp_path) == ["x"]

    def test_an_existing_file_is_replaced_and_keeps_its_permissions(self, tmp_path):
        target = tmp_path / "x"
        target.write_bytes(b"old")
        target.chmod(0o640)
        with replace_atomically(target) as file:
            file.write(b"new")
            assert target.read_bytes() == b"old"
        assert target.read_bytes() == b"new"
        assert target.stat().st_mode & 0o777 == 0o640

    def test_a_new_file_has_the_permissions_of_any_new_file(self, tmp_path):
        (tmp_path / "plain").write_bytes(b"")
        with replace_atomically(tmp_path / "x"):
            pass
        assert (tmp_path / "x").stat().st_mode == (tmp_path / "plain").stat().st_mode

    def test_the_data_is_on_disk_before_it_has_the_name(self, tmp_path, monkeypatch):
        target = tmp_path / "x"
        target.write_bytes(b"old")
        synced = []
        fsync = os.fsync

        def noted(descriptor):
            synced.append((os.fstat(descriptor).st_size, target.read_bytes()))
            fsync(descriptor)

        monkeypatch.setattr(os, "fsync", noted)
        with replace_atomically(target) as file:
            file.write(b"the new content")
        assert synced == [(15, b"old")]

    @pytest.mark.parametrize("exception", [ValueError, KeyboardInterrupt, SystemExit])
    def test_any_exception_leaves_all_as_it_was(self, tmp_path, exception):
        target = tmp_path / "x"
        target.write_bytes(b"old")
        with pytest.raises(exception), replace_atomically(target) as file:
            file.write(b"new")
            raise exception
        assert target.read_bytes() == b"old"
        assert os.listdir(tmp_path) == ["x"]

    def test_a_link_is_followed(self, tmp_path):
        real = tmp_path / "real"
        link = tmp_path / "link"
        real.write_bytes(b"old")
        link.symlink_to(real)
        with replace_atomically(link) as file:
            file.write(b"new")
        assert link.is_symlink()
        assert real.read_bytes() == b"new"

    def test_names_that_are_taken_are_left_alone(self, tmp_path, monkeypatch):
        """Create the temporary file that a killed process leaves; the next name is tried."""
        words = iter(["taken", "taken", "free"])
        monkeypatch.setattr("secrets.token_hex", lambda _: next(words))
        (tmp_path / ".x.taken.tmp").write_bytes(b"of another")
        with replace_atomically(tmp_path / "x") as file:
            file.write(b"new")
        assert (tmp_path / "x").read_bytes() == b"new"
        assert (tmp_path / ".x.taken.tmp").read_bytes() == b"of another"
        assert sorted(os.listdir(tmp_path)) == [".x.taken.tmp", "x"]

    def test_where_no_name_is_free(self, tmp_path, monkeypatch):
        monkeypatch.setattr("secrets.token_hex", lambda _: "taken")
        (tmp_path / ".x.taken.tmp").write_bytes(b"of another")
        with pytest.raises(OSError, match="temporary names"), replace_atomically(tmp_path / "x"):
            pass
        assert os.listdir(tmp_path) == [".x.taken.tmp"]

    def test_two_writers_of_one_process_id(self, tmp_path):
        """Processes in containers all have id 1: the last to finish gets the name, none fails."""
        target = tmp_path / "x"
        with replace_atomically(target) as outer:
            outer.write(b"outer")
            with replace_atomically(target) as inner:
                inner.write(b"inner")
            assert target.read_bytes() == b"inner"
        assert target.read_bytes() == b"outer"
        assert os.listdir(tmp_path) == ["x"]

    def test_threads_that_write_one_file(self, tmp_path):
        def write(number):
            for _ in range(50):
                with replace_atomically(tmp_path / "x") as file:
                    file.write(bytes([number]) * 1000)

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(write, range(8)))
        result = (tmp_path / "x").read_bytes()
        assert (len(result), len(set(result))) == (1000, 1)
        assert os.listdir(tmp_path) == ["x"]

    def test_a_long_name(self, tmp_path):
        name = "ä" * 127  # 254 of 255 bytes
        with replace_atomically(tmp_path / name):
            pass
        assert os.listdir(tmp_path) == [name]

    def test_links_in_a_circle(self, tmp_path):
        (tmp_path / "x").symlink_to("y")
        (tmp_path / "y").symlink_to("x")
        with pytest.raises(OSError, match="symbolic links"), replace_atomically(tmp_path / "x"):
            pass
        assert sorted(os.listdir(tmp_path)) == ["x", "y"]

    @pytest.mark.budget(0)
    def test_a_killed_writer_stops_nobody(self, tmp_path):
        lines = ["import os, signal", "from pathlib import Path", "pid = os.getpid()"]
        lines += ["os.getpid = lambda: 1", "from layoutkit._utils.files import replace_atomically"]
        lines += ["del os.O_TMPFILE"] * (not hasattr(os, "O_TMPFILE"))
        lines += ["block = replace_atomically(Path('x'))", "block.__enter__()"]
        code = "\n".join([*lines, "os.kill(pid, signal.SIGKILL)"])
        for _ in range(3):
            subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=False)
        with replace_atomically(tmp_path / "x") as file:
            file.write(b"whole")
        assert (tmp_path / "x").read_bytes() == b"whole"

    def test_an_impossible_folder_is_named(self, tmp_path):
        target = tmp_path / "none" / "x"
        with pytest.raises(FileNotFoundError) as caught, replace_atomically(target):
            pass
        assert caught.value.filename == str(target)


@pytest.mark.parametrize("links", [True, False])
@pytest.mark.parametrize("old", [None, b"old"])
@pytest.mark.usefixtures("either_way")
class TestFilesTogether:
    def test_all_appear_at_the_end(self, tmp_path, old, links, monkeypatch):
        write_old(tmp_path / "x", old, links, monkeypatch)
        with AtomicFiles() as files:
            for name in "xy":
                files.open(tmp_path / name).write(name.encode())
            assert (tmp_path / "x").exists() == (old is not None)
            assert not (tmp_path / "y").exists()
        assert [(tmp_path / name).read_bytes() for name in "xy"] == [b"x", b"y"]
        assert sorted(os.listdir(tmp_path)) == ["x", "y"]

    def test_a_name_that_cannot_be_taken_leaves_the_others_unchanged(
        self, tmp_path, old, links, monkeypatch
    ):
        write_old(tmp_path / "x", old, links, monkeypatch)
        (tmp_path / "y").mkdir()
        with pytest.raises(IsADirectoryError) as caught, AtomicFiles() as files:
            for name in "xy":
                files.open(tmp_path / name).write(b"new")
        assert caught.value.filename == str(tmp_path / "y")
        left = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
        # Without links the old file cannot be kept.
        assert left == ({} if old is None else {"x": old if links else b"new"})

    def test_an_error_that_closing_finds_does_not_hide_the_first(
        self, tmp_path, old, links, monkeypatch
    ):
        write_old(tmp_path / "x", old, links, monkeypatch)
        with pytest.raises(ZeroDivisionError), AtomicFiles() as files:
            file = files.open(tmp_path / "x")
            file.write(b"unwritten")
            os.close(file.fileno())
            raise ZeroDivisionError
        assert os.listdir(tmp_path) == ["x"] * (old is not None)


def write_old(path, old, links, monkeypatch):
    """Write the file that is replaced; without links, an existing file gets no second name."""
    if old is not None:
        path.write_bytes(old)
    real = os.link

    def link(source, *args, **kwargs):
        if not links and not str(source).startswith("/proc"):
            raise OSError(errno.EPERM, "no links")
        real(source, *args, **kwargs)

    monkeypatch.setattr(os, "link", link)


def test_a_failed_renaming_leaves_nothing(tmp_path):
    target = tmp_path / "x"
    with pytest.raises(OSError, match="directory"), replace_atomically(target):
        target.mkdir()  # created meanwhile: a file cannot replace a folder
    assert os.listdir(tmp_path) == ["x"]


def test_reserve_claims_all_of_the_room(tmp_path):
    with replace_atomically(tmp_path / "x") as file:
        reserve_space(file, 3_000_001)
        status = os.fstat(file.fileno())
        assert status.st_size == 3_000_001
        assert status.st_blocks * 512 >= 3_000_000
        assert file.tell() == 0


@pytest.mark.parametrize("code", [errno.EOPNOTSUPP, errno.EINVAL])
def test_reserve_writes_zeros_where_the_system_cannot_claim(tmp_path, monkeypatch, code):
    def refuse(*_):
        raise OSError(code, "no")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    with replace_atomically(tmp_path / "x") as file:
        reserve_space(file, 3_000_001)
        assert file.tell() == 0
    assert (tmp_path / "x").read_bytes() == bytes(3_000_001)


def test_reserve_passes_a_full_disk_on(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    with pytest.raises(OSError, match="full"), replace_atomically(tmp_path / "x") as file:
        reserve_space(file, 10)
    assert os.listdir(tmp_path) == []
