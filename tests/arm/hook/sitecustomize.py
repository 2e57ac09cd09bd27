"""Compile kernels for AArch64 outside of the emulator, which takes seconds instead of minutes.

Python imports this module when it starts. The variables HOST_PYTHON and PROJECT name an x86-64
Python with layoutkit's dependencies, and the project's folder.
"""

import importlib.util
import json
import os
import subprocess
import sys
from importlib.abc import MetaPathFinder

COMPILER = "layoutkit.kernels.cpu.compiler"
CODE = """
import json, sys
sys.path[:0] = sys.argv[1:3]
import objects
objects.set_architecture("aarch64")
from layoutkit.kernels.cpu import compiler
family, *literals = json.loads(sys.argv[3])
sys.stdout.buffer.write(compiler.compile_object(compiler.KernelSpec(family, tuple(literals))))
"""


def compile_object(spec):
    """Return the object of a kernel, as the function of this name in the compiler's module does."""
    project = os.environ["PROJECT"]
    variables = {name: os.environ[name] for name in ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES")}
    arguments = [project, f"{project}/building", json.dumps([spec.family, *spec.literals])]
    command = [os.environ["HOST_PYTHON"], "-c", CODE, *arguments]
    return subprocess.run(command, env=variables, stdout=subprocess.PIPE, check=True).stdout


class ReplaceCompiler(MetaPathFinder):
    """Replace `compile_object` when the compiler's module is imported."""

    def find_spec(self, name, path, target=None):
        if name != COMPILER:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        run = spec.loader.exec_module

        def run_and_replace(module):
            run(module)
            module.compile_object = compile_object

        spec.loader.exec_module = run_and_replace
        return spec


sys.meta_path.insert(0, ReplaceCompiler())
