"""The GPU benchmark on a fake GPU: NumPy memory, and a clock that advances with work.

`FakeCupy` replaces the module `cupy`. Work for the device goes through `submit`, which
either runs it at once and adds its device time, or appends it to the graph that is being captured.
"""

import contextlib
import ctypes
import dataclasses
import functools
import io
import json
import sys
import types

import numpy as np
import pytest

import layoutkit
from layoutkit import bench, cli
from layoutkit.bench import cases, run
from layoutkit.bench import device as device_rows
from layoutkit.bench.device import Cuda, CudaTorch, CuPy, device_peers
from layoutkit.bench.host import Host
from layoutkit.bench.peers import NumPy
from layoutkit.bench.protocol import Budget, Variant, measure
from layoutkit.bench.report import Table
from layoutkit.bench.results import Result, as_json, environment
from layoutkit.bench.rows import Row, all_rows
from layoutkit.spec import as_dtype
from tests.helpers.fake_cuda import replace

GIGABYTES_PER_SECOND = 1000


class FakeError(RuntimeError):
    """The error of CUDA, a RuntimeError."""


class FakeCupy:
    """The part of CuPy that the benchmark uses."""

    ndarray = np.ndarray
    ascontiguousarray = np.ascontiguousarray
    empty = np.empty
    __version__ = "14.2.0"

    def __init__(self):
        self.now = 5.0  # seconds of the device
        self.graph = None  # the graph being captured
        self.copied = []  # bytes of each completed memcpyAsync
        self.frees = 0
        runtime = types.SimpleNamespace(
            memcpyDefault=4,
            memcpyAsync=self._memcpy,
            getDevice=lambda: 0,
            getDeviceProperties=lambda _: {
                "name": b"Fake H200",
                "totalGlobalMem": 139 << 30,
                "l2CacheSize": 60 << 20,
            },
            driverGetVersion=lambda: 13010,
            runtimeGetVersion=lambda: 13000,
        )
        self.cuda = types.SimpleNamespace(
            Stream=functools.partial(FakeStream, self),
            Event=functools.partial(FakeEvent, self),
            get_elapsed_time=lambda before, behind: (behind.time - before.time) * 1e3,
            alloc_pinned_memory=bytearray,
            runtime=runtime,
        )

    def submit(self, work, nbytes):
        if self.graph is not None:
            self.graph.append((work, nbytes))
            return
        work()
        self.now += nbytes / GIGABYTES_PER_SECOND / 1e9

    def _memcpy(self, target, source, nbytes, kind, stream):
        assert (kind, stream) == (4, 0x5EA)

        def work():
            self.copied.append(nbytes)
            ctypes.memmove(target, source, nbytes)

        self.submit(work, 2 * nbytes)

    def array(self, values):
        return values.copy()

    def asnumpy(self, array):
        assert self.graph is None, "cudaErrorStreamCaptureUnsupported"
        return array.copy()

    def resize(self, array, size):
        return np.resize(array, size)

    def copyto(self, out, source):
        self.submit(lambda: np.copyto(out, source), 2 * out.nbytes)

    def ElementwiseKernel(self, inputs, output, operation, name):  # noqa: N802
        """Run the operation, which is also valid Python."""
        names = [declared.split()[1] for declared in inputs.split(",")]

        def kernel(*arguments):
            *values, out = arguments
            assert len(values) == len(names)
            scope = dict(zip(names, values, strict=True))
            scope["float"] = lambda array: array.astype(np.float32)

            def work():
                exec(operation, {}, scope)
                out[...] = scope["y"]

            self.submit(work, sum(x.nbytes for x in (*values, out)))
            return out

        assert output == "U y"
        assert name.isidentifier()
        return kernel

    def get_default_memory_pool(self):
        return types.SimpleNamespace(free_all_blocks=self._free)

    get_default_pinned_memory_pool = get_default_memory_pool

    def _free(self):
        self.frees += 1


class FakeStream:
    ptr = 0x5EA

    def __init__(self, cupy, non_blocking=False):
        assert non_blocking, "the default stream cannot be captured"
        self._cupy = cupy
        self.is_current = 0
        self.ends_badly = False

    def __enter__(self):
        self.is_current += 1

    def __exit__(self, *_):
        self.is_current -= 1

    def synchronize(self):
        assert self._cupy.graph is None

    def begin_capture(self):
        assert self._cupy.graph is None
        self._cupy.graph = []

    def end_capture(self):
        nodes, self._cupy.graph = self._cupy.graph, None
        if self.ends_badly:
            raise FakeError("cudaErrorStreamCaptureInvalidated")
        return FakeGraph(self._cupy, nodes)


class FakeGraph:
    def __init__(self, cupy, nodes):
        self._cupy = cupy
        self._nodes = nodes

    def launch(self):
        assert self._cupy.graph is None
        for node in self._nodes:
            self._cupy.submit(*node)


class FakeEvent:
    def __init__(self, cupy):
        self._cupy = cupy

    def record(self, stream):
        assert stream.ptr == FakeStream.ptr
        self.time = self._cupy.now

    def synchronize(self):
        assert self._cupy.graph is None


@pytest.fixture
def cupy():
    return FakeCupy()


@pytest.fixture
def device(cupy):
    return Cuda(cupy)


@pytest.fixture(autouse=True)
def _on_the_fake(monkeypatch, cupy):
    """Run layoutkit's work on the fake device: the real functions, deferred and timed."""
    for name in ("convert", "accumulate", "collate"):
        monkeypatch.setattr(layoutkit, name, functools.partial(_submitted, cupy, name))
    monkeypatch.setattr(layoutkit, "Converter", functools.partial(_Converter, cupy))
    monkeypatch.setattr(cases, "MOST_SETS", cases.FEWEST_SETS)


REAL = {
    name: getattr(layoutkit, name) for name in ("convert", "accumulate", "collate", "Converter")
}


def _submitted(cupy, name, *arguments, out=None, **keywords):
    done = {}

    def work():
        done["result"] = REAL[name](*arguments, out=out, **keywords)

    cupy.submit(work, 100_000)
    return done["result"] if out is None else out


class _Converter:
    """A Converter that omits devices in calls of the real library: all memory is host memory."""

    def __init__(self, cupy, pattern, device=None, **keywords):
        self._cupy = cupy
        self.device = device
        self._converter = REAL["Converter"](pattern, **keywords)

    def __call__(self, x, out=None):
        self._cupy.submit(lambda: None, x.nbytes)
        return self._converter(x, out)


ROWS = device_rows.device_rows()
SMALL = {64: 5, 224: 6, 56: 4, 32: 7, 512: 9, 4096: 33, 16: 2, 1024: 20, 112: 5, 55: 3, 57: 7}
SMALL |= {223: 9, 225: 3, 3: 3, 4: 4, 5: 5, 17: 17}


def tiny(row):
    options = tuple((name, smaller(value)) for name, value in row.options)
    sizes = tuple(SMALL.get(size, 6) for size in row.sizes)
    return dataclasses.replace(row, sizes=sizes, options=options)


def smaller(value):
    """Return the value of an option with sizes as small as in `tiny`."""
    larger = {384: 8, 640: 9, 224: 5}
    return larger.get(value, value) if value != (("h", 640),) else (("h", 9),)


def row_of(kind):
    return next(tiny(row) for row in ROWS if row.kind == kind)


BY_KIND = {
    (row.kind, row.dtype, row.to_dtype, *[name for name, _ in row.options]): tiny(row)
    for row in ROWS
}.values()


# ---- The protocol, with events and graphs ---------------------------------------------------


def budget(low=3, high=3, sample=0.0):
    return Budget(seconds=10.0, warm_up=0.0, min_rounds=low, max_rounds=high, sample=sample)


def test_samples_are_what_the_events_say_and_not_the_host(device, cupy):
    host_time = iter(range(10_000))
    calls = [functools.partial(cupy.submit, lambda: None, 2 * 10**9)]
    times = measure([Variant("a", calls)], budget(), lambda: next(host_time), device.timer)
    assert times["a"].rounds == pytest.approx({0: 2e-3, 1: 2e-3, 2: 2e-3})


def test_a_call_that_does_the_work_several_times_is_divided():
    times = measure([Variant("a", [lambda: None], batch=4)], budget(), timer=lambda calls: 2.0)
    assert times["a"].rounds == {0: 0.5, 1: 0.5, 2: 0.5}


def test_warming_up_and_the_length_of_samples_go_by_the_timer():
    lengths = []

    def timer(calls):
        lengths.append(len(calls))
        return 0.25 * len(calls)

    settings = Budget(seconds=10.0, warm_up=1.0, min_rounds=2, max_rounds=2, sample=1.0)
    measure([Variant("a", [lambda: None] * 3)], settings, timer=timer)
    assert lengths == [1, 1, 1, 1, 4, 4]


def test_a_graph_holds_all_sets_and_is_replayed_without_the_calls(device, cupy):
    outs = [np.zeros(4, np.uint8) for _ in range(3)]
    log = []

    def call(number):
        log.append(number)
        cupy.submit(lambda: outs[number].__iadd__(1), 10**9)

    variant = device.variant("a", [functools.partial(call, n) for n in range(3)], 0.0, replay=True)
    assert log == [0, 0, 1, 2]  # the first call twice, to compile
    assert (len(variant.calls), variant.batch, variant.note) == (1, 3, "")
    times = measure([variant], budget(), timer=device.timer)
    assert log == [0, 0, 1, 2]
    assert [int(out[0]) for out in outs] == [1 + 4, 4, 4]
    assert times["a"].rounds == pytest.approx({0: 1e-3, 1: 1e-3, 2: 1e-3})


def test_a_replay_keeps_the_arrays_of_its_calls_alive(device, cupy):
    def call(array):
        cupy.submit(lambda: None, array.nbytes)

    held = np.zeros(4)
    before = sys.getrefcount(held)
    variant = device.variant("a", [functools.partial(call, held)], 0.0, replay=True)
    assert sys.getrefcount(held) > before
    del variant
    assert sys.getrefcount(held) == before


def test_without_replay_calls_are_made_every_time(device):
    log = []
    variant = device.variant("a", [lambda: log.append(1), lambda: log.append(2)], 0.0, False)
    assert log == []
    variant.calls[0]()
    assert (log, variant.batch, variant.note) == ([1, 2], 2, "")


def test_what_a_graph_cannot_hold_is_called_as_it_is_and_marked(device, cupy):
    log = []

    def call():
        if cupy.graph is not None:
            raise FakeError("cudaErrorStreamCaptureUnsupported")
        log.append(1)

    variant = device.variant("a", [call, call], 0.0, replay=True)
    assert cupy.graph is None
    log.clear()
    variant.calls[0]()
    assert log == [1, 1]
    assert "without a CUDA graph" in variant.note
    assert "cudaErrorStreamCaptureUnsupported" in variant.note


def test_the_first_reason_why_a_capture_failed_is_the_one_that_is_told(device, cupy):
    def call():
        if cupy.graph is not None:
            raise FakeError("the reason")

    device.stream.ends_badly = True
    assert "the reason" in device.variant("a", [call], 0.0, replay=True).note
    assert "Invalidated" in device.variant("a", [lambda: None], 0.0, replay=True).note


def test_a_mistake_during_a_capture_is_no_reason_to_time_it(device, cupy):
    def call():
        if cupy.graph is not None:
            raise TypeError("a mistake")

    with pytest.raises(TypeError, match="a mistake"):
        device.variant("a", [call], 0.0, replay=True)
    assert cupy.graph is None


# ---- Cases ---------------------------------------------------------------------------------


def prepared(row, device, peers=None):
    with device.using():
        return cases.prepare(row, peers or [CuPy(device.cupy)], True, device)


@pytest.mark.parametrize("row", BY_KIND, ids=lambda row: f"{row.kind} {row.name}")
def test_all_kinds_of_rows_give_right_results(row, device):
    case = prepared(row, device)
    assert (case.wrong, case.failed) == ([], {})
    names = {variant.name for variant in case.variants}
    assert "layoutkit" in names
    transfer = row.kind in ("upload", "download")
    assert ("layoutkit, fresh" in names) == (not transfer)
    assert ("CuPy" in names) == (not transfer and not row.options)
    assert ("limit" in names) == (row.kind != "call")
    assert all(variant.note == "" for variant in case.variants)
    assert {variant.batch for variant in case.variants} == {cases.FEWEST_SETS}


@pytest.mark.parametrize("kind", ["move", "fused", "accumulate", "upload", "download"])
def test_the_limit_copies_half_of_all_bytes_or_those_between_host_and_device(kind, device, cupy):
    row = row_of(kind)
    (limit,) = [v for v in prepared(row, device).variants if v.name == "limit"]
    cupy.copied.clear()
    elapsed = device.timer(limit.calls) / limit.batch
    once = {"upload": row.bytes_read, "download": row.bytes_written}
    expected = once.get(kind, (row.bytes_read + row.bytes_written) // 2)
    assert cupy.copied == [expected] * cases.FEWEST_SETS
    assert elapsed == pytest.approx(2 * expected / GIGABYTES_PER_SECOND / 1e9)


def test_large_copies_are_rounded_up(device, cupy, monkeypatch):
    monkeypatch.setattr(device_rows, "LARGE_COPY", 1)
    row = row_of("move")
    device.timer(device.limits(row, [[np.zeros(row.bytes_read, np.uint8)]], []))
    unit = device_rows.COPY_UNIT
    assert cupy.copied == [-(-row.traffic // 2 // unit) * unit]


class Liar(NumPy):
    """A peer that is right when called directly, but writes nothing in a graph."""

    name = "Liar"

    def __init__(self, cupy):
        self._cupy = cupy

    def into(self, row, sources, out):
        honest = super().into(row, sources, out)
        return lambda: None if self._cupy.graph is not None else honest()

    def fresh(self, row, sources):
        return None


def test_what_is_checked_is_the_replay(device, cupy):
    case = prepared(row_of("move"), device, [Liar(cupy)])
    assert case.wrong == ["Liar"]
    assert "Liar" not in {variant.name for variant in case.variants}


class Broken(NumPy):
    name = "Broken"

    def into(self, row, sources, out):
        raise ValueError("no such kernel")

    def fresh(self, row, sources):
        return lambda: 1 / 0


@pytest.mark.parametrize("where", ["cpu", "cuda"])
def test_who_fails_is_named_with_the_reason_and_the_others_are_timed(where, device, monkeypatch):
    other = CuPy(device.cupy)
    if where == "cpu":
        device = Host()
        other = NumPy()
        monkeypatch.setattr(layoutkit, "convert", REAL["convert"])
    case = cases.prepare(row_of("move"), [Broken(), other], True, device)
    assert case.failed == {
        "Broken": "ValueError: no such kernel",
        "Broken, fresh": "ZeroDivisionError: division by zero",
    }
    assert {"layoutkit", other.name} <= {variant.name for variant in case.variants}


LARGE = Row("g", "move", ("bhwc",), "chwb", "bhwc", (60, 4, 5, 3), "uint8", "uint8")


@pytest.mark.parametrize("sample", [0, 30, 59])
def test_of_large_rows_both_ends_and_the_middle_are_compared(sample, device, monkeypatch):
    values = np.random.default_rng(0).integers(0, 256, LARGE.shape("bhwc"), np.uint8)
    result = np.ascontiguousarray(values.transpose(3, 1, 2, 0))
    monkeypatch.setattr(device, "compared_bytes", 2400)
    right = cases._ResultChecker(LARGE, [values], device)
    assert [part.stop - part.start for part, _ in right._expected if part.start] == [1, 1]
    assert right(result)
    assert not right(np.concatenate([result, result], axis=-1))
    result[1, 2, 3, sample] ^= 1
    assert not right(result)


def test_up_to_the_bound_all_is_compared():
    assert cases._compared_parts(LARGE, 2 * 3600) == [slice(None)]
    assert len(cases._compared_parts(LARGE, 2 * 3600 - 1)) == 3
    matrix = dataclasses.replace(LARGE, sources=("hw",), target="wh", letters="hw", sizes=(1, 99))
    first, _, last = cases._compared_parts(matrix, 1)
    assert (first, last) == (slice(1), slice(98, 99))
    x = np.arange(99).reshape(1, 99)
    assert cases._part(matrix, x, "hw", last).tolist() == [[98]]
    assert cases._part(matrix, x.T, "wh", first).tolist() == [[0]]


# ---- Other libraries -----------------------------------------------------------------------


def test_torch_takes_part_only_if_it_finds_a_gpu(device, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    assert [peer.name for peer in device_peers(device)] == ["CuPy"]
    blind = types.SimpleNamespace(cuda=types.SimpleNamespace(is_available=lambda: False))
    monkeypatch.setitem(sys.modules, "torch", blind)
    assert [peer.name for peer in device_peers(device)] == ["CuPy"]


@pytest.mark.parametrize("kind", ["move", "fused", "accumulate", "upload", "download"])
def test_torch_gives_right_results_on_the_stream_of_all(kind, device, monkeypatch):
    torch = pytest.importorskip("torch")
    streams = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "ExternalStream", lambda pointer: pointer)
    monkeypatch.setattr(torch.cuda, "set_stream", streams.append)
    for name in ("cuda", "pin_memory"):
        monkeypatch.setattr(torch.Tensor, name, lambda tensor: tensor)
    to = torch.Tensor.to
    monkeypatch.setattr(
        torch.Tensor, "to", lambda x, where, **_: x if where == "cuda" else to(x, where)
    )
    peer = CudaTorch(device)
    assert streams == [FakeStream.ptr]
    # The fake's graphs do not replay torch's work.
    monkeypatch.setattr(device, "_capture", lambda calls: functools.partial(_all, calls))
    case = prepared(row_of(kind), device, [peer])
    assert (case.wrong, case.failed) == ([], {})
    assert "torch" in {variant.name for variant in case.variants}


def _all(calls):
    for call in calls:
        call()


# ---- Rows ----------------------------------------------------------------------------------


def test_every_array_is_larger_than_the_cache():
    for row in ROWS:
        if row.kind in ("call", "upload", "download"):
            continue
        items = np.prod(row.sizes, dtype=np.int64)
        for dtype in (row.dtype, row.to_dtype):
            assert items * as_dtype(dtype).itemsize >= device_rows.MIN_ARRAY_BYTES


def test_rows_are_those_of_the_cpu_with_larger_batches():
    apart = ("shapes", "huge", "host to device", "device to host")
    own = [row for row in ROWS if row.group not in apart and not row.options]
    for row, small in zip(own, all_rows(), strict=True):
        assert (row.pattern, row.dtype, row.to_dtype) == (
            small.pattern,
            small.dtype,
            small.to_dtype,
        )
        assert (row.kind, row.group, len(row.sizes)) == (small.kind, small.group, len(small.sizes))
        changed = [
            (new, old) for new, old in zip(row.sizes, small.sizes, strict=True) if new != old
        ]
        assert len(changed) <= 1
        for new, old in changed:
            assert new % old == 0
            assert (new // old) % 2 == 1 if old % 2 else (new // old).bit_count() == 1
    assert len({row.name for row in ROWS}) == len(ROWS)


def test_odd_batches_stay_odd_and_a_batch_of_one_stays_one():
    hostile = [row for row in ROWS if row.group == "hostile"]
    assert any(row.letters == "bhwc" and row.sizes[0] % 2 for row in hostile)
    assert any(row.sizes[0] == 1 and row.sizes[1] > 512 for row in hostile)


@pytest.mark.parametrize(
    ("sizes", "grown"),
    [
        ((1024, 32, 32, 256), (1024, 32, 32, 256)),  # just large enough
        ((1023, 32, 32, 256), (3069, 32, 32, 256)),  # a factor of two would suffice, but is even
        ((1022, 32, 32, 256), (2044, 32, 32, 256)),
        ((300, 32, 32, 256), (1200, 32, 32, 256)),
        ((1, 1024, 256, 256), (1, 4096, 256, 256)),
    ],
)
def test_batches_grow_until_they_are_large_enough_and_begin_as_even_as_they_did(sizes, grown):
    row = Row("g", "move", ("bhwc",), "bchw", "bhwc", sizes, "uint8", "float32")
    assert device_rows._enlarged_sizes(row) == grown


def test_one_row_has_more_elements_than_31_bits_count():
    (huge,) = [row for row in ROWS if row.group == "huge"]
    assert np.prod(huge.sizes, dtype=np.int64) > 2**31
    assert huge.dtype == "uint8"


def test_quick_has_some_of_every_group():
    quick = device_rows.device_rows(quick=True)
    assert set(quick) < set(ROWS)
    assert {row.group for row in quick} == {row.group for row in ROWS}


@pytest.mark.parametrize(
    ("group", "dtype", "channels", "goal"),
    [
        ("pairs", "float32", 64, 0.90),
        ("pairs", "int16", 64, 0.80),
        ("pairs", "uint8", 64, 0.80),
        ("pairs", "float32", 3, 0.75),
        ("pairs", "uint8", 3, 0.75),
        ("fused", "uint8", 3, 0.75),
        ("huge", "uint8", 3, 0.75),
    ],
)
def test_goals_are_those_of_the_design(group, dtype, channels, goal):
    actual = {
        row.at_least
        for row in ROWS
        if (row.group, row.dtype, row.sizes[-1]) == (group, dtype, channels)
    }
    assert actual == {goal}


def test_rows_without_a_goal_on_the_cpu_get_none_but_small_formulas():
    goals = {row.group for row in ROWS if row.at_least is not None}
    assert goals == {"pairs", "fused", "accumulate", "shapes", "huge"}
    (accumulated,) = [row for row in ROWS if row.group == "accumulate" and row.at_least]
    assert (accumulated.at_least, accumulated.pattern) == (0.90, "bchw+chwb+bhwc+bchw->bhwc")


def test_traffic_is_what_the_limit_moves():
    row = Row("g", "upload", ("bhwc",), "bchw", "bhwc", (2, 4, 5, 3), "uint8", "float32")
    assert row.traffic == 120
    assert dataclasses.replace(row, kind="download").traffic == 480
    assert dataclasses.replace(row, kind="fused").traffic == 600


# ---- Results and a whole run ---------------------------------------------------------------


def test_table_and_json_say_which_gpu_and_what_to_know(device):
    about = environment([CuPy(device.cupy)], quick=True) | device.about()
    actual = Result(
        ROWS[0], {}, failed={"layoutkit": "DeviceError: no"}, notes={"torch": "without a graph"}
    )
    stream = io.StringIO()
    table = Table(stream, ["CuPy"])
    table.begin(about)
    table.add(actual)
    table.end([actual])
    text = stream.getvalue()
    for words in ("Fake H200, 139 GiB", "cache 60 MiB", "CUDA 13.1", "runtime 13.0", "CuPy 14.2.0"):
        assert words in text
    assert "layoutkit: FAILED, DeviceError: no" in text
    assert "torch: without a graph" in text
    data = json.loads(json.dumps(as_json([actual], about, ["CuPy"])))
    assert data["gpu"]["l2_bytes"] == 60 << 20
    assert data["rows"][0]["notes"] == {"torch": "without a graph"}
    assert data["rows"][0]["failed"] == {"layoutkit": "DeviceError: no"}
    assert data["summary"]["failed"] == [f"{ROWS[0].name}: layoutkit"]


@pytest.fixture
def _tiny_bench(monkeypatch, device):
    rows = list({row.group: tiny(row) for row in ROWS}.values())
    monkeypatch.setattr(run, "open_cuda", lambda: device)
    monkeypatch.setattr(run, "device_rows", lambda quick: rows)
    monkeypatch.setattr(run, "device_peers", lambda device: [CuPy(device.cupy)])
    monkeypatch.setattr(run, "DEVICE_QUICK", Budget(0.005, 0.0, 2, 3, 0.0))


@pytest.mark.usefixtures("_tiny_bench")
def test_the_whole_benchmark_writes_table_json_and_figure(tmp_path, capsys, device, cupy):
    pytest.importorskip("matplotlib")
    numbers = tmp_path / "numbers.json"
    figure = tmp_path / "figure.png"
    options = ["--quick", "--json", str(numbers), "--plot", str(figure)]
    assert cli.main(["bench", "--device", "cuda", *options]) == 0
    text = capsys.readouterr().out
    data = json.loads(numbers.read_text())
    assert [row["group"] for row in data["rows"]] == list(dict.fromkeys(r.group for r in ROWS))
    assert all(row["name"] in text for row in data["rows"])
    assert all(row["of_limit"] > 0 for row in data["rows"] if row["group"] != "call cost")
    assert all(row["wrong"] == [] and row["failed"] == {} for row in data["rows"])
    assert data["gpu"]["name"] == "Fake H200"
    assert figure.read_bytes().startswith(b"\x89PNG")
    assert device.stream.is_current == 0
    assert cupy.frees == 2 * len(data["rows"])


@pytest.mark.usefixtures("_tiny_bench")
@pytest.mark.parametrize("options", [["--random", "2"], ["uv->vu", "--shape", "6,5"]])
def test_sweeps_run_on_the_gpu(monkeypatch, tmp_path, cupy, options):
    adapted = []
    monkeypatch.setattr(run, "adapt_to_device", lambda row: adapted.append(row) or tiny(row))
    numbers = tmp_path / "numbers.json"
    assert cli.main(["bench", "--device", "cuda", *options, "--json", str(numbers)]) == 0
    rows = json.loads(numbers.read_text())["rows"]
    assert len(adapted) == (2 if "--random" in options else 0)
    assert len(rows) == (2 if "--random" in options else 1)
    assert all({"limit", "layoutkit", "CuPy"} <= row["variants"].keys() for row in rows)
    assert cupy.copied


@pytest.mark.usefixtures("_tiny_bench")
def test_a_failure_of_ours_is_exit_code_1(monkeypatch, capsys):
    def convert(*_, **__):
        raise RuntimeError("no such kernel")

    monkeypatch.setattr(layoutkit, "convert", convert)
    assert bench.main(quick=True, device="cuda") == 1
    assert "layoutkit: FAILED, RuntimeError: no such kernel" in capsys.readouterr().out


@pytest.mark.usefixtures("_tiny_bench")
def test_what_was_measured_is_kept_when_it_ends_early(tmp_path, monkeypatch):
    seen = []

    def interrupted(row, *_):
        if seen:
            raise KeyboardInterrupt
        seen.append(row)
        return Result(row, {})

    monkeypatch.setattr(run, "_measure_row", interrupted)
    numbers = tmp_path / "numbers.json"
    with contextlib.suppress(KeyboardInterrupt):
        bench.main(quick=True, json=str(numbers), device="cuda")
    assert [row["name"] for row in json.loads(numbers.read_text())["rows"]] == [seen[0].name]


def test_without_cupy_there_is_one_message_and_nothing_else(monkeypatch, capsys):
    replace(monkeypatch, None, None)
    assert cli.main(["bench", "--device", "cuda"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("layoutkit: error: ")
    assert captured.err.count("\n") == 1
    assert "CuPy" in captured.err
