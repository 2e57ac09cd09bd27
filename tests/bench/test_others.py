"""Compilers and training pipelines as peers: each gives the right result, or is excluded."""

from dataclasses import replace

import pytest

from layoutkit.bench import cases, main
from layoutkit.bench.peers import Albumentations, Timm, TorchCompile, XlaJit
from layoutkit.bench.rows import all_rows
from layoutkit.errors import ArgumentError

ROWS = {
    "move": next(row for row in all_rows() if row.kind == "move" and row.dtype == "float32"),
    "fused": next(row for row in all_rows() if row.kind == "fused" and row.to_dtype == "float32"),
    "sum": next(row for row in all_rows() if row.kind == "accumulate"),
}


def measured(peer, row):
    """Return the names of the timed variants, and of the excluded ones."""
    sizes = (4, 8, 6, row.sizes[-1])[-len(row.sizes) :]
    case = cases.prepare(replace(row, sizes=sizes), [peer], fresh_peers=True)
    assert case.failed == {}
    return [variant.name for variant in case.variants], case.wrong


@pytest.mark.parametrize("row", ROWS)
def test_xla_gives_new_arrays(row):
    pytest.importorskip("jax")
    names, wrong = measured(XlaJit(1), ROWS[row])
    assert "XLA jit, fresh" in names
    assert "XLA jit" not in names
    assert wrong == []


def test_inductor_writes_into_outputs_too():
    pytest.importorskip("torch")
    names, wrong = measured(TorchCompile(1), ROWS["fused"])
    assert {"torch.compile", "torch.compile, fresh"} <= set(names)
    assert wrong == []


@pytest.mark.parametrize(("package", "peer"), [("timm", Timm), ("albumentations", Albumentations)])
def test_pipelines_do_photographs_for_models(package, peer):
    pytest.importorskip(package, reason=f"{package} is not installed: pip install {package}")
    pytest.importorskip("torch")
    names, wrong = measured(peer(1), ROWS["fused"])
    assert f"{peer.name}, fresh" in names
    assert wrong == []
    names, _ = measured(peer(1), ROWS["move"])
    assert not any(peer.name in name for name in names)


def test_they_go_with_the_rows_of_the_cpu():
    with pytest.raises(ArgumentError, match="--others"):
        main(others=True, loop=True)
