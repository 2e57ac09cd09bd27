"""What is installed is what the repository has, and nothing in it is tied to one machine."""

import ast
import importlib.metadata
import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import layoutkit
from layoutkit.commands.drawing import svg_picture

HOME = Path(__file__).parents[2]
PROJECT = tomllib.loads((HOME / "pyproject.toml").read_text())


def test_every_package_of_the_repository_is_installed():
    """A folder with modules that pyproject.toml forgot would be missing from a wheel only."""
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


def test_top_level_names_of_others_are_not_taken():
    names = importlib.metadata.distribution("layoutkit").read_text("top_level.txt").split()
    assert names == ["layoutkit"]


def test_typing_and_command():
    distribution = importlib.metadata.distribution("layoutkit")
    assert (Path(layoutkit.__file__).parent / "py.typed").exists()
    (command,) = (e for e in distribution.entry_points if e.group == "console_scripts")
    assert (command.name, command.value) == ("layoutkit", "layoutkit.cli:main")


def test_what_is_imported_is_declared():
    """Every import of the installed code is the standard library's or a declared package's."""
    requirements = PROJECT["project"]["dependencies"]
    for extra in PROJECT["project"]["optional-dependencies"].values():
        requirements = requirements + extra
    declared = {re.match(r"[\w-]+", text)[0] for text in requirements}
    modules = {"PIL": "pillow", "cv2": "opencv-python-headless"}
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


def test_the_picture_in_the_readme_is_what_explain_draws():
    drawn = (HOME / "docs" / "bhwc-bchw.svg").read_text()
    assert drawn == svg_picture("bhwc->bchw")
