// Runs of bytes at any address, contiguous on both sides, into an output without gaps.
//
// The output is written in aligned words of 16 bytes. A run is not shorter than a word, so a word
// has bytes of one run or of two. The bytes of a run are read in the one or two aligned words of the
// source that they extend over, which are combined in registers. Where these words may have bytes of
// other arrays, the bytes are read one by one. The bytes before the first word of the output and
// after its last one move one by one, too.
//
// A block writes consecutive words. It first computes where their runs begin in the source.

#include "walk.cuh"

struct Params {
    Loops outer;
    Divisor length;         // bytes of a run
    Divisor group, across;  // tiles that are moved out of order, and runs that meet in the source
    uint64 apart, grouped;  // tiles from one of these runs to the next; tiles of all full groups
    int64 src, dst;         // offsets of the first run
    uint64 head, size;      // bytes before the first word of the output, and bytes of the output
    int64 end;              // offset of the end of the last run in the source
    // If the source has no gaps: the offset of its first byte, and at how many bytes from there two
    // words of the source begin. Else 0.
    int64 lowest;
    uint64 readable;
};

constexpr int WORD = 16, WORDS = THREADS * TURNS, TILE = WORDS * WORD;
constexpr int RUNS = WORDS + 1;  // of a tile, at most

typedef Items<byte, WORD> Bytes;
typedef Items<byte, 1> Byte;
typedef Items<int64, 1> Start;  // the offset of a run in the source

// Return the number of the tile that a block moves. Runs that share sectors of the source may be many
// tiles apart; blocks that run at the same time move them, so that a sector is read once.
INLINE unsigned tile_of(const Params &params, unsigned block) {
    if (block >= params.grouped) return block;
    const unsigned before = params.group.divide(block) * params.group.count;
    const unsigned along = params.across.divide(block - before);
    return before + (block - before - along * params.across.count) * (unsigned)params.apart + along;
}

INLINE void copy(byte *dst, const byte *src) {
    Byte one;
    one.read<1>(src);
    one.write<1>(dst);
}

// Copy a word whose first `part` bytes are in one run and the others in the next. `one` and `two` are the
// addresses at which the word would begin if all of it were in that run.
INLINE void copy_bytes(byte *dst, const byte *one, const byte *two, int part) {
#pragma unroll 1
    for (int i = 0; i < WORD; ++i) copy(dst + i, (i < part ? one : two) + i);
}

INLINE int misalignment(const byte *at) { return (int)((uint64)at % WORD); }

// The aligned words that have the bytes from `begin` to `end` of a word at any address.
struct Pair {
    Bytes low, high;

    INLINE void read(const byte *at, int begin, int end) {
        const int by = misalignment(at);
        if (by + begin < WORD) low.read<WORD>(at - by);
        if (by + end > WORD) high.read<WORD>(at - by + WORD);
    }

    INLINE Bytes joined(const byte *at) {
        Bytes word;
        word.join(low, high, misalignment(at));
        return word;
    }
};

// Replace the bytes of a word from number `part` on by the bytes of another.
INLINE void replace(Bytes &word, const Bytes &other, int part) {
#pragma unroll
    for (int bank = 0; bank < WORD / 4; ++bank) {
        const int bits = 8 * (part - 4 * bank);
        const unsigned kept = bits <= 0 ? 0 : bits < 32 ? (1u << bits) - 1 : ~0u;
        unsigned &value = reinterpret_cast<unsigned *>(word.item)[bank];
        value = (value & kept) | (reinterpret_cast<const unsigned *>(other.item)[bank] & ~kept);
    }
}

// Return whether the two words that 16 bytes extend over have only bytes of the source.
INLINE bool in_source(const Params &params, const byte *src, const byte *at) {
    return (uint64)(at - misalignment(at) - src - params.lowest) < params.readable;
}

// The words that a block writes, and where their runs begin in the source.
struct Tile {
    const byte *src;
    byte *dst;
    const byte *starts;
    unsigned first, words;  // place of the first word in its run, and the number of words

    INLINE const byte *start(unsigned run) const {
        Start start;
        start.read<sizeof(start)>(starts + run * sizeof(start));
        return src + start.item[0];
    }
};

INLINE void move(const Params &params, const Tile &tile, unsigned number) {
    const unsigned place = tile.first + number * WORD, run = params.length.divide(place);
    const int begin = (int)(place - run * params.length.count);
    const int part = (int)params.length.count - begin;  // bytes of the word's first run
    const bool is_two = part < WORD;
    // Where the word would begin if all of it were of one run.
    const byte *one = tile.start(run) + begin, *two = one;
    if (is_two) two = tile.start(run + 1) - part;
    const bool is_inside = begin >= WORD && part >= 2 * WORD;
    if (is_inside || (in_source(params, tile.src, one) && in_source(params, tile.src, two))) {
        Pair here, there;
        here.read(one, 0, smaller(part, WORD));
        if (is_two) there.read(two, part, WORD);
        Bytes word = here.joined(one);
        if (is_two) replace(word, there.joined(two), part);
        word.write<WORD>(tile.dst + number * WORD);
    } else {
        copy_bytes(tile.dst + number * WORD, one, two, part);
    }
}

// Eight blocks, the most that fit a multiprocessor, have enough bytes in flight.
extern "C" __global__ void __launch_bounds__(THREADS, 8)
    runs(const Params params, const Pointers pointers) {
    __shared__ __align__(16) byte starts[RUNS * sizeof(Start)];
    const byte *src = pointers.src[0];
    const unsigned length = params.length.count, number = tile_of(params, blockIdx.x);
    const uint64 before = (uint64)number * WORDS;
    const uint64 left = (params.size - params.head) / WORD - before;
    // As many tiles as a run has bytes are as many runs as a tile has bytes: dividends are small.
    const unsigned cycles = params.length.divide(number);
    const unsigned place = (number - cycles * length) * TILE + (unsigned)params.head;
    const unsigned skipped = params.length.divide(place), run = cycles * TILE + skipped;
    const Tile tile = {src, pointers.dst + (params.dst + params.head) + before * WORD, starts,
                       place - skipped * length, left < WORDS ? (unsigned)left : WORDS};
    const unsigned end = tile.first + tile.words * WORD;
    const unsigned last = tile.words ? params.length.divide(end - 1) : 0;
    for (unsigned i = threadIdx.x; i <= last; i += THREADS) {
        const Start start = {{params.src + params.outer.place(run + i).src}};
        start.write<sizeof(start)>(starts + i * sizeof(start));
    }
    __syncthreads();
#pragma unroll 1
    for (int turn = 0; turn < TURNS; ++turn) {
        const unsigned word = turn * THREADS + threadIdx.x;
        if (word < tile.words) move(params, tile, word);
    }
    if (blockIdx.x) return;
    const unsigned tail = (unsigned)(params.size - params.head) % WORD;
    if (threadIdx.x < params.head)
        copy(pointers.dst + params.dst + threadIdx.x,
             src + params.src + params.outer.first_src() + threadIdx.x);
    if (threadIdx.x < tail)
        copy(pointers.dst + params.dst + params.size - 1 - threadIdx.x,
             src + params.end - 1 - threadIdx.x);
}
