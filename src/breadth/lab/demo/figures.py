"""The pictures of a demo: training, forks and mechanical tokens, pass@k, forced thinking, and a reply with its entropies."""

from __future__ import annotations

from dataclasses import replace

from breadth.lab.demo.results import DemoResults
from breadth.lab.measuring.measured import Measured
from breadth.measure.intervals import Interval
from breadth.report.sections import Axis, Curve, Event, Series, Token, Trace

STEP = Axis("optimizer step")
PLAIN, PROTECTED = "plain GRPO", "protected"


def training_curves(results: DemoResults) -> list[Curve]:
    """Return entropy and score of both arms against the step."""
    plain, protected = results.plain_training, results.protected_training
    return [
        Curve(
            "Entropy in training",
            [Series(PLAIN, plain.steps, plain.entropy), Series(PROTECTED, protected.steps, protected.entropy)],
            STEP,
            Axis("entropy of a token", "nats"),
            note="Mean over all tokens trained on.",
        ),
        Curve(
            "Score in training",
            [Series(PLAIN, plain.steps, plain.reward), Series(PROTECTED, protected.steps, protected.reward)],
            STEP,
            Axis("right replies", "%"),
            note="Of the replies drawn for each step, to problems trained on.",
        ),
    ]


def role_curve(results: DemoResults) -> Curve:
    """Return the entropy of forks and of mechanical tokens apart."""
    arms = {PLAIN: results.plain_training, PROTECTED: results.protected_training}
    return Curve(
        "Forks and mechanical tokens",
        [
            line
            for name, one in arms.items()
            for line in (
                Series(f"forks, {name}", one.steps, one.planning),
                Series(f"mechanical, {name}", one.steps, one.execution),
            )
        ],
        STEP,
        Axis("entropy of a token", "nats"),
        note=(
            "A grammar tells which tokens choose (forks) and which state a value (mechanical). Which of the two loses"
            " entropy is the question: breadth over routes is worth keeping, doubt about a sum is not."
        ),
    )


def coverage_curve(results: DemoResults) -> Curve:
    """Return pass@k of the base and both arms."""
    policies = {
        PLAIN: results.plain,
        PROTECTED: results.protected,
        "base": results.base,
    }  # the arms look as in the other curves
    return Curve(
        "pass@k on held-out problems",
        [_coverage(name, one) for name, one in policies.items()],
        Axis("replies to a problem, k"),
        Axis("one of them is right", "%"),
        log_x=True,
        note="Where lines cross, training has bought its score with breadth.",
    )


def budget_curves(results: DemoResults) -> list[Curve]:
    """Return accuracy and answer entropy of the plain arm against forced thinking."""
    forced, table = results.forced, results.corners
    tokens = [one.tokens for one in forced]
    axis, mark = Axis("thinking tokens, forced"), [Event(table.thinking, "budget of the four corners")]
    return [
        Curve(
            "Accuracy against forced thinking, plain arm",
            [
                _banded("long thought", tokens, [one.accuracy_rate for one in forced]),
                _banded("vote", [table.thinking], [table.plain_parallel.accuracy]),
                _banded("vote, protected", [table.thinking], [table.protected_parallel.accuracy]),
            ],
            axis,
            Axis("right answers", "%"),
            log_x=True,
            events=mark,
            note=(
                f"Left alone, a reply takes {results.plain.tokens.value:.0f} tokens. Where thinking ends earlier it is"
                " told to try again; at the budget it is cut. The votes, of either arm, write no more tokens than a"
                " long thought of as many as they stand at."
            ),
        ),
        Curve(
            "Entropy of answers against forced thinking, plain arm",
            [_banded("long thought", tokens, [one.entropy_rate for one in forced])],
            axis,
            Axis("entropy of the answers to a problem", "nats"),
            log_x=True,
            events=mark,
        ),
    ]


def before_and_after(results: DemoResults) -> list[Curve]:
    """Return the two curves that tell the whole, with headings short enough to stand above them side by side."""
    accuracy, _ = budget_curves(results)
    return [
        replace(coverage_curve(results), title="Training: what k replies hold"),
        replace(accuracy, title="Inference: one long thought, or a vote", events=()),
    ]


def traces(results: DemoResults) -> list[Trace]:
    """Return the first reply of each arm to the first problem, shaded by entropy."""
    return [_trace("the plain arm", results.plain), _trace("the protected arm", results.protected)]


def _trace(name: str, one: Measured) -> Trace:
    tokens = [Token(f"{'' if place == 0 else ' '}{said.word}", said.entropy) for place, said in enumerate(one.reply)]
    return Trace(
        f"A reply of {name} to {one.question}",
        tokens,
        "entropy",
        "nats",
        "The first reply to the first problem, not a chosen one. Tokens with an equals sign state a value; nearly all"
        " others choose.",
    )


def _coverage(name: str, one: Measured) -> Series:
    return _banded(name, [at.k for at in one.curve], [at.pass_rate for at in one.curve])


def _banded(name: str, x: list[int], y: list[Interval]) -> Series:
    return Series(name, x, [one.value for one in y], [one.low for one in y], [one.high for one in y])
