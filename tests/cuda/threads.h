// Run a kernel block by block with a real thread for every CUDA thread, so that ThreadSanitizer
// sees which accesses no barrier orders. Barriers that not all threads meet would hang: run the
// same with fibers first, which say so.

}  // namespace

#include <pthread.h>
#include <thread>

namespace shim {

static pthread_barrier_t meeting;

void barrier(int) { pthread_barrier_wait(&meeting); }

static void live(const Params &params, const Pointers &pointers, unsigned grid, unsigned block,
                 unsigned thread, const std::vector<unsigned> &blocks, int value) {
    gridDim.x = grid, blockDim.x = block, threadIdx.x = thread;
    for (unsigned number : blocks) {
        blockIdx.x = number;
        if (!thread) poison(value);
        barrier(0);
        KERNEL(params, pointers);
        barrier(0);
    }
}

}  // namespace shim

extern "C" const size_t params_size = sizeof(Params), pointers_size = sizeof(Pointers);

extern "C" const char *run(const void *params, const void *pointers, unsigned grid, unsigned block,
                           int order, unsigned seed, int poison) {
    Params by_value;
    Pointers addresses;
    memcpy(&by_value, params, sizeof by_value);
    memcpy(&addresses, pointers, sizeof addresses);
    shim::Numbers numbers(order, seed);
    std::vector<unsigned> blocks = numbers.draw(grid);
    pthread_barrier_init(&shim::meeting, nullptr, block);
    std::vector<std::thread> threads;
    for (unsigned thread : numbers.draw(block))
        threads.emplace_back(shim::live, std::cref(by_value), std::cref(addresses), grid, block,
                             thread, std::cref(blocks), poison);
    for (std::thread &thread : threads) thread.join();
    pthread_barrier_destroy(&shim::meeting);
    return nullptr;
}
