"""What is prescribed for a policy is a policy that loads."""

from __future__ import annotations

from breadth.base.settings import loads
from breadth.doctor.finding import Change
from breadth.doctor.knobs import Knobs
from breadth.doctor.words.policy_words import SETTINGS
from breadth.inference.halting import Loop
from breadth.inference.policy import Policy
from breadth.inference.strategies.adaptive_vote import AdaptiveVote
from breadth.inference.strategies.single import Single


def policy(*changes: Change) -> Policy:
    return loads(Policy, "\n".join(SETTINGS.patch(changes, Knobs())))


def test_everything_at_once_loads_as_it_was_meant() -> None:
    found = policy(
        Change("thinking_budget", 512),
        Change("votes", 16),
        Change("max_tokens", 2048),
        Change("top_logprobs", 20),
        Change("loop_guard", True),
        Change("temperature", 0.7),
        Change("top_p", 1.0),
    )
    assert isinstance(found.strategy, AdaptiveVote)
    assert found.strategy.most == 16
    assert (found.sampling.thinking_tokens, found.sampling.max_tokens, found.sampling.top_logprobs) == (512, 2048, 20)
    assert (found.sampling.temperature, found.sampling.top_p) == (0.7, 1.0)
    assert isinstance(found.halt, Loop)


def test_one_vote_is_no_vote_and_confidences_are_left_out_of_one() -> None:
    assert isinstance(policy(Change("votes", 1)).strategy, Single)
    assert isinstance(policy(Change("vote_confidence", False)).strategy, AdaptiveVote)
    both = policy(Change("vote_confidence", False), Change("votes", 12)).strategy
    assert isinstance(both, AdaptiveVote)
    assert both.most == 12


def test_what_is_the_server_s_or_a_trainer_s_is_left_out() -> None:
    assert (
        SETTINGS.patch([Change("logprobs_raw", True), Change("clip_high", 0.28), Change("loop_guard", False)], Knobs())
        == ()
    )
