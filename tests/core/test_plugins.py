"""Extensions by other packages, which are installed into a folder and used in a new process."""

import re
import subprocess
import sys
from textwrap import dedent

import numpy as np
import pytest

from layoutkit import ArgumentError, config, plugins
from layoutkit._utils.registry import Registry, check_has
from layoutkit.backends.registry import BACKENDS
from layoutkit.data import sampler
from tests.helpers.children import python
from tests.helpers.recipes import blocks

PROJECT, MODULE, PROGRAM = blocks("A complete package", "recipes/extending.md")


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    """Build and install the package of the page, without an index; return its folder."""
    source = tmp_path_factory.mktemp("source")
    (source / "pyproject.toml").write_text(PROJECT)
    (source / "toy.py").write_text(MODULE)
    target = tmp_path_factory.mktemp("installed")
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--target", str(target)]
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "-q", *options, str(source)],
        check=True,
        capture_output=True,
    )
    return target


@pytest.fixture
def run(tmp_path):
    """Return a function that runs a program beside installed folders, and returns its output."""

    def run(program, *folders):
        path = ":".join(map(str, [*folders, tmp_path / "packages"]))
        code = f"import os; os.chdir({str(tmp_path)!r})\n{dedent(program)}"
        return python(code, PYTHONPATH=path)

    return run


@pytest.fixture
def install(tmp_path):
    """Return a function that installs a package of one module and one entry point by hand."""

    def install(name, table, entry, module):
        info = tmp_path / "packages" / f"{name}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[layoutkit.{table}]\n{entry}\n")
        (info.parent / f"{name}.py").write_text(module)

    return install


# What is wrong with the extension of a name, printed by a program that asks for it.
ERROR = """
from layoutkit import LayoutkitError
{}
try:
    {}
except LayoutkitError as error:
    print(error)
"""


@pytest.mark.budget(0)
def test_the_package_of_the_page(toy, run):
    assert run(PROGRAM, toy) == ""


VIEWS = """
import numpy as np
from layoutkit import Converter, DataView, convert
from toy import Tensor
pixels = np.arange(24, dtype=np.float32).reshape(1, 2, 4, 3)
planes = np.ascontiguousarray(pixels.transpose(0, 3, 1, 2))
out = Tensor(np.zeros_like(planes))
assert convert(Tensor(pixels), "bhwc->bchw", out=out) is out
np.testing.assert_array_equal(out.values, planes)
back = Converter("bhwc->bchw").backward(Tensor(planes), like=Tensor(pixels))
np.testing.assert_array_equal(back.values, pixels)
view = DataView("bhwc", Tensor(pixels))
np.testing.assert_array_equal(view.forward_get("bchw").values, planes)
np.testing.assert_array_equal(view.index([0, 0]).input.values, pixels[[0, 0]])
"""


@pytest.mark.budget(0)
def test_arrays_of_another_library_as_outputs_gradients_and_views(toy, run):
    assert run(VIEWS, toy) == ""


def test_info_lists_what_is_installed(toy, run):
    listed = run("import layoutkit; layoutkit.show_config()", toy)
    assert re.findall(r"^plugin +(.*)$", listed, re.MULTILINE) == [
        "formats grid: toy 1.0, toy:read_grid",
        "samplers backward: toy 1.0, toy:backward",
        "arrays toy: toy 1.0, toy",
        "decoders hex: toy 1.0, toy:HexDecoder",
    ]


@pytest.mark.budget(0)
def test_errors_of_unknown_names_list_installed_ones(toy, run):
    opened = ERROR.format(
        "from layoutkit.data import open_index; open('x.txt', 'w').close()", "open_index('x.txt')"
    )
    assert run(opened, toy).endswith(".tfrecords, .grid\n")
    sampled = ERROR.format("from layoutkit.data import sampler", "sampler('bakward', 5)")
    said = run(sampled, toy)
    assert "did you mean 'backward'?" in said
    assert said.endswith(", backward\n")


def test_a_damaged_file_of_a_format_is_named(toy, run):
    program = ERROR.format(
        "from layoutkit.data import open_index; open('x.grid', 'w').write('1 2\\n3\\n')",
        "open_index('x.grid')",
    )
    assert run(program, toy).startswith("x.grid cannot be read: the number of columns")


def test_names_of_layoutkit_need_no_search(run):
    """The import of importlib.metadata alone takes as long as the import of layoutkit."""
    assert (
        run(
            """
        import sys
        import numpy as np
        import layoutkit
        from layoutkit.data import Dataset, open_index, sampled_batcher, sampler
        np.save("x.npy", np.zeros((4, 2)))
        open("x.csv", "w").write("filename,label\\na.png,cat\\n")
        open_index("x.csv"), open_index("x.npy"), Dataset("x.npy"), open_index(["a.png"])
        assert list(sampler("shuffle", 3)) and sampler([2, 0], 3)
        with sampled_batcher("x.npy", batch_size=2) as batches:
            assert len(list(batches)) == 2
        layoutkit.convert([np.zeros((2, 3))] * 2, "bhw->bhw")
        print("importlib.metadata" in sys.modules)
        """
        )
        == "False\n"
    )


def test_two_packages_with_one_name(run, install):
    for name in ("one", "two"):
        install(name, "formats", f"grid = {name}:read", "read = str")
    program = """
    from layoutkit import LayoutkitError, data, plugins
    open("x.grid", "w").write("1")
    open("x.csv", "w").write("filename\\na.png\\n")
    assert len(data.open_index("x.csv")) == 1
    try:
        data.open_index("x.grid")
    except LayoutkitError as error:
        print(error)
    print(*(plugin.problem for plugin in plugins.list_plugins()), sep="\\n")
    """
    says = (
        "the format grid is of one 1.0, one:read and of two 1.0, two:read; uninstall all but one "
        "package\n"
    )
    assert run(program) == says * 3


def test_a_package_that_does_not_load(run, install):
    install("broken", "formats", "grid = broken:read", "import missing_library")
    install("whole", "formats", "lines = whole:read", "import numpy; read = numpy.loadtxt")
    program = ERROR.format(
        "from layoutkit.data import open_index\n"
        "for name in ('x.lines', 'x.grid'): open(name, 'w').write('1\\n2\\n')\n"
        "assert len(open_index('x.lines')) == 2",
        "open_index('x.grid')",
    )
    assert run(program) == (
        "the format grid of broken 1.0, broken:read does not load: ModuleNotFoundError: No module "
        "named 'missing_library'; repair or uninstall the package\n"
    )


@pytest.mark.budget(0)
def test_a_decoder_that_does_not_load_leaves_others(run, install):
    install("broken", "decoders", "jxl = broken:decoder", "raise RuntimeError('no license')")
    install(
        "whole",
        "decoders",
        "zz = whole",
        "import numpy\ndef accepts(data): return data[:2] == b'ZZ'\n"
        "def decode(data): return numpy.zeros((1, 2, len(data)), numpy.uint8)",
    )
    program = ERROR.format(
        "from layoutkit.images import read", "print(read(b'ZZ4 ').shape, read(b'ZZ12345'))"
    )
    assert "the decoder zz returned uint8 (1, 2, 7), but" in run(program)
    program = ERROR.format("from layoutkit.images import read", "read(b'unknown')")
    assert "RuntimeError: no license" in run(program)


WRONG = [
    ("formats", "open_index('x.grid')", "but a function of a path"),
    ("samplers", "sampler('grid', 4)", "is not a function of (count, seed, epoch)"),
    ("decoders", "read(b'unknown')", "no function accepts; it needs accepts and decode"),
]


@pytest.mark.budget(1)
@pytest.mark.parametrize(("table", "call", "says"), WRONG)
def test_a_wrong_object(run, install, table, call, says):
    install("wrong", table, "grid = wrong:VALUE", "VALUE = 3")
    imports = "from layoutkit.data import open_index, sampler\nfrom layoutkit.images import read"
    said = run(ERROR.format(f"{imports}; open('x.grid', 'w').close()", call))
    assert "grid of wrong 1.0, wrong:VALUE" in said
    assert says in said


def test_a_name_that_layoutkit_has_is_ignored_and_listed(run, install):
    install("other", "formats", "npy = other:read", "read = str")
    program = "from layoutkit import plugins; print(plugins.list_plugins()[0].problem)"
    assert run(program) == "layoutkit has the name itself, and ignores this one\n"


# ---- in one process: register -------------------------------------------------------------------


def forward(count, seed, epoch):
    return np.arange(count)


@pytest.fixture
def table():
    return Registry(
        "layoutkit.tests",
        "the row",
        {"own": "math:pi"},
        lambda name, row: (check_has(row, "upper"), row),
    )


def test_rows_of_a_table(table):
    assert ("own" in table, "other" in table, table.find("other")) == (True, False, None)
    assert table.find("own") == pytest.approx(np.pi)
    table.register(".new_name", str)
    table.register("new-name", str)  # again, as a notebook does
    assert table.find("new_name")[1] is table.find("new-name")[1] is str
    assert list(table) == ["own", "new-name"]


def test_names_that_are_taken(table):
    table.register("new", str)
    with pytest.raises(ArgumentError, match="the row new is of builtins:str already; register"):
        table.register("new", bytes)
    with pytest.raises(ArgumentError, match="the row own is of layoutkit already; register"):
        table.register("own", str)
    with pytest.raises(ArgumentError, match="int, which has no function upper"):
        table.register("third", 3)
    assert "third" not in table


def test_registered_samplers_are_found_by_name():
    plugins.register("samplers", "test_forward", forward)
    assert list(sampler("test_forward", 3)) == list(sampler("test-forward", 3)) == [0, 1, 2]
    with pytest.raises(ArgumentError, match="table is 'sampler'; it must be one of 'formats'"):
        plugins.register("sampler", "forward", forward)
    with pytest.raises(ArgumentError, match="sampler permutation is of layoutkit"):
        plugins.register("samplers", "permutation", forward)


def test_the_configuration_lists_every_library():
    """CuPy is listed with the GPU, jaxlib comes with jax, and YUVFrames with layoutkit."""
    listed = {*config.OPTIONAL_PACKAGES, "cupy", "jaxlib", "layoutkit"}
    assert set(BACKENDS.rows) <= listed
