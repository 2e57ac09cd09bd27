// The sum of many arrays in one pass: box by box, every part is added while the box is at hand.
//
// A thread owns words of a box: PER_WORD neighbours along the output's last axis, whose sums stay in its
// registers. Parts come one after the other, so that sums are those of the CPU to the last bit:
//
//   - where a part is contiguous along that axis too, a thread reads its own words of it;
//   - else threads read PER_WORD neighbours along the axis on which the part is contiguous, leave them in
//     a tile of shared memory, and each takes its own from there.
//
// The words of the next part are loaded before those of the present one are added. Every part is
// read once and the output written once.
//
// The tile is the box in the computed dtype, in the output's order. The 16-byte columns of 128 bytes
// are exchanged (XOR) by the places along the other axes, so that threads that write neighbours along
// one of them, beside others along the output's last, and those that read their own words all meet
// different banks.
//
// All counts of a box are powers of two. So the number of a word is a row of bits, some for each axis,
// and what a word's bits add to its address is the sum of what the thread's and the turn's add.

#define SOURCES MAX_PARTS

#include "walk.cuh"
#include "numeric.cuh"

// An axis of the output: boxes along it, in groups of 1 << group that are drawn one after the other
// because they share lines of memory; 1 << places in a box; words next to each other along it that
// threads next to each other move, 1 << lanes.
struct Side {
    Divisor groups;
    uint64 total;
    unsigned group, places, lanes;
    int slot;                   // bytes to the next place in the tile
    int64 step[MAX_PARTS + 1];  // in each part, and last in the output
};

typedef COMPUTED::value Value;
constexpr int OUTPUT = MAX_PARTS, LAST = AXES - 1;
constexpr int TURNS = PLACES / (THREADS * PER_WORD);  // words of a thread

INLINE constexpr int bits_for(int n) { return n > 1 ? 1 + bits_for(n / 2) : 0; }
constexpr int WORD_BITS = bits_for(PER_WORD);

// Words are moved to and from the tile in pieces, which are columns of its lines.
constexpr int LINE = 128, COLUMN = 16, COLUMN_BITS = 3, COLUMNS = 1 << COLUMN_BITS;
constexpr int WORD_BYTES = PER_WORD * sizeof(Value), PIECE = smaller(COLUMN, WORD_BYTES);
constexpr int PIECES = WORD_BYTES / PIECE, PER_PIECE = PER_WORD / PIECES;
constexpr int TILE_BYTES = PLACES * sizeof(Value), TILES = TILE_BYTES > 16384 ? 1 : 2;

// The access to an array: by words along one axis, which are WIDE or items with a stride.
struct Walk {
    unsigned dtype, axis, wide, unused;
    // Offsets of each iteration of the threads relative to the first, in memory and in the tile, and
    // of each item relative to its word in the tile.
    int64 offset[TURNS];
    int slot[TURNS], item[PER_WORD];
};

struct Params {
    unsigned parts, words;  // words of a box
    Side side[AXES];
    Walk walk[MAX_PARTS + 1];
};

struct Shared {
    alignas(16) byte tile[TILES][TILE_BYTES];
    int64 begin[MAX_PARTS + 1];  // of the box in each array
    unsigned count[AXES];        // places along each axis that exist
};

// The start of a word of an array, in memory and in the tile.
struct Spot {
    int64 offset;
    int slot;
};

// Take the lowest bits of a number.
INLINE unsigned take(unsigned &number, unsigned bits) {
    unsigned lowest = number & ((1u << bits) - 1);
    number >>= bits;
    return lowest;
}

// Call `go` with every axis and the place along it at which a word of an array begins.
template <class Go> INLINE void walk(const Params &params, int array, unsigned word, const Go &go) {
    const int axis = (int)params.walk[array].axis;
    const Side &along = params.side[axis];
    const unsigned lane = take(word, along.lanes);
    if (axis != LAST) go(LAST, take(word, params.side[LAST].places));
    const unsigned strip = take(word, along.places - WORD_BITS - along.lanes);
    go(axis, (strip << along.lanes | lane) << WORD_BITS);
#pragma unroll
    for (int other = LAST - 1; other >= 0; --other)
        if (other != axis) go(other, take(word, params.side[other].places));
}

INLINE Spot find(const Params &params, int array, unsigned word) {
    Spot spot = {0, 0};
    walk(params, array, word, [&](int axis, unsigned place) {
        const Side &side = params.side[axis];
        spot.offset += place * side.step[array];
        const int linear = (int)place * side.slot;
        // Threads that read the first piece of their words, a line apart, meet different columns.
        spot.slot ^= linear ^ (linear / LINE & (PIECES - 1)) * COLUMN;
        if (axis != LAST)
            spot.slot ^= (place >> WORD_BITS << (COLUMN_BITS - side.lanes) & (COLUMNS - 1)) * COLUMN;
    });
    return spot;
}

// Return the number of existing items of a word; less than one if there are none.
INLINE int left_of(const Params &params, const Shared &shared, int array, unsigned word) {
    const unsigned along = params.walk[array].axis;
    bool inside = word < params.words;
    int left = 0;
    walk(params, array, word, [&](int axis, unsigned place) {
        if (axis == along)
            left = (int)(shared.count[axis] - place);
        else
            inside = inside && place < shared.count[axis];
    });
    return inside ? left : 0;
}

// Call `use` with the dtype that has this number. Code is made only for those whose bit DTYPES has.
template <class From, int CODE, class Use> INLINE void use_if(unsigned dtype, const Use &use) {
    if constexpr (DTYPES >> CODE & 1)
        if (dtype == CODE) use(From());
}

template <class Use> INLINE void use_as(unsigned dtype, const Use &use) {
#define USE_IF(DTYPE, CODE) use_if<DTYPE, CODE>(dtype, use);
    ADDED(USE_IF)
}

template <int BIT> struct Alone { typedef COMPUTED type; };
#define ALONE(DTYPE, CODE) \
    template <> struct Alone<1 << CODE> { typedef DTYPE type; };
ADDED(ALONE)

// The words of one part that a thread has loaded: unconverted if all parts have one dtype, so that the
// thread does not wait for them yet; else as computed values.
typedef Alone<DTYPES>::type Held;

struct Asked {
    Spot first;
    Items<Held::memory, PER_WORD> words[TURNS];
};

// WIDTHS: 1 where no array is wide, 2 where all are, 3 where some are.
INLINE bool is_wide(const Walk &walk) { return WIDTHS == 3 ? walk.wide : WIDTHS == 2; }

template <class Item> constexpr int WIDTH = smaller(16, PER_WORD * sizeof(Item));

typedef Items<Value, PER_WORD> Values[TURNS];

template <bool WHOLE> struct Box {
    const Params &params;
    Shared &shared;

    // The word of this thread in the first turn, in any other one, and how much of it there is.
    INLINE Spot first(int array) const { return find(params, array, threadIdx.x); }

    INLINE Spot spot(int array, const Spot &first, int turn) const {
        const Walk &walk = params.walk[array];
        return {first.offset + walk.offset[turn], first.slot ^ walk.slot[turn]};
    }

    INLINE int left(int array, int turn) const {
        return WHOLE ? PER_WORD : left_of(params, shared, array, turn * THREADS + threadIdx.x);
    }

    // Load the words of a part.
    INLINE void ask(int part, const byte *src, Asked &asked) const {
        const Walk &walk = params.walk[part];
        asked.first = first(part);
        src += shared.begin[part];
        use_as(walk.dtype, [&](auto from) {
            typedef decltype(from) From;
#pragma unroll
            for (int turn = 0; turn < TURNS; ++turn) {
                const byte *at = src + spot(part, asked.first, turn).offset;
                const int count = left(part, turn);
                if (count <= 0) continue;
                if constexpr (is_same<From, Held>) {
                    read(part, at, count, asked.words[turn]);
                } else {
                    Items<typename From::memory, PER_WORD> word;
                    read(part, at, count, word);
#pragma unroll
                    for (int i = 0; i < PER_WORD; ++i)
                        asked.words[turn].item[i] = cast<COMPUTED, From, false>(word.item[i]);
                }
            }
        });
    }

    template <class Item>
    INLINE void read(int part, const byte *src, int count, Items<Item, PER_WORD> &word) const {
        const Walk &walk = params.walk[part];
        if (is_wide(walk)) {
            word.template read<WIDTH<Item>, WHOLE>(src, count);
        } else {
            const int64 step = params.side[walk.axis].step[part];
#pragma unroll
            for (int i = 0; i < PER_WORD; ++i)
                if (WHOLE || i < count) word.item[i] = *reinterpret_cast<const Item *>(src + i * step);
        }
    }

    // Write the loaded words to the tile, including words of the box outside of the array, which are
    // never stored to the output.
    INLINE void leave(int part, const Asked &asked, byte *tile) const {
#pragma unroll
        for (int turn = 0; turn < TURNS; ++turn) {
            const int slot = spot(part, asked.first, turn).slot;
            if (!WHOLE && turn * THREADS + threadIdx.x >= params.words) break;
#pragma unroll
            for (int i = 0; i < PER_WORD; ++i) {
                Items<Value, 1> one = {cast<COMPUTED, Held, false>(asked.words[turn].item[i])};
                one.template write<sizeof(Value)>(tile + (slot ^ params.walk[part].item[i]));
            }
        }
    }

    // Use every value of the words that a thread owns, out of the tile.
    template <class Use> INLINE void use_own(const Spot &own, const byte *tile, Use use) const {
#pragma unroll
        for (int turn = 0; turn < TURNS; ++turn) {
            const int slot = spot(OUTPUT, own, turn).slot;
#pragma unroll
            for (int i = 0; i < PIECES; ++i) {
                Items<Value, PER_PIECE> piece;
                piece.template read<PIECE>(tile + (slot ^ i * PIECE));
#pragma unroll
                for (int j = 0; j < PER_PIECE; ++j)
                    use(turn, i * PER_PIECE + j, piece.item[j]);
            }
        }
    }

    // Use every value of the words that a thread owns, as loaded.
    template <class Use> INLINE void use_own(const Asked &asked, Use use) const {
#pragma unroll
        for (int turn = 0; turn < TURNS; ++turn)
#pragma unroll
            for (int i = 0; i < PER_WORD; ++i)
                use(turn, i, cast<COMPUTED, Held, false>(asked.words[turn].item[i]));
    }

    // Write the words that a thread owns; the output is contiguous along its last axis.
    INLINE void store(const Spot &own, const Values &sums, byte *dst) const {
        typedef TARGET::memory Item;
        dst += shared.begin[OUTPUT];
#pragma unroll
        for (int turn = 0; turn < TURNS; ++turn) {
            byte *at = dst + spot(OUTPUT, own, turn).offset;
            const int count = left(OUTPUT, turn);
            if (count <= 0) continue;
            Items<Item, PER_WORD> items;
#pragma unroll
            for (int i = 0; i < PER_WORD; ++i)
                items.item[i] = cast<TARGET, COMPUTED, false>(sums[turn].item[i]);
            if (is_wide(params.walk[OUTPUT]))
                items.template write<WIDTH<Item>, WHOLE>(at, count);
            else
                items.template write<sizeof(Item), WHOLE>(at, count);
        }
    }

    INLINE void sum(const Pointers &pointers) const {
        const int parts = (int)params.parts;
        const Spot own = first(OUTPUT);
        Values sums;
        Asked asked[2];
        int tile = 0;
        auto add = [&](int part, const Asked &now, Asked &next) {
            if (part + 1 < parts) ask(part + 1, pointers.src[part + 1], next);
            auto add_one = [&](int turn, int i, Value value) {
                Value &sum = sums[turn].item[i];
                sum = part ? plus(sum, value) : value;
            };
            if (params.walk[part].axis == LAST) {
                use_own(now, add_one);
            } else {
                if (TILES == 1) __syncthreads();  // other threads may still read the tile
                leave(part, now, shared.tile[tile]);
                __syncthreads();
                use_own(own, shared.tile[tile], add_one);
                tile = (tile + 1) % TILES;
            }
        };
        ask(0, pointers.src[0], asked[0]);
#pragma unroll 1
        for (int part = 0; part < parts; part += 2) {
            add(part, asked[0], asked[1]);
            if (part + 1 < parts) add(part + 1, asked[1], asked[0]);
        }
        store(own, sums, pointers.dst);
    }
};

// Find the box of this block, if it exists, and if it lies completely in the output.
INLINE bool draw_box(const Params &params, Shared &shared, bool &is_whole) {
    uint64 start[AXES];
    bool exists = true;
    unsigned unit = blockIdx.x;
    is_whole = params.words == PLACES / PER_WORD;
#pragma unroll
    for (int i = LAST; i >= 0; --i) {
        const Side &side = params.side[i];
        start[i] = take(unit, side.group);
    }
#pragma unroll
    for (int i = LAST; i >= 0; --i) {
        const Side &side = params.side[i];
        start[i] += (uint64)draw(unit, side.groups) << side.group;
        start[i] <<= side.places;
        exists = exists && start[i] < side.total;
        const uint64 left = side.total - start[i], most = 1ull << side.places;
        is_whole = is_whole && left >= most;
        if (threadIdx.x == 0) shared.count[i] = (unsigned)(left < most ? left : most);
    }
    if (threadIdx.x <= OUTPUT) {
        int64 begin = 0;
#pragma unroll
        for (int i = 0; i < AXES; ++i)
            begin += (int64)start[i] * params.side[i].step[threadIdx.x];
        shared.begin[threadIdx.x] = begin;
    }
    return exists;
}

extern "C" __global__ void __launch_bounds__(THREADS, 2)
    accumulate(const Params params, const Pointers pointers) {
    __shared__ Shared shared;
    bool is_whole;
    if (!draw_box(params, shared, is_whole)) return;
    __syncthreads();
    if (is_whole)
        Box<true>{params, shared}.sum(pointers);
    else
        Box<false>{params, shared}.sum(pointers);
}
