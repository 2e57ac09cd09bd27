"""An interpreter of PTX, the assembly language that NVRTC generates, for one thread.

It executes the instructions that the functions of `numeric.cuh` are compiled to, with the rounding
and the treatment of NaN that the PTX manual defines, so their results can be compared with
NumPy's without a GPU.
"""

import ctypes
import re
from fractions import Fraction

import ml_dtypes
import numpy as np

SIZES = {"b8": 1, "b16": 2, "b32": 4, "b64": 8}
SIZES |= {f"{kind}{bits}": bits // 8 for kind in "us" for bits in (8, 16, 32, 64)}
SIZES |= {"f16": 2, "bf16": 2, "f32": 4, "f64": 8, "pred": 1}
FLOATS = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64}
CANONICAL_NAN = {"f16": 0x7FFF, "bf16": 0x7FFF, "f32": 0x7FFFFFFF, "f64": 0x7FF8000000000000}
COMPARE = {
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b, "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
    "lo": lambda a, b: a < b, "ls": lambda a, b: a <= b, "hi": lambda a, b: a > b,
    "hs": lambda a, b: a >= b,
}  # fmt: skip


class Kernel:
    """A kernel of a PTX module, whose parameters are addresses of the process's own memory."""

    def __init__(self, ptx, name):
        match = re.search(rf"\.entry {name}\((.*?)\)\s*(?:\.\w+[^\n]*\n)*\{{(.*?)\n\}}", ptx, re.S)
        parameters, body = match.groups()
        self._parameters = re.findall(r"(\w+)(?:\[\d+\])?,?\s*$", parameters, re.M)
        body = re.sub(r"//[^\n]*|\.(?:reg|loc|pragma)[^;]*;", "", body)
        self._steps, self._labels = [], {}
        for text in re.split(r"[;\n]", body.replace("{", "").replace("}", "")):
            text = text.strip()
            if text.endswith(":"):
                self._labels[text[:-1]] = len(self._steps)
            elif text:
                self._steps.append(_parse(text))

    def __call__(self, *addresses):
        """Execute the kernel as one thread."""
        self._registers = dict(zip(self._parameters, addresses, strict=True))
        place = 0
        with np.errstate(all="ignore"):
            while place < len(self._steps):
                guard, opcode, words, operands = self._steps[place]
                place += 1
                if guard is not None and not self._is_true(guard):
                    continue
                if opcode == "ret":
                    return
                if opcode == "bra":
                    place = self._labels[operands[0]]
                else:
                    getattr(self, f"_{opcode}")(words, *operands)

    # -- operands --------------------------------------------------------------------------

    def _is_true(self, guard):
        return bool(self._registers[guard.lstrip("!")]) != guard.startswith("!")

    def _bits(self, operand, kind):
        """Return the bits of a register or a constant."""
        if operand.startswith("0f"):
            return int(operand[2:], 16)
        if operand.startswith("0d"):
            return int(operand[2:], 16)
        if re.match(r"-?\d", operand):
            return int(operand, 0) & (1 << 8 * SIZES[kind]) - 1
        return self._registers[operand] & (1 << 8 * SIZES[kind]) - 1

    def _value(self, operand, kind):
        """Return an operand as an int, or as a NumPy float."""
        bits = self._bits(operand, kind)
        if kind in FLOATS:
            dtype = np.dtype(FLOATS[kind])
            return np.array(bits, f"u{dtype.itemsize}").view(dtype)[()]
        is_negative = kind.startswith("s") and bits >> 8 * SIZES[kind] - 1
        return bits - (1 << 8 * SIZES[kind]) if is_negative else bits

    def _set(self, register, value, kind):
        """Store a value in a register; every NaN gets the canonical bits."""
        if kind in FLOATS:
            value = np.asarray(value).astype(FLOATS[kind])
            bits = int(value.view(f"u{SIZES[kind]}"))
            self._registers[register] = CANONICAL_NAN[kind] if value != value else bits
        else:
            self._registers[register] = int(value) & (1 << 8 * SIZES[kind]) - 1

    # -- moves -----------------------------------------------------------------------------

    def _mov(self, words, target, source):
        self._registers[target] = self._bits(source, words[-1])

    def _cvta(self, words, target, source):
        self._registers[target] = self._registers[source]

    def _address(self, operand):
        name, offset = re.fullmatch(r"\[(%?\w+)(?:\+(-?\d+))?\]", operand).groups()
        return self._registers[name] + int(offset or 0)

    def _ld(self, words, *operands):
        *targets, source = operands  # several targets are next to each other in memory
        address, kind = self._address(source), words[-1]
        if words[0] == "param":
            self._registers[targets[0]] = address
            return
        for number, target in enumerate(targets):
            data = ctypes.string_at(address + number * SIZES[kind], SIZES[kind])
            # A register that is wider than the loaded value is filled with the sign.
            self._registers[target] = int.from_bytes(data, "little", signed=kind.startswith("s"))

    def _st(self, words, target, source):
        kind = words[-1]
        data = self._bits(source, kind).to_bytes(SIZES[kind], "little")
        ctypes.memmove(self._address(target), data, len(data))

    def _cvt(self, words, target, source):
        to, kind = words[-2:]
        modes = {*words[:-2]}
        assert modes <= {"rn", "rni", "rzi", "ftz"}, words
        is_narrower = kind in FLOATS and to in FLOATS and SIZES[to] < SIZES[kind]
        if is_narrower or (kind not in FLOATS and to in FLOATS):
            assert "rn" in modes, words  # as NumPy rounds
        value = self._value(source, kind)
        if "rni" in words or "rzi" in words:
            value = np.rint(value) if "rni" in words else np.trunc(value)
        if kind in FLOATS and to not in FLOATS:
            value = _to_integer(value, kind, to)
        elif to in FLOATS and kind not in FLOATS:
            value = np.array([value], "u8" if value >= 0 else "i8").astype(FLOATS[to])[0]
        if "ftz" in words and to == "f32":
            value = _flushed(value)
        self._set(target, value, to)

    # -- bits and integers -----------------------------------------------------------------

    def _and(self, words, target, first, second):
        self._set_bits(words, target, self._bits(first, words[-1]) & self._bits(second, words[-1]))

    def _or(self, words, target, first, second):
        self._set_bits(words, target, self._bits(first, words[-1]) | self._bits(second, words[-1]))

    def _xor(self, words, target, first, second):
        self._set_bits(words, target, self._bits(first, words[-1]) ^ self._bits(second, words[-1]))

    def _not(self, words, target, source):
        self._set_bits(words, target, ~self._bits(source, words[-1]))

    def _set_bits(self, words, target, bits):
        size = 1 if words[-1] == "pred" else 8 * SIZES[words[-1]]
        self._registers[target] = bits & (1 << size) - 1

    def _shl(self, words, target, source, count):
        count = min(self._bits(count, "b32"), 64)
        self._set_bits(words, target, self._bits(source, words[-1]) << count)

    def _shr(self, words, target, source, count):
        self._set(
            target, self._value(source, words[-1]) >> min(self._bits(count, "b32"), 64), words[-1]
        )

    # -- arithmetic ------------------------------------------------------------------------

    def _arithmetic(self, words, target, operands, compute):
        """Compute in the type of the last word; `ftz` flushes subnormal numbers of float32."""
        kind = words[-1]
        assert {*words[:-1]} <= {"rn", "ftz"}, words
        values = [self._value(operand, kind) for operand in operands]
        if "ftz" in words:
            values = [_flushed(value) for value in values]
        result = compute(*values)
        self._set(target, _flushed(result) if "ftz" in words else result, kind)

    def _add(self, words, target, *operands):
        self._arithmetic(words, target, operands, lambda a, b: a + b)

    def _sub(self, words, target, *operands):
        self._arithmetic(words, target, operands, lambda a, b: a - b)

    def _fma(self, words, target, *operands):
        self._arithmetic(words, target, operands, fused_multiply_add)

    def _min(self, words, target, *operands):
        self._arithmetic(words, target, operands, _smaller)

    def _max(self, words, target, *operands):
        self._arithmetic(words, target, operands, lambda a, b: -_smaller(-a, -b))

    def _neg(self, words, target, source):
        self._sign(words, target, source, lambda bits, top: bits ^ top)

    def _sign(self, words, target, source, change):
        kind = words[-1]
        assert kind in FLOATS
        if "ftz" in words:
            self._set(target, _flushed(self._value(source, kind)), kind)
            source = target
        self._registers[target] = change(self._bits(source, kind), 1 << 8 * SIZES[kind] - 1)

    def _setp(self, words, target, first, second):
        kind = words[-1]
        values = [self._value(x, kind) for x in (first, second)]
        if "ftz" in words:
            values = [_flushed(value) for value in values]
        name = words[0]
        is_unordered = any(value != value for value in values)
        if name == "nan":
            result = is_unordered
        elif name == "num":
            result = not is_unordered
        elif name not in COMPARE:  # such as ltu: true for NaN as well
            result = is_unordered or COMPARE[name[:-1]](*values)
        else:
            result = COMPARE[name](*values) and not is_unordered
        self._registers[target] = int(bool(result))

    def _selp(self, words, target, first, second, predicate):
        chosen = first if self._is_true(predicate) else second
        self._registers[target] = self._bits(chosen, words[-1])


def fused_multiply_add(a, b, c):
    """Return a * b + c, rounded once."""
    rough = np.float64(a) * np.float64(b) + np.float64(c)
    if not np.isfinite(rough):
        return rough
    exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
    near = float(exact)
    if a.dtype == np.float64 or Fraction(near) == exact:
        return np.float64(near or rough)  # a zero has the sign of the product and the sum
    # The neighbor with last bit 1 is rounded to float32 as the exact number is.
    if int(np.float64(near).view("u8")) & 1:
        return np.float64(near)
    return np.nextafter(np.float64(near), np.inf if exact > Fraction(near) else -np.inf)


def _smaller(a, b):
    """Return the smaller number; NaN only if both are."""
    if a != a or b != b:
        return b if a != a else a
    return min(a, b)


def _flushed(value):
    """Return zero with the sign of a subnormal number."""
    return np.copysign(value * 0, value) if 0 < abs(value) < np.finfo(np.float32).tiny else value


def _to_integer(value, source, target):
    """Return the integer that a whole float is converted to: saturated, and defined for NaN."""
    signed, bits = target.startswith("s"), 8 * SIZES[target]
    if value != value:
        is_wide = source == "f64" or target in ("s64", "u64")
        return 1 << bits - 1 if is_wide else 0
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    if np.isinf(value):
        return high if value > 0 else low
    return max(low, min(high, int(value)))


def _parse(text):
    """Return the guard, opcode, words and operands of an instruction."""
    guard, opcode, operands = re.fullmatch(r"(?:@(!?%\w+)\s+)?([\w.]+)\s*(.*)", text).groups()
    opcode, *words = opcode.split(".")
    return (
        guard,
        opcode,
        words,
        [operand.strip() for operand in operands.split(",") if operand.strip()],
    )
