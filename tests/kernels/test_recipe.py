"""The recipe for a new CPU kernel: a module, a row and a Tiling are enough.

The example reverses runs item by item, whereas layoutkit's own flip uses registers. It is added in
a separate process with a separate cache folder.
"""

from pathlib import Path

import pytest

from tests.helpers.children import python
from tests.helpers.recipes import blocks

MODULE, ROW, TILING = blocks("A new CPU kernel")

CHECKS = """
import numpy as np
import layoutkit
from layoutkit import Converter, convert, converter as conversion
from layoutkit.kernels.cpu import compiler, tiling
from layoutkit.planning import select as kernels
from tests.helpers.reference import reference_convert

images = np.random.default_rng(1).random((40, 30, 70, 9), np.float32)[..., ::-1]
backwards = np.arange(3 * 5 * 300, dtype="u2").reshape(3, 5, 300)[..., ::-1]


def check(array, pattern, **keywords):
    expected = reference_convert(array, pattern, **keywords)
    got = convert(array, pattern, copy=True, **keywords)
    assert got.dtype == expected.dtype
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-5 if keywords else 0)


def microkernels():
    loaded = [kernel.spec for kernel in compiler.loaded() if kernel.spec.family != "threadpool"]
    return {spec.literals[0] for spec in loaded}


# ---- the three steps ------------------------------------------------------------------------

layoutkit.kernels.cpu.__path__.append(FOLDER)


names = {**vars(kernels), **vars(tiling)}
function, row = ROW.split("KernelRow(")
exec(function, names)
row = eval("KernelRow(" + row.strip().rstrip(","), names)
kernels.KERNELS.insert(0, row)
tiling.TILINGS |= eval("{" + TILING + "}", names)

# ---- it is selected, printed and correct: in order, streamed, staged, with a formula ----------

plan = str(Converter("abc->abc", copy=True).plan(backwards))
assert "  kernel    reverse: x holds runs backwards" in plan, plan
assert "  work      15 x 300 items reversed, 2 bytes each" in plan, plan
check(backwards, "abc->abc")
check(backwards, "abc->bac")
check(images, "bhwc->bhwc")
check(images, "bhwc->hwbc", mean=[0.1 * c for c in range(9)], std=2)
check(backwards, "abc->abc", dtype="f4", scale=0.5)
assert microkernels() == {"reverse"}, microkernels()

# ---- it is removed without a trace -------------------------------------------------------------

kernels.KERNELS.remove(row)
del tiling.TILINGS["reverse"]
layoutkit.kernels.cpu.__path__.remove(FOLDER)
conversion._converters.find.cache_clear()
assert Converter("abc->abc", copy=True).plan(backwards).kernel == "flip"
check(backwards, "abc->abc")
assert microkernels() == {"reverse", "flip-1"}, microkernels()
"""


@pytest.mark.budget(0)
def test_a_kernel_is_one_module_one_row_and_one_tiling(tmp_path):
    added = tmp_path / "added"
    cache = tmp_path / "cache"
    added.mkdir()
    (added / "reverse.py").write_text(MODULE)
    root = str(Path(__file__).parents[2])
    before = f"import sys\nsys.path.append({root!r})\nFOLDER = {str(added)!r}\n"
    before += f"ROW, TILING = {ROW!r}, {TILING!r}\n"
    assert python(before + CHECKS, LAYOUTKIT_CACHE_DIR=cache) == ""
    assert any(path.name.startswith("engine-") for path in cache.iterdir())
