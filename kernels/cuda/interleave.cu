// Few channels: packed pixels are split into planes, or planes are merged into packed pixels.
//
// A block takes a chunk of pixels. The side where channels lie together is one run of bytes, which
// goes through shared memory in words of 16; on the other side every plane is a run of its own.
// A thread takes GROUP pixels at a time, as many as fill a bank, with all their channels in
// registers, where items are exchanged by name.
//
//   SPLIT  source together, output apart       MERGE  source apart, output together

#include "walk.cuh"
#include "numeric.cuh"

struct Params {
    Loops outer;
    Axis pixels;
    int64 src_plane, dst_plane, coef_plane;  // the step from one channel to the next
    int64 channels;
};

// Two loops: images that follow each other on the side where channels lie together. A group of
// pixels is part of one image.
typedef Span<PIXELS_LOOPS != 1> Chunk;

constexpr int GROUP = larger(1, 4 / ITEM);
constexpr int CHUNK = THREADS * GROUP * GROUPS;  // pixels of a block
constexpr int GROUP_BYTES = GROUP * CHANNELS * ITEM, PIECE = piece(GROUP_BYTES, 16);

typedef Items<Source, GROUP> Line;               // neighbours in a plane
typedef Items<Source, GROUP * CHANNELS> Pixels;  // the same with all their channels

// Return the iterations in which a block handles all items of a chunk.
INLINE constexpr int turns(int items) {
    return (CHUNK * CHANNELS + THREADS * items - 1) / (THREADS * items);
}

// Return true if every thread takes part in the last iteration.
INLINE constexpr bool is_even(int items) { return CHUNK * CHANNELS % (THREADS * items) == 0; }

#ifdef SPLIT

// Copy the chunk's bytes unchanged.
template <bool WHOLE>
INLINE void load(const Params &, const byte *src, const Chunk &span, byte *chunk) {
    constexpr int PER_LOAD = LOAD / ITEM;
    int items = (int)span.count * CHANNELS;
#pragma unroll
    for (int turn = 0; turn < turns(PER_LOAD); ++turn) {
        int item = (turn * THREADS + threadIdx.x) * PER_LOAD;
        if (!(WHOLE && is_even(PER_LOAD)) && item >= items) break;
        Items<Source, PER_LOAD> piece;
        piece.template read<LOAD, WHOLE>(src + item * ITEM, items - item);
        piece.template write<LOAD>(chunk + item * ITEM);
    }
}

// Split: every thread splits pixels and writes a piece of each plane.
template <bool WHOLE>
INLINE void store(const Params &params, byte *dst, const byte *coefficients, int64 coef,
                  const Chunk &span, const byte *chunk) {
    const int pixels = span.count;
    Formula formula(coefficients, params.channels);
#pragma unroll
    for (int turn = 0; turn < GROUPS; ++turn) {
        int group = turn * THREADS + threadIdx.x, pixel = group * GROUP;
        if (!WHOLE && pixel >= pixels) break;
        const Offsets at = span.place(params.pixels, pixel);
        Pixels all;
        all.template read<PIECE>(chunk + group * GROUP_BYTES);
#pragma unroll
        for (int channel = 0; channel < CHANNELS; ++channel) {
            Line line;
#pragma unroll
            for (int i = 0; i < GROUP; ++i) line.item[i] = all.item[i * CHANNELS + channel];
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
                at + channel * params.src_plane, pixels - pixel);
#pragma unroll
            for (int i = 0; i < GROUP; ++i) all.item[i * CHANNELS + channel] = line.item[i];
        }
        all.template write<PIECE>(chunk + group * GROUP_BYTES);
    }
}

// Convert and write the chunk's items, which lie in the output's order.
template <bool WHOLE>
INLINE void store(const Params &params, byte *dst, const byte *coefficients, int64 coef,
                  const Chunk &span, const byte *chunk) {
    constexpr int PER_STORE = STORE / OUT, READ = piece(PER_STORE * ITEM, 16);
    int items = (int)span.count * CHANNELS;
    Formula formula(coefficients, params.channels);
#pragma unroll
    for (int turn = 0; turn < turns(PER_STORE); ++turn) {
        int item = (turn * THREADS + threadIdx.x) * PER_STORE;
        if (!(WHOLE && is_even(PER_STORE)) && item >= items) break;
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

#endif

template <bool WHOLE>
INLINE void move(const Params &params, const Pointers &pointers, const Offsets &at,
                 const Chunk &span, byte *chunk) {
    load<WHOLE>(params, pointers.src[0] + at.src, span, chunk);
    __syncthreads();
    store<WHOLE>(params, pointers.dst + at.dst, pointers.coefficients, at.coef, span, chunk);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    interleave(const Params params, const Pointers pointers) {
    __shared__ __align__(16) byte chunk[CHUNK * CHANNELS * ITEM];
    unsigned unit = blockIdx.x;
    unsigned tile = draw(unit, params.pixels.tiles);
    Chunk span(params.pixels, tile, CHUNK);
    Offsets at = params.outer.place(unit);
    at.add(1, span.first);
    // Full chunks are moved without bounds checks.
    if (span.count == CHUNK)
        move<true>(params, pointers, at, span, chunk);
    else
        move<false>(params, pointers, at, span, chunk);
}
