// Offsets of nested loops for a thread block, and memory access in words of 1 to 16 bytes.
//
// A kernel gets loops from the host, outermost first, each with its count and the steps of one
// iteration in the source, the output and the coefficients. Block indices and all other dividends
// are below 2^31, so a division is one wide multiplication and a shift. Offsets have 64 bits; within
// a tile only increments to them are computed, in 32 bits.
//
// Plain C++ without headers: NVRTC, nvcc and, on a CPU, g++ compile it.

#define INLINE __device__ __forceinline__

typedef unsigned char byte;
typedef long long int64;
typedef unsigned long long uint64;

constexpr unsigned MAX_LOOPS = 12;  // of a nest

// n / count is n * multiplier >> shift, for n < 2^31. `is_ordered`: see Loop.
struct Divisor {
    unsigned count, multiplier, shift, is_ordered;

    INLINE unsigned divide(unsigned n) const { return (unsigned)((uint64)n * multiplier >> shift); }
};

struct Offsets {
    int64 src, dst, coef;

    INLINE void add(int64 turns, const Offsets &step) {
        src += turns * step.src;
        dst += turns * step.dst;
        coef += turns * step.coef;
    }
};

// ORDER: the positions in the source of channels that are not evenly spaced, as numbers of steps. They are
// a loop of a nest, or with PLANES_ORDERED the planes of a kernel.
#ifdef ORDER
constexpr bool IS_ORDERED = true;
__constant__ constexpr int POSITIONS[] = {ORDER};

// Threads beyond the last channel get its position.
INLINE constexpr int position(int channel) {
    constexpr int END = sizeof(POSITIONS) / sizeof(int) - 1;
    return POSITIONS[channel < END ? channel : END];
}
#else
constexpr bool IS_ORDERED = false;
INLINE constexpr int position(int channel) { return channel; }
#endif

#ifndef PLANES_ORDERED
#define PLANES_ORDERED 0
#endif
INLINE constexpr int plane_position(int plane) { return PLANES_ORDERED ? position(plane) : plane; }

// A loop; if it is ordered, one over channels that are not evenly spaced.
struct Loop {
    Divisor turns;
    Offsets step;

    INLINE void place(unsigned turn, Offsets &at) const {
        at.add(turn, step);
        if (IS_ORDERED && turns.is_ordered) at.src += (position(turn) - (int)turn) * step.src;
    }
};

struct Loops {
    uint64 count;
    Loop loop[MAX_LOOPS];

    // Return the source offset of the first iteration.
    INLINE int64 first_src() const { return IS_ORDERED ? place(0).src : 0; }

    // Return the offsets of the n-th iteration of all loops.
    INLINE Offsets place(unsigned n) const {
        Offsets at = {0, 0, 0};
#pragma unroll 1
        for (int i = (int)count - 1; i >= 0; --i) {
            unsigned outer = loop[i].turns.divide(n);
            loop[i].place(n - outer * loop[i].turns.count, at);
            n = outer;
        }
        return at;
    }
};

// Split the index along one axis off a unit; the rest of the unit belongs to the other axes.
INLINE unsigned draw(unsigned &unit, const Divisor &tiles) {
    unsigned outer = tiles.divide(unit);
    unsigned place = unit - outer * tiles.count;
    unit = outer;
    return place;
}

// An axis of a tile: one loop, or two that are contiguous on one side. `inner` divides positions on
// the axis (below 2^31 then) into iterations of both loops.
struct Axis {
    Divisor tiles, inner;
    uint64 total;
    Offsets low, wrap;  // the step of a position, and the correction when the inner loop restarts
};

// The start of a tile along an axis. FUSED: the axis has two loops.
template <bool FUSED> struct Span {
    uint64 start;  // the tile's first position on the axis
    Offsets first;
    unsigned low, count;  // inner loop's index at the first position; positions in the tile

    // The next tile begins `overlap` positions before the end of this one.
    INLINE Span(const Axis &axis, unsigned tile, unsigned length, unsigned overlap = 0) {
        start = (uint64)tile * (length - overlap);
        uint64 left = axis.total - start;
        count = left < length ? (unsigned)left : length;
        first = {0, 0, 0};
        first.add((int64)start, axis.low);
        if constexpr (FUSED) {
            unsigned wraps = axis.inner.divide((unsigned)start);
            low = (unsigned)start - wraps * axis.inner.count;
            first.add(wraps, axis.wrap);
        }
    }

    // Return the outer loop's iterations between the first and another position of the tile.
    INLINE unsigned wraps(const Axis &axis, unsigned at) const {
        if constexpr (FUSED) return axis.inner.divide(low + at);
        return 0;
    }

    // Return the offsets of a position of the tile, relative to the first.
    INLINE Offsets place(const Axis &axis, unsigned at) const {
        Offsets offsets = {0, 0, 0};
        offsets.add(at, axis.low);
        if constexpr (FUSED) offsets.add(wraps(axis, at), axis.wrap);
        return offsets;
    }
};

// ---- memory ------------------------------------------------------------------------------

template <int BYTES> struct Word;
template <> struct Word<1> { typedef unsigned char type; };
template <> struct Word<2> { typedef unsigned short type; };
template <> struct Word<4> { typedef unsigned type; };
template <> struct Word<8> { typedef uint2 type; };
template <> struct Word<16> { typedef uint4 type; };

INLINE constexpr int smaller(int a, int b) { return a < b ? a : b; }
INLINE constexpr int larger(int a, int b) { return a > b ? a : b; }
INLINE constexpr int ceiling(int count, int each) { return (count + each - 1) / each; }

// The smallest power of two that is not below n, and the largest one up to `most` that divides n.
INLINE constexpr int power_from(int n) { return n > 1 ? 2 * power_from((n + 1) / 2) : 1; }
INLINE constexpr int power_in(int n, int most) { return n % most ? power_in(n, most / 2) : most; }

// The largest word of at most `most` bytes that divides `bytes`.
INLINE constexpr int piece(int bytes, int most) {
    return bytes % most == 0 ? most : piece(bytes, most / 2);
}

// A few contiguous items in registers: all indices into them are compile-time constants.
template <class Item, int COUNT> struct alignas(piece(COUNT * sizeof(Item), 16)) Items {
    Item item[COUNT];

    // Move all items in words of BYTES, on which `memory` is aligned.
    template <int BYTES> INLINE void read(const byte *memory) {
        typedef typename Word<BYTES>::type T;
#pragma unroll
        for (int i = 0; i < (int)sizeof(item) / BYTES; ++i)
            reinterpret_cast<T *>(item)[i] = reinterpret_cast<const T *>(memory)[i];
    }

    template <int BYTES> INLINE void write(byte *memory) const {
        typedef typename Word<BYTES>::type T;
#pragma unroll
        for (int i = 0; i < (int)sizeof(item) / BYTES; ++i)
            reinterpret_cast<T *>(memory)[i] = reinterpret_cast<const T *>(item)[i];
    }

    // Read items that begin `by` bytes after the first of two words of their size.
    INLINE void read_across(const byte *first, const byte *second, unsigned by) {
        constexpr int BYTES = sizeof(item);
        Items low, high;
        low.template read<BYTES>(first);
        if (by) high.template read<BYTES>(second);
        join(low, high, by);
    }

    // Read items at any address, in parts of 4 bytes; up to 4 bytes before and after them are read.
    INLINE void read_in_parts(const byte *at) {
        const unsigned by = (unsigned)(uint64)at % 4;
        const unsigned *const parts = (const unsigned *)(at - by);
        unsigned low = parts[0];
#pragma unroll
        for (unsigned i = 0; i < sizeof(item) / 4; ++i) {
            const unsigned high = parts[i + 1];
            reinterpret_cast<unsigned *>(item)[i] =
                (unsigned)(((uint64)high << 32 | low) >> 8 * by);
            low = high;
        }
    }

    // Take the items that begin `by` bytes after the first of two words.
    INLINE void join(Items &low, Items &high, unsigned by) {
        constexpr int BYTES = sizeof(item);
        unsigned bank[larger(2, BYTES / 2)];
#pragma unroll
        for (int i = 0; i < BYTES / 4; ++i) {
            bank[i] = reinterpret_cast<unsigned *>(low.item)[i];
            bank[i + BYTES / 4] = reinterpret_cast<unsigned *>(high.item)[i];
        }
#pragma unroll
        for (int half = BYTES / 2; half >= larger(4, sizeof(Item)); half /= 2)
#pragma unroll
            for (int i = 0; i < (BYTES + half) / 4; ++i)
                bank[i] = by & half ? bank[i + half / 4] : bank[i];
#pragma unroll
        for (int i = 0; i < BYTES / 4; ++i)
            reinterpret_cast<unsigned *>(item)[i] =
                sizeof(Item) < 4
                    ? (unsigned)(((uint64)bank[i + 1] << 32 | bank[i]) >> (by * 8 & 31))
                    : bank[i];
    }

    // Read or write only the first `count` items, or all of them if ALL.
    template <int BYTES, bool ALL> INLINE void read(const byte *memory, int count) {
        if (ALL || count >= COUNT) {
            read<BYTES>(memory);
        } else {
#pragma unroll
            for (int i = 0; i < COUNT; ++i)
                if (i < count) item[i] = reinterpret_cast<const Item *>(memory)[i];
        }
    }

    template <int BYTES, bool ALL> INLINE void write(byte *memory, int count) const {
        if (ALL || count >= COUNT) {
            write<BYTES>(memory);
        } else {
#pragma unroll
            for (int i = 0; i < COUNT; ++i)
                if (i < count) reinterpret_cast<Item *>(memory)[i] = item[i];
        }
    }
};

// The pointer arguments of a kernel. SOURCES is 1 except for sums.
#ifndef SOURCES
#define SOURCES 1
#endif

struct Pointers {
    byte *dst;
    const byte *coefficients;
    const byte *src[SOURCES];
};
