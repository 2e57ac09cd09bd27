"""`--loaders`: every loader delivers every record, and the printed tables."""

import json
import re
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from layoutkit.bench import loader_cases, loaders, main
from layoutkit.bench.loader_cases import float_case, image_case, mnist_case, record_case

pytest.importorskip("PIL", reason="the files are JPEGs, which Pillow writes")
pytestmark = pytest.mark.filterwarnings("ignore")

CASES = {
    "images": partial(image_case, 24),
    "whole": partial(image_case, 24, crops="whole"),
    "center": partial(image_case, 24, crops="center"),
    "records": partial(record_case, 600),
    "table": partial(float_case, "table", 50, batch=16),
    "array": partial(float_case, "array", 50, batch=16),
    "MNIST": partial(mnist_case, 200),
}
OURS = {
    "images": {f"layoutkit, {name}" for name in ("folder", ".rec", "tars", "mixture")},
    "whole": {f"layoutkit, {name}" for name in ("folder", "first epoch", "later epochs")},
    "center": {f"layoutkit, {name}" for name in ("folder", "first epoch", "later epochs")},
    "records": {"layoutkit, .npy", "layoutkit, .rec", "layoutkit, .rec, ragged"},
    "table": {"layoutkit"},
    "array": {"layoutkit", "layoutkit, mixture"},
    "MNIST": {"layoutkit, in order", "layoutkit, shuffled"},
}


@pytest.mark.budget(1)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("workers", [0, 1])
def test_every_loader_delivers_every_record(name, workers, tmp_path):
    case = CASES[name](tmp_path)
    with ExitStack() as stack:
        epochs = case.epochs(workers, stack)  # exits if one is not complete
        assert OURS[name] <= epochs.keys()


@pytest.mark.budget(1)
@pytest.mark.parametrize("name", CASES)
def test_incomplete_epochs_end_the_program(name, tmp_path):
    case = CASES[name](tmp_path)
    with ExitStack() as stack:
        batches = [*case.epochs(0, stack)[min(OURS[name])]()]
        for changed in (batches[:-1], batches + batches[:1]):
            with pytest.raises(SystemExit, match="short: an epoch does not have every"):
                case.check("short", lambda changed=changed: changed)


def test_images_of_another_size_end_the_program():
    images = np.zeros((10, 3, 8, 8))
    with pytest.raises(SystemExit, match="as 3 x 224 x 224"):
        loader_cases.check_images(10, "small", lambda: [(images, np.arange(10))])


def test_shuffled_epochs_differ(tmp_path):
    case = CASES["array"](tmp_path)
    with ExitStack() as stack:
        epoch = case.epochs(2, stack)["layoutkit"]
        first, second = (np.concatenate([*map(np.asarray, epoch())]) for _ in range(2))
    assert not np.array_equal(first, second)


@pytest.mark.budget(0)
def test_the_tables(monkeypatch, capsys, tmp_path):
    cases = [lambda folder, make=make: small(make(folder)) for make in CASES.values()]
    monkeypatch.setattr(loaders, "loader_cases", lambda quick: cases)
    file = tmp_path / "loaders.json"
    assert main(table="loaders", quick=True, json=str(file)) == 0
    _, *tables = capsys.readouterr().out.split("\n\n")
    for name, text in zip(CASES, tables, strict=True):
        title, headings, *lines = text.splitlines()
        assert title.endswith("1 rounds")
        assert headings.split()[0] == "workers"
        printed = [re.split(r"\s{2,}", line.strip())[1] for line in lines if line[6:7].isdigit()]
        assert OURS[name] <= {*printed}
        written = json.loads(file.read_text())["tables"][[*CASES].index(name)]
        assert [line["name"] for line in written["lines"]] == printed
        assert all(line["median"] > 0 for line in written["lines"])


def test_missing_libraries_and_the_time_limit_are_reported(tmp_path, capsys):
    def fail(workers, stack):
        raise ImportError

    case = replace(small(CASES["array"](tmp_path)), workers=(0, 0))
    case = replace(case, loaders={"other": fail, **case.loaders})
    assert loaders.print_case(case, 1)["missing"] == ["other"]
    assert "not installed:\n    other\n" in capsys.readouterr().out
    assert loaders.print_case(case, 1, end=0.0)["lines"] == []
    assert "0  not measured: the time is up" in capsys.readouterr().out


def small(case):
    kept = {name: make for name, make in case.loaders.items() if "layoutkit" in name}
    return replace(case, loaders=kept, workers=(0,))
