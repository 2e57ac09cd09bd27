// Collate windows of many samples into one batch: crop, flip, select channels, fill, convert.
//
// A block writes a tile of the batch (samples.cuh).
//
//   1. LANES threads read a line of the samples into shared memory, adjacent threads adjacent words,
//      and items one by one where a word would reach out of the sample, or a line is not contiguous.
//   2. Threads read the items of words of the batch from shared memory, convert and write them.

#include "samples.cuh"

struct Params : Launch<Windows> {};

// Words of shared memory in which a thread of a warp begins are in different banks, if lines are
// the innermost axis of the batch.
constexpr int STEP = larger(4, BYTES) / BYTES;
constexpr int UNIT = larger(larger(STEP, PER), WIDTH);  // a line is a multiple of words on both sides
constexpr int PITCH = ceiling(TILE_U * PIXEL, UNIT) * UNIT;
constexpr int PUT = LAST == R ? STEP * BYTES : WORD;
// The items of a word of the batch are adjacent in a line.
constexpr bool ADJACENT = LAST == V ? !IS_ORDERED : LAST == U && PIXEL == 1;
constexpr int GET = piece(WIDTH * BYTES, 16);
INLINE int begin_of(int line) { return line * PITCH + (LAST == R ? line / WIDTH * STEP : 0); }
constexpr int HELD = TILE_R * PITCH + (LAST == R ? TILE_R / WIDTH * STEP : 0);

constexpr int APART = LAST == R ? PITCH : PIXEL;  // from one item of a word to the next along R or U

// Return the place of an item in shared memory.
INLINE int slot(const Place &place) {
    return begin_of(place.at[R]) + place.at[U] * PIXEL + place_in_pixel(place.at[V]);
}

constexpr int WORDS = TILE_R * TILE_U * TILE_V / WIDTH, TURNS = ceiling(WORDS, THREADS);
// Threads that read a line, and the words that each of them waits for.
constexpr int LANES = smaller(32, power_from(PITCH / PER));
constexpr int DEPTH = smaller(32 / WORD, ceiling(PITCH, PER * LANES));

// Return an item in the form that the formula expects. NEAREST: it is a float, and the sum of one tap.
template <class Dtype> INLINE Source source_of(typename Dtype::memory item) {
    if constexpr (NEAREST) return multiply_add(cast<f4, Dtype, false>(item), 1, 0);
    else return item;
}

// Put all lines into shared memory.
INLINE void load_lines(const Windows &windows, const byte *table, const byte *samples,
                       const Line *lines, unsigned rows, Item *memory) {
    const int lane = threadIdx.x % LANES;
    for (unsigned r = threadIdx.x / LANES; r < rows; r += THREADS / LANES) {
        const Line &line = lines[r];
        const int count = line.columns * PIXEL;
        const int first = ceiling(line.begin, PER) * PER;
        const int room = smaller(line.end, count + PER - 1) - first;
        const int end = first + (room > 0 ? room / PER * PER : 0);
        Item *to = memory + begin_of(r);
#pragma unroll 1
        for (int item = first + lane * PER; item < end; item += LANES * PER * DEPTH) {
            Items<Item, PER> words[DEPTH];
#pragma unroll
            for (int i = 0; i < DEPTH; ++i)  // words past the end are read as the last one
                words[i] = read_word(samples + line.first +
                                     smaller(item + i * LANES * PER, end - PER) * BYTES);
#pragma unroll
            for (int i = 0; i < DEPTH; ++i) {
                const int place = item + i * LANES * PER;
                if (place < end && !(REVERSED && line.is_reversed))
                    words[i].template write<PUT>((byte *)(to + place));
                if (!REVERSED || !line.is_reversed || place >= end) continue;
#pragma unroll
                for (int n = 0; n < PER; ++n)
                    if (place + n < count) put(to + item_of(line, place + n), words[i].item[n]);
            }
        }
#pragma unroll 1
        for (int item = lane;; item += LANES) {
            if (item >= first && item < end) item += ceiling(end - item, LANES) * LANES;
            if (item >= count) break;
            const int place = item_of(line, item);
            put(to + place, read_item(windows, table, samples, line, place, 0, line.is_inside));
        }
    }
}

// Blocks of a multiprocessor, for which the compiler leaves enough registers: without a number it
// spills some of them to make room for another block.
constexpr bool FEW = INSIDE && !MAPS && !REVERSED && BYTES < 16 && READ == BYTES && (WIDTH > 1 || TURNS <= 4);

extern "C" __global__ void __launch_bounds__(THREADS, FEW ? 8 : 5)
    collate(const Params launch, const Pointers pointers) {
    __shared__ __align__(16) byte memory[HELD * BYTES];
    __shared__ Line lines[TILE_R];
    Item *const items = (Item *)memory;
    const byte *table = pointers.src[0];

    unsigned unit = blockIdx.x;
    int64 dst = 0;
    const Windows &params = launch.batch_of(table, unit, dst);
    const Tile tile(params, unit, dst);
    const unsigned row = threadIdx.x;
    if (row < tile.count[R]) {
        Line line = {};
        line.sample = tile.sample(row), line.is_inside = true;
        const Sample &sample = sample_at(params, table, line.sample);
        line.src = sample.src, line.fill = line.sample * params.sample.src;
        if (R_AXIS != AXES) line.go(table, sample, params.tile[R], tile.start[R] + row);
#pragma unroll
        for (int i = 0; i < OTHERS; ++i) line.go(table, sample, params.other[i], tile.other[i]);
        if (line.choose(sample, tile.start[U], (int)tile.count[U]))
            line.choose_words(sample.side[TAPS], line.first - sample.begin, sample.end - line.first);
        lines[row] = line;
    }
    __syncthreads();
    load_lines(params, table, pointers.src[1], lines, tile.count[R], items);
    __syncthreads();

    Formula formula(pointers.coefficients);
    const int coef = (int)tile.at.coef;
#pragma unroll (TURNS <= 8 ? TURNS : 4)
    for (int turn = 0; turn < TURNS; ++turn) {
        const Place first((turn * THREADS + threadIdx.x) * WIDTH);
        if (!first.is_in(tile)) continue;
        Items<Item, WIDTH> values;
        if (ADJACENT) values.template read<GET>((const byte *)(items + slot(first)));
        Items<Source, WIDTH> word;
#pragma unroll
        for (int i = 0; i < WIDTH; ++i) {
            if (!ADJACENT)
                values.item[i] = get(items + (LAST == V ? slot(first.next(i)) : slot(first) + i * APART));
            if constexpr (IGNORES != 0) {
                const Item *fill = (const Item *)(table + params.fill) + tile.at.src;
                if (is_ignored(cast<f8, SAMPLE, false>(values.item[i])))
                    values.item[i] = get(fill + first.next(i).index(params, &Offsets::src));
            }
            word.item[i] = source_of<SAMPLE>(values.item[i]);
        }
        const auto done = epilogue(word, formula, [&](int i) {
            return coef + first.next(i).index(params, &Offsets::coef);
        });
        done.template write<WRITE>(pointers.dst + tile.at.dst + first.offset(params, tile));
    }
}
