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
from layoutkit.bench import cases, device, run
from layoutkit.bench.device import Cuda, CudaTorch, CuPy, adapt_to_device, device_peers
from layoutkit.bench.peers import NumPy
from layoutkit.bench.protocol import Budget, Variant, measure
from layoutkit.bench.report import Report
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

    def ElementwiseKernel(self, inputs, output, operation, name):
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
def gpu(cupy):
    return Cuda(cupy)


REAL = {
    name: getattr(layoutkit, name) for name in ("convert", "accumulate", "collate", "Converter")
}


@pytest.fixture(autouse=True)
def _layoutkit_on_the_fake(monkeypatch, cupy):
    """Run layoutkit's work on the fake device: the real functions, deferred and timed."""
    for name in ("convert", "accumulate", "collate"):
        monkeypatch.setattr(layoutkit, name, functools.partial(_submitted, cupy, name))
    monkeypatch.setattr(layoutkit, "Converter", functools.partial(_Converter, cupy))
    monkeypatch.setattr(cases, "MOST_SETS", cases.FEWEST_SETS)


def _submitted(cupy, name, *arguments, out=None, **keywords):
    results = []
    work = functools.partial(REAL[name], *arguments, out=out, **keywords)
    cupy.submit(lambda: results.append(work()), 100_000)
    return results[0] if out is None else out


class _Converter:
    """A Converter that omits devices in calls of the real library: all memory is host memory."""

    def __init__(self, cupy, pattern, device=None, **keywords):
        self._cupy = cupy
        self._converter = REAL["Converter"](pattern, **keywords)

    def __call__(self, x, out=None):
        self._cupy.submit(lambda: None, x.nbytes)
        return self._converter(x, out)


ROWS = device.device_rows()
SMALL = {64: 5, 224: 6, 56: 4, 32: 7, 512: 9, 4096: 33, 16: 2, 1024: 20, 112: 5, 55: 3, 57: 7}
SMALL |= {223: 9, 225: 3, 3: 3, 4: 4, 5: 5, 17: 17}
SMALL_OPTIONS = {384: 8, 640: 9, 224: 5, (("h", 640),): (("h", 9),)}


def tiny(row):
    options = tuple((name, SMALL_OPTIONS.get(value, value)) for name, value in row.options)
    sizes = tuple(SMALL.get(size, 6) for size in row.sizes)
    return dataclasses.replace(row, sizes=sizes, options=options)


def row_of(kind):
    return next(tiny(row) for row in ROWS if row.kind == kind)


BY_KIND = {
    (row.kind, row.dtype, row.to_dtype, *[name for name, _ in row.options]): tiny(row)
    for row in ROWS
}.values()


# ---- Events and graphs ----------------------------------------------------------------------


def test_samples_are_timed_by_events_and_not_on_the_host(gpu, cupy):
    host_time = iter(range(10_000))
    calls = [functools.partial(cupy.submit, lambda: None, 2 * 10**9)]
    times = measure([Variant("a", calls)], BUDGET, lambda: next(host_time), gpu.timer)
    assert times["a"].rounds == pytest.approx({0: 2e-3, 1: 2e-3, 2: 2e-3})


BUDGET = Budget(seconds=10.0, warm_up=0.0, min_rounds=3, max_rounds=3, sample=0.0)


def test_a_graph_has_all_sets_of_buffers_and_is_replayed(gpu, cupy):
    outs = [np.zeros(4, np.uint8) for _ in range(3)]
    log = []

    def call(number):
        log.append(number)
        cupy.submit(lambda: outs[number].__iadd__(1), 10**9)

    variant = gpu.variant("a", [functools.partial(call, n) for n in range(3)], 0.0, replay=True)
    assert (len(variant.calls), variant.batch, variant.note) == (1, 3, "")
    times = measure([variant], BUDGET, timer=gpu.timer)
    assert log == [0, 0, 1, 2]  # the first call twice, to compile
    assert [int(out[0]) for out in outs] == [1 + 4, 4, 4]
    assert times["a"].rounds == pytest.approx({0: 1e-3, 1: 1e-3, 2: 1e-3})


def test_a_graph_keeps_the_arrays_of_its_calls_alive(gpu, cupy):
    array = np.zeros(4)
    before = sys.getrefcount(array)
    calls = [functools.partial(lambda x: cupy.submit(lambda: None, x.nbytes), array)]
    variant = gpu.variant("a", calls, 0.0, replay=True)
    del calls
    assert sys.getrefcount(array) > before
    del variant
    assert sys.getrefcount(array) == before


@pytest.mark.parametrize("replay", [False, True])
def test_variants_that_are_not_captured_are_called_every_time(gpu, cupy, replay):
    log = []

    def call():
        if cupy.graph is not None:
            raise FakeError("cudaErrorStreamCaptureUnsupported")
        log.append(1)

    variant = gpu.variant("a", [call, call], 0.0, replay)
    assert cupy.graph is None
    log.clear()
    variant.calls[0]()
    assert (log, variant.batch) == ([1, 1], 2)
    note = "timed without a CUDA graph, which cannot capture it (cudaErrorStreamCaptureUnsupported)"
    assert variant.note == (note if replay else "")


def test_the_note_has_the_first_error_of_a_capture(gpu, cupy):
    def fail(error):
        if cupy.graph is not None:
            raise error

    gpu.stream.ends_badly = True
    call = functools.partial(fail, FakeError("the reason"))
    assert "the reason" in gpu.variant("a", [call], 0.0, replay=True).note
    assert "Invalidated" in gpu.variant("a", [lambda: None], 0.0, replay=True).note
    with pytest.raises(TypeError, match="a mistake"):  # not an error of CUDA
        gpu.variant("a", [functools.partial(fail, TypeError("a mistake"))], 0.0, replay=True)
    assert cupy.graph is None


# ---- Cases ---------------------------------------------------------------------------------


def prepared(row, gpu, peers=None):
    with gpu.using():
        return cases.prepare(row, peers or [CuPy(gpu.cupy)], True, gpu)


@pytest.mark.budget(1)
@pytest.mark.parametrize("row", BY_KIND, ids=lambda row: f"{row.kind} {row.name}")
def test_all_kinds_of_rows_give_right_results(row, gpu):
    case = prepared(row, gpu)
    assert (case.wrong, case.failed) == ([], {})
    names = {variant.name for variant in case.variants}
    is_transfer = row.kind in ("upload", "download")
    assert "layoutkit" in names
    assert ("layoutkit, fresh" in names) == (not is_transfer)
    assert ("CuPy" in names) == (not is_transfer and not row.options)
    assert ("limit" in names) == (row.kind != "call")
    assert {(v.note, v.batch) for v in case.variants} == {("", cases.FEWEST_SETS)}


@pytest.mark.parametrize("kind", ["move", "fused", "accumulate", "upload", "download"])
def test_the_limit_copies_half_of_all_bytes_or_the_transferred_ones(kind, gpu, cupy):
    row = row_of(kind)
    (limit,) = [v for v in prepared(row, gpu).variants if v.name == "limit"]
    cupy.copied.clear()
    elapsed = gpu.timer(limit.calls) / limit.batch
    expected = row.traffic if kind in ("upload", "download") else row.traffic // 2
    assert cupy.copied == [expected] * cases.FEWEST_SETS
    assert elapsed == pytest.approx(2 * expected / GIGABYTES_PER_SECOND / 1e9)


def test_large_copies_are_rounded_up(gpu, cupy, monkeypatch):
    monkeypatch.setattr(device, "LARGE_COPY", 1)
    row = row_of("move")
    gpu.timer(gpu.limits(row, [[np.zeros(row.bytes_read, np.uint8)]], []))
    unit = device.COPY_UNIT
    assert cupy.copied == [-(-row.traffic // 2 // unit) * unit]


class Liar(NumPy):
    """A peer that is right when called directly, but writes nothing in a graph."""

    name = "Liar"

    def __init__(self, cupy):
        self._cupy = cupy

    def into(self, row, sources, out):
        call = super().into(row, sources, out)
        return lambda: None if self._cupy.graph is not None else call()

    def fresh(self, row, sources):
        return None


def test_the_replay_is_checked(gpu, cupy):
    case = prepared(row_of("move"), gpu, [Liar(cupy)])
    assert case.wrong == ["Liar"]


class WrongSample(NumPy):
    """A peer with one wrong sample of the batch, the last axis of the result."""

    name = "wrong"

    def __init__(self, sample):
        self._sample = sample

    def into(self, row, sources, out):
        return None

    def fresh(self, row, sources):
        result = np.ascontiguousarray(sources[0].transpose(row.order(row.sources[0])))
        result[1, 2, 3, self._sample] ^= 1
        return lambda: result


@pytest.mark.parametrize("compared_bytes", [2400, 7199, 7200])
@pytest.mark.parametrize(("sample", "is_compared"), [(0, 1), (30, 1), (59, 1), (20, 0)])
def test_both_ends_and_the_middle_of_large_rows_are_compared(
    sample, is_compared, compared_bytes, gpu, monkeypatch
):
    row = Row("g", "move", ("bhwc",), "chwb", "bhwc", (60, 4, 5, 3), "uint8", "uint8")
    monkeypatch.setattr(gpu, "compared_bytes", compared_bytes)
    is_wrong = is_compared or compared_bytes == 7200  # the whole row
    case = prepared(row, gpu, [WrongSample(sample)])
    assert case.wrong == (["wrong, fresh"] if is_wrong else [])


@pytest.mark.parametrize("torch", [None, types.SimpleNamespace(is_available=lambda: False)])
def test_torch_takes_part_only_if_it_finds_a_gpu(gpu, monkeypatch, torch):
    blind = torch and types.SimpleNamespace(cuda=torch)
    monkeypatch.setitem(sys.modules, "torch", blind)
    assert [peer.name for peer in device_peers(gpu)] == ["CuPy"]


@pytest.mark.parametrize("kind", ["move", "fused", "accumulate", "upload", "download"])
def test_torch_gives_right_results_on_the_common_stream(kind, gpu, monkeypatch):
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
    # The fake's graphs do not replay torch's work.
    variant = gpu.variant
    monkeypatch.setattr(
        gpu, "variant", lambda name, calls, *_, **__: variant(name, calls, 0, False)
    )
    case = prepared(row_of(kind), gpu, [CudaTorch(gpu)])
    assert streams == [FakeStream.ptr]
    assert (case.wrong, case.failed) == ([], {})
    assert "torch" in {variant.name for variant in case.variants}


# ---- Rows ----------------------------------------------------------------------------------


def test_rows_are_those_of_the_cpu_with_arrays_larger_than_the_cache():
    for row in all_rows():
        larger = adapt_to_device(row)
        assert larger in ROWS
        assert dataclasses.replace(larger, sizes=row.sizes, at_least=row.at_least) == row
        pairs = zip(larger.sizes, row.sizes, strict=True)
        changed = [(new, old) for new, old in pairs if new != old]
        assert len(changed) <= 1
        for new, old in changed:  # the alignment of rows is kept
            assert new % old == 0
            assert (new // old) % 2 == 1 if old % 2 else (new // old).bit_count() == 1
    for row in ROWS:
        if row.kind not in ("call", "upload", "download"):
            itemsize = min(as_dtype(name).itemsize for name in (row.dtype, row.to_dtype))
            assert np.prod(row.sizes, dtype=np.int64) * itemsize >= device.MIN_ARRAY_BYTES
    assert len({row.name for row in ROWS}) == len(ROWS)
    assert any(np.prod(row.sizes, dtype=np.int64) > 2**31 for row in ROWS)


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ((1024, 32, 32, 256), 1024),  # just large enough
        ((1023, 32, 32, 256), 3069),  # a factor of two would suffice, but is even
        ((1022, 32, 32, 256), 2044),
        ((300, 32, 32, 256), 1200),
        ((1, 1024, 256, 256), (1, 4096)),
    ],
)
def test_the_first_axis_that_is_longer_than_one_grows(sizes, expected):
    row = Row("g", "move", ("bhwc",), "bchw", "bhwc", sizes, "uint8", "float32")
    larger = adapt_to_device(row).sizes
    assert (larger[0] if sizes[0] > 1 else larger[:2]) == expected


def test_quick_keeps_some_rows_of_each_group():
    quick = device.device_rows(quick=True)
    assert set(quick) < set(ROWS)
    assert {row.group for row in quick} == {row.group for row in ROWS}


@pytest.mark.parametrize(
    ("group", "dtype", "channels", "goals"),
    [
        ("pairs", "float32", 64, {0.90}),
        ("pairs", "int16", 64, {0.80}),
        ("pairs", "uint8", 64, {0.80}),
        ("pairs", "float32", 3, {0.75}),
        ("fused", "uint8", 3, {0.75}),
        ("huge", "uint8", 3, {0.75}),
        ("accumulate", "float32", 64, {0.90, None}),
        ("hostile", "float32", 64, {None}),
    ],
)
def test_goals(group, dtype, channels, goals):
    key = group, dtype, channels
    assert {row.at_least for row in ROWS if (row.group, row.dtype, row.sizes[-1]) == key} == goals


# ---- Results and whole runs -----------------------------------------------------------------


def test_table_and_json_name_the_gpu_and_the_notes(gpu):
    about = environment([CuPy(gpu.cupy)], quick=True) | gpu.about() | {"openmp": ""}
    failed, notes = {"layoutkit": "DeviceError: no"}, {"torch": "without a graph"}
    actual = Result(ROWS[0], {}, failed=failed, notes=notes)
    stream = io.StringIO()
    report = Report(["CuPy"], stream=stream)
    report.begin(about)
    report.add(actual)
    report.end([actual])
    for words in ("Fake H200, 139 GiB", "cache 60 MiB", "CUDA 13.1", "runtime 13.0", "CuPy 14.2.0",
                  "layoutkit: FAILED, DeviceError: no", "torch: without a graph"):  # fmt: skip
        assert words in stream.getvalue()
    data = json.loads(json.dumps(as_json([actual], about, ["CuPy"])))
    assert data["gpu"]["l2_bytes"] == 60 << 20
    assert (data["rows"][0]["notes"], data["rows"][0]["failed"]) == (notes, failed)
    assert data["summary"]["failed"] == [f"{ROWS[0].name}: layoutkit"]


@pytest.fixture
def _tiny_bench(monkeypatch, gpu):
    rows = list({row.group: tiny(row) for row in ROWS}.values())
    monkeypatch.setattr(run, "open_cuda", lambda: gpu)
    monkeypatch.setattr(run, "device_rows", lambda quick: rows)
    monkeypatch.setattr(run, "device_peers", lambda gpu: [CuPy(gpu.cupy)])
    monkeypatch.setattr(run, "DEVICE_QUICK", Budget(0.005, 0.0, 2, 3, 0.0))


@pytest.mark.budget(0)
@pytest.mark.usefixtures("_tiny_bench")
def test_a_run_writes_table_json_and_chart(tmp_path, capsys, gpu, cupy):
    pytest.importorskip("matplotlib")
    numbers, chart = tmp_path / "numbers.json", tmp_path / "figure.png"
    options = ["--quick", "--json", str(numbers), "--plot", str(chart)]
    assert cli.main(["bench", "--device", "cuda", *options]) == 0
    text = capsys.readouterr().out
    data = json.loads(numbers.read_text())
    assert [row["group"] for row in data["rows"]] == list(dict.fromkeys(r.group for r in ROWS))
    for row in data["rows"]:
        assert row["name"] in text
        assert (row["wrong"], row["failed"]) == ([], {})
        assert row["group"] == "call cost" or row["of_limit"] > 0
    assert data["gpu"]["name"] == "Fake H200"
    assert chart.read_bytes().startswith(b"\x89PNG")
    assert (gpu.stream.is_current, cupy.frees) == (0, 2 * len(data["rows"]))


@pytest.mark.usefixtures("_tiny_bench")
@pytest.mark.parametrize(
    ("options", "adapted"), [(["--random", "2"], 2), (["uv->vu", "--shape", "6,5"], 0)]
)
def test_sweeps_run_on_the_gpu(monkeypatch, tmp_path, cupy, options, adapted):
    calls = []
    monkeypatch.setattr(run, "adapt_to_device", lambda row: calls.append(row) or tiny(row))
    numbers = tmp_path / "numbers.json"
    assert cli.main(["bench", "--device", "cuda", *options, "--json", str(numbers)]) == 0
    rows = json.loads(numbers.read_text())["rows"]
    assert (len(calls), len(rows)) == (adapted, adapted or 1)
    assert all({"limit", "layoutkit", "CuPy"} <= row["variants"].keys() for row in rows)
    assert cupy.copied


@pytest.mark.budget(0)
@pytest.mark.usefixtures("_tiny_bench")
def test_a_failure_of_layoutkit_is_exit_code_1(monkeypatch, capsys):
    def convert(*_, **__):
        raise RuntimeError("no such kernel")

    monkeypatch.setattr(layoutkit, "convert", convert)
    assert bench.main(quick=True, device="cuda") == 1
    assert "layoutkit: FAILED, RuntimeError: no such kernel" in capsys.readouterr().out


@pytest.mark.usefixtures("_tiny_bench")
def test_an_interrupted_run_writes_the_results_so_far(tmp_path, monkeypatch):
    def interrupted(*_):
        yield Result(ROWS[0], {})
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "measured", interrupted)
    numbers = tmp_path / "numbers.json"
    with contextlib.suppress(KeyboardInterrupt):
        bench.main(quick=True, json=str(numbers), device="cuda")
    assert [row["name"] for row in json.loads(numbers.read_text())["rows"]] == [ROWS[0].name]


def test_without_cupy_there_is_one_line_of_error(monkeypatch, capsys):
    replace(monkeypatch, None, None)
    assert cli.main(["bench", "--device", "cuda"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("layoutkit: error: ")
    assert captured.err.count("\n") == 1
    assert "CuPy" in captured.err
