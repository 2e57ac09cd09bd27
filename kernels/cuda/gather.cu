// Any strides: every thread fetches the items for its positions of the output.
//
// For copies and casts of runs that are contiguous on both sides, a position has WIDTH items, which
// are moved together. A thread moves TURNS positions along one loop, the `split` axis, so that it
// computes its offsets once and then adds the same step. The threads of a turn have consecutive
// positions of the `inner` loops, times `stretch` iterations of the split axis. A block handles all
// inner positions, or, if they are more than threads, one of their `parts`.

#include "walk.cuh"
#include "numeric.cuh"

struct Params {
    Loops outer;
    Axis split;
    Divisor parts;
    Loops inner;
    uint64 stretch;
    uint64 items, last;  // along the innermost axis, whose last position may have fewer items
    int64 item_coef;     // from one item of a position to the next
};

typedef Items<Source, WIDTH> Group;

// RUN: there are no inner loops, so the split axis is the innermost one. PERIOD: the coefficients of
// the innermost axis repeat with this period; 0: they do not repeat, or all items share one.
struct Place {
    Offsets at;      // of the first turn
    unsigned split;  // iteration of the split axis in the first turn; `stretch` and more do not exist
    uint64 along;    // position on the innermost axis
};

INLINE Place find(const Params &params, unsigned number, uint64 first) {
    Place place = {{0, 0, 0}, number, first + number};
    if constexpr (!RUN) {
#pragma unroll 1
        for (int i = (int)params.inner.count - 1; i >= 0; --i) {
            const Loop &loop = params.inner.loop[i];
            unsigned outer = loop.turns.divide(place.split);
            unsigned turn = place.split - outer * loop.turns.count;
            if (i == (int)params.inner.count - 1) place.along = turn;
            loop.place(turn, place.at);
            place.split = outer;
        }
    }
    place.at.add(place.split, params.split.low);
    return place;
}

// Move the positions of a thread. WHOLE: all turns exist, and all positions have WIDTH items.
template <bool WHOLE>
INLINE void move(const Params &params, const byte *src, byte *dst, Formula &formula, int64 coef,
                 const Place &first, unsigned count) {
    const unsigned stretch = RUN ? THREADS : (unsigned)params.stretch;
    Offsets step = {0, 0, 0};
    step.add(stretch, params.split.low);
    auto items = [&](int turn) {
        if (WHOLE) return WIDTH;
        if (first.split + turn * stretch >= count) return 0;
        const uint64 along = first.along + (RUN ? turn * THREADS : 0);
        return along == params.last ? (int)(params.items - along * WIDTH) : WIDTH;
    };
    Group groups[TURNS];
    // All reads of a thread are in flight before the first result is used.
#pragma unroll
    for (int turn = 0; turn < TURNS; ++turn)
        if (WHOLE || items(turn))
            groups[turn].template read<WIDTH * ITEM, WHOLE>(src + turn * step.src, items(turn));
    // In a run every turn uses the coefficients of the first, rotated.
    constexpr int WRAP = larger(1, PERIOD), APART = RUN ? THREADS * WIDTH % WRAP : 0;
    const int phase = (unsigned)first.along % WRAP * WIDTH % WRAP;
#pragma unroll
    for (int turn = 0; turn < TURNS; ++turn)
        if (WHOLE || items(turn)) {
            auto coefficient = [&](int i) {
                int item = PERIOD ? (turn * APART + i) % WRAP + phase : i;
                item -= PERIOD && item >= WRAP ? WRAP : 0;
                return coef + turn * step.coef + item * params.item_coef;
            };
            epilogue(groups[turn], formula, coefficient)
                .template write<WIDTH * OUT, WHOLE>(dst + turn * step.dst, items(turn));
        }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    gather(const Params params, const Pointers pointers) {
    unsigned unit = blockIdx.x;
    unsigned tile = draw(unit, params.split.tiles);
    unsigned part = draw(unit, params.parts);
    Span<false> split(params.split, tile, (unsigned)params.stretch * TURNS);
    Place first = find(params, part * THREADS + threadIdx.x, split.start);
    if (first.split >= params.stretch) return;
    Offsets at = params.outer.place(unit);
    at.add(1, split.first);
    at.add(1, first.at);
    Formula formula(pointers.coefficients);
    const byte *src = pointers.src[0] + at.src;
    byte *dst = pointers.dst + at.dst;
    bool whole = params.items == (params.last + 1) * WIDTH;
    if (whole && split.count == params.stretch * TURNS)
        move<true>(params, src, dst, formula, at.coef, first, split.count);
    else
        move<false>(params, src, dst, formula, at.coef, first, split.count);
}
