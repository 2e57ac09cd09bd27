"""`PixelOptions`: the options that decide the pixels of batches, which states store."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ...collator import Collator
from ...converter import Converter
from ...errors import DataError, LayoutkitError
from ...options import hash_form, list_differences, options_from_dict

if TYPE_CHECKING:
    from ...images import Decoder, Reader

# Options that change where or how fast batches are made, but not their values: a run may resume
# with others.
_EXECUTION = {"threads", "device", "memory", "copy"}
_NONE = "none"  # the fingerprint of batches that are neither decoded, collated nor converted
_DECODERS = ("Decoder", "Reader")


@dataclass(frozen=True)
class PixelOptions:
    """The stored options of the decoders, Collators and Converter of a Batcher, by name."""

    stored: Mapping[str, Mapping[str, Any]]  # JSON values, of a Collator as `to_dict` returns them

    @classmethod
    def of(
        cls,
        steps: Mapping[str, Collator | Converter],
        decoders: Mapping[str, Decoder | Reader],
    ) -> PixelOptions:
        """Return the options of these steps, without the ones that do not change pixels."""
        stored = {name: _store_decoder(decoder) for name, decoder in decoders.items()}
        for name, step in steps.items():
            omitted = set(_EXECUTION)
            if isinstance(step, Collator) and not step.windows.crops.is_random:
                omitted.add("seed")
            stored[name] = {k: value for k, value in step.to_dict().items() if k not in omitted}
        return cls(stored)

    @cached_property
    def fingerprint(self) -> str:
        """The fingerprints of all steps."""
        prints = [
            hash_form(data) if _is_decoder(data) else options_from_dict(data).fingerprint
            for data in self.stored.values()
        ]
        return "+".join(prints) or _NONE

    @cached_property
    def state(self) -> dict[str, str]:
        """The values of a state: the fingerprint and, if there are steps, their options."""
        options = {"options": json.dumps(self.stored)} if self.stored else {}
        return {"fingerprint": self.fingerprint, **options}

    def check_state(self, state: Mapping[str, Any]) -> None:
        """Raise DataError, listing the differences, for a state of other options."""
        if state["fingerprint"] == self.fingerprint:
            return
        stored = _read(state.get("options", "{}"))
        differences = [
            text
            for name in dict.fromkeys((*stored, *self.stored))
            for text in _describe(name, stored.get(name), self.stored.get(name))
        ]
        reason = "; ".join(differences) or (
            "they are equal, but another version of layoutkit, which computes other values, made it"
        )
        raise DataError(
            f"the batches of this state have other options: {reason}. Give sampled_batcher the "
            "options of the state; to use the new ones from the start of an epoch, call set_epoch "
            "instead of load_state_dict"
        )


def _store_decoder(decoder: Decoder | Reader) -> dict[str, Any]:
    """Return the options of a decoder as JSON values; numbers of NumPy become Python's."""
    options = {"kind": type(decoder).__name__, **asdict(decoder)}
    stored: dict[str, Any] = json.loads(json.dumps(options, default=lambda value: value.tolist()))
    return stored


def _is_decoder(data: Any) -> bool:
    return isinstance(data, Mapping) and data.get("kind") in _DECODERS


def _read(text: str) -> dict[str, Any]:
    try:
        stored = json.loads(text)
    except (ValueError, RecursionError):
        stored = None
    if not isinstance(stored, dict):
        raise DataError("the options of this state are damaged; load what state_dict() returned")
    return stored


def _describe(name: str, stored: Any, own: Any) -> list[str]:
    """Return a text for each difference between the options in a state and this Batcher's."""
    if stored is None or own is None:
        return [f"the state has {'no' if stored is None else 'a'} {name}, unlike this Batcher"]
    if _is_decoder(stored) and _is_decoder(own):
        return [
            f"{key} of the {name} is {stored.get(key)!r} in the state, {value!r} here"
            for key, value in own.items()
            if stored.get(key) != value
        ]
    try:
        rows = list_differences(options_from_dict(stored), options_from_dict(own))
    except LayoutkitError as error:
        return [f"the {name} of the state cannot be compared: {error}"]
    return [f"{label} of the {name} is {old} in the state, {new} here" for label, old, new in rows]
