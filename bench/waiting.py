"""How the threads of OpenMP, which torch and HPTT use, wait between two operations.

By default they spin: they look out for more work for milliseconds, on all CPUs, and take one from
whatever is timed next. `OMP_WAIT_POLICY=passive` lets them sleep at once. OpenMP reads it when its
library is loaded, so it has to be in the environment before torch is imported.
"""

from __future__ import annotations

import os

from ..openmp import libraries

__all__ = ["as_found", "made_passive"]

VARIABLE = "OMP_WAIT_POLICY"


def made_passive() -> str:
    """Let threads of OpenMP sleep between operations, if nobody said how; return that in words."""
    given, is_late = os.environ.get(VARIABLE), bool(libraries())
    os.environ.setdefault(VARIABLE, "passive")
    if given is not None:
        return f"{VARIABLE}={given}, as the environment has it."
    if is_late:
        return (
            f"{VARIABLE}=passive comes too late, as OpenMP is loaded already: its threads "
            "(torch's) may spin after each call."
        )
    return (
        f"{VARIABLE}=passive: else threads of OpenMP (torch's) spin for milliseconds after each "
        "call, on the CPU of whoever is timed next."
    )


def as_found() -> str:
    """Say what the environment has, and leave it so."""
    given = os.environ.get(VARIABLE)
    if given is None:
        return (
            f"{VARIABLE} is not set, and stays so: threads of OpenMP (torch's) spin after each "
            "operation, as they do for everybody."
        )
    return f"{VARIABLE}={given}, as the environment has it. Without it threads of OpenMP spin."
