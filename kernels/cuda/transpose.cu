// A batch of 2-D transposes, tile by tile through shared memory, converted on the way out.
//
// The source is contiguous along `rows`, the output along `run`; either may be two loops. A 3-D
// reversal has the middle axis among the outer loops. A tile has TILE_ROWS positions along `rows`
// and TILE_RUN along `run`, in a shape that leaves little of it empty.
//
//   - LOAD bytes are read and STORE bytes are written at once: 16 where the host has proved that
//     all rows begin on a multiple of 16, less where they do not;
//   - or words are whole though rows begin anywhere (LOAD_SHIFTED, STORE_SHIFTED): one that is read
//     is made of the two that it extends over, in registers; what is written of a row begins and ends
//     with a sector of memory, since parts of sectors cost several times as much, and a tile holds a
//     sector's places more along the run than the next one is away, so that no row is cut between
//     two tiles. Items at the very ends are moved one by one, and no byte outside of a row is
//     touched;
//   - items of less than 4 bytes are put together, on their way in, with their neighbours along
//     the run, so that shared memory is written in whole banks.
//
// The tile is in shared memory in the output's order. The 16-byte columns of 128 bytes are
// exchanged (XOR) by the place along `rows`, so that LANES threads that write neighbours along
// `rows`, beside others along the run, and eight that read neighbours along the run all meet
// different banks, and 16 bytes stay together.

#include "walk.cuh"
#include "numeric.cuh"

struct Params {
    Loops outer;
    Axis rows, run;
    // If the array has no gaps: the offset of its first byte, and how many bytes from there two
    // words may begin. Else 0.
    int64 lowest;
    uint64 readable;
    // The tiles along the run are divided into groups. Blocks next to each other move the tiles of a
    // group for a part of the rows, then for the next part: so they share lines of both sides.
    Divisor group, groups;
};

// ROWS_LOOPS, RUN_LOOPS: an axis is one loop or two, which FOLLOW each other without a gap on the
// side where the axis is contiguous, or not; then no word that is moved crosses the gap.
constexpr int ONE = 1, FOLLOW = 2, APART = 3;

typedef Span<ROWS_LOOPS != ONE> Rows;
typedef Span<RUN_LOOPS != ONE> Run;

constexpr int PACK = larger(1, 4 / ITEM);  // neighbours along the run in one bank
constexpr int BANK = PACK * ITEM;
constexpr int PER_LOAD = LOAD / ITEM, PER_STORE = STORE / OUT;
constexpr int SECTOR = 32;  // bytes that memory transfers at once
constexpr int OVERLAP = STORE_SHIFTED ? SECTOR / OUT : 0;  // places that the next tile has, too

// How threads share the words that a tile is read in: LANES of them are next to each other along a
// source row, ABREAST of these on groups of rows next to each other, and DEEP of those one after
// the other. A thread then moves words ACROSS these groups, and ALONG the rows. A power of two needs
// fewest instructions; where neighbors would read less than half a sector together, a short row is
// read by as many threads as it has words, and the last threads of the block read nothing.
constexpr int WORDS = TILE_ROWS / PER_LOAD, GROUPS = TILE_RUN / PACK;
constexpr int NEIGHBORS = power_in(WORDS, 8);
constexpr int LANES = NEIGHBORS * LOAD < 16 && WORDS <= 32 ? WORDS : NEIGHBORS;
constexpr int FIT = THREADS / LANES, POWER = power_from(FIT + 1) / 2;
constexpr int ABREAST = smaller(power_from(GROUPS), 4 * POWER < 3 * FIT ? FIT : POWER);
constexpr int DEEP = THREADS / (LANES * ABREAST);
constexpr int ACROSS = ceiling(GROUPS, ABREAST), ALONG = ceiling(WORDS, LANES * DEEP);
constexpr bool IDLE = WORDS * ABREAST < THREADS;  // threads beyond the last row
constexpr bool EVEN = GROUPS % ABREAST == 0 && (IDLE || WORDS % (LANES * DEEP) == 0);

// Rows that are exchanged alike fill whole lines of banks.
constexpr int LINE = 128, UNIT = larger(16, LINE / PER_LOAD);
constexpr int ROW_BYTES = ceiling(TILE_RUN * ITEM, UNIT) * UNIT;

// Return the position of an item in the tile, plus `beyond` full lines.
INLINE int slot(unsigned row, int column, int beyond = 0) {
    const int exchanged = (row / PER_LOAD * larger(1, 8 / LANES) & 7) << 4;
    if (ROW_BYTES % LINE == 0) return row * ROW_BYTES + (column ^ exchanged) + beyond;
    return (row * ROW_BYTES + column + beyond) ^ exchanged;
}

// Return true if a source row extends for a word before and after a number of items.
INLINE bool goes_on(const Params &params, const Rows &rows, unsigned row, int items = PER_LOAD) {
    const uint64 place = rows.start + row;
    return place >= PER_LOAD && place + items + PER_LOAD <= params.rows.total;
}

// Return the j-th items of PACK words.
INLINE Items<Source, PACK> pick(const Items<Source, PER_LOAD> (&words)[PACK], int j) {
    Items<Source, PACK> bank;
    if constexpr (PACK == 4 && LOAD >= 4) {
        const unsigned pair = j & 2 ? 0x7362 : 0x5140, half = j & 1 ? 0x7632 : 0x5410;
        auto word = [&](int i) { return reinterpret_cast<const unsigned *>(words[i].item)[j / 4]; };
        *reinterpret_cast<unsigned *>(bank.item) =
            __byte_perm(__byte_perm(word(0), word(1), pair), __byte_perm(word(2), word(3), pair), half);
    } else {
#pragma unroll
        for (int i = 0; i < PACK; ++i) bank.item[i] = words[i].item[j];
    }
    return bank;
}

constexpr int UNDER_WAY = 64;  // bytes that a thread waits for before it uses the first of them

// Read the tile: adjacent threads read along `rows`. A WHOLE tile needs no bounds checks, and values
// that depend on the thread are computed once.
template <bool WHOLE>
INLINE void load(const Params &params, const byte *src, const byte *lowest, const Rows &rows,
                 const Run &run, byte *tile) {
    constexpr int TURNS = ACROSS * ALONG;
    constexpr int BATCH = smaller(TURNS, larger(1, UNDER_WAY / (PACK * LOAD)));
    constexpr int FAR = ABREAST * BANK % LINE == 0;
    const unsigned lane = threadIdx.x % LANES, beside = threadIdx.x / LANES % ABREAST;
    const unsigned first_row = (lane + threadIdx.x / (LANES * ABREAST) * LANES) * PER_LOAD;
    if (IDLE && first_row >= TILE_ROWS) return;
    const int64 step = params.run.low.src;
    const byte *mine = src + first_row * ITEM + beside * PACK * step;
#pragma unroll
    for (int first = 0; first < TURNS; first += BATCH) {
        Items<Source, PER_LOAD> words[BATCH][PACK];
#pragma unroll
        for (int turn = first; turn < smaller(first + BATCH, TURNS); ++turn) {
            const int across = turn % ACROSS * ABREAST, along = turn / ACROSS * LANES * DEEP;
            const unsigned group = beside + across, row = first_row + along * PER_LOAD;
            const int left = (int)(rows.count - row);
            if (!EVEN && (group >= GROUPS || row >= TILE_ROWS)) continue;
#pragma unroll
            for (int i = 0; i < PACK; ++i) {
                const unsigned place = group * PACK + i;
                if (!WHOLE && (place >= run.count || left <= 0)) continue;
                const byte *at = mine + along * LOAD + (across * PACK + i) * step;
                if (ROWS_LOOPS == APART || RUN_LOOPS != ONE)
                    at = src + run.place(params.run, place).src +
                         (ROWS_LOOPS == APART ? rows.place(params.rows, row).src : row * ITEM);
                auto &word = words[turn - first][i];
                const unsigned by = (uint64)at % LOAD;
                if (LOAD_SHIFTED && (WHOLE || goes_on(params, rows, row) ||
                                     (uint64)(at - by - lowest) < params.readable))
                    word.read_across(at - by, at - by + LOAD, by);
                else
                    word.template read<LOAD_SHIFTED ? ITEM : LOAD, WHOLE>(at, left);
            }
        }
#pragma unroll
        for (int turn = first; turn < smaller(first + BATCH, TURNS); ++turn) {
            const int across = turn % ACROSS * ABREAST, along = turn / ACROSS * LANES * DEEP;
            const unsigned group = beside + across, row = first_row + along * PER_LOAD;
            if (!EVEN && (group >= GROUPS || row >= TILE_ROWS)) continue;
#pragma unroll
            for (int j = 0; j < PER_LOAD; ++j) {
                pick(words[turn - first], j)
                    .template write<BANK>(tile + (FAR ? slot(row + j, beside * BANK, across * BANK)
                                                      : slot(row + j, group * BANK)));
            }
        }
    }
}

// Write the tile: threads next to each other write along the run. Words that are shifted begin
// `ahead`, and words of the last sector that there is room for are not written: the next tile begins
// with them. The items before the first word of a row and after its last one are written one by one.
template <bool WHOLE>
INLINE void store(const Params &params, byte *dst, const byte *coefficients, int64 coef,
                  const Rows &rows, const Run &run, const byte *tile) {
    constexpr int STORES = TILE_RUN / PER_STORE;  // of one output row
    Formula formula(coefficients);
    auto put = [&](auto &items, unsigned row, int place, const Offsets &at) {
        constexpr int BYTES = sizeof(items.item), PIECE = smaller(BYTES, 16);
        constexpr int MANY = BYTES / ITEM;
#pragma unroll
        for (int i = 0; i < BYTES / PIECE; ++i) {
            Items<Source, PIECE / ITEM> part;
            const unsigned column = place * ITEM + i * PIECE, by = column % PIECE;
            if (STORE_SHIFTED && MANY > 1)
                part.read_across(tile + slot(row, column - by),
                                 tile + slot(row, column - by + PIECE), by);
            else
                part.template read<PIECE>(tile + slot(row, column));
#pragma unroll
            for (int j = 0; j < PIECE / ITEM; ++j)
                items.item[i * (PIECE / ITEM) + j] = part.item[j];
        }
        byte *to = dst + at.dst;
        to += RUN_LOOPS == APART ? run.place(params.run, place).dst : (int64)(place * OUT);
        auto coefficient = [&](int i) {
            int64 place_of_row = coef + at.coef;
            return COEFFICIENTS == 2 ? place_of_row + run.place(params.run, place + i).coef
                                     : place_of_row;
        };
        epilogue(items, formula, coefficient).template write<MANY * OUT>(to);
    };
    auto ahead = [&](const Offsets &at) {
        return STORE_SHIFTED ? (int)(-(uint64)(dst + at.dst) % SECTOR) / OUT : 0;
    };
#pragma unroll
    for (int turn = 0; turn < ceiling(STORES * TILE_ROWS, THREADS); ++turn) {
        unsigned unit = turn * THREADS + threadIdx.x, row = unit / STORES;
        if (THREADS % STORES == 0) row = threadIdx.x / STORES + turn * (THREADS / STORES);
        int place = (unit - row * STORES) * PER_STORE;
        if (STORES * TILE_ROWS % THREADS && row >= TILE_ROWS) break;
        if (!WHOLE && row >= rows.count) continue;
        if (place >= TILE_RUN - OVERLAP) continue;
        const Offsets at = rows.place(params.rows, row);
        place += ahead(at);
        if (!WHOLE && place + PER_STORE > (int)run.count) continue;
        Items<Source, PER_STORE> word;
        put(word, row, place, at);
    }
    constexpr int END = larger(OVERLAP, PER_STORE);
    if (WHOLE || END == 1) return;
    auto put_ends = [&](bool is_head) {
        for (int number = threadIdx.x; number < TILE_ROWS * END; number += THREADS) {
            const unsigned row = number / END;
            if (row >= rows.count) break;
            const Offsets at = rows.place(params.rows, row);
            const int n = number % END, before = ahead(at);
            const int items = is_head ? before : ((int)run.count - before) % PER_STORE;
            Items<Source, 1> one;
            if (n < items) put(one, row, is_head ? n : run.count - items + n, at);
        }
    };
    if (STORE_SHIFTED && !run.start) put_ends(true);
    if (run.count < TILE_RUN) put_ends(false);
}

template <bool WHOLE>
INLINE void move(const Params &params, const Pointers &pointers, const Offsets &at,
                 const Rows &rows, const Run &run, byte *tile) {
    const byte *src = pointers.src[0];
    load<WHOLE>(params, src + at.src, src + params.lowest, rows, run, tile);
    __syncthreads();
    store<WHOLE>(params, pointers.dst + at.dst, pointers.coefficients, at.coef, rows, run, tile);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    transpose(const Params params, const Pointers pointers) {
    __shared__ __align__(16) byte tile[TILE_ROWS * ROW_BYTES];
    unsigned unit = blockIdx.x;
    unsigned run_tile = draw(unit, params.group);
    unsigned rows_tile = draw(unit, params.rows.tiles);
    run_tile += draw(unit, params.groups) * params.group.count;
    if (run_tile >= params.run.tiles.count) return;
    Run run(params.run, run_tile, TILE_RUN, OVERLAP);
    Rows rows(params.rows, rows_tile, TILE_ROWS);
    Offsets at = params.outer.place(unit);
    at.add(1, run.first);
    at.add(1, rows.first);
    const bool is_inside = (!LOAD_SHIFTED || goes_on(params, rows, 0, TILE_ROWS)) &&
                           (!STORE_SHIFTED || run.start);
    if (run.count == TILE_RUN && rows.count == TILE_ROWS && is_inside)
        move<true>(params, pointers, at, rows, run, tile);
    else
        move<false>(params, pointers, at, rows, run, tile);
}
