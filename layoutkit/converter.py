"""`Converter`: a conversion that is planned once for each kind of array and then only run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from . import forks
from .caching import PROGRAM_BYTES, Cache, remember
from .compilation import in_graph, is_followed, words_of
from .cuda.runtime import check_device
from .devices import CPU
from .gradients import Backs, known_clip, spread_of, taken, window_of_gradient
from .memory import Array, as_numpy, check_writable
from .notation import identity
from .planning.task import Task, make_task
from .plans import plan_of_spec, planned
from .spec import ArraySpec, DType, kind_of

if TYPE_CHECKING:
    from .cpu.composed import Laid, Placed
    from .cpu.program import Program
    from .cuda.program import DevicePrograms
    from .planning.plan import Plan

__all__ = ["Converter"]

# Quicker ways of arrays of exactly one class, by its id, as some do not hash; or NotImplemented.
shortcuts: dict[int, Callable[[Converter, Any, Any], Any]] = {}
_OF_PROCESS = ("on_gpus", "_programs", "_backs", "_derived", "words")  # copies plan anew


class Converter:
    """A conversion that is planned once and called for batch after batch.

    Takes what `convert` takes, except the array and `out`; the same rules hold.

    >>> import numpy as np
    >>> to_planes = Converter("bhwc->bchw", dtype="float32", scale=1 / 255)
    >>> to_planes(np.zeros((2, 4, 5, 3), np.uint8)).shape
    (2, 3, 4, 5)
    >>> to_planes.backward(np.ones((2, 3, 4, 5), np.float32)).shape
    (2, 4, 5, 3)

    A Converter may be called from several threads at once and takes arrays of any shape;
    plans are kept for the latest shapes. Two that were asked for the same are equal, as keys of
    dicts and static arguments of `jax.jit` too.
    """

    def __init__(
        self,
        pattern: str,
        *,
        dtype: Any = None,
        scale: Any = None,
        mean: Any = None,
        std: Any = None,
        clip: Any = None,
        casting: str = "same_kind",
        device: str | None = None,
        copy: bool | None = None,
        memory: str | None = None,
        threads: int | None = None,
        into: Mapping[str, int] | None = None,
        corner: Mapping[str, int] | None = None,
        fill: Any = None,
        channels: Sequence[int] | None = None,
        **sizes: int,
    ) -> None:
        self._start(
            make_task(
                pattern, dtype=dtype, scale=scale, mean=mean, std=std, clip=clip, casting=casting,
                device=None if device is None else check_device(device), copy=copy, memory=memory,
                threads=threads, into=into, corner=corner, fill=fill, channels=channels, **sizes,
            )
        )  # fmt: skip

    @classmethod
    def of_task(cls, task: Task) -> Converter:
        """The Converter of what was asked and checked."""
        (made := cls.__new__(cls))._start(task)
        return made

    def _start(self, task: Task) -> None:
        self._task = task
        self.is_away = task.device not in (None, CPU)
        self._programs: Cache[Program | Laid | Placed] = Cache()
        self.on_gpus: DevicePrograms | None = None  # for `layoutkit.arrays.adapters` to keep
        self._backs = Backs(task, Converter)
        self._derived: dict[Callable[[Task], Task], Converter] = {}
        self.words = words_of(task)

    def __repr__(self) -> str:
        shown = [f'"{self.pattern}"']
        shown += [f"{name}={value!r}" for name, value in self._task.keywords().items()]
        return f"Converter({', '.join(shown)})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Converter):
            return NotImplemented
        return self is other or self._task.asked() == other._task.asked()

    def __hash__(self) -> int:
        return hash(self._task.asked())

    def __dask_tokenize__(self) -> tuple[str, str]:
        return "layoutkit.Converter", repr(self)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in _OF_PROCESS}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._start(state["_task"])

    @property
    def pattern(self) -> str:
        """The pattern as it was given."""
        return self._task.pattern.text

    @property
    def keywords(self) -> dict[str, Any]:
        """What was asked beside the pattern, as keywords, without those that say the default.

        >>> Converter("bhwc->bchw", dtype="float32", scale=0.5).keywords["scale"]
        0.5
        """
        return self._task.keywords()

    @property
    def casting(self) -> str:
        """The casting rule."""
        return self._task.casting

    @property
    def device(self) -> str | None:
        """Where results are, "cpu" or "cuda:0"; None: where x is."""
        return self._task.device

    def __call__(self, x: Any, out: Any = None) -> Any:
        """Convert `x`; see `convert`."""
        plain = isinstance(x, np.ndarray) and (out is None or isinstance(out, np.ndarray))
        if self.is_away or not plain:
            if is_followed():
                return in_graph(self, x, out)
            short = shortcuts.get(id(type(x)))
            if short is not None and (found := short(self, x, out)) is not NotImplemented:
                return found
            return _adapters().convert_foreign(self, x, out)
        array = x if type(x) is np.ndarray else as_numpy(x)
        if out is None:
            key: Any = (array.shape, array.strides, array.dtype)
            program = self._programs.get(key) or self._keep(key, array, None)
            return program(x, array, None)
        to = out if type(out) is np.ndarray else as_numpy(out, "out")
        key = (array.shape, array.strides, array.dtype, to.shape, to.strides, to.dtype)
        program = self._programs.get(key) or self._keep(key, array, to)
        check_writable(array, to)
        program(x, array, to)
        return out

    def backward(self, grad: Any, *, like: Any = None, out: Any = None) -> Any:
        """The gradient of x, in the layout and dtype of x, for the gradient of the result.

        A conversion with a formula scales the gradient by scale / std in the same pass. One with
        `clip` gives zeros where x was outside of the window, and so has to see x: `like=x`.

        Parameters
        ----------
        grad : array in the result's layout
        like : x or its ArraySpec, optional
            Gives the gradient's shape, dtype (an integer x: grad's dtype) and device. Without it
            the sizes of folded axes are those that the Converter was made with, and the gradient
            stays where `grad` is.
        out : array, optional
            Where to write the gradient.

        Raises
        ------
        ShapeError
            `grad` has not the result's shape, or the sizes of a fold are not known.
        ArgumentError
            There is a `clip`, and `like` is no array.
        """
        clip = known_clip(self._task, like)
        facts = _facts(grad, "grad")
        source = None if like is None else self._facts_of(like)
        if self._task.canvas is not None:
            with forks.making:
                from .planning.composed import into_window

            window = window_of_gradient(self._task, grad, facts, source)
            return self.derived(into_window).backward(window, like=like, out=out)
        spread = spread_of(self._task, facts, source)
        if spread is None:
            found = self._backs.find(facts, source, out is None)(grad, out)
            return found if clip is None else _adapters().stopped(found, like, clip, out)
        few, move, picks = spread
        alone = self.derived(taken)._backs.find(facts, few, True)(grad)
        wanted = source[1] if source is not None and kind_of(source[1]) in "fc" else facts[1]
        found = _adapters().spread(alone, move, picks, wanted)
        found = found if clip is None else _adapters().stopped(found, like, clip)
        return found if out is None else Converter(identity(len(picks.shape)))(found, out)

    def inverse(self, dtype: Any = None) -> Converter:
        """The Converter back to x: the opposite pattern, and x = (y * std + mean) / scale.

        To `dtype` is cast as by "saturate": rounded and clipped, so that integer pictures come back
        exactly. The dtype of x is not known here: by default floats stay floats. Sizes of folds
        are those this was made with; what `clip` cut off is lost. ArgumentError where scale is 0.

        >>> Converter("bhwc->bchw", scale=1 / 255, mean=0.5).inverse("uint8").pattern
        'bchw->bhwc'
        """
        with forks.making:
            from .planning.back import inverse

        pattern, keywords = inverse(self._task, dtype)
        return Converter(pattern, **keywords)

    def resolve(self, spec: ArraySpec) -> ArraySpec:
        """The spec of the result for an x of `spec`; no array is needed.

        >>> spec = ArraySpec("bhwc", (8, 32, 32, 3), "uint8")
        >>> print(Converter("bhwc->bchw", dtype="float32").resolve(spec))
        float32 bchw (8, 3, 32, 32) on cpu
        """
        return self.plan(spec).target

    def plan(self, x: Any) -> Plan:
        """How an array or an ArraySpec (contiguous) would be converted; `print` it."""
        if isinstance(x, ArraySpec):
            self._task.check_spec(x)
            return plan_of_spec(self._task, x)
        return _adapters().plan_of(self, x)  # type: ignore[no-any-return]

    def spec_of(self, x: Any) -> ArraySpec:
        """The spec of an array of any library, which need not hold data."""
        return ArraySpec.of(self._task.pattern.left, *_facts(x, "x"))

    def target_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of the result for an x of `shape`."""
        task = self._task
        if task.canvas is not None:
            with forks.making:
                from .planning.composed import place_of

            return place_of(task, shape).shape
        return task.picked(shape)[0].target_shape

    @property
    def task(self) -> Task:
        """What is asked of it."""
        return self._task

    def derived(self, how: Callable[[Task], Task]) -> Converter:
        """The Converter of what follows from what was asked, such as `made`; kept."""
        known = self._derived
        return known.get(how) or known.setdefault(how, Converter.of_task(how(self._task)))

    def _facts_of(self, like: Any) -> tuple[tuple[int, ...], DType, str]:
        """Shape, dtype and device of an array or of a spec that fits."""
        if not isinstance(like, ArraySpec):
            return _facts(like, "like")
        self._task.check_spec(like)
        return like.shape, like.dtype, like.device

    def _keep(self, key: Any, array: Array, out: Array | None) -> Program | Laid | Placed:
        """Plan for arrays like these and keep the program."""
        with forks.making:
            made = self._program(array, out)
            return remember(self._programs, key, made, PROGRAM_BYTES + made.nbytes)

    def _program(self, array: Array, out: Array | None) -> Program | Laid | Placed:
        task = self._task
        if task.is_composed:
            from .cpu.composed import Laid, Placed

            return Placed(task, array, out) if task.memory is None else Laid(self, out)
        from .cpu.program import Program

        plan = planned(task, array.shape, array.strides, array.dtype, CPU, out)
        return Program(plan, task.threads, task.is_part)


def _facts(x: Any, what: str) -> tuple[tuple[int, ...], DType, str]:
    """Shape, dtype and device of an array of any library."""
    if type(x) is np.ndarray:
        return x.shape, x.dtype, CPU
    return _adapters().facts(x, what)  # type: ignore[no-any-return]


@forks.once
def _adapters() -> ModuleType:
    from .arrays import adapters  # late: they know conversions, and most arrays are NumPy's

    return adapters
