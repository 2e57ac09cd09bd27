// Resample samples of a batch along one axis: every element is a weighted sum of source elements.
//
// An axis is resampled in a launch of its own, for all samples together. The first launch reads the
// samples, later ones the float32 results of the one before. All sizes, offsets and tables are in
// device memory, since they differ between samples; resize.py describes them. Sums have the order
// of the taps, so they do not depend on the batch. Items of dtypes without arithmetic (m1 to m16)
// are moved from the first tap.
//
// AXES: of a sample. INSIDE: no position lies outside of the sample, where elements are filled. LAST: all
// other axes have been resampled; elements that have no taps along any axis are filled.

#define SOURCES 2
#include "walk.cuh"
#include "numeric.cuh"

struct Side {
    Divisor turns;       // positions of the output along the axis
    int64 from, to;      // bytes from one position to the next, in the source and the output
    int64 begin, count;  // the first position, and the number of positions of the source
    int64 map;           // offset of a table of positions, or 0: consecutive ones
    int64 taps;          // offset of the tap table of a resized axis, or 0
};

struct Sample {
    uint64 block, size;  // the first block of this sample, and its elements
    int64 src, dst;      // bytes to its first element in the source and the output
    Side side[AXES];     // outermost first
};

struct Params {
    uint64 samples, table;    // their number, and the offset of the first one
    uint64 tapped;            // the axis that is resampled
    uint64 filled, fill;      // the axis with a fill value per position, and the offset of values
};

typedef Items<Source, 1> Element;
typedef Items<Target, 1> Result;

INLINE Source item_at(const byte *from) {
    Element element;
    element.template read<ITEM>(from);
    return element.item[0];
}

// Return the sample of a block: the last one whose first block is not behind it.
INLINE const Sample &sample_of(const Sample *samples, unsigned count, unsigned block) {
    unsigned low = 0, high = count;
    while (high - low > 1) {
        unsigned middle = (low + high) / 2;
        if (samples[middle].block <= block) low = middle;
        else high = middle;
    }
    return samples[low];
}

extern "C" __global__ void __launch_bounds__(THREADS)
    resize(const Params params, const Pointers pointers) {
    const byte *table = pointers.src[0];
    const Sample &sample =
        sample_of((const Sample *)(table + params.table), (unsigned)params.samples, blockIdx.x);
    uint64 place = (uint64)(blockIdx.x - sample.block) * THREADS + threadIdx.x;
    if (place >= sample.size) return;

    unsigned rest = (unsigned)place;
    const byte *src = pointers.src[1] + sample.src;
    byte *dst = pointers.dst + sample.dst;
    const Target *fill = (const Target *)(table + params.fill);
    bool is_inside = true, is_covered = true;
    int64 first = 0, count = 0, begin = 0, length = 0, step = 0;
    const float *weights = 0;
#pragma unroll
    for (int axis = AXES - 1; axis >= 0; --axis) {
        const Side &side = sample.side[axis];
        unsigned outer = side.turns.divide(rest), turn = rest - outer * side.turns.count;
        rest = outer;
        dst += turn * side.to;
        if (axis == (int)params.filled) fill += turn;
        if (side.taps && (LAST || axis == (int)params.tapped)) {
            const int64 *head = (const int64 *)(table + side.taps);
            const int64 *position = head + 1 + 2 * (int64)turn;
            is_covered = is_covered && position[1] > 0;
            if (axis == (int)params.tapped) {
                first = position[0], count = position[1];
                weights = (const float *)(table + side.taps + 8 * (1 + 2 * (int64)side.turns.count) +
                                          head[0] * turn);
                begin = side.begin, length = side.count, step = side.from;
                continue;
            }
        }
        int64 from = side.begin + (side.map ? ((const int64 *)(table + side.map))[turn] : turn);
        if (!INSIDE) is_inside = is_inside && from >= 0 && from < side.count;
        src += from * side.from;
    }

    Result result;
#if MOVES
    int64 from = begin + first;
    bool exists = is_inside && is_covered && (INSIDE || (from >= 0 && from < length));
    result.item[0] = exists ? item_at(src + from * step) : *fill;
#else
    float sum = 0;
    for (int64 tap = 0; tap < count; ++tap) {
        int64 from = begin + first + tap;
        bool exists = INSIDE || (is_inside && from >= 0 && from < length);
        float value = exists ? cast<TARGET, SOURCE, false>(item_at(src + from * step)) : *fill;
        sum = multiply_add(value, weights[tap], sum);
    }
    result.item[0] = is_covered || !LAST ? sum : *fill;
#endif
    result.template write<OUT>(dst);
}
