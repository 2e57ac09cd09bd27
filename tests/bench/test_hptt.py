"""HPTT as a peer, with a stand-in library that has its C functions and a simple loop."""

import dataclasses
import shutil
import subprocess

import numpy as np
import pytest

from layoutkit import bench
from layoutkit.bench import cases, run
from layoutkit.bench.peers import HPTT_VARIABLE, available, load_hptt
from layoutkit.bench.protocol import Budget
from layoutkit.bench.rows import Row
from layoutkit.errors import ArgumentError

SOURCE = """
#include <stddef.h>

#define TRANSPOSE(name, number)                                                                   \\
    void name(const int *perm, const int dim, const number alpha, const number *A,                \\
              const int *sizeA, const int *outerSizeA, const number beta, number *B,              \\
              const int *outerSizeB, const int numThreads, const int useRowMajor) {               \\
        size_t steps[16], count = 1;                                                              \\
        int index[16] = {0};                                                                      \\
        if (outerSizeA || outerSizeB || !useRowMajor || numThreads < 1 || beta != 0) return;      \\
        for (int axis = dim - 1; axis >= 0; axis--) {                                             \\
            steps[axis] = count;                                                                  \\
            count *= sizeA[axis];                                                                 \\
        }                                                                                         \\
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


def compiled(folder, text):
    """Compile a library from C source and return its path."""
    if shutil.which("gcc") is None:
        pytest.skip("there is no gcc to compile a stand-in for HPTT")
    source = folder / "hptt.c"
    library = folder / "libhptt.so"
    source.write_text(text)
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "-o", library, source], check=True)
    return str(library)


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return compiled(tmp_path_factory.mktemp("hptt"), SOURCE)


@pytest.fixture
def peer(library, monkeypatch):
    monkeypatch.setenv(HPTT_VARIABLE, library)
    return load_hptt(2)


def row_of(dtype, **changes):
    return dataclasses.replace(MOVE, dtype=dtype, to_dtype=dtype, **changes)


@pytest.mark.parametrize("target", ["bchw", "chwb", "wcbh"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_moves_of_floats_are_right(peer, dtype, target):
    row = row_of(dtype, target=target)
    source = np.random.default_rng(0).random(row.sizes).astype(dtype)
    expected = cases.reference(row, [source])
    out = np.full(row.shape(target), -1, dtype)
    peer.into(row, [source], out)()
    fresh = peer.fresh(row, [source])()
    for result in (out, fresh):
        assert result.dtype == dtype
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize(
    "row",
    [
        row_of("int16"),
        row_of("float32", kind="accumulate", sources=("bhwc", "bhwc")),
        dataclasses.replace(MOVE, kind="fused", dtype="uint8"),
    ],
    ids=lambda row: row.kind,
)
def test_what_it_cannot_do_it_leaves_out(peer, row):
    sources = [np.zeros(row.sizes, row.dtype) for _ in row.sources]
    out = np.zeros(row.shape(row.target), row.to_dtype)
    assert peer.into(row, sources, out) is None
    assert peer.fresh(row, sources) is None


def test_it_takes_part_where_the_environment_names_it(peer, monkeypatch):
    assert available(2)[-1].name == "HPTT"
    assert available(2)[-1].version == "libhptt.so"
    monkeypatch.delenv(HPTT_VARIABLE)
    assert "HPTT" not in [peer.name for peer in available(2)]


@pytest.mark.usefixtures("peer")
def test_the_table_has_its_column(monkeypatch, capsys):
    monkeypatch.setattr(cases, "SPAN_BYTES", 1)
    monkeypatch.setattr(run, "all_rows", lambda quick: [MOVE])
    monkeypatch.setattr(run, "QUICK", Budget(0.005, 0.0, 2, 3, 0.0))
    assert bench.main(quick=True) == 0
    heading = next(line for line in capsys.readouterr().out.splitlines() if "of limit" in line)
    assert "HPTT" in heading


def test_a_path_that_is_none_is_an_error_before_anything_is_measured(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv(HPTT_VARIABLE, str(tmp_path / "libhptt.so"))
    with pytest.raises(ArgumentError, match=r"LAYOUTKIT_HPTT: .*libhptt\.so cannot be loaded"):
        bench.main(quick=True)
    assert capsys.readouterr().out == ""


def test_a_library_without_its_functions_is_an_error(monkeypatch, tmp_path):
    library = compiled(tmp_path, "int other(void) { return 1; }")
    monkeypatch.setenv(HPTT_VARIABLE, library)
    with pytest.raises(ArgumentError, match="has no sTensorTranspose, so it is not HPTT"):
        available(1)
