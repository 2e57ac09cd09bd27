"""Whoever takes the place of CuPy on GPUs has what layoutkit asks for, with the same arguments."""

import inspect

import pytest
from fake_cupy import Event, Stream

from layoutkit.cuda import cupy_runtime
from layoutkit.cuda.cupy_runtime import CudaKernel, CupyRuntime


def methods_of(kind):
    found = inspect.getmembers(kind, inspect.isfunction)
    return {name: inspect.signature(method) for name, method in found if name[0] != "_"}


def test_a_runtime_takes_what_it_is_asked():
    for name, asked in methods_of(cupy_runtime.Runtime).items():
        found = inspect.signature(getattr(CupyRuntime, name))
        wanted = [(each.name, each.kind, each.default) for each in asked.parameters.values()]
        assert [(p.name, p.kind, p.default) for p in found.parameters.values()] == wanted, name


def test_nothing_is_asked_of_cupy_that_the_protocol_lacks():
    assert methods_of(CupyRuntime).keys() == methods_of(cupy_runtime.Runtime).keys()


@pytest.mark.parametrize(
    ("kind", "fake"), [(cupy_runtime.CudaStream, Stream), (cupy_runtime.CudaEvent, Event)]
)
def test_streams_and_events_have_what_they_are_asked(kind, fake):
    for name, asked in methods_of(kind).items():
        assert list(inspect.signature(getattr(fake, name)).parameters) == list(asked.parameters)


def test_what_is_no_method_is_there_too(gpu):
    assert gpu.runtime.count == 2
    assert "launch" in CudaKernel.__slots__
