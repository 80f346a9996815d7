"""What is explained is what stands in the finding's own file."""

from __future__ import annotations

import pytest

from breadth.base.errors import CatalogueError
from breadth.doctor.catalogue import FINDINGS
from breadth.doctor.explanation import explanation, listing
from breadth.report.sections import Facts, Text


@pytest.mark.parametrize("name", FINDINGS.names())
def test_every_finding_explains_itself_and_its_constants(name: str) -> None:
    page = explanation(name)
    assert isinstance(page.sections[0], Text)
    assert len(page.sections[0].text) > 60
    constants = [
        section for section in page.sections if isinstance(section, Facts) and section.title.startswith("Constants")
    ]
    assert all(fact.note for section in constants for fact in section.facts)


def test_all_are_listed_and_a_misspelling_is_helped() -> None:
    (facts,) = listing().sections
    assert isinstance(facts, Facts)
    assert [fact.name for fact in facts.facts] == list(FINDINGS.names())
    with pytest.raises(CatalogueError, match="entropy-collapse"):
        explanation("entropy-colapse")
