"""What comes next, made by threads before somebody asks.

Knows functions of a number; what they make is not known here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

__all__ = ["ahead"]

T = TypeVar("T")


def ahead(
    make: Callable[[int], T], numbers: Iterable[int], prefetch: int, num_workers: int = 1
) -> Iterator[T]:
    """make(number) for each number, in their order, of which `prefetch` are made beforehand.

    Without `prefetch` the caller makes each one when it asks. An error comes where its result
    would have come. Threads end with the last number, or when the generator is closed.
    """
    if not prefetch:
        yield from map(make, numbers)
        return
    made: deque[Future[T]] = deque()
    pool = ThreadPoolExecutor(num_workers, thread_name_prefix="layoutkit-ahead")
    try:
        for number in numbers:
            made.append(pool.submit(make, number))
            if len(made) > prefetch:
                yield made.popleft().result()
        while made:
            yield made.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
