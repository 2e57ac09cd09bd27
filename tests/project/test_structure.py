"""The house stands as docs/how-it-runs.md draws it: who may import whom, and how large rooms are.

The first block of that page lists every folder and every module beside them. Each may import what
stands above it, and on its own line what stands before it; imports inside functions count. Imports
for type checkers do not: nothing runs them.
"""

import ast
import re
import statistics
from functools import cache
from pathlib import Path

import pytest

HOME = Path(__file__).parents[2]
PAGE = (HOME / "docs" / "how-it-runs.md").read_text()
# Those that look up on purpose, inside of functions: adapters are for arrays of other libraries,
# and `import layoutkit` and most processes have to do with NumPy's alone.
LATE = {("converter", "arrays"), ("accumulation", "arrays"), ("compilation", "arrays")}
ADAPTERS, GRAPH = "arrays.adapters", "arrays.torch_graph"  # what torch.compile sees
API = "accumulation"  # the last module that `layoutkit/__init__.py` imports
# Where modules are imported by a name that is made up while running; each says so in words.
BY_NAME = {"", "arrays.libraries", "arrays.symbolic", "data", "renamed"}
BY_NAME |= {"kernels.cpu.compiler", "kernels.cpu.engine"}
MOST_LINES = 300  # of a module
MEDIAN_LINES, LONG_LINES = 10, 35  # of functions: half of them, nine of ten


def drawn():
    """The names of the first block of the page, top to bottom."""
    block = re.search(r"```text\nlayoutkit/\n(.*?)```", PAGE, re.DOTALL)[1]
    heads = re.findall(r"^  ((?:[\w/]+(?:\.py|/) ?)+)", block, re.MULTILINE)
    return [name.removesuffix(".py").removesuffix("/") for head in heads for name in head.split()]


def modules():
    """Every module of the package by its dotted name; kernels/ and bench/ are inside it."""
    found = {}
    for folder, inside in [("layoutkit", ""), ("kernels", "kernels."), ("bench", "bench.")]:
        for path in (HOME / folder).rglob("*.py"):
            parts = path.relative_to(HOME / folder).with_suffix("").parts
            name = inside + ".".join(parts)
            found[name.removesuffix("__init__").rstrip(".")] = path
    return found


MODULES = modules()


def room(module):
    """The folder of a module, or the module itself where it stands beside the folders."""
    return module.partition(".")[0]


@cache
def imports(module):
    """(imported module, whether inside a function) for what a module imports of the package."""
    return list(_imports(module))


def _imports(module):
    path = MODULES[module]
    tree = ast.parse(path.read_text())
    package = ["layoutkit", *module.split(".")] if module else ["layoutkit"]
    if path.name != "__init__.py":
        package.pop()
    typing_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    top = {id(node) for node in tree.body}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom) and id(node) not in typing_only:
            for target in _targets(node, package):
                target = target or API  # `from .. import convert`: what it needs is all of this
                if target in MODULES and module not in ("", target):
                    yield target, id(node) not in top


def _targets(node, package):
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    else:
        base = package[: len(package) - node.level + 1] if node.level else []
        start = ".".join([*base, *filter(None, [node.module])])
        names = [f"{start}.{alias.name}" for alias in node.names]
        names = [name if _inside(name) in MODULES else start for name in names]
    return [_inside(name) for name in names if name.partition(".")[0] == "layoutkit"]


def _inside(name):
    return name.partition(".")[2]


def test_the_page_draws_every_folder_and_module():
    rooms = {room(module) for module in MODULES} - {"", "__main__"}
    assert sorted(drawn()) == sorted(rooms)


@pytest.mark.parametrize("name", drawn())
def test_a_folder_imports_what_stands_above_it(name):
    order = {each: place for place, each in enumerate(drawn())}
    upwards = {
        f"{module} imports {target}"
        for module in MODULES
        if room(module) == name
        for target, is_late in imports(module)
        if order[room(target)] > order[name] and not ((name, room(target)) in LATE and is_late)
    }
    assert upwards == set()


def test_the_late_imports_are_there_and_lead_to_one_module_each():
    late = {
        (module, target)
        for module in MODULES
        for target, is_late in imports(module)
        if is_late and (room(module), room(target)) in LATE
    }
    asking = {(module, GRAPH if module == "compilation" else ADAPTERS) for module, _ in LATE}
    assert late == asking


def test_modules_are_imported_by_made_up_names_in_few_places():
    made_up = re.compile(r"import_module\((?!\")")
    by_name = {name for name, path in MODULES.items() if made_up.search(path.read_text())}
    assert by_name == BY_NAME


def test_no_imports_make_a_circle():
    """Of modules, inside of folders as well; those of LATE aside, which the order does not need."""
    graph = {
        module: {t for t, is_late in imports(module) if (room(module), room(t)) not in LATE}
        for module in MODULES
    }
    done, path = set(), []

    def visit(module):
        if module in done:
            return
        assert module not in path, " -> ".join([*path[path.index(module) :], module])
        path.append(module)
        for target in graph[module]:
            visit(target)
        path.pop()
        done.add(module)

    for module in graph:
        visit(module)


def test_modules_and_functions_are_short():
    long = {n for n, path in MODULES.items() if path.read_text().count("\n") > MOST_LINES}
    assert long <= {"kernels.cpu.simd"}  # which opens with a page of prose
    lengths = sorted(
        node.end_lineno - node.lineno + 1
        for path in MODULES.values()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef)
    )
    assert statistics.median(lengths) <= MEDIAN_LINES
    assert lengths[len(lengths) * 9 // 10] <= LONG_LINES


def test_every_module_is_somewhere_on_the_page():
    """By its name or, where a folder is drawn as one thing, by that of its folder."""
    rooms = {"bench", "commands", "demo"}
    parts = {"data": {"batches", "indexes", "providers", "reading", "samplers", "samples"}}
    for name, path in MODULES.items():
        whole = room(name) in rooms or set(name.split(".")) & parts.get(room(name), set())
        if path.name not in ("__init__.py", "__main__.py") and not whole:
            assert path.name in PAGE, name


def test_every_file_that_the_page_names_is_there():
    """Names in backquotes that look like files or folders, wherever they stand."""
    names = set(re.findall(r"`([\w/]+(?:\.py|\.cu|\.cuh|/))`", PAGE))
    folders = ("layoutkit", "kernels", "bench", "building", "tests", "docs")
    roots = [HOME / root for root in folders]
    places = [p.relative_to(HOME).as_posix() for root in roots for p in [root, *root.rglob("*")]]
    ends = {f"/{place}" for place in places} | {f"/{place}/" for place in places}
    missing = {name for name in names if not any(end.endswith(f"/{name}") for end in ends)}
    toys = {"layoutkit/backends/toy.py", "kernels/cpu/reverse.py", "toy.cu"}
    toys |= {"layoutkit/data/samplers/backward.py", "layoutkit/data/io/grid.py"}
    assert missing == toys
