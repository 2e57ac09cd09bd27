"""CUDA kernels compiled by NVRTC, NVIDIA's runtime compiler: a wheel, without a GPU or a driver.

The options equal CuPy's, so the compiled code is the code that runs on a GPU.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import re
import stat
import subprocess
import tempfile
from pathlib import Path

import pytest

from layoutkit.cuda.driver import let_interrupts_end_waits
from layoutkit.kernels.cuda.launch import source

OPTIONS = ("-ftz=true", "--device-as-default-execution-space", "--std=c++17")


def found(distribution, pattern):
    """Return the path of an installed wheel's file, or None."""
    try:
        files = importlib.metadata.files(distribution) or []
    except importlib.metadata.PackageNotFoundError:
        return None
    paths = [Path(file.locate()) for file in files if re.search(pattern, str(file))]
    return next((path for path in paths if path.is_file()), None)


NVRTC = found("nvidia-cuda-nvrtc", r"lib/libnvrtc\.so\.\d+$")
# NVRTC opens this library by its name, and finds it if it is loaded already.
BUILTINS = found("nvidia-cuda-nvrtc", r"lib/libnvrtc-builtins\.so\.[\d.]+$")
NVDISASM = found("nvidia-cuda-nvdisasm", r"bin/nvdisasm$")
needs_nvrtc = pytest.mark.skipif(NVRTC is None, reason="needs the wheel nvidia-cuda-nvrtc")
needs_nvdisasm = pytest.mark.skipif(NVDISASM is None, reason="needs the wheel nvidia-cuda-nvdisasm")


class Compiled:
    """A launch compiled for a generation: `ptx`, `cubin` and the assembler's `log`."""

    def __init__(self, launch, generation, text=None):
        ctypes.CDLL(str(BUILTINS))
        self._library, self._program = ctypes.CDLL(str(NVRTC)), ctypes.c_void_p()
        text = (text or source(launch.family)).encode()
        create = self._library.nvrtcCreateProgram
        assert create(ctypes.byref(self._program), text, b"kernel.cu", 0, None, None) == 0
        macros = [f"-D{name}={value}" for name, value in launch.defines]
        options = [*OPTIONS, *macros, f"-arch=sm_{generation}", "--ptxas-options=-v"]
        words = (ctypes.c_char_p * len(options))(*map(str.encode, options))
        failed = self._library.nvrtcCompileProgram(self._program, len(words), words)
        let_interrupts_end_waits()
        self.log = self._get("ProgramLog").decode()
        assert not failed, self.log
        self.ptx, self.cubin = self._get("PTX").decode(), self._get("CUBIN")
        self._library.nvrtcDestroyProgram(ctypes.byref(self._program))

    def _get(self, what):
        size = ctypes.c_size_t()
        getattr(self._library, f"nvrtcGet{what}Size")(self._program, ctypes.byref(size))
        text = ctypes.create_string_buffer(size.value)
        getattr(self._library, f"nvrtcGet{what}")(self._program, text)
        return text.raw.rstrip(b"\0") if what != "CUBIN" else text.raw

    @property
    def listing(self):
        """The machine code as text, disassembled by nvdisasm."""
        NVDISASM.chmod(NVDISASM.stat().st_mode | stat.S_IXUSR)  # some installers omit this bit
        with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
            file.write(self.cubin)
            file.flush()
            return subprocess.check_output([NVDISASM, "-c", file.name], text=True)
