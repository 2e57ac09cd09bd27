"""Other libraries as peers: right results, and rows that they do not support."""

import dataclasses
import shutil
import subprocess

import pytest

from layoutkit import bench
from layoutkit.bench import cases
from layoutkit.bench.peers import (
    HPTT_VARIABLE,
    OpenCV,
    TorchPeer,
    available,
)
from layoutkit.bench.rows import Row, all_rows
from layoutkit.errors import ArgumentError

# A library with HPTT's C functions and a simple loop.
SOURCE = """
#include <stddef.h>
#define TRANSPOSE(name, number)                                                                   \\
    void name(const int *perm, const int dim, const number alpha, const number *A,                \\
              const int *sizeA, const int *outerSizeA, const number beta, number *B,              \\
              const int *outerSizeB, const int numThreads, const int useRowMajor) {               \\
        size_t steps[16], count = 1;                                                              \\
        int index[16] = {0};                                                                      \\
        if (outerSizeA || outerSizeB || !useRowMajor || numThreads < 1 || beta != 0) return;      \\
        for (int axis = dim - 1; axis >= 0; count *= sizeA[axis--]) steps[axis] = count;          \\
        for (size_t place = 0; place < count; place++) {                                          \\
            size_t from = 0;                                                                      \\
            for (int axis = 0; axis < dim; axis++) from += index[axis] * steps[perm[axis]];       \\
            B[place] = alpha * A[from];                                                           \\
            for (int axis = dim - 1; axis >= 0 && ++index[axis] == sizeA[perm[axis]]; axis--)     \\
                index[axis] = 0;                                                                  \\
        }                                                                                         \\
    }
TRANSPOSE(sTensorTranspose, float)
TRANSPOSE(dTensorTranspose, double)
"""
MOVE = Row("g", "move", ("bhwc",), "chwb", "bhwc", (3, 4, 5, 6), "float32", "float32")
FUSED = dataclasses.replace(MOVE, kind="fused", target="bchw", sizes=(3, 4, 5, 3), dtype="uint8")
SUM = next(row for row in all_rows() if row.kind == "accumulate")
SUM = dataclasses.replace(SUM, sizes=(3, 4, 5, 6))


def names_of(peer, row):
    """Return the names of the variants of a peer; their results must be right."""
    case = cases.prepare(row, [peer], fresh_peers=True)
    assert (case.wrong, case.failed) == ([], {})
    names = [variant.name for variant in case.variants]
    return [name.removeprefix(peer.name) for name in names if name.startswith(peer.name)]


@pytest.mark.parametrize("row", [MOVE, FUSED, SUM], ids=lambda row: row.kind)
@pytest.mark.parametrize(
    ("peer", "package", "kinds", "variants"),
    [
        (TorchPeer, "torch", ("move", "fused", "accumulate"), ["", ", fresh"]),
        (OpenCV, "cv2", ("fused",), ["", ", fresh"]),
    ],
)
def test_peers_give_right_results_for_the_rows_they_support(peer, package, kinds, variants, row):
    pytest.importorskip(package, reason=f"{package} is not installed: pip install {package}")
    assert names_of(peer(1), row) == (variants if row.kind in kinds else [])


def compiled(folder, text):
    """Compile a library from C source and return its path."""
    if shutil.which("gcc") is None:
        pytest.skip("there is no gcc to compile a stand-in for HPTT")
    source, library = folder / "hptt.c", folder / "libhptt.so"
    source.write_text(text)
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "-o", library, source], check=True)
    return str(library)


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return compiled(tmp_path_factory.mktemp("hptt"), SOURCE)


def row_of(dtype, **changes):
    return dataclasses.replace(MOVE, dtype=dtype, to_dtype=dtype, **changes)


@pytest.mark.parametrize(
    ("row", "variants"),
    [
        *[(row_of(dtype, target=target), ["", ", fresh"])
          for dtype in ("float32", "float64") for target in ("bchw", "chwb", "wcbh")],
        (row_of("int16"), []),
        (SUM, []),
        (FUSED, []),
    ],
    ids=lambda row: row.name if isinstance(row, Row) else "",
)  # fmt: skip
def test_hptt_moves_floats(library, monkeypatch, row, variants):
    monkeypatch.setenv(HPTT_VARIABLE, library)
    peer = available(2)[-1]
    assert (peer.name, peer.version) == ("HPTT", "libhptt.so")
    assert names_of(peer, row) == variants


def test_without_the_variable_there_is_no_hptt(monkeypatch):
    monkeypatch.delenv(HPTT_VARIABLE, raising=False)
    assert "HPTT" not in [peer.name for peer in available(2)]


@pytest.mark.parametrize("text", [None, "int other(void) { return 1; }"])
def test_a_path_that_is_not_hptt_is_an_error_before_measuring(monkeypatch, tmp_path, capsys, text):
    path = str(tmp_path / "none.so") if text is None else compiled(tmp_path, text)
    monkeypatch.setenv(HPTT_VARIABLE, path)
    with pytest.raises(ArgumentError, match=r"LAYOUTKIT_HPTT: .*\.so cannot be loaded as HPTT"):
        bench.main(quick=True)
    assert capsys.readouterr().out == ""
