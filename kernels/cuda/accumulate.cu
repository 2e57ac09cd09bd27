// The sum of many arrays in one pass: box by box, every part is added while the box is at hand.
//
// A box of the output is held in the computed dtype in shared memory. Parts come one after the
// other, so that sums are those of the CPU to the last bit; for each, threads next to each other
// read what lies next to each other in that part, whatever the layouts. Then the box is converted
// into the output. Every part is read once and the output written once.
//
// An array is walked along its own axes, the slowest first. Where the rows of its fastest axes
// begin is worked out once, a row for each thread, and looked up from then on; within a row a
// thread only has to know its lane.
//
// Rows of the box are an odd number of items apart wherever it has several, so that walking it
// along any axis meets all banks. A thread's items of one part are read before the first is added.

#define SOURCES MAX_PARTS

#include "walk.cuh"
#include "numeric.cuh"

constexpr int MAX_AXES = 8;

// An axis of the output.
struct Side {
    Divisor tiles, box;  // boxes along it, places in each
    uint64 total;
    int64 dst, area;  // the step in the output (bytes) and in the box (items)
    int64 src[MAX_PARTS];
};

// How one array is walked: its axes from the slowest to the fastest, of which the last `fast` make
// a row of `lanes` places.
struct Walk {
    unsigned dtype, fast;
    unsigned axis[MAX_AXES];
    unsigned rows, unused;
    Divisor lanes;
};

struct Params {
    uint64 axes, parts, places;  // places of a box
    Side side[MAX_AXES];
    Walk walk[MAX_PARTS + 1];  // of the parts, and last of the output
};

typedef COMPUTED::value Value;

// A place in the box, -1 where the output ends before it, and in the array that is walked.
struct Item {
    int area;
    int64 offset;
};

struct Shared {
    Value area[AREA];
    int64 offset[MAX_ROWS];
    int row[MAX_ROWS];
    uint64 start[MAX_AXES];    // the first place of the box along each axis,
    unsigned count[MAX_AXES];  // of which so many exist
};

// Find place `number` of some axes of a walk, [first, last).
INLINE Item find(const Params &params, const Shared &shared, const Walk &walk, int part, int first,
                 int last, unsigned number) {
    Item item = {0, 0};
    bool inside = true;
    for (int i = last - 1; i >= first; --i) {
        unsigned axis = walk.axis[i];
        const Side &side = params.side[axis];
        unsigned outer = i > first ? side.box.divide(number) : 0;
        unsigned turn = number - outer * side.box.count;
        number = outer;
        inside = inside && turn < shared.count[axis];
        item.area += (int)turn * (int)side.area;
        item.offset += turn * (part < (int)params.parts ? side.src[part] : side.dst);
    }
    if (!inside) item.area = -1;
    return item;
}

// Work out where the rows of an array begin.
INLINE void find_rows(const Params &params, Shared &shared, const Walk &walk, int part) {
    int slow = (int)params.axes - (int)walk.fast;
    for (unsigned row = threadIdx.x; row < walk.rows; row += THREADS) {
        Item item = find(params, shared, walk, part, 0, slow, row);
        shared.row[row] = item.area;
        shared.offset[row] = item.offset;
    }
}

INLINE Item find_item(const Params &params, const Shared &shared, const Walk &walk, int part,
                      unsigned number) {
    if (number >= params.places) return {-1, 0};
    unsigned row = walk.lanes.divide(number);
    unsigned lane = number - row * walk.lanes.count;
    int axes = (int)params.axes;
    Item item = find(params, shared, walk, part, axes - (int)walk.fast, axes, lane);
    int area = shared.row[row];
    item.area = (item.area | area) < 0 ? -1 : item.area + area;
    item.offset += shared.offset[row];
    return item;
}

template <class From>
INLINE void add(const Params &params, Shared &shared, int part, const byte *src) {
    const Walk &walk = params.walk[part];
#pragma unroll 1
    for (unsigned start = threadIdx.x; start < params.places; start += THREADS * TURNS) {
        Item items[TURNS];
        typename From::memory values[TURNS];
#pragma unroll
        for (int turn = 0; turn < TURNS; ++turn) {
            items[turn] = find_item(params, shared, walk, part, start + turn * THREADS);
            if (items[turn].area >= 0)
                values[turn] =
                    *reinterpret_cast<const typename From::memory *>(src + items[turn].offset);
        }
#pragma unroll
        for (int turn = 0; turn < TURNS; ++turn) {
            if (items[turn].area < 0) continue;
            Value value = cast<COMPUTED, From, false>(values[turn]);
            Value *sum = shared.area + items[turn].area;
            *sum = part ? plus(*sum, value) : value;
        }
    }
}

// Add a part if its dtype is this one. Code is made only for the dtypes whose bit DTYPES has.
template <class From, int CODE>
INLINE void add_if(const Params &params, Shared &shared, int part, const byte *src) {
    if constexpr (DTYPES >> CODE & 1)
        if (params.walk[part].dtype == CODE) add<From>(params, shared, part, src);
}

INLINE void add_any(const Params &params, Shared &shared, int part, const byte *src) {
#define ADD_IF(DTYPE, CODE) add_if<DTYPE, CODE>(params, shared, part, src);
    ADDED(ADD_IF)
}

INLINE void store(const Params &params, const Shared &shared, int part, byte *dst) {
    const Walk &walk = params.walk[part];
    for (unsigned number = threadIdx.x; number < params.places; number += THREADS) {
        Item item = find_item(params, shared, walk, part, number);
        if (item.area >= 0)
            *reinterpret_cast<TARGET::memory *>(dst + item.offset) =
                cast<TARGET, COMPUTED, false>(shared.area[item.area]);
    }
}

INLINE void draw_box(const Params &params, Shared &shared) {
    unsigned unit = blockIdx.x;
    for (int i = (int)params.axes - 1; i >= 0; --i) {
        const Side &side = params.side[i];
        shared.start[i] = (uint64)draw(unit, side.tiles) * side.box.count;
        uint64 left = side.total - shared.start[i];
        shared.count[i] = left < side.box.count ? (unsigned)left : side.box.count;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 2)
    accumulate(const Params params, const Pointers pointers) {
    __shared__ Shared shared;
    if (threadIdx.x == 0) draw_box(params, shared);
    __syncthreads();
    for (int part = 0; part <= (int)params.parts; ++part) {
        bool is_output = part == (int)params.parts;
        int64 offset = 0;
        for (int i = 0; i < (int)params.axes; ++i)
            offset += (int64)shared.start[i] *
                      (is_output ? params.side[i].dst : params.side[i].src[part]);
        find_rows(params, shared, params.walk[part], part);
        __syncthreads();
        if (is_output)
            store(params, shared, part, pointers.dst + offset);
        else
            add_any(params, shared, part, pointers.src[part] + offset);
        __syncthreads();
    }
}
