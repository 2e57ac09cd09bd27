// Resize windows of many samples into one batch: crop, flip, select channels, fill, convert.
//
// A warp writes a tile of the batch (samples.cuh) without waiting for other warps.
//
//   1. Threads sum words of the samples over the taps of all resized axes but U (TAPS of them), and
//      put the sums of several lines into shared memory. They share the words of all these lines.
//      Items are summed one by one where a word would reach out of the sample, or a line is not
//      contiguous.
//   2. A thread has a *column*: a position of U and up to 8 of V. For one line after the other, it
//      sums what is in shared memory over the taps of U (LINE_TAPS: U is resized), and converts the
//      sums. It writes them, or, if neighbors of the batch belong to other threads (STAGED), puts
//      them into shared memory, from where the warp writes words in the end.
//
// Lines that do not fit into shared memory go through it in parts. Sums are of the epilogue's source,
// float32 or float64, in the order of the taps, the first resized axis first: results depend neither
// on the tile nor on other samples.

#include "samples.cuh"

struct Resized : Windows {
    uint64 reaches;  // offset of the table of the positions of U that the tiles of samples need
    uint64 tiles;
};

struct Params : Launch<Resized> {};

constexpr int WARP = 32, WARPS = THREADS / WARP;
constexpr int GROUPS = ceiling(TILE_V, 8), BESIDE = ceiling(TILE_V, GROUPS);  // channels of a column
constexpr int COLUMNS = TILE_U * GROUPS;  // at most WARP
constexpr int ROWS = WARP / COLUMNS;      // lines that a warp sums at the same time
// Positions of U of each of these lines that are in shared memory at once; a multiple of PER, if
// there is room.
constexpr int MOST = ROOM / ROWS / PER * PER / PIXEL;
constexpr int PART = MOST < PER ? MOST : MOST / PER * PER;
constexpr int AHEAD = 4;  // taps whose words, or whose weights, a thread loads at once
constexpr int KEPT = 2;   // groups of weights of U in registers
// Items of the batch in shared memory. Rows of them begin in different banks.
constexpr int PITCH = extent(LAST) + (LAST == R ? 16 / OUT : 0);
constexpr int STAGE = STAGED ? extent(FIRST) * extent(MIDDLE) * PITCH : 1;

// Return the distance in items of lines of `columns` positions in shared memory.
INLINE int pitch_of(int columns) { return ceiling(columns * PIXEL, PER) * PER; }

// The taps of a position: the first source position, their number, and the offset of their weights.
struct Taps {
    int first, count;
    int64 weights;

    INLINE Taps() {}
    INLINE Taps(const byte *table, const Side &side, int64 place) {
        Items<int64, 2> head;
        head.template read<16>(table + side.taps + 16 * place);
        first = (int)head.item[0], count = (int)head.item[1];
        weights = side.weights + place * side.tap_bytes;
    }

    INLINE Source weight(const byte *table, int tap) const {
        return get((const Source *)(table + weights) + tap);
    }

    // Return the weights of AHEAD taps.
    INLINE Items<Source, AHEAD> group(const byte *table, int tap) const {
        Items<Source, AHEAD> some;
        some.template read<16>(table + weights + sizeof(Source) * tap);
        return some;
    }
};

// A sum of weighted items; IGNORES: of valid ones, with the sum of their weights, which divides it.
#if IGNORES
struct Sum {
    Source value, weight;
};
INLINE Sum summand(Source value) {
    const bool is_omitted = is_ignored(value);
    const Sum sum = {is_omitted ? (Source)0 : value, (Source)!is_omitted};
    return sum;
}
INLINE bool is_valid(const Sum &sum) { return sum.weight > (Source)LEAST; }
INLINE Source mean_of(const Sum &sum) { return quotient(sum.value, sum.weight); }
#else
typedef Source Sum;
INLINE Sum summand(Source value) { return value; }
INLINE bool is_valid(const Sum &) { return true; }
INLINE Source mean_of(const Sum &sum) { return sum; }
#endif

// GAPS: weights of 0 are gaps between taps. An item there may be NaN, and 0 * NaN is NaN.
INLINE Source add(Source value, Source weight, Source sum) {
    return GAPS && weight == 0 ? sum : multiply_add(value, weight, sum);
}
#if IGNORES
INLINE Sum add(const Sum &value, Source weight, const Sum &sum) {
    const Sum result = {add(value.value, weight, sum.value), add(value.weight, weight, sum.weight)};
    return result;
}
#endif
INLINE Source held(Item item) { return cast<SOURCE, SAMPLE, false>(item); }

// Return an item of a word as a float. Bytes are put into the mantissa of 2^23: two instructions.
template <class Dtype, int COUNT> INLINE Source held_of(const Items<Item, COUNT> &word, int i) {
    constexpr bool IS_SHORT = is_same<Dtype, u2>;
    if constexpr (is_same<Dtype, u1> || IS_SHORT) {
        const unsigned four = reinterpret_cast<const unsigned *>(word.item)[i * BYTES / 4];
        const unsigned place = i * BYTES % 4;
        const unsigned which = IS_SHORT ? 0x7600 | place | (place + 1) << 4 : 0x7660 | place;
        return plus(float_of(__byte_perm(four, 0x4b000000, which)), -8388608.0f);
    } else {
        return held(word.item[i]);
    }
}

struct Summed : Line {
    Taps taps[larger(1, TAPS)];
    int64 from[larger(1, TAPS)];  // bytes from one tap to the next
    bool is_covered;              // has taps along all of these axes

    INLINE void go(const byte *table, const Sample &of, const Along &along, int64 place) {
        if (TAPS == 0 || along.axis >= TAPS) {
            Line::go(table, of, along, place);
            return;
        }
        fill += place * along.loop.step.src;
#pragma unroll
        for (int i = 0; i < TAPS; ++i)
            if (along.axis == i) taps[i] = Taps(table, of.side[i], place), from[i] = of.side[i].from;
    }

    // Choose positions of U, and the items that are read in words: those whose words are inside the
    // sample for all taps. `first` becomes the address for the first taps.
    INLINE void choose(const Sample &of, int64 start, int count) {
        is_covered = true;
#pragma unroll
        for (int i = 0; i < TAPS; ++i) is_covered = is_covered && taps[i].count > 0;
        if (!Line::choose(of, start, count)) return;
        int64 low = 0, high = 0;  // from the first tap to the lowest and to the highest one
        bool is_word = true;
#pragma unroll
        for (int i = 0; i < TAPS; ++i) {
            const Side &side = of.side[i];
            const int more = taps[i].count - 1;
            if (!INSIDE)
                is_word = is_word && taps[i].first >= side.low && taps[i].first + more < side.high;
            first += taps[i].first * from[i];
            (from[i] < 0 ? low : high) += more * from[i];
        }
        if (is_word) choose_words(of.side[TAPS], first + low - of.begin, of.end - first - high);
        begin = ceiling(begin, PER) * PER;
        end = begin + (end > begin ? (end - begin) / PER * PER : 0);
    }
};

// A part of a line, in items: their number, and those that are read in words.
struct LinePart {
    int count, begin, end;

    INLINE bool has(int item) const { return item >= begin && item < end; }
};

INLINE LinePart part_of(const Line &line, int begin, int columns) {
    const int skipped = begin * PIXEL;
    LinePart part;
    part.count = smaller(line.columns - begin, columns) * PIXEL;
    part.begin = larger(line.begin - skipped, 0);
    part.end = smaller(line.end - skipped, ceiling(part.count, PER) * PER);
    if (PART * PIXEL % PER) {  // parts do not begin with whole words
        part.begin = ceiling(part.begin, PER) * PER;
        part.end = part.begin + (part.end > part.begin ? (part.end - part.begin) / PER * PER : 0);
    }
    return part;
}

// A position of U and BESIDE positions of V, from the first one on.
struct Column {
    unsigned u, first;
    Taps taps;
    Items<Source, AHEAD> weights[KEPT];  // of the first taps

    INLINE Column(unsigned number) : u(number % TILE_U), first(number / TILE_U * BESIDE) {}

    INLINE void read(const byte *table, const Side &side, int64 place) {
        taps.first = (int)place, taps.count = 1;
        if (!LINE_TAPS) return;
        taps = Taps(table, side, place);
#pragma unroll
        for (int n = 0; n < KEPT; ++n) {
            weights[n] = {};
            if (taps.count > n * AHEAD) weights[n] = taps.group(table, n * AHEAD);
        }
    }

    INLINE Place place(unsigned row, int i) const { return Place(row, u, first + i); }

    // Add what is in shared memory: `count` positions from `begin` on. `values` are the first one's.
    INLINE void add_taps(const byte *table, const Sum *values, int begin, int count,
                         Sum (&sums)[BESIDE]) const {
        const int before = taps.first - begin, high = smaller(taps.count, count - before);
        int tap = before < 0 ? -before : 0;
        values += before * PIXEL + (int)(IS_ORDERED ? 0 : first);
        if (!LINE_TAPS) {
#pragma unroll
            for (int i = 0; i < BESIDE; ++i)
                if (tap < high) sums[i] = get(values + position(i));
            return;
        }
        if (tap == 0) {
#pragma unroll
            for (; tap < KEPT * AHEAD; ++tap) {
                if (tap && tap % 2 == 0 && tap >= high) return;
                if (tap < high) add_tap(values, tap, weights[tap / AHEAD].item[tap % AHEAD], sums);
            }
        }
#pragma unroll 2
        for (; tap < high; ++tap) add_tap(values, tap, taps.weight(table, tap), sums);
    }

    INLINE static void add_tap(const Sum *values, int tap, Source weight, Sum (&sums)[BESIDE]) {
#pragma unroll
        for (int i = 0; i < BESIDE; ++i)
            sums[i] = add(get(values + tap * PIXEL + position(i)), weight, sums[i]);
    }
};

// What the threads of a warp share.
struct Warp {
    const Resized &params;
    const Pointers &pointers;
    const Tile &tile;
    const Summed *lines;
    Sum *memory;           // for lines
    Sum (*partial)[WARP];  // for the sums of columns between parts of lines
    Target *staged;
    const byte *table, *samples;
    unsigned lane;
    bool is_in_words;  // all items of lines are read in words

    // Add the words of all taps. Those of several taps are read before the first one is needed.
    INLINE void add_words(const Summed &line, const byte *at, Sum (&values)[PER]) const {
        const int64 from = line.from[0];
        int rest = line.taps[0].count;
#pragma unroll 1
        for (int tap = 0; rest; tap += AHEAD) {
            const Items<Source, AHEAD> weights = line.taps[0].group(table, tap);
            const Source *const weight = weights.item;
            if (rest >= AHEAD) {
                add_words<AHEAD>(at, from, weight, values);
                at += AHEAD * from, rest -= AHEAD;
                continue;
            }
            static_assert(AHEAD == 4, "up to three taps are left");
            if (rest >= 2) add_words<2>(at, from, weight, values);
            const Source last = rest == 3 ? weight[2] : weight[0];
            if (rest % 2) add_words<1>(at + (rest - 1) * from, from, &last, values);
            break;
        }
    }

    // Add the words of COUNT taps.
    template <int COUNT>
    INLINE void add_words(const byte *at, int64 from, const Source *weights,
                          Sum (&values)[PER]) const {
        Items<Item, PER> word[COUNT];
#pragma unroll
        for (int n = 0; n < COUNT; ++n) {
            // Three parts take fewer instructions than two words. `read_word` has two: memory, not
            // instructions, limits collate.cu.
            if constexpr (BYTES < 4) word[n].read_in_parts(at + n * from);
            else word[n] = read_word(at + n * from);
        }
#pragma unroll
        for (int n = 0; n < COUNT; ++n)
#pragma unroll
            for (int i = 0; i < PER; ++i)
                values[i] = add(summand(held_of<SAMPLE>(word[n], i)), weights[n], values[i]);
    }

    // Sum neighbors over the taps of the first LEVEL axes.
    template <int LEVEL>
    INLINE void sum_words(const Summed &line, const byte *at, Sum (&values)[PER]) const {
#pragma unroll
        for (int i = 0; i < PER; ++i) values[i] = Sum{};
        if constexpr (LEVEL == 0) {
            const Items<Item, PER> word = read_word(at);
#pragma unroll
            for (int i = 0; i < PER; ++i) values[i] = summand(held(word.item[i]));
        } else if constexpr (LEVEL == 1) {
            add_words(line, at, values);
        } else {
            const Taps &taps = line.taps[LEVEL - 1];
#pragma unroll 1
            for (int tap = 0; tap < taps.count; ++tap) {
                Sum inner[PER];
                sum_words<LEVEL - 1>(line, at + tap * line.from[LEVEL - 1], inner);
                const Source weight = taps.weight(table, tap);
#pragma unroll
                for (int i = 0; i < PER; ++i) values[i] = add(inner[i], weight, values[i]);
            }
        }
    }

    // Sum an item, which may be outside of the sample, over the taps of the first LEVEL axes.
    template <int LEVEL>
    INLINE Sum sum_item(const Summed &line, const Side *sides, int item, int64 offset,
                          bool exists) const {
        if constexpr (LEVEL == 0) {
            return summand(held(read_item(params, table, samples, line, item, offset, exists)));
        } else {
            const Taps &taps = line.taps[LEVEL - 1];
            const Side &side = sides[LEVEL - 1];
            Sum value = Sum{};
#pragma unroll 1
            for (int tap = 0; tap < taps.count; ++tap) {
                const int64 x = taps.first + tap;
                const bool is_inside = exists && (INSIDE || (x >= side.low && x < side.high));
                value = add(sum_item<LEVEL - 1>(line, sides, item, offset + x * side.from, is_inside),
                            taps.weight(table, tap), value);
            }
            return value;
        }
    }

    // Put the sums of a part of lines into shared memory: at most `columns` positions from `begin`
    // on of `rows` lines after the first `above`. A thread sums words of any of these lines.
    INLINE void load(unsigned above, unsigned rows, int begin, int columns) const {
        const int words = larger(ceiling(columns * PIXEL, PER), 1), pitch = pitch_of(columns);
        unsigned r = lane / words;
        int word = lane % words;
#pragma unroll 1
        while (r < rows) {
            const Summed &line = lines[above + r];
            const int item = word * PER;
            if ((COVERED || line.is_covered) && part_of(line, begin, columns).has(item)) {
                Items<Sum, PER> sums;
                sum_words<TAPS>(line, samples + line.first + (begin * PIXEL + item) * BYTES, sums.item);
                sums.template write<smaller(16, PER * (int)sizeof(Sum))>(
                    (byte *)(memory + r * pitch + item));
            }
            r += WARP / words, word += WARP % words;
            if (word >= words) word -= words, ++r;
        }
        if (is_in_words && PART * PIXEL % PER == 0) return;
        int shift = 5;  // 2^shift threads load the other items of a line
        while (shift && 1 << shift >= 2 * columns * PIXEL) --shift;
        const int mine = lane & ((1u << shift) - 1);
#pragma unroll 1
        for (unsigned r = lane >> shift; r < rows; r += WARP >> shift) {
            const Summed &line = lines[above + r];
            if (!COVERED && !line.is_covered) continue;
            const LinePart part = part_of(line, begin, columns);
            if (part.has(0) && part.end >= part.count) continue;
            const Side *sides = sample_at(params, table, line.sample).side;
#pragma unroll 1
            for (int item = mine; item < part.count; item += 1 << shift)
                if (!part.has(item))
                    put(memory + r * pitch + item,
                        sum_item<TAPS>(line, sides, begin * PIXEL + item, 0, line.is_inside));
        }
    }

    // Sum the columns of these lines, and write those whose sums are complete.
    INLINE void sum(unsigned above, unsigned rows, int begin, int columns, bool is_last) const {
        Column column(lane % COLUMNS);
        if (lane >= COLUMNS * ROWS || column.u >= tile.count[U]) return;
        const int64 place = tile.start[U] + column.u;
        const auto side = [&](unsigned number) -> const Side & {
            return sample_at(params, table, number).side[TAPS];
        };
        byte *const to = pointers.dst + tile.at.dst + column.place(0, 0).offset(params, tile);
        if (R_AXIS != AXES) column.read(table, side(tile.number), place);
        Formula formula[BESIDE];
        if (!BY_ROW) choose(formula, column, 0);
#pragma unroll 1
        for (unsigned r = lane / COLUMNS; r < rows; r += ROWS) {
            const Summed &line = lines[above + r];
            if (R_AXIS == AXES) column.read(table, side(line.sample), place);
            Sum sums[BESIDE];
#pragma unroll
            for (int i = 0; i < BESIDE; ++i) sums[i] = begin ? partial[i][lane] : Sum{};
            column.add_taps(table, memory + r * pitch_of(columns), (int)line.low + begin, columns, sums);
            if (!is_last) {
#pragma unroll
                for (int i = 0; i < BESIDE; ++i) partial[i][lane] = sums[i];
                continue;
            }
            if (BY_ROW) choose(formula, column, above + r);
            const bool has_taps = COVERED || (line.is_covered && column.taps.count > 0);
            const Item *fill = (const Item *)(table + params.fill) + tile.at.src;
            byte *const row = to + tile.dst(params, R, above + r);
#pragma unroll
            for (int i = 0; i < BESIDE; ++i) {
                if (column.first + i >= TILE_V) break;
                Source value = mean_of(sums[i]);
                if ((!COVERED || IGNORES) && !(has_taps && is_valid(sums[i])))
                    value = held(get(fill + column.place(above + r, i).index(params, &Offsets::src)));
                const Items<Target, 1> one = {{formula[i].apply(value)}};
                if (STAGED) put(staged + column.place(above + r, i).number(PITCH), one.item[0]);
                else one.template write<smaller(WRITE, OUT)>(row + tile.dst(params, V, i));
            }
        }
    }

    // Choose the coefficients of a column.
    INLINE void choose(Formula (&formula)[BESIDE], const Column &column, unsigned row) const {
#pragma unroll
        for (int i = 0; i < BESIDE; ++i) {
            formula[i] = Formula(pointers.coefficients);
            formula[i].choose((int)tile.at.coef + column.place(row, i).index(params, &Offsets::coef));
        }
    }

    // Write what is staged, in words.
    INLINE void write() const {
        constexpr int WORDS = extent(FIRST) * extent(MIDDLE) * extent(LAST) / WIDTH;
#pragma unroll 2
        for (int turn = 0; turn < ceiling(WORDS, WARP); ++turn) {
            const Place first((turn * WARP + lane) * WIDTH);
            if (!first.is_in(tile)) continue;
            Items<Target, WIDTH> word;
            word.template read<piece(WIDTH * OUT, 16)>((const byte *)(staged + first.number(PITCH)));
            word.template write<WRITE>(pointers.dst + tile.at.dst + first.offset(params, tile));
        }
    }
};

// Blocks of a multiprocessor, for which the compiler leaves enough registers: one block less for words
// of 16 bytes, for staged results, and for axes around the tile, parts and ignored items, which need
// more registers.
constexpr bool FEW = INSIDE && COVERED && !MAPS && LINE_TAPS && TAPS == 1 && R_AXIS == 0 &&
                     TILE_U >= 8 && BESIDE <= 4;
constexpr int BLOCKS = FEW ? 6 - (WORD == 16) - STAGED - (OTHERS > 0 || PACKED || IGNORES) : 4;

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    resize(const Params launch, const Pointers pointers) {
    __shared__ __align__(16) Sum memory[WARPS][ROOM];
    __shared__ __align__(16) Target staged[WARPS][STAGE];
    __shared__ Sum partial[WARPS][BESIDE][WARP];
    __shared__ Summed summed[WARPS][TILE_R];
    static_assert(sizeof(memory) + sizeof(staged) + sizeof(partial) + sizeof(summed) <= 48 << 10,
                  "a block has 48 KB of shared memory; see _room in collate.py");
    const byte *table = pointers.src[0];
    const unsigned warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    unsigned unit = blockIdx.x * WARPS + warp;
    if (unit >= launch.tiles) return;
    int64 dst = 0;
    const Resized &params = launch.batch_of(table, unit, dst);
    Summed *const lines = summed[warp];

    const Tile tile(params, unit, dst);
    bool has_others = false;  // items that are not read in words
    if (lane < tile.count[R]) {
        Summed line = {};
        line.sample = tile.sample(lane), line.is_inside = true;
        const Sample &sample = sample_at(params, table, line.sample);
        line.src = sample.src, line.fill = line.sample * params.sample.src;
        if (R_AXIS != AXES) line.go(table, sample, params.tile[R], tile.start[R] + lane);
#pragma unroll
        for (int i = 0; i < OTHERS; ++i) line.go(table, sample, params.other[i], tile.other[i]);
        Items<int, 2> reach = {{(int)tile.start[U], (int)tile.count[U]}};
        const uint64 tiles = params.tile[U].loop.turns.count;
        if (LINE_TAPS)
            reach.template read<8>(table + params.reaches +
                                   8 * (line.sample * tiles + tile.start[U] / TILE_U));
        line.choose(sample, reach.item[0], reach.item[1]);
        has_others = line.begin > 0 || line.end < line.columns * PIXEL;
        lines[lane] = line;
    }
    const bool is_in_words = !__any_sync(0xffffffff, has_others);
    __syncwarp();

    int longest = 0;
    for (unsigned r = 0; r < (R_AXIS == AXES ? tile.count[R] : 1); ++r)
        longest = larger(longest, lines[r].columns);
    const bool is_whole = ROWS * pitch_of(longest) <= ROOM;
    const int columns = is_whole ? longest : PART;
    int together = ROWS;  // lines in shared memory; of parts each thread keeps a single sum
    while (is_whole && (together + ROWS) * pitch_of(columns) <= ROOM && together < TILE_R)
        together += ROWS;

    const Warp self = {params,         pointers,     tile,  lines,           memory[warp],
                       partial[warp], staged[warp], table, pointers.src[1], lane,
                       is_in_words};
#pragma unroll 1
    for (unsigned above = 0; above < tile.count[R]; above += together) {
        const unsigned rows = smaller(together, tile.count[R] - above);
        int begin = 0;
#pragma unroll 1
        do {
            self.load(above, rows, begin, columns);
            __syncwarp();
            self.sum(above, rows, begin, columns, begin + columns >= longest);
            __syncwarp();
            begin += columns;
        } while (begin < longest);
    }
    if (STAGED) self.write();
}
