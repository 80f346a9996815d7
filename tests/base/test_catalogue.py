"""A catalogue loads late, helps with spelling and takes plug-ins."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint

import pytest

from breadth.base import catalogue as module
from breadth.base.catalogue import Catalogue, CatalogueParts
from breadth.base.errors import CatalogueError

TOOLS = Catalogue("tools", {"fraction": "fractions:Fraction", "gone": "fractions:Gone", "nowhere": "no_such_module:X"})


def test_loads_the_named_part_and_lists_in_order() -> None:
    from fractions import Fraction

    assert TOOLS.load("fraction") is Fraction
    assert TOOLS.names() == ("fraction", "gone", "nowhere")


def test_nothing_is_imported_before_it_is_asked_for() -> None:
    sys.modules.pop("this_is_lazy", None)
    lazy = Catalogue("tools", {"wave": "wave:open"})
    sys.modules.pop("wave", None)
    assert lazy.names() == ("wave",)
    assert "wave" not in sys.modules


def test_a_search_loads_no_part_beyond_the_one_it_ends_at() -> None:
    from fractions import Fraction

    parts = CatalogueParts(TOOLS)
    assert next(part for part in parts if part is Fraction) is Fraction  # the next one could not be loaded
    assert len(parts) == 3
    assert parts[:1] == [Fraction]
    with pytest.raises(CatalogueError, match="should be at"):
        list(parts)


def test_a_misspelt_name_gets_the_nearest() -> None:
    with pytest.raises(CatalogueError, match="Did you mean 'fraction'"):
        TOOLS.load("fractoin")


@pytest.mark.parametrize("name", ["gone", "nowhere"])
def test_an_entry_that_cannot_be_loaded_says_where_it_should_be(name: str) -> None:
    with pytest.raises(CatalogueError, match="should be at"):
        TOOLS.load(name)


def test_plug_ins_add_but_cannot_replace(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [EntryPoint("decimal", "decimal:Decimal", "breadth.tools")]
    monkeypatch.setattr(module, "find_plugins", lambda group: points if group == "breadth.tools" else [])
    from decimal import Decimal

    assert dict(Catalogue("tools", {}))["decimal"] is Decimal
    points.append(EntryPoint("fraction", "decimal:Decimal", "breadth.tools"))
    with pytest.raises(CatalogueError, match="registers 'fraction'"):
        TOOLS.names()


def test_a_member_knows_its_name_and_a_stranger_has_none() -> None:
    family = Catalogue("families", {"catalogue": "breadth.base.catalogue:Catalogue"})
    assert family.name_of(Catalogue) == "catalogue"
    assert family.name_of(dict) is None
