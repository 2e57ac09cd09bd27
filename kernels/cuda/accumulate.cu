// The sum of many arrays in one pass: box by box, every part is added while the box is at hand.
//
// A box of the output is held in the computed dtype in shared memory. Parts come one after the
// other, so that sums are those of the CPU to the last bit; for each, threads next to each other
// read what lies next to each other in that part, whatever the layouts. Then the box is converted
// into the output. Every part is read once and the output written once.
//
// Rows of the box are an odd number of banks apart wherever it has several, so that walking it
// along any axis meets all banks. Items of one part are read before the first is added.

#define SOURCES MAX_PARTS

#include "walk.cuh"
#include "numeric.cuh"

constexpr unsigned MAX_AXES = 8;

// An axis of the output.
struct Side {
    Divisor tiles, box;  // boxes along it, places in each
    uint64 total;
    int64 dst, area;  // the step in the output (bytes) and in the box (items)
    int64 src[MAX_PARTS];
};

// How one array is walked: its dtype, and the axes from the slowest to the fastest thread.
struct Walk {
    unsigned dtype, axis[MAX_AXES];
};

struct Params {
    uint64 axes, parts, places;  // places of a box
    Side side[MAX_AXES];
    Walk walk[MAX_PARTS + 1];  // of the parts, and last of the output
};

typedef COMPUTED::value Value;

// Where a box begins along each axis, and how many of its places exist.
struct Box {
    uint64 start[MAX_AXES];
    unsigned count[MAX_AXES];
};

// Where a thread finds an item: its place in the box, and -1 where there is none, and its offset.
struct Item {
    int area;
    int64 offset;
};

INLINE Item find(const Params &params, const Box &box, const Walk &walk, int part,
                 unsigned number) {
    Item item = {0, 0};
    if (number >= params.places) return {-1, 0};
    bool inside = true;
    for (int i = (int)params.axes - 1; i >= 0; --i) {
        unsigned axis = walk.axis[i];
        const Side &side = params.side[axis];
        unsigned outer = side.box.divide(number), turn = number - outer * side.box.count;
        number = outer;
        inside = inside && turn < box.count[axis];
        item.area += (int)(turn * side.area);
        item.offset += turn * (part < 0 ? side.dst : side.src[part < 0 ? 0 : part]);
    }
    if (!inside) item.area = -1;
    return item;
}

template <class From>
INLINE void add(const Params &params, const Box &box, int part, const byte *src, Value *area) {
    for (unsigned start = 0; start < params.places; start += THREADS * TURNS) {
        Item items[TURNS];
        typename From::memory values[TURNS];
#pragma unroll
        for (int turn = 0; turn < TURNS; ++turn) {
            items[turn] =
                find(params, box, params.walk[part], part, start + turn * THREADS + threadIdx.x);
            if (items[turn].area >= 0)
                values[turn] =
                    *reinterpret_cast<const typename From::memory *>(src + items[turn].offset);
        }
#pragma unroll
        for (int turn = 0; turn < TURNS; ++turn) {
            if (items[turn].area < 0) continue;
            Value value = cast<COMPUTED, From, false>(values[turn]);
            Value *sum = area + items[turn].area;
            *sum = part ? plus(*sum, value) : value;
        }
    }
}

// Add a part of any dtype that has a place in the sum.
INLINE void add_any(const Params &params, const Box &box, int part, const byte *src, Value *area) {
    switch (params.walk[part].dtype) {
        case 1: return add<i1>(params, box, part, src, area);
        case 2: return add<i2>(params, box, part, src, area);
        case 3: return add<i4>(params, box, part, src, area);
        case 4: return add<i8>(params, box, part, src, area);
        case 5: return add<u1>(params, box, part, src, area);
        case 6: return add<u2>(params, box, part, src, area);
        case 7: return add<u4>(params, box, part, src, area);
        case 8: return add<u8>(params, box, part, src, area);
#ifdef FLOATING
        case 9: return add<f2>(params, box, part, src, area);
        case 10: return add<bf>(params, box, part, src, area);
        case 11: return add<f4>(params, box, part, src, area);
        case 12: return add<f8>(params, box, part, src, area);
#endif
    }
}

INLINE void store(const Params &params, const Box &box, byte *dst, const Value *area) {
    const Walk &walk = params.walk[params.parts];
    for (unsigned number = threadIdx.x; number < params.places; number += THREADS) {
        Item item = find(params, box, walk, -1, number);
        if (item.area >= 0)
            *reinterpret_cast<TARGET::memory *>(dst + item.offset) =
                cast<TARGET, COMPUTED, false>(area[item.area]);
    }
}

INLINE void draw_box(const Params &params, Box &box) {
    unsigned unit = blockIdx.x;
    for (int i = (int)params.axes - 1; i >= 0; --i) {
        const Side &side = params.side[i];
        box.start[i] = (uint64)draw(unit, side.tiles) * side.box.count;
        uint64 left = side.total - box.start[i];
        box.count[i] = left < side.box.count ? (unsigned)left : side.box.count;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    accumulate(const Params params, const Pointers pointers) {
    __shared__ Value area[AREA];
    __shared__ Box box;
    if (threadIdx.x == 0) draw_box(params, box);
    __syncthreads();
    for (int part = 0; part <= (int)params.parts; ++part) {
        int64 offset = 0;
        bool last = part == (int)params.parts;
        for (int i = 0; i < (int)params.axes; ++i)
            offset += (int64)box.start[i] * (last ? params.side[i].dst : params.side[i].src[last ? 0 : part]);
        if (part) __syncthreads();
        if (last)
            store(params, box, pointers.dst + offset, area);
        else
            add_any(params, box, part, pointers.src[part] + offset, area);
    }
}
