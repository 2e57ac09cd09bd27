"""`ImageView`: pictures and volumes."""

from typing import Any, ClassVar

from .dataview import DataView

__all__ = ["ImageView"]


class ImageView(DataView):
    """A batch of pictures, `bhwc`, `bchw` or `chwb`, or of volumes, `bdhwc` or `bcdhw`.

    >>> import numpy as np
    >>> view = ImageView("bhwc", np.zeros((8, 32, 24, 3), np.uint8))
    >>> view.forward_get("bchw", "float32").shape
    (8, 3, 32, 24)
    >>> view.bchw().backward(np.ones((8, 3, 32, 24), np.float32)).shape
    (8, 32, 24, 3)

    Pictures without channels, such as `bhw`, get an axis c of size 1 where it is asked for.
    Everything else is as for `DataView`.
    """

    _own: ClassVar = ("b", "bf", "bhwc", "bchw", "chwb", "bdhwc", "bcdhw")

    def bhwc(self, dtype: Any = None) -> Any:
        """The Converter to `bhwc`, as decoders give pictures and most Python tools take them."""
        return self.converter("bhwc", dtype)

    def bchw(self, dtype: Any = None) -> Any:
        """The Converter to `bchw`, for most convolutions."""
        return self.converter("bchw", dtype)

    def chwb(self, dtype: Any = None) -> Any:
        """The Converter to `chwb`, for convolutions that run along the batch."""
        return self.converter("chwb", dtype)

    def bdhwc(self, dtype: Any = None) -> Any:
        """The Converter to `bdhwc`: volumes, channels last."""
        return self.converter("bdhwc", dtype)

    def bcdhw(self, dtype: Any = None) -> Any:
        """The Converter to `bcdhw`: volumes, channels first."""
        return self.converter("bcdhw", dtype)
