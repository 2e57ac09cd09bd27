"""CUDA kernels through NVIDIA's compilers, for every GPU generation, without a GPU or a driver.

NVRTC and nvdisasm come as wheels; `nvcc` is used where it is installed.
"""

import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import product
from unittest.mock import patch

import numpy as np
import pytest

from layoutkit.bench.device import device_rows
from layoutkit.kernels.cuda import launch as launch_module
from layoutkit.kernels.cuda.launch import FAMILIES, source
from layoutkit.kernels.cuda.policy import THREADS
from tests.helpers.any_shapes import coverage_rows
from tests.helpers.arrays_of import BF16
from tests.helpers.cuda_moves import (
    by_boxes,
    placed,
    planned_collate,
    planned_row,
    planned_sum,
    whole_only,
)
from tests.helpers.cuda_moves import collate_of as collated
from tests.helpers.cuda_moves import launch_of as move
from tests.helpers.cuda_moves import packed_of as packed
from tests.helpers.cuda_moves import sum_of as total
from tests.helpers.nvrtc import OPTIONS, Compiled, needs_nvdisasm, needs_nvrtc
from tests.helpers.resizing import Case

pytestmark = pytest.mark.budget(3)

GENERATIONS = (75, 80, 90, 100, 120)
ALL = 90  # the generation for which all launches are compiled; others get SOME
SOME = ("transpose 1", "transpose 4", "transpose, normalized", "split, to bfloat16", "merge 2",
        "lines 1, unaligned", "permute 1", "runs", "gather 4", "sum of f8", "sum of bf", "crop u1",
        "resize u1")  # fmt: skip


# ---- what is compiled --------------------------------------------------------------------


def tiled(*conversion, **keywords):
    """Return the launch of a conversion by tiles."""
    with patch.dict(launch_module.MAKERS, transpose=(launch_module.make_transpose,)):
        return move(*conversion, **keywords)


def boxed(*conversion, **keywords):
    """Return the launch of a conversion by boxes."""
    with by_boxes():
        return move(*conversion, **keywords)


COLORS = {"mean": [1, 2, 3], "std": [4, 5, 6]}
LAUNCHES = {
    "transpose 1": lambda: move("bwc->bcw", (2, 256, 256), "u1"),
    "transpose 2": lambda: move("bwc->bcw", (2, 256, 256), "u2"),
    "transpose 4": lambda: move("bwc->bcw", (2, 256, 256), "u4"),
    "transpose 8": lambda: move("bwc->bcw", (2, 256, 256), "f8"),
    "transpose 16": lambda: move("bwc->bcw", (2, 256, 256), "c16"),
    "transpose 1, unaligned": lambda: tiled("bwc->bcw", (2, 704, 1025), "u1", 1),
    "transpose 1, anywhere": lambda: tiled("bwc->bcw", (2, 705, 1025), "u1", 1),
    "transpose 4, unaligned": lambda: tiled("bwc->bcw", (2, 704, 1025), "u4", 4),
    "transpose 4, fused": lambda: move("xyz->zyx", (20, 20, 20), "u4"),
    "transpose, normalized": lambda: move(
        "bwc->bcw", (2, 256, 64), "u1", dtype="f4", mean=[*range(64)]
    ),
    "transpose, halved": lambda: move("bwc->bcw", (2, 256, 64), "f4", dtype="f2"),
    "split, normalized": lambda: move("bpc->bcp", (2, 4096, 3), "u1", dtype="f4", **COLORS),
    "split, to bfloat16": lambda: move("bpc->bcp", (2, 4096, 3), "u1", dtype=BF16, **COLORS),
    "split 4": lambda: move("bpc->bcp", (2, 4096, 4), "u4"),
    "merge, saturated": lambda: move(
        "bcp->bpc", (2, 3, 4096), "f4", dtype="u1", casting="saturate", scale=255.0
    ),
    "merge 2": lambda: move("bcp->bpc", (2, 3, 4096), "u2"),
    "lines 4": lambda: move("bwc->bcw", (2, 4096, 17), "u4"),
    "lines 1, unaligned": lambda: move("bpc->bcp", (2, 4097, 3), "u1", 1),
    "lines 1, put together": lambda: move("bcp->bpc", (2, 3, 4097), "u1", 1),
    "copy 16": lambda: move("abc->bac", (8, 8, 4096), "u1"),
    "permute 1": lambda: boxed("uvxw->uvwx", (9, 31, 35, 38), "u1"),
    "permute, normalized": lambda: boxed("abcd->dbac", (7, 33, 19, 5), "u1", dtype="f4", mean=3),
    "runs": lambda: move("abc->bac", (70, 50, 33), "u1", 1),
    "gather 4": lambda: move("abc->bac", (7, 5, 3), "u4"),
    "cast": lambda: move("bc->bc", (64, 4096), "f8", dtype="f2"),
    "sum of f4": lambda: total("f4", "f2"),
    "sum of f8": lambda: total("f8", "f4", dtype="f4"),
    "sum of bf": lambda: total(BF16),
    "sum of integers": lambda: total("i4"),
    "sum of bytes": lambda: total("u1"),
    "sum of bf and f2": lambda: total(BF16, "f2"),
    "sum of i4 and i1": lambda: total("i4", "i1"),
    "sum of c16": lambda: total("c16"),
    "crop u1": lambda: collated("u1", shape=(375, 500, 3), h=224, w=224, dtype="f4", **COLORS),
    "crop u1, to bytes": lambda: collated("u1", shape=(375, 500, 3), h=224, w=224),
    "crop u1, samples last": lambda: collated(
        "u1", "hwc->chwb", (375, 500, 3), h=224, w=224, dtype=BF16, **COLORS
    ),
    "crop c16, filled": lambda: collated("c16", "hwc->bhwc", h=30, w=30, fill=1),
    "crop f4, channels": lambda: collated("f4", h=9, w=9, channels=(2, 0, 0)),
    "resize u1": lambda: collated("u1", h=9, w=9, resize="bilinear", dtype="f4", **COLORS),
    "resize u1, samples last": lambda: collated("u1", "hwc->chwb", h=9, w=9, resize="bicubic"),
    "resize bf, outside": lambda: collated(
        BF16, h=9, w=9, resize="area", fill=1, call={"crop": {"h": 30}, "offset": {"h": -4}}
    ),
    "resize f8, three axes": lambda: collated(
        "f8", "thw->bthw", (5, 20, 24), h=9, w=9, t=9, resize="lanczos", dtype="f4"
    ),
    "resize f2, rows": lambda: collated("f2", h=9, resize="bilinear"),
    "resize i8, nearest": lambda: collated("i8", h=9, w=9, resize="nearest"),
    "resize i2, ignored": lambda: collated("i2", h=9, w=9, resize="bilinear", ignore=-1),
    "crop, packed": lambda: packed("u1", dtype="f4", **COLORS),
    "resize u1, packed": lambda: packed("u1", multiple=6, resize="bicubic", dtype="f4", **COLORS),
    "resize u2, nearest": lambda: collated("u2", h=9, w=9, resize="nearest", dtype="f4"),
    "sum of f4 of some widths": lambda: total("f4", "f4", "f4", sizes=(40, 71)),
}


COMPILED = [(name, at) for at in GENERATIONS for name in (LAUNCHES if at == ALL else SOME)]


@pytest.mark.parametrize("generation", GENERATIONS)
def test_every_family_is_compiled(generation):
    names = [name for name, at in COMPILED if at == generation]
    assert {LAUNCHES[name]().family for name in names} == set(FAMILIES)


# ---- NVRTC -------------------------------------------------------------------------------


@cache
def compiled(name, generation):
    """Return a launch compiled for a generation; several tests look at one kernel."""
    return Compiled(LAUNCHES[name](), generation)


@pytest.mark.budget(1)
@needs_nvrtc
@pytest.mark.parametrize(("name", "generation"), COMPILED)
def test_kernels_compile_and_stay_in_registers(name, generation):
    kernel = compiled(name, generation)
    assert f"for 'sm_{generation}'" in kernel.log
    assert "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads" in kernel.log
    assert ".local" not in kernel.ptx


def spills(launches, generation):
    """Return the launches whose kernels spill registers, each with the number of spilled bytes."""

    def spilled(launch):
        log = Compiled(launch, generation).log
        return max(map(int, re.findall(r"(\d+) bytes (?:stack frame|spill stores)", log)))

    with ThreadPoolExecutor(2) as pool:
        found = zip(launches, pool.map(spilled, launches), strict=True)
        return {(launch.family, launch.defines): count for launch, count in found if count}


def distinct(launches):
    """Return one launch of each kernel, in the order of their macros."""
    found = {(launch.family, launch.defines): launch for launch in launches}
    return [found[kernel] for kernel in sorted(found)]


def benchmark_launches():
    """Yield a launch of each row of `layoutkit bench --device cuda`, without sums."""
    for row in device_rows():
        is_padded = "pad_to" in row.keywords  # needs two kernels: a fill and a region
        if row.kind in ("move", "fused", "collate", "options") and not is_padded:
            yield planned_row(row)[0]


SPILL_GENERATIONS = [80, 90, 100, 120]


@pytest.mark.budget(0, all=1)
@needs_nvrtc
@pytest.mark.parametrize("generation", SPILL_GENERATIONS)
def test_kernels_of_the_benchmark_stay_in_registers(generation):
    launches = distinct(benchmark_launches())
    assert len(launches) > 60
    assert not spills(launches, generation)


@pytest.mark.budget(0, all=1)
@needs_nvrtc
@pytest.mark.parametrize("generation", SPILL_GENERATIONS)
def test_kernels_of_any_shapes_stay_in_registers(generation):
    with by_boxes():
        launches = [planned_row(row)[0] for seed in (0, 9) for row in coverage_rows(64, seed)]
    launches = distinct(launch for launch in launches if launch.family == "permute")
    assert len(launches) > 72
    assert not spills(launches, generation)


WINDOWS = [
    {}, {"channels": (2, 1, 0)}, {"channels": (2, 0, 0, 1)}, {"channels": (1, 1)},
    {"fill": 7, "call": {"offset": {"h": -3, "w": 30}}}, {"call": {"flip": "w"}},
    {"fill": 7, "channels": (1, 2), "call": {"offset": {"h": -3, "w": 30}}},
]  # fmt: skip
CASTS = [("u1", "u1"), ("u1", "f4"), ("u1", BF16), ("f2", "f2"), ("f4", "f4"), ("c16", "c16")]
SHAPES = {
    "hw->bwh": ((12, 17), {"h": 9}), "f->fb": ((40,), {"f": 33}),
    "thwc->btchw": ((3, 8, 9, 2), {"h": 5, "t": 2}), "wch->bhwc": ((12, 3, 9), {"w": 7}),
    "hwc->cwhb": ((5, 1, 1), {"h": 3}), "vxyzuc->bczyxvu": ((2, 3, 2, 5, 3, 2), {"z": 3}),
}  # fmt: skip
RESIZES = [
    {"resize": "nearest"}, {"resize": "bilinear"},
    {"resize": "bilinear", "crop": {"h": 30}, "offset": {"h": -4}, "fill": 9},
    {"resize": "nearest", "channels": (2, 0)}, {"resize": "area", "channels": (2, 0)},
]  # fmt: skip


def window_launches():
    """Yield launches of collated samples, with the options of test_collate and test_windows."""
    patterns = ["hwc->bchw", "hwc->bhwc", "hwc->chwb", "hwc->wbch"]
    tiles = ((32, 2), (33, 3), (8, 64))  # the width of a window, and samples
    for pattern, options, (dtype, to), (width, count) in product(patterns, WINDOWS, CASTS, tiles):
        sizes = {"h": 16 + width % 2, "w": width}
        formula = COLORS if to == "f4" != dtype and "channels" not in options else {}
        yield collated(dtype, pattern, (20, 37, 3), count, dtype=to, **sizes, **options, **formula)
    for channels, pattern in product((1, 2, 8, 12, 64), patterns):
        for dtype, shift in (("u1", 0), ("u1", 1), ("u2", 1), ("f4", 2), ("f8", 2), ("c16", 8)):
            yield collated(dtype, pattern, (9, 70, channels), h=8, w=64, shift=shift)
    for pattern, (shape, sizes) in SHAPES.items():
        for dtype in ("u2", "f8"):
            yield collated(dtype, pattern, shape, 5, **sizes)


def resize_launches():
    """Yield launches of resized samples: as in test_resize, with axes, channels and dtypes."""
    for seed in range(200):
        case = Case(seed)
        yield planned_collate(case.samples, case.pattern, call=case.call, **case.keywords)[0]
    patterns = ["hwc->bchw", "hwc->bhwc", "hwc->chwb"]
    for pattern, options, to in product(patterns, RESIZES, ("u1", "f4", BF16)):
        formula = COLORS if to != "u1" and "channels" not in options else {}
        for width, height in ((9, 17), (65, 64), (1, 4)):
            sizes = {"h": height, "w": width}
            yield collated("u1", pattern, (40, 50, 3), dtype=to, **sizes, **options, **formula)
    for axes in ("t", "h", "w", "th", "tw", "hw", "thw"):
        sizes = dict.fromkeys(axes, 9)
        yield collated("f4", "thw->bthw", (7, 20, 31), resize="bilinear", **sizes)
    # 32 rows of pixels fill the shared memory of a block, with and without taps along the rows.
    for pattern, sizes in product(patterns, ({"w": 40}, {"w": 40, "h": 40})):
        for dtype, channels in product(("u1", "f4"), (4, 8)):
            yield collated(dtype, pattern, (64, 50, channels), 64, resize="bilinear", **sizes)


PARTS = 32  # tests, which share the kernels among them


@pytest.mark.budget(0, all=16)
@needs_nvrtc
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("generation", SPILL_GENERATIONS)
def test_kernels_of_windows_stay_in_registers(generation, part):
    launches = distinct([*window_launches(), *resize_launches()])
    assert len(launches) > 400
    assert not spills(launches[part::PARTS], generation)


# The minimum of blocks per multiprocessor for sums in three layouts, if all, some or none of the
# arrays are accessed in words of 16 bytes. The first two are those of the benchmark.
SUMS = {
    ("f4",): (4, 3, 3), (BF16,): (3, 2, 2), ("f2",): (3, 2, 2), ("f8",): (4, 3, 3),
    ("u1",): (3, 3, 3), ("i2",): (3, 3, 3), ("u4",): (3, 2, 2), ("i8",): (4, 3, 3),
    ("c8",): (4, 3, 3), ("c16",): (4, 4, 4), ("f4", BF16): (4, 3, 3), (BF16, "f2"): (2, 2, 2),
    ("f8", "u1"): (4, 3, 3), ("i8", "f8"): (4, 3, 3), ("i4", "i1"): (2, 2, 2),
}  # fmt: skip
WORDS = {(64, 64, 64): 0, (64, 64, 67): 1, (61, 63, 67): 2}


@pytest.mark.budget(2, all=24)
@needs_nvrtc
@pytest.mark.parametrize("generation", [90, 80, 75, 100, 120])
@pytest.mark.parametrize("sizes", WORDS)
@pytest.mark.parametrize("dtypes", SUMS, ids=str)
def test_sums_leave_registers_for_other_blocks(dtypes, sizes, generation):
    extents = dict(zip("abc", sizes, strict=True))
    parts = [
        (placed([extents[axis] for axis in layout], dtype), layout)
        for layout, dtype in zip(("abc", "cab", "bca"), (dtypes * 3)[:3], strict=True)
    ]
    log = Compiled(planned_sum(parts, "abc")[0], generation).log
    assert "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads" in log
    registers = int(re.search(r"Used (\d+) registers", log)[1])
    blocks = 65536 // (THREADS * (-(-registers // 8) * 8))
    assert blocks >= SUMS[dtypes][WORDS[sizes]]


@pytest.mark.budget(0)
@needs_nvrtc
@pytest.mark.parametrize("name", LAUNCHES)
def test_nothing_is_flushed_to_zero(name):
    """Test that float32 arithmetic keeps subnormal numbers in spite of CuPy's option -ftz=true.

    Rounding to integers (rni, rzi) and comparisons of rounded values may flush: no integer is
    subnormal.
    """
    assert "-ftz=true" in OPTIONS
    ptx = compiled(name, ALL).ptx
    assert not re.findall(r"\b(?:add|sub|mul|fma|div|cvt(?!\.rni|\.rzi))\S*\.ftz\S*", ptx)


def widths(ptx, instruction):
    """Return the widths in bits of the global loads or stores of a kernel."""
    words = re.findall(rf"\b{instruction}\.global\S*?(?:\.v(\d))?\.[a-z](\d+)\b", ptx)
    return {int(count or 1) * int(bits) for count, bits in words}


@pytest.mark.budget(1)
@needs_nvrtc
@pytest.mark.parametrize(
    ("name", "read", "written"),
    [
        ("transpose 1", 128, 128), ("transpose 2", 128, 128), ("transpose 4", 128, 128),
        ("transpose 8", 128, 128), ("transpose 16", 128, 128), ("copy 16", 128, 128),
        ("transpose 4, unaligned", 32, 128), ("transpose 1, unaligned", 128, 128),
        ("transpose 1, anywhere", 128, 128),
        ("split, normalized", 128, 128), ("merge, saturated", 64, 128),
        ("lines 4", 128, 32), ("lines 1, unaligned", 128, 32), ("lines 1, put together", 32, 128),
    ],
)  # fmt: skip
def test_memory_is_read_and_written_in_the_widest_words(name, read, written):
    ptx = compiled(name, ALL).ptx
    assert (max(widths(ptx, "ld")), max(widths(ptx, "st"))) == (read, written)


@pytest.mark.budget(1)
@needs_nvrtc
@needs_nvdisasm
@pytest.mark.parametrize("generation", GENERATIONS)
def test_machine_code_of_a_transpose_moves_16_bytes_at_once(generation):
    listing = compiled("transpose 4", generation).listing
    assert len(re.findall(r"\bLDG\.E\.128\b", listing)) >= 4
    assert len(re.findall(r"\bSTG\.E\.128\b", listing)) >= 4
    assert not re.findall(r"\b(LDL|STL)\b", listing)


@needs_nvrtc
@needs_nvdisasm
def test_words_at_any_address_are_shifted_in_registers():
    """Test that tiles without edges access device memory only in units of 16 bytes."""
    launch = LAUNCHES["transpose 1, anywhere"]()
    assert {("LOAD_SHIFTED", "1"), ("STORE_SHIFTED", "1")} <= set(launch.defines)
    listing = Compiled(launch, 90, whole_only(source(launch.family))).listing
    moved = re.findall(r"\b(?:LDG|STG)\.\S+", listing)
    assert len(moved) >= 12
    assert all(".128" in each for each in moved), moved
    assert not re.findall(r"\b(LDL|STL)\b", listing)


# ---- nvcc --------------------------------------------------------------------------------


@pytest.mark.budget(1)
@pytest.mark.skipif(not shutil.which("nvcc"), reason="needs nvcc")
@pytest.mark.parametrize("generation", [75, 90])
@pytest.mark.parametrize("name", ["transpose 1", "split, normalized", "gather 4", "sum of f8"])
def test_nvcc_compiles_without_spills(name, generation, tmp_path):
    launch = LAUNCHES[name]()
    text = tmp_path / f"{launch.family}.cu"
    text.write_text(source(launch.family))
    macros = [f"-D{macro}={value}" for macro, value in launch.defines]
    done = subprocess.run(
        ["nvcc", f"-arch=sm_{generation}", "-std=c++17", "-Xptxas", "-v,-warn-spills,-Werror",
         *macros, "-cubin", "-o", tmp_path / "kernel.cubin", text],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "0 bytes spill stores" in done.stderr


def test_arrays_of_launches_are_aligned():
    """Test that arrays have the alignment that the compile tests assume."""
    for shift in (0, 4):
        assert placed((3,), np.uint8, shift).__array_interface__["data"][0] % 256 == shift
