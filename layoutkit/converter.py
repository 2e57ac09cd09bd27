"""`Converter`: a conversion that is planned once for each kind of array and then only run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from .arrays import Array, as_numpy, check_device
from .axes import parse_pattern
from .errors import ArgumentError, DtypeError, PatternError, ShapeError
from .formulas import computed_dtype, make_formula
from .keeping import remember
from .keywords import checked_copy, checked_sizes
from .outputs import check_out, check_writable
from .spec import ArraySpec, DType, as_dtype, check_cast, check_casting, check_movable, kind_of

if TYPE_CHECKING:
    from .plans import Plan
    from .programs import Program

__all__ = ["Converter"]


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
    plans are kept for the latest shapes.
    """

    def __init__(
        self,
        pattern: str,
        *,
        dtype: Any = None,
        scale: Any = None,
        mean: Any = None,
        std: Any = None,
        casting: str = "same_kind",
        device: str | None = None,
        copy: bool | None = None,
        **sizes: int,
    ) -> None:
        check_casting(casting)
        self._pattern = parse_pattern(pattern)
        self._dtype = None if dtype is None else as_dtype(dtype)
        if self._dtype is not None:
            check_movable(self._dtype)
        self._formula = make_formula(scale, mean, std)
        self._casting = casting
        self._device = check_device(device)
        self._copy = checked_copy(copy)
        self._sizes = checked_sizes(sizes)
        self._programs: dict[Any, Program] = {}
        self._backs: dict[Any, Converter] = {}  # by dtype and the sizes of folds
        self._found: dict[Any, Converter] = {}  # the same by what a gradient and x look like

    def __repr__(self) -> str:
        shown = [f'"{self._pattern.text}"']
        shown += [f"{name}={value!r}" for name, value in self._keywords().items()]
        return f"Converter({', '.join(shown)})"

    def __getstate__(self) -> dict[str, Any]:
        # What is kept between calls is machine code: copies and other processes plan anew.
        return {**self.__dict__, "_programs": {}, "_backs": {}, "_found": {}}

    @property
    def pattern(self) -> str:
        """The pattern as it was given."""
        return self._pattern.text

    @property
    def casting(self) -> str:
        """The casting rule."""
        return self._casting

    def __call__(self, x: Any, out: Any = None) -> Any:
        """Convert `x`; see `convert`."""
        if type(x) is np.ndarray:
            array = x
        else:
            from .interop import bridge_of  # here, so that `import layoutkit` stays light

            bridge = bridge_of(x)
            if bridge is not None:
                return bridge.convert(self, x, out)
            array = as_numpy(x)
        if out is None:
            program = self._programs.get((array.shape, array.strides, array.dtype))
            if program is None:
                program = self._keep(array, None)
            return program(x, array, None)
        target = out if type(out) is np.ndarray else as_numpy(out, "out")
        key = (array.shape, array.strides, array.dtype, target.shape, target.strides, target.dtype)
        program = self._programs.get(key) or self._keep(array, target)
        check_writable(array, target)
        program(x, array, target)
        return out

    def backward(self, grad: Any, *, like: Any = None, out: Any = None) -> Any:
        """The gradient of x, in the layout and dtype of x, for the gradient of the result.

        Parameters
        ----------
        grad : array in the result's layout
        like : x or its ArraySpec, optional
            Gives the gradient's shape and dtype (an integer x: grad's dtype). Without it the
            sizes of folded axes are those that the Converter was made with.
        out : array, optional
            Where to write the gradient.

        A conversion with a formula scales the gradient by scale / std in the same pass.

        Raises
        ------
        ShapeError
            `grad` has not the result's shape, or the sizes of a fold are not known.
        """
        shape, dtype = _facts(grad, "grad")
        source = None if like is None else self._facts_of(like)
        key = (shape, dtype, source, out is None)
        back = self._found.get(key) or remember(self._found, key, self._back(*key))
        return back(grad, out)

    def inverse(self) -> Converter:
        """The Converter of the opposite pattern; sizes of folds are the keywords given here.

        Raises
        ------
        PatternError
            A conversion with scale, mean or std is not undone by moving elements back.
        """
        if self._formula is not None:
            raise PatternError(
                f'"{self._pattern.text}" with scale, mean or std has no inverse layout; for '
                "gradients use backward, else convert back with your own constants"
            )
        sizes = self._sizes_of_source(self._sizes)
        back = self._pattern.reversed()
        return Converter(back.text, casting=self._casting, copy=self._copy, **sizes)

    def resolve(self, spec: ArraySpec) -> ArraySpec:
        """The spec of the result for an x of `spec`; no array is needed.

        >>> spec = ArraySpec("bhwc", (8, 32, 32, 3), "uint8")
        >>> print(Converter("bhwc->bchw", dtype="float32").resolve(spec))
        float32 bchw (8, 3, 32, 32) on cpu
        """
        return self.plan(spec).target

    def plan(self, x: Any) -> Plan:
        """How an array or an ArraySpec (contiguous) would be converted; `print` it."""
        if not isinstance(x, ArraySpec):
            from .interop import as_array

            array = as_array(x)
            return self._plan(array.shape, array.strides, array.dtype, None)
        from .plans import contiguous

        shape, dtype = self._facts_of(x)
        return self._plan(shape, contiguous(shape, dtype), dtype, None)

    def spec_of(self, x: Any) -> ArraySpec:
        """The spec of an array of any library, which need not hold data."""
        return ArraySpec(str(self._pattern.left), *_facts(x, "x"))

    def target_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of the result for an x of `shape`."""
        return self._pattern.resolve(shape, self._sizes).target_shape

    def _keywords(self) -> dict[str, Any]:
        """The keywords that make this Converter, without those that say the default."""
        found: dict[str, Any] = {}
        if self._dtype is not None:
            # A structured dtype has no name that could be read back.
            found["dtype"] = str(self._dtype) if self._dtype.fields is None else self._dtype
        if self._formula is not None:
            found |= self._formula.keywords()
        if self._casting != "same_kind":
            found["casting"] = self._casting
        if self._copy is not None:
            found["copy"] = self._copy
        return found | self._sizes

    # -- planning --------------------------------------------------------------------------

    def _facts_of(self, like: Any) -> tuple[tuple[int, ...], DType]:
        """Shape and dtype of an array or of a spec that fits."""
        if not isinstance(like, ArraySpec):
            return _facts(like, "like")
        self._check_spec(like)
        return like.shape, like.dtype

    def _check_spec(self, spec: ArraySpec) -> None:
        """Raise unless the spec is of the layout that is converted, on a device that is there."""
        check_device(spec.device)
        if spec.axes not in (str(self._pattern.left), str(self._pattern.source)):
            raise PatternError(
                f'the spec is of layout {spec.axes}, but "{self._pattern.text}" converts '
                f"{self._pattern.left}; give a spec of that layout"
            )

    def _keep(self, array: Array, out: Array | None) -> Program:
        """Plan for arrays like these and keep the program."""
        from .programs import Program

        program = Program(self._plan(array.shape, array.strides, array.dtype, out))
        key: tuple[Any, ...] = (array.shape, array.strides, array.dtype)
        if out is not None:
            key += (out.shape, out.strides, out.dtype)
        return remember(self._programs, key, program)

    def _plan(
        self, shape: tuple[int, ...], strides: tuple[int, ...], source: DType, out: Array | None
    ) -> Plan:
        # Imported with the first conversion, so that `import layoutkit` stays light.
        from .plans import Request, make_plan
        from .programs import has_half

        move = self._pattern.resolve(shape, self._sizes)
        check_movable(source)
        target = self._target(source, out)
        computed = source if self._formula is None else computed_dtype(source, target)
        check_cast(computed, target, self._casting)
        if out is not None:
            check_out(out, move.target_shape, f'"{self._pattern.text}" on {shape}')
        request = Request(
            self._pattern.text, move, source, target, strides,
            None if out is None else out.strides, self._formula, self._casting,
            may_view=out is None and self._copy is not True,
        )  # fmt: skip
        found = make_plan(request, has_half)
        if self._copy is False and found.kernel != "view":
            raise ArgumentError(
                f'copy=False, but "{self._pattern.text}" has to move bytes of a {source} array '
                f"of shape {shape} and strides {strides}; allow a copy (copy=None)"
            )
        return found

    def _target(self, source: DType, out: Array | None) -> DType:
        """The result's dtype: as asked, else out's, else x's (float32 for integers normalised)."""
        if out is not None:
            if self._dtype is not None and out.dtype.newbyteorder("=") != self._dtype:
                raise DtypeError(
                    f"out has dtype {out.dtype}, but dtype={self._dtype} was asked; make them equal"
                )
            check_movable(out.dtype)
            return out.dtype
        if self._dtype is not None:
            return self._dtype
        if self._formula is not None and kind_of(source) in "bui":
            return np.dtype(np.float32)
        return source if source.isnative else source.newbyteorder("=")

    def _back(
        self,
        shape: tuple[int, ...],
        dtype: DType,
        source: tuple[tuple[int, ...], DType] | None,
        fresh: bool,
    ) -> Converter:
        """The Converter of such a gradient to x, whose shape and dtype `source` gives."""
        if kind_of(dtype) not in "fc":
            raise DtypeError(f"grad has dtype {dtype}; a gradient is floating")
        if source is None:
            return self._reverse(self._sizes, as_dtype(dtype) if fresh else None)
        move = self._pattern.resolve(source[0], self._sizes)
        if shape != move.target_shape:
            raise ShapeError(
                f'grad has shape {shape}, but "{self._pattern.text}" makes '
                f"{move.target_shape} of {source[0]}; pass the gradient of that result"
            )
        sizes = dict(zip(move.axes, move.sizes, strict=True))
        return self._reverse(sizes, as_dtype(source[1] if kind_of(source[1]) in "fc" else dtype))

    def _reverse(self, sizes: Mapping[str, int], dtype: DType | None) -> Converter:
        """The Converter of gradients to an x of these sizes and dtype; for any batch size."""
        folded = {
            letter for group in self._pattern.target.groups if len(group) > 1 for letter in group
        }
        known: dict[str, Any] = {
            letter: size
            for letter, size in self._sizes_of_source(sizes).items()
            if letter in folded
        }
        key = (tuple(known.items()), dtype)
        back = self._backs.get(key)
        if back is None:
            formula = self._formula
            back = Converter(
                self._pattern.reversed().text,
                dtype=dtype,
                scale=formula and formula.scale,
                std=formula and formula.std,
                copy=self._copy,
                **known,
            )
            back = remember(self._backs, key, back)
        return back

    def _sizes_of_source(self, sizes: Mapping[str, int]) -> dict[str, Any]:
        """The sizes that the opposite pattern can use: those of x's unfolded axes."""
        letters = self._pattern.source.letters
        return {letter: size for letter, size in sizes.items() if letter in letters}


def _facts(x: Any, what: str) -> tuple[tuple[int, ...], DType]:
    """Shape and dtype of an array of any library."""
    if type(x) is np.ndarray:
        return x.shape, x.dtype
    from .interop import facts

    return facts(x, what)
