"""A report as JSON that scripts can rely on.

The first two keys are ``schema`` (``breadth.report``) and ``version`` (an integer that grows when a key changes meaning
or is removed, not when one is added). Then come the page's own fields. Every section has ``kind`` (``verdict``,
``table``, ``curve``, ``trace``, ``groups``, ``text``, ``listing``, ``facts``) and its fields under the names in
``sections``, in the order they are written there: the same report gives the same bytes.

- It is strict JSON: a number that JSON cannot write is the string ``"NaN"``, ``"Infinity"`` or ``"-Infinity"`` (as in
  protocol buffers' JSON), which stays distinct from ``null``, "there is no value"; Python's ``float()`` reads all
  three.
- A number with an interval is ``{"value", "low", "high", "level", "method"}``, the last two where known; a value that
  is missing for a reason is ``{"missing": reason}``.
- Numbers are never rounded or rescaled; where a reader sees a percentage, the unit here is ``fraction``.
- All output is ASCII (other characters are escaped), so printing it cannot drive a terminal; half a surrogate pair
  becomes U+FFFD.
"""

from __future__ import annotations

import json
import math
from dataclasses import fields, is_dataclass
from typing import Any

from breadth.report.cells import IntervalLike, Missing, data_unit
from breadth.report.plaintext import replace_surrogates
from breadth.report.sections import Curve, Facts, Groups, Listing, Page, Table, Text, Trace, Verdict

SCHEMA = "breadth.report"
"""Name of the format, first key of every document."""
VERSION = 1
"""Its version; grows when a key changes meaning or is removed."""

_SECTIONS = (Verdict, Table, Curve, Trace, Groups, Text, Listing, Facts)


def render_json(page: Page) -> str:
    """Return the report as strict, stable, ASCII JSON; see the head of this file for the format."""
    document = {"schema": SCHEMA, "version": VERSION, **json_record(page)}
    return json.dumps(document, indent=2, ensure_ascii=True, allow_nan=False) + "\n"


def to_jsonable(value: Any) -> Any:
    """Return a part of a report, or a value in one, as JSON can hold it."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return replace_surrogates(str(value))
    if isinstance(value, int | float):
        return json_number(value)
    if isinstance(value, Missing):
        return {"missing": to_jsonable(value.reason)}
    if isinstance(value, tuple):
        return [to_jsonable(part) for part in value]
    if isinstance(value, IntervalLike):
        return json_interval(value)
    return json_record(value)


def json_number(value: float) -> float | str:
    """Return a number, or its name as a string where JSON cannot write it."""
    if isinstance(value, int):
        return int(value)
    if math.isfinite(value):
        return float(value)
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def json_interval(value: IntervalLike) -> dict[str, Any]:
    """Return an interval with its origin where known."""
    ends = {name: json_number(float(getattr(value, name))) for name in ("value", "low", "high")}
    origin = {name: to_jsonable(getattr(value, name)) for name in ("level", "method") if hasattr(value, name)}
    return ends | origin


def json_record(value: Any) -> dict[str, Any]:
    """Return a record of a report by its fields, a section with its kind."""
    if not is_dataclass(value):
        raise TypeError(f"{type(value).__name__} is no part of a report")
    kind = {"kind": type(value).__name__.lower()} if isinstance(value, _SECTIONS) else {}
    return kind | {
        field.name: to_jsonable(data_unit(part) if field.name == "unit" else part)
        for field in fields(value)
        for part in [getattr(value, field.name)]
    }
