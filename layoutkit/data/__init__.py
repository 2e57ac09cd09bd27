"""Where batches come from."""

from .dataset import Dataset
from .sample import Sample

__all__ = ["Dataset", "Sample"]
