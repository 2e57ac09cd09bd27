"""The installed package: complete, independent of the checkout and of the machine."""

import ast
import importlib.metadata
import importlib.util
import os
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
from datetime import date, timedelta
from pathlib import Path

import pytest

import layoutkit
from layoutkit.drawing import draw_svg

HOME = Path(__file__).parents[2]
PROJECT = tomllib.loads((HOME / "pyproject.toml").read_text())


def test_every_package_of_the_repository_is_installed():
    """A package that is missing in pyproject.toml would be missing from wheels only."""
    setuptools = PROJECT["tool"]["setuptools"]
    roots = {"layoutkit": "layoutkit", "kernels": "layoutkit.kernels", "bench": "layoutkit.bench"}
    found = set()
    for root in ("layoutkit", "kernels", "bench"):
        for module in (HOME / root).rglob("__init__.py"):
            relative = module.parent.relative_to(HOME / root).parts
            found.add(".".join((roots[root], *relative)))
    assert set(setuptools["packages"]) == found


@pytest.mark.parametrize("name", PROJECT["tool"]["setuptools"]["packages"])
def test_every_package_is_found_under_its_installed_name(name):
    assert importlib.util.find_spec(name) is not None


PLAIN = """
import sys
# What an editable installation adds; a plain one has nothing of the kind.
sys.meta_path = [finder for finder in sys.meta_path if "editable" not in repr(finder)]
sys.path = [path for path in sys.path if "editable" not in path]
import numpy as np
import layoutkit, layoutkit.bench, layoutkit.kernels.cpu
assert layoutkit.convert(np.zeros((2, 4, 5, 3), "u1"), "bhwc->bchw").shape == (2, 3, 4, 5)
for package in (layoutkit, layoutkit.kernels.cpu, layoutkit.bench):
    print(package.__file__)
"""


def test_a_checkout_works_in_its_root_beside_a_plain_installation():
    """In the root of a checkout, `layoutkit` and its kernels are imported from the checkout."""
    done = subprocess.run(
        [sys.executable, "-c", PLAIN], cwd=HOME, capture_output=True, text=True, check=True
    )
    folders = "layoutkit", "kernels/cpu", "bench"
    assert done.stdout.split() == [str(HOME / folder / "__init__.py") for folder in folders]


def test_an_installation_works_elsewhere_and_has_nothing_of_the_checkout(tmp_path):
    """Copy the packages as setuptools does, to the places that pyproject.toml gives."""
    setuptools = PROJECT["tool"]["setuptools"]
    for name in setuptools["packages"]:
        folder = HOME / setuptools["package-dir"].get(name, name.replace(".", "/"))
        copy = tmp_path / "site" / name.replace(".", "/")
        copy.mkdir(parents=True)
        for path in folder.iterdir():
            if path.is_file():
                shutil.copy(path, copy)
    done = subprocess.run(
        [sys.executable, "-c", PLAIN + "print(*layoutkit.__path__)"],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(tmp_path / "site")},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    site = tmp_path / "site" / "layoutkit"
    files = [site / folder / "__init__.py" for folder in ("", "kernels/cpu", "bench")]
    assert done.stdout.split() == [*map(str, files), str(site)]


def test_python_m_layoutkit_is_the_command_line(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "layoutkit", "explain", "bhwc->bchw", "--shape", "2,4,4,3"],
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("bhwc->bchw")
    refused = subprocess.run(
        [sys.executable, "-m", "layoutkit", "explain", "bhwc"], capture_output=True, text=True
    )
    assert refused.returncode == 2
    assert refused.stderr.startswith("layoutkit: error: ")


def test_dir_lists_the_api_and_nothing_else():
    installed = {name for name in ("keras", "sklearn", "torch") if importlib.util.find_spec(name)}
    assert dir(layoutkit) == sorted({*layoutkit.__all__, "errors", *installed})
    assert all(hasattr(layoutkit, name) for name in dir(layoutkit))
    for name in ["data", "images", *installed & {"torch"}]:
        module = getattr(layoutkit, name)
        assert dir(module) == sorted(module.__all__)


def test_data_is_found_by_its_name_and_loaded_then(tmp_path):
    first = """
import sys, layoutkit
print("data" in dir(layoutkit), "layoutkit.data" in sys.modules)
print(layoutkit.data.sampled_batcher.__module__, "layoutkit.data" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", first], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    found = "layoutkit.data.loader.loader"
    assert done.stdout.split() == ["True", "False", found, "True"]


def test_what_plans_is_imported_with_the_first_conversion():
    code = "import sys, layoutkit; print(*(n for n in sys.modules if n.startswith('layoutkit.')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    late = ("planning.plan", "planning.composed", "planning.kernels", "kernels", "arrays", "cpu")
    assert not {f"layoutkit.{name}" for name in late} & set(done.stdout.split())


def test_top_level_names_of_others_are_not_taken():
    names = importlib.metadata.distribution("layoutkit").read_text("top_level.txt").split()
    assert names == ["layoutkit"]


def test_typing_and_command():
    distribution = importlib.metadata.distribution("layoutkit")
    assert (Path(layoutkit.__file__).parent / "py.typed").exists()
    (command,) = (e for e in distribution.entry_points if e.group == "console_scripts")
    assert (command.name, command.value) == ("layoutkit", "layoutkit.cli:main")


# The first releases of the newest versions that are not supported.
DROPPED = {"python": ((3, 10), date(2021, 10, 4)), "numpy": ((2, 1), date(2024, 8, 18))}
MONTHS = {"python": 36, "numpy": 24}  # SPEC 0


def test_no_version_is_dropped_earlier_than_spec_0_allows():
    requirements = ["python" + PROJECT["project"]["requires-python"]]
    requirements += PROJECT["project"]["dependencies"]
    lowest = dict(text.split(">=") for text in requirements)
    for name, (dropped, released) in DROPPED.items():
        major, minor = map(int, lowest[name].split(".")[:2])
        assert (major, minor) == (dropped[0], dropped[1] + 1)
        assert released + timedelta(days=MONTHS[name] * 30.5) <= date.today()


def test_python_versions_are_the_same_everywhere():
    pattern = r"Programming Language :: Python :: (3\.\d+)"
    classified = re.findall(pattern, "\n".join(PROJECT["project"]["classifiers"]))
    script = (HOME / ".ci" / "versions").read_text()
    tested = set(re.findall(r"python(3\.\d+)", script))
    assert f">={classified[0]}" == PROJECT["project"]["requires-python"]
    assert f"make test-lowest PYTHON=python{classified[0]}" in script
    assert set(classified) <= tested
    assert PROJECT["tool"]["ruff"]["target-version"] == "py" + classified[0].replace(".", "")


def test_the_steps_of_a_release_name_files_and_targets_that_there_are():
    text = (HOME / "RELEASING.md").read_text()
    targets = set(re.findall(r"^make (\w+)", text, re.MULTILINE))
    assert targets == {"wheel"}
    makefile = (HOME / "Makefile").read_text()
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)
    names = re.findall(
        r"`(?:bash |python )?([\w./-]+/[\w./-]+|\w+\.(?:md|toml))(?:::(\w+))?`", text
    )
    names = [(file, name) for file, name in names if "*" not in file]
    assert len(names) > 6
    for file, name in names:
        assert (HOME / file).exists(), file
        assert f"def {name}" in (HOME / file).read_text() if name else True
    for link in re.findall(r"\]\(([^)#]+)", text):
        assert (HOME / link).exists(), link


@pytest.mark.budget(0)
def test_what_is_imported_is_declared():
    """Every import of the installed code is the standard library's or a declared package's."""
    requirements = PROJECT["project"]["dependencies"]
    for extra in PROJECT["project"]["optional-dependencies"].values():
        requirements = requirements + extra
    declared = {re.match(r"[\w-]+", text)[0] for text in requirements}
    modules = {"PIL": "pillow", "cv2": "opencv-python-headless", "sklearn": "scikit-learn"}
    modules |= {"kornia_rs": "kornia-rs", "array_record": "array-record"}
    modules["jaxlib"] = "jax"  # jaxlib belongs to JAX
    modules["nvidia"] = "nvidia-dali-cuda120"
    modules["google_crc32c"] = modules["crc32c"] = "google-crc32c"  # either library suffices
    paths = [p for root in ("layoutkit", "kernels", "bench") for p in (HOME / root).rglob("*.py")]
    imported = {modules.get(name, name) for path in paths for name in _imports(path)}
    assert imported - set(sys.stdlib_module_names) - declared - {"layoutkit"} == set()


def _imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module.partition(".")[0]


def test_no_lock_file_and_no_registry():
    done = subprocess.run(["git", "ls-files"], cwd=HOME, capture_output=True, text=True)
    if done.returncode:
        pytest.skip("not a git checkout")
    files = done.stdout.splitlines()
    assert [name for name in files if name.endswith((".lock", "lock.json"))] == []
    registry = re.compile(r"(--|extra-|^)index-url|find-links", re.MULTILINE)
    suffixes = {".toml", ".cfg", ".sh", ".yml", ".yaml", ""}
    for name in files:
        path = HOME / name
        if path.is_file() and path.suffix in suffixes:
            assert not registry.search(path.read_text()), name


def test_the_chart_in_the_readme_shows_what_the_page_on_performance_says():
    chart = runpy.run_path(HOME / "demo" / "drawings.py")["chart"]
    page = (HOME / "docs" / "performance.md").read_text(encoding="utf-8")
    drawn = (HOME / "docs" / "speed.svg").read_text(encoding="utf-8")
    assert drawn == chart(page), "python demo/drawings.py draws it anew"


@pytest.mark.parametrize(
    ("name", "function"),
    [("collate", "figure"), ("padded", "padded_figure"), ("packed", "packed_figure")],
)
def test_the_figures_of_batches_are_what_draws_them(name, function):
    figure = runpy.run_path(HOME / "demo" / "drawings.py")[function]
    drawn = (HOME / "docs" / f"{name}.svg").read_text(encoding="utf-8")
    assert drawn == figure(), "python demo/drawings.py draws it anew"


def test_the_figure_in_the_docs_is_what_explain_draws():
    drawn = (HOME / "docs" / "bhwc-bchw.svg").read_text()
    assert drawn == draw_svg("bhwc->bchw")
