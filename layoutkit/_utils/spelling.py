"""The known name that a misspelled one, or a name of another library, is meant to be.

Keywords of other libraries are in `planning/keywords.py`, with the values that replace theirs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

# Words of other libraries -> the choices that mean this. Pillow: modes. OpenCV, CSS: fits. PyTorch:
# samplers.
_OTHER_WORDS = {
    "contain": "pad", "inside": "pad", "letterbox": "pad", "scaledown": "pad", "crop": "cover",
    "outside": "cover", "centercrop": "cover", "fill": "stretch", "squash": "stretch",
    "warp": "stretch", "clip": "saturate", "clamp": "saturate", "round": "saturate",
    "skip": "drop", "ignore": "drop", "warn": "drop", "error": "raise", "strict": "raise",
    "l": "gray", "grayscale": "gray", "grey": "gray", "p": "index", "palette": "index",
    "color": "rgb", "np": "numpy", "pt": "torch", "pytorch": "torch", "cv2": "opencv",
    "pil": "pillow", "random": "shuffle", "randomsampler": "shuffle", "shuffled": "shuffle",
    "inorder": "linear", "sequentialsampler": "sequential", "weightedrandomsampler": "weighted",
    "balanced": "label-uniform",
}  # fmt: skip

# Attributes that objects of other libraries have -> what to write in place of them, by the module
# or class of layoutkit that lacks them.
_ATTRIBUTES: dict[str, dict[str, str]] = {
    "layoutkit.images": {
        "crop": "use collate(images, pattern, h=, w=), with offset= for each window's corner",
        "decode": "use read(file or bytes), or as a processor of batches Reader() or Decoder(size)",
        "imdecode": "use read(bytes)",
        "letterbox": "use fit(image, size, 'pad')",
        **dict.fromkeys(("imread", "load", "open"), "use read(path)"),
        **dict.fromkeys(
            ("Resize", "resize"),
            "use fit(image, size, 'stretch'), or collate(images, pattern, h=, w=, "
            "resize='bilinear')",
        ),
    },
    "layoutkit": {
        **dict.fromkeys(
            ("permute", "rearrange", "reshape", "transpose"), 'use convert(x, "bhwc->bchw")'
        ),
        **dict.fromkeys(
            ("crop", "resize", "stack"),
            'use collate(images, "hwc->bchw", h=224, w=224, resize="bilinear")',
        ),
        **dict.fromkeys(("load", "open", "read", "imread"), "use layoutkit.images.read(file)"),
        "Compose": "a Collator crops, resizes and normalizes in one pass",
        "Convert": "use Convert of layoutkit.torch, layoutkit.keras or layoutkit.sklearn",
        "DataLoader": "use layoutkit.data.sampled_batcher(source, batch_size=32)",
        "Dataset": "use layoutkit.data.Dataset",
        "normalize": 'use convert(x, "bhwc->bchw", scale=1 / 255, mean=..., std=...)',
        "sampled_batcher": "use layoutkit.data.sampled_batcher",
        "to_tensor": "use layoutkit.torch.Convert",
    },
    "layoutkit.data": {
        **dict.fromkeys(("DataLoader", "Loader"), "use sampled_batcher(source, batch_size=32)"),
        **dict.fromkeys(
            ("ImageFolder", "load", "load_dataset", "read"), "use open_index(folder or file)"
        ),
        "concat": "use mix([(source, weight), ...])",
        "random_split": "use open_index(source).split(0.8, seed=0)",
    },
    "Converter": {
        "apply": "call it: converter(x)",
        "convert": "call it: converter(x)",
        "cuda": 'results are on the device of x, or of Converter(pattern, device="cuda")',
        **dict.fromkeys(("eval", "train"), "omit it: a conversion is the same in both modes"),
        "forward": "call it: converter(x)",
        "to": 'results are on the device of x, or of Converter(pattern, device="cuda")',
        "transform": "call it: converter(x)",
    },
    "Collator": {
        "collate": "call it: collator(samples)",
        "collate_fn": "it is one itself: DataLoader(dataset, collate_fn=collator)",
        "cuda": 'batches are on the device of the samples, or of Collator(pattern, device="cuda")',
        "draw": "use place(samples), which draws the windows of a call",
        "forward": "call it: collator(samples)",
        "placement": "use place(samples), which returns the placements of a call",
        "to": 'batches are on the device of the samples, or of Collator(pattern, device="cuda")',
        "transform": "call it: collator(samples)",
    },
    "View": {
        "array": "use input, the array that was put, or forward_get(layout)",
        "astype": 'use forward_get(dtype="float32")',
        "data": "use input, the array that was put, or forward_get(layout)",
        "get": "use forward_get(layout)",
        "grad": "use backward_get(layout)",
        "numpy": "use input, the array that was put, or forward_get(layout)",
        "permute": 'use forward_get(layout), such as forward_get("bchw")',
        "put": "use forward_put(layout, array)",
        "reshape": 'use forward_get(layout), such as forward_get("bf")',
        "to": 'use forward_get(layout, device="cuda")',
        "transpose": 'use forward_get(layout), such as forward_get("bchw")',
        "values": "use input, the array that was put, or forward_get(layout)",
    },
    "Batcher": {
        "load_state": "use load_state_dict(state)",
        "next": "use next(iter(batches)), or a for loop",
        "save_state": "use state_dict()",
        "shuffle": 'use sampled_batcher(..., sampler="shuffle")',
        "stop": "use close()",
    },
    "Index": {
        "batch": "use sampled_batcher(index, batch_size=32)",
        "filter": "use index[positions], with the positions of the records to keep",
        "get": "use index[position], a Record",
        "map": "use sampled_batcher(index, processor=function)",
        "random_split": "use split(0.8, seed=0)",
        "select": "use index[positions]",
        "shuffle": 'use sampled_batcher(index, sampler="shuffle")',
        "skip": "use a slice, such as index[10:]",
        "subset": "use index[positions]",
        "take": "use a slice, such as index[:10]",
        "train_test_split": "use split(0.8, seed=0)",
    },
}


def find_similar(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that differs by a typo from `name`, or None.

    Case, `-` and `_` make no difference. Names with common letters, such as fill and refill, are
    not similar: a guess that is wrong costs more than the list of all names.

    >>> find_similar("Bicubik", ["bilinear", "bicubic"]), find_similar("copy", ["crop"])
    ('bicubic', None)
    """
    plain = _simplify(name)
    allowed = 1 if len(plain) < 6 else 2  # edits
    edits = {candidate: _count_edits(plain, _simplify(candidate)) for candidate in known}
    best = min(edits, key=edits.__getitem__, default="")
    return best if len(plain) > 2 and edits and edits[best] <= allowed else None


def find_choice(value: Any, choices: Iterable[str]) -> str | None:
    """Return the choice that another library calls `value`, or a typo means; None for others.

    >>> find_choice("letterbox", ["cover", "pad"]), find_choice("Cover", ["cover", "pad"])
    ('pad', 'cover')
    """
    if not isinstance(value, str):
        return None
    known = [*choices]
    other = _OTHER_WORDS.get(_simplify(value))
    return other if other in known else find_similar(value, known)


def make_attribute_error(owner: str, name: str, *tables: str) -> AttributeError:
    """Return the error for an attribute that an owner lacks, with a cure if a table has one."""
    cures = [_ATTRIBUTES[table][name] for table in tables if name in _ATTRIBUTES.get(table, ())]
    cure = f"; {cures[0]}" if cures else ""
    return AttributeError(f"{owner} has no attribute {name!r}{cure}")


class CuresForAttributes:
    """A class whose objects explain the attributes that they lack, and other libraries have."""

    if not TYPE_CHECKING:  # with this method, every attribute would have the type Any

        def __getattr__(self, name: str) -> Any:
            cls = type(self)
            if hasattr(cls, name):  # a property, which raised an AttributeError of its own
                return object.__getattribute__(self, name)
            bases = [base.__name__ for base in cls.__mro__]
            raise make_attribute_error(f"{cls.__name__!r} object", name, *bases)


def _simplify(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")


def _count_edits(one: str, other: str) -> int:
    """Return the number of letters to insert, omit, replace or exchange with their neighbor."""
    before: list[int] = []
    last = [*range(len(other) + 1)]
    for i, letter in enumerate(one, 1):
        row = [i]
        for j, other_letter in enumerate(other, 1):
            edits = min(last[j] + 1, row[-1] + 1, last[j - 1] + (letter != other_letter))
            if i > 1 and j > 1 and one[i - 2 : i] == other[j - 2 : j][::-1]:
                edits = min(edits, before[j - 2] + 1)
            row.append(edits)
        before, last = last, row
    return last[-1]
