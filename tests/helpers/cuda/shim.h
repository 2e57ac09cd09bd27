// The words of CUDA C++ for g++, so that kernels run on a CPU, where sanitizers watch them.
//
// A kernel is compiled as:  shim.h, its source in an unnamed namespace, fibers.h or threads.h.
// In the unnamed namespace everything is of this file alone: of arrays that the linker may merge
// with those of another file, AddressSanitizer does not watch the edges.
//
// Shared memory is static, and the only such memory that begins as zeros: what the executors keep
// is in a section of its own (SHIM). So the linker's names for where zeros begin and end are those
// of shared memory, which can be filled between blocks.
//
// Only headers of C, and no <math.h>: a kernel is compiled in half the time.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern "C" {
float rintf(float), fmaf(float, float, float);
double rint(double), fma(double, double, double);
}

#define __global__
#define __device__
#define __constant__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __shared__ static
#define __syncthreads() shim::barrier(__LINE__)
#define __syncwarp() shim::meet(__LINE__)

#define SHIM static __attribute__((section("shim")))
#ifdef SHIM_THREADS
#define SHIM_OWN static thread_local
#else
#define SHIM_OWN SHIM
#endif

struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};

// Return the four bytes of x (0 to 3) and y (4 to 7) that the digits of the selector name.
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
    unsigned long long both = (unsigned long long)y << 32 | x;
    unsigned result = 0;
    for (int i = 0; i < 4; ++i)
        result |= (unsigned)(both >> (selector >> 4 * i & 7) * 8 & 0xff) << 8 * i;
    return result;
}

namespace shim {

struct Index {
    unsigned x;
};

void barrier(int line);
void meet(int line);  // the threads of a warp

constexpr unsigned WARP = 32;

}  // namespace shim

SHIM_OWN shim::Index threadIdx, blockIdx, blockDim, gridDim;

extern char __bss_start[] __attribute__((visibility("hidden")));
extern char _end[] __attribute__((visibility("hidden")));

namespace shim {

// Fill shared memory, the red zones between arrays included, which no thread may tell.
__attribute__((no_sanitize("address", "thread", "undefined"))) inline void poison(char value) {
    for (volatile char *at = __bss_start; at < (volatile char *)_end; ++at) *at = value;
}

enum Order { FORWARD, REVERSE, RANDOM };

// Numbers below a count, in an order; with RANDOM every turn has another one.
struct Numbers {
    Order order;
    unsigned long long state;
    unsigned count, *number;

    Numbers(unsigned count, int order, unsigned seed)
        : order((Order)order), state(seed * 2654435769ull + 1), count(count),
          number((unsigned *)malloc(count * sizeof(unsigned))) {
        for (unsigned i = 0; i < count; ++i) number[i] = order == REVERSE ? count - 1 - i : i;
        shuffle();
    }
    ~Numbers() { free(number); }

    void shuffle() {
        for (unsigned i = count; order == RANDOM && i > 1; --i) {
            state = state * 6364136223846793005ull + 1442695040888963407ull;
            unsigned other = (state >> 33) % i, kept = number[i - 1];
            number[i - 1] = number[other], number[other] = kept;
        }
    }
};

}  // namespace shim

SHIM bool votes[1024];

// Return whether the argument is true for a thread of the warp. All its threads take part.
inline int __any_sync(unsigned, bool is_true) {
    votes[threadIdx.x] = is_true;
    shim::meet(__LINE__);
    const bool *const first = votes + threadIdx.x / shim::WARP * shim::WARP;
    bool is_any = false;
    for (unsigned i = 0; i < shim::WARP; ++i) is_any = is_any || first[i];
    shim::meet(__LINE__);
    return is_any;
}

namespace {
