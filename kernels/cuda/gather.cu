// Any strides: every thread fetches what belongs at its place of the output.
//
// Copies and casts of runs that are contiguous on both sides are the same with WIDTH items at each
// place, which are moved together. A block takes places that follow each other in the output: whole
// turns of the `inner` loops, times a stretch of the loop around them, the `split` axis.

#include "walk.cuh"
#include "numeric.cuh"

struct Params {
    Loops outer;
    Axis split;
    Loops inner;
    uint64 stretch, inner_places;  // turns of the split axis in a block, places in each
    uint64 items, last;            // along the innermost axis of all, whose last place may be short
    int64 item_coef;               // from one item of a place to the next
    int64 channels;
};

typedef Items<Source, WIDTH> Group;

struct Place {
    Offsets at;
    int items;  // 0 where there is no such place
};

INLINE Place find(const Params &params, unsigned number, unsigned places, uint64 first) {
    Place found = {{0, 0, 0}, 0};
    if (number >= places) return found;
    unsigned innermost = 0;
    for (int i = (int)params.inner.count - 1; i >= 0; --i) {
        const Loop &loop = params.inner.loop[i];
        unsigned outer = loop.turns.divide(number), turn = number - outer * loop.turns.count;
        if (i == (int)params.inner.count - 1) innermost = turn;
        found.at.add(turn, loop.step);
        number = outer;
    }
    found.at.add(number, params.split.low);
    uint64 along = params.inner.count ? innermost : first + number;
    found.items = along == params.last ? (int)(params.items - along * WIDTH) : WIDTH;
    return found;
}

// Move the places from `start` on, TURNS for each thread. WHOLE: all exist and have WIDTH items.
template <bool WHOLE>
INLINE void move(const Params &params, const byte *src, byte *dst, Formula &formula, int64 coef,
                 unsigned start, unsigned places, uint64 first) {
    Group groups[TURNS];
    Place found[TURNS];
    // All reads of a thread are under way before the first is used.
#pragma unroll
    for (int turn = 0; turn < TURNS; ++turn) {
        found[turn] = find(params, start + turn * THREADS + threadIdx.x, places, first);
        if (WHOLE || found[turn].items)
            groups[turn].template read<WIDTH * ITEM, WHOLE>(
                src + found[turn].at.src, found[turn].items);
    }
#pragma unroll
    for (int turn = 0; turn < TURNS; ++turn)
        if (WHOLE || found[turn].items) {
            auto coefficient = [&](int i) {
                return coef + found[turn].at.coef + i * params.item_coef;
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
    Formula formula(pointers.coefficients, params.channels);
    uint64 first = (uint64)stretch * params.stretch;
    unsigned places = split.count * (unsigned)params.inner_places;
    bool whole = params.items == (params.last + 1) * WIDTH;
    for (unsigned start = 0; start < places; start += THREADS * TURNS) {
        if (whole && start + THREADS * TURNS <= places)
            move<true>(params, src, dst, formula, at.coef, start, places, first);
        else
            move<false>(params, src, dst, formula, at.coef, start, places, first);
    }
}
