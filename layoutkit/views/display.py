"""Views in words, for a prompt, and as HTML tables, for a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ..converter import Converter
from ..spec import CPU
from .batch import BatchState
from .plans import Conversion

_HEAD = ("", "layout", "dtype", "shape", "kernel", "bytes moved")


def summary_line(batch: BatchState | None, note: str) -> str:
    """One line: the base, what was got of it besides, and how many gradients came back."""
    if batch is None:
        return "; ".join(filter(None, ["empty", note]))
    base = batch.plans.base
    parts = [f"{base.layout} {batch.array.shape} {base.dtype}{_where(batch)}", note]
    gettings = [str(getting) for getting in batch.by_conversion if getting is not base]
    got = ", ".join(gettings + [repr(form) for form in batch.by_form])
    parts.append(got and f"got {got}")
    count = len(batch.gradients)
    parts.append(f"{count} gradient{'s' if count > 1 else ''}" if count else "")
    return "; ".join(filter(None, parts))


def _where(batch: BatchState) -> str:
    """The device, where it is a GPU."""
    return "" if batch.plans.device == CPU else f" on {batch.plans.device}"


def html_table(name: str, batch: BatchState | None, note: str) -> str:
    """The base, everything that was got and every gradient, with what moving them takes."""
    title = f"{name}, {note}" if note else name
    if batch is None:
        return html_section(f"{title}, empty", [])
    rows = "".join(_row("td", cells) for cells in _rows(batch))
    return html_section(title, [f"<table>{_row('th', _HEAD)}{rows}</table>"])


def html_section(title: str, parts: Iterable[str]) -> str:
    """HTML parts, one below the other, under a title."""
    return f"<div><p><b>{_escape(title)}</b></p>{''.join(parts)}</div>"


def _rows(batch: BatchState) -> Iterator[tuple[Any, ...]]:
    base = batch.plans.base
    yield ("base", *_described(base, batch.array), "-", "0")
    for getting, result in batch.by_conversion.items():
        if getting is not base:
            yield ("got", *_described(getting, result), *_forward(getting, batch))
    for form, result in batch.by_form.items():
        looks = (getattr(result, name, "-") for name in ("dtype", "shape"))
        yield ("got", repr(form), *looks, "format_as", "-")
    for getting, grad in batch.gradients:
        yield ("gradient", getting.layout, grad.dtype, grad.shape, *_back(getting, grad))


def _described(getting: Conversion, array: Any) -> tuple[Any, ...]:
    return getting.layout, getting.dtype, array.shape


def _forward(getting: Conversion, batch: BatchState) -> tuple[str, str]:
    plan = getting.converter.plan(batch.source)
    return plan.kernel, f"{plan.bytes_moved:,}"


def _back(getting: Conversion, grad: Any) -> tuple[str, str]:
    if not isinstance(getting.converter, Converter):
        return "column", f"{grad.nbytes:,}"
    plan = getting.converter.inverse().plan(grad)
    return plan.kernel, f"{plan.bytes_moved:,}"


def _row(tag: str, cells: Iterable[Any]) -> str:
    return "<tr>" + "".join(f"<{tag}>{_escape(str(cell))}</{tag}>" for cell in cells) + "</tr>"


def _escape(text: str) -> str:
    from html import escape  # Here and not above: only notebooks pay for its table of names.

    return escape(text)
