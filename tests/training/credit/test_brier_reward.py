"""The Brier reward: the numbers of the spec, the proper scoring rule, and no way around the format."""

from __future__ import annotations

import math
import time

import pytest
import torch

from breadth.base.errors import MechanismError, SettingsError
from breadth.testing.mechanisms import check_edges, check_mechanism
from breadth.training.chain import Chain
from breadth.training.credit.brier_reward import CONFIDENCE_INSTRUCTION, BrierReward, stated_confidence
from breadth.training.credit.group_advantage import GroupAdvantage
from breadth.training.objective import Objective
from breadth.training.records import Rollouts, not_none


def response(confidence: str, *, think: str = "<think>2 + 2 = 4</think>", answer: str = "4", after: str = "") -> str:
    return (
        f"{think}\n<answer>{answer}</answer>\n<analysis>sure</analysis>\n<confidence>{confidence}</confidence>{after}"
    )


@pytest.mark.parametrize(
    ("written", "confidence"),
    [("0.9", 0.9), ("0", 0.0), ("1", 1.0), ("1.0", 1.0), ("1.", 1.0), (".25", 0.25), (" 0.75\n", 0.75), ("0.30", 0.3)],
)
def test_plain_decimals_are_read(written: str, confidence: float) -> None:
    assert stated_confidence(response(written)) == confidence


@pytest.mark.parametrize(
    "written",
    [
        "",
        " ",
        "80%",
        "4/5",
        "1.2",
        "-0.1",
        "2",
        "nan",
        "inf",
        "1e-3",
        "0,8",
        "high",
        "0.9 or so",
        "0_1",
        "٠.٥",
        "0.5.5",
        "True",
        "__import__('os')",
    ],
)
def test_everything_else_is_no_confidence(written: str) -> None:
    assert stated_confidence(response(written)) is None


def test_white_space_around_and_a_missing_opening_tag_are_fine() -> None:
    assert stated_confidence("\n " + response("0.5", after=" \n")) == 0.5
    assert stated_confidence(response("0.5", think="2 + 2 = 4</think>")) == 0.5


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0.9",
        "<confidence>0.9</confidence>",
        response("0.9", think=""),
        response("0.9", think="<think>a"),
        response("0.9", think="<think>a<think>b</think>"),
        response("0.9", think="Well. <think>a</think>"),
        response("0.9", think="<think>a</think></think>"),
        response("0.9", answer=" "),
        response("0.9", after=" I am sure."),
        response("0.9") + "<confidence>0.1</confidence>",
        response("0.9", think="<think>is it <answer>5</answer>?</think>"),  # a checker might read the other answer
        response("0.9", answer="4</answer><answer>5"),
        response("0.9").replace("<analysis>sure</analysis>", ""),
        response("0.9").replace("</answer>", "</answer> so"),
        response("0.9").replace("</confidence>", ""),
        "<think>a</think><confidence>0.9</confidence><answer>4</answer><analysis>b</analysis>",
        "<think>a</think><answer>4<analysis>b</analysis></answer><confidence>0.9</confidence>",
    ],
)
def test_a_broken_format_states_no_confidence(text: str) -> None:
    assert stated_confidence(text) is None


def test_the_instruction_shows_the_format_it_asks_for() -> None:
    shown = CONFIDENCE_INSTRUCTION[CONFIDENCE_INSTRUCTION.index("<think>") : CONFIDENCE_INSTRUCTION.rindex(">") + 1]
    head, _, _ = shown.partition("<confidence>")
    assert stated_confidence(f"{head}<confidence>0.75</confidence>") == 0.75


@pytest.mark.parametrize(
    "piece", ["<think>", "</think>", "<answer>", "<answer></answer>", "<confidence>0", "<", " ", "0", "</confidence> "]
)
def test_hostile_text_takes_linear_time(piece: str) -> None:
    hostile = piece * (1_000_000 // len(piece))
    begun = time.process_time()
    assert stated_confidence(hostile) is None
    assert stated_confidence(response(hostile)) is None
    assert stated_confidence(response("0.5", think=f"<think>{hostile}</think>")) in (None, 0.5)
    assert time.process_time() - begun < 1.0


SPEC = [(1, 0.9, 0.99), (0, 0.9, -0.81), (1, 0.2, 0.36), (0, 0.2, -0.04), (0, 0.0, 0.0)]


def text(confidence: object) -> str:
    return f"<think>t</think><answer>4</answer><analysis>a</analysis><confidence>{confidence}</confidence>"


def rollouts(correct: list[float], confidences: list[object], rewards: list[float] | None = None) -> Rollouts:
    return Rollouts(
        rewards=torch.tensor(correct if rewards is None else rewards, dtype=torch.float64),
        groups=torch.zeros(len(correct), dtype=torch.int64),
        lengths=torch.ones(len(correct), dtype=torch.int64),
        correct=torch.tensor(correct, dtype=torch.float64),
        texts=[text(one) for one in confidences],
    ).clean()


def rewards_of(mechanism: BrierReward, batch: Rollouts) -> list[float]:
    return [float(one) for one in mechanism.apply(batch, None, None).after.rewards]


def test_the_papers_reward_of_the_spec() -> None:
    batch = rollouts([float(right) for right, _, _ in SPEC], [confidence for _, confidence, _ in SPEC])
    assert rewards_of(BrierReward(), batch) == pytest.approx([reward for _, _, reward in SPEC], abs=1e-12)


def test_the_codes_reward_of_the_spec() -> None:
    batch = rollouts([float(right) for right, _, _ in SPEC], [confidence for _, confidence, _ in SPEC])
    without_format = [0.995, 0.095, 0.68, 0.48, 0.5]
    assert rewards_of(BrierReward("code"), batch) == pytest.approx([0.5 + one for one in without_format], abs=1e-12)


@pytest.mark.parametrize(("chance", "value"), [(0.3, 0.09), (0.8, 0.64)])
def test_the_truth_is_the_best_confidence(chance: float, value: float) -> None:
    grid = [place / 100 for place in range(101)]
    right = rewards_of(BrierReward(), rollouts([1.0] * 101, list(grid)))
    wrong = rewards_of(BrierReward(), rollouts([0.0] * 101, list(grid)))
    expected = [chance * one + (1 - chance) * other for one, other in zip(right, wrong, strict=True)]
    assert grid[expected.index(max(expected))] == chance
    assert max(expected) == pytest.approx(value, abs=1e-12)


@pytest.mark.parametrize(("form", "least"), [("paper", -1.0), ("code", 0.0)])
@pytest.mark.parametrize("broken", ["", "1.7", "90%"])
def test_a_broken_format_gives_no_credit_and_is_never_better(form: str, least: float, broken: str) -> None:
    mechanism = BrierReward(form)  # type: ignore[arg-type]  # a parametrized literal
    assert rewards_of(mechanism, rollouts([1.0, 0.0], [broken, broken])) == [least, least]
    honest = rewards_of(mechanism, rollouts([0.0, 1.0, 0.0, 1.0], [1, 0, 0.5, 0.5]))
    assert min(honest) >= least


def test_advantages_of_both_forms_agree_up_to_scale() -> None:
    batch = rollouts([1.0, 0.0, 1.0, 0.0], [0.9, 0.9, 0.2, 0.2])
    chains = [Chain((BrierReward(), GroupAdvantage("none"))), Chain((BrierReward("code"), GroupAdvantage("none")))]
    told = [not_none(Objective(chain).credit(batch)[0].advantages) for chain in chains]
    # Rewards .99, -.81, .36, -.04 have the mean .125.
    assert told[0].tolist() == pytest.approx([0.865, -0.935, 0.235, -0.165], abs=1e-12)
    assert torch.allclose(told[0], 2 * told[1])


def test_the_unknown_stays_without_a_reward_and_stats_leave_it_out() -> None:
    batch = rollouts([math.nan, 1.0, 1.0, 0.0], [0.9, 0.9, 0.7, ""], rewards=[1.0, math.nan, 1.0, 0.0])
    effect = BrierReward().apply(batch, None, None)
    assert torch.isnan(effect.after.rewards).tolist() == [True, True, False, False]
    assert effect.after.rewards[2:].tolist() == pytest.approx([0.91, -1.0])
    assert effect.stats["well_formed"].value == 0.5
    assert effect.stats["brier"].value == pytest.approx(0.09)
    assert effect.stats["confidence_right"].value == pytest.approx(0.7)
    assert math.isnan(effect.stats["confidence_wrong"].value)


def test_missing_texts_and_settings_are_refused() -> None:
    batch = rollouts([1.0, 0.0], [0.9, 0.1])
    with pytest.raises(MechanismError, match="1 response texts for 2 rollouts"):
        BrierReward().apply(
            Rollouts(batch.rewards, batch.groups, batch.lengths, correct=batch.correct, texts=["x"]).clean(),
            None,
            None,
        )
    with pytest.raises(SettingsError, match="form"):
        BrierReward("exact")  # type: ignore[arg-type]  # what a user may write
    with pytest.raises(MechanismError, match="before"):
        Chain((GroupAdvantage(), BrierReward()))


@pytest.mark.parametrize("mechanism", [BrierReward(), BrierReward("code")])
def test_the_contract(mechanism: BrierReward) -> None:
    check_mechanism(mechanism)


def test_the_defaults_and_the_edges_of_the_settings() -> None:
    check_edges(BrierReward, {"form": "paper"}, accepted=[{"form": "code"}], refused=[{"form": "other"}])


def test_stats_tell_the_confidence_in_right_answers_from_that_in_wrong_ones() -> None:
    # Half right is not right. The last one states nothing.
    batch = rollouts([1.0, 1.0, 0.0, 0.5, 0.0], [0.9, 0.7, 0.4, 0.2, ""])
    stats = BrierReward().apply(batch, None, None).stats
    assert (stats["confidence_right"].total, stats["confidence_right"].count) == (pytest.approx(1.6), 2)
    assert (stats["confidence_wrong"].total, stats["confidence_wrong"].count) == (pytest.approx(0.6), 2)
    assert (stats["brier"].total, stats["brier"].count) == (pytest.approx(0.01 + 0.09 + 0.16 + 0.09), 4)
