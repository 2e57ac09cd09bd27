// Run a kernel block by block on one thread. Every CUDA thread is a fiber that runs to the next
// barrier, of its warp or of the block; when all of them are there, they go on, in the order that is
// asked for.

}  // namespace

#include <sys/mman.h>
#include <ucontext.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#define LEAVE(keep, stack, size) __sanitizer_start_switch_fiber(keep, stack, size)
#define ARRIVE(kept, stack, size) __sanitizer_finish_switch_fiber(kept, stack, size)
#else
#define LEAVE(keep, stack, size) ((void)(keep), (void)(stack), (void)(size))
#define ARRIVE(kept, stack, size) ((void)(kept), (void)(stack), (void)(size))
#endif

namespace shim {

constexpr size_t STACK = 1 << 17;
constexpr int FINISHED = 0;  // instead of the line of a barrier

struct Fiber {
    ucontext_t context;
    char *stack;
    void *kept;
    int line;
    bool meets, waits;  // at a barrier of its warp; for fibers that are not at their barrier
};

struct Arguments {
    Params params;
    Pointers pointers;
};

SHIM Arguments arguments;
SHIM Fiber *fibers;
SHIM Fiber *running;
SHIM ucontext_t scheduler;
SHIM void *kept;
SHIM const void *scheduler_stack;
SHIM size_t scheduler_size;

static void pause(int line, bool meets = false) {
    Fiber *self = running;
    self->line = line, self->meets = meets;
    LEAVE(&self->kept, scheduler_stack, scheduler_size);
    swapcontext(&self->context, &scheduler);
    ARRIVE(self->kept, &scheduler_stack, &scheduler_size);
}

void barrier(int line) { pause(line); }
void meet(int line) { pause(line, true); }

__attribute__((no_sanitize("address"))) static void live() {
    ARRIVE(nullptr, &scheduler_stack, &scheduler_size);
    for (;;) {
        KERNEL(arguments.params, arguments.pointers);
        pause(FINISHED);
    }
}

static void resume(unsigned number) {
    running = &fibers[number];
    threadIdx.x = number;
    LEAVE(&kept, running->stack, STACK);
    swapcontext(&scheduler, &running->context);
    ARRIVE(kept, nullptr, nullptr);
}

// Return whether so many fibers are at the same barrier.
static bool are_together(const Fiber *first, unsigned count) {
    for (unsigned i = 1; i < count; ++i)
        if (first[i].line != first->line || first[i].meets != first->meets) return false;
    return true;
}

// Run all fibers to the end of the block; false if they do not all meet at every barrier.
static bool run_block(Numbers &threads) {
    for (unsigned i = 0; i < threads.count; ++i) fibers[i].waits = false;
    for (;;) {
        threads.shuffle();
        for (unsigned i = 0; i < threads.count; ++i)
            if (!fibers[threads.number[i]].waits) resume(threads.number[i]);
        bool goes_on = false;
        for (unsigned i = 0; i < threads.count; i += WARP) {
            if (!are_together(fibers + i, WARP)) return false;
            for (unsigned j = i; j < i + WARP; ++j) fibers[j].waits = !fibers[j].meets;
            goes_on = goes_on || fibers[i].meets;
        }
        if (goes_on) continue;
        if (!are_together(fibers, threads.count)) return false;
        if (fibers[0].line == FINISHED) return true;
        for (unsigned i = 0; i < threads.count; ++i) fibers[i].waits = false;
    }
}

static void begin(Fiber &fiber, char *stack) {
    fiber.stack = stack;
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = stack;
    fiber.context.uc_stack.ss_size = STACK;
    makecontext(&fiber.context, live, 0);
}

static const char *divergence() {
    SHIM char message[120];
    unsigned other = 1;
    while (fibers[other].line == fibers[0].line) ++other;
    auto where = [](int line) { return line == FINISHED ? -1 : line; };
    snprintf(message, sizeof message,
             "barrier divergence in block %u: thread 0 is at line %d, thread %u at line %d "
             "(-1: at the end)",
             blockIdx.x, where(fibers[0].line), other, where(fibers[other].line));
    return message;
}

}  // namespace shim

extern "C" const size_t params_size = sizeof(Params), pointers_size = sizeof(Pointers);

// Run all blocks; what went wrong, or null.
extern "C" const char *run(const void *params, const void *pointers, unsigned grid, unsigned block,
                           int order, unsigned seed, int poison) {
    using namespace shim;
    memcpy(&arguments.params, params, sizeof(Params));
    memcpy(&arguments.pointers, pointers, sizeof(Pointers));
    char *stacks = (char *)mmap(nullptr, STACK * block, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stacks == MAP_FAILED) return "no memory for stacks";
    fibers = (Fiber *)calloc(block, sizeof(Fiber));
    for (unsigned i = 0; i < block; ++i) begin(fibers[i], stacks + STACK * i);
    Numbers blocks(grid, order, seed), threads(block, order, seed + 1);
    gridDim.x = grid, blockDim.x = block;
    const char *wrong = nullptr;
    for (unsigned i = 0; i < grid && !wrong; ++i) {
        blockIdx.x = blocks.number[i];
        shim::poison(poison);
        if (!run_block(threads)) wrong = divergence();
    }
    free(fibers);
    munmap(stacks, STACK * block);
    return wrong;
}
