"""Blocks, stores and ranks: compared results are equal, and failures are reported."""

import numpy as np
import pytest

from layoutkit.bench import machines


def test_blocks_are_compared_before_they_are_timed(capsys):
    da = pytest.importorskip("dask.array", reason="blocks are of dask")
    machines.print_blocks(1, (2, 6, 5, 3), 0.0)
    first, *lines = capsys.readouterr().out.splitlines()
    assert first.startswith("one block of (2, 6, 5, 3), ms: convert, dask's own")
    assert [line.split()[0] for line in lines] == ["uint8", "float32"]
    assert all(line.count(" x") == 2 for line in lines)
    values = np.ones((2, 6, 5, 3), np.uint8)
    result = machines.make_expressions(da.from_array(values), machines.SCALE)
    with pytest.raises(SystemExit, match="a converted block differs"):
        machines.check_blocks(values * 2, machines.SCALE, result)


@pytest.mark.budget(0)
def test_a_store_is_measured_on_a_cluster(capsys, monkeypatch):
    for name in ("zarr", "distributed"):
        pytest.importorskip(name, reason="the store is of zarr, the cluster of distributed")
    monkeypatch.setattr(machines, "BLOCK", (4, 8, 6, 3))
    monkeypatch.setattr(machines, "CHUNK", (2, 8, 6, 3))
    machines.print_store([1], 1, images=4)
    first, line = capsys.readouterr().out.splitlines()
    assert "float32 in chunks of (2, 8, 6, 3)" in first
    assert float(line.split()[1]) > 0


def test_nobody_waits_for_a_rank_that_fails(tmp_path, capfd):
    with pytest.raises(SystemExit, match="a process failed"):
        machines.run_ranks(machines._epochs, 2, str(tmp_path / "nothing.rec"), 1)
    assert "nothing.rec" in capfd.readouterr().err
