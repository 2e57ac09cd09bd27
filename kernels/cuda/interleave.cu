// Few channels: packed pixels are split into planes, planes are merged into packed pixels, or packed
// pixels are written with their channels in another order.
//
// A block moves a chunk of pixels. A side where channels are adjacent is one run of bytes, which
// goes through shared memory in words of 16; on the other side every plane is a run of its own.
// A thread moves GROUP pixels at a time, which fill a bank, with all their channels in
// registers, whose indices are known at compile time.
//
//   SPLIT  source together, output apart       MERGE  source apart, output together
//   SPLIT and MERGE  both together
//
// CHANNELS are written. If channels are adjacent in the source, its pixels have SOURCE_CHANNELS; the
// first SPAN of these are in memory that may be read.

#include "walk.cuh"
#include "numeric.cuh"

struct Params {
    Loops outer;
    Axis pixels;
    int64 src_plane, dst_plane, coef_plane;  // the step from one channel to the next
    int64 lowest;                            // the offset of the source's first byte
};

// Two loops: images that follow each other on the side where channels are adjacent. A group of
// pixels is part of one image.
typedef Span<PIXELS_LOOPS != 1> Chunk;

constexpr int GROUP = larger(1, 4 / ITEM);
constexpr int CHUNK = THREADS * GROUP * GROUPS;  // pixels of a block

// The pixels of a thread, with COUNT channels each.
template <int COUNT> struct Packed : Items<Source, GROUP * COUNT> {
    static constexpr int BYTES = GROUP * COUNT * ITEM, PIECE = piece(BYTES, 16);

    INLINE void fetch(const byte *chunk, int group) {
        this->template read<PIECE>(chunk + group * BYTES);
    }
    INLINE void put(byte *chunk, int group) const {
        this->template write<PIECE>(chunk + group * BYTES);
    }
};

typedef Items<Source, GROUP> Line;  // neighbours in a plane
typedef Packed<SOURCE_CHANNELS> SourcePixels;
typedef Packed<CHANNELS> Pixels;

// The words of a chunk with COUNT channels.
template <int COUNT, int PER_WORD> struct Words {
    static constexpr int ITEMS = CHUNK * COUNT, TURN = THREADS * PER_WORD;
    static constexpr int TURNS = ceiling(ITEMS, TURN);
    static constexpr bool IS_EVEN = ITEMS % TURN == 0;  // every thread has an item in the last turn
};

#ifdef SPLIT

// Copy the chunk's bytes unchanged.
template <bool WHOLE>
INLINE void load(const Params &, const byte *src, const Chunk &span, byte *chunk) {
    constexpr int PER_LOAD = LOAD / ITEM;
    typedef Words<SOURCE_CHANNELS, PER_LOAD> Loads;
    const int items = ((int)span.count - 1) * SOURCE_CHANNELS + SPAN;
#pragma unroll
    for (int turn = 0; turn < Loads::TURNS; ++turn) {
        int item = (turn * THREADS + threadIdx.x) * PER_LOAD;
        if (!(WHOLE && Loads::IS_EVEN) && item >= items) break;
        Items<Source, PER_LOAD> piece;
        piece.template read<LOAD, WHOLE>(src + item * ITEM, items - item);
        piece.template write<LOAD>(chunk + item * ITEM);
    }
}

#else

// Merge: every thread reads a piece of each plane and packs pixels.
template <bool WHOLE>
INLINE void load(const Params &params, const byte *src, const Chunk &span, byte *chunk) {
    const int pixels = span.count;
#pragma unroll
    for (int turn = 0; turn < GROUPS; ++turn) {
        int group = turn * THREADS + threadIdx.x, pixel = group * GROUP;
        if (!WHOLE && pixel >= pixels) break;
        const byte *at = src + span.place(params.pixels, pixel).src;
        Pixels all;
#pragma unroll
        for (int channel = 0; channel < CHANNELS; ++channel) {
            Line line;
            line.template read<LOAD, WHOLE>(
                at + plane_position(channel) * params.src_plane, pixels - pixel);
#pragma unroll
            for (int i = 0; i < GROUP; ++i) all.item[i * CHANNELS + channel] = line.item[i];
        }
        all.put(chunk, group);
    }
}

#endif

#ifdef MERGE

// Convert and write the chunk's items, which are in the output's order.
template <bool WHOLE>
INLINE void store(const Params &params, byte *dst, const byte *coefficients, int64 coef,
                  const Chunk &span, const byte *chunk) {
    constexpr int PER_STORE = STORE / OUT, READ = piece(PER_STORE * ITEM, 16);
    typedef Words<CHANNELS, PER_STORE> Stores;
    int items = (int)span.count * CHANNELS;
    Formula formula(coefficients);
#pragma unroll
    for (int turn = 0; turn < Stores::TURNS; ++turn) {
        int item = (turn * THREADS + threadIdx.x) * PER_STORE;
        if (!(WHOLE && Stores::IS_EVEN) && item >= items) break;
        Items<Source, PER_STORE> piece;
        piece.template read<READ>(chunk + item * ITEM);
        auto coefficient = [&](int i) {
            const int at = WHOLE ? item + i : smaller(item + i, items - 1);
            int pixel = at / CHANNELS, channel = at % CHANNELS;
            return coef + channel * params.coef_plane + span.place(params.pixels, pixel).coef;
        };
        epilogue(piece, formula, coefficient)
            .template write<STORE, WHOLE>(dst + (int64)item * OUT, items - item);
    }
}

#else

// Split: every thread splits pixels and writes a piece of each plane.
template <bool WHOLE>
INLINE void store(const Params &params, byte *dst, const byte *coefficients, int64 coef,
                  const Chunk &span, const byte *chunk) {
    const int pixels = span.count;
    Formula formula(coefficients);
#pragma unroll
    for (int turn = 0; turn < GROUPS; ++turn) {
        int group = turn * THREADS + threadIdx.x, pixel = group * GROUP;
        if (!WHOLE && pixel >= pixels) break;
        const Offsets at = span.place(params.pixels, pixel);
        SourcePixels all;
        all.fetch(chunk, group);
#pragma unroll
        for (int channel = 0; channel < CHANNELS; ++channel) {
            Line line;
#pragma unroll
            for (int i = 0; i < GROUP; ++i)
                line.item[i] = all.item[i * SOURCE_CHANNELS + plane_position(channel)];
            auto coefficient = [&](int i) {
                int64 place = coef + channel * params.coef_plane;
                // There is no coefficient after the last pixel.
                const int along = WHOLE ? pixel + i : smaller(pixel + i, pixels - 1);
                return COEFFICIENTS == 2 ? place + span.place(params.pixels, along).coef
                                         : place + at.coef;
            };
            epilogue(line, formula, coefficient)
                .template write<STORE, WHOLE>(
                    dst + channel * params.dst_plane + at.dst, pixels - pixel);
        }
    }
}

#endif

#if defined(SPLIT) && defined(MERGE)

// Replace pixels of the source by pixels of the output. Threads read all before one writes.
INLINE void exchange(byte *chunk) {
    SourcePixels all[GROUPS];
#pragma unroll
    for (int turn = 0; turn < GROUPS; ++turn) all[turn].fetch(chunk, turn * THREADS + threadIdx.x);
    if (CHANNELS != SOURCE_CHANNELS) __syncthreads();
#pragma unroll
    for (int turn = 0; turn < GROUPS; ++turn) {
        Pixels chosen;
#pragma unroll
        for (int i = 0; i < GROUP * CHANNELS; ++i)
            chosen.item[i] =
                all[turn].item[i / CHANNELS * SOURCE_CHANNELS + plane_position(i % CHANNELS)];
        chosen.put(chunk, turn * THREADS + threadIdx.x);
    }
    __syncthreads();
}

#endif

template <bool WHOLE>
INLINE void move(const Params &params, const Pointers &pointers, const Offsets &at,
                 const Chunk &span, byte *chunk) {
    load<WHOLE>(params, pointers.src[0] + (PLANES_ORDERED ? params.lowest : 0) + at.src, span, chunk);
    __syncthreads();
#if defined(SPLIT) && defined(MERGE)
    exchange(chunk);
#endif
    store<WHOLE>(params, pointers.dst + at.dst, pointers.coefficients, at.coef, span, chunk);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    interleave(const Params params, const Pointers pointers) {
    __shared__ __align__(16) byte chunk[CHUNK * larger(SOURCE_CHANNELS, CHANNELS) * ITEM];
    unsigned unit = blockIdx.x;
    unsigned tile = draw(unit, params.pixels.tiles);
    Chunk span(params.pixels, tile, CHUNK);
    Offsets at = params.outer.place(unit);
    at.add(1, span.first);
    // Full chunks are moved without bounds checks. The last pixel of the source may not be whole.
    const bool is_whole = SPAN == SOURCE_CHANNELS || span.start + CHUNK < params.pixels.total;
    if (span.count == CHUNK && is_whole)
        move<true>(params, pointers, at, span, chunk);
    else
        move<false>(params, pointers, at, span, chunk);
}
