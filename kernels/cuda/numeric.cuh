// Casts and the normalization formula, for items of the dtypes SOURCE and TARGET.
//
// Dtypes have short names: b1 (bool), i1 to i8, u1 to u8, f2, bf (bfloat16), f4, f8, c8, c16; and m1
// to m16 are items of 1 to 16 bytes that are only moved. Values equal those that CPU kernels compute:
//
// - bf is the upper half of an f4, rounded to even;
// - f8 -> f2 goes through f4 rounded to odd, which preserves the bits that the second rounding needs;
// - float -> integer rounds half to even and saturates, NaN becomes 0. Casts whose result is
//   undefined in C are not handled here.
//
// Instructions that the compiler option -ftz=true would make flush subnormals are written as PTX.

typedef signed char int8;

INLINE unsigned bits_of(float x) {
#ifdef __CUDA_ARCH__
    return __float_as_uint(x);
#else
    unsigned bits;
    __builtin_memcpy(&bits, &x, 4);
    return bits;
#endif
}

INLINE float float_of(unsigned bits) {
#ifdef __CUDA_ARCH__
    return __uint_as_float(bits);
#else
    float x;
    __builtin_memcpy(&x, &bits, 4);
    return x;
#endif
}

INLINE float to_float(double x) {
#ifdef __CUDA_ARCH__
    float y;
    asm("cvt.rn.f32.f64 %0, %1;" : "=f"(y) : "d"(x));
    return y;
#else
    return (float)x;
#endif
}

INLINE double to_double(float x) {
#ifdef __CUDA_ARCH__
    double y;
    asm("cvt.f64.f32 %0, %1;" : "=d"(y) : "f"(x));
    return y;
#else
    return x;
#endif
}

INLINE float plus(float x, float y) {
#ifdef __CUDA_ARCH__
    float z;
    asm("add.rn.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y));
    return z;
#else
    return x + y;
#endif
}

INLINE double plus(double x, double y) { return x + y; }
INLINE uint64 plus(uint64 x, uint64 y) { return x + y; }

INLINE float quotient(float x, float y) {
#ifdef __CUDA_ARCH__
    float z;
    asm("div.rn.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y));
    return z;
#else
    return x / y;
#endif
}

INLINE double quotient(double x, double y) { return x / y; }

// A complex number, as it is in memory.
template <class Part> struct Pair {
    Part real, imaginary;
};

template <class Part> INLINE Pair<Part> plus(const Pair<Part> &x, const Pair<Part> &y) {
    return {plus(x.real, y.real), plus(x.imaginary, y.imaginary)};
}

INLINE float multiply_add(float x, float factor, float term) {
#ifdef __CUDA_ARCH__
    float y;
    asm("fma.rn.f32 %0, %1, %2, %3;" : "=f"(y) : "f"(x), "f"(factor), "f"(term));
    return y;
#else
    return fmaf(x, factor, term);
#endif
}

INLINE double multiply_add(double x, double factor, double term) { return fma(x, factor, term); }

// ---- 16-bit floats -----------------------------------------------------------------------

INLINE float from_half(unsigned short half) {
#ifdef __CUDA_ARCH__
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(half));
    return x;
#else
    unsigned sign = (half & 0x8000u) << 16, rest = half & 0x7fffu;
    if (rest >= 0x7c00) return float_of(sign | 0x7f800000 | (rest & 0x3ff) << 13);
    // Half the bias is between the exponents of both: a product puts subnormals right, too.
    return float_of(sign | bits_of(float_of(rest << 13) * 0x1p112f));
#endif
}

// Round by the instruction, if the GPU has one; it does not preserve the payload of a NaN.
INLINE unsigned short round_to_half(float x) {
#ifdef __CUDA_ARCH__
    unsigned short half;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(x));
    return half;
#else
    unsigned bits = bits_of(x), sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
    if (rest > 0x7f800000) return 0x7fff;
    if (rest >= 0x477ff000) return (unsigned short)(sign | 0x7c00);
    // Below the smallest normal number, adding 0.5 leaves the rounded fraction in the last bits.
    if (rest < 0x38800000)
        return (unsigned short)(sign | (bits_of(float_of(rest) + 0.5f) - 0x3f000000));
    return (unsigned short)(sign | (rest - 0x38000000 + 0xfff + (rest >> 13 & 1)) >> 13);
#endif
}

INLINE unsigned short round_to_bfloat(float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    unsigned short bfloat;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bfloat) : "f"(x));
    return bfloat;
#else
    unsigned bits = bits_of(x);
    // A payload of all ones must not round up to infinity.
    if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fff;
    return (unsigned short)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
#endif
}

INLINE unsigned short to_half(float x) {
    unsigned bits = bits_of(x);
    unsigned short nan = (unsigned short)((bits >> 16 & 0x8000) | 0x7e00 | (bits >> 13 & 0x3ff));
    return (bits & 0x7fffffff) > 0x7f800000 ? nan : round_to_half(x);
}

INLINE unsigned short to_bfloat(float x) {
    unsigned bits = bits_of(x);
    unsigned short nan = (unsigned short)((bits | 0x400000) >> 16);
    return (bits & 0x7fffffff) > 0x7f800000 ? nan : round_to_bfloat(x);
}

// An inexact result gets last bit 1, so that a second rounding is correct.
INLINE float round_to_odd(double x) {
    float near = to_float(x);
    double back = to_double(near);
    if (!(back != x) || x != x) return near;
    bool beyond = (back < 0 ? -back : back) > (x < 0 ? -x : x);
    return float_of((bits_of(near) - beyond) | 1);
}

// ---- dtypes ------------------------------------------------------------------------------

template <class T, int BITS, bool SIGNED> struct Integer {
    typedef T memory, value;
    static constexpr bool is_float = false, is_signed = SIGNED, is_bool = false;
    static constexpr int digits = BITS - SIGNED;  // the largest value is 2^digits - 1
    static INLINE T read(T x) { return x; }
};

struct i1 : Integer<int8, 8, true> {};
struct i2 : Integer<short, 16, true> {};
struct i4 : Integer<int, 32, true> {};
struct i8 : Integer<int64, 64, true> {};
struct u1 : Integer<byte, 8, false> {};
struct u2 : Integer<unsigned short, 16, false> {};
struct u4 : Integer<unsigned, 32, false> {};
struct u8 : Integer<uint64, 64, false> {};
struct b1 : Integer<byte, 1, false> {
    static constexpr bool is_bool = true;
};

template <class Memory, class Value> struct Float {
    typedef Memory memory;
    typedef Value value;
    static constexpr bool is_float = true, is_signed = true, is_bool = false;
    static constexpr int digits = sizeof(Value) == 8 ? 53 : 24;
};

struct f2 : Float<unsigned short, float> {
    static INLINE float read(unsigned short x) { return from_half(x); }
    static INLINE unsigned short write(float x) { return to_half(x); }
    static INLINE unsigned short write(double x) { return to_half(round_to_odd(x)); }
    static INLINE unsigned short write_computed(float x) { return round_to_half(x); }
};
struct bf : Float<unsigned short, float> {
    static INLINE float read(unsigned short x) { return float_of((unsigned)x << 16); }
    static INLINE unsigned short write(float x) { return to_bfloat(x); }
    static INLINE unsigned short write(double x) { return to_bfloat(to_float(x)); }
    static INLINE unsigned short write_computed(float x) { return round_to_bfloat(x); }
};
struct f4 : Float<float, float> {
    static INLINE float read(float x) { return x; }
    static INLINE float write(float x) { return x; }
    static INLINE float write(double x) { return to_float(x); }
};
struct f8 : Float<double, double> {
    static INLINE double read(double x) { return x; }
    static INLINE double write(float x) { return to_double(x); }
    static INLINE double write(double x) { return x; }
};

// Complex numbers are added, and never cast.
struct c8 { typedef Pair<float> memory, value; };
struct c16 { typedef Pair<double> memory, value; };

// The dtypes that can be added, and their numbers, as in CODES of accumulate.py.
#define ADDED(EACH)                                                                            \
    EACH(i1, 0) EACH(i2, 1) EACH(i4, 2) EACH(i8, 3) EACH(u1, 4) EACH(u2, 5) EACH(u4, 6)        \
    EACH(u8, 7) EACH(f2, 8) EACH(bf, 9) EACH(f4, 10) EACH(f8, 11) EACH(c8, 12) EACH(c16, 13)

template <class T> struct Moved { typedef T memory; };
struct m1 : Moved<byte> {};
struct m2 : Moved<unsigned short> {};
struct m4 : Moved<unsigned> {};
struct m8 : Moved<uint2> {};
struct m16 : Moved<uint4> {};

// ---- casts -------------------------------------------------------------------------------

INLINE bool is_zero(float x) { return !(bits_of(x) & 0x7fffffff); }
INLINE bool is_zero(double x) { return x == 0; }
template <class T> INLINE bool is_zero(T x) { return x == 0; }

INLINE float whole(float x) { return rintf(x); }
INLINE double whole(double x) { return rint(x); }

INLINE constexpr uint64 ones(int count) { return count < 64 ? (1ull << count) - 1 : ~0ull; }

// Round half to even, then saturate; NaN becomes 0. The upper bound may not be representable as a
// float: values above the largest float below it are replaced at the end.
template <class To, class Value> INLINE typename To::memory to_integer(Value x) {
#ifdef __CUDA_ARCH__
    if constexpr (sizeof(Value) == 4 && sizeof(typename To::memory) <= 4) {
        constexpr int SIZE = sizeof(typename To::memory);
        int whole;  // one instruction rounds, saturates, and makes NaN 0
        if (SIZE == 1 && To::is_signed) asm("cvt.rni.s8.f32 %0, %1;" : "=r"(whole) : "f"(x));
        if (SIZE == 1 && !To::is_signed) asm("cvt.rni.u8.f32 %0, %1;" : "=r"(whole) : "f"(x));
        if (SIZE == 2 && To::is_signed) asm("cvt.rni.s16.f32 %0, %1;" : "=r"(whole) : "f"(x));
        if (SIZE == 2 && !To::is_signed) asm("cvt.rni.u16.f32 %0, %1;" : "=r"(whole) : "f"(x));
        if (SIZE == 4 && To::is_signed) asm("cvt.rni.s32.f32 %0, %1;" : "=r"(whole) : "f"(x));
        if (SIZE == 4 && !To::is_signed) asm("cvt.rni.u32.f32 %0, %1;" : "=r"(whole) : "f"(x));
        return (typename To::memory)whole;
    }
#endif
    constexpr int held = sizeof(Value) == 8 ? 53 : 24;
    constexpr int lost = To::digits > held ? To::digits - held : 0;
    constexpr Value high = (Value)(ones(To::digits - lost) << lost);
    constexpr Value low = To::is_signed ? -(Value)(1ull << (To::digits & 63)) : (Value)0;
    x = whole(x);
    x = x == x ? x : 0;
    Value within = x > low ? x : low;
    within = within < high ? within : high;
    typename To::memory result;
    if (To::is_signed || To::digits < 64)
        result = (typename To::memory)(int64)within;
    else
        result = (typename To::memory)(uint64)within;
    return lost && x > high ? (typename To::memory)ones(To::digits) : result;
}

template <class To, class From>
INLINE typename To::memory clip(typename From::value x) {
    typedef typename From::value V;
    if constexpr (From::is_signed && (!To::is_signed || To::digits < From::digits)) {
        constexpr V low = To::is_signed ? (V)(-(int64)ones(To::digits) - 1) : (V)0;
        x = x < low ? low : x;
    }
    if constexpr (To::digits < From::digits) {
        constexpr V high = (V)ones(To::digits);
        x = x > high ? high : x;
    }
    return (typename To::memory)x;
}

template <class, class> constexpr bool is_same = false;
template <class T> constexpr bool is_same<T, T> = true;

template <class To, class From, bool CLIP>
INLINE typename To::memory cast(typename From::memory item) {
    if constexpr (!is_same<To, From>) {
        typename From::value x = From::read(item);
        if constexpr (To::is_bool)
            return !is_zero(x);
        else if constexpr (To::is_float && From::is_float)
            return To::write(x);
        else if constexpr (To::is_float)  // f2 and bf by way of f4
            return To::write((typename To::value)x);
        else if constexpr (From::is_float)
            return to_integer<To>(x);
        else if constexpr (CLIP)
            return clip<To, From>(x);
        else
            return (typename To::memory)x;
    } else {
        return item;
    }
}

// Cast a computed value: a GPU's arithmetic does not preserve the payload of a NaN.
template <class To, class From, bool CLIP>
INLINE typename To::memory cast_computed(typename From::memory x) {
    if constexpr (To::is_float && sizeof(typename To::memory) == 2 && sizeof(x) == 4)
        return To::write_computed(x);
    else
        return cast<To, From, CLIP>(x);
}

// ---- the epilogue ------------------------------------------------------------------------

// Clip to bounds of the item's dtype; NaN stays NaN.
template <class Value> INLINE Value clipped(Value x, Value low, Value high) {
    x = x < low ? low : x;
    return x > high ? high : x;
}

#ifdef SOURCE

#ifndef SATURATE
#define SATURATE 0
#endif
// COEFFICIENTS: 0 no formula; 1 one pair for neighbors along the output; 2 a pair per item.
#ifndef COEFFICIENTS
#define COEFFICIENTS 0
#endif

// BOUNDED: two bounds, which are stored before the pairs, are of items (1) or of results (2).
#ifndef BOUNDED
#define BOUNDED 0
#endif

typedef SOURCE::memory Source;
typedef TARGET::memory Target;
constexpr int ITEM = sizeof(Source), OUT = sizeof(Target);

#if COEFFICIENTS

// f4, or f8 if either side is.
typedef COMPUTED::memory Computed;

// Two numbers that are read together from memory that no thread writes while the kernel runs.
struct alignas(2 * sizeof(Computed)) Constants {
    typedef typename Word<2 * sizeof(Computed)>::type Both;

    Computed first, second;

    INLINE Constants(const byte *numbers, int64 place) {
        const Both *at = (const Both *)numbers + place;
#ifdef __CUDA_ARCH__
        *(Both *)this = __ldg(at);
#else
        *(Both *)this = *at;
#endif
    }
};

// The coefficients are the bounds, if there are any, and a factor and a term for each place.
struct Formula {
    const byte *numbers;
    Computed factor, term;

    Formula() = default;
    INLINE Formula(const byte *coefficients) : numbers(coefficients) {}

    INLINE void choose(int64 place) {
        const Constants pair(numbers + (BOUNDED != 0) * sizeof(Constants), place);
        factor = pair.first;
        term = pair.second;
    }

    INLINE Computed bounded(Computed value) const {
        const Constants bounds(numbers, 0);
        return clipped(value, bounds.first, bounds.second);
    }

    INLINE Target apply(Source x) const {
        Computed value = cast<COMPUTED, SOURCE, false>(x);
        if (BOUNDED == 1) value = bounded(value);
        value = multiply_add(value, factor, term);
        if (BOUNDED == 2) value = bounded(value);
        return cast_computed<TARGET, COMPUTED, SATURATE>(value);
    }
};

#elif BOUNDED

// Integers that are clipped without a formula.
struct Formula {
    const Source *bounds;

    Formula() = default;
    INLINE Formula(const byte *coefficients) : bounds((const Source *)coefficients) {}
    INLINE void choose(int64) {}
    INLINE Target apply(Source x) const {
        return cast<TARGET, SOURCE, SATURATE>(clipped(x, bounds[0], bounds[1]));
    }
};

#else

struct Formula {
    Formula() = default;
    INLINE Formula(const byte *) {}
    INLINE void choose(int64) {}
    INLINE Target apply(Source x) const { return cast<TARGET, SOURCE, SATURATE>(x); }
};

#endif

// Convert neighbors along the output; `place(i)` is the index of the coefficients of item i.
template <int COUNT, class Place>
INLINE Items<Target, COUNT> epilogue(const Items<Source, COUNT> &items, Formula &formula,
                                   Place place) {
    Items<Target, COUNT> done;
    if (COEFFICIENTS == 1) formula.choose(place(0));
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
        if (COEFFICIENTS == 2) formula.choose(place(i));
        done.item[i] = formula.apply(items.item[i]);
    }
    return done;
}

#endif
