"""threadpoolctl sees and sets the number of threads."""

import numpy as np
import pytest

threadpoolctl = pytest.importorskip("threadpoolctl", reason="it is what is tested")

import layoutkit


def ours():
    """Return the entry of layoutkit in threadpoolctl's info."""
    return [pool for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "layoutkit"]


@pytest.fixture(autouse=True)
def _first_conversion():
    layoutkit.convert(np.zeros((2, 3, 4)), "bhc->cbh")
    before = layoutkit.get_num_threads()
    layoutkit.set_num_threads(3)
    yield
    layoutkit.set_num_threads(before)


def test_it_sees_how_many_threads_there_are():
    (pool,) = ours()
    assert (pool["internal_api"], pool["num_threads"]) == ("layoutkit", 3)
    layoutkit.set_num_threads(2)
    assert ours()[0]["num_threads"] == 2


@pytest.mark.parametrize("api", [None, "layoutkit"])
def test_it_bounds_them_for_a_while(api):
    with threadpoolctl.threadpool_limits(1, user_api=api):
        assert layoutkit.get_num_threads() == 1
    assert layoutkit.get_num_threads() == 3


def test_bounds_of_others_are_not_ours():
    with threadpoolctl.threadpool_limits(1, user_api="blas"):
        assert layoutkit.get_num_threads() == 3
