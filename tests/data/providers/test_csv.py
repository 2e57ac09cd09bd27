"""Rows of numbers in text: strict, by line, of any size, in every layout and order."""

import math
import os
import re
from contextlib import ExitStack

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutkit import DataError, DtypeError, ImageView, PatternError
from layoutkit.data import CSVProvider, Provider
from layoutkit.data.io import csv as csvrows

WORDS = {"nan": math.nan, "inf": math.inf, "infinity": math.inf}


@pytest.fixture
def csv(tmp_path):
    def write(text, name="x.csv"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def table(path, shape=3, size=4, **how):
    """Return the rows of an epoch without padding."""
    with CSVProvider(path, shape, batch_size=size, **how) as provider:
        batches = list(provider)
        return np.concatenate([b.input.input[: b.count] for b in batches])


# ---- syntax of rows ----------------------------------------------------------------------


def slowly(text):
    """Return the rows of a text, or None if it is invalid: a slow reference of the rules."""
    rows = []
    for line in text.removeprefix("\ufeff").split("\n"):
        line = line.strip(" \t\r")
        if not line:
            continue
        cells = line.removesuffix(",").split(",")
        row = [number(cell.strip(" \t")) for cell in cells]
        if None in row or len(row) != 2:
            return None
        rows.append(row)
    return rows


def number(cell):
    bare = cell.removeprefix("-") if cell.startswith("-") else cell.removeprefix("+")
    if bare.lower() in WORDS:
        return math.copysign(WORDS[bare.lower()], -1.0 if cell.startswith("-") else 1.0)
    mantissa, e, exponent = bare.lower().partition("e")
    digits = mantissa.replace(".", "", 1)
    sound = digits and set(digits) <= set("0123456789")
    power = exponent[1:] if exponent[:1] in ("-", "+") else exponent
    sound = sound and (not e or (power and set(power) <= set("0123456789")))
    if not sound or abs(float(cell)) > 3.5e38:
        return None
    return float(cell)


NUMBERS = [
    "0",
    "1",
    "-2",
    "+3",
    "4.5",
    ".5",
    "6.",
    "-7e-2",
    "8E+1",
    "nan",
    "-inf",
    "Infinity",
    "010",
]
ODD = [
    "",
    "1x",
    "x",
    "1 2",
    "0x10",
    "1e",
    "--1",
    "4e38",
    "1_0",
    "\x0b1",
    "1\0",
    "٣",
    '"1"',
    ";",
    "\r1",
]
CELLS = st.one_of(st.sampled_from(NUMBERS), st.sampled_from(NUMBERS + ODD))
PADDED = st.tuples(st.sampled_from(["", " ", "\t "]), CELLS, st.sampled_from(["", "  "])).map(
    "".join
)
LINES = st.one_of(
    st.sampled_from(["", " ", "\t\t"]),
    st.lists(PADDED, min_size=2, max_size=2).map(",".join),
    st.builds(
        "{}{}".format,
        st.lists(PADDED, min_size=1, max_size=3).map(",".join),
        st.sampled_from(["", ",", " ,", ", "]),
    ),
)
TEXTS = st.builds(
    lambda mark, lines, end, last: mark + end.join(lines) + last,
    st.sampled_from(["", "\ufeff"]), st.lists(LINES, max_size=6), st.sampled_from(["\n", "\r\n"]),
    st.sampled_from(["", "\n", "\r\n"]),
)  # fmt: skip


@given(text=TEXTS, block=st.sampled_from([3, 7, 1 << 20]))
def test_any_text_is_what_a_slow_reader_finds(tmp_path_factory, text, block):
    path = tmp_path_factory.getbasetemp() / "any.csv"
    path.write_bytes(text.encode())
    kept, csvrows.BLOCK_BYTES = csvrows.BLOCK_BYTES, block
    try:
        wanted = slowly(text)
        if not wanted:
            with pytest.raises(DataError, match=r"any\.csv"):
                table(path, 2, 2)
            return
        np.testing.assert_array_equal(table(path, 2, 2), np.float32(wanted))
        backwards = table(path, 2, 2, shuffle=True, seed=1)
        assert sorted(map(repr, backwards)) == sorted(map(repr, np.float32(wanted)))
    finally:
        csvrows.BLOCK_BYTES = kept


@pytest.mark.parametrize(
    ("text", "dtype", "message"),
    [
        ("a,b,c\n1,2,3\n", "f4", "line 1: cell 1 is 'a', which is not a number; remove the header"),
        ("1;2;3\n", "f4", "line 1: cell 1 is '1;2;3'; put commas between the numbers of a row"),
        ("1\t2\t3\n", "f4", r"line 1: cell 1 is '1\\t2\\t3'; put commas between the numbers"),
        ("1,2,3\n4 5,6\n", "i4", "line 2: cell 1 is '4 5'; put commas between the numbers"),
        ('"1",2,3\n', "f4", """line 1: cell 1 is '"1"', a number in quotes; remove the quotes"""),
        ("a;b;c\n", "f4", "cell 1 is 'a;b;c', which is not a number; remove the header"),
        ("1,2,3\n\r\n 4,5x,6\n", "f4", "line 3: cell 2 is '5x', which is not a number"),
        ("1,,3\n", "f4", "line 1: cell 2 is empty"),
        ("1,2,3\n4,5,6,,\n", "f4", "line 2: cell 4 is empty"),
        ("1,2,3\n,\n", "f4", "line 2: cell 1 is empty"),
        ("1,2,3\n4,5\n", "f4", "line 2: it has 2 numbers, but a row must have 3"),
        ("1,2\n3,4\n", "f4", "line 1: it has 2 numbers, but a row must have 3"),
        ("1,2,1e39\n", "f4", "line 1: cell 3 is 1e39, which float32 cannot hold"),
        ("1,2,-1e400\n", "f8", "line 1: cell 3 is -1e400, which float64 cannot hold"),
        ("1,2,65520\n", "f2", "line 1: cell 3 is 65520, which float16 cannot hold"),
        ("inf,2,3.4e38\n", "bfloat16", "line 1: cell 3 is 3.4e38, which bfloat16 cannot hold"),
        ("1,2,3.0\n", "i8", "line 1: cell 3 is '3.0', which is not a whole number"),
        ("1,2,nan\n", "i4", "cell 3 is 'nan', which is not a whole number"),
        ("1,2,256\n", "u1", "cell 3 is 256, which uint8 cannot hold"),
        ("1,2,9223372036854775808\n", "i8", "9223372036854775808, which int64 cannot hold"),
        ("1,2\r3,4,5\n", "f4", r"line 1: cell 2 is '2\\r3', which is not a number"),
    ],
)  # fmt: skip
def test_what_is_no_row_is_named_by_its_line(csv, text, dtype, message):
    with pytest.raises(DataError, match=f"x.csv, .*{message}"):
        table(csv(text), dtype=dtype)


@pytest.mark.parametrize("prefetch", [0, 3])
def test_an_error_comes_with_its_batch_and_leaves_a_state_before_it(csv, prefetch):
    provider = CSVProvider(csv("1\n2\n3\noops\n"), (), batch_size=2, prefetch=prefetch)
    loop = iter(provider)
    assert next(loop).input.input.tolist() == [1, 2]
    with pytest.raises(DataError, match="line 4: cell 1 is 'oops'"):
        next(loop)
    assert provider.state_dict()["position"] == 1


def test_line_numbers_count_from_the_file_not_from_the_batch(csv, monkeypatch):
    monkeypatch.setattr(csvrows, "BLOCK_BYTES", 5)
    text = "\n\n" + "1,2,3\n\n" * 9 + "1,2,z\n"
    with pytest.raises(DataError, match=r"line 21: cell 3 is 'z', which is not a number$"):
        table(csv(text))


# ---- numbers -----------------------------------------------------------------------------


def test_whole_numbers_are_exact(csv):
    rows = [[9007199254740993, -(2**63), 2**63 - 1]]
    found = table(csv(",".join(map(str, rows[0]))), dtype="int64")
    assert found.dtype == np.int64
    assert found.tolist() == rows


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_floats_are_rounded_as_by_python(csv, dtype):
    texts = ["0.1", "2049", "1e-30"]
    found = table(csv(",".join(texts)), dtype=dtype)
    assert found.dtype.name == dtype
    assert (
        found.tolist()
        == np.array([float(text) for text in texts]).astype(found.dtype)[None].tolist()
    )


def test_only_what_is_too_large_is_no_number(csv):
    assert table(csv("65519,inf,-inf\n"), dtype="float16").tolist() == [
        [65504, math.inf, -math.inf]
    ]


@pytest.mark.parametrize("dtype", ["bool", "complex64", "M8[s]", "int4"])
def test_other_dtypes_are_refused(csv, dtype):
    with pytest.raises(DtypeError, match="rows are read as integers"):
        CSVProvider(csv("1\n"), (), batch_size=1, dtype=dtype)


# ---- shapes and layouts --------------------------------------------------------------------


def test_shapes_and_views(csv):
    path = csv("".join(f"{','.join(str(n * 12 + k) for k in range(12))}\n" for n in range(3)))
    x = np.arange(36, dtype=np.float32).reshape(3, 12)
    for shape, layout, wanted in [
        ((12,), None, x),
        (12, None, x),
        ((3, 2, 2), None, x.reshape(3, 3, 2, 2)),
        ((2, 2, 3), "bhwc", x.reshape(3, 2, 2, 3)),
        ((2, 2, 3), "bhwc->bchw", x.reshape(3, 2, 2, 3).transpose(0, 3, 1, 2)),
        ((2, 2, 3), "bhwc->chwb", x.reshape(3, 2, 2, 3).transpose(3, 1, 2, 0)),
    ]:
        provider = CSVProvider(path, shape, batch_size=3, layout=layout)
        batch = next(iter(provider))
        np.testing.assert_array_equal(batch.input.input, wanted)
        assert provider.provide_data == [("data", wanted.shape)]
        assert isinstance(batch.input, ImageView) == (wanted.ndim == 4)
        assert batch.input.layout == (layout or {2: "bf", 4: "bchw"}[wanted.ndim]).split(">")[-1]
    assert isinstance(provider, Provider)


@pytest.mark.parametrize(
    ("shape", "layout", "error"),
    [
        ((3, 4), None, PatternError), ((12,), "fb", PatternError), ((12,), "bchw", Exception),
        ((0,), None, DataError), ("12", None, DataError), ((2.5,), None, DataError),
        (2.5, None, DataError),
    ],
)  # fmt: skip
def test_wrong_shapes_and_layouts_are_refused_at_once(csv, shape, layout, error):
    with pytest.raises(error):
        CSVProvider(csv("1\n"), shape, batch_size=1, layout=layout)


def test_labels(csv):
    data, label = csv("1\n2\n3\n"), csv("7,8\n9,10\n\n11,12\n", "y.csv")
    provider = CSVProvider(data, (), label_csv=label, label_shape=(2,), batch_size=2)
    assert provider.provide_label == [("softmax_label", (2, 2))]
    last = list(provider)[-1]
    assert (last.count, last.dropped) == (1, ())
    assert last.target.input.tolist() == [[11, 12], [0, 0]]
    assert last.target.dtype == np.float32
    one = CSVProvider(data, (), label_csv=data, label_shape=(1,), batch_size=2, label_name="y")
    assert one.provide_label == [("y", (2,))]
    assert CSVProvider(data, (), batch_size=2).provide_label == []
    assert CSVProvider(data, (), label_csv=label, batch_size=2, label_name=None).provide_label == []
    with pytest.raises(DataError, match=re.escape("(b,) or (b, n): give how many numbers, (4,)")):
        CSVProvider(data, (), label_csv=label, label_shape=(2, 2), batch_size=2)


@pytest.mark.parametrize("rows", [2, 4])
def test_fewer_or_more_labels_are_found_at_once(csv, rows):
    data, label = csv("1\n2\n3\n"), csv("1\n" * rows, "y.csv")
    with pytest.raises(DataError, match=rf"x\.csv has 3 rows, but .*y\.csv has {rows}"):
        CSVProvider(data, (), label_csv=label, batch_size=2)


# ---- files -------------------------------------------------------------------------------


def test_files_that_cannot_be_read(csv, tmp_path):
    for path, message in [
        (tmp_path / "none.csv", "none.csv cannot be read: No such file"),
        (tmp_path, "it is a folder"),
        (csv(" \n\r\n"), "has no rows"),
        ("http://localhost/x.csv", "is a URL"),
        ("a\0b", "cannot be read"),
    ]:
        with pytest.raises(DataError, match=message):
            CSVProvider(path, (), batch_size=1)


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [("1\n2\n3\n", 0), ("5\n6\n7\n8\n", 1_000_000), ("5\n6\n7\n8\n", -(10**12))],
)
def test_a_file_that_changes_is_noticed(csv, text, nanoseconds):
    path = csv("1\n2\n3\n4\n")
    second = 1_600_000_000 * 10**9
    os.utime(path, ns=(second, second))
    provider = CSVProvider(path, (), batch_size=2)
    loop = iter(provider)
    next(loop)
    path.write_text(text)
    # The clock of a file system may not have advanced.
    os.utime(path, ns=(second, second + nanoseconds))
    with pytest.raises(
        DataError, match=r"^\S+x\.csv has changed since it was opened; create a new"
    ):
        next(loop)


def test_closing_during_a_read_does_not_change_its_file(csv, tmp_path, monkeypatch):
    """A closed descriptor's number is free for the next file, whose rows the read would return."""
    other = tmp_path / "other.csv"
    other.write_text("5\n6\n7\n8\n")
    rows = csvrows.CSVRows(str(csv("1\n2\n3\n4\n")))
    read_at = csvrows.read_at
    with ExitStack() as files:

        def close_then_read(descriptor, size, start):
            rows.close()
            files.enter_context(other.open("rb"))
            return read_at(descriptor, size, start)

        monkeypatch.setattr(csvrows, "read_at", close_then_read)
        assert rows.read(np.array([1, 2]), 1, np.dtype("float32")).tolist() == [[2], [3]]


def test_of_a_large_file_only_places_are_kept(csv):
    import tracemalloc

    path = csv(b"1.25," * 199 + b"1\n")
    path.write_bytes(path.read_bytes() * 20_000)  # 20 MB
    tracemalloc.start()
    provider = CSVProvider(path, 200, batch_size=100)
    for number, batch in enumerate(provider):
        assert batch.input.input[99, 0] == 1.25
        if number == 20:
            break
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 8 << 20
