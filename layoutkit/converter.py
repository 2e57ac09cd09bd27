"""`convert` and `plan`: one conversion in one call. `accumulate` is beside them.

`Converter`: a conversion that is planned once for each kind of array and then only run.

Plans of conversions on whatever device does the work, of which only that knows its float16.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from ._compile import call_in_graph, in_graph, is_followed, words_of
from ._utils import fork
from ._utils.cache import MAX_KEPT, PROGRAM_BYTES, Cache, remember
from .cuda.runtime import check_device
from .errors import LayoutkitError
from .layout.parsing import identity
from .layout.pattern import as_shape
from .memory import Array, as_numpy, check_writable
from .normalize import is_by_value, plain
from .planning.gradient import Backs, known_clip, spread_of, taken, window_of_gradient
from .planning.options import Task, make_task
from .spec import CPU, ArraySpec, DType, as_dtype, kind_of

if TYPE_CHECKING:
    from .cpu.program import Laid, Placed, Program
    from .cuda.program import DevicePrograms
    from .planning.plan import Plan


def plan_of_spec(task: Task, spec: ArraySpec) -> Plan:
    """How a contiguous array of a spec is converted, here or on a GPU that need not be there."""
    with fork.making:
        from .memory import contiguous

    return planned(task, spec.shape, contiguous(spec.shape, spec.dtype), spec.dtype, spec.device)


def planned(
    task: Task, shape: tuple[int, ...], strides: tuple[int, ...], dtype: DType, device: str,
    out: Any = None,
) -> Plan:  # fmt: skip
    """The plan of the device that does the work: a GPU, if one is part of the way."""
    # Imported with the first conversion, so that `import layoutkit` stays light.
    with fork.making:
        if device == CPU and task.device in (None, CPU):
            from .cpu.program import has_half
        else:
            from .cuda.program import has_half
        from .planning import plan

        return plan.planned(task, shape, strides, dtype, device, out, has_half)


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
        pad_to: Mapping[str, int] | None = None,
        pad_before: Mapping[str, int] | None = None,
        fill: Any = None,
        channels: Sequence[int] | None = None,
        **sizes: int,
    ) -> None:
        self._start(
            make_task(
                pattern, dtype=dtype, scale=scale, mean=mean, std=std, clip=clip, casting=casting,
                device=None if device is None else check_device(device), copy=copy, memory=memory,
                threads=threads, pad_to=pad_to, pad_before=pad_before, fill=fill, channels=channels, **sizes,
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
        self.on_gpus: DevicePrograms | None = None  # for `layoutkit.backends.dispatch` to keep
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
            with fork.making:
                from .planning.plan import into_window

            window = window_of_gradient(self._task, grad, facts, source)
            return self.derived(into_window).backward(window, like=like, out=out)
        spread = spread_of(self._task, facts, source)
        if spread is None:
            found = self._backs.find(facts, source, out is None)(grad, out)
            return found if clip is None else _gradients().stopped(found, like, clip, out)
        few, move, picks = spread
        alone = self.derived(taken)._backs.find(facts, few, True)(grad)
        wanted = source[1] if source is not None and kind_of(source[1]) in "fc" else facts[1]
        found = _gradients().spread(alone, move, picks, wanted)
        found = found if clip is None else _gradients().stopped(found, like, clip)
        return found if out is None else Converter(identity(len(picks.shape)))(found, out)

    def inverse(self, dtype: Any = None) -> Converter:
        """The Converter back to x: the opposite pattern, and x = (y * std + mean) / scale.

        To `dtype` is cast as by "saturate": rounded and clipped, so that integer pictures come back
        exactly. The dtype of x is not known here: by default floats stay floats. Sizes of folds
        are those this was made with; what `clip` cut off is lost. ArgumentError where scale is 0.

        >>> Converter("bhwc->bchw", scale=1 / 255, mean=0.5).inverse("uint8").pattern
        'bchw->bhwc'
        """
        with fork.making:
            from .planning.gradient import inverse

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
            with fork.making:
                from .planning.plan import place_of

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
        with fork.making:
            made = self._program(array, out)
            return remember(self._programs, key, made, PROGRAM_BYTES + made.nbytes)

    def _program(self, array: Array, out: Array | None) -> Program | Laid | Placed:
        task = self._task
        if task.is_composed:
            from .cpu.program import Laid, Placed

            return Placed(task, array, out) if task.memory is None else Laid(self, out)
        from .cpu.program import Program

        plan = planned(task, array.shape, array.strides, array.dtype, CPU, out)
        return Program(plan, task.threads, task.is_part)


def _facts(x: Any, what: str) -> tuple[tuple[int, ...], DType, str]:
    """Shape, dtype and device of an array of any library."""
    if type(x) is np.ndarray:
        return x.shape, x.dtype, CPU
    return _adapters().facts(x, what)  # type: ignore[no-any-return]


@fork.once
def _gradients() -> ModuleType:
    from .backends import gradients  # late, as above

    return gradients


@fork.once
def _adapters() -> ModuleType:
    from .backends import dispatch  # late: they know conversions, and most arrays are NumPy's

    return dispatch


_CONSTANTS = 4  # scale, mean, std and clip


def convert(
    x: Any,
    /,
    pattern: str,
    *,
    dtype: Any = None,
    scale: Any = None,
    mean: Any = None,
    std: Any = None,
    clip: Any = None,
    casting: str = "same_kind",
    out: Any = None,
    device: str | None = None,
    copy: bool | None = None,
    memory: str | None = None,
    threads: int | None = None,
    pad_to: Mapping[str, int] | None = None,
    pad_before: Mapping[str, int] | None = None,
    fill: Any = None,
    channels: Sequence[int] | None = None,
    **sizes: int,
) -> Any:
    """Move an array to another layout, dtype and scale in one pass over memory.

    >>> import numpy as np
    >>> photos = np.zeros((8, 32, 32, 3), np.uint8)
    >>> convert(photos, "bhwc->bchw").shape                      # planes
    (8, 3, 32, 32)
    >>> convert(photos, "bhwc->bf").shape                        # flat, h slowest, c fastest
    (8, 3072)
    >>> y = convert(photos, "bhwc->bchw", dtype="float32", scale=1 / 255,
    ...             mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
    >>> convert(y.reshape(8, -1), "b(chw)->bhwc", h=32, w=32).shape
    (8, 32, 32, 3)

    Parameters
    ----------
    x : array, of any library, or what holds one
        Any strides, read-only or not; it is never written to.
    pattern : str
        Layout of x, `->`, layout of the result: one letter an axis, or, as in
        "batch height width c -> batch c height width", one name with blanks between them.
        Parentheses fold axes, `...` are axes that stay, `1` is one of size 1 to drop or add.
    dtype : dtype, optional
        Of the result. Default: out's, else x's (float32 for an integer x with a formula).
    scale, mean, std : number, or for mean and std several
        The result is (x * scale - mean) / std, computed in float32 (float64 if x or dtype is). A
        list or array is one number a channel (axis `c`); `{"f": [...]}` is one for each index of
        another axis, `{"b": [...]}` one a sample.
    clip : (lo, hi), optional
        x is clipped to this window before the formula; one bound may be None. An integer x with
        clip alone keeps its dtype.
    casting : "same_kind", "safe", "unsafe" or "saturate"
        What dtype changes are allowed, in NumPy's words; "saturate" rounds half to even and
        clips to the range of an integer dtype.
    out : array, optional
        Where to write: of the result's shape and dtype, any strides, not sharing memory with x.
    device : "cpu", "cuda" or such as "cuda:1", or a torch.device, optional
        Where the result is to be. Default: where x is.
    copy : bool, optional
        None: x itself or a view of it where nothing has to move, else new memory. True: always
        new memory. False: an error where bytes would have to move.
    memory : str, optional
        The axes of the result in the order in which new memory holds them. Default: that of the
        result. `convert(x, "bhwc->bchw", memory="bhwc")` is what PyTorch calls channels_last.
    threads : int, optional
        How many this conversion may use. Default: `get_num_threads()`.
    pad_to : dict of int by axis, optional
        Sizes of a result that is larger than x along these axes, as `{"h": 640, "w": 640}`.
    pad_before : dict of int by axis, optional
        Where x begins in it. Default: so that x is in the middle.
    fill : number, or one number a channel, optional
        What is around x, in the units of x: the formula is applied to it. Default: 0.
    channels : list of int, optional
        Channels of x (axis `c`) in the order of the result: (2, 1, 0) swaps red and blue, (0,)
        takes one, (0, 0, 0) repeats it. Constants are then one a channel of the result, and `fill`
        one a channel of x. Default: all as they are.
    **sizes : int
        Sizes of axes that x folds, such as `h=32` or `height=32`; one of a fold may be left out.

    Returns
    -------
    array
        `out`, or a contiguous array in the asked layout: x itself or a view of it where nothing
        has to move, which may depend on sizes (`bchw->bhwc` of one channel), so do not write into
        it without `copy=True`. New memory comes from a pool and returns to it when the array and
        all its views are gone.

    Raises
    ------
    PatternError, ShapeError, DtypeError, DeviceError, ArgumentError
        Before anything is written.
    """
    if type(x) is not np.ndarray and is_followed():
        return call_in_graph(
            x, pattern, out, sizes, dtype=dtype, scale=scale, mean=mean, std=std, clip=clip,
            casting=casting, device=device, copy=copy, memory=memory, threads=threads, pad_to=pad_to,
            pad_before=pad_before, fill=fill, channels=channels,
        )  # fmt: skip
    if device is not None:
        device = check_device(device)  # now: "cuda" is the current one, which may change
    try:
        converter = _kept(
            pattern, dtype, scale, mean, std, clip, casting, device, copy, memory, threads, pad_to,
            pad_before, fill, channels, **sizes,
        )  # fmt: skip
    except LayoutkitError:
        raise
    except TypeError:  # unhashable, such as a list of means, or an array
        converter = None
    if converter is None:
        converter = _plainly(
            pattern, dtype, scale, mean, std, clip, casting, device, copy, memory, threads, pad_to,
            pad_before, fill, channels, **sizes,
        )  # fmt: skip
    return converter(x, out)


def _make(
    pattern: str, dtype: Any, scale: Any, mean: Any, std: Any, clip: Any, casting: str,
    device: str | None, copy: bool | None, memory: str | None, threads: int | None, pad_to: Any,
    pad_before: Any, fill: Any, channels: Any, **sizes: int,
) -> Converter:  # fmt: skip
    return Converter(
        pattern, dtype=dtype, scale=scale, mean=mean, std=std, clip=clip, casting=casting,
        device=device, copy=copy, memory=memory, threads=threads, pad_to=pad_to, pad_before=pad_before,
        fill=fill, channels=channels, **sizes,
    )  # fmt: skip


# Typed, since True == 1 == 1.0: what was refused once is refused after a call that was right.
@lru_cache(maxsize=MAX_KEPT, typed=True)
def _kept(pattern: str, dtype: Any, *others: Any, **sizes: Any) -> Converter:
    """The Converter of these arguments, so that a loop plans once.

    Raises TypeError for constants that are no keys, as for what does not hash.
    """
    if not all(map(is_by_value, others[:_CONSTANTS])):
        raise TypeError("an array is no key")
    return _make(pattern, dtype, *others, **sizes)


def _plainly(
    pattern: Any, dtype: Any, scale: Any, mean: Any, std: Any, clip: Any, *others: Any, **sizes: Any
) -> Converter:
    """The kept Converter of constants that are no keys, or a new one of what has no plain form."""
    named = {"scale": scale, "mean": mean, "std": std, "clip": clip}
    constants = [plain(*each) for each in named.items()]
    arguments = (pattern, dtype, *constants, *map(_plain, others))
    keys = all(map(is_by_value, constants)) and _is_hashable((arguments, *sizes.values()))
    return (_kept if keys else _make)(*arguments, **sizes)


def _is_hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def _plain(value: Any) -> Any:
    """`pad_to` and `pad_before`, and a list of `fill` or `channels`, as keys."""
    if isinstance(value, Mapping):
        return tuple(value.items())
    if isinstance(value, np.ndarray):
        value = value.tolist()
    return tuple(value) if isinstance(value, list) else value


def plan(
    pattern: str,
    shape: Iterable[int],
    dtype: Any = "float32",
    *,
    to_dtype: Any = None,
    device: str | None = "cpu",
    **keywords: Any,
) -> Plan:
    """How `convert` would handle a contiguous array of `shape` and `dtype`.

    >>> found = plan("bhwc->bchw", (64, 224, 224, 3), "uint8", to_dtype="float32")
    >>> found.kernel, found.bytes_moved
    ('split', 48168960)

    `print` it to read how it will run, and why. Other keywords are those of `convert`; with
    `device="cuda"` no GPU has to be there.
    """
    task = make_task(pattern, dtype=to_dtype, device=device, **keywords)
    found = ArraySpec.of(task.pattern.left, as_shape(shape), as_dtype(dtype), CPU)
    return plan_of_spec(task, found)
