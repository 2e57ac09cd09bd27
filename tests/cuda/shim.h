// The words of CUDA C++ for g++, so that kernels run on a CPU, where sanitizers watch them.
//
// A kernel is compiled as:  shim.h, its source in an unnamed namespace, fibers.h or threads.h.
// In the unnamed namespace everything is of this file alone: of arrays that the linker may merge
// with those of another file, AddressSanitizer does not watch the edges.
//
// Shared memory is static and in a section of its own, which the linker gives a beginning and an
// end, so that it can be filled between blocks.

#include <cmath>
#include <cstdio>
#include <cstring>
#include <vector>

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __shared__ static __attribute__((section("cuda_shared")))
#define __syncthreads() shim::barrier(__LINE__)

#ifdef SHIM_THREADS
#define SHIM_OWN static thread_local
#else
#define SHIM_OWN static
#endif

struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};

namespace shim {

struct Index {
    unsigned x;
};

void barrier(int line);

}  // namespace shim

SHIM_OWN shim::Index threadIdx, blockIdx, blockDim, gridDim;

extern char __start_cuda_shared[] __attribute__((weak, visibility("hidden")));
extern char __stop_cuda_shared[] __attribute__((weak, visibility("hidden")));

namespace shim {

// Fill shared memory, the red zones between arrays included, which no thread may tell.
__attribute__((no_sanitize("address", "thread", "undefined"))) inline void poison(char value) {
    for (volatile char *at = __start_cuda_shared; at < __stop_cuda_shared; ++at) *at = value;
}

enum Order { FORWARD, REVERSE, RANDOM };

// The numbers below `count` in an order; each call with RANDOM gives another one.
struct Numbers {
    Order order;
    unsigned long long state;

    Numbers(int order, unsigned seed) : order((Order)order), state(seed * 2654435769ull + 1) {}

    std::vector<unsigned> draw(unsigned count) {
        std::vector<unsigned> numbers(count);
        for (unsigned i = 0; i < count; ++i) numbers[i] = order == REVERSE ? count - 1 - i : i;
        if (order == RANDOM)
            for (unsigned i = count; i > 1; --i) std::swap(numbers[i - 1], numbers[next() % i]);
        return numbers;
    }

    unsigned next() {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        return state >> 33;
    }
};

}  // namespace shim

namespace {
