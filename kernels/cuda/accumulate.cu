// The sum of many arrays in one pass: a block adds all parts of one box of the output.
//
// A thread owns words of a box: PER_WORD neighbours along the output's last axis, whose sums stay in its
// registers. Parts are added one after the other, so that sums equal the CPU's to the last bit:
//
//   - where a part is contiguous along that axis too, a thread reads its own words of it;
//   - else threads read PER_WORD neighbours along the axis on which the part is contiguous and write
//     them to a tile of shared memory, from which each thread reads its own words.
//
// The words of the next part are loaded as soon as the words of this one have left their registers.
// Every part is read once and the output written once.
//
// The tile is the box in the dtype of the parts, in the output's order. The 16-byte columns of 128 bytes
// are exchanged (XOR) by the places along the other axes, so that threads that write neighbours along
// one of them, beside others along the output's last, and those that read their own words all meet
// different banks.
//
// All counts of a box are powers of two. So the number of a word is a bit field with some bits for each
// axis, and its offset is the sum of an offset for the thread and one for the turn.

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

template <int BIT> struct OnlyDtype { typedef COMPUTED type; };
#define ONLY_DTYPE(DTYPE, CODE) \
    template <> struct OnlyDtype<1 << CODE> { typedef DTYPE type; };
ADDED(ONLY_DTYPE)

// Parts are kept as they are stored if all have one dtype; else as computed values.
typedef OnlyDtype<DTYPES>::type TileDtype;
typedef TileDtype::memory Item;

INLINE constexpr int bits_for(int n) { return n > 1 ? 1 + bits_for(n / 2) : 0; }

// Neighbours along the output's last axis are moved to and from the tile in columns of its lines: a run
// is what a thread writes at once, with words of PER_RUN turns, and a piece is what it reads at once.
constexpr int LINE = 128, COLUMN = 16, COLUMN_BITS = 3, COLUMNS = 1 << COLUMN_BITS;
constexpr int PER_RUN = smaller(COLUMN / sizeof(Item), TURNS);
constexpr int PER_PIECE = smaller(COLUMN / sizeof(Item), PER_WORD), PIECES = PER_WORD / PER_PIECE;
constexpr int WORD_BITS = bits_for(PER_WORD), RUN_BITS = bits_for(PER_RUN);
constexpr int TILE_BYTES = PLACES * sizeof(Item), TILES = TILE_BYTES > 16384 ? 1 : 2;

// Blocks of a multiprocessor: a thread keeps its sums and a part in registers, and needs others.
constexpr int HELD = TURNS * PER_WORD * (sizeof(Value) + sizeof(Item)) / 4;
constexpr int BLOCKS = 65536 / (THREADS * (HELD + (WIDTHS == 2 ? 32 : 40)));

// The access to an array: by words along one axis, which are WIDE or items with a stride.
struct Walk {
    unsigned dtype, axis, wide, unused;
    // Offsets of each iteration of the threads relative to the first, in memory and in the tile, and
    // of each item relative to its word in the tile.
    int64 offset[TURNS];
    int slot[TURNS], item[PER_WORD];
};

struct Params {
    uint64 parts;
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

// Call `go` with every axis and the place along it at which a thread's word of an array begins.
template <class Go> INLINE void walk(const Params &params, int array, int turn, const Go &go) {
    const int axis = (int)params.walk[array].axis;
    const Side &along = params.side[axis];
    unsigned word = (axis == LAST ? turn : turn / PER_RUN) * THREADS + threadIdx.x;
    const unsigned lane = take(word, along.lanes);
    if (axis != LAST)
        go(LAST, take(word, params.side[LAST].places - RUN_BITS) << RUN_BITS | turn % PER_RUN);
    const unsigned strip = take(word, along.places - WORD_BITS - along.lanes);
    go(axis, (strip << along.lanes | lane) << WORD_BITS);
#pragma unroll
    for (int other = LAST - 1; other >= 0; --other)
        if (other != axis) go(other, take(word, params.side[other].places));
}

INLINE Spot find_first(const Params &params, int array) {
    Spot spot = {0, 0};
    walk(params, array, 0, [&](int axis, unsigned place) {
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
INLINE int left_of(const Params &params, const Shared &shared, int array, int turn) {
    const unsigned along = params.walk[array].axis;
    bool inside = true;
    int left = 0;
    walk(params, array, turn, [&](int axis, unsigned place) {
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
        if (DTYPES == 1 << CODE || dtype == CODE) use(From());
}

template <class Use> INLINE void use_as(unsigned dtype, const Use &use) {
#define USE_IF(DTYPE, CODE) use_if<DTYPE, CODE>(dtype, use);
    ADDED(USE_IF)
}

// The words of one part that a thread has loaded.
struct Loaded {
    Spot first;
    Items<Item, PER_WORD> words[TURNS];
};

// WIDTHS: 1 where no array is wide, 2 where all are, 3 where some are.
INLINE bool is_wide(const Walk &walk) { return WIDTHS == 3 ? walk.wide : WIDTHS == 2; }

template <class From> constexpr int WIDTH = smaller(16, PER_WORD * sizeof(From));

typedef Items<Value, PER_WORD> Values[TURNS];

// Set a sum to negative zero: added to any value, it gives that value, including positive zero.
template <class Part> INLINE void clear(Part &sum) { sum = (Part)-0.0; }
template <class Part> INLINE void clear(Pair<Part> &sum) {
    clear(sum.real);
    clear(sum.imaginary);
}

template <bool WHOLE> struct Box {
    const Params &params;
    Shared &shared;

    // The word of this thread in any turn, and how much of it there is.
    INLINE Spot spot(int array, const Spot &first, int turn) const {
        const Walk &walk = params.walk[array];
        return {first.offset + walk.offset[turn], first.slot ^ walk.slot[turn]};
    }

    INLINE int left(int array, int turn) const {
        return WHOLE ? PER_WORD : left_of(params, shared, array, turn);
    }

    // Load the words of a part.
    INLINE void load(int part, const byte *src, Loaded &loaded) const {
        const Walk &walk = params.walk[part];
        loaded.first = find_first(params, part);
        src += shared.begin[part];
        use_as(walk.dtype, [&](auto from) {
            typedef decltype(from) From;
#pragma unroll
            for (int turn = 0; turn < TURNS; ++turn) {
                const byte *at = src + spot(part, loaded.first, turn).offset;
                const int count = left(part, turn);
                if (count <= 0) continue;
                if constexpr (is_same<From, TileDtype>) {
                    read(part, at, count, loaded.words[turn]);
                } else {
                    Items<typename From::memory, PER_WORD> word;
                    read(part, at, count, word);
#pragma unroll
                    for (int i = 0; i < PER_WORD; ++i)
                        loaded.words[turn].item[i] = cast<COMPUTED, From, false>(word.item[i]);
                }
            }
        });
    }

    template <class From>
    INLINE void read(int part, const byte *src, int count, Items<From, PER_WORD> &word) const {
        const Walk &walk = params.walk[part];
        if (is_wide(walk)) {
            word.template read<WIDTH<From>, WHOLE>(src, count);
        } else {
            const int64 step = params.side[walk.axis].step[part];
#pragma unroll
            for (int i = 0; i < PER_WORD; ++i)
                if (WHOLE || i < count) word.item[i] = *reinterpret_cast<const From *>(src + i * step);
        }
    }

    // Write the loaded words to the tile, including words of the box outside of the array, which are
    // never stored to the output.
    INLINE void write_tile(int part, const Loaded &loaded, byte *tile) const {
        const Walk &walk = params.walk[part];
#pragma unroll
        for (int turn = 0; turn < TURNS; turn += PER_RUN) {
            const int slot = spot(part, loaded.first, turn).slot;
#pragma unroll
            for (int i = 0; i < PER_WORD; ++i) {
                Items<Item, PER_RUN> run;
#pragma unroll
                for (int j = 0; j < PER_RUN; ++j) run.item[j] = loaded.words[turn + j].item[i];
                run.template write<sizeof(run)>(tile + (slot ^ walk.item[i]));
            }
        }
    }

    // Use every item of the words that a thread owns, out of the tile.
    template <class Use> INLINE void use_own(const Spot &own, const byte *tile, Use use) const {
#pragma unroll
        for (int turn = 0; turn < TURNS; ++turn) {
            const int slot = spot(OUTPUT, own, turn).slot;
#pragma unroll
            for (int i = 0; i < PIECES; ++i) {
                Items<Item, PER_PIECE> piece;
                piece.template read<sizeof(piece)>(tile + (slot ^ i * sizeof(piece)));
#pragma unroll
                for (int j = 0; j < PER_PIECE; ++j)
                    use(turn, i * PER_PIECE + j, piece.item[j]);
            }
        }
    }

    // Use every item of the words that a thread owns, as loaded.
    template <class Use> INLINE void use_own(const Loaded &loaded, Use use) const {
#pragma unroll
        for (int turn = 0; turn < TURNS; ++turn)
#pragma unroll
            for (int i = 0; i < PER_WORD; ++i)
                use(turn, i, loaded.words[turn].item[i]);
    }

    // Write the words that a thread owns; the output is contiguous along its last axis.
    INLINE void store(const Spot &own, const Values &sums, byte *dst) const {
        typedef TARGET::memory Target;
        dst += shared.begin[OUTPUT];
#pragma unroll
        for (int turn = 0; turn < TURNS; ++turn) {
            byte *at = dst + spot(OUTPUT, own, turn).offset;
            const int count = left(OUTPUT, turn);
            if (count <= 0) continue;
            Items<Target, PER_WORD> items;
#pragma unroll
            for (int i = 0; i < PER_WORD; ++i)
                items.item[i] = cast<TARGET, COMPUTED, false>(sums[turn].item[i]);
            if (is_wide(params.walk[OUTPUT]))
                items.template write<WIDTH<Target>, WHOLE>(at, count);
            else
                items.template write<sizeof(Target), WHOLE>(at, count);
        }
    }

    INLINE void sum(const Pointers &pointers) const {
        const int parts = (int)params.parts;
        const Spot own = find_first(params, OUTPUT);
        Values sums;
        Loaded loaded;
        int tile = 0;
        load(0, pointers.src[0], loaded);
#pragma unroll
        for (int turn = 0; turn < TURNS; ++turn)
#pragma unroll
            for (int i = 0; i < PER_WORD; ++i) clear(sums[turn].item[i]);
#pragma unroll 1
        for (int part = 0; part < parts; ++part) {
            const bool is_own = params.walk[part].axis == LAST;
            auto add = [&](int turn, int i, Item item) {
                Value &sum = sums[turn].item[i];
                sum = plus(sum, cast<COMPUTED, TileDtype, false>(item));
            };
            if (is_own) {
                use_own(loaded, add);
            } else {
                if (TILES == 1) __syncthreads();  // other threads may still read the tile
                write_tile(part, loaded, shared.tile[tile]);
            }
            if (part + 1 < parts) load(part + 1, pointers.src[part + 1], loaded);
            if (!is_own) {
                __syncthreads();
                use_own(own, shared.tile[tile], add);
                tile = (tile + 1) % TILES;
            }
        }
        store(own, sums, pointers.dst);
    }
};

// Find the box of this block, if it exists, and if it is completely inside the output.
INLINE bool draw_box(const Params &params, Shared &shared, bool &is_whole) {
    uint64 start[AXES];
    bool exists = true;
    unsigned unit = blockIdx.x;
    is_whole = true;
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

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
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
