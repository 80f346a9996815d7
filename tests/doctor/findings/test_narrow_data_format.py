"""Data that is all written alike is a note, and a warning where the rollouts have become the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from breadth.doctor.diagnosis import run_check
from breadth.doctor.evidence.record import Evidence
from breadth.doctor.finding import CannotTell, Excluded, Finding
from breadth.doctor.findings.narrow_data_format import FINDING
from breadth.report.sections import Severity
from breadth.testing.findings import check_finding, check_outcome

NAME = "narrow-data-format"


def prose(place: int) -> str:
    return (
        f"There are {place} apples and we eat two of them, which leaves what is asked for here. The answer is"
        f" {place - 2}."
    )


def numbered(place: int) -> str:
    return f"1. There are {place} apples.\n2. We eat two.\n3. The answer is {place - 2}."


def choice(place: int) -> str:
    return f"Which number follows {place}?\n(A) {place + 2}\n(B) {place + 1}\n(C) {place}\n(D) {place - 1}"


def question(place: int) -> str:
    return f"If Anna has {place} apples in triangle A, B, C and eats two of them, how many are left?"


def data(**kinds: int) -> tuple[str, ...]:
    makers = {"prose": prose, "numbered": numbered, "choice": choice, "question": question}
    return tuple(makers[kind](place) for kind, count in kinds.items() for place in range(count))


def test_it_keeps_the_contract() -> None:
    check_finding(FINDING, NAME)


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (data(prose=100), "100% of the worked solutions in the training data are written as prose."),
        (data(prose=94, numbered=6), CannotTell),
        (data(numbered=196, prose=4), "98% of the worked solutions in the training data are written as numbered."),
        (data(prose=100, numbered=100), Excluded),
        (data(choice=100), "100% of the training problems are multiple choice."),
        (data(choice=50, question=50), Excluded),
        (data(question=100), Excluded),
    ],
    ids=["prose", "not surely", "numbered", "both", "choice", "half choice", "open questions"],
)
def test_nearly_all_of_it_must_surely_be_of_one_kind(texts: tuple[str, ...], said: str | type) -> None:
    found = FINDING.check(Evidence("data", data=texts))
    if not isinstance(said, str):
        assert isinstance(found, said)
        return
    assert isinstance(found, Finding)
    check_outcome(found, NAME)
    assert found.severity is Severity.NOTE
    assert found.headline == said
    assert len(found.prescriptions) == 1


def test_few_texts_do_not_tell(make: Any) -> None:
    # By Wilson 34 of 34 prove 34 / (34 + 1.96^2) = 89.8 %, 35 of 35 prove 90.1 %.
    found = FINDING.check(Evidence("data", data=data(prose=34)))
    assert isinstance(found, CannotTell)
    assert "35 are needed" in found.missing
    assert isinstance(FINDING.check(Evidence("data", data=data(prose=35))), Finding)


def test_rollouts_that_became_like_the_data_make_it_a_warning(make: Any) -> None:
    def rows(kinds: tuple[str, ...]) -> dict[str, Any]:
        mixed = np.random.default_rng(0).permutation(np.array(kinds, dtype=object)).tolist()
        return {
            "problem": [f"p{place // 4}" for place in range(len(mixed))],
            "sample": list(range(len(mixed))),
            "completion": mixed,
        }

    several, one = data(prose=100, numbered=100), data(prose=200)
    collapsed = make(rollouts={1: rows(several), 2: rows(one)})
    found = FINDING.check(replace(collapsed, data=data(prose=100)))
    assert isinstance(found, Finding)
    check_outcome(found, NAME)
    assert found.severity is Severity.WARNING
    assert found.headline.endswith("and so are the rollouts now.")
    assert found.evidence[-1].value.value == 1.0  # type: ignore[union-attr]
    for evidence in (
        replace(collapsed, data=data(numbered=100)),
        replace(make(rollouts={1: rows(one), 2: rows(one)}), data=data(prose=100)),
        replace(make(rollouts={1: rows(several), 2: rows(several)}), data=data(prose=100)),
    ):
        note = FINDING.check(evidence)
        assert isinstance(note, Finding)
        assert note.severity is Severity.NOTE


def test_a_run_without_its_data_is_told_to_name_it_and_a_config_alone_is_not(make: Any) -> None:
    found = run_check(NAME, FINDING, make(reward=np.linspace(0, 1, 40)))
    assert isinstance(found, CannotTell)
    assert "breadth doctor RUN DATA.parquet" in found.switch_on
    assert run_check(NAME, FINDING, Evidence("config")) is None
