"""The rules of centering, for windows, crops, scaled images and padding alike.

The room is the size of the whole minus the size of its centered part. It is negative where a window
is larger than its sample; half of it is then minus the padding before the sample.

"round"    half of the room, rounded half to even, as in torchvision's `CenterCrop`
"floor"    half of the absolute difference of the sizes, rounded down, as in transformers since
           2025-09, in torchvision's padding and in ultralytics' letterbox

With both rules, the padding to a size equals the crop back from it.
"""

from __future__ import annotations

from typing import Any

CENTERINGS = ("round", "floor")
DEFAULT_CENTERING = "round"


def halve_room(room: Any, is_floor: Any) -> Any:
    """Return half of a room, an int or an array; kernels compile this function, too."""
    if is_floor:
        return (room + (room < 0)) // 2
    return (room + room // 2 % 2) // 2


def centered_start(room: Any, center: str) -> Any:
    """Return the first position of a centered part of a whole, an int or an array of int64.

    >>> [centered_start(room, "round") for room in range(-3, 8)]
    [-2, -1, 0, 0, 0, 1, 2, 2, 2, 3, 4]
    >>> [centered_start(room, "floor") for room in range(-3, 8)]
    [-1, -1, 0, 0, 0, 1, 1, 2, 2, 3, 3]
    """
    return halve_room(room, int(center == "floor"))
