"""The JSON of a report: strict, stable, and safe to print."""

from __future__ import annotations

import json
import math
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from breadth.report.jsonable import render_json
from breadth.report.sections import Fact, Page, Table, Text

GOLDEN = """\
{
  "schema": "breadth.report",
  "version": 1,
  "title": "Small",
  "sections": [
    {
      "kind": "verdict",
      "severity": "good",
      "headline": "All well",
      "body": "",
      "numbers": [
        {
          "name": "accuracy",
          "value": {
            "value": 0.42,
            "low": 0.38,
            "high": 0.47,
            "level": 0.95,
            "method": "wilson"
          },
          "unit": "fraction",
          "note": ""
        }
      ]
    },
    {
      "kind": "table",
      "title": "T",
      "columns": [
        {
          "name": "a",
          "unit": "",
          "align": "auto",
          "decimals": null
        },
        {
          "name": "b",
          "unit": "nats",
          "align": "auto",
          "decimals": null
        }
      ],
      "rows": [
        [
          "x",
          "NaN"
        ],
        [
          null,
          {
            "missing": "not logged"
          }
        ]
      ],
      "note": ""
    },
    {
      "kind": "curve",
      "title": "C",
      "series": [
        {
          "name": "s",
          "x": [
            1.0,
            2.0
          ],
          "y": [
            0.5,
            "Infinity"
          ],
          "low": [],
          "high": []
        }
      ],
      "x": {
        "label": "step",
        "unit": ""
      },
      "y": {
        "label": "score",
        "unit": ""
      },
      "log_x": false,
      "events": [],
      "band": "95% interval",
      "note": ""
    }
  ],
  "subtitle": "",
  "provenance": [
    {
      "name": "seed",
      "value": 0,
      "unit": "",
      "note": ""
    }
  ]
}
"""


def test_the_golden_page(small: Page) -> None:
    assert render_json(small) == GOLDEN


def test_every_kind_of_section_is_named(full: Page) -> None:
    document = json.loads(render_json(full))
    assert {part["kind"] for part in document["sections"]} == {
        "verdict",
        "table",
        "curve",
        "trace",
        "groups",
        "text",
        "listing",
        "facts",
    }
    assert render_json(full) == render_json(full)


def test_nothing_is_rounded_or_folded(full: Page) -> None:
    document = json.loads(render_json(full))
    tables = [part for part in document["sections"] if part["kind"] == "table"]
    assert len(tables[-1]["rows"]) == 1000
    assert tables[-1]["rows"][2] == ["problem 3", 16, 3 / 16]


def fact(value: Any) -> Any:
    return orjson.loads(render_json(Page("t", provenance=[Fact("f", value)])))["provenance"][0]["value"]


@pytest.mark.parametrize(
    ("value", "written"),
    [(math.nan, "NaN"), (math.inf, "Infinity"), (-math.inf, "-Infinity"), (True, True), (None, None)],
)
def test_numbers_json_cannot_write(value: float, written: object) -> None:
    assert fact(value) == written


@given(st.one_of(st.floats(), st.integers(-(2**53), 2**53)))
def test_numbers_come_back_exactly(value: float) -> None:
    read = float(fact(value))
    assert read == value or (math.isnan(read) and math.isnan(value))


@settings(max_examples=50)
@given(st.one_of(st.text(st.characters(exclude_categories=())), st.text(st.sampled_from("\ud83d\ude42\x1b\x9ba"))))
def test_any_text_is_strict_ascii_json(text: str) -> None:
    source = render_json(Page(text, [Text(text), Table(text, [], [])]))
    assert source.isascii()
    assert not set(source) & {chr(code) for code in range(0x20)} - {"\n"}
    read = orjson.loads(source)["title"]
    assert read == "".join("\ufffd" if "\ud800" <= character <= "\udfff" else character for character in text)


def test_what_is_no_part_of_a_report_is_refused() -> None:
    with pytest.raises(TypeError, match="no part of a report"):
        render_json(Page("t", [object()]))  # type: ignore[list-item]  # that is the point
