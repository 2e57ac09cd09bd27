"""The words of the help that are no option's: how a command is called, by example."""

from textwrap import dedent

__all__ = ["ABOUT_CONVERT", "examples"]

ABOUT_CONVERT = dedent("""
    Convert a file of an array, or pictures, into a .npy file.

      SRC      a file of one array (.npy, .npz, .safetensors, .pt), or pictures: files, a folder, or
               a glob in quotes
      DST      the .npy file to write or replace
      PATTERN  such as 'bhwc->bchw', in quotes; pictures are bhwc
""")

_EXAMPLES = {
    "": ["convert photos/ batch.npy 'bhwc->bchw' --resize 224x224", "explain 'bhwc->bchw'"],
    "convert": [
        "convert x.npy y.npy 'bhwc->bchw'",
        "convert photos/ batch.npy 'bhwc->bchw' --resize 224x224 --fit cover --dtype float32 "
        "--scale 1/255 --mean 0.485,0.456,0.406 --std 0.229,0.224,0.225",
        "convert 'photos/**/*.jpg' batch.npy 'bhwc->bchw' --resize 640x640 --fit pad --fill 114",
        "convert features.npy maps.npy 'bf->bhwc' --size h=4 --size w=5",
    ],
    "batches": [
        "batches photos/",
        "batches train.rec --preview first.png",
        "batches photos/ --sampler permutation --to bchw --dtype float32 --scale 1/255 "
        "--save photos.npz --preview photos.png",
    ],
    "pack": [
        "pack photos/ train.rec --resize 256",
        "pack photos/ train.rec --pass-through --shuffle --seed 1 --parts 8",
        "pack train.lst train.rec",
    ],
    "index": ["index train.rec"],
    "explain": [
        "explain 'bhwc->bchw'",
        "explain 'bhwc->bchw' --shape 64,224,224,3 --dtype uint8 --to-dtype float32 --scale 1/255",
    ],
    "bench": ["bench --quick", "bench --json results.json --plot results.png"],
    "info": ["info"],
    "warmup": ["warmup", "warmup 'bhwc->bchw' --shape 64,224,224,3 --dtype uint8"],
}


def examples(command: str) -> str:
    """What stands below the help of a command, and of all of them ("")."""
    lines = [f"  layoutkit {example}" for example in _EXAMPLES[command]]
    return "\n".join(["examples:", *lines])
