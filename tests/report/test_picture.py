"""A picture that stands alone: well-formed, escaped, every curve with its heading at its place."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

from breadth.report.picture import PANEL, render_picture, save_picture
from breadth.report.sections import Axis, Curve, Series

SVG = "{http://www.w3.org/2000/svg}"


def curve(title: str) -> Curve:
    return Curve(title, [Series("base <b>", [1, 2, 4], [0.1, 0.4, 0.9])], Axis("k"), Axis("right", "%"), log_x=True)


def test_it_is_one_document_with_a_panel_a_curve() -> None:
    root = ElementTree.fromstring(render_picture([curve("Before & after"), curve("Then")]))  # noqa: S314 - our own text
    assert root.tag == f"{SVG}svg"
    panels = root.findall(f"{SVG}svg")
    assert [float(panel.attrib["x"]) for panel in panels] == [14.0, 14.0 + PANEL.width + 34.0]
    assert {(panel.attrib["width"], panel.attrib["height"]) for panel in panels} == {("470", "290")}
    assert [text.text for text in root.findall(f"{SVG}text")] == ["Before & after", "Then"]
    assert float(root.attrib["width"]) == 2 * 14 + 2 * PANEL.width + 34
    assert "base <b>" in {text.text for text in panels[0].iter(f"{SVG}text")}


def test_it_loads_nothing_and_is_dark_where_the_reader_is() -> None:
    source = render_picture([curve("One")])
    assert "prefers-color-scheme: dark" in source
    assert source.count("http") == 1  # the namespace
    assert "<script" not in source


def test_it_is_written_whole(tmp_path: Path) -> None:
    save_picture([curve("One")], tmp_path / "picture.svg")
    assert (tmp_path / "picture.svg").read_text(encoding="utf-8") == render_picture([curve("One")])
