"""Conversions need little stack and no network, and do not depend on the instruction set."""

import platform
from pathlib import Path

import numpy as np
import pytest

from tests.helpers import across_cpus, fuzz
from tests.helpers.children import python
from tests.helpers.guarded import why_not
from tests.helpers.instruction_sets import lacking, named

ROOT = str(Path(__file__).parents[2])

SMALL_STACKS = """
import sys
import numpy as np
import layoutkit
few = sys.argv[2] == "few"
def everything():
    for threads in (2,) if few else (1, 2):
        layoutkit.set_num_threads(threads)
        for dtype in ("f4",) if few else ("u1", "f4", "f8"):
            for c, h in ((64, 56),) if few else ((3, 16), (4, 16), (32, 16), (5, 3), (64, 56)):
                x = np.ones((2, h, h, c), dtype)
                for pattern in ("bhwc->bchw", "bchw->bhwc", "bhwc->chwb", "bhwc->bwhc"):
                    layoutkit.convert(x, pattern)
                if dtype != "f8" or c == 3:
                    norm = {"dtype": "f4", "casting": "unsafe", "mean": 1.0, "std": 2.0}
                    layoutkit.convert(x, "bhwc->bchw", **norm)
        for dtype in ("f4",) if few else ("f4", "f8"):
            for c, h in ((64, 56),) if few else ((3, 16), (5, 3), (64, 56)):
                shapes = [("bhwc", (2, h, h, c)), ("bchw", (2, c, h, h)), ("chwb", (c, h, h, 2))]
                parts = [(np.ones(shape, dtype), layout) for layout, shape in shapes]
                for layout, _ in shapes:
                    layoutkit.accumulate(parts, layout)
        collate(("u1",) if few else ("u1", "f4", "f8"))
    x = np.ones((2, 8, 8, 3), "u1")
    for _ in range(70):  # then without Python, by the kernel "direct"
        layoutkit.convert(x, "bhwc->bchw")

def collate(dtypes):
    windows = {"h": 24, "w": 24}
    floats = {"dtype": "f4", "casting": "unsafe", "scale": 0.5}
    for dtype in dtypes:
        samples = [np.ones((h, w, 3), dtype) for h, w in ((40, 50), (20, 33))]
        for pattern in ("hwc->bchw", "hwc->bhwc", "hwc->chwb"):
            layoutkit.collate(samples, pattern, **windows, fill=1, flip="w", **floats)
            for resize in ("nearest", "bilinear", "bicubic", "lanczos", "area"):
                for keywords in (floats, {}):
                    layoutkit.collate(samples, pattern, **windows, resize=resize, **keywords)
    masks = [np.ones((40, 50), "i8"), np.ones((20, 33), "i8")]
    layoutkit.collate(masks, "hw->bhw", **windows, resize="nearest", fit="pad")

everything()  # load and compile, which is another matter
sys.path.insert(0, sys.argv[1])
from tests.helpers.guarded import STACK_BYTES, run_on_stack
run_on_stack(everything, STACK_BYTES)
print("right")
"""


@pytest.mark.budget(1)
@pytest.mark.parametrize("kernels", ["few", "all"])
@pytest.mark.skipif(bool(why_not()), reason=str(why_not()))
def test_all_kernels_run_in_threads_with_small_stacks(kernels):
    assert python(SMALL_STACKS, sys_argv=[ROOT, kernels]) == "right\n"


# ---- the network -------------------------------------------------------------------------

LOCAL = """
import sys
asked = []
def heard(event, args):
    if event.startswith("socket.") and event != "socket.__new__":
        asked.append((event, args))
sys.addaudithook(heard)
import numpy as np
import layoutkit, layoutkit.data
folder = sys.argv[1]
x = np.ones((6, 4, 5, 3), np.float32)
layoutkit.convert(x, "bhwc->bchw", dtype="float16", casting="unsafe", scale=0.5)
layoutkit.accumulate([(x, "bhwc"), (x, "bhwc")], "bchw")
layoutkit.show_config()
layoutkit.warmup("bhwc->bchw", x.shape)
view = layoutkit.ImageView("bhwc", x)
view.forward_get("bchw")
view.backward_put("bhwc", x)
view.backward_get()
images = layoutkit.Conv2DSpace((4, 5), 3, "bhwc")
images.format_as(x, layoutkit.VectorSpace(60))
np.save(folder + "/x.npy", x)
with open(folder + "/index.csv", "w") as file:
    file.write("filename,label\\n" + "x.npy,1\\n" * 6)
data = layoutkit.data
assert data.Dataset(folder + "/x.npy")[2:4]().shape[0] == 2
for workers in (0, 2):
    how = {"batch_size": 2, "layout": "bhwc", "num_workers": workers}
    batcher = data.sampled_batcher(folder + "/x.npy", **how)
    assert sum(1 for _ in batcher) == 3
    batcher.close()
assert len(data.open_index(folder + "/index.csv")) == 6

assert not asked, asked
import socket
try: socket.create_connection(("127.0.0.1", 9), 0.1)
except OSError: pass
assert "socket.connect" in [event for event, _ in asked]  # it would have been heard
"""


def test_nothing_is_sent_anywhere(tmp_path):
    python(LOCAL, sys_argv=[str(tmp_path)])


# ---- instruction sets --------------------------------------------------------------------

SCALE = np.float32(1 / 255)
STD = (0.1, 0.3, 0.7)
X = np.random.default_rng(0).integers(0, 256, (2, 33, 33, 3)).astype(np.uint8)
ELSEWHERE = """
import sys
import numpy as np
import layoutkit
from layoutkit.kernels.cpu import launch, tiling
# The kernels of test_kernels.py, which has such a process too.
launch.STREAM_BYTES = 0
tiling.STREAMED_BYTES = dict.fromkeys(tiling.STREAMED_BYTES, 0)
x = np.load(sys.argv[1] + "/x.npy")
constants = {"scale": np.float32(1 / 255), "mean": (0.5, 0.25, 0.75), "std": (0.1, 0.3, 0.7)}
for dtype in sys.argv[3:]:
    y = layoutkit.convert(x, "bhwc->bchw", dtype=dtype, casting="unsafe", **constants)
    np.save(f"{sys.argv[1]}/{sys.argv[2]}-{dtype}.npy", y)
np.save(f"{sys.argv[1]}/{sys.argv[2]}-moved.npy", layoutkit.convert(x, "bhwc->bchw"))
"""


@pytest.mark.budget(1)
@pytest.mark.parametrize("dtypes", [["float32"], ["float32", "float16"]], ids=len)
@pytest.mark.skipif(
    platform.machine().lower() not in ("x86_64", "amd64"), reason="instruction sets of x86"
)
def test_formulas_differ_between_instruction_sets_by_one_rounding(tmp_path, dtypes):
    """Fused multiply-add: AVX2 does not round the product before the addition."""
    if lacking("avx2"):
        pytest.skip("this CPU has no AVX2")
    np.save(tmp_path / "x.npy", X)
    for cpu in ("sse2", "avx2"):
        python(ELSEWHERE, sys_argv=[str(tmp_path), cpu, *dtypes], **named(cpu))
    product = np.abs(X.transpose(0, 3, 1, 2) * SCALE / np.float32(STD)[:, None, None])
    for dtype in dtypes:
        one, other = (np.load(tmp_path / f"{cpu}-{dtype}.npy") for cpu in ("sse2", "avx2"))
        apart = np.abs(one.astype(np.float64) - other)
        step = np.maximum(np.spacing(product), np.spacing(np.maximum(abs(one), abs(other))))
        assert (apart <= step).all()
    moved = [np.load(tmp_path / f"{cpu}-moved.npy") for cpu in ("sse2", "avx2")]
    np.testing.assert_array_equal(*moved)


@pytest.mark.budget(1)
@pytest.mark.parametrize(("moves", "kernels"), [(16, 3), (60, 10)])
@pytest.mark.skipif(
    platform.machine().lower() not in ("x86_64", "amd64"), reason="instruction sets of x86"
)
def test_random_conversions_are_equal_on_every_instruction_set(tmp_path, moves, kernels):
    """Moves and casts have equal bytes; formulas differ by one rounding.

    `python -m tests.helpers.across_cpus` compares any number of them.
    """
    cpus = [name for name in across_cpus.CPUS if not lacking(name)]
    if len(cpus) < 2:
        pytest.skip("this CPU has no AVX2")
    made = across_cpus.results(cpus, tmp_path, seed=1, moves=moves, kernels=kernels)
    outcomes = dict(across_cpus.compared(made, seed=1))
    assert {pair: reason for pair, reason in outcomes.items() if reason} == {}
    assert all(sum(cpu == name for _, cpu in outcomes) > moves // 2 for name in cpus[1:])
    numbers = {number % 2 for number, _ in outcomes}
    assert numbers == {0, 1}, "formulas, and conversions without one"


def test_conversions_that_differ_by_more_are_seen():
    drawn = [across_cpus.drawn(1, number) for number in range(40)]
    drawn = [move for move in drawn if move.source.values.size]
    moves = [move for move in drawn if "dtype" not in move.keywords]
    formulas = [
        move
        for move in drawn
        if "mean" in move.keywords and np.dtype(move.keywords["dtype"]) == np.float32
    ]
    changed = np.array([1], np.uint8)
    assert across_cpus.difference(moves[0], changed, changed) == ""
    assert across_cpus.difference(moves[0], changed, changed + 1) == "1 bytes differ"
    for move in formulas:
        result = move.expected()
        larger = np.nextafter(result, np.float32(np.inf))
        much_larger = (result + 3 * np.abs(result) * 2.0**-20 + 2.0**-10).astype("f4")
        bits = [fuzz.bits(each) for each in (result, larger, much_larger)]
        assert across_cpus.difference(move, bits[0], bits[1]) == ""
        assert "roundings apart" in across_cpus.difference(move, bits[0], bits[2])
    assert len(formulas) > 3
