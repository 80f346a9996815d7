"""The stated risk: kept on new questions of the library's kind and on real votes, with fewer samples than Beta."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from breadth.base.errors import SettingsError
from breadth.inference.stopping.beta_lead import BetaLead
from breadth.inference.stopping.risk import LaxRisk, Risk
from breadth.inference.stopping.shape_library import ShapeLibrary
from breadth.inference.stored_replay import replay
from breadth.inference.stored_votes import Paths, StoredVotes
from breadth.inference.strategies.adaptive_vote import AdaptiveVote
from breadth.inference.voting import VoteState

LIBRARY = ShapeLibrary.fit([[40], [38, 2], [30, 8, 2], [20, 14, 4, 2], [25, 15], [39, 1]] * 5)


def questions(count: int, seed: int) -> NDArray[np.int32]:
    """Votes on questions of mixed difficulty: 40 each of six answers."""
    rng = np.random.default_rng(seed)
    leader = rng.beta(4, 1, count)
    others = rng.dirichlet([0.6] * 5, count) * (1 - leader)[:, None]
    shares = np.concatenate([leader[:, None], others], axis=1)
    return np.array([rng.choice(6, 40, p=row) for row in shares], dtype=np.int32)


def counts(classes: NDArray[np.int32]) -> list[list[int]]:
    return [np.bincount(row).tolist() for row in classes]


def test_new_questions_of_the_same_kind_get_the_stated_risk_for_fewer_votes_than_beta() -> None:
    library = ShapeLibrary.fit(counts(questions(600, 1)))
    new = StoredVotes.from_classes(questions(2500, 2))
    rules = {str(risk): AdaptiveVote(40, 1, Risk(risk, library)) for risk in (0.01, 0.02, 0.05)}
    beta = {f"beta {t}": AdaptiveVote(40, 1, BetaLead(t)) for t in (0.7, 0.8, 0.85, 0.88, 0.9, 0.92, 0.95, 0.97)}
    outcomes = replay(new, {**rules, **beta}, repeats=8).outcomes
    for risk in (0.01, 0.02, 0.05):
        ours = outcomes[str(risk)]
        observed = 1 - ours.agreement.value
        assert observed == pytest.approx(risk, rel=0.3)
        cheapest = min(outcomes[name].samples.value for name in beta if 1 - outcomes[name].agreement.value <= observed)
        assert ours.samples.value < cheapest


def test_two_halves_of_real_votes(fixtures: Path) -> None:
    table = pq.read_table(
        fixtures / "votes" / "consol_gpt4omini_gsm8k_vote40.parquet", columns=["question_id", "answer"]
    ).to_pydict()
    rows: dict[object, list[str]] = {}
    for question, answer in zip(table["question_id"], table["answer"], strict=True):
        rows.setdefault(question, []).append(answer)
    classes = np.array([np.unique(row, return_inverse=True)[1] for row in rows.values()], dtype=np.int32)
    half = np.random.default_rng(0).permutation(len(classes)) % 2 == 0
    library = ShapeLibrary.fit(counts(classes[half]))
    rules = {str(risk): AdaptiveVote(40, 1, Risk(risk, library)) for risk in (0.01, 0.02, 0.05)}
    outcomes = replay(StoredVotes.from_classes(classes[~half]), rules, repeats=20).outcomes
    for name, outcome in outcomes.items():
        assert 1 - float(name) in outcome.agreement


def test_the_coin_chooses_the_table_once() -> None:
    rule = Risk(0.05, LIBRARY)
    share = rule.table.share
    assert 0 < share < 1
    lax = rule.randomize(share / 2)
    assert isinstance(lax, LaxRisk)
    assert lax.randomize(0.999) is lax
    assert rule.randomize(share) is rule
    np.testing.assert_array_equal(lax.stops, rule.table.lax)
    assert np.count_nonzero(lax.stops & ~rule.stops) > 0


def test_a_lead_that_cannot_be_overtaken_is_certain() -> None:
    rule = Risk(0.01, LIBRARY, 10)
    assert rule.is_decided(VoteState((5,), (0,) * 5)), "five of ten can at worst be tied, and a mode agrees"
    assert rule.posterior(VoteState((5,), (0,) * 5)) == 1
    assert rule.is_decided(VoteState((4, 3, 3), (0,) * 10)), "the full vote is in"
    assert rule.posterior(VoteState((9, 8), (0,) * 17)) == 1
    assert not rule.is_decided(VoteState((1, 1), (0, 1)))


def test_the_posterior_rises_with_the_lead_and_is_named() -> None:
    rule = Risk(0.02, LIBRARY)
    chances = [rule.posterior(VoteState((votes,), (0,) * votes)) or 0.0 for votes in (1, 2, 3, 4)]
    assert chances == sorted(chances)
    assert "30 questions" in rule.basis
    assert "full vote of 40" in rule.basis


def test_a_standing_the_library_never_met_goes_on_with_the_beta_posterior() -> None:
    # Only one answer, or with next to no chance a second one: three answers with nine votes each are never met.
    rule = Risk(0.02, ShapeLibrary(((1.0,),), (1.0,), (1.0,) + (0.0,) * 9, questions=10**9), 40)
    strange = VoteState((9, 9, 9), (0,) * 27)
    field = rule.table.lattice
    assert field.visits[field.index(np.array(9), np.array(9), np.array(9))] == 0
    assert not rule.is_decided(strange)
    assert rule.posterior(strange) == BetaLead().posterior(strange) == 0.5


def test_without_a_library_it_is_the_beta_rule_and_says_so() -> None:
    rule, standing = Risk(0.05), VoteState((4,), (0,) * 4)
    assert rule.is_decided(standing) == BetaLead(0.95).is_decided(standing)
    assert rule.posterior(standing) == BetaLead(0.95).posterior(standing)
    assert rule.randomize(0.0) is rule
    assert "no library" in rule.basis


@pytest.mark.parametrize(("field", "value"), [("risk", 0.0), ("risk", 0.5), ("most", 1), ("most", 129)])
def test_settings_that_make_no_sense_are_refused(field: str, value: float) -> None:
    with pytest.raises(SettingsError, match=field):
        Risk(**{field: value})  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def rule() -> Risk:
    """A full vote of ten, quick to compute."""
    return Risk(0.01, LIBRARY, 10)


def test_the_full_vote_decides_at_exactly_its_size(rule: Risk) -> None:
    tied = VoteState((5, 5), (0, 1) * 5)
    assert rule.is_decided(tied), "the tenth vote of ten is the last"
    assert rule.posterior(tied) == 1.0
    before = VoteState((5, 4), (0, 1) * 4 + (0,))
    assert rule.posterior(before) == 1.0, "five of ten are a mode whatever comes"
    open_vote = VoteState((4, 4, 1), (0, 1) * 4 + (2,))
    assert not rule.is_decided(open_vote), "the tenth vote breaks the tie"
    posterior = rule.posterior(open_vote)
    assert posterior is not None
    assert 0.5 < posterior < 1


def test_recorded_votes_are_decided_up_to_the_full_vote_and_beyond(rule: Risk) -> None:
    classes = np.array([[-1, 0, 1] + [0, 1] * 4 + [0], [0] * 12], dtype=np.int32)
    along = rule.is_decided_along(Paths(classes))
    # One all, two all, ... four all are open; the tenth vote, at the eleventh draw, ends it.
    assert along[0].tolist() == [*along[0, :9].tolist(), along[0, 9].item(), True, True]
    for draw in range(12):
        votes = [label for label in classes[0, : draw + 1].tolist() if label >= 0]
        state = VoteState(tuple(sorted(map(votes.count, set(votes)), reverse=True)), tuple(votes))
        assert along[0, draw] == rule.is_decided(state)
    assert not along[0, [0, 2, 4, 6, 8]].any()
    assert along[1, 4:].all()


def test_the_index_of_a_state_is_its_place_in_the_table(rule: Risk) -> None:
    # Leader, runner-up and rest as digits of a number to the base 11.
    assert rule.state_index(VoteState((4, 3, 1, 1), (0,) * 9)) == 4 * 121 + 3 * 11 + 2
    assert rule.table.lattice.index(np.array(4), np.array(3), np.array(2)) == 4 * 121 + 3 * 11 + 2
    assert rule.state_index(VoteState()) == 0
    assert rule.state_index(VoteState((5, 5), (0, 1) * 5)) == 5 * 121 + 5 * 11
    assert rule.state_index(VoteState((6, 5), (0,) * 11)) == -1, "the last cell, for every longer vote"
    assert rule.stops[-1]


def test_the_widest_settings_are_accepted_and_the_defaults_are_the_documented_ones() -> None:
    assert (Risk(0.499, most=2).most, Risk(1e-6, most=128).most) == (2, 128)
    assert (Risk().risk, Risk().most) == (0.02, 40)
    assert Risk(0.25).is_decided(VoteState((1,), (0,))), "without a library: Beta with 0.75"
    assert not Risk(0.24).is_decided(VoteState((1,), (0,)))


def test_more_votes_than_the_full_vote_are_decided(rule: Risk) -> None:
    for counts in ((6, 5), (6, 6), (10, 10), (4, 4, 4, 4), (12,), (4, *[1] * 12)):
        state = VoteState(counts, (0,) * sum(counts))
        assert rule.is_decided(state)
        assert rule.posterior(state) == 1.0
