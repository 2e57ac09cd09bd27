"""Check the types of the programs in README.md and docs/, and of results, with mypy and pyright.

The Python blocks of a page are one program, without those that are never run. `mypy --strict` must
accept it, except that the program's own functions, classes and empty lists have no annotations, and
that a name may have values of several types. Libraries without type annotations are not checked.
"""

import doctest
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("docs/recipes/*.md")]
NEVER_RUN = re.compile(r'<!-- skip: start "[^"]*" -->.*?<!-- skip: end -->', re.DOTALL)
BLOCK = re.compile(r"^```(?:python|pycon)\n(.*?)^```", re.MULTILINE | re.DOTALL)
MYPY = """[mypy]
strict = true
python_version = 3.12
allow_redefinition = true
disallow_untyped_defs = false
disallow_incomplete_defs = false
disallow_untyped_calls = false
disallow_subclassing_any = false
disallow_any_generics = false
ignore_missing_imports = true
disable_error_code = var-annotated
[mypy-layoutkit.*]
follow_imports = silent
[mypy-zarr.*]
follow_imports = skip
"""
PYRIGHT = {
    "typeCheckingMode": "standard",
    "useLibraryCodeForTypes": False,
    "reportMissingImports": False,
    "reportMissingModuleSource": False,
    "reportMissingTypeStubs": False,
    "reportPossiblyUnboundVariable": False,  # after a loop
    "reportUnusedExpression": False,  # an example that shows a value
    "extraPaths": [str(ROOT)],
    "pythonVersion": "3.12",
}


def program(page: Path) -> str:
    """Return the Python blocks of a page as one program, each line at its place in the page."""
    text = NEVER_RUN.sub(lambda found: "\n" * found[0].count("\n"), page.read_text())
    lines = [""] * len(text.splitlines())
    for block in BLOCK.finditer(text):
        first = text.count("\n", 0, block.start(1))
        if ">>>" not in block[1]:
            lines[first : first + block[1].count("\n")] = block[1].splitlines()
            continue
        for example in doctest.DocTestParser().get_examples(block[1]):
            source = [] if example.exc_msg else example.source.splitlines()
            lines[first + example.lineno : first + example.lineno + len(source)] = source
    return "\n".join(lines) + "\n"


def main() -> int:
    """Write the programs to a folder, and check them there."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for page in PAGES:
            # Not "jax.py": that would hide the library of this name.
            place = "_".join(page.relative_to(ROOT).with_suffix("").parts)
            (folder / f"{place.replace('-', '_').lower()}_page.py").write_text(program(page))
        shutil.copy(ROOT / "lint/result_types.py", folder / "result_types_page.py")
        (folder / "mypy.ini").write_text(MYPY)
        (folder / "pyrightconfig.json").write_text(json.dumps(PYRIGHT))
        paths = sorted(map(str, folder.glob("*_page.py")))
        environment = {**os.environ, "MYPYPATH": str(ROOT)}
        checks = [
            [sys.executable, "-m", "mypy", "--config-file", "mypy.ini", *paths],
            [sys.executable, "-m", "basedpyright", "--pythonpath", sys.executable],
        ]
        codes = [subprocess.run(check, cwd=folder, env=environment).returncode for check in checks]
        return max(codes)


if __name__ == "__main__":
    sys.exit(main())
