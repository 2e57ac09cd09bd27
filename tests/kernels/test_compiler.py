"""The cache of kernels on disk: used by later processes, checked, and never a cause of errors."""

import errno
import os
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import layoutkit
from layoutkit import ArgumentError, LayoutkitError
from layoutkit.kernels.cpu import compiler, object_cache
from layoutkit.kernels.cpu.compiler import KernelSpec
from tests.helpers.children import finish, python, start

# Converts an array, and prints whether Numba was imported and the origins of the kernels.
CONVERT = """
import sys
import numpy as np
import layoutkit
from layoutkit.kernels.cpu import compiler
x = np.arange(2 * 3 * 5 * 4, dtype=np.uint16).reshape(2, 3, 5, 4)
y = layoutkit.convert(x, "bchw->bhwc")
assert (y == x.transpose(0, 2, 3, 1)).all()
print("numba" in sys.modules, *{kernel.origin for kernel in compiler.loaded()})
"""
COMPILED = "True compiled\n"
CACHED = "False cached\n"
KEY = "a key"
SPEC = KernelSpec("engine", ("rows", 4, "", "", 0))


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """Return a folder that another process has filled, and the files in the folder."""
    folder = tmp_path_factory.mktemp("cache") / "kernels"
    assert python(CONVERT, LAYOUTKIT_CACHE_DIR=folder) == COMPILED
    return folder, {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def path(tmp_path):
    return tmp_path / object_cache.file_name("engine", KEY)


def kept(path):
    object_cache.write(path, KEY, b"code")
    return path.read_bytes()


# ---- a later process ---------------------------------------------------------------------


@pytest.mark.budget(0)
def test_a_second_process_finds_the_cache_and_imports_no_numba(filled):
    folder, files = filled
    assert python(CONVERT, LAYOUTKIT_CACHE_DIR=folder) == CACHED
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == files


def test_the_folder_is_closed_to_others(filled):
    folder, files = filled
    assert folder.stat().st_mode & 0o077 == 0
    assert all((folder / name).stat().st_mode & 0o077 == 0 for name in files)


def flipped(data, at):
    changed = bytearray(data)
    changed[at] ^= 0x40
    return bytes(changed)


DAMAGES = {
    "empty": lambda data: b"",
    "digest only": lambda data: data[: object_cache.DIGEST],
    "half": lambda data: data[: len(data) // 2],
    "short of a byte": lambda data: data[:-1],
    "longer": lambda data: data + b"\0",
    "digest flipped": lambda data: flipped(data, 0),
    "start flipped": lambda data: flipped(data, object_cache.DIGEST),
    "middle flipped": lambda data: flipped(data, len(data) // 2),
    "end flipped": lambda data: flipped(data, -1),
    "zeros": lambda data: bytes(len(data)),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_file_is_a_miss_and_is_written_anew(path, damage):
    whole = kept(path)
    path.write_bytes(damage(whole))
    assert object_cache.read(path, KEY) is None
    assert kept(path) == whole
    assert object_cache.read(path, KEY) == b"code"


def test_any_flipped_byte_is_a_miss(path):
    whole = kept(path)
    for at in range(len(whole)):
        path.write_bytes(flipped(whole, at))
        assert object_cache.read(path, KEY) is None


def test_the_file_of_another_kernel_is_a_miss(path):
    other = path.with_name(object_cache.file_name("engine", "another key"))
    object_cache.write(other, "another key", b"other code")
    other.replace(path)
    assert object_cache.read(path, KEY) is None


@pytest.mark.budget(0)
def test_a_process_compiles_again_what_is_damaged(filled):
    folder, files = filled
    for name, data in files.items():
        (folder / name).write_bytes(DAMAGES["middle flipped"](data))
    assert python(CONVERT, LAYOUTKIT_CACHE_DIR=folder) == COMPILED
    assert python(CONVERT, LAYOUTKIT_CACHE_DIR=folder) == CACHED
    assert {path.name for path in folder.iterdir()} == set(files)


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="files have no owner here")
def test_a_file_that_others_can_write_is_a_miss(path):
    kept(path)
    for mode in (0o620, 0o602, 0o666):
        path.chmod(mode)
        assert object_cache.read(path, KEY) is None
    path.chmod(0o644)
    assert object_cache.read(path, KEY) == b"code"


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="files have no owner here")
def test_a_file_of_another_user_is_a_miss(path, monkeypatch):
    kept(path)
    owner = path.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    assert (object_cache.read(path, KEY) == b"code") is (owner == 0)  # files of root are trusted
    stranger = os.stat_result((0o100600, 0, 0, 1, owner + 2, 0, 0, 0, 0, 0))
    monkeypatch.setattr(os, "fstat", lambda _: stranger)
    assert object_cache.read(path, KEY) is None


# ---- folders that cannot be written ------------------------------------------------------


@pytest.mark.budget(0)
def test_without_any_folder_conversions_work(tmp_path):
    """Use a file as the folder, and a folder below a file: even root cannot write there."""
    plain = tmp_path / "file"
    plain.touch()
    for folder in (plain, plain / "below"):
        assert python(CONVERT, LAYOUTKIT_CACHE_DIR=folder) == COMPILED
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="no file system that refuses root")
def test_a_folder_that_refuses_files_is_no_error():
    object_cache.write(Path("/proc/self/kernel.o"), KEY, b"code")
    assert object_cache.read(Path("/proc/self/kernel.o"), KEY) is None


def test_a_folder_in_place_of_the_file_is_no_error(path, tmp_path):
    path.mkdir()
    object_cache.write(path, KEY, b"code")
    assert object_cache.read(path, KEY) is None
    assert list(tmp_path.iterdir()) == [path]


def test_the_folder_is_chosen_by_variables(monkeypatch, tmp_path):
    monkeypatch.delenv("LAYOUTKIT_CACHE_DIR", raising=False)
    monkeypatch.setattr(compiler.sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert compiler.cache_dir() == Path("/xdg/layoutkit")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert compiler.cache_dir() == tmp_path / ".cache" / "layoutkit"
    monkeypatch.setenv("LAYOUTKIT_CACHE_DIR", str(tmp_path))
    assert compiler.cache_dir() == tmp_path
    monkeypatch.delenv("LAYOUTKIT_CACHE_DIR")
    monkeypatch.setattr(compiler.sys, "platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path))
    assert compiler.cache_dir() == tmp_path / "layoutkit" / "Cache"
    monkeypatch.delenv("LOCALAPPDATA")
    assert compiler.cache_dir() is None


def test_without_a_home_folder_kernels_are_compiled_each_time(monkeypatch):
    def nobody():
        raise RuntimeError("Could not determine home directory.")

    for name in ("LAYOUTKIT_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", nobody)
    assert compiler.cache_dir() is None
    monkeypatch.setattr(compiler, "compile_object", lambda spec: b"code")
    monkeypatch.setattr(compiler, "_link", lambda code, symbol: 64)
    assert compiler._load(SPEC).origin == "compiled"


def test_a_disk_that_fills_up_half_way_leaves_nothing(path, tmp_path, monkeypatch):
    def fdopen(handle, mode):
        os.write(handle, b"half")
        os.close(handle)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(object_cache.os, "fdopen", fdopen)
    object_cache.write(path, KEY, b"code")
    monkeypatch.undo()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("error", [OSError(errno.EACCES, "denied"), KeyboardInterrupt()])
def test_a_failed_renaming_leaves_nothing(path, tmp_path, monkeypatch, error):
    def refuse(self, target):
        raise error

    monkeypatch.setattr(Path, "replace", refuse)
    try:
        object_cache.write(path, KEY, b"code")
    except KeyboardInterrupt:
        assert isinstance(error, KeyboardInterrupt)
    assert list(tmp_path.iterdir()) == []


# ---- old files ---------------------------------------------------------------------------


def test_what_nobody_has_read_for_long_is_removed(path, tmp_path):
    old = time.time() - object_cache.KEEP_SECONDS - 60
    for name in (
        object_cache.file_name("engine", "old"),
        object_cache.file_name("engine", "o") + ".x1.tmp",
    ):
        (tmp_path / name).write_bytes(b"old")
        os.utime(tmp_path / name, (old, old))
    read = tmp_path / object_cache.file_name("engine", "still read")
    digits = 32 * "0"
    foreign = [
        tmp_path / name
        for name in ("engine-of-a-user.o", f"resnet-{digits}.onnx", f"scan-{digits}.obj",
                     f"song-{digits}.ogg", f"x-{digits}.o.keep", f"my model-{digits}.o")
    ]  # fmt: skip
    for file, used in ((read, time.time()), *((file, old) for file in foreign)):
        file.write_bytes(b"stays")
        os.utime(file, (used, old))
    linked = tmp_path / object_cache.file_name("engine", "linked")
    linked.symlink_to(foreign[0])
    os.utime(linked, (old, old), follow_symlinks=False)
    kept(path)
    assert set(tmp_path.iterdir()) == {path, read, linked, *foreign}


# ---- owners of the folder ----------------------------------------------------------------

needs_owners = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="files have no owner here")


@pytest.mark.skipif(not hasattr(os, "O_NOFOLLOW"), reason="links are followed here")
def test_a_link_is_a_miss(path, tmp_path):
    """A user who can write the folder could link to any file of this user, such as a download."""
    kept(path)
    elsewhere = tmp_path / "download"
    path.replace(elsewhere)
    path.symlink_to(elsewhere)
    assert object_cache.read(path, KEY) is None
    path.unlink()
    os.link(elsewhere, path)
    assert object_cache.read(path, KEY) is None
    elsewhere.unlink()
    assert object_cache.read(path, KEY) == b"code"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes")
def test_a_pipe_is_a_miss_and_nobody_waits_for_it(path):
    os.mkfifo(path)
    assert object_cache.read(path, KEY) is None
    with path.open("r+b", buffering=0) as pipe:
        pipe.write(object_cache.pack(KEY, b"code"))
        assert object_cache.read(path, KEY) is None


@pytest.fixture
def mine(tmp_path):
    """Return a folder of this user below another one, not yet checked by object_cache."""
    folder = tmp_path / "above" / "kernels"
    folder.mkdir(parents=True)
    folder.parent.chmod(0o755)
    folder.chmod(0o700)
    return folder


@needs_owners
def test_a_folder_that_others_can_write_is_not_trusted(mine, caplog):
    assert object_cache.is_trusted(mine)
    for place, mode in ((mine, 0o770), (mine, 0o1777), (mine.parent, 0o777), (mine.parent, 0o775)):
        before = place.stat().st_mode
        place.chmod(mode)
        assert not object_cache.is_trusted(mine)
        complaint = object_cache.cache_problem(mine)
        expected = f"other users may write to {mine}: run chmod g-w {mine}"
        assert complaint == expected or place is mine.parent
        place.chmod(before)
    mine.parent.chmod(0o1777)  # as for /tmp: only owners can replace files
    assert object_cache.is_trusted(mine)
    assert [record.levelname for record in caplog.records] == ["WARNING"]  # a single warning
    assert f"other users may write to {mine}" in caplog.text


def user(name="ann", uid=1000, gid=1000):
    return SimpleNamespace(pw_name=name, pw_uid=uid, pw_gid=gid)


def group(name="ann", members=()):
    return SimpleNamespace(gr_name=name, gr_mem=list(members))


BOB = user("bob", 1001, 1001)
# (ann alone can write a group-writable folder of group 1000, ann, the group, all users)
GROUPS = {
    "private": (True, user(), group(), [user(), BOB]),
    "private, and she is a member": (True, user(), group(members=["ann"]), [user(), BOB]),
    "of two members": (False, user(), group(members=["ann", "bob"]), [user(), BOB]),
    "of another member": (False, user(), group(members=["bob"]), [user(), BOB]),
    "of two users": (False, user(), group(), [user(), user("bob", 1001, 1000)]),
    "of another name": (False, user(), group("users"), [user(), BOB]),
    "not her first": (False, user(gid=100), group(), [user(gid=100), BOB]),
    "without a name": (False, user(), None, [user(), BOB]),
    "of a user without a name": (False, None, group(), [BOB]),
}


@pytest.fixture
def groups(mine, monkeypatch):
    """Return a function that sets the user and the group of the folder and its parents."""
    grp = pytest.importorskip("grp")
    pwd = pytest.importorskip("pwd")
    real = Path.lstat

    def found(value):
        if value is None:
            raise KeyError
        return value

    def lstat(self, gid=1000):
        values = list(real(self))
        values[5] = gid
        return os.stat_result(values)

    def become(ann, of_folder, everybody, gid=1000):
        monkeypatch.setattr(Path, "lstat", lambda self: lstat(self, gid))
        monkeypatch.setattr(pwd, "getpwuid", lambda _: found(ann))
        monkeypatch.setattr(grp, "getgrgid", lambda _: found(of_folder))
        monkeypatch.setattr(pwd, "getpwall", lambda: everybody)

    return become


@needs_owners
@pytest.mark.parametrize(("private", "ann", "of_folder", "everybody"), GROUPS.values(), ids=GROUPS)
def test_a_group_that_is_the_users_alone_may_write(
    mine, groups, private, ann, of_folder, everybody
):
    groups(ann, of_folder, everybody)
    assert object_cache.is_trusted(mine)
    for place in (mine, mine.parent):  # ~/.cache of umask 002 is such a parent
        place.chmod(0o775)
        assert object_cache.is_trusted(mine) is private
        assert private or f"other users may write to {place}" in object_cache._untrusted_reason(
            mine
        )
        assert private or f"chmod g-w {place}" in object_cache._untrusted_reason(mine)
        place.chmod(0o777)
        assert not object_cache.is_trusted(mine)  # all users may write
        place.chmod(0o755)
    assert object_cache.is_trusted(mine)


@needs_owners
def test_the_group_of_root_may_never_write(mine, groups):
    groups(user("root", 0, 0), group("root"), [user("root", 0, 0)], gid=0)
    mine.chmod(0o775)
    assert not object_cache.is_trusted(mine)


@needs_owners
def test_without_lists_of_users_no_group_is_private(mine, groups, monkeypatch):
    groups(*GROUPS["private"][1:])
    mine.chmod(0o775)
    assert object_cache.is_trusted(mine)
    for name in ("grp", "pwd"):
        with monkeypatch.context() as without:
            without.setitem(sys.modules, name, None)
            assert not object_cache.is_trusted(mine)


@needs_owners
@pytest.mark.skipif(not hasattr(os, "listxattr"), reason="no access lists of Linux")
def test_a_private_group_with_an_access_list_may_not_write(mine, groups, monkeypatch):
    """With an access list, the group's bits are the permissions of everybody on the list."""
    groups(*GROUPS["private"][1:])
    mine.chmod(0o775)
    monkeypatch.setattr(os, "listxattr", lambda _: ["system.posix_acl_access"])
    assert not object_cache.is_trusted(mine)


@needs_owners
def test_a_folder_or_link_of_another_user_is_not_trusted(mine, monkeypatch):
    link = mine.parent / "link"
    link.symlink_to(mine)
    assert object_cache.is_trusted(link)
    real = Path.lstat

    theirs = set()

    def lstat(self):
        found = list(real(self))
        found[4] = 12345 if self in theirs else found[4]
        return os.stat_result(found)

    monkeypatch.setattr(Path, "lstat", lstat)
    for place in (mine, link, mine.parent):
        theirs |= {place}
        assert not object_cache.is_trusted(link)
        assert object_cache.is_trusted(mine) == (place is link)
        theirs.clear()


def test_a_folder_is_made_for_this_user_alone(tmp_path):
    before = os.umask(0)
    try:
        assert object_cache.is_trusted(tmp_path / "a" / "b")
    finally:
        os.umask(before)
    if hasattr(os, "geteuid"):
        assert {(tmp_path / name).stat().st_mode & 0o777 for name in ("a", "a/b")} == {0o700}


def test_links_in_a_circle_are_no_folder(tmp_path):
    (tmp_path / "x").symlink_to("y")
    (tmp_path / "y").symlink_to("x")
    assert not object_cache.is_trusted(tmp_path / "x")


@pytest.mark.budget(0)
@needs_owners
def test_the_code_of_a_folder_that_is_not_trusted_never_runs(filled, tmp_path):
    folder, files = filled
    folder.chmod(0o777)
    try:
        assert python(CONVERT, LAYOUTKIT_CACHE_DIR=folder) == COMPILED
        said = python(CONVERT + "layoutkit.show_config()", LAYOUTKIT_CACHE_DIR=folder)
    finally:
        folder.chmod(0o700)
    assert f"not kept in {folder}: other users may write to {folder}" in said
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == files


# ---- the key -----------------------------------------------------------------------------


def test_sources_versions_and_cpu_change_the_key(monkeypatch, tmp_path):
    now = compiler.fingerprint.__wrapped__
    monkeypatch.setattr(compiler, "sources", compiler.sources.__wrapped__)
    usual = now()
    assert now() == usual
    with monkeypatch.context() as changed:
        changed.setattr(compiler, "package_version", lambda name: "0.0")
        assert now() != usual
    for cpu in (("nehalem", "+sse4.2"), (compiler.target_cpu()[0], "+sse4.2")):
        with monkeypatch.context() as changed:
            changed.setattr(compiler, "target_cpu", lambda cpu=cpu: cpu)
            assert now() != usual
    for path in Path(compiler.__file__).parent.glob("*.py"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    monkeypatch.setattr(layoutkit.kernels.cpu, "__path__", [str(tmp_path)])
    assert now() == usual
    with (tmp_path / "walk.py").open("a") as file:
        file.write("\n")
    assert now() != usual


def test_a_package_without_metadata_has_an_unknown_version():
    assert compiler.package_version("there-is-no-such-package") == "unknown"


def test_all_literals_are_in_the_key():
    specs = [KernelSpec("engine", literals) for literals in ((1, "2"), ("1", 2), (12,), ("12",))]
    assert len({object_cache.file_name(s.family, repr(s)) for s in specs}) == len(specs)


# ---- concurrent processes and threads ----------------------------------------------------


@pytest.mark.budget(0)
@pytest.mark.skipif(os.name == "nt", reason="files are not locked there")
def test_of_four_processes_that_want_the_same_kernel_one_compiles_it(tmp_path):
    together = f"import time\ntime.sleep(max(0, {time.time() + 1} - time.time()))\n" + CONVERT
    four = [start(together, LAYOUTKIT_CACHE_DIR=tmp_path) for _ in range(4)]
    assert sorted(finish(process) for process in four) == [CACHED] * 3 + [COMPILED]
    assert [path.suffix for path in tmp_path.iterdir()] == [".o"]
    assert python(CONVERT, LAYOUTKIT_CACHE_DIR=tmp_path) == CACHED


@pytest.fixture
def lock(path, monkeypatch):
    """Hold the lock of a kernel, as a stopped process would."""
    fcntl = pytest.importorskip("fcntl")
    monkeypatch.setattr(object_cache, "LOCK_TIMEOUT", 0.3)
    with path.with_name(path.name + ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file


def waited(path):
    began = time.monotonic()
    with object_cache.compile_lock(path):
        return time.monotonic() - began


def test_nobody_waits_for_ever_for_a_lock(path, lock):
    assert 0.3 <= waited(path) < 5


def test_nobody_waits_once_the_kernel_is_there(path, lock, monkeypatch):
    monkeypatch.setattr(object_cache, "LOCK_TIMEOUT", 60)
    kept(path)
    assert waited(path) < 5


def test_nobody_waits_for_a_lock_whose_owner_is_gone(path, lock, monkeypatch):
    monkeypatch.setattr(object_cache, "LOCK_TIMEOUT", 60)
    lock.close()
    assert waited(path) < 5
    assert list(path.parent.iterdir()) == []


def test_nobody_waits_where_files_cannot_be_locked(path, lock, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(object_cache, "LOCK_TIMEOUT", 60)
    monkeypatch.setattr("fcntl.flock", refuse)
    assert waited(path) < 5
    monkeypatch.setitem(sys.modules, "fcntl", None)  # Windows
    assert waited(path) < 5
    assert waited(path.parent / "missing" / path.name) < 5


def test_two_threads_load_a_kernel_once(monkeypatch):
    loads = []

    def slow(spec):
        loads.append(spec)
        time.sleep(0.02)
        return compiler.LoadedKernel(spec, 64, None, "compiled")

    monkeypatch.setattr(compiler, "_load", slow)
    monkeypatch.setattr(compiler, "_loaded", {})
    threads = [threading.Thread(target=compiler.load, args=(SPEC,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert loads == [SPEC]


FORK = """
import os, signal, threading, time
import numpy as np
import layoutkit
from layoutkit.kernels.cpu import compiler
x = np.arange(2 * 5 * 4 * 3, dtype=np.uint16).reshape(2, 5, 4, 3)
began, ended = threading.Event(), threading.Event()
real = compiler.compile_object

def compile_object(spec):
    began.set()
    time.sleep(0.1)  # let the other thread get to its fork
    code = real(spec)
    ended.set()
    return code

compiler.compile_object = compile_object
thread = threading.Thread(target=layoutkit.convert, args=(x, "bhwc->bchw"))
thread.start()
began.wait()
child = os.fork()
if not child:
    signal.alarm(60)
    waited = ended.is_set()
    y = layoutkit.convert(x, "bhwc->chwb")
    os._exit(not (waited and (y == x.transpose(3, 1, 2, 0)).all()))
print(os.waitpid(child, 0)[1])
thread.join()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_child_forked_during_a_compilation_can_compile():
    """The fork waits until the compilation has ended."""
    assert python(FORK, LAYOUTKIT_CACHE_DIR=os.devnull) == "0\n"


# ---- settings of Numba -------------------------------------------------------------------


@pytest.mark.budget(0)
@pytest.mark.parametrize("variable", [{"NUMBA_DISABLE_JIT": "1"}, {"NUMBA_OPT": "0"}])
def test_kernels_do_not_depend_on_settings_for_debugging(variable):
    same = CONVERT + "from numba import config\nprint(config.DISABLE_JIT, int(config.OPT))"
    expected = COMPILED + ("1 3\n" if "NUMBA_DISABLE_JIT" in variable else "0 0\n")
    assert python(same, LAYOUTKIT_CACHE_DIR=os.devnull, **variable) == expected


# ---- warmup and show_config --------------------------------------------------------------

WARM = """
import numpy as np
import layoutkit
from layoutkit.kernels.cpu import compiler
layoutkit.set_num_threads(2)
shape = np.array((64, 72, 72, 3))
names = layoutkit.warmup("bhwc->bchw", shape, "uint8", dtype="float32", scale=1 / 255)
before = {str(kernel.spec) for kernel in compiler.loaded()}
assert set(names) <= before
layoutkit.convert(np.ones(shape, np.uint8), "bhwc->bchw", dtype="float32", scale=1 / 255)
print(len(names), {str(kernel.spec) for kernel in compiler.loaded()} - before)
layoutkit.show_config()
"""


@pytest.mark.budget(0)
def test_after_warmup_a_conversion_loads_nothing_more():
    first, *facts = python(WARM, LAYOUTKIT_CACHE_DIR=os.devnull).splitlines()
    assert first == "1 set()"
    named = {line.split()[0] for line in facts}
    assert named >= {"layoutkit", "python", "numpy", "numba", "llvmlite", "ml_dtypes", "cpu"}
    assert named >= {"threads", "buffers", "kernels"}
    assert any(line.strip().startswith("engine-") and "(compiled)" in line for line in facts)


WARM_BATCH = """
import numpy as np
from layoutkit import Collator
from layoutkit.kernels.cpu.compiler import loaded

shapes = [(40, 50, 3), (30, 33, 3)] * 2
photos = [np.ones(shape, np.uint8) for shape in shapes]
size = {"h": 24, "w": 24}
for options in ({"flip": {"w": "random", "h": "random"}}, {"resize": "bilinear", "crop": "random"}):
    warmed, cold = (Collator("hwc->bchw", **size, **options, seed=3) for _ in range(2))
    names = warmed.warmup(shapes)
    before = {str(kernel.spec) for kernel in loaded()}
    print(len(names) > 1, set(names) <= before, warmed.warmup(shapes))
    for _ in range(8):
        assert (warmed(photos) == cold(photos)).all()  # the warm-up has drawn no windows
    print({str(kernel.spec) for kernel in loaded()} - before)
"""


def test_after_warmup_a_batch_loads_nothing_more():
    assert python(WARM_BATCH) == "True True []\nset()\n" * 2


def test_warmup_of_a_batch_accepts_arrays_and_one_array():
    photo = np.full((9, 8, 3), 7, np.uint8)
    layoutkit.Collator("hwc->bchw", h=4, w=4).warmup([photo, photo])
    layoutkit.Collator("bhwc->bchw", h=4, w=4, flip="random").warmup((2, 9, 8, 3), dtype="int16")
    assert (photo == 7).all()


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        ((9, 8, 3), r"the shape of one sample.*\[\(9, 8, 3\)\] \* 64"),
        ([], "no samples"),
        ([(9, 8)], "3 axes"),
        ([(9, -8, 3)], "-8"),
    ],
)
def test_warmup_of_a_batch_rejects_other_shapes(samples, message):
    with pytest.raises(LayoutkitError, match=message):
        layoutkit.Collator("hwc->bchw", h=4, w=4).warmup(samples)


def test_warmup_needs_a_shape_with_a_pattern():
    for arguments in ({"pattern": "bhwc->bchw"}, {"shape": (1, 2)}, {"dtype": "f4"}):
        with pytest.raises(ArgumentError, match="a pattern and a shape, or nothing"):
            layoutkit.warmup(**arguments)
