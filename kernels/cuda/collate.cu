// Collate windows of many samples into one batch: crop, flip, select channels, fill, resize, convert.
//
// A block writes a tile of the batch: TILE_R by TILE_U by TILE_V positions along three axes, R, U and
// V. The samples are contiguous along V within U, if strides allow, and the batch along the axis
// LAST. A *line* is the part of a sample at one position of R and all others but U and V.
//
//   1. LANES threads read a line of the samples into shared memory, adjacent threads adjacent words,
//      and items one by one where a word would reach out of the sample, or a line is not contiguous. If
//      axes other than U are resized (TAPS of them), an item of a line is a weighted sum.
//   2. Threads read the items of words of the batch from shared memory, convert and write them. If U
//      is resized (LINE_TAPS), such an item is a weighted sum of items of its line. Long lines go
//      through shared memory in parts of COLUMNS positions.
//
// Sums are of float32, in the order of the taps, the first resized axis first: results depend
// neither on the tile nor on other samples. Addresses, sizes and taps differ between samples, and
// are in a table in device memory, which collate.py describes. Positions outside of a sample are
// filled; INSIDE: there are none.

#define SOURCES 2
#include "walk.cuh"
#include "numeric.cuh"

constexpr int R = 0, U = 1, V = 2;

// An axis of a sample. A position of the window (of the crop, if the axis is resized) stands for the
// index x: itself, or its entry in a table.
struct Side {
    int64 from;       // bytes from x to x + 1
    int64 low, high;  // an x outside of them lies outside of the sample
    int64 map;        // offset of the table of indices; 0: there is none
    int64 taps;       // offset of the tap table of a resized axis; 0: it is not resized
    int64 length;     // positions of the window
};

struct Sample {
    int64 src;         // bytes to the item whose x is 0 on every axis
    int64 begin, end;  // bytes to the sample's memory and to its end
    Side side[AXES];   // first the TAPS resized ones, then U and V
};

// The positions of the window along an axis, or of tiles of it. The steps of `src` are in fill values.
struct Along {
    Loop loop;
    int64 axis;  // of a sample; AXES: the samples
};

struct Params {
    uint64 table, fill;           // offsets of samples and of fill values in the table
    Divisor each;                 // blocks of a sample, or of TILE_R samples
    Along tile[3];                // its loops divide blocks into tiles
    uint64 length[3];             // positions along the axes of the tile
    Along other[larger(1, OTHERS)];
    Offsets sample;  // the step from a sample to the next
};

typedef SAMPLE::memory Item;
constexpr int BYTES = sizeof(Item);
constexpr bool FLOATS = TAPS || LINE_TAPS;  // sums

template <bool> struct Kept { typedef Item type; };
template <> struct Kept<true> { typedef float type; };
typedef Kept<FLOATS>::type Held;  // in shared memory

// Words of shared memory in which a thread of a warp begins are in different banks, if lines are
// the innermost axis of the batch.
constexpr int STEP = larger(4, sizeof(Held)) / sizeof(Held);
// Items of a line that are read at once, and their bytes.
constexpr int PER = (BYTES < 4 ? 8 : 16) / BYTES;
constexpr int WORD = PER * BYTES;
constexpr int UNIT = larger(larger(STEP, PER), WIDTH);  // a line is a multiple of words on both sides
constexpr int PITCH = ceiling(COLUMNS * TILE_V, UNIT) * UNIT;
constexpr int PUT = LAST == R ? STEP * sizeof(Held) : smaller(16, PER * sizeof(Held));
// The items of a word of the batch lie together in a line.
constexpr bool ADJACENT = !LINE_TAPS && (LAST == V || (LAST == U && TILE_V == 1));
constexpr int APART = LAST == R ? PITCH : TILE_V;  // or so many of them from one to the next
constexpr int GET = piece(WIDTH * sizeof(Held), 16);
INLINE int begin_of(int line) { return line * PITCH + (LAST == R ? line / WIDTH * STEP : 0); }
constexpr int HELD = TILE_R * PITCH + (LAST == R ? TILE_R / WIDTH * STEP : 0);

// Channels that have the same taps along U are summed by one thread.
INLINE constexpr int divisor_of(int n, int most) {
    return n % most ? divisor_of(n, most - 1) : most;
}
constexpr int BESIDE = LINE_TAPS ? divisor_of(TILE_V, 8) : 1;
constexpr int NEIGHBORS = LINE_TAPS ? BESIDE : WIDTH;
INLINE constexpr int extent(int axis) {
    return axis == R ? TILE_R : axis == U ? TILE_U : TILE_V / BESIDE;
}
constexpr int WORDS = TILE_R * TILE_U * extent(V) / WIDTH, TURNS = ceiling(WORDS, THREADS);
// Threads that read a line, and the words that each of them waits for.
constexpr int LANES = smaller(32, power_from(PITCH / PER));
constexpr int DEPTH = FLOATS ? 1 : smaller(32 / WORD, ceiling(PITCH, PER * LANES));

template <class T> INLINE T get(const T *from) {
    Items<T, 1> one;
    one.template read<sizeof(T)>((const byte *)from);
    return one.item[0];
}

template <class T> INLINE void put(T *to, T value) {
    const Items<T, 1> one = {{value}};
    one.template write<sizeof(T)>((byte *)to);
}

INLINE const Sample &sample_at(const Params &params, const byte *table, uint64 number) {
    return ((const Sample *)(table + params.table))[number];
}

// The source positions that contribute to a position of the window, and their weights.
struct Taps {
    int64 first;
    int count;
    const float *weights;
    int64 length;

    INLINE Taps(const byte *table, const Side &side, int64 place) : length(side.length) {
        Items<int, 2> position;
        position.template read<8>(table + side.taps + 8 * place);
        first = position.item[0], count = position.item[1];
        weights = (const float *)(table + side.taps + 8 * length) + place;
    }

    // Neighboring positions have neighboring weights of a tap.
    INLINE float weight(int tap) const { return get(weights + tap * length); }
};

// The source positions of U that a position of the window needs; none if `end` is `first`.
struct Reach {
    int first, end;
};

INLINE int clamped(int64 n, int64 most) { return (int)(n < 0 ? 0 : n < most ? n : most); }

struct Line {
    int64 src, first;   // bytes to the item whose x is 0 on U and V, and to the first one on U
    int64 fill, low;    // its fill value; its first position of U that the tile needs
    int columns;        // positions of U that the tile needs
    int begin, end;     // items that are read in words, since all bytes around them are the sample's
    unsigned sample, turn[TAPS + 1];
    bool is_inside, is_covered;  // not outside of the sample; has taps along all axes

    // Go to a position along an axis.
    INLINE void go(const byte *table, const Sample &of, const Along &along, int64 place) {
        fill += place * along.loop.step.src;
        const Side &side = of.side[along.axis];
#pragma unroll
        for (int i = 0; i < TAPS; ++i) turn[i] = along.axis == i ? (unsigned)place : turn[i];
        if (TAPS && along.axis < TAPS) {
            is_covered = is_covered && Taps(table, side, place).count > 0;
            return;
        }
        const int64 x = MAPS && side.map ? ((const int64 *)(table + side.map))[place] : place;
        is_inside = is_inside && (INSIDE || (x >= side.low && x < side.high));
        src += x * side.from;
    }

    // Choose the positions of U that positions `start` to `start + count` of the window need.
    INLINE void choose(const byte *table, const Sample &of, int64 start, int count,
                       const Reach *reaches) {
        const Side u = of.side[TAPS], v = of.side[TAPS + 1];
        const int64 ahead = of.begin, behind = of.end;
        low = start, columns = count;
        if (LINE_TAPS) {
            // In any order: positions may be flipped, and taps whose weight is 0 are left out.
            int from = 0, end = 0;
#pragma unroll 4
            for (int i = 0; i < count; ++i) {
                const Reach reach = reaches[i];
                if (reach.first == reach.end) continue;
                from = end ? smaller(from, reach.first) : reach.first;
                end = larger(end, reach.end);
            }
            low = from, columns = end - from;
        }
        first = src + low * u.from;
        end = 0;
        const bool is_packed = READ == BYTES && !u.map && !v.map && u.from == TILE_V * BYTES &&
                               (TILE_V == 1 || v.from == BYTES) && is_inside;
        if (is_packed && (INSIDE || (v.low <= 0 && v.high >= TILE_V))) choose_words(table, of, u, first - ahead, behind - first);
    }

    // Choose the items around which words lie in the sample, and so does all that taps refer to.
    // `before`, `after`: the bytes of the sample before and after the first item.
    INLINE void choose_words(const byte *table, const Sample &of, const Side &u, int64 before,
                             int64 after) {
#pragma unroll
        for (int i = 0; i < TAPS; ++i) {
            const Side &side = of.side[i];
            const Taps taps(table, side, turn[i]);
            const int64 last = taps.first + taps.count - 1;
            if (!INSIDE && (taps.first < side.low || last >= side.high)) return;
            const int64 one = taps.first * side.from, other = last * side.from;
            before += one < other ? one : other;
            after -= one < other ? other : one;
        }
        const int64 room = (after - WORD) / BYTES, size = (int64)columns * TILE_V + PER;
        begin = before < WORD ? ceiling((int)(WORD - before), BYTES) : 0;
        if (!INSIDE && u.low > low) begin = larger(begin, clamped((u.low - low) * TILE_V, size));
        end = clamped(room, size);
        if (!INSIDE && u.high < low + columns) end = smaller(end, clamped((u.high - low) * TILE_V, size));
    }
};

template <class Dtype> INLINE Held held(typename Dtype::memory item) {
    if constexpr (FLOATS) return cast<f4, Dtype, false>(item);
    else return item;
}

// Return an item as the formula takes it. NEAREST: it is a float, and the sum of one tap.
template <class Dtype> INLINE Source source_of(Held value) {
    if constexpr (NEAREST) return multiply_add(cast<f4, Dtype, false>(value), 1, 0);
    else return value;
}

INLINE float add(float value, float weight, float sum) { return multiply_add(value, weight, sum); }
template <class T> INLINE T add(T value, float, T) { return value; }  // items without sums

// A part of a line: its positions of U from `begin` on.
struct Part {
    const Params &params;
    const byte *table, *samples;
    const Line &line;
    int begin;

    // Read an item, which may lie outside of the sample.
    INLINE Held item_at(int item, int64 offset, bool exists) const {
        const Sample &sample = sample_at(params, table, line.sample);
        const Side &u = sample.side[TAPS], &v = sample.side[TAPS + 1];
        const int64 place = line.low + begin + item / TILE_V;
        const int part = item % TILE_V;
        const int64 x = MAPS && u.map ? ((const int64 *)(table + u.map))[place] : place;
        const int64 y = MAPS && v.map ? ((const int64 *)(table + v.map))[part] : part;
        if (INSIDE || (exists && x >= u.low && x < u.high && y >= v.low && y < v.high)) {
            Items<Item, 1> one;
            one.template read<READ>(samples + line.src + offset + x * u.from + y * v.from);
            return held<SAMPLE>(one.item[0]);
        }
        const int64 fill = line.fill + place * params.tile[U].loop.step.src +
                           part * params.tile[V].loop.step.src;
        return held<SAMPLE>(get((const Item *)(table + params.fill) + fill));
    }

    // Sum neighboring items over the taps of the first LEVEL axes: PER of them, or one.
    template <int LEVEL, int COUNT>
    INLINE void sum(int item, int64 offset, bool exists, Held (&values)[COUNT]) const {
        if constexpr (LEVEL > 0) {
            const Side &side = sample_at(params, table, line.sample).side[LEVEL - 1];
            const Taps taps(table, side, line.turn[LEVEL - 1]);
            const int64 from = side.from, low = side.low, high = side.high;
#pragma unroll
            for (int i = 0; i < COUNT; ++i) values[i] = Held{};
#pragma unroll (LEVEL == 1 && COUNT > 1 && INSIDE ? 2 : 1)
            for (int tap = 0; tap < taps.count; ++tap) {
                const int64 x = taps.first + tap;
                const float weight = taps.weight(tap);
                Held inner[COUNT];
                sum<LEVEL - 1>(item, offset + x * from,
                               exists && (INSIDE || (x >= low && x < high)), inner);
#pragma unroll
                for (int i = 0; i < COUNT; ++i) values[i] = add(inner[i], weight, values[i]);
            }
        } else if constexpr (COUNT == 1) {
            values[0] = item_at(item, offset, exists);
        } else {
            const byte *at = samples + line.first + offset + (begin * TILE_V + item) * BYTES;
            const unsigned by = (unsigned)(uint64)at % WORD;
            Items<Item, PER> word;
            word.read_across(at - by, at - by + WORD, by);
#pragma unroll
            for (int i = 0; i < PER; ++i) values[i] = held<SAMPLE>(word.item[i]);
        }
    }

    // Put the first `count` items into shared memory one by one, except those from `begin` to `end`.
    INLINE void load_items(int begin, int end, int count, Held *to) const {
#pragma unroll 1
        for (int item = threadIdx.x % LANES;; item += LANES) {
            if (item >= begin && item < end) item += ceiling(end - item, LANES) * LANES;
            if (item >= count) return;
            Held one[1];
            sum<TAPS>(item, 0, line.is_inside, one);
            put(to + item, one[0]);
        }
    }

    // Put words of items into shared memory.
    INLINE void load_words(int first, int end, Held *to) const {
#pragma unroll 1
        for (int item = first + threadIdx.x % LANES * PER; item < end; item += LANES * PER * DEPTH) {
            Items<Held, PER> words[DEPTH];
#pragma unroll
            for (int i = 0; i < DEPTH; ++i)  // words behind the end are read as the last one
                sum<TAPS>(smaller(item + i * LANES * PER, end - PER), 0, true, words[i].item);
#pragma unroll
            for (int i = 0; i < DEPTH; ++i)
                if (item + i * LANES * PER < end)
                    words[i].template write<PUT>((byte *)(to + item + i * LANES * PER));
        }
    }
};

// Put a part of all lines into shared memory, `begin` positions behind their first ones.
INLINE void load_lines(const Params &params, const byte *table, const byte *samples,
                       const Line *lines, unsigned rows, int begin, Held *memory) {
    for (unsigned r = threadIdx.x / LANES; r < rows; r += THREADS / LANES) {
        const Line &line = lines[r];
        if (!line.is_covered) continue;
        const Part part = {params, table, samples, line, begin};
        const int count = smaller(line.columns - begin, COLUMNS) * TILE_V;
        const int first = ceiling(larger(line.begin - begin * TILE_V, 0), PER) * PER;
        const int room = smaller(line.end - begin * TILE_V, count + PER - 1) - first;
        const int end = first + (room > 0 ? room / PER * PER : 0);
        part.load_words(first, end, memory + begin_of(r));
        part.load_items(first, end, count, memory + begin_of(r));
    }
}

// The position of an item of the batch in the tile: along R, U and V.
struct Place {
    unsigned at[3];

    INLINE Place(unsigned item) {
        at[LAST] = item % extent(LAST), item /= extent(LAST);
        at[MIDDLE] = item % extent(MIDDLE), at[FIRST] = item / extent(MIDDLE);
        at[V] *= BESIDE;
    }

    // Return the item `i` places behind the first one of a word. JOINED: a word may extend over
    // several positions of U.
    INLINE Place next(int i) const {
        Place place = *this;
        place.at[LINE_TAPS ? V : LAST] += i;
        if (JOINED) place.at[U] += place.at[V] / TILE_V, place.at[V] %= TILE_V;
        return place;
    }

    INLINE int slot(int64 column) const {
        return begin_of(at[R]) + (int)column * TILE_V + at[V];
    }
};

// Add the taps of channels that lie in a part of the lines, `begin` positions behind the first ones.
INLINE void add_taps(const Params &params, const byte *table, const Line *lines, int64 start,
                     const Place &place, int begin, const Held *memory, Held (&sums)[BESIDE]) {
    const Line &line = lines[place.at[R]];
    const Taps taps(table, sample_at(params, table, line.sample).side[TAPS], start + place.at[U]);
    const int64 before = taps.first - line.low - begin;  // positions of this part
    const int low = before < 0 ? (int)-before : 0;
    const int high = before + taps.count > COLUMNS ? (int)(COLUMNS - before) : taps.count;
    const Held *values = memory + place.slot(before);
#pragma unroll 4
    for (int tap = low; tap < high; ++tap) {
        const float weight = taps.weight(tap);
#pragma unroll
        for (int i = 0; i < BESIDE; ++i)
            sums[i] = add(get(values + tap * TILE_V + i), weight, sums[i]);
    }
}

// Return the offset of a place in the output, relative to the tile.
INLINE int64 offset_of(const Params &params, const Place &place) {
    int64 offset = place.at[FIRST] * params.tile[FIRST].loop.step.dst;
    offset += place.at[MIDDLE] * params.tile[MIDDLE].loop.step.dst;
    return offset + (WIDTH > 1 ? (int64)(place.at[LAST] * OUT)
                               : place.at[LAST] * params.tile[LAST].loop.step.dst);
}

// Return the index of the coefficients or the fill value of a place, relative to the tile.
INLINE int index_of(const Params &params, const Place &place, int64 Offsets::*side) {
    int index = 0;
#pragma unroll
    for (int i = 0; i < 3; ++i) index += place.at[i] * (int)(params.tile[i].loop.step.*side);
    return index;
}

// Return true if a position of the window has taps along all axes.
INLINE bool is_covered(const Params &params, const byte *table, const Line &line, int64 place) {
    if (!LINE_TAPS) return line.is_covered;
    return line.is_covered && Taps(table, sample_at(params, table, line.sample).side[TAPS], place).count > 0;
}

constexpr int SAMPLES = R_AXIS == AXES ? TILE_R : 1;  // of a block

// Blocks of a multiprocessor, for which the compiler leaves enough registers: without a number it
// spills some of them to make room for another block.
constexpr bool MANY = TAPS + LINE_TAPS > 2 || (LINE_TAPS && TURNS * BESIDE > 8);
constexpr bool FEW = INSIDE && !MAPS && BYTES < 16 && READ == BYTES && (WIDTH > 1 || TURNS <= 4);
constexpr int BLOCKS = MANY ? 2 : FLOATS ? 3 : FEW ? 8 : 5;

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    collate(const Params params, const Pointers pointers) {
    __shared__ __align__(16) byte memory[HELD * sizeof(Held)];
    __shared__ Line lines[TILE_R];
    __shared__ Reach reaches[LINE_TAPS ? SAMPLES * TILE_U : 1];
    Held *const items = (Held *)memory;
    const byte *table = pointers.src[0];

    unsigned unit = blockIdx.x, number = params.each.divide(unit);
    unit -= number * params.each.count;
    uint64 start[3] = {0, 0, 0};
    unsigned count[3];
    if (R_AXIS == AXES) start[R] = (uint64)number * TILE_R, number = 0;
    else start[R] = (uint64)draw(unit, params.tile[R].loop.turns) * TILE_R;
    start[U] = (uint64)draw(unit, params.tile[U].loop.turns) * TILE_U;
#pragma unroll
    for (int i = 0; i < 3; ++i) {
        const uint64 left = params.length[i] - start[i];
        count[i] = left < extent(i) ? (unsigned)left : extent(i);
    }
    Line line = {};
    line.is_inside = line.is_covered = true;
    line.sample = (unsigned)(R_AXIS == AXES ? start[R] + threadIdx.x : number);
    const bool has_line = threadIdx.x < count[R];
    const Sample &sample = sample_at(params, table, has_line ? line.sample : 0);
    if (has_line) {
        line.src = sample.src;
        if (R_AXIS != AXES) line.go(table, sample, params.tile[R], start[R] + threadIdx.x);
    }
    Offsets at = {0, 0, 0};
    at.add(number, params.sample);
#pragma unroll
    for (int i = 0; i < 2; ++i) at.add(start[i], params.tile[i].loop.step);
#pragma unroll
    for (int i = OTHERS - 1; i >= 0; --i) {
        const unsigned place = draw(unit, params.other[i].loop.turns);
        at.add(place, params.other[i].loop.step);
        if (has_line) line.go(table, sample, params.other[i], place);
    }
    // Many threads read at once what each line needs.
    for (unsigned i = threadIdx.x; LINE_TAPS && i < SAMPLES * TILE_U; i += THREADS) {
        const unsigned r = i / TILE_U, u = i % TILE_U;
        if (r >= (R_AXIS == AXES ? count[R] : 1) || u >= count[U]) continue;
        const Sample &of = sample_at(params, table, R_AXIS == AXES ? start[R] + r : number);
        const Taps taps(table, of.side[TAPS], start[U] + u);
        reaches[i].first = (int)taps.first, reaches[i].end = (int)taps.first + taps.count;
    }
    if (LINE_TAPS) __syncthreads();
    if (has_line) {
        line.choose(table, sample, start[U], (int)count[U],
                    reaches + (SAMPLES > 1 ? threadIdx.x * TILE_U : 0));
        lines[threadIdx.x] = line;
    }
    __syncthreads();

    Held sums[LINE_TAPS ? TURNS : 1][BESIDE] = {};
    int columns = 0;  // the most of any line
    for (unsigned r = 0; r < (R_AXIS == AXES ? count[R] : 1); ++r)
        columns = larger(columns, lines[r].columns);
    for (int begin = 0; begin < columns; begin += COLUMNS) {
        if (begin) __syncthreads();
        load_lines(params, table, pointers.src[1], lines, count[R], begin, items);
        __syncthreads();
        if (!LINE_TAPS) break;
#pragma unroll
        for (int turn = 0; turn < TURNS; ++turn) {
            const Place place(turn * THREADS + threadIdx.x);
            if (place.at[R] < count[R] && place.at[U] < count[U] && place.at[V] < TILE_V)
                add_taps(params, table, lines, start[U], place, begin, items, sums[LINE_TAPS ? turn : 0]);
        }
    }

    Formula formula(pointers.coefficients);
    const int coef = (int)at.coef;
    const Item *fill = (const Item *)(table + params.fill) + at.src;
#pragma unroll (LINE_TAPS || TURNS <= 8 ? TURNS : 4)
    for (int turn = 0; turn < TURNS; ++turn) {
        const unsigned item = (turn * THREADS + threadIdx.x) * WIDTH;
        const Place first(item);
        if (first.at[R] >= count[R] || first.at[U] >= count[U] || first.at[V] >= TILE_V) continue;
        Items<Held, NEIGHBORS> values;
        if (ADJACENT) values.template read<GET>((const byte *)(items + first.slot(first.at[U])));
        Items<Source, NEIGHBORS> word;
        bool covered = true;
#pragma unroll
        for (int i = 0; i < NEIGHBORS; ++i) {
            const Place place = first.next(i);
            // Channels of one position have the same taps.
            if (FLOATS && (!LINE_TAPS || !i))
                covered = is_covered(params, table, lines[place.at[R]], start[U] + place.at[U]);
            if (LINE_TAPS) values.item[i] = sums[LINE_TAPS ? turn : 0][LINE_TAPS ? i : 0];
            else if (!ADJACENT) values.item[i] = get(items + first.slot(first.at[U]) + i * APART);
            word.item[i] = source_of<SAMPLE>(values.item[i]);
            if (!covered)
                word.item[i] = source_of<SAMPLE>(held<SAMPLE>(get(fill + index_of(params, place, &Offsets::src))));
        }
        auto coefficient = [&](int i) {
            return coef + index_of(params, first.next(i), &Offsets::coef);
        };
        const auto done = epilogue(word, formula, coefficient);
        byte *to = pointers.dst + at.dst + offset_of(params, first);
        if (!LINE_TAPS) {
            done.template write<WRITE>(to);
            continue;
        }
#pragma unroll
        for (int i = 0; i < BESIDE; ++i) {
            const Items<Target, 1> one = {{done.item[LINE_TAPS ? i : 0]}};
            one.template write<smaller(WRITE, OUT)>(to + i * params.tile[V].loop.step.dst);
        }
    }
}
