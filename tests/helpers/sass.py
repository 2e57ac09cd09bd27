"""An interpreter of the machine code of sm_90, as `nvdisasm` prints it, for one block of threads.

It executes the instructions that the kernels of this repository are compiled to, and counts those
that warps issue. Threads of a warp that take different branches are executed one after the other
until they meet again (BSYNC), as a GPU does. Results can be compared with those of the same kernel
on the CPU, which shows that instructions are understood.
"""

import re

import numpy as np

WARP = 32
WINDOW = 0x400  # where a kernel's arrays begin in shared memory
PARAMETERS = 0x210  # where they begin in the constant bank
LIMIT = 1 << 20  # steps of a block
RUNS, AT_BARRIER, AT_MEETING, ENDED = range(4)
COMPARE = {"LT": np.less, "LE": np.less_equal, "GT": np.greater, "GE": np.greater_equal,
           "EQ": np.equal, "NE": np.not_equal}  # fmt: skip
U32, U64, I64, F32 = np.uint32, np.uint64, np.int64, np.float32
LOW = 0xFFFFFFFF


class Access:
    """The memory accesses of a block's threads by one instruction."""

    def __init__(self, step, threads, addresses, size, is_global, is_write):
        self.step, self.threads, self.addresses, self.size = step, threads, addresses, size
        self.is_global, self.is_write = is_global, is_write


class Code:
    """The instructions of a kernel.

    steps   the guard, operation, modifiers and operands of each instruction
    texts   the operation and operands of each instruction as they are printed
    labels  the number of the step at each label
    """

    def __init__(self, listing):
        self.steps, self.texts, self.labels = [], [], {}
        for line in listing.splitlines():
            label = re.match(r"(\.L_x_\d+):", line)
            if label:
                self.labels[label[1]] = len(self.steps)
            match = re.match(
                r"\s+/\*[0-9a-f]{4,}\*/\s+(?:@(!?\w+)\s+)?([A-Z]\w*)((?:\.\w+)*)\s*([^;]*);", line
            )
            if match:
                guard, operation, words, operands = match.groups()
                operands = re.sub(r"\.reuse\b|[`()]", "", operands)
                operands = [one.strip() for one in operands.split(",") if one.strip()]
                self.steps.append((guard, operation, words.split(".")[1:], operands))
                self.texts.append((operation + words, match[4]))


class Block:
    """A block of threads that executes code.

    `regions` are arrays of bytes with their addresses; `constants` are the arguments of the kernel.
    After `run`, `path` has (step, mask of warps) in the order of execution, and `accesses` has the
    memory accesses.
    """

    def __init__(self, code, threads, number, constants, shared, regions):
        self._code, self._threads, self._number = code, threads, number
        self._constants = np.frombuffer(bytes(PARAMETERS) + constants + bytes(16), np.uint8)
        self._shared = np.full(WINDOW + shared, 0xA5, np.uint8)
        self._regions = regions
        self._registers = {"R": np.zeros((256, threads), U32), "UR": np.zeros((64, threads), U32)}
        self._flags = {"P": np.ones((8, threads), bool), "UP": np.ones((8, threads), bool)}
        self._place = np.zeros(threads, int)
        self._state = np.full(threads, RUNS)
        self._meeting = np.full(threads, -1)  # the register of the barrier where a thread waits
        self._met = np.zeros((16, threads), bool)  # the threads that reach each barrier
        self.path, self.accesses = [], []

    def run(self):
        """Execute all threads to their end."""
        with np.errstate(all="ignore"):
            while (self._state != ENDED).any():
                self._step()
        return self

    @property
    def issued(self):
        """The number of instructions that all warps have issued."""
        return sum(len(warps) for _, warps in self.path)

    def instructions(self, warp, omitted=()):
        """Return the texts of the instructions that a warp issued, in their order.

        `omitted`: pairs of an index in `path` and a warp.
        """
        return [
            self._code.texts[step]
            for place, (step, warps) in enumerate(self.path)
            if warp in warps and (place, warp) not in omitted
        ]

    # ---- control -------------------------------------------------------------------------

    def _step(self):
        runs = self._state == RUNS
        if not runs.any():
            self._pass_barrier()
            return
        place = self._place[runs].min()
        mask = runs & (self._place == place)
        assert len(self.path) < LIMIT, "the kernel does not end"
        self.path.append((int(place), np.flatnonzero(mask.reshape(-1, WARP).any(1)).tolist()))
        guard, operation, words, operands = self._code.steps[place]
        self._place[mask] += 1
        if guard is not None:
            mask &= self._flag(guard)
        if mask.any():
            self._mask = mask
            name = f"_{operation.lower()}"
            if operation[0] == "U":  # the operation on registers that a warp shares
                name = name.replace("_u", "_", 1)
            getattr(self, name)(words, *operands)

    def _pass_barrier(self):
        waiting = self._state == AT_BARRIER
        assert waiting.any(), "threads wait for each other"
        assert not (self._state == AT_MEETING).any(), "some threads do not reach a barrier"
        self._state[waiting] = RUNS

    def _meet(self):
        """Resume the threads of each warp whose barrier all of its threads have reached."""
        for number in set(self._meeting[self._state == AT_MEETING].tolist()):
            here = (self._state == AT_MEETING) & (self._meeting == number)
            missing = self._met[number] & (self._state != ENDED) & ~here
            is_whole = ~missing.reshape(-1, WARP).any(1)
            self._state[here & np.repeat(is_whole, WARP)] = RUNS

    def _bra(self, words, *operands):
        if "DIV" in words:  # precedes a warp's barrier: only a divided warp branches
            warps = np.repeat(self._mask.reshape(-1, WARP).any(1), WARP)
            assert (self._mask == warps & (self._state != ENDED)).all(), "a warp is divided"
            return
        taken = self._mask
        for condition in operands[:-1]:
            taken = taken & self._flag(condition)
        self._place[taken] = self._code.labels[operands[-1]]

    def _bssy(self, words, register, label):
        number = int(register[1:])
        warps = np.repeat(self._mask.reshape(-1, WARP).any(1), WARP)
        self._met[number][warps] = self._mask[warps]

    def _bsync(self, words, register):
        self._state[self._mask], self._meeting[self._mask] = AT_MEETING, int(register[1:])
        self._meet()

    def _break(self, words, *operands):
        taken = self._mask
        for condition in operands[:-1]:
            taken = taken & self._flag(condition)
        self._met[int(operands[-1][1:])][taken] = False
        self._meet()

    def _exit(self, words):
        self._state[self._mask] = ENDED
        self._meet()

    def _bar(self, words, *operands):
        self._state[self._mask] = AT_BARRIER

    def _nop(self, words, *operands):
        pass

    _warpsync = _nop

    # ---- operands ------------------------------------------------------------------------

    def _flag(self, name):
        number = name.lstrip("!UP")
        file = self._flags["UP" if "U" in name else "P"]
        flag = np.ones(self._threads, bool) if number == "T" else file[int(number)]
        return ~flag if name[0] == "!" else flag

    def _set_flag(self, name, value):
        if name.lstrip("UP") != "T":
            self._flags[name.rstrip("0123456789")][int(name.lstrip("UP"))][self._mask] = (
                np.broadcast_to(value, self._threads)[self._mask]
            )

    def _register(self, name):
        """Return a register's file and number; None for a zero."""
        file, number = re.fullmatch(r"(U?R)(\d+|Z)", name).groups()
        return None if number == "Z" else (self._registers[file], int(number))

    def _bits(self, operand, high=0):
        """Return 32 bits of an operand, or the 32 bits `high` words after them."""
        operand = operand.strip("-~|")
        if operand[0] == "c":
            bits = self._constant(operand, 4, 4 * high)
        elif re.match(r"U?R", operand):
            place = self._register(operand.partition(".")[0])
            bits = 0 if place is None else place[0][place[1] + high]
        else:
            bits = self._literal(operand) if not high else 0
        return np.broadcast_to(np.asarray(bits, U32), self._threads)

    def _literal(self, text):
        return int(text, 16) if text.startswith("0x") else int(float_bits(text))

    def _constant(self, operand, size, more=0):
        register, offset = re.fullmatch(r"c\[0x0\]\[(?:(U?R\w+)\+?)?(-?0x\w+)?\]", operand).groups()
        at = np.full(self._threads, int(offset or "0", 16) + more)
        if register:
            at = at + self._bits(register).astype(np.int32)
        at = np.where(self._mask, at, 0)
        return np.ascontiguousarray(self._constants[at[:, None] + np.arange(size)]).view(U32)[:, 0]

    def _integer(self, operand, is_signed=False):
        """Return an operand as an int64, with its sign."""
        if operand.startswith("-0x"):
            value = np.broadcast_to(I64(int(operand, 16)), self._threads)
            return value if is_signed else value & LOW
        bits = self._bits(operand)
        value = (bits.view(np.int32) if is_signed else bits).astype(I64)
        if operand[0] == "-":
            value = -value if is_signed else -value & LOW
        return value ^ LOW if operand[0] == "~" else value

    def _word(self, operand):
        return self._integer(operand)

    def _wide(self, operand):
        """Return 64 bits of a pair of registers."""
        return self._bits(operand).astype(U64) | self._bits(operand, 1).astype(U64) << U64(32)

    def _float(self, operand):
        value = np.array(self._bits(operand)).view(F32)
        value = np.abs(value) if "|" in operand else value
        return -value if operand[0] == "-" else value

    def _set(self, name, value, high=0):
        place = self._register(name)
        if place is None:
            return
        value = np.broadcast_to(value, self._threads)
        bits = value.view(U32) if value.dtype == F32 else (value.astype(I64) & LOW).astype(U32)
        place[0][place[1] + high][self._mask] = bits[self._mask]

    def _set_wide(self, name, value):
        value = np.broadcast_to(value, self._threads).astype(U64)
        self._set(name, value & U64(LOW))
        self._set(name, value >> U64(32), 1)

    @staticmethod
    def _split(operands, count):
        """Return the flags that are set, and the last `count` operands."""
        return operands[: len(operands) - count], operands[len(operands) - count :]

    # ---- integers ------------------------------------------------------------------------

    def _mov(self, words, target, source, *_):
        self._set(target, self._bits(source) if source[0] not in "-~" else self._word(source))

    def _r2ur(self, words, target, source):
        self._set(target, self._bits(source))

    def _s2r(self, words, target, source):
        values = {"SR_TID.X": np.arange(self._threads), "SR_CTAID.X": self._number}
        self._set(target, np.asarray(values.get(source, 0)))

    _s2ur = _s2r

    def _cs2r(self, words, target, source):
        assert source == "SRZ"
        self._set(target, np.asarray(0))
        if "32" not in words:
            self._set(target, np.asarray(0), 1)

    def _iadd3(self, words, target, *operands):
        flags, sources = self._split(operands, 5 if "X" in words else 3)
        carries = sources[3:]
        total = sum(map(self._addend, sources[:3]))
        total = total + sum(self._flag(carry).astype(I64) for carry in carries)
        self._set(target, total)
        for number, flag in enumerate(flags):
            self._set_flag(flag, total >> 32 > number)

    def _addend(self, operand):
        """Return a number to add, so that the bits above 32 are carries."""
        is_register = operand[0] == "-" and not operand.startswith("-0x")
        return (self._bits(operand).astype(I64) ^ LOW) + 1 if is_register else self._word(operand)

    def _viadd(self, words, target, first, second):
        self._set(target, self._word(first) + self._word(second))

    def _imad(self, words, target, *operands):
        is_signed = "U32" not in words
        flags, (a, b, c, *carry) = self._split(operands, 4 if "X" in words else 3)
        if "WIDE" in words:
            product = self._integer(a, is_signed) * self._integer(b, is_signed)
            added = self._wide(c) + sum(self._flag(one).astype(U64) for one in carry)
            total = product.astype(U64) + added
            self._set_wide(target, total)
            for flag in flags:
                self._set_flag(flag, total < added)
            return
        product = self._integer(a, is_signed) * self._integer(b, is_signed)
        if "HI" in words:  # of the sum with a pair of registers
            total = product.astype(U64) + self._wide(c)
            self._set(target, total.view(I64) >> 32 if is_signed else total >> U64(32))
            return
        total = (product & LOW) + self._addend(c)
        total = total + sum(self._flag(one).astype(I64) for one in carry)
        self._set(target, total)
        for flag in flags:
            self._set_flag(flag, total >> 32 > 0)

    def _lea(self, words, target, *operands):
        is_high, is_signed, has_carry = "HI" in words, "SX32" in words, "X" in words
        count = 3 + (is_high and not is_signed) + has_carry
        flags, sources = self._split([*operands], count)
        carry = self._flag(sources.pop()) if has_carry else 0
        shift = self._word(sources.pop())
        value = self._integer(sources[0], is_signed)
        if is_high and not is_signed:
            value = value | self._word(sources[2]) << 32
        value = value << shift >> 32 if is_high else value << shift
        total = (value & LOW) + self._addend(sources[1]) + carry
        self._set(target, total)
        for flag in flags:
            self._set_flag(flag, total >> 32 > 0)

    def _lop3(self, words, *operands):
        *targets, a, b, c, table, carry = operands
        bits = table_of(int(table, 16), *map(self._word, (a, b, c)), LOW)
        if len(targets) > 1:
            self._set_flag(targets[0], (bits != 0) | self._flag(carry))
        self._set(targets[-1], bits)

    def _plop3(self, words, *operands):
        *targets, a, b, c, first, second = operands
        flags = [self._flag(name).astype(I64) for name in (a, b, c)]
        for target, table in zip(targets, (first, second), strict=False):
            self._set_flag(target, table_of(int(table, 16), *flags, 1) == 1)

    def _shf(self, words, target, low, shift, high):
        direction, kind = words[0], words[1]
        is_high = "HI" in words
        if kind in ("U32", "S32"):
            is_signed = kind == "S32"
            value = self._integer(high if is_high else low, is_signed)
            count = np.minimum(self._word(shift), 32 if not is_signed else 31)
            self._set(target, value << count if direction == "L" else value >> count)
            return
        both = self._word(low).astype(U64) | self._word(high).astype(U64) << U64(32)
        count = np.minimum(self._word(shift), 63).astype(U64)
        if direction == "L":
            both = both << count
        else:
            both = (both.view(I64) >> count.astype(I64)) if kind == "S64" else both >> count
        self._set(target, both >> both.dtype.type(32) if is_high else both & both.dtype.type(LOW))

    def _prmt(self, words, target, first, selector, second):
        assert not words, words
        both = self._word(first).astype(U64) | self._word(second).astype(U64) << U64(32)
        selector, result = self._word(selector), 0
        for number in range(4):
            nibble = selector >> 4 * number
            byte = (both >> ((nibble & 7) * 8).astype(U64) & U64(255)).astype(I64)
            byte = np.where(nibble & 8, (byte >> 7) * 255, byte)
            result = result | byte << 8 * number
        self._set(target, result)

    def _isetp(self, words, first, second, a, b, *flags):
        is_signed = "U32" not in words
        values = self._integer(a, is_signed), self._integer(b, is_signed)
        if "EX" in words:
            *flags, below = flags
            is_equal = values[0] == values[1]
            strict = {"GE": "GT", "LE": "LT"}.get(words[0], words[0])
            result = COMPARE[strict](*values)
            if words[0] != "NE":
                result = (is_equal & self._flag(below)) | (result & ~is_equal)
            else:
                result = result | self._flag(below)
        else:
            result = COMPARE[words[0]](*values)
        self._set_flags(words, first, second, result, flags[0])

    def _set_flags(self, words, first, second, result, other):
        with_other = np.logical_and if "AND" in words else np.logical_or
        assert "XOR" not in words
        other = self._flag(other).copy()
        self._set_flag(first, with_other(result, other))
        self._set_flag(second, with_other(~result, other))

    def _sel(self, words, target, a, b, flag):
        self._set(target, np.where(self._flag(flag), self._word(a), self._word(b)))

    def _vimnmx(self, words, target, *operands):
        *sources, flag = operands
        assert not {*words} - {"U32", "RELU"}, words
        values = [self._integer(source, "U32" not in words) for source in sources]
        low, high = np.minimum.reduce(values), np.maximum.reduce(values)
        result = np.where(self._flag(flag), low, high)
        self._set(target, np.maximum(result, 0) if "RELU" in words else result)

    _vimnmx3 = _imnmx = _vimnmx

    def _viaddmnmx(self, words, target, a, b, c, flag):
        assert "U32" not in words
        total = (self._word(a) + self._word(b) & LOW).astype(U32).view(np.int32).astype(I64)
        other = self._integer(c, True)
        smaller, larger = np.minimum(total, other), np.maximum(total, other)
        self._set(target, np.where(self._flag(flag), smaller, larger))

    def _p2r(self, words, target, source, kept, mask):
        mask = self._word(mask)
        flags = sum(self._flags["P"][n].astype(I64) << n for n in range(7))
        self._set(target, (flags & mask) | (self._word(kept) & ~mask))

    def _r2p(self, words, target, source, mask):
        bits = self._word(source)
        for number in range(7):
            if int(mask, 16) >> number & 1:
                self._set_flag(f"P{number}", bits >> number & 1 == 1)

    # ---- floats --------------------------------------------------------------------------

    def _ffma(self, words, target, *operands):
        a, b, c = (self._float(operand).astype(np.float64) for operand in operands)
        self._set(target, (a * b + c).astype(F32))

    def _fadd(self, words, target, a, b):
        self._set(target, self._float(a) + self._float(b))

    def _fmul(self, words, target, a, b):
        self._set(target, self._float(a) * self._float(b))

    def _fsel(self, words, target, a, b, flag):
        self._set(target, np.where(self._flag(flag), self._float(a), self._float(b)))

    def _fmnmx(self, words, target, a, b, flag):
        values = self._float(a), self._float(b)
        self._set(target, np.where(self._flag(flag), np.fmin(*values), np.fmax(*values)))

    def _fsetp(self, words, first, second, a, b, other):
        a, b = self._float(a), self._float(b)
        is_unordered = np.isnan(a) | np.isnan(b)
        name = words[0]
        if name == "NAN":
            result = is_unordered
        else:
            result = COMPARE[name[:2]](a, b) & ~is_unordered | is_unordered & (len(name) == 3)
        self._set_flags(words, first, second, result, other)

    def _frnd(self, words, target, source):
        assert not {*words} - {"FTZ"}
        self._set(target, np.rint(self._float(source)))

    def _i2fp(self, words, target, source):
        self._set(target, self._integer(source, words[-1] == "S32").astype(F32))

    def _i2f(self, words, target, source):
        kind, _, part = source.partition(".")
        value = self._word(kind)
        is_signed, bits = words[0][0] == "S", int(words[0][1:])
        shift = int(part[1:]) * (16 if part[0] == "H" else 8) if part else 0
        value = value >> shift & (1 << bits) - 1
        self._set(target, (value - (value >> bits - 1 << bits) * is_signed).astype(F32))

    def _f2f(self, words, target, source):
        if words == ["F64", "F32"]:
            self._set_wide(target, self._float(source).astype(np.float64).view(U64))
        else:
            assert words == ["F32", "F64"], words
            self._set(target, self._wide(source).view(np.float64).astype(F32))

    def _f2i(self, words, target, source):
        value = self._float(source)
        kind = next(word for word in words if re.fullmatch(r"[US]\d+", word))
        rounded = np.trunc(value) if "TRUNC" in words else np.rint(value)
        bits = int(kind[1:])
        low, high = (
            (0, (1 << bits) - 1) if kind[0] == "U" else (-1 << bits - 1, (1 << bits - 1) - 1)
        )
        whole = np.clip(rounded.astype(np.longdouble), low, high)
        whole = np.where(np.isnan(value), 0, whole).astype(I64 if kind[0] == "S" else U64)
        if bits == 64:
            self._set_wide(target, whole.astype(U64))
        else:
            self._set(target, whole)

    def _f2ip(self, words, target, high, low, rest):
        """Pack two items of 8 bits below those of `rest`."""
        assert words == ["U8", "F32", "NTZ"], words
        both = [np.nan_to_num(np.clip(np.rint(self._float(x)), 0, 255)) for x in (high, low)]
        high, low = (one.astype(U32) for one in both)
        self._set(target, self._bits(rest) << 16 | high << 8 | low)

    def _f2fp(self, words, target, high, low):
        assert "PACK_AB" in words, words
        pack = to_bfloat if words[0] == "BF16" else to_half
        self._set(target, pack(self._float(high)) << 16 | pack(self._float(low)))

    def _hadd2(self, words, target, zero, source):
        assert (words, zero) == (["F32"], "-RZ")
        name, _, half = source.partition(".")
        bits = self._word(name) >> (16 if half == "H1_H1" else 0) & 0xFFFF
        self._set(target, bits.astype(np.uint16).view(np.float16).astype(F32))

    def _hfma2(self, words, target, a, b, high, low):
        assert a.strip("-") == b == "RZ", "only constants are loaded so"
        halves = [np.float16(float(text)).view(np.uint16).astype(I64) for text in (high, low)]
        self._set(target, halves[0] << 16 | halves[1])

    # ---- memory --------------------------------------------------------------------------

    def _ldc(self, words, target, source):
        width = 2 if "64" in words else 1
        # The address may be in the registers of the result.
        for high, bits in enumerate([self._constant(source, 4, 4 * n) for n in range(width)]):
            self._set(target, bits, high)

    def _address(self, operand):
        """Return addresses: the sum of registers (64 bits of those with ".64") and a constant."""
        total = np.zeros(self._threads, I64)
        for part in re.findall(r"[^+]+", re.search(r"\[([^\[\]]*)\]$", operand)[1]):
            part = part.strip()
            if part.endswith(".64") or (part.startswith("UR") and ".64" in operand):
                total = total + self._wide(part.removesuffix(".64")).view(I64)
            elif part[0] in "RU":
                total = total + self._bits(part).view(np.int32)
            else:
                total = total + int(part, 16)
        return total

    def _access(self, words, operand, is_global, is_write):
        """Record an access; return its kind and size, its threads, and the accessed memory."""
        kind = next((word for word in words if re.fullmatch(r"[US]?(8|16|64|128)", word)), "32")
        size = int(kind.strip("US")) // 8
        threads = np.flatnonzero(self._mask)
        addresses = self._address(operand)[threads]
        step = len(self.path) - 1
        self.accesses.append(Access(step, threads, addresses, size, is_global, is_write))
        if not is_global:
            return kind, size, threads, [(slice(None), self._shared, addresses)]
        parts = []
        for begin, memory in self._regions:
            inside = (addresses >= begin) & (addresses + size <= begin + len(memory))
            if inside.any():
                parts.append((inside, memory, addresses[inside] - begin))
        assert sum(inside.sum() for inside, _, _ in parts) == len(threads), "outside of all arrays"
        return kind, size, threads, parts

    def _load(self, words, target, operand, is_global):
        kind, size, threads, parts = self._access(words, operand, is_global, False)
        data = np.empty((len(threads), size), np.uint8)
        for inside, memory, at in parts:
            data[inside] = memory[at[:, None] + np.arange(size)]
        if size < 4:
            dtype = f"{'i' if kind[0] == 'S' else 'u'}{size}"
            data = data.view(dtype).astype(np.int32).view(np.uint8)
        registers = np.ascontiguousarray(data).view(U32)
        for high in range(registers.shape[1]):
            value = np.zeros(self._threads, U32)
            value[threads] = registers[:, high]
            self._set(target, value, high)

    def _store(self, words, operand, source, is_global):
        _, size, threads, parts = self._access(words, operand, is_global, True)
        registers = [self._bits(source, high)[threads] for high in range(max(1, size // 4))]
        data = np.ascontiguousarray(np.stack(registers, 1)).view(np.uint8)[:, :size]
        for inside, memory, at in parts:
            memory[at[:, None] + np.arange(size)] = data[inside]

    def _ldg(self, words, target, operand):
        self._load(words, target, operand, True)

    def _lds(self, words, target, operand):
        self._load(words, target, operand, False)

    def _stg(self, words, operand, source):
        self._store(words, operand, source, True)

    def _sts(self, words, operand, source):
        self._store(words, operand, source, False)


def table_of(table, a, b, c, full):
    """Return the bits that a truth table of three inputs gives."""
    inputs = [(a, b, c), (a, b, c ^ full), (a, b ^ full, c), (a, b ^ full, c ^ full)]
    inputs += [(x ^ full, y, z) for x, y, z in inputs]
    result = np.zeros_like(a)
    for number, (x, y, z) in enumerate(inputs):
        if table >> (7 - number) & 1:
            result = result | (x & y & z)
    return result


def to_half(x):
    """Return the bits of float32 values as float16."""
    return x.astype(np.float16).view(np.uint16).astype(I64)


def to_bfloat(x):
    """Return the bits of float32 values as bfloat16."""
    bits = x.view(U32).astype(I64)
    rounded = bits + 0x7FFF + (bits >> 16 & 1) >> 16
    return np.where(np.isnan(x), 0x7FFF, rounded)


def float_bits(text):
    """Return the bits of float32 that an operand such as 1 or +INF stands for."""
    return np.float32(text.replace("QNAN", "nan").replace("INF", "inf")).view(U32)
