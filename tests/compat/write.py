"""Write the files that later versions of layoutkit have to read, into a folder of this version.

    python -m tests.compat.write

A release writes its folder once (RELEASING.md). `test_compat.py` reads the folders of all versions.
"""

import json
import pickle
from pathlib import Path

import numpy as np

import layoutkit
from layoutkit import (
    ClassView,
    Collator,
    CompositeSpace,
    Conv2DSpace,
    Converter,
    ImageView,
    IndexSpace,
    VectorSpace,
)
from layoutkit.data import open_index, sampled_batcher, sampler
from layoutkit.data.recordio import RecordWriter, pack_image

PROTOCOL = 4  # the pickle protocol
RECORDS = 23
PIXELS = np.arange(2 * 4 * 5 * 3, dtype=np.uint8).reshape(2, 4, 5, 3)
IMAGES = [b"first", b"second", b"third image", bytes(range(256))]  # not decoded
PAYLOADS = [pack_image(image, float(number), number) for number, image in enumerate(IMAGES)]


def folder_of(version: str) -> Path:
    """Return the folder of the files of a version, which its patch releases share."""
    return Path(__file__).parent / ".".join(version.split(".")[:2])


def source():
    """Return arrays of RECORDS records with labels."""
    x = np.arange(RECORDS)
    return {"x": x, "y": [f"label {n % 3}" for n in x.tolist()]}


def open_batcher():
    """Return a Batcher like the one whose state is stored."""
    return sampled_batcher(source(), sampler="shuffle", batch_size=4, seed=11, num_workers=0)


def open_sampler():
    """Return a sampler like the pickled one."""
    return sampler("label-permutation", open_index(source()), batch_size=4, seed=11)


def make_objects():
    """Return the objects that are pickled, by file name."""
    label_view = ClassView("b", np.array([2, 0, 1]), classes=list("abc"))
    return {
        "converter": Converter("bhwc->bchw", dtype="float32", scale=0.5, mean=(1, 2, 3)),
        "collator": Collator("hwc->bchw", h=2, w=3, dtype="float32"),
        "view": ImageView("bhwc", PIXELS),
        "class_view": label_view,
        "space": CompositeSpace((VectorSpace(12), IndexSpace(10, 1))),
        "conv_space": Conv2DSpace((4, 5), num_channels=3, axes=("b", 0, 1, "c")),
        "index": open_index(source()),
        "sampler": open_sampler(),
    }


def positions_of(*loops):
    """Return the record numbers of the batches of loops."""
    return [batch.input.input.tolist() for loop in loops for batch in loop]


def public_names():
    """Return the public names, with their modules."""
    modules = layoutkit, layoutkit.data, layoutkit.data.recordio, layoutkit.images
    return sorted(f"{module.__name__}.{name}" for module in modules for name in module.__all__)


def main() -> None:
    """Write all files."""
    folder = folder_of(layoutkit.__version__)
    folder.mkdir(exist_ok=True)
    for name, value in make_objects().items():
        (folder / f"{name}.pickle").write_bytes(pickle.dumps(value, PROTOCOL))
    batcher = open_batcher()
    loop = iter(batcher)
    for _ in range(2):
        next(loop)
    state = batcher.state_dict()
    stored = {"state": state, "rest": positions_of(loop, batcher)}
    (folder / "batcher.json").write_text(json.dumps(stored, indent=1) + "\n")
    (folder / "names.json").write_text(json.dumps(public_names(), indent=1) + "\n")
    with RecordWriter(folder / "records.rec") as writer:
        for payload in PAYLOADS:
            writer.write(payload)


if __name__ == "__main__":
    main()
