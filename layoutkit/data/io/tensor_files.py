"""Arrays in `.safetensors` and `.pt` files, read whole by safetensors and PyTorch.

Each library is imported when a file of its format is read, as both are optional.
"""

from __future__ import annotations

from typing import Any

from ...errors import DataError
from .filesystem import local_path, open_binary, read_all


def read_safetensors(path: str) -> Any:
    """Return the arrays of a file or URL by name; DataError without safetensors."""
    try:
        from safetensors.numpy import load, load_file
    except ImportError:
        raise DataError(f"{path} needs safetensors; pip install 'layoutkit[data]'") from None
    local = local_path(path)
    if local is not None:
        return load_file(local)
    with open_binary(path) as file:
        return load(file.read())


def read_pt(path: str) -> Any:
    """Return the tensor of a file or URL, or several by name; DataError without PyTorch."""
    try:
        import torch
    except ImportError:
        raise DataError(f"{path} needs PyTorch; pip install 'layoutkit[torch]'") from None
    file = local_path(path) or read_all(path)
    return torch.load(file, weights_only=True, map_location="cpu")
