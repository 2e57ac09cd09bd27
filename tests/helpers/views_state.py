"""The observable state of a view, so that tests can assert that it is unchanged."""

from contextlib import contextmanager

import numpy as np
import pytest

from layoutkit import ListView


def state(view):
    """Return base, results, gradients and plans by identity, and the base's bytes."""
    if isinstance(view, ListView):
        return [state(component) for component in view.components]
    seen = [getattr(view, "classes", None)]
    batch = view._batch
    if batch is None:
        return [*seen, None, dict(view._results)]
    assert view._results is batch.results
    return [
        *seen,
        (view.layout, view.dtype, len(view), id(view.input), id(batch.plans)),
        np.ascontiguousarray(batch.array).tobytes(),
        {key: id(result) for key, result in batch.results.items()},
        {id(conversion): id(result) for conversion, result in batch.by_conversion.items()},
        [(id(conversion), id(grad)) for conversion, grad in batch.gradients],
        {key: id(total) for key, total in batch._totals.items()},
    ]


@contextmanager
def check_error(error, words, *views):
    """Assert that the block raises exactly `error` with `words`, and changes no view."""
    before = [state(view) for view in views]
    with pytest.raises(error, match=words) as caught:
        yield
    assert caught.type is error
    assert [state(view) for view in views] == before
