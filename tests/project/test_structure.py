"""The structure of the package: import order, lengths of functions, first words of docstrings.

The first block of docs/how-it-runs.md lists every package and top-level module. Each may import
those above it and, on its own line, those before it; imports inside functions count. Imports for
type checkers do not count: they are not executed.
"""

import ast
import re
import statistics
import tokenize
from functools import cache
from pathlib import Path

import pytest

HOME = Path(__file__).parents[2]
PAGE = (HOME / "docs" / "how-it-runs.md").read_text()
CACHES = (HOME / "docs" / "caches.md").read_text()
API = "accumulation"  # the last module that `layoutkit/__init__.py` imports
# Modules that import other modules by a computed name.
BY_NAME = {
    "",
    "_utils.late",
    "_utils.registry",
    "backends.registry",
    "backends.symbolic",
    "data",
    "kernels.cpu.compiler",
    "kernels.cpu.engine",
}
# Types for which a second class would say the same.
TYPE_ONLY = {("backends.base", "backends.cupy")}
ONE_IMPORTER = 52  # modules with one importer, in the same folder
MEDIAN_LINES, LONG_LINES = 10, 35  # median and 90th percentile of functions


def drawn():
    """Return the names in the first block of the page, from top to bottom."""
    block = re.search(r"```text\nlayoutkit/\n(.*?)```", PAGE, re.DOTALL)[1]
    heads = re.findall(r"^  ((?:[\w/]+(?:\.py|/) ?)+)", block, re.MULTILINE)
    return [name.removesuffix(".py").removesuffix("/") for head in heads for name in head.split()]


def modules():
    """Return all modules of the package, with kernels/ and bench/, by their dotted names."""
    found = {}
    for folder, inside in [("layoutkit", ""), ("kernels", "kernels."), ("bench", "bench.")]:
        for path in (HOME / folder).rglob("*.py"):
            parts = path.relative_to(HOME / folder).with_suffix("").parts
            name = inside + ".".join(parts)
            found[name.removesuffix("__init__").rstrip(".")] = path
    return found


MODULES = modules()


def room(module):
    """Return the top-level folder of a module, or the name of a top-level module."""
    return module.partition(".")[0]


@cache
def tree_of(path):
    """Return the parsed source of a file."""
    return ast.parse(path.read_text())


@cache
def imports(module, types=False):
    """Return the modules of the package that a module imports, with `types` also for types."""
    return list(_imports(module, types))


def _imports(module, types):
    path = MODULES[module]
    tree = tree_of(path)
    package = ["layoutkit", *module.split(".")] if module else ["layoutkit"]
    if path.name != "__init__.py":
        package.pop()
    typing_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        is_import = isinstance(node, ast.Import | ast.ImportFrom)
        if is_import and (types or id(node) not in typing_only):
            for target in _targets(node, package):
                target = target or API  # `from .. import convert`: what it needs is all of this
                if target in MODULES and module not in ("", target):
                    yield target


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
        for target in imports(module)
        if order[room(target)] > order[name]
    }
    assert upwards == set()


PACKAGES = [HOME / "kernels/cpu", HOME / "kernels/cuda", HOME / "bench"] + [
    path.parent for path in sorted((HOME / "layoutkit").rglob("__init__.py"))
]


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.relative_to(HOME).as_posix())
def test_the_table_of_a_package_has_all_of_its_modules(package):
    table = ast.get_docstring(ast.parse((package / "__init__.py").read_text()))
    named = set(re.findall(r"\w+", table))
    modules = {path.stem for path in package.glob("*.py") if not path.stem.startswith("_")}
    if len(named & modules) > 1:
        assert modules <= named


def test_constants_of_launches_on_a_gpu_are_in_one_table_that_names_their_origin():
    """The docstring of policy.py lists the origins; other modules assign no numbers."""
    table = HOME / "kernels/cuda/policy.py"
    text = table.read_text()
    origins = set(re.findall(r"^    (\w+) {2,}\w", ast.get_docstring(ast.parse(text)), re.M))
    origins |= {"H100"}
    rows = re.findall(r"^([A-Z]\w*) = .*?(?:: (\w+))?$", text, re.M)
    assert len(rows) > 90
    assert [name for name, origin in rows if origin not in origins] == []
    numbers = re.compile(r"^[A-Z_]+(?:, [A-Z_]+)* = [({]?[-\d.]", re.M)
    others = [path for path in table.parent.glob("*.py") if path != table]
    assert [path.name for path in others if numbers.search(path.read_text())] == []


def test_executors_of_batches_are_used_on_their_device_only():
    executors = {"cpu.collate", "cpu.resize", "cpu.window_table", "cuda.collate"}
    users = {
        (module, target)
        for module in MODULES
        for target in executors.intersection(imports(module))
        if room(module) not in (room(target), "collator", "packing")
    }
    assert users == set()


# Signs of a decision, by the one module below layoutkit/ that makes it. Folder, sign.
DATA_DECISIONS = {
    "data/labels.py": (
        "data",
        # Names of columns, missing labels, the order of classes, the dtype of targets.
        r'"file_?path"|startswith\("label|fullmatch\(.label|label != label|isnan\(|'
        r"sorted\([^)]*label|unique\([^)]*label|np\.full\([^)]*, -1, [^)]*float",
    ),
    "data/errors.py": ("data", r"has no records: "),
    "images/reading.py": ("", r"\.getexif\(|SWAPPED"),  # the size of an upright image
}


@pytest.mark.parametrize("home", DATA_DECISIONS)
def test_one_module_makes_each_decision_about_data(home):
    folder, signs = DATA_DECISIONS[home]
    product = HOME / "layoutkit"
    assert re.search(signs, (product / home).read_text())
    found = [
        f"{path.relative_to(product)}: {line.strip()}"
        for path in (product / folder).rglob("*.py")
        if path != product / home
        for line in path.read_text().splitlines()
        if re.search(signs, line)
    ]
    assert found == []


# The functions that compute positions, sizes and weights of windows, and the modules that use them.
# Kernels compile the rules of centers and fits, and images are fitted into results without a batch.
DECISIONS = {
    "centered_start": {
        "images.augment.geometry",
        "kernels.cpu.collate",
        "kernels.cpu.placement",
        "planning.batch.placement",
        "planning.batch.random",
        "planning.padding",
    },
    "halve_room": {"kernels.cpu.collate", "kernels.cpu.placement", "planning.centering"},
    "Placements": {"planning.batch.placement"},
    "round_half_even": {
        "kernels.cpu.placement",
        "planning.batch.placement",
        "planning.batch.random",
        "planning.fitting",
    },
    "limit_size": {"kernels.cpu.placement", "planning.batch.placement"},
    "scale_with_short_side": {"kernels.cpu.placement", "planning.fitting"},
    "scale_sides": {"planning.batch.packing", "planning.batch.placement", "planning.batch.samples"},
    "place_samples": {"images.fitting", "planning.batch.placement"},
    "count_taps": {"taps"},
}


@cache
def calls_by_name(module):
    """Return the names of the functions and classes that a module calls or passes on."""
    tree = tree_of(MODULES[module])
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    called = [each for node in calls for each in (node.func, *node.args)]
    return {node.id for node in called if isinstance(node, ast.Name)}


@pytest.mark.parametrize("name", DECISIONS)
def test_windows_are_placed_by_one_module(name):
    """Executors read placements and tables of weights, and decide nothing."""
    assert {module for module in MODULES if name in calls_by_name(module)} == DECISIONS[name]


def test_modules_are_imported_by_made_up_names_in_few_places():
    made_up = re.compile(r"import_module\((?!\")")
    by_name = {name for name, path in MODULES.items() if made_up.search(path.read_text())}
    assert by_name == BY_NAME


def test_imports_form_no_cycle():
    """Check imports between modules, including late imports and imports of types."""
    graph = {
        module: {each for each in imports(module, types=True) if (module, each) not in TYPE_ONLY}
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


def test_functions_are_short():
    lengths = sorted(
        node.end_lineno - node.lineno + 1
        for path in MODULES.values()
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.FunctionDef)
    )
    assert statistics.median(lengths) <= MEDIAN_LINES
    assert lengths[len(lengths) * 9 // 10] <= LONG_LINES


def test_few_modules_have_a_single_importer_in_their_folder():
    """A helper belongs in its only importer, unless it is one of several alternatives."""
    importers = {}
    for module in MODULES:
        for target in imports(module):
            importers.setdefault(target, set()).add(module)
    single = {
        target
        for target, (module, *others) in importers.items()
        if not others and target.rpartition(".")[0] in (module, module.rpartition(".")[0])
    }
    assert len(single) < ONE_IMPORTER, sorted(single)


QUESTIONS = {
    "What",
    "Whether",
    "Who",
    "Whose",
    "Where",
    "How",
    "Those",
    "That",
    "Which",
    "When",
    "Why",
}


def test_docstrings_do_not_begin_with_a_question_word():
    """A docstring names a thing or begins with a verb; ruff checks the mood of functions (D401)."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
    paths = [*MODULES.values(), *(HOME / "building").glob("*.py"), *(HOME / "demo").glob("*.py")]
    wrong = []
    for path in paths:
        nodes = [node for node in ast.walk(tree_of(path)) if isinstance(node, kinds)]
        for text in filter(None, map(ast.get_docstring, nodes)):
            if re.split(r"\W", text)[0] in QUESTIONS or text.startswith("The same"):
                wrong.append(f"{path.relative_to(HOME)}: {text.splitlines()[0]}")
    assert wrong == []


# Words of docstrings and comments, with the words that replace them.
FORBIDDEN_WORDS = {
    r"[Rr]eturn the (bytes|items|words|lines|sums|instructions) ": "a number, size or length",
    r"\b(of which|that of|those of|of such|so many)\b": "the noun or the parameter",
    r"\bbehind\b": "after, past",
    r"\b(lies?|stands?)\b(?! for)": "is, are",
    r"\b(gettings?|anew)\b(?! started)": "result; again",
    r"\bturn(s|ed|ing)? (\S+ ){1,6}(into|to)\b|\bturn(s|ed|ing)? (off|around)\b": "convert",
    r"\btakes? (the|an?|any|one|no) (?!caller|few|longer|micro|quarter|tenth|third|time|while)": (
        "accepts, needs, occupies"
    ),
}
# Parts of sentences that need such a word.
ALLOWED_WORDS = {"a name other than that of labels occurs twice"}


@cache
def prose_of(path):
    """Return the docstrings and the blocks of comments of a file, each on one line."""
    if path.suffix != ".py":
        lines = [line.partition("//")[2] for line in path.read_text().splitlines()]
    else:
        with tokenize.open(path) as file:
            comments = {
                token.start[0]: token.string.lstrip("#")
                for token in tokenize.generate_tokens(file.readline)
                if token.type == tokenize.COMMENT
            }
        count = len(path.read_text().splitlines())
        lines = [comments.get(number, "") for number in range(1, count + 1)]
    blocks = "\n".join(line.strip() for line in lines).split("\n\n")
    if path.suffix == ".py":
        kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
        nodes = [node for node in ast.walk(tree_of(path)) if isinstance(node, kinds)]
        blocks += filter(None, map(ast.get_docstring, nodes))
    return [" ".join(block.split()) for block in blocks if block.strip()]


@pytest.mark.parametrize("words", FORBIDDEN_WORDS)
def test_prose_names_things_by_the_usual_words(words):
    """The words on the right of FORBIDDEN_WORDS say the same without a second reading."""
    paths = [
        path for name in ("layoutkit", "kernels", "bench") for path in (HOME / name).rglob("*")
    ]
    wrong = [
        f"{path.relative_to(HOME)}: {text[max(0, found.start() - 60) : found.end() + 30]}"
        for path in paths
        if path.suffix in (".py", ".cu", ".cuh")
        for text in prose_of(path)
        for found in re.finditer(words, text)
    ]
    wrong = [text for text in wrong if not any(quote in text for quote in ALLOWED_WORDS)]
    assert wrong == [], f"write: {FORBIDDEN_WORDS[words]}"


def test_every_file_that_the_page_names_is_there():
    """Check names in backquotes that look like files or folders, anywhere on the page."""
    names = set(re.findall(r"`([\w/]+(?:\.py|\.cu|\.cuh|/))`", PAGE + CACHES))
    folders = ("layoutkit", "kernels", "bench", "building", "tests", "docs")
    roots = [HOME / root for root in folders]
    places = [p.relative_to(HOME).as_posix() for root in roots for p in [root, *root.rglob("*")]]
    ends = {f"/{place}" for place in places} | {f"/{place}/" for place in places}
    missing = {name for name in names if not any(end.endswith(f"/{name}") for end in ends)}
    assert missing == {"kernels/cpu/reverse.py", "toy.cu"}


PRIVATE_NAMES = 200  # uses in all tests
# Names that begin with `_` and are public: of Sample and Dataset, whose other names are fields, of
# named tuples, IPython, os and torch.
PUBLIC_NAMES = {
    *("_iter_fields", "_layout", "_length", "_meta", "_minibatches", "_shape", "_size", "_view"),
    *("_width", "_write", "_replace", "_repr_html_", "_exit", "_version"),
}


@pytest.mark.budget(0)
def test_tests_use_few_private_names():
    """Count attributes of other objects, imports, and names that tests replace."""
    used = [
        f"{path.relative_to(HOME)}:{node.lineno} {name}"
        for path in (HOME / "tests").rglob("*.py")
        for node in ast.walk(tree_of(path))
        for name in _names_used(node)
        if name.startswith("_") and not name.endswith("__") and name not in PUBLIC_NAMES
    ]
    assert len(used) < PRIVATE_NAMES, used


def _names_used(node):
    """Return the names of other objects that a node uses: x.name, imports, setattr(x, "name")."""
    if isinstance(node, ast.Attribute):
        return [] if getattr(node.value, "id", "") in ("self", "cls") else [node.attr]
    if isinstance(node, ast.ImportFrom):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.Call) and _last_name(node.func).endswith("attr"):
        return [arg.value for arg in node.args[1:2] if isinstance(getattr(arg, "value", 0), str)]
    return []


def _last_name(node):
    """Return the name that an expression ends with: "setattr" for monkeypatch.setattr."""
    return getattr(node, "attr", getattr(node, "id", ""))
