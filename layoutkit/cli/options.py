"""Files of options, as `to_dict` returns them, and configurations of image processors."""

from pathlib import Path

from .._utils.errors import prefix_errors
from ..collator import Collator
from ..errors import ArgumentError, LayoutkitError
from ..options import CollateOptions, ConvertOptions, options_from_dict
from ..preprocessor_configs import from_preprocessor_config, is_preprocessor_config, read_json

# The keywords that apply to a part of an array as to the whole array.
_OF_FILES = (
    "dtype", "scale", "mean", "std", "clip", "casting", "channels", "threads", "pad_to",
    "pad_before", "fill", "center",
)  # fmt: skip
_BY_AXIS = ("pad_to", "pad_before")


def read_options(path: Path) -> ConvertOptions | CollateOptions:
    """Return the options in a JSON file; raise ArgumentError, with its name, for other content."""
    data = read_json(path, "write to_dict() of a Converter")
    with prefix_errors(f"{path}: ", LayoutkitError):
        if is_preprocessor_config(data):
            return from_preprocessor_config(data).windows
        return options_from_dict(data)


def read_conversion(path: Path) -> ConvertOptions:
    """Return the options of `convert --options`; raise ArgumentError if files do not have one."""
    options = read_options(path)
    if isinstance(options, CollateOptions):
        raise ArgumentError(f"{path} has the options of a Collator; give those of a Converter")
    for name, value in options.keywords().items():
        if name not in _OF_FILES or (isinstance(value, dict) and name not in _BY_AXIS):
            raise ArgumentError(
                f"{path} has {name}={value!r}, which does not apply to files; remove it"
            )
    return options


def read_collator(path: Path) -> Collator:
    """Return the Collator of `batches --options`; raise ArgumentError for other options."""
    options = read_options(path)
    if not isinstance(options, CollateOptions):
        raise ArgumentError(f"{path} has the options of a Converter; give those of a Collator")
    with prefix_errors(f"{path}: ", LayoutkitError):
        return Collator.from_dict(options.to_dict())
