"""A view compared with a naive model, through random sequences of all its methods."""

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from layoutkit import BackwardError, ImageView
from tests.helpers.arrays_of import assert_same
from tests.helpers.reference import reference_convert

LAYOUTS = ["bhwc", "bchw", "chwb", "whbc", "bf"]
BASES = LAYOUTS[:4]
SIZES = {"h": 3, "w": 2, "c": 2}


class ViewMachine(RuleBasedStateMachine):
    """The model: the base, the arguments of all gets, and the gradients in the base's layout."""

    def __init__(self):
        super().__init__()
        self.number = 0
        self.kept = []  # (array that was handed out, what it held)

    @initialize(base=st.sampled_from(BASES), dtype=st.sampled_from(["f4", "f8"]))
    def begin(self, base, dtype):
        self.view = ImageView()
        self.forward_put(base, dtype, 4)

    # -- actions ---------------------------------------------------------------------------

    @rule(
        base=st.sampled_from(BASES),
        dtype=st.sampled_from(["f4", "f8"]),
        count=st.integers(0, 5),
    )
    def forward_put(self, base, dtype, count):
        array = self.numbers(base, count).astype(dtype)
        self.view.forward_put(base, array)
        self.started(base, array)

    @rule(layout=st.sampled_from(LAYOUTS), dtype=st.sampled_from([None, "f4", "f8"]))
    def forward_get(self, layout, dtype):
        got = self.view.forward_get(layout, dtype)
        assert_same(got, self.moved(layout, dtype))
        assert self.view.forward_get(layout, dtype) is got
        self.results.add((layout, got.dtype.str))
        self.keep(got)

    @precondition(lambda self: self.results)
    @rule(data=st.data())
    def backward_put(self, data):
        layout, dtype = data.draw(st.sampled_from(sorted(self.results)))
        shape = self.moved(layout, dtype).shape
        grad = np.random.default_rng(self.count()).integers(-9, 9, shape).astype(dtype)
        self.view.backward_put(layout, grad)
        self.gradients.append(self.brought_back(grad, layout))

    @rule()
    def backward_get(self):
        if not self.gradients:
            with pytest.raises(BackwardError, match="no gradient"):
                self.view.backward_get()
            return
        total = sum(gradient.astype("f8") for gradient in self.gradients)
        got = self.view.backward_get()
        assert_same(got, total.astype(self.array.dtype))
        assert self.view.backward_get() is got

    @rule(
        positions=st.lists(st.integers(-5, 4), max_size=7),
        out=st.booleans(),
    )
    def index(self, positions, out):
        count = len(self.view)
        positions = [p for p in positions if -count <= p < count]
        target = ImageView() if out else None
        found = self.view.index(positions, target)
        assert (found is target) == out
        wanted = self.array.take(np.array(positions, int), self.base.index("b"))
        assert_same(found.input, wanted)
        assert not np.shares_memory(found.input, self.view.input)

    @rule(start=st.integers(-6, 6), stop=st.integers(-6, 6), copy=st.booleans())
    def sub(self, start, stop, copy):
        found = self.view.sub(start, stop, copy=copy)
        places = [slice(None)] * 4
        places[self.base.index("b")] = slice(start, stop)
        wanted = self.array[tuple(places)]
        assert_same(found.input, wanted)
        shared = np.shares_memory(found.input, self.view.input)
        assert shared == (not copy and wanted.size > 0)

    @rule(
        layout=st.sampled_from(LAYOUTS),
        dtype=st.sampled_from(["f4", "f8"]),
        count=st.integers(1, 5),
    )
    def replace(self, layout, dtype, count):
        inner = self.base if layout == "bf" else layout
        array = self.numbers(inner, count).astype(dtype)
        if layout == "bf":
            array = reference_convert(array, f"{self.base}->bf")
        wanted = self.brought_back(array, layout)
        self.view.replace(layout, array)
        self.started(self.base, wanted)

    @rule()
    def flush(self):
        self.view.flush()
        self.results = set()
        self.gradients = []

    # -- invariants ------------------------------------------------------------------------

    @invariant()
    def the_base_is_as_it_was_put(self):
        if hasattr(self, "base"):
            assert self.view.layout == self.base
            assert_same(np.ascontiguousarray(self.view.input), np.ascontiguousarray(self.array))

    @invariant()
    def what_was_handed_out_stays(self):
        for array, held in self.kept:
            assert_same(np.ascontiguousarray(array), held)

    # -- the model -------------------------------------------------------------------------

    def started(self, base, array):
        self.base = base
        self.array = array
        self.results = set()
        self.gradients = []

    def moved(self, layout, dtype):
        return reference_convert(self.array, f"{self.base}->{layout}", dtype=dtype)

    def brought_back(self, array, layout):
        """Return an array of a get's layout in the base's layout."""
        if layout == "bf":
            layout = f"b({self.base.replace('b', '')})"
            return reference_convert(array, f"{layout}->{self.base}", **SIZES)
        return reference_convert(array, f"{layout}->{self.base}")

    def numbers(self, base, count):
        shape = [{"b": count, **SIZES}[letter] for letter in base]
        return np.random.default_rng(self.count()).integers(-99, 99, shape)

    def count(self):
        self.number += 1
        return self.number

    def keep(self, array):
        self.kept = [*self.kept[-5:], (array, np.ascontiguousarray(array).copy())]


TestView = ViewMachine.TestCase
TestView.settings = settings(
    stateful_step_count=30, derandomize=True, database=None,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
