"""`layoutkit.torch.watch`: the reported copies, their places, and suggested replacements."""

import json
import os
import re
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.children import python
from tests.helpers.reference import reference_convert

torch = pytest.importorskip("torch", exc_type=ImportError)

import layoutkit
from layoutkit.cli import main
from layoutkit.torch import watch
from layoutkit.watch import recorder
from layoutkit.watch.naming import Conversion, is_moved, name_conversion

PHOTOS = torch.arange(2 * 8 * 12 * 3, dtype=torch.uint8).reshape(2, 8, 12, 3)


def watched(program):
    with watch(min_bytes=0) as report:
        program()
    return report


def only(program):
    (row,) = watched(program).rows()
    return row


@pytest.mark.parametrize(
    ("program", "kind", "replacement"),
    [
        (lambda x: x.permute(0, 3, 1, 2).contiguous(), "permute + contiguous", '"bhwc->bchw"'),
        (lambda x: x.permute(0, 3, 1, 2).clone(memory_format=torch.contiguous_format),
         "permute + contiguous", '"bhwc->bchw"'),
        (lambda x: x.movedim(-1, 1).flatten(1), "reshape that copies", '"bhwc->b(chw)"'),
        (lambda x: x.permute(0, 3, 1, 2).to(torch.float32, memory_format=torch.contiguous_format),
         "permute + to", '"bhwc->bchw", dtype="float32"'),
        (lambda x: x.permute(0, 3, 1, 2).contiguous().to(memory_format=torch.channels_last),
         "another memory format", '"bchw->bchw", memory="bhwc"'),
        (lambda x: torch.empty(2, 3, 8, 12).copy_(x.permute(0, 3, 1, 2)),
         "copy into a tensor", '"bhwc->bchw", dtype="float32", out=...'),
        (lambda x: x.reshape(2, 2, 4, 3, 4, 3).permute(0, 1, 3, 2, 4, 5).reshape(2, 6, -1),
         "reshape that copies", '"b(yp)(xq)c->b(yx)(pqc)", p=4, q=4'),
        (lambda x: x[0].permute(2, 0, 1).contiguous(), "permute + contiguous", '"hwc->chw"'),
        (lambda x: x.view(2, 96, 3).transpose(1, 2).contiguous(), "permute + contiguous",
         '"bwc->bcw"'),
    ],
)  # fmt: skip
def test_a_copy_has_a_replacement(program, kind, replacement):
    rows = {row.kind: row for row in watched(lambda: program(PHOTOS)).rows()}
    assert rows[kind].count == 1
    assert rows[kind].replacement == f"layoutkit.convert(x, {replacement})"


def test_the_replacement_has_the_values_of_the_copy():
    x = torch.rand(2, 8, 12, 3)
    copied = x.reshape(2, 2, 4, 3, 4, 3).permute(0, 1, 3, 2, 4, 5).reshape(2, 6, -1)
    same = layoutkit.convert(x, "b(yp)(xq)c->b(yx)(pqc)", p=4, q=4)
    assert torch.equal(same, copied)
    for order in permutations(range(4)):
        row = watched(lambda order=order: x.permute(order).contiguous()).rows()
        for each in row:
            pattern = each.replacement.split('"')[1]
            assert torch.equal(layoutkit.convert(x, pattern), x.permute(order)), order


@pytest.mark.parametrize(
    "program",
    [
        lambda x: x.clone(),
        lambda x: x.float().mul(2),
        lambda x: x[:, :4, ::2].contiguous(),
        lambda x: x.permute(0, 3, 1, 2),
        lambda x: x[:1].expand(4, 8, 12, 3).contiguous(),
        lambda x: torch.stack([x, x]),
        lambda x: x.reshape(2, -1),
        lambda x: torch.from_numpy(x.numpy()),
        lambda x: x.new_empty(2, 8, 12, 3).copy_(x),
    ],
)
def test_copies_for_other_reasons_are_not_reported(program):
    assert watched(lambda: program(PHOTOS)).rows() == []


def test_casts_and_arithmetic_belong_to_the_conversion():
    def program():
        planes = PHOTOS.permute(0, 3, 1, 2).float()
        planes = (planes - 3) / 255
        planes.contiguous()
        PHOTOS.permute(0, 3, 1, 2).contiguous().float().div(255)

    rows = watched(program).rows()
    assert sorted(row.kind for row in rows) == ["cast"] * 2 + ["permute + contiguous"] * 2
    for row in rows:
        if row.kind != "cast":
            assert 'dtype="float32"), with scale=, mean= and std= for the arithmetic of line' in (
                row.replacement
            )


def test_arithmetic_in_place():
    def scaled():
        PHOTOS.float().div_(255).permute(0, 3, 1, 2).contiguous()

    report = watched(scaled)
    (row,) = (row for row in report.rows() if row.kind != "cast")
    assert 'dtype="float32"), with scale=, mean= and std= for the arithmetic' in row.replacement
    assert ")</code>, with scale=, mean= and std=" in report.to_html()
    weight = torch.rand(8, 12)

    def trained():
        weight.mul_(0.9)
        weight.t().contiguous()

    assert only(trained).replacement == 'layoutkit.convert(x, "hw->wh")'


def test_places_are_lines_of_the_program_and_add_up():
    def program():
        for _ in range(5):
            PHOTOS.permute(0, 3, 1, 2).contiguous()

    row = only(program)
    assert row.count == 5
    assert row.nbytes == 5 * 2 * PHOTOS.numel()
    line = program.__code__.co_firstlineno + 2
    assert row.place.endswith(f"test_watch.py:{line} in program")


def test_a_backward_pass_is_named():
    def program():
        x = torch.rand(2, 8, 12, 3, requires_grad=True)
        (x.permute(0, 3, 1, 2).contiguous() * torch.rand(2, 3, 8, 12)).sum().backward()

    rows = watched(program).rows()
    assert rows
    assert all("test_watch.py" in row.place for row in rows)


def test_a_copy_inside_torch_is_named():
    attention = torch.nn.MultiheadAttention(64, 4, batch_first=True)
    x = torch.rand(2, 9, 64, requires_grad=True)
    places = [row.place for row in watched(lambda: attention(x, x, x)).rows()]
    assert places
    assert all(place.endswith("in <lambda> (inside torch.nn.functional)") for place in places)


def test_the_advice_for_a_backward_pass_is_prose():
    model = torch.nn.Conv2d(3, 8, 3)
    x = torch.rand(2, 16, 16, 3).permute(0, 3, 1, 2)

    def program():
        model.zero_grad()
        model(x).sum().backward()

    report = watched(program)
    (row,) = (row for row in report.rows() if "(backward)" in row.place)
    assert "model.to(memory_format=torch.channels_last)" in row.replacement
    assert not row.is_code
    assert f"<td>{row.replacement}</td>" in report.to_html()
    assert "  instead     keep one layout in the forward pass" in str(report)
    model.to(memory_format=torch.channels_last)  # as advised
    assert watched(program).rows() == []


def test_casts_of_stacked_tensors_belong_to_their_lines():
    def program():
        torch.stack([x.float().permute(2, 0, 1) for x in PHOTOS.repeat(4, 1, 1, 1)])

    counts = {row.kind: (row.count, row.place) for row in watched(program).rows()}
    assert counts["cast"][0] == 8
    assert (
        counts["cast"][1].split(" in ")[0]
        == counts["stack of permuted tensors"][1].split(" in ")[0]
    )
    (row,) = (row for row in watched(program).rows() if row.kind == "cast")
    assert row.replacement.startswith("omit it: the conversion of this tensor casts")
    assert not row.is_code


LIBRARY = """
class Mover:
    def move(self, x):
        return _copy(x)

def _copy(x):
    return x.permute(0, 3, 1, 2).contiguous()
"""


def test_a_copy_inside_a_library_is_at_the_line_that_called_it(tmp_path, monkeypatch):
    package = tmp_path / "site-packages" / "mover"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("from .inner import Mover")
    (package / "inner.py").write_text(LIBRARY)
    (package / "__main__.py").write_text("")
    monkeypatch.syspath_prepend(package.parent)
    import mover

    place = only(lambda: mover.Mover().move(PHOTOS)).place
    assert re.search(r"test_watch.py:\d+ in <lambda> \(inside mover.Mover.move\)$", place)


class Planes(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return PHOTOS[index % 2].permute(2, 0, 1).contiguous()


def test_workers_of_a_loader_are_named_as_not_seen():
    iterate = torch.utils.data.DataLoader.__iter__

    def program():
        loader = torch.utils.data.DataLoader(Planes(), 2, num_workers=2)
        for _ in range(2):
            assert len(list(loader)) == 2

    report = watched(program)
    line = "not seen: the 2 worker processes of the DataLoader at "
    assert str(report).count(line) == 1
    assert "test_watch.py" in str(report).partition(line)[2]
    (text,) = json.loads(report.to_json())["not_seen"]
    assert text.startswith(line)
    assert text in report.to_html()
    assert torch.utils.data.DataLoader.__iter__ is iterate


def test_a_loader_without_workers_is_seen():
    report = watched(lambda: list(torch.utils.data.DataLoader(Planes(), 2)))
    assert "not seen" not in str(report)
    assert any(row.kind == "permute + contiguous" for row in report.rows())


def test_the_page_has_totals_and_links_to_lines():
    def program():
        for _ in range(3):
            PHOTOS.permute(0, 3, 1, 2).contiguous()
        PHOTOS.permute(0, 3, 1, 2).float().contiguous()

    report = watched(program)
    page = report.to_html()
    count = sum(row.count for row in report.rows())
    total = re.search(r"<tfoot><tr><td>all</td><td></td><td class=number>(\d+)</td>", page)
    assert total is not None
    assert int(total[1]) == count == 5
    assert f'<a href="{Path(__file__).as_uri()}#L{report.rows()[0].line}">' in page
    assert "color-scheme: light dark" in page


def test_a_cast_is_listed_once():
    def program():
        floats = PHOTOS.permute(0, 3, 1, 2).float()
        for _ in range(3):
            floats.contiguous()

    counts = {row.kind: row.count for row in watched(program).rows()}
    assert counts == {"cast": 1, "permute + contiguous": 3}


def test_a_transpose_that_is_undone_is_a_pair():
    def program():
        planes = torch.rand(2, 6, 5, 7)
        rows = planes.permute(0, 2, 3, 1).contiguous()
        rows.softmax(-1).permute(0, 3, 1, 2).contiguous()

    first, second = sorted(watched(program).rows(), key=lambda row: row.place)
    assert first.undone_by == second.place
    assert second.undone_by is None


def test_lists_and_arrays_of_numpy():
    stack = only(lambda: torch.stack([x.permute(2, 0, 1) for x in PHOTOS]))
    assert stack.kind == "stack of permuted tensors"
    assert stack.replacement == 'layoutkit.collate(samples, "hwc->bchw")'
    assert stack.nbytes == 2 * PHOTOS.numel()
    same = layoutkit.collate(list(PHOTOS.numpy()), "hwc->bchw")
    np.testing.assert_array_equal(same, PHOTOS.permute(0, 3, 1, 2))
    for photos in (PHOTOS, PHOTOS.reshape(3, 8, 8, 3)):
        trip = only(
            lambda x=photos: torch.from_numpy(np.ascontiguousarray(x.numpy().transpose(0, 3, 1, 2)))
        )
        assert (trip.kind, trip.replacement) == (
            "NumPy round trip",
            'layoutkit.convert(x, "bhwc->bchw")',
        )


OTHER_TENSORS = {
    "sparse": lambda: torch.rand(4, 5).to_sparse().to(torch.float64).clone(),
    "compressed": lambda: torch.rand(4, 5).to_sparse_csr().to(torch.float64),
    "compressed columns": lambda: torch.rand(4, 5).to_sparse_csc().clone(),
    "nested": lambda: nested(torch.strided).clone(),
    "nested and moved": lambda: nested(torch.strided).transpose(1, 2).contiguous(),
    "jagged": lambda: nested(torch.jagged).to(torch.float64),
    "jagged and moved": lambda: nested(torch.jagged).transpose(1, 2).contiguous(),
    "written": lambda: torch.zeros(5, 4).copy_(torch.rand(4, 5).t().to_sparse().to_dense()),
    "stacked": lambda: torch.stack([torch.rand(4, 5).to_sparse()] * 2),
    "meta": lambda: torch.rand(4, 5, device="meta").t().contiguous().detach(),
}


def nested(layout):
    return torch.nested.nested_tensor([torch.rand(4, 5), torch.rand(3, 5)], layout=layout)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("program", OTHER_TENSORS.values(), ids=OTHER_TENSORS)
def test_other_tensors_than_dense_ones_are_left_alone(program):
    with watch(min_bytes=0) as report:
        result = program()
    assert (result.layout, result.dtype) == (program().layout, program().dtype)
    assert "not recorded" not in str(report)


def test_tensors_of_many_axes_cost_a_line_of_the_report():
    def program():
        for _ in range(2):
            assert torch.rand([1] * 10 + [2] * 18).permute(*reversed(range(28))).clone(
                memory_format=torch.contiguous_format
            ).shape == torch.Size([2] * 18 + [1] * 10)
        PHOTOS.permute(0, 3, 1, 2).contiguous()

    report = watched(program)
    (row,) = report.rows()
    assert row.replacement == 'layoutkit.convert(x, "bhwc->bchw")'
    line = "not recorded: 2 x aten.clone.default: ValueError: a tensor has more axes than there"
    assert str(report).count(line) == 1
    assert line in report.to_html()
    assert json.loads(report.to_json())["errors"][0].startswith(line)
    x = torch.rand(1 << 18)
    row = only(lambda: x.reshape([2] * 18).permute(*reversed(range(18))).contiguous())
    pattern = row.replacement.split('"')[1]
    sizes = {name: 2 for name in pattern.partition("->")[0] if name.isalpha()}
    moved = layoutkit.convert(x, pattern, **sizes)
    assert torch.equal(moved, x.reshape([2] * 18).permute(*reversed(range(18))))


def test_an_error_of_the_recorder_is_not_one_of_the_program(monkeypatch):
    def fail(*_):
        raise RuntimeError("no name\x1b[2J")

    monkeypatch.setattr(recorder, "name_conversion", fail)
    report = watched(lambda: PHOTOS.permute(0, 3, 1, 2).contiguous())
    assert "not recorded: 1 x aten.clone.default: RuntimeError: no name\\x1b[2J" in str(report)
    assert not report.rows()


@pytest.mark.parametrize("min_bytes", [None, -1, 1.5, "all"])
def test_sizes_are_checked_before_the_program_runs(min_bytes):
    expected = pytest.raises(layoutkit.ArgumentError, match=f"min_bytes={min_bytes!r}; it must be")
    with expected, watch(min_bytes):
        raise AssertionError("the program runs")


def test_small_copies_are_omitted():
    with watch() as report:
        PHOTOS.permute(0, 3, 1, 2).contiguous()
    assert str(report) == "no copies because of layouts, of 64 KiB or more"


@pytest.mark.parametrize("rank", [2, 3, 4, 5, 6, 7])
def test_patterns_of_every_order(rank):
    sizes = tuple(range(2, 2 + rank))
    x = np.arange(np.prod(sizes)).reshape(sizes)
    for order in list(permutations(range(rank)))[:: 1 + 7 * (rank > 4)]:
        view = x.transpose(order)
        strides = [n // 8 for n in view.strides]
        result = np.ascontiguousarray(view)
        made = name_conversion(
            sizes, view.shape, strides, result.shape, [n // 8 for n in result.strides]
        )
        assert made.memory is None
        np.testing.assert_array_equal(reference_convert(x, made.pattern), result)
        assert is_moved(view.shape, strides, [n // 8 for n in result.strides]) == (
            list(order) != list(range(rank))
        )


def test_which_conversion_undoes_another():
    assert Conversion("bhwc->bchw").undoes(Conversion("bchw->bhwc"))
    assert not Conversion("bhwc->bchw").undoes(Conversion("bhwc->bchw"))
    assert not Conversion("bhwc->bhwc").undoes(Conversion("bhwc->bhwc"))
    assert Conversion("bwc->bcw").undoes(Conversion("bwc->bcw"))


SCRIPT = """
import sys
import torch
x = torch.zeros(4, 64, 64, 3)
x.permute(0, 3, 1, 2).contiguous()
print("ran with", sys.argv[1:], __name__)
"""


def test_the_command_runs_a_program(tmp_path, capsys):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    outputs = [tmp_path / "a.json", tmp_path / "a.html"]
    words = ["--json", str(outputs[0]), "--html", str(outputs[1]), str(script), "--epochs", "2"]
    assert main(["watch", *words]) == 0
    told = capsys.readouterr().out
    assert "ran with ['--epochs', '2'] __main__" in told
    assert "train.py:5 in <module>" in told
    assert 'replace by  layoutkit.convert(x, "bhwc->bchw")' in told
    (copy,) = json.loads(outputs[0].read_text())["copies"]
    assert (copy["count"], copy["nbytes"]) == (1, 2 * 4 * 64 * 64 * 3 * 4)
    page = outputs[1].read_text()
    assert "bhwc-&gt;bchw" in page
    assert page.count("<rect") == 2


@pytest.mark.parametrize(
    ("ending", "code"), [("sys.exit(3)", 3), ("raise KeyError(1)", 1), ("sys.exit('no')", 1)]
)
def test_the_command_reports_after_an_error(tmp_path, capsys, ending, code):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT + ending)
    assert main(["watch", str(script)]) == code
    assert "train.py:5 in <module>" in capsys.readouterr().out


def test_the_name_of_a_program_may_be_bytes(tmp_path, capsys):
    script = tmp_path / os.fsdecode(b"\xff.py")
    script.write_text(SCRIPT)
    words = ["--json", str(tmp_path / "a.json"), "--html", str(tmp_path / "a.html")]
    assert main(["watch", *words, str(script)]) == 0
    (copy,) = json.loads((tmp_path / "a.json").read_text())["copies"]
    assert "\udcff.py" in copy["place"]
    assert r"\udcff.py" in (tmp_path / "a.html").read_text()
    assert capsys.readouterr().err == ""


# Programs, their exit codes under `python`, and whether a report can be printed after them.
ENDINGS = [
    ("sys.exit([1, 2])", 1, True),
    ("sys.exit(True)", 1, True),
    ("sys.exit(300)", 44, True),
    ("sys.exit(-1)", 255, True),
    ("raise SystemExit", 0, True),
    ("sys.exit(type('Bad', (), {'__str__': lambda self: 1 / 0})())", 1, True),
    ("raise KeyboardInterrupt", 130, True),
    ("raise type('Stop', (BaseException,), {})", 1, True),
    ("sys.excepthook = None\nraise ValueError", 1, True),
    ("sys.stdout = None", 0, True),
    ("sys.stderr = None\nsys.exit(3)", 3, True),
    ("sys.stdout.close()", 0, False),
    ("sys.stdout = sys.stderr = sys.stdin = 5\nsys.exit(3)", 3, True),
    ("sys.stdout.reconfigure(encoding='ascii', errors='strict')", 0, True),
    ("os.close(1)", 0, False),
    ("os.close(1)\nos.close(2)\nsys.exit(5)", 5, False),
    ("os.closerange(0, 99)\nsys.exit(6)", 6, False),
    ("os.chdir('/')\nsys.exit(7)", 7, True),
    ("os.chdir(folder := tempfile.mkdtemp())\nos.rmdir(folder)\nsys.exit(8)", 8, True),
    ("shutil.rmtree(os.getcwd())\nsys.exit(9)", 9, True),
]
# Runs each program in a child of its own, since torch takes seconds to import, and to be torn down.
EACH = """
import os, sys
import torch
from layoutkit.cli import main
from layoutkit.torch import watch

with watch():
    torch.zeros(2, 2).t().contiguous()  # the first operation imports more of torch
for script in sys.argv[1:]:
    folder, name = os.path.split(script)
    if not os.fork():
        os.chdir(folder)
        for number in (1, 2):
            os.dup2(os.open(f"../{number}", os.O_RDWR | os.O_CREAT), number)
        code = main(["watch", "--json", "../report.json", name])
        try:
            sys.stdout.flush(), sys.stderr.flush()
        except Exception:
            code = 120  # as Python's own exit
        os._exit(code & 255)
    print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
"""


@pytest.mark.budget(1)
@pytest.mark.parametrize("endings", [ENDINGS[1::7], ENDINGS], ids=len)
@pytest.mark.skipif(not hasattr(os, "fork"), reason="each program runs in a forked child")
def test_exit_codes_are_those_of_the_program(tmp_path, endings):
    names = [b"train.py", b"\xff\xfe.py", b"a\x1b[2J\nb.py"]
    scripts = []
    for number, (ending, _, _) in enumerate(endings):
        folder = tmp_path / str(number) / "program"
        folder.mkdir(parents=True)
        scripts.append(folder / os.fsdecode(names[number % len(names)]))
        scripts[-1].write_text(f"import os, shutil, tempfile{SCRIPT}{ending}\n")
    codes = python(EACH, [*map(str, scripts)]).split()
    for script, code, (ending, expected, can_print) in zip(scripts, codes, endings, strict=True):
        folder = script.parent.parent
        assert int(code) == expected, ending
        copies = json.loads((folder / "report.json").read_text())["copies"]
        assert copies[0]["place"].startswith(script.name), ending
        printed = (folder / "1").read_bytes()
        assert (b"permute + contiguous" in printed) == can_print, ending
        assert b"\x1b" not in printed
        assert b"unexpected" not in (folder / "2").read_bytes()


def test_a_report_that_cannot_be_written_changes_no_exit_code(tmp_path, capsys):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT + "import shutil\nshutil.rmtree(sys.argv[1])\nsys.exit(7)")
    (tmp_path / "out").mkdir()
    words = ["--json", str(tmp_path / "out/a.json"), str(script), str(tmp_path / "out")]
    assert main(["watch", *words]) == 7
    told = capsys.readouterr()
    assert "permute + contiguous" in told.out
    assert told.err.startswith("layoutkit: error: watch: FileNotFoundError")


def test_what_the_command_refuses(tmp_path, capsys):
    assert main(["watch", str(tmp_path / "none.py")]) == 2
    assert "none.py is not a file" in capsys.readouterr().err
    script = tmp_path / "train.py"
    script.write_text("raise SystemExit(9)")
    assert main(["watch", "--json", str(tmp_path / "no/a.json"), str(script)]) == 2
    assert "its folder is not writable" in capsys.readouterr().err
