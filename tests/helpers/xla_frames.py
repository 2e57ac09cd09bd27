"""Call frames of XLA's foreign functions (`XLA_FFI_CallFrame`), made by hand."""

import ctypes

from layoutkit.backends.jax import ffi

REFUSED = 77  # what the handler returns, the "address" of the error
messages = []  # of the errors that handlers created


@ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.POINTER(ctypes.c_int64))
def _create_error(words):
    assert words[0] == 28
    messages.append(ctypes.string_at(words[2]).decode())
    return REFUSED


def words(*values):
    return (ctypes.c_int64 * len(values))(*values)


_API = words(56, 0, 24, 0, 0, 0, ctypes.cast(_create_error, ctypes.c_void_p).value)


def buffer_of(array, **changes):
    """Return an array's buffer as words, some of them changed, and its sizes."""
    shape = changes.get("shape", array.shape)
    sizes = words(*shape)
    number = changes.get("number", ffi.TYPE_NUMBERS[array.dtype.name])
    # XLA does not initialize the upper half of the word that holds the number of the dtype.
    number |= 0x5A5A5A5A << 32
    address = array.ctypes.data + changes.get("shift", 0)
    return words(48, 0, number, address, len(shape), ctypes.addressof(sizes)), sizes


def frame_of(source, target, extension=0, counts=(1, 1)):
    """Return a call frame with two buffers of `buffer_of`, and all memory that it refers to."""
    lists = [words(ctypes.addressof(buffer)) for buffer, _ in (source, target)]
    arguments, results = (
        (40, 0, count, 0, ctypes.addressof(each)) for count, each in zip(counts, lists, strict=True)
    )
    api = ctypes.addressof(_API)
    frame = words(160, extension, api, 0, 3, *arguments, *results, 40, 0, 0, 0, 0)
    return frame, (lists, source, target)


def handler_of(converter, plan):
    """Return the registered function of a plan, to be called with a frame."""
    address = ffi.register(converter, plan).address
    function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(address)
    return lambda frame: function(ctypes.addressof(frame[0]))


# Changes of one buffer for which a handler must return an error.
UNPLANNED = {
    "one item less": lambda x: {"shape": (x.size - 1,)},
    "one item more": lambda x: {"shape": (x.size + 1,)},
    "another axis": lambda x: {"shape": (*x.shape, 2)},
    "no axes": lambda x: {"shape": (0,) if x.size == 1 else ()},
    "items of other sizes": lambda x: {"number": {1: 4, 4: 12}.get(x.dtype.itemsize, 6)},
    "packed items": lambda x: {"number": 21},
    "an unknown dtype": lambda x: {"number": 99},
}
