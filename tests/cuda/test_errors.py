"""The error messages when CuPy, the driver or a GPU is missing."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from layoutkit import (
    ArraySpec,
    Converter,
    DeviceError,
    ImageView,
    buffers,
    convert,
    plan,
    show_config,
    warmup,
)
from layoutkit.spec import normalize_device
from tests.helpers.children import python
from tests.helpers.cuda_shim import needs_compiler
from tests.helpers.fake_cuda import install, replace
from tests.helpers.fake_cupy import CompileException

IMAGES = np.zeros((2, 4, 5, 3), np.uint8)
EXTRA = r'pip install "layoutkit\[cuda13\]" \(or "layoutkit\[cuda12\]"'
DOORS = {
    "convert": lambda: convert(IMAGES, "bhwc->bchw", device="cuda"),
    "Converter": lambda: Converter("bhwc->bchw", device="cuda:1"),
    "view": lambda: ImageView("bhwc", IMAGES).forward_get("bchw", device="cuda"),
    "warmup": lambda: warmup("bhwc->bchw", (2, 4, 5, 3), device="cuda"),
}


class CudaError(RuntimeError):
    """An error like CuPy's own."""


def cupy_module(version="14.2.0", count=0, driver=0, wheel=13000):
    def device_count():
        if isinstance(count, Exception):
            raise count
        return count

    runtime = SimpleNamespace(
        getDeviceCount=device_count, driverGetVersion=lambda: driver,
        runtimeGetVersion=lambda: wheel,
    )  # fmt: skip
    return SimpleNamespace(
        __version__=version,
        cuda=SimpleNamespace(runtime=runtime),
        ndarray=type("ndarray", (), {"__module__": "cupy"}),
    )


@pytest.fixture
def fresh(monkeypatch):
    """Remove the current runtime, and any that the test makes."""
    replace(monkeypatch, sys.modules.get("cupy"), None)
    return monkeypatch


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(
    ("cupy", "words", "cause"),
    [
        (None, f"a GPU needs CuPy, which cannot be imported: {EXTRA}", ImportError),
        (
            cupy_module("14.1.1"),
            rf"CuPy 14\.1\.1 is installed, 14\.2 is needed: {EXTRA}",
            type(None),
        ),
        (
            cupy_module("15.0.0rc1", CudaError("x")),
            "needs the NVIDIA driver, and none was found",
            CudaError,
        ),
        (
            cupy_module(count=CudaError("old"), driver=11040),
            r"the NVIDIA driver is for CUDA 11\.4, which is too old",
            CudaError,
        ),
        (cupy_module(count=0, driver=13000), "finds no GPU; run nvidia-smi", type(None)),
        (
            cupy_module(count=CudaError("cudaErrorInsufficientDriver: old"), driver=12040),
            r"the NVIDIA driver is for CUDA 12\.4, but this CuPy is for CUDA 13: pip uninstall "
            r'cupy-cuda13x, and then pip install "layoutkit\[cuda12\]"; or install a driver for '
            "CUDA 13",
            CudaError,
        ),
        (
            cupy_module(count=CudaError("cudaErrorInitializationError: no"), driver=13000),
            "forked from one that uses CUDA, start it with",
            CudaError,
        ),
        (
            cupy_module(count=CudaError("cudaErrorNoDevice: none"), driver=12040, wheel=12090),
            "finds no GPU; run nvidia-smi",
            CudaError,
        ),
        (
            cupy_module(count=CudaError("cudaErrorSystemNotReady: wait"), driver=13010),
            r"driver for CUDA 13\.1 does not answer \(CudaError: cudaErrorSystemNotReady: wait\)",
            CudaError,
        ),
    ],
    ids=["no CuPy", "old CuPy", "no driver", "old driver", "no GPU", "driver older than CuPy",
         "forked", "no device", "another error"],
)  # fmt: skip
def test_what_is_missing_is_named(fresh, door, cupy, words, cause):
    fresh.setitem(sys.modules, "cupy", cupy)  # None: an ImportError
    for _ in range(2):
        with pytest.raises(DeviceError, match=words) as caught:
            DOORS[door]()
        assert type(caught.value) is DeviceError
        assert "\n" not in str(caught.value)
        assert isinstance(caught.value.__cause__, cause)
    assert convert(IMAGES, "bhwc->bchw").shape == (2, 3, 4, 5)


class Unwritable:
    """A module finder with a CuPy that cannot create the folder for its kernels."""

    def find_spec(self, name, *_):
        if name == "cupy":
            raise FileNotFoundError(2, "No such file or directory", "/home/nobody")


def test_a_home_that_cannot_be_written(fresh):
    fresh.delitem(sys.modules, "cupy", raising=False)
    fresh.setattr(sys, "meta_path", [Unwritable(), *sys.meta_path])
    with pytest.raises(
        DeviceError, match=r"FileNotFoundError.*set CUPY_CACHE_DIR to a writable folder"
    ):
        DOORS["convert"]()


class DynamicLibNotFoundError(RuntimeError):
    """An error like cuda-pathfinder's."""


@needs_compiler
@pytest.mark.parametrize(
    ("error", "words"),
    [
        (DynamicLibNotFoundError("libnvrtc.so.13"), f"CuPy cannot find NVRTC.*: {EXTRA}"),
        (RuntimeError("CuPy failed to load libnvrtc.so.12"), f"CuPy cannot find NVRTC.*{EXTRA}"),
        (
            CompileException("nvrtc: error: invalid value for --gpu-architecture\nmore"),
            r"NVRTC cannot compile the kernel lines for this GPU \(CompileException: nvrtc: "
            r"error: invalid value for --gpu-architecture\); .* needs layoutkit\[cuda12\]",
        ),
        (
            CompileException("kernel.cu(6): warning #177-D: unused\nkernel.cu(8): error: no Item"),
            r"the kernel lines for this GPU \(CompileException: kernel.cu\(8\): error: no Item\)$",
        ),
    ],
    ids=["no NVRTC", "no library", "refused", "warned"],
)
def test_a_compiler_that_is_missing_or_refuses(gpu, monkeypatch, error, words):
    def refused(self, name):
        raise error

    with monkeypatch.context() as broken:
        broken.setattr(gpu.cupy.RawModule, "get_function", refused)
        for door in ("convert", "view"):
            with pytest.raises(DeviceError, match=words) as caught:
                DOORS[door]()
            assert caught.value.__cause__ is error
    assert DOORS["convert"]() is not None
    with monkeypatch.context() as broken:
        broken.setattr(gpu.cupy.RawModule, "get_function", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):  # an unknown error is raised without an explanation
            convert(IMAGES, "bhwc->chwb", device="cuda")


@needs_compiler
def test_nothing_is_made_on_a_gpu_that_is_not_used(gpu):
    """Test that an unused GPU gets no context, which takes hundreds of megabytes of its memory."""
    to_gpu = Converter("bhwc->bchw", dtype="f4", scale=0.5, device="cuda:1")
    for _ in range(6):
        y = to_gpu(IMAGES)
    convert(y, "bchw->bhwc", device="cpu")
    convert(y, "bchw->bhwc", dtype="i4", casting="unsafe")
    warmup("bhwc->chwb", IMAGES.shape, "uint8", dtype="f4", scale=0.25, device="cuda:1")
    buffers.clear()
    assert gpu.gpus.contexts == {1}


def without_a_driver():
    cupy = pytest.importorskip("cupy", reason="needs CuPy")
    if cupy.cuda.is_available():
        pytest.skip("this machine has a GPU")


def test_the_real_cupy_without_a_driver(fresh):
    without_a_driver()
    with pytest.raises(DeviceError, match="needs the NVIDIA driver, and none was found"):
        DOORS["convert"]()


def test_the_real_cupy_without_a_home():
    without_a_driver()
    code = """
from layoutkit import DeviceError, convert
import numpy as np
try:
    convert(np.zeros((2, 3)), "bf->fb", device="cuda")
except DeviceError as error:
    print(error)
"""
    said = python(code, HOME="/proc/nobody", CUPY_CACHE_DIR="/proc/nobody/kernels")
    assert "set CUPY_CACHE_DIR to a writable folder" in said


def test_config_says_what_is_missing(fresh, capsys):
    fresh.setitem(sys.modules, "cupy", None)
    show_config()
    assert "cuda       none: a GPU needs CuPy" in capsys.readouterr().out


def test_planning_needs_no_gpu(fresh):
    fresh.setitem(sys.modules, "cupy", None)
    found = plan("bhwc->bchw", IMAGES.shape, "uint8", dtype="float16", device="cuda:3")
    assert (found.kernel, found.target.device) == ("split", "cuda:3")
    spec = ArraySpec("bhwc", IMAGES.shape, "uint8", "cuda")
    assert spec == ArraySpec("bhwc", IMAGES.shape, "uint8", "cuda:0")
    assert "on cuda:0" in str(Converter("bhwc->bchw").plan(spec))


def test_a_number_that_is_not_there(monkeypatch):
    install(monkeypatch, count=1)
    with pytest.raises(DeviceError, match="device='cuda:1', but this machine has one GPU, cuda:0"):
        convert(IMAGES, "bhwc->bchw", device="cuda:1")
    install(monkeypatch, count=2)
    with pytest.raises(DeviceError, match="has 2 GPUs, from cuda:0 on"):
        Converter("bhwc->bchw", device="cuda:2")


def test_cuda_is_the_current_device_of_the_call(monkeypatch):
    gpu = install(monkeypatch)
    for number in (0, 1, 0):
        with gpu.on(number):
            assert normalize_device("cuda") == f"cuda:{number}"
            assert convert(IMAGES, "bhwc->bchw", device="cuda").ordinal == number
            view = ImageView("bhwc", IMAGES)
            assert view.forward_get("bchw", device="cuda").ordinal == number


def test_nothing_of_cuda_is_imported_for_the_cpu():
    code = """
import sys
import numpy as np
import layoutkit
layoutkit.convert(np.zeros((2, 4, 5, 3)), "bhwc->bchw", device="cpu")
layoutkit.plan("bhwc->bchw", (2, 4, 5, 3), device="cuda")
print([name for name in sys.modules if name.partition(".")[0] in ("cupy", "torch", "jax")])
"""
    assert python(code).strip() == "[]"
