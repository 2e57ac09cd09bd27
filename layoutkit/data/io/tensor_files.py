"""Arrays in `.safetensors` and `.pt` files, read whole by safetensors and PyTorch.

Each library is imported when a file of its format is read, as both are optional.
"""

from __future__ import annotations

from typing import Any

from ..._utils.errors import explain_missing
from ...errors import DataError
from .filesystem import local_path, open_binary, read_all


def read_safetensors(path: str) -> Any:
    """Return the arrays of a file or URL by name; DataError without safetensors."""
    with explain_missing(f"{path} needs safetensors", "data", DataError):
        from safetensors.numpy import load, load_file
    local = local_path(path)
    if local is not None:
        return load_file(local)
    with open_binary(path) as file:
        return load(file.read())


def read_pt(path: str) -> Any:
    """Return the tensor of a file or URL, or several by name; DataError without PyTorch."""
    with explain_missing(f"{path} needs PyTorch", "torch", DataError):
        import torch
    file = local_path(path) or read_all(path)
    return torch.load(file, weights_only=True, map_location="cpu")
