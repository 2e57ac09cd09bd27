"""A file appears complete or not at all, and says at once when there is no room for it."""

import errno
import os

import pytest

from layoutkit.atomic import replacing, reserve


@pytest.fixture(params=["unnamed", "named"])
def either_way(request, monkeypatch):
    """Both ways of hiding an unfinished file; systems without unnamed files take the second."""
    if request.param == "named":
        monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    elif not hasattr(os, "O_TMPFILE"):
        pytest.skip("this system has no unnamed files")


@pytest.mark.usefixtures("either_way")
class TestReplacing:
    def test_the_file_appears_at_the_end(self, tmp_path):
        target = tmp_path / "x"
        with replacing(target) as file:
            file.write(b"new")
            assert not target.exists()
        assert target.read_bytes() == b"new"
        assert os.listdir(tmp_path) == ["x"]

    def test_an_existing_file_is_replaced_and_keeps_its_permissions(self, tmp_path):
        target = tmp_path / "x"
        target.write_bytes(b"old")
        target.chmod(0o640)
        with replacing(target) as file:
            file.write(b"new")
            assert target.read_bytes() == b"old"
        assert target.read_bytes() == b"new"
        assert target.stat().st_mode & 0o777 == 0o640

    def test_a_new_file_has_the_permissions_of_any_new_file(self, tmp_path):
        (tmp_path / "plain").write_bytes(b"")
        with replacing(tmp_path / "x"):
            pass
        assert (tmp_path / "x").stat().st_mode == (tmp_path / "plain").stat().st_mode

    @pytest.mark.parametrize("exception", [ValueError, KeyboardInterrupt, SystemExit])
    def test_any_exception_leaves_all_as_it_was(self, tmp_path, exception):
        target = tmp_path / "x"
        target.write_bytes(b"old")
        with pytest.raises(exception), replacing(target) as file:
            file.write(b"new")
            raise exception
        assert target.read_bytes() == b"old"
        assert os.listdir(tmp_path) == ["x"]

    def test_a_link_is_followed(self, tmp_path):
        real, link = tmp_path / "real", tmp_path / "link"
        real.write_bytes(b"old")
        link.symlink_to(real)
        with replacing(link) as file:
            file.write(b"new")
        assert link.is_symlink()
        assert real.read_bytes() == b"new"

    def test_an_impossible_folder_is_named(self, tmp_path):
        target = tmp_path / "none" / "x"
        with pytest.raises(FileNotFoundError) as caught, replacing(target):
            pass
        assert caught.value.filename == str(target)


def test_a_failed_renaming_leaves_nothing(tmp_path):
    target = tmp_path / "x"
    with pytest.raises(OSError, match="directory"), replacing(target):
        target.mkdir()  # appears meanwhile: a file cannot take the name of a folder
    assert os.listdir(tmp_path) == ["x"]


def test_reserve_claims_all_of_the_room(tmp_path):
    with replacing(tmp_path / "x") as file:
        reserve(file, 3_000_001)
        status = os.fstat(file.fileno())
        assert status.st_size == 3_000_001
        assert status.st_blocks * 512 >= 3_000_000
        assert file.tell() == 0


@pytest.mark.parametrize("code", [errno.EOPNOTSUPP, errno.EINVAL])
def test_reserve_writes_zeros_where_the_system_cannot_claim(tmp_path, monkeypatch, code):
    def refuse(*_):
        raise OSError(code, "no")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    with replacing(tmp_path / "x") as file:
        reserve(file, 3_000_001)
        assert file.tell() == 0
    assert (tmp_path / "x").read_bytes() == bytes(3_000_001)


def test_reserve_passes_a_full_disk_on(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    with pytest.raises(OSError, match="full"), replacing(tmp_path / "x") as file:
        reserve(file, 10)
    assert os.listdir(tmp_path) == []
