"""Conversions need little stack and no network, and do not depend on the instruction set."""

import platform

import numpy as np
import pytest
from children import python
from instruction_sets import lacking, named

STACK_KIB = 64  # promised to be enough; kernels of sums failed with 48

SMALL_STACKS = """
import sys, threading
import numpy as np
import layoutkit
def everything():
    for threads in (1, 2):
        layoutkit.set_num_threads(threads)
        for dtype in ("u1", "f4", "f8"):
            for c, h in ((3, 16), (4, 16), (32, 16), (5, 3), (64, 56)):
                x = np.ones((2, h, h, c), dtype)
                for pattern in ("bhwc->bchw", "bchw->bhwc", "bhwc->chwb", "bhwc->bwhc"):
                    layoutkit.convert(x, pattern)
                if dtype != "f8" or c == 3:
                    norm = {"dtype": "f4", "casting": "unsafe", "mean": 1.0, "std": 2.0}
                    layoutkit.convert(x, "bhwc->bchw", **norm)
        for dtype in ("f4", "f8"):
            for c, h in ((3, 16), (5, 3), (64, 56)):
                shapes = [("bhwc", (2, h, h, c)), ("bchw", (2, c, h, h)), ("chwb", (c, h, h, 2))]
                parts = [(np.ones(shape, dtype), layout) for layout, shape in shapes]
                for layout, _ in shapes:
                    layoutkit.accumulate(parts, layout)
everything()  # load and compile, which is another matter
threading.stack_size(int(sys.argv[1]) << 10)
thread = threading.Thread(target=everything)
thread.start()
thread.join()
print("right")
"""


def test_kernels_and_sums_run_in_threads_with_small_stacks():
    assert python(SMALL_STACKS, sys_argv=[str(STACK_KIB)]) == "right\n"


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
from layoutkit.kernels.cpu import launch
launch.STREAM_BYTES = 0  # the kernels of test_kernels.py, which has such a process too
x = np.load(sys.argv[1] + "/x.npy")
constants = {"scale": np.float32(1 / 255), "mean": (0.5, 0.25, 0.75), "std": (0.1, 0.3, 0.7)}
for dtype in ("float32", "float16"):
    y = layoutkit.convert(x, "bhwc->bchw", dtype=dtype, casting="unsafe", **constants)
    np.save(f"{sys.argv[1]}/{sys.argv[2]}-{dtype}.npy", y)
np.save(f"{sys.argv[1]}/{sys.argv[2]}-moved.npy", layoutkit.convert(x, "bhwc->bchw"))
"""


@pytest.mark.skipif(
    platform.machine().lower() not in ("x86_64", "amd64"), reason="instruction sets of x86"
)
def test_formulas_differ_between_instruction_sets_by_one_rounding(tmp_path):
    """Fused multiply-add: AVX2 does not round the product before the addition."""
    if lacking("avx2"):
        pytest.skip("this CPU has no AVX2")
    np.save(tmp_path / "x.npy", X)
    for cpu in ("sse2", "avx2"):
        python(ELSEWHERE, sys_argv=[str(tmp_path), cpu], **named(cpu))
    product = np.abs(X.transpose(0, 3, 1, 2) * SCALE / np.float32(STD)[:, None, None])
    for dtype in ("float32", "float16"):
        one, other = (np.load(tmp_path / f"{cpu}-{dtype}.npy") for cpu in ("sse2", "avx2"))
        apart = np.abs(one.astype(np.float64) - other)
        step = np.maximum(np.spacing(product), np.spacing(np.maximum(abs(one), abs(other))))
        assert (apart <= step).all()
    moved = [np.load(tmp_path / f"{cpu}-moved.npy") for cpu in ("sse2", "avx2")]
    np.testing.assert_array_equal(*moved)
