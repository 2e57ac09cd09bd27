// Pixels of any number of channels, at any addresses, taken apart into planes or put together.
//
// The side where channels are adjacent is one line of bytes. A block moves a chunk of pixels of it
// through shared memory, where the line is contiguous and its address has the same remainder modulo 16
// as in device memory: so all but its ends moves in words of 16 bytes, whatever its address. On the
// other side each channel has a row of its own in memory. It is moved in words of WORD bytes that
// begin on a multiple of WORD, which may be other pixels in every row; threads look for their items in
// shared memory one by one.
//
//   SPLIT  source together, output apart       otherwise  source apart, output together
//
// GAP_WORD: the line has gaps, which words of GAP_WORD bytes do not cross.
//
// CHANNELS are written. With SPLIT, pixels of the source have SOURCE_CHANNELS; the first SPAN of
// these are in memory that may be read. PIXEL_COEFFICIENTS: coefficients differ between pixels.
//
// In a warp, threads next to each other move words of one row, and BESIDE groups of them rows next
// to each other: the largest power of two that divides CHANNELS, so that all meet different banks.

#include "walk.cuh"
#include "numeric.cuh"

struct Params {
    Loops outer;
    Axis pixels;
    Offsets plane;  // the steps from one channel to the next
    int64 lowest;  // the offset of the source's first byte
};

// With SPLIT, channels that are not evenly spaced have another order in the line only.
INLINE int row_position(int channel) {
#ifdef SPLIT
    return channel;
#else
    return plane_position(channel);
#endif
}

typedef Span<PIXELS_LOOPS != 1> Pixels;

#ifdef SPLIT
constexpr int APART = OUT;  // bytes of an item on the side of the rows
#ifdef GAP_WORD
constexpr int LINE_WORD = GAP_WORD;
#else
constexpr int LINE_WORD = 16;
#endif
constexpr int PER_LINE = LINE_WORD / ITEM;
#else
constexpr int APART = ITEM;
constexpr int LINE_WORD = OUT * 16 / larger(ITEM, OUT), PER_LINE = LINE_WORD / OUT;
#endif
#ifdef SPLIT
constexpr int LINE_CHANNELS = SOURCE_CHANNELS;
#else
constexpr int LINE_CHANNELS = CHANNELS;
#endif
constexpr int ITEMS = PIXELS * LINE_CHANNELS;  // of a chunk
constexpr int PER_WORD = WORD / APART;    // pixels of a word of a row
// Rows in any order may meet the same banks.
constexpr int BESIDE = power_in(CHANNELS, PLANES_ORDERED ? 4 : 32), AHEAD = 32 / BESIDE;
constexpr int STRETCHES = ceiling(PIXELS / PER_WORD, AHEAD);  // of words, in a row
constexpr int WARPS = THREADS / 32, BUNDLES = CHANNELS / BESIDE;  // of rows
constexpr int TURNS = ceiling(STRETCHES * BUNDLES, WARPS);
constexpr int ENDS = PER_WORD > 1 ? 2 * PER_WORD * CHANNELS : 0;  // items, at most
constexpr int LINE_TURNS = ceiling(ITEMS + PER_LINE - 1, PER_LINE * THREADS);
constexpr int BATCH = 4;  // words of a line that a thread waits for
// Words of rows that a thread waits for: fewer if their items are written apart, with more registers.
constexpr int WORDS = PER_WORD > 1 ? 6 : 8;

typedef Items<Source, 1> One;

// Return the distance in items of the first item from the beginning of its word.
INLINE int items_before(const void *first, int word, int item) {
    return (int)((uint64)first % word) / item;
}

// Return the n-th of the items before the first full word and after the last one; -1: none.
INLINE int end_item(int before, int items, int word, int n) {
    const int head = smaller(before ? word - before : 0, items);
    if (n < word) return n < head ? n : -1;
    const int item = larger(head, (before + items) / word * word - before) + n - word;
    return item < items ? item : -1;
}

// A row: the address of the chunk's first pixel, and its position in a word.
struct Row {
    int channel, before;
    int64 offset;

    INLINE Row(int channel, const byte *first, int64 plane)
        : channel(channel), before(0), offset(row_position(channel) * plane) {
        if (SHIFTED) before = items_before(first + offset, WORD, APART);
    }
};

// A word of a row that a thread moves: its channel, and its number in the row. The host ensures that
// one of the two does not depend on the iteration.
struct Taken {
    int channel, number;

    INLINE Taken(int turn) {
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        int bundle, stretch;
        if (STRETCHES % WARPS == 0) {
            bundle = turn / (STRETCHES / WARPS);
            stretch = turn % (STRETCHES / WARPS) * WARPS + warp;
        } else {
            bundle = turn * (WARPS / STRETCHES) + warp / STRETCHES;
            stretch = warp % STRETCHES;
        }
        channel = bundle * BESIDE + lane / AHEAD;
        number = stretch * AHEAD + lane % AHEAD;
    }
};

// Return the index in shared memory of a pixel's item in the line.
INLINE int slot(int pixel, int channel) { return (pixel * LINE_CHANNELS + channel) * ITEM; }

#ifdef SPLIT

INLINE void load(const Params &params, const byte *src, const Pixels &pixels, int count,
                 byte *chunk) {
    const int before = items_before(src, LINE_WORD, ITEM);
    auto from = [&](int item) {
        const byte *at = src + item * ITEM;
#ifdef GAP_WORD
        at += pixels.wraps(params.pixels, item / SOURCE_CHANNELS) * params.pixels.wrap.src;
#endif
        return at;
    };
    const int items = (count - 1) * SOURCE_CHANNELS + SPAN;
    auto first_of = [&](int turn) { return (turn * THREADS + (int)threadIdx.x) * PER_LINE - before; };
#pragma unroll
    for (int first = 0; first < LINE_TURNS; first += BATCH) {
        Items<Source, PER_LINE> words[BATCH];
#pragma unroll
        for (int turn = 0; turn < smaller(BATCH, LINE_TURNS - first); ++turn) {
            const int item = first_of(first + turn);
            if (item >= 0 && item + PER_LINE <= items)
                words[turn].template read<LINE_WORD>(from(item));
        }
#pragma unroll
        for (int turn = 0; turn < smaller(BATCH, LINE_TURNS - first); ++turn) {
            const int item = first_of(first + turn);
            if (item >= 0 && item + PER_LINE <= items)
                words[turn].template write<LINE_WORD>(chunk + (item + before) * ITEM);
        }
    }
    const int end = end_item(before, items, PER_LINE, threadIdx.x);
    if (end < 0) return;
    One one;
    one.template read<ITEM>(from(end));
    one.template write<ITEM>(chunk + (end + before) * ITEM);
}

template <bool WHOLE>
INLINE void store(const Params &params, byte *dst, const byte *coefficients, int64 coef,
                  const Pixels &pixels, const byte *first_item) {
    const int count = WHOLE ? PIXELS : pixels.count;
    Formula formula(coefficients);
    auto put = [&](auto &items, const Row &row, int pixel) {
        constexpr int MANY = sizeof(items.item) / ITEM;
#pragma unroll
        for (int i = 0; i < MANY; ++i) {
            One one;
            one.template read<ITEM>(first_item + slot(pixel + i, plane_position(row.channel)));
            items.item[i] = one.item[0];
        }
        auto coefficient = [&](int i) {
            int64 place = coef + row.channel * params.plane.coef;
            return COEFFICIENTS == 2 ? place + pixels.place(params.pixels, pixel + i).coef : place;
        };
        const int64 along =
            pixel * OUT + pixels.wraps(params.pixels, pixel) * params.pixels.wrap.dst;
        epilogue(items, formula, coefficient)
            .template write<MANY * OUT>(dst + row.offset + along);
    };
#pragma unroll
    for (int turn = 0; turn < TURNS; ++turn) {
        const Taken word(turn);
        const Row row(word.channel, dst, params.plane.dst);
        const int pixel = word.number * PER_WORD - row.before;
        if (word.channel >= CHANNELS || pixel < 0 || pixel + PER_WORD > count) continue;
        Items<Source, PER_WORD> items;
        put(items, row, pixel);
    }
#pragma unroll 1
    for (int number = threadIdx.x; number < ENDS; number += THREADS) {
        const Row row(number / (2 * PER_WORD), dst, params.plane.dst);
        const int pixel = end_item(row.before, count, PER_WORD, number % (2 * PER_WORD));
        One one;
        if (pixel >= 0) put(one, row, pixel);
    }
}

#else

template <bool WHOLE>
INLINE void load(const Params &params, const byte *src, const Pixels &pixels, byte *first_item) {
    const int count = WHOLE ? PIXELS : pixels.count;
    auto from = [&](const Row &row, int pixel) {
        const int64 along =
            pixel * ITEM + pixels.wraps(params.pixels, pixel) * params.pixels.wrap.src;
        return src + row.offset + along;
    };
#pragma unroll
    for (int first = 0; first < TURNS; first += WORDS) {
        Items<Source, PER_WORD> words[WORDS];
        int places[WORDS];  // in shared memory; -1: there is no such word
#pragma unroll
        for (int turn = 0; turn < smaller(WORDS, TURNS - first); ++turn) {
            const Taken word(first + turn);
            const Row row(word.channel, src, params.plane.src);
            const int pixel = word.number * PER_WORD - row.before;
            const bool is_whole =
                word.channel < CHANNELS && pixel >= 0 && pixel + PER_WORD <= count;
            places[turn] = is_whole ? slot(pixel, row.channel) : -1;
            if (is_whole) words[turn].template read<WORD>(from(row, pixel));
        }
#pragma unroll
        for (int turn = 0; turn < smaller(WORDS, TURNS - first); ++turn)
#pragma unroll
            for (int i = 0; i < PER_WORD; ++i) {
                One one = {{words[turn].item[i]}};
                if (places[turn] >= 0)
                    one.template write<ITEM>(first_item + places[turn] + i * CHANNELS * ITEM);
            }
    }
#pragma unroll 1
    for (int number = threadIdx.x; number < ENDS; number += THREADS) {
        const Row row(number / (2 * PER_WORD), src, params.plane.src);
        const int pixel = end_item(row.before, count, PER_WORD, number % (2 * PER_WORD));
        if (pixel < 0) continue;
        One one;
        one.template read<ITEM>(from(row, pixel));
        one.template write<ITEM>(first_item + slot(pixel, row.channel));
    }
}

INLINE void store(const Params &params, byte *dst, const byte *coefficients, int64 coef,
                  const Pixels &pixels, int count, const byte *first_item) {
    const int before = items_before(dst, LINE_WORD, OUT), items = count * CHANNELS;
    Formula formula(coefficients);
    auto put = [&](auto &word, int item) {
        constexpr int MANY = sizeof(word.item) / ITEM;
        word.template read<MANY * ITEM>(first_item + item * ITEM);
        const int first_pixel = item / CHANNELS, first_channel = item - first_pixel * CHANNELS;
        auto coefficient = [&](int i) {
            int pixel = first_pixel + i / CHANNELS, channel = first_channel + i % CHANNELS;
            if (channel >= CHANNELS) ++pixel, channel -= CHANNELS;
            // There are fewer coefficients than 2^31.
            int64 place = coef + channel * (int)params.plane.coef;
            return PIXEL_COEFFICIENTS ? place + pixels.place(params.pixels, pixel).coef : place;
        };
        epilogue(word, formula, coefficient).template write<MANY * OUT>(dst + item * OUT);
    };
#pragma unroll
    for (int turn = 0; turn < LINE_TURNS; ++turn) {
        const int item = (turn * THREADS + (int)threadIdx.x) * PER_LINE - before;
        if (item < 0 || item + PER_LINE > items) continue;
        Items<Source, PER_LINE> word;
        put(word, item);
    }
    const int end = end_item(before, items, PER_LINE, threadIdx.x);
    One one;
    if (end >= 0) put(one, end);
}

#endif

// WHOLE: the chunk has all of its pixels (a compile-time constant).
template <bool WHOLE>
INLINE void move(const Params &params, const Pointers &pointers, const Offsets &at,
                 const Pixels &pixels, byte *chunk) {
    const byte *src = pointers.src[0] + (PLANES_ORDERED ? params.lowest : 0) + at.src;
    const byte *coefficients = pointers.coefficients;
    byte *dst = pointers.dst + at.dst;
#ifdef SPLIT
    load(params, src, pixels, WHOLE ? PIXELS : pixels.count, chunk);
    chunk += items_before(src, LINE_WORD, ITEM) * ITEM;
#else
    chunk += items_before(dst, LINE_WORD, OUT) * ITEM;
    load<WHOLE>(params, src, pixels, chunk);
#endif
    __syncthreads();
#ifdef SPLIT
    store<WHOLE>(params, dst, coefficients, at.coef, pixels, chunk);
#else
    store(params, dst, coefficients, at.coef, pixels, WHOLE ? PIXELS : pixels.count, chunk);
#endif
}

extern "C" __global__ void __launch_bounds__(THREADS)
    lines(const Params params, const Pointers pointers) {
    __shared__ __align__(16) byte chunk[ceiling((ITEMS + PER_LINE) * ITEM, 16) * 16];
    unsigned unit = blockIdx.x;
    unsigned tile = draw(unit, params.pixels.tiles);
    Pixels pixels(params.pixels, tile, PIXELS);
    Offsets at = params.outer.place(unit);
    at.add(1, pixels.first);
    if (pixels.count == PIXELS)
        move<true>(params, pointers, at, pixels, chunk);
    else
        move<false>(params, pointers, at, pixels, chunk);
}
