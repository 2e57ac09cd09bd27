// Loops in any order, contiguous in parts on both sides, through shared memory.
//
// A block moves a box: some iterations of LOOPS loops. In the source a box is rows, which are
// contiguous over the loops of a row; in the output it is runs, which are contiguous over the
// innermost RUN_LOOPS loops.
// Rows are read in words of 16 bytes, and keep in shared memory the alignment that they have in
// device memory. Runs are written in words of WORD bytes by GROUP threads each; words may begin at
// other items in each run, so threads look up their items in shared memory one by one.
//
// COUNTS, SLOTS: the iterations in a full box, and the bytes in shared memory from one to the next,
// of each loop in the order of the output, outermost first. IN_ROW: 1 for the loops of a row;
// number ROW_END is the outermost of them. ROW_ALIGNMENT, RUN_ALIGNMENT: of all addresses of rows and
// of runs.

#include "walk.cuh"
#include "numeric.cuh"

constexpr int COUNT[] = {COUNTS}, SLOT[] = {SLOTS};
constexpr bool OF_ROW[] = {IN_ROW};
constexpr int LOOPS = sizeof(COUNT) / sizeof(int), RUN_END = LOOPS - RUN_LOOPS, LOW = LOOPS - 1;

struct BoxLoop {
    Divisor boxes;
    uint64 total;
    Offsets step;
};

struct Params {
    Loops outer;
    BoxLoop loop[LOOPS];
    Divisor group, groups;  // of the boxes along the outermost loop of a run
    // If the source has no gaps: the offset of its first byte, and at how many bytes from there two
    // words of the source begin. Else 0.
    int64 lowest;
    uint64 readable;
};

// Sets of loops: all, the loops of a row, or the others.
enum LoopSet { ALL, ROW, ROWS };
INLINE constexpr bool contains(LoopSet set, int loop) {
    return set == ALL || OF_ROW[loop] == (set == ROW);
}

// Return the iterations in a full box of the loops from `begin` to `end`.
INLINE constexpr int iterations(int begin, int end, LoopSet set = ALL) {
    if (begin == end) return 1;
    return (contains(set, begin) ? COUNT[begin] : 1) * iterations(begin + 1, end, set);
}

// Return the size in bytes, in shared memory, of the iterations of the loops before `end`.
INLINE constexpr int extent(int end) {
    return end ? (COUNT[end - 1] - 1) * SLOT[end - 1] + extent(end - 1) : ITEM;
}

constexpr int LOAD = 16;  // bytes of a word of the source
constexpr int BOX_BYTES = ceiling(extent(LOOPS) + 2 * LOAD, LOAD) * LOAD;

constexpr int ROWS_OF_BOX = iterations(0, LOOPS, ROWS);
constexpr int ROW_BYTES = iterations(0, LOOPS, ROW) * ITEM;
constexpr int ROW_WORDS = ceiling(ROW_BYTES + LOAD - ROW_ALIGNMENT, LOAD);
constexpr int LOAD_TURNS = ceiling(ROWS_OF_BOX * ROW_WORDS, THREADS);
constexpr int BATCH = ceiling(LOAD_TURNS, ceiling(LOAD_TURNS, 3));  // words that a thread waits for

constexpr int RUNS_OF_BOX = iterations(0, RUN_END), RUN_UNIT = iterations(RUN_END + 1, LOOPS);
constexpr int PER_WORD = WORD / OUT;
constexpr bool HAS_ENDS = RUN_ALIGNMENT < WORD || RUN_UNIT * OUT % WORD;
// Words of a run are counted from the beginning of a sector, so that the threads of a group, which
// write a sector or more at once, write whole ones.
constexpr int ALIGNED = 32;

// Blocks that a multiprocessor has room for; many look-ups and wide items need the registers of
// some of them, and from sm_100 on items of 4 bytes do.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
constexpr int WIDE = 4;
#else
constexpr int WIDE = 8;
#endif
constexpr int DEPTH = RUN_LOOPS > 1 ? RUN_LOOPS * PER_WORD : 0;
// A word may have more than two turns of the innermost loop.
constexpr bool IS_SHORT = PER_WORD > COUNT[LOW] + 1;
constexpr bool IS_LARGE =
    DEPTH > (IS_SHORT ? 15 : 16) || PER_WORD > 8 || RUN_LOOPS > 3 || ITEM >= WIDE;
constexpr int BLOCKS =
    smaller(DEPTH >= 32 ? 5 : IS_LARGE ? 6 : 8, (227 << 10) / (BOX_BYTES + (1 << 10)));

typedef Items<byte, LOAD> Bytes;
typedef Items<Source, 1> One;

// Return n / count for a constant; both are below 2^16. Compilers use more instructions.
INLINE constexpr unsigned quotient(unsigned n, unsigned count) {
    if (count == 1) return n;
    return (unsigned)((uint64)n * (unsigned)(0x100000000 / count + 1) >> 32);
}

INLINE int misalignment(const byte *at, int word) { return (int)((uint64)at % word); }

// A row or a run: its offsets from the box, and where it is in shared memory. A box at the end of a
// loop does not have all of them.
struct Place {
    Offsets at;
    int slot;
    bool exists;
};

struct Box {
    const Params &params;
    int count[LOOPS];
    Offsets first;
    bool exists;

    // Only the outermost loops of rows and of runs may be divided. Blocks next to each other move the
    // boxes of a group along the run, then the boxes of the next part of the rows.
    INLINE Box(const Params &params, unsigned unit) : params(params), first({0, 0, 0}) {
        unsigned of_run = draw(unit, params.group);
#pragma unroll
        for (int i = LOW; i >= 0; --i) {
            if (i == RUN_END) continue;
            const BoxLoop &loop = params.loop[i];
            const uint64 start = (uint64)draw(unit, loop.boxes) * COUNT[i];
            count[i] = (int)(loop.total - start < COUNT[i] ? loop.total - start : COUNT[i]);
            first.add((int64)start, loop.step);
        }
        of_run += draw(unit, params.groups) * params.group.count;
        const BoxLoop &run = params.loop[RUN_END];
        exists = of_run < run.boxes.count;
        const uint64 begin = (uint64)of_run * COUNT[RUN_END], left = run.total - begin;
        count[RUN_END] = (int)(left < COUNT[RUN_END] ? left : COUNT[RUN_END]);
        first.add((int64)begin, run.step);
        first.add(1, params.outer.place(unit));
    }

    // Return the n-th iteration of the loops before `end`.
    INLINE Place place(unsigned n, int end, LoopSet set) const {
        Place place = {{0, 0, 0}, 0, true};
#pragma unroll
        for (int i = end - 1; i >= 0; --i) {
            if (!contains(set, i)) continue;
            const unsigned outer = quotient(n, COUNT[i]), turn = n - outer * COUNT[i];
            place.at.add(turn, params.loop[i].step);
            place.slot += turn * SLOT[i];
            place.exists = place.exists && (int)turn < count[i];
            n = outer;
        }
        return place;
    }
};

// `shift`: where the first item of the box is in shared memory.
INLINE void load(const Box &box, const byte *src, byte *slots, int shift) {
    const int bytes = ROW_BYTES / COUNT[ROW_END] * box.count[ROW_END];
#pragma unroll 1
    for (unsigned first = threadIdx.x; first < ROWS_OF_BOX * ROW_WORDS; first += BATCH * THREADS) {
        Bytes words[BATCH];
        int places[BATCH];  // in shared memory; -1: there is no such word
#pragma unroll
        for (int turn = 0; turn < BATCH; ++turn) {
            places[turn] = -1;
            const unsigned number = first + turn * THREADS, row = quotient(number, ROW_WORDS);
            const Place place = box.place(row, LOOPS, ROWS);
            const byte *at = src + box.first.src + place.at.src;
            const int begin = (int)(number - row * ROW_WORDS) * LOAD - misalignment(at, LOAD);
            if (row >= ROWS_OF_BOX || !place.exists || begin >= bytes) continue;
            const int slot = shift + place.slot + begin;
            const bool is_inside = begin >= 0 && begin + LOAD <= bytes;
            at += begin;
            if (is_inside || (uint64)(at - src - box.params.lowest) < box.params.readable) {
                words[turn].template read<LOAD>(at);
                places[turn] = slot;
                continue;
            }
            // The word may have bytes of other arrays.
#pragma unroll 1
            for (int i = 0; i < LOAD; i += ITEM) {
                if (begin + i < 0 || begin + i >= bytes) continue;
                One one;
                one.template read<ITEM>(at + i);
                one.template write<ITEM>(slots + slot + i);
            }
        }
#pragma unroll
        for (int turn = 0; turn < BATCH; ++turn)
            if (places[turn] >= 0) words[turn].template write<LOAD>(slots + places[turn]);
    }
}

// Return where an iteration of the loops of a run around the innermost one is in shared memory.
INLINE int start_of(unsigned iteration) {
    int start = 0;
#pragma unroll
    for (int i = LOW - 1; i >= RUN_END; --i) {
        const unsigned outer = i > RUN_END ? quotient(iteration, COUNT[i]) : 0;
        start += (int)(iteration - outer * COUNT[i]) * SLOT[i];
        iteration = outer;
    }
    return start;
}

// Return converted items of a run, from number `item` on.
template <int MANY>
INLINE Items<Target, MANY> look_up(const Box &box, const byte *slots, Formula &formula,
                                   const Place &run, unsigned item) {
    Items<Source, MANY> items;
    auto read = [&](int i, int slot) {
        One one;
        one.template read<ITEM>(slots + slot);
        items.item[i] = one.item[0];
    };
    if constexpr (RUN_LOOPS == 1) {
#pragma unroll
        for (int i = 0; i < MANY; ++i) read(i, run.slot + (int)(item + i) * SLOT[LOW]);
    } else if constexpr (IS_SHORT && MANY > 1) {
#pragma unroll
        for (int i = 0; i < MANY; ++i) {
            const unsigned outer = quotient(item + i, COUNT[LOW]);
            const int turn = (int)(item + i - outer * COUNT[LOW]);
            read(i, run.slot + turn * SLOT[LOW] + start_of(outer));
        }
    } else {
        // The innermost loop restarts at most once.
        const unsigned outer = quotient(item, COUNT[LOW]);
        const int turn = (int)(item - outer * COUNT[LOW]), left = COUNT[LOW] - turn;
        int here = run.slot + turn * SLOT[LOW] + start_of(outer), next = here;
        if (MANY > 1) next = run.slot - left * SLOT[LOW] + start_of(outer + 1);
        // Keeps compilers from computing both numbers again for each item: they only choose one.
        asm volatile("" : "+r"(here), "+r"(next));
#pragma unroll
        for (int i = 0; i < MANY; ++i) read(i, (i < left ? here : next) + i * SLOT[LOW]);
    }
    auto coefficient = [&](int i) {
        int64 place = box.first.coef + run.at.coef;
        if (COEFFICIENTS < 2) return place;
        unsigned at = item + i;
#pragma unroll
        for (int loop = LOW; loop >= RUN_END; --loop) {
            const unsigned outer = loop > RUN_END ? quotient(at, COUNT[loop]) : 0;
            place += (at - outer * COUNT[loop]) * box.params.loop[loop].step.coef;
            at = outer;
        }
        return place;
    };
    return epilogue(items, formula, coefficient);
}

INLINE void store(const Box &box, byte *dst, const byte *coefficients, const byte *slots,
                  int shift) {
    const int items = RUN_UNIT * box.count[RUN_END], lane = threadIdx.x % GROUP;
    Formula formula(coefficients);
#pragma unroll 1
    for (unsigned number = threadIdx.x / GROUP; number < RUNS_OF_BOX; number += THREADS / GROUP) {
        Place run = box.place(number, RUN_END, ALL);
        if (!run.exists) continue;
        run.slot += shift;
        byte *to = dst + box.first.dst + run.at.dst;
        const int before = misalignment(to, ALIGNED) / OUT;
        const int begin = ceiling(before, PER_WORD), end = (before + items) / PER_WORD;
        auto put = [&](int word) {
            const int item = word * PER_WORD - before;
            look_up<PER_WORD>(box, slots, formula, run, item).template write<WORD>(to + item * OUT);
        };
        if (lane >= begin && lane < end) put(lane);
#pragma unroll 1
        for (int word = lane + GROUP; word < end; word += GROUP) put(word);
        if (!HAS_ENDS) continue;
        // The items before the first whole word and after the last one.
        const int head = smaller(begin * PER_WORD - before, items);
        const int tail = larger(head, end * PER_WORD - before);
#pragma unroll 1
        for (int n = lane; n < 2 * PER_WORD; n += GROUP) {
            const int item = n < PER_WORD ? n : tail + n - PER_WORD;
            if (item >= (n < PER_WORD ? head : items)) continue;
            look_up<1>(box, slots, formula, run, item).template write<OUT>(to + item * OUT);
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    permute(const Params params, const Pointers pointers) {
    __shared__ __align__(16) byte slots[BOX_BYTES];
    const Box box(params, blockIdx.x);
    if (!box.exists) return;
    const byte *src = pointers.src[0];
    const int shift = misalignment(src + box.first.src, LOAD);
    load(box, src, slots, shift);
    __syncthreads();
    store(box, pointers.dst, pointers.coefficients, slots, shift);
}
