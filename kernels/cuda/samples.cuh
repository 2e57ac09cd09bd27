// Windows of many samples that become one batch: what the kernels of collate.cu and resize.cu share.
//
// A tile of the batch has TILE_R by TILE_U by TILE_V positions along three axes, R, U and V. The
// samples are contiguous along V within U, if strides allow, and the batch along the axis LAST. A
// *line* is the part of a sample at one position of R and all others but U and V.
//
// A position of U in a line is a pixel of PIXEL items, the positions of V. If channels are selected, it
// is a whole pixel of the samples, which has the positions of V at ORDER (walk.cuh).
//
// Addresses, sizes and taps differ between samples, and are in a table in device memory, which
// collate.py describes. Positions outside of a sample are filled; INSIDE: there are none.

#define SOURCES 2
#include "walk.cuh"
#include "numeric.cuh"

constexpr int R = 0, U = 1, V = 2;

// An axis of a sample. A position of the window (of the crop, if the axis is resized) stands for the
// index x: itself, or its entry in a table.
struct Side {
    int64 from;       // bytes from x to x + 1
    int64 low, high;  // an x outside of them is outside of the sample
    int64 map;        // offset of the table of indices; 0: there is none
    // Of a resized axis, in its tap table: the offsets of the first position and of its weights, and
    // the bytes from the weights of a position to the weights of the next one.
    int64 taps, weights, tap_bytes;
};

struct Sample {
    int64 src;         // bytes to the item whose x is 0 on every axis
    int64 begin, end;  // bytes to the sample's memory and to its end
    Side side[AXES];   // first the TAPS axes that are summed before U, then U and V
};

// A fold of an axis of samples in a packed batch: the distance in bytes between iterations of
// an outer loop, less the bytes of the positions of one iteration.
struct Fold {
    Divisor turns;
    int64 jump;
};

// The positions of the window along an axis, or of tiles of it. The steps of `src` are in fill values.
struct Along {
    Loop loop;
    int64 axis;  // of a sample; AXES: the samples
    Fold fold[larger(1, FOLDS)];

    // Return the offset in bytes of a position in the batch.
    INLINE int64 dst(uint64 place) const {
        int64 offset = (int64)place * loop.step.dst;
#pragma unroll
        for (int i = 0; i < FOLDS; ++i)
            offset += fold[i].turns.divide((unsigned)place) * fold[i].jump;
        return offset;
    }

    // Add the offsets of a position.
    INLINE void add(uint64 place, Offsets &at) const {
        at.add((int64)place, loop.step);
        if (FOLDS) at.dst += dst(place) - (int64)place * loop.step.dst;
    }
};

struct Windows {
    uint64 table, fill;  // offsets of samples and of fill values in the table
    Divisor each;        // tiles of a sample, or of TILE_R samples
    Along tile[3];       // its loops divide a sample into tiles
    uint64 length[3];    // positions along the axes of the tile
    Along other[larger(1, OTHERS)];
    Offsets sample;  // the step from a sample to the next
};

// The parameters of a launch. PACKED: windows differ in size, and the table has a part for each sample:
// its first tile, the bytes to its place in the batch, and the parameters of a batch of this sample.
template <class Batch> struct Part {
    uint64 tile;
    int64 dst;
    Batch batch;
};

#if PACKED
template <class Batch> struct Launch {
    uint64 parts, count, tiles;  // the offset of the parts in the table

    // Return the batch of a tile, which becomes its number in this batch, and the place of the batch.
    INLINE const Batch &batch_of(const byte *table, unsigned &tile, int64 &dst) const {
        const Part<Batch> *const all = (const Part<Batch> *)(table + parts);
        unsigned low = 0, high = (unsigned)count;
        while (high - low > 1) {
            const unsigned middle = (low + high) / 2;
            if (all[middle].tile <= tile) low = middle;
            else high = middle;
        }
        tile -= (unsigned)all[low].tile, dst = all[low].dst;
        return all[low].batch;
    }
};
#else
template <class Batch> struct Launch : Batch {
    INLINE const Batch &batch_of(const byte *, unsigned &, int64 &) const { return *this; }
};
#endif

typedef SAMPLE::memory Item;
constexpr int BYTES = sizeof(Item);

// Items of a line that are read at once, and their bytes.
constexpr int PER = (BYTES < 4 ? 8 : 16) / BYTES;
constexpr int WORD = PER * BYTES;

INLINE constexpr int extent(int axis) { return axis == R ? TILE_R : axis == U ? TILE_U : TILE_V; }

template <class T> INLINE T get(const T *from) {
    Items<T, 1> one;
    one.template read<sizeof(T)>((const byte *)from);
    return one.item[0];
}

template <class T> INLINE void put(T *to, T value) {
    const Items<T, 1> one = {{value}};
    one.template write<sizeof(T)>((byte *)to);
}

// Return where an item of a pixel is in a line; of ordered ones there are at most eight.
INLINE constexpr unsigned packed_positions(int count) {
    return count ? packed_positions(count - 1) | position(count - 1) << 4 * (count - 1) : 0;
}
INLINE int place_in_pixel(unsigned v) {
    if constexpr (IS_ORDERED) return packed_positions(TILE_V) >> 4 * v & 15;
    else return v;
}

INLINE int clamped(int64 n, int64 most) { return (int)(n < 0 ? 0 : n < most ? n : most); }

INLINE const Sample &sample_at(const Windows &windows, const byte *table, uint64 number) {
    return ((const Sample *)(table + windows.table))[number];
}

// A tile: its sample or its first one, its first position and its size along R, U and V, and its
// positions along the other axes.
struct Tile {
    unsigned number, count[3], other[larger(1, OTHERS)];
    uint64 start[3];
    Offsets at;  // of its first position in fill values, batch and coefficients

    INLINE Tile(const Windows &windows, unsigned unit, int64 dst) : at{0, dst, 0} {
        number = windows.each.divide(unit);
        unit -= number * windows.each.count;
        start[V] = 0;
        if (R_AXIS == AXES) start[R] = (uint64)number * TILE_R, number = 0;
        else start[R] = (uint64)draw(unit, windows.tile[R].loop.turns) * TILE_R;
        start[U] = (uint64)draw(unit, windows.tile[U].loop.turns) * TILE_U;
        at.add(number, windows.sample);
#pragma unroll
        for (int i = 0; i < 3; ++i) {
            const uint64 left = windows.length[i] - start[i];
            count[i] = left < extent(i) ? (unsigned)left : extent(i);
            windows.tile[i].add(start[i], at);
        }
#pragma unroll
        for (int i = OTHERS - 1; i >= 0; --i) {
            other[i] = draw(unit, windows.other[i].loop.turns);
            windows.other[i].add(other[i], at);
        }
    }

    // Return the sample at a position of R.
    INLINE unsigned sample(unsigned row) const {
        return R_AXIS == AXES ? (unsigned)start[R] + row : number;
    }

    // Return the distance in bytes of a position along R, U or V from the first one of the tile.
    INLINE int64 dst(const Windows &windows, int axis, unsigned place) const {
        const Along &along = windows.tile[axis];
        if (!FOLDS) return place * along.loop.step.dst;
        return along.dst(start[axis] + place) - along.dst(start[axis]);
    }
};

struct Line {
    int64 src, first;  // bytes to the item whose x is 0 on U and V, and to the first one on U
    int64 fill, low;   // its fill value; its first position of U that the tile needs
    int columns;       // positions of U that the tile needs
    int begin, end;    // items that are read in words, since all bytes around them are the sample's
    unsigned sample;
    bool is_inside;    // not outside of the sample
    bool is_reversed;  // `first`, `begin` and `end` refer to the last position of U, and backward

    // Go to a position along an axis that is not resized.
    INLINE void go(const byte *table, const Sample &of, const Along &along, int64 place) {
        fill += place * along.loop.step.src;
        const Side &side = of.side[along.axis];
        const int64 x = MAPS && side.map ? ((const int64 *)(table + side.map))[place] : place;
        is_inside = is_inside && (INSIDE || (x >= side.low && x < side.high));
        src += x * side.from;
    }

    // Choose the positions `start` to `start + count` of U. Return true if the items are contiguous,
    // in either direction of U.
    INLINE bool choose(const Sample &of, int64 start, int count) {
        const Side &u = of.side[TAPS], &v = of.side[TAPS + 1];
        low = start, columns = count, first = src + low * u.from, begin = end = 0;
        is_reversed = REVERSED && u.from == -PIXEL * BYTES;
        if (is_reversed) first += (count - 1) * u.from;
        const bool is_packed = READ == BYTES && !u.map && !v.map &&
                               (is_reversed || u.from == PIXEL * BYTES) &&
                               (PIXEL == 1 || v.from == BYTES) && is_inside;
        return is_packed && (INSIDE || (v.low <= 0 && v.high >= PIXEL));
    }

    // Choose the items whose surrounding words are in the sample, which has `before` and `after`
    // bytes before and after the first item.
    INLINE void choose_words(const Side &u, int64 before, int64 after) {
        const int64 room = (after - WORD) / BYTES, size = (int64)columns * PIXEL + PER;
        begin = before < WORD ? ceiling((int)(WORD - before), BYTES) : 0;
        end = clamped(room, size);
        if (INSIDE) return;
        int from = clamped(u.low - low, columns), to = clamped(u.high - low, columns);
        if (is_reversed) {
            const int other = from;
            from = columns - to, to = columns - other;
        }
        begin = larger(begin, from * PIXEL);
        if (to < columns) end = smaller(end, to * PIXEL);
    }
};

// IGNORES: items of the value IGNORED are omitted, as are positions outside of samples; 2: it is NaN.
INLINE bool is_ignored(double value) {
    return IGNORES == 2 ? value != value : IGNORES && value == (double)IGNORED;
}

// Read an item of a line, which may be outside of the sample.
INLINE Item read_item(const Windows &windows, const byte *table, const byte *samples,
                      const Line &line, int item, int64 offset, bool exists) {
    const Sample &sample = sample_at(windows, table, line.sample);
    const Side &u = sample.side[TAPS], &v = sample.side[TAPS + 1];
    const int64 place = line.low + item / PIXEL;
    const int part = item % PIXEL;
    const int64 x = MAPS && u.map ? ((const int64 *)(table + u.map))[place] : place;
    const int64 y = MAPS && v.map ? ((const int64 *)(table + v.map))[part] : part;
    if (INSIDE || (exists && x >= u.low && x < u.high && y >= v.low && y < v.high)) {
        Items<Item, 1> one;
        one.template read<READ>(samples + line.src + offset + x * u.from + y * v.from);
        return one.item[0];
    }
    if constexpr (IGNORES != 0) return cast<SAMPLE, f8, false>((double)IGNORED);
    const int64 fill = line.fill + place * windows.tile[U].loop.step.src +
                       part * windows.tile[V].loop.step.src;
    return get((const Item *)(table + windows.fill) + fill);
}

// Return the item of a line that is read as the `item`-th one.
INLINE int item_of(const Line &line, int item) {
    if (!REVERSED || !line.is_reversed) return item;
    return (line.columns - 1 - item / PIXEL) * PIXEL + item % PIXEL;
}

// Read the neighbors of an item of a line; all bytes around them belong to the sample.
INLINE Items<Item, PER> read_word(const byte *at) {
    const unsigned by = (unsigned)(uint64)at % WORD;
    Items<Item, PER> word;
    word.read_across(at - by, at - by + WORD, by);
    return word;
}

// The position of an item of the batch in the tile: along R, U and V.
struct Place {
    unsigned at[3];

    INLINE Place(unsigned r, unsigned u, unsigned v) : at{r, u, v} {}
    INLINE Place(unsigned item) {
        at[LAST] = item % extent(LAST), item /= extent(LAST);
        at[MIDDLE] = item % extent(MIDDLE), at[FIRST] = item / extent(MIDDLE);
    }

    // Return the item `i` places after the first one of a word. JOINED: a word may extend over
    // several positions of U.
    INLINE Place next(int i) const {
        Place place = *this;
        place.at[LAST] += i;
        if (JOINED) place.at[U] += place.at[V] / TILE_V, place.at[V] %= TILE_V;
        return place;
    }

    // Return the number of the item in the tile, in which `pitch` items are along LAST.
    INLINE unsigned number(unsigned pitch) const {
        return (at[FIRST] * extent(MIDDLE) + at[MIDDLE]) * pitch + at[LAST];
    }

    INLINE bool is_in(const Tile &tile) const {
        return at[R] < tile.count[R] && at[U] < tile.count[U] && at[V] < TILE_V;
    }

    // Return the offset in the output, relative to the tile.
    INLINE int64 offset(const Windows &windows, const Tile &tile) const {
        const int64 offset = tile.dst(windows, FIRST, at[FIRST]) + tile.dst(windows, MIDDLE, at[MIDDLE]);
        return offset + (WIDTH > 1 && !FOLDS ? (int64)(at[LAST] * OUT)
                                             : tile.dst(windows, LAST, at[LAST]));
    }

    // Return the index of the coefficients or the fill value, relative to the tile.
    INLINE int index(const Windows &windows, int64 Offsets::*side) const {
        int index = 0;
#pragma unroll
        for (int i = 0; i < 3; ++i) index += at[i] * (int)(windows.tile[i].loop.step.*side);
        return index;
    }
};
