"""What happens in a run: healthy stories and failures, each a change to the curves of a healthy run.

A story's times are shares of the run, drawn for every course, and so are its strengths. A course is drawn again until
its label is true by `courses.curves.DEFINITIONS` and, for failures that show in the score, until the fall is at least
VISIBLE times the noise of one logged point: smaller ones no reader would see either. Failures are therefore logged with
less noise than healthy runs where the batch is tiny and every step is logged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from courses.curves import Curves, flat_share

from breadth.measure.validate import FloatArray

Rng = np.random.Generator
DEAD = frozenset({"no-learning", "zero-variance-groups", "overly-hard", "saturation"})
"""What is also true of a run that stopped learning."""
SOFT = frozenset({"saturation"})


@dataclass(frozen=True)
class Story:
    """One thing that may happen in a run."""

    name: str
    """In words."""
    label: str
    """The finding that is right, or healthy."""
    change: Callable[[Rng, Curves, int], None]
    """Puts it into healthy curves; the last argument is the size of a group."""
    also: frozenset[str] = frozenset()
    """Other findings that are right to name; saturation among them is true but names no failure."""
    misleading: frozenset[str] = frozenset()
    """Findings that are true of a part of the course and lead to the wrong remedy."""
    needs: frozenset[str] = frozenset()
    """Metrics without which nobody could see it; others may be missing from a log."""
    hides: frozenset[str] = frozenset()
    """Metrics that are not logged."""
    visible: bool = False
    """Whether it shows in the score, which must then fall by VISIBLE times the noise."""
    traits: frozenset[str] = frozenset()
    """What the rest of the generator must do: noisy, restart, odd-scale, evaluated, one-length, trl."""


def times(curves: Curves) -> FloatArray:
    """Return the share of the run that is over at each step."""
    return (np.arange(curves.steps) + 0.5) / curves.steps


def ramp(curves: Curves, start: float, end: float) -> FloatArray:
    """Return 0 before the start, 1 after the end, and a straight line between."""
    return np.clip((times(curves) - start) / max(end - start, 1e-9), 0, 1)


def draw_factor(rng: Rng, low: float, high: float) -> float:
    """Draw a number whose logarithm is uniform."""
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def draw_healthy(rng: Rng, steps: int, size: int) -> Curves:
    """Draw a run that learns: the score rises, entropy keeps 50 to 130 %, lengths drift, few completions are cut."""
    place = (np.arange(steps) + 0.5) / steps
    shape = draw_shape(rng, place)
    start = rng.uniform(0.1, 0.45)
    gain = rng.uniform(0.12, 0.5)
    score = start + min(gain, 0.8 - start) * shape
    kept = rng.uniform(0.5 if gain > 0.25 else 0.75, 1.0)
    moved = np.log(kept if rng.random() < 0.75 else rng.uniform(1.0, 1.25))
    zeros = np.zeros(steps, dtype=bool)
    drifted = shape if rng.random() < 0.5 else place
    rate = draw_factor(rng, 3e-7, 2e-5)
    return Curves(
        score,
        np.full(steps, agreement_for(score[-1], size, rng.uniform(0.05, 0.4))),
        draw_factor(rng, 0.1, 2.0) * np.exp(moved * shape),
        draw_factor(rng, 80, 2500) * np.exp(rng.uniform(-0.3, 0.5) * place),
        np.full(steps, rng.uniform(0, 0.04)),
        draw_factor(rng, 1e-3, 0.05) * (draw_factor(rng, 0.02, 2.0) + drifted),
        draw_factor(rng, 0.02, 3.0) * np.exp(rng.uniform(-0.5, 0.1) * place),
        rate * (1 - 0.9 * place if rng.random() < 0.5 else np.ones(steps)),
        np.full(steps, 0.01),
        np.maximum(score - rng.uniform(0, 0.08), 0.02),
        zeros,
        zeros.copy(),
    )


def draw_shape(rng: Rng, place: FloatArray) -> FloatArray:
    """Draw how a score rises from 0 to 1: saturating, straight or S-shaped."""
    kind = rng.integers(3)
    if kind == 0:
        shape = 1 - np.exp(-place / rng.uniform(0.15, 0.5))
    elif kind == 1:
        shape = place
    else:
        shape = 1 / (1 + np.exp(-(place - rng.uniform(0.25, 0.6)) / rng.uniform(0.06, 0.15)))
    return np.asarray((shape - shape[0]) / (shape[-1] - shape[0]))


def agreement_for(score: float, size: int, share: float) -> float:
    """Return the agreement at which a share of the groups is flat; 50 where fewer are flat than that even then."""
    low, high = np.log(1e-3), np.log(50.0)
    for _ in range(40):
        middle = (low + high) / 2
        flat = flat_share(np.array([score]), np.array([np.exp(middle)]), size)[0]
        low, high = (middle, high) if flat > share else (low, middle)
    return float(np.exp(high))


def rise(_rng: Rng, _curves: Curves, _size: int) -> None:
    """Leave the healthy run as it is."""


def plateau_early(rng: Rng, curves: Curves, size: int) -> None:
    """Reach a high score in the first third and keep it."""
    top, start = rng.uniform(0.78, 0.93), float(curves.score[0])
    curves.score = start + (top - start) * ramp(curves, 0.0, rng.uniform(0.12, 0.33))
    curves.held_out = np.maximum(curves.score - 0.04, 0.02)
    curves.agreement = np.full(curves.steps, agreement_for(top, size, rng.uniform(0.3, 0.44)))


def solve_task(rng: Rng, curves: Curves, _: int) -> None:
    """Solve nearly everything: most groups are flat because all are right."""
    top, start = rng.uniform(0.96, 0.998), float(curves.score[0])
    done = ramp(curves, 0.0, rng.uniform(0.25, 0.6))
    curves.score = start + (top - start) * done
    curves.held_out = np.maximum(curves.score - 0.03, 0.02)
    curves.entropy = curves.entropy[0] * np.exp(np.log(rng.uniform(0.5, 0.8)) * done)


def dip_and_recover(rng: Rng, curves: Curves, _: int) -> None:
    """Lose up to 14 % of the score for a while and come back."""
    start, width = rng.uniform(0.3, 0.6), rng.uniform(0.08, 0.2)
    dip = ramp(curves, start, start + width / 3) - ramp(curves, start + width * 2 / 3, start + width)
    curves.score = curves.score * (1 - rng.uniform(0.06, 0.13) * dip)
    curves.length = curves.length * (1 + 0.1 * dip)


def warm_up(rng: Rng, curves: Curves, _: int) -> None:
    """Hold still while the learning rate warms up, then learn."""
    end = rng.uniform(0.08, 0.2)
    late = np.clip(times(curves) - end, 0, None) / (1 - end)
    places = np.minimum((late * curves.steps).astype(int), curves.steps - 1)
    curves.learning_rate = curves.learning_rate * ramp(curves, 0, end)
    for name in ("score", "entropy", "kl", "held_out"):
        setattr(curves, name, getattr(curves, name)[places])


def halve_entropy(rng: Rng, curves: Curves, _: int) -> None:
    """Lose half of the entropy while the score clearly rises to the end."""
    start = rng.uniform(0.1, 0.3)
    curves.score = start + (rng.uniform(0.65, 0.8) - start) * times(curves)
    curves.held_out = np.maximum(curves.score - 0.05, 0.02)
    curves.entropy = curves.entropy[0] * np.exp(np.log(rng.uniform(0.46, 0.6)) * times(curves))


def start_with_flat_groups(rng: Rng, curves: Curves, size: int) -> None:
    """Have many flat groups from the first step on, problems being easy or hard, while the score rises to the end."""
    start = rng.uniform(0.15, 0.45)
    curves.score = start + rng.uniform(0.2, 0.35) * times(curves)
    curves.held_out = np.maximum(curves.score - 0.05, 0.02)
    curves.agreement = np.full(curves.steps, agreement_for(float(curves.score[0]), size, rng.uniform(0.45, 0.65)))


def think_longer(rng: Rng, curves: Curves, _: int) -> None:
    """Write two to three times as much as the score rises; the cap is far away."""
    gained = (curves.score - curves.score[0]) / np.ptp(curves.score)
    curves.length = curves.length[0] * np.exp(np.log(rng.uniform(1.8, 3.0)) * gained)


def answer_shortly(rng: Rng, curves: Curves, _: int) -> None:
    """Give short answers of nearly one length, such as a choice or a line of JSON: all alike, and none is cut."""
    curves.length = np.full(curves.steps, rng.uniform(6, 60))
    curves.truncated = np.zeros(curves.steps)


def stop_score(curves: Curves, start: float, fall: FloatArray | float = 0.0) -> None:
    """Keep the score of a time, less a falling share, from then on."""
    held = float(curves.score[min(int(start * curves.steps), curves.steps - 1)])
    late = times(curves) >= start
    curves.score = np.where(late, held * (1 - fall), curves.score)
    curves.held_out = np.where(late, np.minimum(curves.held_out, curves.score), curves.held_out)


def lose_diversity(rng: Rng, curves: Curves, size: int, fallen: FloatArray) -> None:
    """Make groups flat as entropy falls: the same answer every time."""
    few = agreement_for(float(curves.score[-1]), size, rng.uniform(0.6, 0.9))
    curves.agreement = np.exp(np.log(curves.agreement) * (1 - fallen) + np.log(few) * fallen)


def collapse_gradually(rng: Rng, curves: Curves, size: int) -> None:
    """Let entropy decay to 2 to 18 % of its start; the score stops."""
    start = rng.uniform(0.05, 0.45)
    fallen = ramp(curves, start, rng.uniform(0.6, 0.9))
    stop_score(curves, rng.uniform(start + 0.1, 0.6))
    curves.entropy = curves.entropy[0] * np.exp(np.log(draw_factor(rng, 0.02, 0.18)) * fallen)
    lose_diversity(rng, curves, size, fallen)


def collapse_at_once(rng: Rng, curves: Curves, size: int) -> None:
    """Let entropy fall to 2 to 18 % within the first eighth and stay there; the score stops."""
    end = rng.uniform(0.05, 0.125)
    fallen = ramp(curves, 0.01, end)
    stop_score(curves, rng.uniform(end, 0.25))
    curves.entropy = curves.entropy[0] * np.exp(np.log(draw_factor(rng, 0.02, 0.18)) * fallen)
    lose_diversity(rng, curves, size, fallen)


def explode(rng: Rng, curves: Curves, _: int) -> None:
    """Let entropy grow to 3.5 to 30 times its start while the score falls."""
    start = rng.uniform(0.2, 0.6)
    rising = ramp(curves, start, start + rng.uniform(0.03, 0.25))
    curves.entropy = np.minimum(curves.entropy[0] * draw_factor(rng, 3.5, 30) ** rising, 10.5)
    stop_score(curves, start, rng.uniform(0.35, 0.95) * rising)
    curves.kl = curves.kl * (1 + rng.uniform(3, 30) * rising)


def explode_die_freeze(rng: Rng, curves: Curves, _: int) -> None:
    """Let entropy explode, then the score die, then freeze everything: the same tokens at every step."""
    first = rng.uniform(0.1, 0.35)
    death, end = first + rng.uniform(0.08, 0.2), rng.uniform(0.65, 0.8)
    rising = ramp(curves, first, death)
    curves.entropy = np.minimum(curves.entropy[0] * draw_factor(rng, 4, 30) ** rising, 10.5)
    stop_score(curves, first, rng.uniform(0.1, 0.3) * rising)
    stop_score(curves, death, np.minimum(1.0, 2 * ramp(curves, death, end)))
    curves.kl = curves.kl * (1 + rng.uniform(10, 100) * rising)
    curves.frozen = times(curves) >= end
    curves.entropy[curves.frozen] = curves.entropy[0] * draw_factor(rng, 0.001, 0.05)
    curves.grad[curves.frozen] = 0.0
    if rng.random() < 0.5:
        curves.truncated[curves.frozen] = 1.0
    else:
        curves.length[curves.frozen] = rng.integers(1, 9)


def die_suddenly(rng: Rng, curves: Curves, _: int) -> None:
    """Lose 45 % of the score or more at one step, late in the run; entropy jumps up, down or not."""
    death = rng.uniform(0.5, 0.85)
    late = (times(curves) >= death).astype(float)
    stop_score(curves, death, late * rng.uniform(0.45, 1.0))
    curves.entropy = curves.entropy * rng.choice([1.0, 0.3, 3.0, 8.0]) ** late
    curves.length = curves.length * rng.choice([1.0, 0.3, 1.5]) ** late


def rot_slowly(rng: Rng, curves: Curves, _: int) -> None:
    """Reach the best score in the first half, then sink to 20 to 60 % of it."""
    best = rng.uniform(0.2, 0.5)
    top, start = rng.uniform(0.5, 0.8), float(curves.score[0])
    curves.score = start + (top - start) * ramp(curves, 0, best)
    stop_score(curves, best, rng.uniform(0.4, 0.8) * ramp(curves, best, 1.0))


def recover_partly(rng: Rng, curves: Curves, _: int) -> None:
    """Collapse, stay down for a while and recover to at most 68 % of the best score."""
    start = rng.uniform(0.25, 0.45)
    down = rng.uniform(0.5, 0.95)
    back = rng.uniform(0.1, down - 0.32) if down > 0.45 else 0.0
    fall = down * ramp(curves, start, start + 0.04)
    fall = fall - back * ramp(curves, start + 0.2, start + rng.uniform(0.3, 0.5))
    stop_score(curves, start, fall)
    curves.entropy = curves.entropy * (1 + 0.5 * ramp(curves, start, start + 0.04))


def break_gradient(rng: Rng, curves: Curves, _: int) -> None:
    """Have NaN gradients from some step on; the weights stay as they are, or are ruined and all is wrong and cut."""
    start = rng.uniform(0.15, 0.8)
    curves.broken = times(curves) >= start
    if rng.random() < 0.5:
        stop_score(curves, start)
    else:
        stop_score(curves, start, 1.0)
        curves.frozen = curves.broken.copy()
        curves.truncated = np.where(curves.broken, 1.0, curves.truncated)


def blow_up_loss(rng: Rng, curves: Curves, _: int) -> None:
    """Let the loss jump to between 1e5 and 1e10 and stay there; the score stops or falls."""
    start = rng.uniform(0.2, 0.8)
    late = times(curves) >= start
    curves.loss = np.where(late, draw_factor(rng, 1e5, 1e10), curves.loss)
    curves.grad = np.where(late, curves.grad * draw_factor(rng, 1e3, 1e6), curves.grad)
    stop_score(curves, start, rng.choice([0.0, 0.6]) * late)


def negate_divergence(rng: Rng, curves: Curves, _: int) -> None:
    """Log a negative mean divergence from some step on, which TRL's estimator cannot give."""
    start = rng.uniform(0.2, 0.7)
    curves.kl = np.where(times(curves) >= start, -draw_factor(rng, 0.05, 3.0), curves.kl)
    stop_score(curves, start)


def end_in_explosion(rng: Rng, curves: Curves, _: int) -> None:
    """Let gradient and divergence explode in the last part of the run, which ends there."""
    start = rng.uniform(0.6, 0.8)
    rising = ramp(curves, start, rng.uniform(0.85, 0.9))
    curves.grad = curves.grad * draw_factor(rng, 50, 5000) ** rising
    curves.kl = curves.kl * (rng.uniform(0.8, 8.0) / curves.kl) ** rising
    stop_score(curves, start, rng.uniform(0.4, 0.9) * rising)


def drift_away(rng: Rng, curves: Curves, _: int) -> None:
    """Let the divergence grow to 0.7 to 8 nats, the gradient with it, while the score sinks."""
    start = rng.uniform(0.15, 0.5)
    rising = ramp(curves, start, rng.uniform(0.75, 0.87))
    curves.kl = curves.kl * (rng.uniform(0.7, 8.0) / curves.kl) ** rising
    curves.grad = curves.grad * draw_factor(rng, 3, 30) ** rising
    stop_score(curves, start, rng.uniform(0.15, 0.6) * rising)


def hit_cap(rng: Rng, curves: Curves, _: int) -> None:
    """Cut nearly every completion at the cap, from the start or from some step on."""
    start = 0.0 if rng.random() < 0.4 else rng.uniform(0.1, 0.5)
    pinned = np.ones(curves.steps) if start == 0 else ramp(curves, start, start + 0.15)
    share = 1.0 if rng.random() < 0.5 else rng.uniform(0.95, 0.999)
    curves.truncated = curves.truncated + (share - curves.truncated) * pinned
    stop_score(curves, start + 0.05, rng.uniform(0.0, 0.5) * pinned)


def cut_more(rng: Rng, curves: Curves, _: int) -> None:
    """Grow answers into the cap: in the end 45 to 95 % are cut, and the score falls."""
    start = rng.uniform(0.15, 0.45)
    rising = ramp(curves, start, rng.uniform(0.65, 0.72))
    curves.truncated = curves.truncated + (rng.uniform(0.45, 0.95) - curves.truncated) * rising
    curves.length = curves.length * (1 + rising)
    stop_score(curves, start, rng.uniform(0.1, 0.6) * rising)


def peak_truncation(rng: Rng, curves: Curves, _: int) -> None:
    """Cut 55 to 95 % for a third of the run, and still 20 to 35 % afterwards."""
    start = rng.uniform(0.25, 0.4)
    peak, rest = rng.uniform(0.55, 0.95), rng.uniform(0.2, 0.35)
    cut = peak * ramp(curves, start, start + 0.05) - (peak - rest) * ramp(curves, start + 0.38, start + 0.45)
    curves.truncated = np.maximum(curves.truncated, cut)
    curves.score = curves.score * (1 - 0.5 * cut)
    curves.held_out = np.minimum(curves.held_out, curves.score)


def fail_everywhere(rng: Rng, curves: Curves, size: int) -> None:
    """Make all rollouts wrong, from the start or after a collapse."""
    low = rng.uniform(0.0, 0.01)
    if rng.random() < 0.5:
        curves.score = np.full(curves.steps, low)
    else:
        start = rng.uniform(0.2, 0.5)
        curves.score = curves.score + (low - curves.score) * ramp(curves, start, start + rng.uniform(0.05, 0.25))
    curves.held_out = np.minimum(curves.held_out, curves.score)
    curves.agreement = np.minimum(curves.agreement, agreement_for(0.01, size, 0.93))


def split_problems(rng: Rng, curves: Curves, size: int) -> None:
    """Make each problem solved or hopeless: the score stops far below its ceiling, and nothing is left to learn."""
    start = rng.uniform(0.1, 0.4)
    rising = ramp(curves, start, start + rng.uniform(0.15, 0.35))
    stop_score(curves, start)
    few = agreement_for(float(curves.score[-1]), size, rng.uniform(0.85, 0.98))
    curves.agreement = np.exp(np.log(curves.agreement) * (1 - rising) + np.log(few) * rising)


def hold_still(curves: Curves, score: float) -> None:
    """Take every trend out of the curves."""
    for name in ("entropy", "length", "grad"):
        setattr(curves, name, np.full(curves.steps, float(getattr(curves, name)[0])))
    curves.kl = np.full(curves.steps, 1e-6)
    curves.score = np.full(curves.steps, score)
    curves.held_out = np.full(curves.steps, score)


def have_no_gradient(rng: Rng, curves: Curves, _: int) -> None:
    """Have a gradient of zero from the first step on."""
    hold_still(curves, rng.uniform(0.1, 0.6))
    curves.grad = np.zeros(curves.steps)


def have_no_rate(rng: Rng, curves: Curves, _: int) -> None:
    """Have a learning rate of zero, or as good as."""
    hold_still(curves, rng.uniform(0.1, 0.6))
    curves.learning_rate = np.full(curves.steps, rng.choice([0.0, 1e-12, 1e-15]))


def have_no_spread(rng: Rng, curves: Curves, _: int) -> None:
    """Give every rollout the lowest reward from the first step on."""
    hold_still(curves, 0.0)
    curves.grad = curves.grad * rng.choice([0.0, 1e-4])


def overfit(rng: Rng, curves: Curves, _: int) -> None:
    """Raise the training score to the end while the held-out score falls from its best by 35 to 70 %."""
    best = rng.uniform(0.25, 0.5)
    top, start = rng.uniform(0.45, 0.7), rng.uniform(0.15, 0.35)
    up, down = ramp(curves, 0, best), ramp(curves, best, 0.95)
    curves.held_out = (start + (top - start) * up) * (1 - rng.uniform(0.35, 0.7) * down)
    curves.score = start + (top - start) * up + (0.95 - top) * rng.uniform(0.5, 1.0) * ramp(curves, best, 1)


def shorten(rng: Rng, curves: Curves, _: int) -> None:
    """Shrink answers to 3 to 30 %, and let the score fall; half of the time both come back partly."""
    start = rng.uniform(0.2, 0.5)
    down = ramp(curves, start, start + rng.uniform(0.03, 0.2))
    if rng.random() < 0.5:
        down = down - rng.uniform(0.3, 0.7) * ramp(curves, start + 0.4, start + 0.5)
    curves.length = curves.length * draw_factor(rng, 0.03, 0.3) ** down
    stop_score(curves, start, rng.uniform(0.4, 0.9) * down)


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


DYING = DEAD | _names("score-collapse")
HEALTHY_STORIES = (
    Story("rises", "healthy", rise),
    Story("plateaus early at a high score", "healthy", plateau_early),
    Story("is solved", "healthy", solve_task),
    Story("dips and recovers", "healthy", dip_and_recover),
    Story("warms up", "healthy", warm_up),
    Story("restarts and repeats steps", "healthy", rise, traits=_names("restart")),
    Story("has a noisy score", "healthy", rise, traits=_names("noisy")),
    Story("has scores on an odd scale", "healthy", rise, traits=_names("odd-scale")),
    Story("halves its entropy while the score rises", "healthy", halve_entropy),
    Story("has flat groups from the start and learns", "healthy", start_with_flat_groups),
    Story("thinks longer", "healthy", think_longer),
    Story("gives answers of one length", "healthy", answer_shortly, traits=_names("one-length")),
)
FAILURES = (
    Story(
        "entropy collapses gradually",
        "entropy-collapse",
        collapse_gradually,
        DEAD,
        needs=_names("entropy"),
    ),
    Story(
        "entropy collapses in the first eighth",
        "entropy-collapse",
        collapse_at_once,
        DEAD,
        needs=_names("entropy"),
    ),
    Story(
        "entropy explodes",
        "entropy-explosion",
        explode,
        DYING | _names("drift"),
        needs=_names("entropy"),
        visible=True,
    ),
    Story(
        "explodes, dies and freezes",
        "score-collapse",
        explode_die_freeze,
        DYING | _names("entropy-explosion drift truncation length-collapse"),
        _names("entropy-collapse"),
        visible=True,
    ),
    Story(
        "dies suddenly",
        "score-collapse",
        die_suddenly,
        DYING | _names("entropy-collapse entropy-explosion length-collapse"),
        visible=True,
    ),
    Story("rots slowly", "score-collapse", rot_slowly, DYING, visible=True),
    Story("collapses and recovers partly", "score-collapse", recover_partly, DYING, visible=True),
    Story("gradient is NaN", "numerical-failure", break_gradient, DYING | _names("truncation unreliable-metric")),
    Story("loss explodes", "numerical-failure", blow_up_loss, DYING | _names("drift unreliable-metric")),
    Story(
        "divergence is negative",
        "numerical-failure",
        negate_divergence,
        SOFT | _names("unreliable-metric"),
        needs=_names("kl"),
        traits=_names("trl"),
    ),
    Story(
        "ends in an explosion of the gradient",
        "drift",
        end_in_explosion,
        DYING | _names("numerical-failure"),
        needs=_names("kl"),
        visible=True,
    ),
    Story("drifts away", "drift", drift_away, DYING | _names("numerical-failure"), needs=_names("kl")),
    Story(
        "length is pinned at the cap, no truncation logged",
        "truncation",
        hit_cap,
        DYING,
        hides=_names("truncated"),
    ),
    Story("truncation rises", "truncation", cut_more, DYING, needs=_names("truncated")),
    Story("truncation peaks", "truncation", peak_truncation, DYING, needs=_names("truncated")),
    Story(
        "everything is wrong",
        "zero-variance-groups",
        fail_everywhere,
        DYING,
        needs=_names("zero"),
        traits=_names("trl"),
    ),
    Story(
        "every problem is solved or hopeless",
        "zero-variance-groups",
        split_problems,
        DEAD,
        needs=_names("zero"),
        traits=_names("trl"),
    ),
    Story("never has a gradient", "no-learning", have_no_gradient, DEAD),
    Story("never has a learning rate", "no-learning", have_no_rate, DEAD),
    Story("never has a difference in rewards", "no-learning", have_no_spread, DEAD),
    Story(
        "overfits",
        "overfitting",
        overfit,
        SOFT | _names("reward-hacking score-collapse"),
        traits=_names("evaluated"),
    ),
    Story("answers shrink", "length-collapse", shorten, DYING | _names("degenerate-rollouts"), visible=True),
)
STORIES: Mapping[str, Story] = {story.name: story for story in (*HEALTHY_STORIES, *FAILURES)}
"""Every story by its name."""
VISIBLE = 2.5
"""A fall of the score is at least so many standard deviations of one logged point."""
