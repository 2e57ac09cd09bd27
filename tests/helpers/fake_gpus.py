"""Simulated GPUs: memory of the host, and streams that defer their work.

Work on a stream is deferred as long as CUDA allows, until the host waits for this work. Then only
the work that it depends on runs before: earlier work on the same stream, and work that events order
before it. So if a wait is missing, memory is read too early or overwritten too soon every time.

Memory is allocated at an address, on a device or page-locked. Freed memory is overwritten, and
reused at once on the same stream, as in CuPy's pool. Freeing memory that work on another stream
still uses is a violation. `Gpus.check` raises it: mostly the garbage collector frees memory, and an
exception there has no effect. A graph whose memory was freed raises when it is launched.
"""

import bisect
import ctypes
import threading
import weakref

import numpy as np

POISON = 0xA5
PINNED = -1  # the device number of page-locked memory
ROUND = 512  # allocations are multiples of this many bytes
GUARD = 64  # unused bytes after a block, so that its end is not the beginning of the next one


class CUDARuntimeError(RuntimeError):
    """An error like CuPy's, whose text begins with the name of the CUDA error."""


class Block:
    """Memory at an address, allocated or free. `uses` lists the work that reads or writes it."""

    def __init__(self, room, address, nbytes, device):
        self.room, self.address, self.nbytes, self.device = room, address, nbytes, device
        self.lent, self.times, self.uses = False, 0, []

    def poison(self):
        ctypes.memset(self.address, POISON, self.nbytes)


class Work:
    """A task of a stream, which runs after the tasks in `after`."""

    def __init__(self, name, run, after):
        self.name, self.run, self.after, self.done = name, run, after, False

    def finish(self):
        """Run this task now, after all unfinished tasks that it depends on."""
        waiting = [self]
        while waiting:
            work = waiting[-1]
            open_ones = [before for before in work.after if not before.done]
            if open_ones:
                waiting += open_ones
                continue
            waiting.pop()
            if not work.done:
                work.done = True
                work.run()
                work.after = []

    def follows(self, works):
        """Return the unfinished tasks in `works` that this task does not depend on."""
        left, seen, waiting = {id(work): work for work in works if not work.done}, set(), [self]
        while waiting and left:
            work = waiting.pop()
            left.pop(id(work), None)
            if id(work) not in seen:
                seen.add(id(work))
                waiting += work.after
        return list(left.values())


class Graph:
    """Captured work of a stream, which runs only when the graph is launched."""

    def __init__(self, relaxed):
        self.relaxed, self.lost, self.nodes = relaxed, False, []

    def launch(self, stream):
        """Put the captured work on a stream; raise if its memory was freed since the capture."""
        for name, run, blocks in self.nodes:
            for block, times in blocks:
                if not block.lent or block.times != times:
                    raise AssertionError(f"a graph's {name} uses memory that was given back")
            stream.put(name, run, [block for block, _ in blocks])


class Queue:
    """A stream of the hardware, whose work runs in order."""

    def __init__(self, gpus, device, name, pointer):
        self.gpus, self.device, self.name, self.pointer = gpus, device, name, pointer
        self.last, self.awaited, self.graph = None, [], None

    def put(self, name, run, blocks=()):
        """Put work on the stream; `blocks` is the memory that the work reads or writes."""
        if self.graph is not None:
            self.graph.nodes.append((name, run, [(block, block.times) for block in blocks]))
            return None
        if name:
            self.gpus.log.append((self.name, name))
        after = [work for work in (self.last, *self.awaited) if work is not None]
        self.last, self.awaited = work, _ = Work(name, run, after), []
        for block in blocks:
            block.uses = [*(use for use in block.uses if not use.done), work]
        if self.gpus.eager:
            work.finish()
        return work

    def synchronize(self):
        """Wait until all work on the stream is done."""
        self.gpus.refuse_capture(self)
        self.gpus.host_waits.append(self.name)
        for work in (self.last, *self.awaited):
            if work is not None:
                work.finish()

    def begin_capture(self, relaxed=True):
        """Begin to capture the work on the stream as a graph."""
        assert self.pointer, "the default stream cannot be captured"
        self.graph = Graph(relaxed)
        self.gpus.graphs.append(self.graph)

    def end_capture(self):
        """Return the captured graph; raise if the capture was invalidated."""
        graph, self.graph = self.graph, None
        self.gpus.graphs.remove(graph)
        if graph.lost:
            raise CUDARuntimeError("cudaErrorStreamCaptureInvalidated: the capture was lost")
        return graph


class Mark:
    """An event of the hardware."""

    def __init__(self, gpus, device):
        self.gpus, self.device, self.work, self.graph = gpus, device, None, None

    def record(self, queue):
        assert queue.device == self.device, "an event of another device"
        self.graph = queue.graph
        self.work = queue.put("record", lambda: None)

    def hold_back(self, queue):
        """Make all later work on a stream wait for this event."""
        if queue.graph is not self.graph:
            lost = queue.graph or self.graph
            lost.lost = True
            raise CUDARuntimeError("cudaErrorStreamCaptureIsolation: of another stream")
        if self.work is not None:
            queue.awaited.append(self.work)

    @property
    def done(self):
        """True if the event has happened. The query raises during a capture that is not relaxed."""
        strict = [graph for graph in self.gpus.graphs if not graph.relaxed]
        if strict and self.gpus.mode.capture != 2:
            strict[0].lost = True
            raise CUDARuntimeError("cudaErrorStreamCaptureUnsupported: an event was queried")
        self.gpus.queries += 1
        return self.work is None or self.work.done

    def synchronize(self):
        assert self.graph is None, "waits for what is captured"
        self.gpus.host_waits.append("event")
        if self.work is not None:
            self.work.finish()


class _Mode(threading.local):
    capture = 0  # 2 (relaxed) in a thread that may query events during captures


class Gpus:
    """The GPUs of a machine, with their streams and all allocated memory."""

    def __init__(self, count):
        self.count, self.eager, self.queries = count, False, 0
        self.log, self.host_waits, self.violations, self.graphs = [], [], [], []
        self.mode = _Mode()
        self.contexts = set()  # devices with a CUDA context
        self.queues = {}
        self._blocks, self._starts, self._free = {}, [], {}
        self._lock = threading.RLock()
        self.main = [Queue(self, n, f"main {n}", 0) for n in range(count)]
        self.of_thread = [Queue(self, n, f"thread {n}", 2) for n in range(count)]

    # -- streams ---------------------------------------------------------------------------

    def new_queue(self, device, name):
        """Return a new stream of a device, with a unique pointer."""
        pointer = 0x5000 + 16 * len(self.queues)
        self.queues[pointer] = Queue(self, device, name, pointer)
        self.contexts.add(device)
        return self.queues[pointer]

    def queue(self, pointer, device):
        """Return the stream of a pointer: 0 and 1 are the default stream, 2 the per-thread one."""
        if pointer == 2:
            return self.of_thread[device]
        return self.main[device] if pointer in (0, 1) else self.queues[pointer]

    def exchange(self, mode):
        """Set the capture mode of this thread; return the previous mode."""
        before, self.mode.capture = self.mode.capture, mode
        return before

    def refuse_capture(self, queue):
        """Raise, and invalidate the capture, if the stream is captured."""
        if queue.graph is not None:
            queue.graph.lost = True
            raise CUDARuntimeError("cudaErrorStreamCaptureUnsupported: waits for a capture")

    # -- memory ----------------------------------------------------------------------------

    def lend(self, nbytes, device, queue=None, shift=0):
        """Allocate bytes from the pool of a stream, or page-locked; return them as a NumPy array.

        The memory is freed with the array. The array begins `shift` bytes after a multiple of 16.
        """
        with self._lock:
            block = self._taken(max(1, nbytes + shift), device, queue)
            block.lent, block.times, block.uses = True, block.times + 1, block.uses
        kind = type("Lent", (ctypes.c_uint8 * max(1, nbytes),), {})
        lent = kind.from_address(block.address + shift)
        weakref.finalize(lent, self._give_back, block, block.times, queue).atexit = False
        return np.frombuffer(lent, np.uint8)[:nbytes]

    def _taken(self, nbytes, device, queue):
        arena = self._free.setdefault((device, queue), [])
        fitting = [block for block in arena if block.nbytes >= nbytes]
        if fitting:
            block = min(fitting, key=lambda block: block.nbytes)
            arena.remove(block)
            return block
        nbytes = -(-nbytes // ROUND) * ROUND
        room = np.full(nbytes + ROUND + GUARD, POISON, np.uint8)
        address = -(-room.__array_interface__["data"][0] // ROUND) * ROUND
        block = Block(room, address, nbytes, device)
        self._blocks[address] = block
        bisect.insort(self._starts, address)
        return block

    def _give_back(self, block, times, queue):
        with self._lock:
            if not block.lent or block.times != times:
                return
            block.lent = False
            late = [work for work in block.uses if not work.done]
            if queue is None:  # page-locked memory has no stream: it can be reused at once
                block.poison()
            elif queue.graph is None:
                work = Work("", block.poison, [w for w in (queue.last, *queue.awaited) if w])
                queue.last, queue.awaited = work, []
                late, block.uses = work.follows(late), [work]
                if self.eager:
                    work.finish()
            if late:
                kind = "page-locked memory" if block.device == PINNED else "memory"
                self.violations.append(f"{kind} was given back before {late[0].name} has used it")
            self._free[block.device, queue].append(block)

    def free_all(self, device, queue="any"):
        """Finish the work on free blocks and remove them: of a stream, on GPUs or page-locked."""
        with self._lock:
            for (where, whose), arena in self._free.items():
                if (where == PINNED) == (device == PINNED) and queue in ("any", whose):
                    for block in arena:
                        for work in block.uses:
                            work.finish()
                        block.poison()
                        self._starts.remove(block.address)
                        del self._blocks[block.address]
                    arena.clear()

    def settle(self, memory):
        """Finish the work on memory that was just allocated, so that the host can fill it."""
        for work in self.block_of(memory.__array_interface__["data"][0]).uses:
            work.finish()

    def block_of(self, address, nbytes=1):
        """Return the allocated block at an address, or None if the address is in no block."""
        with self._lock:
            at = bisect.bisect_right(self._starts, address) - 1
            block = self._blocks[self._starts[at]] if at >= 0 else None
        if block is None or address >= block.address + block.nbytes:
            return None
        assert block.lent, "memory that was given back"
        assert address + nbytes <= block.address + block.nbytes, "beyond what is lent"
        return block

    def held(self, device):
        """Return the number of bytes of a device, or page-locked, that are allocated or pooled."""
        return sum(block.nbytes for block in self._blocks.values() if block.device == device)

    def check(self):
        """Raise the violations that were found when memory was freed."""
        found, self.violations[:] = list(self.violations), []
        assert not found, "; ".join(found)
