"""What systems differ in is decided in one module, `layoutkit/_utils/system.py`."""

import ast
from pathlib import Path

HOME = Path(__file__).parents[2]
SYSTEM = "layoutkit/_utils/system.py"
# NVIDIA's library has another name on Windows.
ALLOWED = {"layoutkit/cuda/driver.py": ["sys.platform == 'win32'"]}
MODULES = {"os", "mmap", "signal", "platform"}
NOT_EVERYWHERE = {"fcntl", "resource", "pwd", "grp", "termios", "msvcrt", "winreg"}


def is_question(node):
    """Return True if code asks for the system, or imports a module that not all systems have."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
        return node.func.id in ("hasattr", "getattr") and ast.unparse(node.args[0]) in MODULES
    if isinstance(node, ast.Compare):
        return any(name in ast.unparse(node) for name in ("sys.platform", "os.name"))
    return isinstance(node, ast.Import) and any(n.name in NOT_EVERYWHERE for n in node.names)


def test_systems_are_distinguished_in_one_module():
    found = {}
    for path in [*HOME.glob("layoutkit/**/*.py"), *HOME.glob("kernels/**/*.py")]:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        questions = [ast.unparse(node) for node in ast.walk(tree) if is_question(node)]
        if questions:
            found[path.relative_to(HOME).as_posix()] = questions
    assert len(found.pop(SYSTEM)) > 10
    assert found == ALLOWED
