"""CUDA kernels on one item: every cast between any two dtypes, on values at their limits.

All casts are compiled into one kernel, made of the same header that every family includes.
"""

import struct
from types import SimpleNamespace

import numpy as np
import pytest

from tests.helpers import cuda_shim
from tests.helpers.arrays_of import assert_same
from tests.helpers.cuda_casts import DTYPES, PAIRS, edges, headers, is_made
from tests.helpers.cuda_moves import copied, placed
from tests.helpers.reference import reference_convert

pytestmark = cuda_shim.needs_compiler

CASES = "".join(
    f"        case {n}: return each<{b}, {a}, CLIPPED>(params, pointers);\n"
    for n, (a, b) in enumerate(PAIRS)
)
KERNEL = """
struct Params { long long which, count; };

template <class To, class From, bool CLIP>
INLINE void each(const Params &params, const Pointers &pointers) {
    const typename From::memory *src = (const typename From::memory *)pointers.src[0];
    for (long long i = threadIdx.x; i < params.count; i += blockDim.x)
        ((typename To::memory *)pointers.dst)[i] = cast<To, From, CLIP>(src[i]);
}

extern "C" __global__ void casts(const Params params, const Pointers pointers) {
    switch (params.which) {
        CASES
    }
}
""".replace("        CASES\n", CASES)


@pytest.mark.budget(3)
@pytest.mark.filterwarnings("ignore:invalid value")  # of NaN, in the reference
@pytest.mark.parametrize("clip", [False, True], ids=["plain", "saturating"])
@pytest.mark.parametrize("of", DTYPES)
def test_casts_of_all_edges(of, clip):
    text, x = headers() + KERNEL, copied(edges(of), 0)
    casting = "saturate" if clip else "unsafe"
    for number, (a, target) in enumerate(PAIRS):
        if a == of and is_made(a, target, clip):
            y = placed(x.shape, DTYPES[target])
            launch = SimpleNamespace(
                family="casts", defines=(("CLIPPED", str(int(clip))),), coefficients=b"",
                params=struct.pack("2q", number, x.size), grid=1, block=32, pointers=3,
            )  # fmt: skip
            cuda_shim.run(launch, y, [x], text=text)
            wanted = reference_convert(x, "b->b", dtype=DTYPES[target], casting=casting)
            np.testing.assert_array_equal(np.isnan(y), np.isnan(wanted))
            there = ~np.isnan(wanted)  # the other bits of NaN may change
            assert_same(y[there], wanted[there])
