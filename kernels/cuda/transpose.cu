// A batch of 2-D transposes, tile by tile through shared memory, converted on the way out.
//
// The source is contiguous along `rows`, the output along `run`; either may be two loops fused. A
// 3-D reversal is the same with the middle axis among the outer loops. A tile has TILE_ROWS places
// along `rows` and TILE_RUN along `run`, of which
//
//   - every source row gives, and every output row gets, at least 128 bytes in a row;
//   - LOAD bytes are read and STORE bytes are written at once: 16 where the host has proved that
//     all rows begin on a multiple of 16, less where they do not;
//   - items of less than 4 bytes are put together, on their way in, with their neighbours along
//     the run, so that shared memory is written in whole banks.
//
// The tile lies in shared memory in the output's order. Its 16-byte columns are exchanged (XOR) by
// the place along `rows`, so that eight threads that write neighbours along `rows` and eight that
// read neighbours along the run both meet all 32 banks, and 16 bytes stay together.

#include "walk.cuh"
#include "numeric.cuh"

struct Params {
    Loops outer;
    Axis rows, run;
    int64 channels;
};

typedef Span<ROWS_FUSED> Rows;
typedef Span<RUN_FUSED> Run;

constexpr int ROW_BYTES = TILE_RUN * ITEM;
constexpr int PACK = larger(1, 4 / ITEM);  // neighbours along the run in one bank
constexpr int BANK = PACK * ITEM;
constexpr int PER_LOAD = LOAD / ITEM, PER_STORE = STORE / OUT;
constexpr int EXCHANGED = larger(1, 16 / ITEM);

INLINE int slot(int row, int column) {
    return row * ROW_BYTES + (column ^ (row / EXCHANGED & 7) << 4);
}

// Whole tiles are moved without asking what exists, so that a thread has several reads under way.
constexpr int UNDER_WAY = 4;

// Read the tile: threads next to each other read along `rows`.
template <bool WHOLE>
INLINE void load(const Params &params, const byte *src, const Rows &rows, const Run &run,
                 byte *tile) {
    constexpr int LOADS = TILE_ROWS / PER_LOAD;  // of one source row
    constexpr int LANES = smaller(LOADS, LOAD == 16 ? 8 : 32);
    constexpr int GROUPS = TILE_RUN / PACK;
    constexpr int TURNS = LOADS * GROUPS / THREADS;
    constexpr int BATCH = smaller(TURNS, larger(1, UNDER_WAY / PACK));
#pragma unroll
    for (int first = 0; first < TURNS; first += BATCH) {
        Items<Source, PER_LOAD> pieces[BATCH][PACK];
        int row[BATCH], group[BATCH];
#pragma unroll
        for (int turn = 0; turn < BATCH; ++turn) {
            int unit = (first + turn) * THREADS + threadIdx.x;
            group[turn] = unit / LANES % GROUPS;
            row[turn] = (unit % LANES + unit / (LANES * GROUPS) * LANES) * PER_LOAD;
            int left = (int)rows.count - row[turn];
#pragma unroll
            for (int i = 0; i < PACK; ++i) {
                unsigned place = group[turn] * PACK + i;
                if (WHOLE || (place < run.count && left > 0))
                    pieces[turn][i].template read<LOAD, WHOLE>(
                        src + run.place(params.run, place).src + row[turn] * ITEM, left);
            }
        }
#pragma unroll
        for (int turn = 0; turn < BATCH; ++turn)
#pragma unroll
            for (int j = 0; j < PER_LOAD; ++j) {
                Items<Source, PACK> bank;
#pragma unroll
                for (int i = 0; i < PACK; ++i) bank.item[i] = pieces[turn][i].item[j];
                bank.template write<BANK>(tile + slot(row[turn] + j, group[turn] * BANK));
            }
    }
}

// Write the tile: threads next to each other write along the run.
template <bool WHOLE>
INLINE void store(const Params &params, byte *dst, const byte *coefficients, int64 coef,
                  const Rows &rows, const Run &run, const byte *tile) {
    constexpr int STORES = TILE_RUN / PER_STORE;  // of one output row
    constexpr int BYTES = PER_STORE * ITEM, PIECE = smaller(BYTES, 16);
    typedef Items<Source, PIECE / ITEM> Piece;
    Formula formula(coefficients, params.channels);
#pragma unroll 4
    for (int turn = 0; turn < STORES * TILE_ROWS / THREADS; ++turn) {
        int unit = turn * THREADS + threadIdx.x;
        int row = unit / STORES, place = unit % STORES * PER_STORE;
        if (!WHOLE && (row >= (int)rows.count || place >= (int)run.count)) continue;
        Items<Source, PER_STORE> items;
#pragma unroll
        for (int i = 0; i < BYTES / PIECE; ++i) {
            Piece part;
            part.template read<PIECE>(tile + slot(row, place * ITEM + i * PIECE));
#pragma unroll
            for (int j = 0; j < PIECE / ITEM; ++j)
                items.item[i * (PIECE / ITEM) + j] = part.item[j];
        }
        Offsets at = rows.place(params.rows, row);
        auto coefficient = [&](int i) {
            int64 place_of_row = coef + at.coef;
            return COEFFICIENTS == 2 ? place_of_row + run.place(params.run, place + i).coef
                                     : place_of_row;
        };
        epilogue(items, formula, coefficient)
            .template write<STORE, WHOLE>(dst + at.dst + place * OUT, (int)run.count - place);
    }
}

template <bool WHOLE>
INLINE void move(const Params &params, const Pointers &pointers, const Offsets &at,
                 const Rows &rows, const Run &run, byte *tile) {
    load<WHOLE>(params, pointers.src[0] + at.src, rows, run, tile);
    __syncthreads();
    store<WHOLE>(params, pointers.dst + at.dst, pointers.coefficients, at.coef, rows, run, tile);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    transpose(const Params params, const Pointers pointers) {
    __shared__ __align__(16) byte tile[TILE_ROWS * ROW_BYTES];
    unsigned unit = blockIdx.x;
    unsigned run_tile = draw(unit, params.run.tiles);
    unsigned rows_tile = draw(unit, params.rows.tiles);
    Run run(params.run, run_tile, TILE_RUN);
    Rows rows(params.rows, rows_tile, TILE_ROWS);
    Offsets at = params.outer.place(unit);
    at.add(1, run.first);
    at.add(1, rows.first);
    if (run.count == TILE_RUN && rows.count == TILE_ROWS)
        move<true>(params, pointers, at, rows, run, tile);
    else
        move<false>(params, pointers, at, rows, run, tile);
}
