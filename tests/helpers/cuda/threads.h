// Run a kernel block by block with a real thread for every CUDA thread, so that ThreadSanitizer
// sees which accesses no barrier orders. Barriers that not all threads meet would hang: run the
// same with fibers first, which say so.

}  // namespace

#include <pthread.h>

namespace shim {

struct Job {
    Params params;
    Pointers pointers;
    const Numbers *blocks;
    unsigned grid, block;
    int poison;
};

struct Thread {
    const Job *job;
    unsigned number;
    pthread_t handle;
};

// Used in turn. Of one, a thread that is late to leave would seem to have waited for all that others
// have done up to their next arrival, and ThreadSanitizer would see no race.
SHIM pthread_barrier_t meetings[2];
static thread_local unsigned met;

SHIM pthread_barrier_t warp_meetings[2][32];
static thread_local unsigned warp_met;

void meet(int) { pthread_barrier_wait(&warp_meetings[warp_met++ % 2][threadIdx.x / WARP]); }

void barrier(int) { pthread_barrier_wait(&meetings[met++ % 2]); }

static void *live(void *argument) {
    const Thread &self = *(const Thread *)argument;
    const Job &job = *self.job;
    gridDim.x = job.grid, blockDim.x = job.block, threadIdx.x = self.number;
    for (unsigned i = 0; i < job.grid; ++i) {
        blockIdx.x = job.blocks->number[i];
        if (!self.number) poison(job.poison);
        barrier(0);
        KERNEL(job.params, job.pointers);
        barrier(0);
    }
    return nullptr;
}

}  // namespace shim

extern "C" const size_t params_size = sizeof(Params), pointers_size = sizeof(Pointers);

extern "C" const char *run(const void *params, const void *pointers, unsigned grid, unsigned block,
                           int order, unsigned seed, int poison) {
    using namespace shim;
    Numbers blocks(grid, order, seed), numbers(block, order, seed + 1);
    Job job = {{}, {}, &blocks, grid, block, poison};
    memcpy(&job.params, params, sizeof(Params));
    memcpy(&job.pointers, pointers, sizeof(Pointers));
    for (pthread_barrier_t &meeting : meetings) pthread_barrier_init(&meeting, nullptr, block);
    for (auto &row : warp_meetings)
        for (pthread_barrier_t &meeting : row) pthread_barrier_init(&meeting, nullptr, shim::WARP);
    Thread *threads = (Thread *)calloc(block, sizeof(Thread));
    for (unsigned i = 0; i < block; ++i) {
        threads[i] = {&job, numbers.number[i], 0};
        if (pthread_create(&threads[i].handle, nullptr, live, &threads[i])) abort();
    }
    for (unsigned i = 0; i < block; ++i) pthread_join(threads[i].handle, nullptr);
    free(threads);
    for (pthread_barrier_t &meeting : meetings) pthread_barrier_destroy(&meeting);
    for (auto &row : warp_meetings)
        for (pthread_barrier_t &meeting : row) pthread_barrier_destroy(&meeting);
    return nullptr;
}
