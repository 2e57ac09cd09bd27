"""The GPU's own branches of `numeric.cuh`: the PTX that NVRTC makes, interpreted value by value.

The other tests run the branches of the CPU. Here operands, constants and rounding of the GPU's
instructions are compared with NumPy, for every cast and for the arithmetic of formulas and sums.
"""

from types import SimpleNamespace

import numpy as np
import pytest

from tests.helpers.arrays_of import BF16
from tests.helpers.cuda_casts import DTYPES, PAIRS, edges, headers, is_made
from tests.helpers.cuda_moves import address
from tests.helpers.nvrtc import Compiled, needs_nvrtc
from tests.helpers.ptx import Kernel
from tests.helpers.reference import reference_convert

pytestmark = [pytest.mark.budget(6), needs_nvrtc]

LIMITS = 300  # values of a dtype, of which the last are random
ARITHMETIC = {
    "add_f4": ("float *y, const float *a, const float *b", "*y = plus(*a, *b)"),
    "add_f8": ("double *y, const double *a, const double *b", "*y = plus(*a, *b)"),
    "fma_f4": (
        "float *y, const float *a, const float *b, const float *c", "*y = multiply_add(*a, *b, *c)",
    ),
    "fma_f8": (
        "double *y, const double *a, const double *b, const double *c",
        "*y = multiply_add(*a, *b, *c)",
    ),
    "f4_f2": ("f2::memory *y, const float *a", "*y = cast_computed<f2, f4, 0>(*a)"),
    "f4_bf": ("bf::memory *y, const float *a", "*y = cast_computed<bf, f4, 0>(*a)"),
    "f8_f2": ("f2::memory *y, const double *a", "*y = cast_computed<f2, f8, 0>(*a)"),
    "bits": ("float *y, const float *a", "*y = float_of(bits_of(*a) ^ 0x80000000u)"),
}  # fmt: skip


def kernel_text(name, parameters, body):
    return f'extern "C" __global__ void {name}({parameters}) {{ {body}; }}\n'


@pytest.fixture(scope="module", params=[75, 90])
def module(request):
    """Return the PTX of all probes, for generations without and with bfloat16 instructions."""
    text = headers()
    for number, (of, to) in enumerate(PAIRS):
        for clip in (0, 1):
            parameters = f"{to}::memory *y, const {of}::memory *x"
            body = f"*y = cast<{to}, {of}, {clip}>(*x)"
            text += kernel_text(f"cast_{number}_{clip}", parameters, body)
    for name, (parameters, body) in ARITHMETIC.items():
        text += kernel_text(name, parameters, body)
    return Compiled(SimpleNamespace(family="probes", defines=()), request.param, text).ptx


def run(kernel, target, *sources):
    """Run a kernel for each element of the sources."""
    for index in range(target.size):
        kernel(*(address(array) + index * array.itemsize for array in (target, *sources)))


def some_edges(of):
    values = edges(of)
    if of in ("f2", "bf"):  # all values of 16 bits
        return np.concatenate([values[:: len(values) // LIMITS], values[1023::1024]])
    return np.ascontiguousarray(values[:LIMITS])


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("clip", [0, 1], ids=["plain", "saturating"])
@pytest.mark.parametrize("of", DTYPES)
def test_casts(module, of, clip):
    x = some_edges(of)
    for number, (source, target) in enumerate(PAIRS):
        if source != of or not is_made(source, target, clip):
            continue
        y = np.empty(x.shape, DTYPES[target])
        run(Kernel(module, f"cast_{number}_{clip}"), y, x)
        casting = "saturate" if clip else "unsafe"
        wanted = reference_convert(x, "b->b", dtype=DTYPES[target], casting=casting)
        is_nan = np.isnan(wanted)
        np.testing.assert_array_equal(np.isnan(y), is_nan)
        np.testing.assert_array_equal(y[~is_nan], wanted[~is_nan], err_msg=f"{source} to {target}")


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_sums_and_formulas(module, dtype):
    rng = np.random.default_rng(0)
    a, b, c = (rng.normal(0, 10, 500).astype(dtype) for _ in range(3))
    a[:3], b[:3], c[:3] = 0, [1, -1, 2], [-0.0, 0.0, 3]
    y = np.empty_like(a)
    run(Kernel(module, f"add_{dtype}"), y, a, b)
    np.testing.assert_array_equal(y, a + b)
    run(Kernel(module, f"fma_{dtype}"), y, a, b, c)
    exact = a.astype(np.longdouble) * b + c
    if dtype == "f4":  # a longdouble holds the exact product
        np.testing.assert_array_equal(y, exact.astype("f4"))
    else:
        np.testing.assert_allclose(y, exact.astype("f8"), rtol=1e-13)
    tiny = np.array([1e-45, 3e-45], dtype)
    run(Kernel(module, f"add_{dtype}"), y[:2], tiny, tiny)
    np.testing.assert_array_equal(y[:2], tiny + tiny)  # subnormal numbers are kept


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
@pytest.mark.parametrize(("source", "target"), [("f4", "f2"), ("f4", BF16), ("f8", "f2")], ids=str)
def test_results_of_formulas(module, source, target):
    x = edges(source)[:LIMITS]
    y = np.empty(x.shape, target)
    run(Kernel(module, f"{source}_{'f2' if target == 'f2' else 'bf'}"), y, x)
    wanted = x.astype(target)
    is_nan = np.isnan(wanted)
    np.testing.assert_array_equal(np.isnan(y), is_nan)
    np.testing.assert_array_equal(y[~is_nan], wanted[~is_nan])


def test_bits(module):
    x = edges("f4")[:LIMITS]
    y = np.empty_like(x)
    run(Kernel(module, "bits"), y, x)
    np.testing.assert_array_equal(y.view("u4"), x.view("u4") ^ 0x80000000)


@pytest.mark.parametrize("bounded", [0, 1])
@pytest.mark.parametrize("place", [0, 2])
def test_constants_of_a_formula(place, bounded):
    """Test the order of the constants: first the bounds, then pairs of a factor and a term."""
    defines = {"SOURCE": "u1", "TARGET": "f4", "COMPUTED": "f4", "COEFFICIENTS": 2}
    defines |= {"BOUNDED": bounded}
    body = f"Formula f(constants); f.choose({place}); *y = f.apply(*x)"
    text = headers() + kernel_text("probe", "float *y, const byte *x, const byte *constants", body)
    launch = SimpleNamespace(family="probe", defines=tuple(defines.items()))
    kernel = Kernel(Compiled(launch, 90, text).ptx, "probe")
    bounds, factors, terms = [20, 200], [0.5, 0.25, 2], [1, 7, -3]
    pairs = np.stack([factors, terms], axis=1)
    constants = np.array([*bounds[: 2 * bounded], *pairs.ravel()], "f4")
    for value in (0, 20, 100, 255):
        x, y = np.array([value], "u1"), np.empty(1, "f4")
        kernel(address(y), address(x), address(constants))
        clipped = np.clip(value, *bounds) if bounded else value
        assert y[0] == clipped * factors[place] + terms[place]
