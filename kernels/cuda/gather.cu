// Any strides: every thread fetches the items for its positions of the output.
//
// For copies and casts of runs that are contiguous on both sides, a position has WIDTH items, which
// are moved together. A block handles consecutive positions of the output: full iterations of the
// `inner` loops, times a part of the loop around them, the `split` axis.

#include "walk.cuh"
#include "numeric.cuh"

struct Params {
    Loops outer;
    Axis split;
    Loops inner;
    uint64 stretch, inner_places;  // iterations of the split axis in a block, positions in each
    uint64 items, last;            // along the innermost axis, whose last position may have fewer items
    int64 item_coef;               // from one item of a position to the next
};

typedef Items<Source, WIDTH> Group;

// RUN: a block handles one run, contiguous on both sides. PERIOD: the run's coefficients repeat with
// this period; 0: they do not repeat, or all items share one.
struct Place {
    Offsets at;
    int items;       // 0 if the position does not exist
    unsigned phase;  // of its first item, in a period
};

INLINE Place find(const Params &params, unsigned number, unsigned places, uint64 first) {
    Place found = {{0, 0, 0}, 0, 0};
    const bool exists = number < places;
    // In a run, all iterations have the same distance, including those beyond its end.
    if (!RUN && !exists) return found;
    uint64 along = first + number;
    if constexpr (RUN) {
        found.at.src = (int64)number * (WIDTH * ITEM);
        found.at.dst = (int64)number * (WIDTH * OUT);
        if (COEFFICIENTS) found.at.coef = number * params.split.low.coef;
    } else {
        unsigned innermost = 0;
#pragma unroll 1
        for (int i = (int)params.inner.count - 1; i >= 0; --i) {
            const Loop &loop = params.inner.loop[i];
            unsigned outer = loop.turns.divide(number), turn = number - outer * loop.turns.count;
            if (i == (int)params.inner.count - 1) innermost = turn;
            loop.place(turn, found.at);
            number = outer;
        }
        found.at.add(number, params.split.low);
        if (params.inner.count) along = innermost;
    }
    if constexpr (PERIOD > 0) found.phase = (unsigned)along % PERIOD * WIDTH % PERIOD;
    if (exists) found.items = along == params.last ? (int)(params.items - along * WIDTH) : WIDTH;
    return found;
}

// Move TURNS positions per thread. WHOLE: all exist and have WIDTH items.
template <bool WHOLE>
INLINE void move(const Params &params, const byte *src, byte *dst, Formula &formula, int64 coef,
                 unsigned places, uint64 first) {
    Group groups[TURNS];
    Place found[TURNS];
    // All reads of a thread are in flight before the first result is used.
#pragma unroll
    for (int turn = 0; turn < TURNS; ++turn) {
        found[turn] = find(params, turn * THREADS + threadIdx.x, places, first);
        if (WHOLE || found[turn].items)
            groups[turn].template read<WIDTH * ITEM, WHOLE>(
                src + found[turn].at.src, found[turn].items);
    }
#pragma unroll
    for (int turn = 0; turn < TURNS; ++turn)
        if (WHOLE || found[turn].items) {
            auto coefficient = [&](int i) {
                if constexpr (PERIOD == 0) {
                    return coef + found[turn].at.coef + i * params.item_coef;
                } else {
                    // In a run every iteration uses the coefficients of the first, rotated.
                    constexpr int WRAP = larger(1, PERIOD), APART = RUN ? THREADS * WIDTH % WRAP : 0;
                    int item = (turn * APART + i) % WRAP + (int)found[RUN ? 0 : turn].phase;
                    item -= item < WRAP ? 0 : WRAP;
                    return coef + (RUN ? 0 : found[turn].at.coef) + item * params.item_coef;
                }
            };
            epilogue(groups[turn], formula, coefficient)
                .template write<WIDTH * OUT, WHOLE>(dst + found[turn].at.dst, found[turn].items);
        }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    gather(const Params params, const Pointers pointers) {
    unsigned unit = blockIdx.x;
    unsigned stretch = draw(unit, params.split.tiles);
    Span<false> split(params.split, stretch, (unsigned)params.stretch);
    Offsets at = params.outer.place(unit);
    at.add(1, split.first);
    const byte *src = pointers.src[0] + at.src;
    byte *dst = pointers.dst + at.dst;
    Formula formula(pointers.coefficients);
    uint64 first = (uint64)stretch * params.stretch;
    unsigned places = split.count * (unsigned)params.inner_places;
    bool whole = params.items == (params.last + 1) * WIDTH;
    if (whole && places == THREADS * TURNS)
        move<true>(params, src, dst, formula, at.coef, THREADS * TURNS, first);
    else
        move<false>(params, src, dst, formula, at.coef, places, first);
}
