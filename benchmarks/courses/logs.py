"""Courses as logs: curves are sampled group by group, averaged over the logging interval, and written.

A course is written as TRL or verl would. Every step draws a chance for each problem of its batch (a Beta distribution
around the score), then its rollouts, so reward, spread of rewards and share of zero-variance groups belong together and
are counts. Noise and wander of the other metrics are drawn between the measured quartiles (`courses.measured`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from courses.curves import DEFINITIONS, FAILURE_DEFINITIONS, Curves
from courses.measured import MEASURED, Quartiles
from courses.stories import STORIES, VISIBLE, Rng, Story, draw_factor, draw_healthy

from breadth.measure.validate import FloatArray

Columns = dict[str, FloatArray]
Row = dict[str, float]
GROUPS = (1, 1, 2, 2, 4, 8, 16)
"""Problems per step: few, as in the real logs, whose noise of the reward (0.8 of the spread within a group) is above
that of healthy courses even so (0.4).
"""
SCALES = ((0.0, 1.0), (0.0, 1.0), (-1.0, 2.0), (0.0, 2.0))
"""Lowest reward and its range: right or wrong, plus and minus one, with a second component."""
ODD_SCALES = ((-0.5, 1.0), (0.0, 100.0), (-10.0, 9.0), (-2.0, 2.0), (0.0, 0.02))
RESTART_CHANCE = 0.05
"""Share of the courses of any story that restart and repeat some steps."""
MAX_TRIES = 400
"""How often a course is drawn until its label is true and visible."""
WANDER_STEPS = (10.0, 80.0)
"""Over how many steps a wander forgets itself, lowest and highest: in the real logs the correlation at a lag of eight
is that of one."""
MAX_SPIKE = 4.0
"""Size of a spike: what a step is multiplied by at most."""
SPIKE_SHARE = {"grad_norm": 0.01, "kl_reference": 0.003, "entropy": 0.001, "length": 0.001}
"""Share of steps with a spike; real logs show up to 3 % for the gradient and 1 % for entropy."""


@dataclass(frozen=True)
class Setting:
    """How a course is run and logged."""

    trainer: str
    """trl or verl."""
    points: int
    """Logged points."""
    interval: int
    """Steps per logged point."""
    groups: int
    """Problems per step."""
    size: int
    """Rollouts per problem."""
    lowest: float
    """Reward of a wrong rollout."""
    span: float
    """What a right one gets more."""
    room: float
    """The cap in tokens is the next power of two above so many times the longest mean length."""
    evaluations: int
    """How often held-out problems are scored; 0 for never."""
    logged: frozenset[str]
    """Optional metrics that are logged: entropy, kl, zero, truncated."""
    one_length: bool
    """Whether all answers are of nearly the same length."""
    restart: tuple[int, int] | None
    """After which logged point the run restarts, and from which."""


@dataclass(frozen=True)
class Course:
    """One run: its story, its noise-free curves and its log."""

    story: Story
    """What happens."""
    setting: Setting
    """How it is run and logged."""
    curves: Curves
    """What is true."""
    columns: Columns
    """What is logged in training: metric -> one value per logged point, by our names."""
    resumed: Columns
    """The same after a restart, which samples again; empty where there was none."""
    held_out: tuple[tuple[int, float], ...]
    """Step and score of every evaluation."""

    @property
    def right_findings(self) -> frozenset[str]:
        """The label and every other finding that is right here: what the story lists and what is true of the curves."""
        if self.story.label == "healthy":
            return frozenset()
        true = {name for name, holds in FAILURE_DEFINITIONS.items() if holds(self.curves, self.setting.size)}
        return (self.story.also | true | {self.story.label}) - self.story.misleading

    def rows(self) -> list[Row]:
        """Return the training rows by our names, each with its step, as they were written; a restart repeats steps."""
        last, first = self.setting.restart or (self.setting.points, self.setting.points)
        parts = [(self.columns, range(last)), (self.resumed, range(first, self.setting.points))]
        return [
            {"step": (place + 1) * self.setting.interval, **{name: float(columns[name][place]) for name in columns}}
            for columns, places in parts
            for place in places
        ]

    def write(self, folder: Path) -> Path:
        """Write the log as its trainer does."""
        return write_trl(self, folder) if self.setting.trainer == "trl" else write_verl(self, folder)


def draw_course(name: str, points: int, interval: int, seed: int, number: int) -> Course:
    """Draw one course of a story; the same arguments give the same course."""
    story = STORIES[name]
    rng = np.random.default_rng([seed, number, points, interval, *name.encode()])
    for _ in range(MAX_TRIES):
        setting = draw_setting(rng, story, points, interval)
        curves = draw_healthy(rng, points * interval, setting.size)
        story.change(rng, curves, setting.size)
        add_wander(rng, curves, moves=story.label != "no-learning")
        if DEFINITIONS[story.label](curves, setting.size) and (not story.visible or is_visible(curves, setting)):
            columns = sample_columns(rng, curves, setting)
            resumed = sample_columns(rng, curves, setting) if setting.restart else {}
            return Course(story, setting, curves, columns, resumed, sample_held_out(rng, curves, setting))
    raise ValueError(f"{name!r} was not true and visible in {MAX_TRIES} draws; widen its parameters")


def draw_setting(rng: Rng, story: Story, points: int, interval: int) -> Setting:
    """Draw how the run is made and logged; verl logs every step and neither spread of rewards nor flat groups."""
    trainer = "verl" if interval == 1 and "trl" not in story.traits and rng.random() < 0.3 else "trl"
    noisy = "noisy" in story.traits
    groups, size = int(rng.choice([1, 2] if noisy else GROUPS)), int(rng.choice([4, 8, 16]))
    lowest, span = (ODD_SCALES if "odd-scale" in story.traits else SCALES)[
        rng.integers(5 if "odd-scale" in story.traits else 4)
    ]
    chances = {"entropy": 0.8, "kl": 0.6, "zero": 0.75, "truncated": 0.8}
    logged = {metric for metric, chance in chances.items() if rng.random() < chance}
    logged = (logged | story.needs) - story.hides - ({"zero"} if trainer == "verl" else set())
    often = "evaluated" in story.traits or rng.random() < 0.25
    restart = None
    if "restart" in story.traits or rng.random() < RESTART_CHANCE:
        last = int(points * rng.uniform(0.4, 0.8))
        restart = (last, max(2, last - max(1, int(points * rng.uniform(0.03, 0.15)))))
    return Setting(
        trainer,
        points,
        interval,
        groups,
        size,
        lowest,
        span,
        float(rng.choice([2, 3, 4])),
        min(points, int(rng.integers(8, 21))) if often else 0,
        frozenset(logged),
        "one-length" in story.traits,
        restart,
    )


def is_visible(curves: Curves, setting: Setting) -> bool:
    """Say whether the largest fall of the score is VISIBLE times the noise of a logged point at its best."""
    best = float(np.max(curves.score))
    spread = best * (1 - best)
    agreement = float(curves.agreement[int(np.argmax(curves.score))])
    between, within = spread / (agreement + 1), spread * agreement / (agreement + 1)
    noise = np.sqrt((between + within / setting.size) / setting.groups / setting.interval)
    return float(best - curves.score[int(np.argmax(curves.score)) :].min()) >= VISIBLE * float(noise)


def add_wander(rng: Rng, curves: Curves, *, moves: bool) -> None:
    """Let score and entropy wander; a label must be true of what comes of it. Nothing moves where it is frozen."""
    within = np.sqrt(curves.score * (1 - curves.score) * curves.agreement / (curves.agreement + 1))
    wander = draw_between(rng, MEASURED["reward"].wander) * draw_wander(rng, curves.steps) * within
    if moves:
        curves.score = np.clip(curves.score + np.where(curves.frozen, 0.0, wander), 0.0, 1.0)
    wander = draw_between(rng, MEASURED["entropy"].wander) * draw_wander(rng, curves.steps)
    curves.entropy = curves.entropy * np.exp(np.where(curves.frozen, 0.0, wander))


def sample_columns(rng: Rng, curves: Curves, setting: Setting) -> Columns:
    """Sample every step and average over the logging interval."""
    steps = sample_rewards(rng, curves, setting) | sample_lengths(rng, curves, setting)
    calm = np.where(curves.frozen, 0.0, 1.0)
    steps["entropy"] = curves.entropy * np.exp(calm * draw_movement(rng, "entropy", curves.steps))
    steps["kl_reference"] = curves.kl * np.exp(calm * draw_movement(rng, "kl_reference", curves.steps))
    noise = np.exp(draw_movement(rng, "grad_norm", curves.steps))
    flat = steps["zero_variance_groups"]
    steps["grad_norm"] = np.where(curves.broken, np.nan, curves.grad * noise * np.sqrt(np.maximum(1 - flat, 1e-4)))
    steps["loss"] = np.where(curves.broken, 0.0, curves.loss * (rng.normal(size=curves.steps) * 0.3 + 0.5))
    steps["ruined"] = (curves.broken & curves.frozen).astype(float)
    steps["clip_fraction"] = 0.002 * np.exp(0.5 * rng.normal(size=curves.steps))
    averaged = {name: values.reshape(setting.points, -1).mean(axis=1) for name, values in steps.items()}
    averaged["grad_norm"] = steps["grad_norm"][setting.interval - 1 :: setting.interval]
    averaged["learning_rate"] = curves.learning_rate[setting.interval - 1 :: setting.interval]
    for name in ("entropy", "kl_reference"):
        averaged[name] = np.where(averaged["ruined"] > 0, np.nan, averaged[name])
    del averaged["ruined"]
    optional = {"entropy": "entropy", "kl_reference": "kl", "zero_variance_groups": "zero", "truncated": "truncated"}
    return {name: values for name, values in averaged.items() if optional.get(name, "") in {"", *setting.logged}}


def sample_rewards(rng: Rng, curves: Curves, setting: Setting) -> Columns:
    """Draw the problems of every step and their rollouts: mean reward, spread within groups, share of flat groups."""
    score = curves.score
    chance = np.clip(score, 1e-9, 1 - 1e-9)[:, None]
    agreement = curves.agreement[:, None]
    shape = (curves.steps, setting.groups)
    solved = rng.beta(agreement * chance + np.zeros(shape), agreement * (1 - chance) + np.zeros(shape))
    solved = np.where((score <= 0)[:, None], 0.0, np.where((score >= 1)[:, None], 1.0, solved))
    right = rng.binomial(setting.size, np.nan_to_num(solved, nan=0.5))
    right[curves.frozen] = np.round(curves.score[curves.frozen] * setting.groups)[:, None] > np.arange(setting.groups)
    right[curves.frozen] *= setting.size
    share = right / setting.size
    spread = np.sqrt(share * (1 - share) * setting.size / (setting.size - 1))
    return {
        "reward": setting.lowest + setting.span * share.mean(axis=1),
        "critic/score/max": setting.lowest + setting.span * (right > 0).any(axis=1),
        "critic/score/min": setting.lowest + setting.span * (right == setting.size).all(axis=1),
        "reward_std": setting.span * spread.mean(axis=1),
        "zero_variance_groups": np.mean((right == 0) | (right == setting.size), axis=1),
    }


def sample_lengths(rng: Rng, curves: Curves, setting: Setting) -> Columns:
    """Draw how many completions are cut and how long they are; the cap is far above the usual length."""
    cap = float(2 ** np.ceil(np.log2(float(curves.length.max()) * setting.room)))
    calm = np.where(curves.frozen, 0.0, 1.0)
    rollouts = setting.groups * setting.size
    cut = np.where(curves.frozen, np.round(curves.truncated), rng.binomial(rollouts, curves.truncated) / rollouts)
    calm = calm * (0.1 if setting.one_length else 1.0)
    free = np.minimum(curves.length * np.exp(calm * draw_movement(rng, "length", curves.steps)), 0.9 * cap)
    spread = 1 + (0.2 + 0.6 * np.abs(rng.normal(size=curves.steps))) * calm
    return {
        "length": np.maximum(1.0, cut * cap + (1 - cut) * free),
        "length_max": np.where(cut > 0, cap, np.minimum(cap - 1, np.ceil(free * spread))),
        "truncated": cut,
    }


def draw_movement(rng: Rng, name: str, steps: int) -> FloatArray:
    """Draw noise, wander and spikes of a metric, on the logarithm; entropy wanders already (`add_wander`)."""
    movement = MEASURED[name]
    noise = draw_between(rng, movement.noise) * rng.normal(size=steps)
    wander = 0.0 if name == "entropy" else draw_between(rng, movement.wander) * draw_wander(rng, steps)
    spikes = np.where(rng.random(steps) < SPIKE_SHARE[name], np.log(draw_factor(rng, 1.5, MAX_SPIKE)), 0.0)
    return np.asarray(noise + wander + spikes)


def draw_between(rng: Rng, quartiles: Quartiles) -> float:
    """Draw a number between the quartiles, half of the time below the median."""
    return float(np.interp(rng.random(), (0.0, 0.5, 1.0), quartiles))


def draw_wander(rng: Rng, steps: int) -> FloatArray:
    """Draw an autocorrelated series of variance one."""
    weight = float(np.exp(-1 / rng.uniform(*WANDER_STEPS)))
    found = rng.normal(size=steps)
    for place in range(1, steps):
        found[place] = weight * found[place - 1] + np.sqrt(1 - weight**2) * found[place]
    return found


def sample_held_out(rng: Rng, curves: Curves, setting: Setting) -> tuple[tuple[int, float], ...]:
    """Score 200 to 500 held-out problems at evenly spaced logged points."""
    if not setting.evaluations:
        return ()
    problems = int(rng.integers(200, 501))
    places = np.unique(np.linspace(0, setting.points - 1, setting.evaluations).astype(int))
    steps = (places + 1) * setting.interval
    shares = rng.binomial(problems, np.clip(curves.held_out[steps - 1], 0, 1)) / problems
    return tuple(
        (int(step), float(setting.lowest + setting.span * share)) for step, share in zip(steps, shares, strict=True)
    )


TRL_NAMES: Mapping[str, str] = {
    "length": "completions/mean_length",
    "length_max": "completions/max_length",
    "truncated": "completions/clipped_ratio",
    "zero_variance_groups": "frac_reward_zero_std",
    "kl_reference": "kl",
    "clip_fraction": "clip_ratio/region_mean",
}
VERL_NAMES: Mapping[str, str] = {
    "reward": "critic/score/mean",
    "length": "response_length/mean",
    "length_max": "response_length/max",
    "truncated": "response_length/clip_ratio",
    "kl_reference": "actor/kl_loss",
    "clip_fraction": "actor/pg_clipfrac",
    "entropy": "actor/entropy",
    "grad_norm": "actor/grad_norm",
    "loss": "actor/pg_loss",
    "learning_rate": "actor/lr",
    "critic/score/max": "critic/score/max",
    "critic/score/min": "critic/score/min",
}
"""Our metric name -> the trainer's; a metric that verl does not log has none."""


NOT_OF_TRL = frozenset({"step", "critic/score/max", "critic/score/min"})


def write_trl(course: Course, folder: Path) -> Path:
    """Write the log as trainer_state.json, or as JSON lines where a restart repeats steps."""
    held_out = dict(course.held_out)
    history: list[dict[str, Any]] = []
    for row in course.rows():
        step = int(row["step"])
        values = {TRL_NAMES.get(name, name): value for name, value in row.items() if name not in NOT_OF_TRL}
        history.append({**values, "rewards/accuracy_reward/mean": row["reward"], "epoch": step / 500, "step": step})
        if step in held_out:
            history.append({"eval_reward": held_out[step], "eval_loss": 0.0, "epoch": step / 500, "step": step})
    if course.setting.restart is not None:
        path = folder / "log_history.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in history), encoding="utf-8")
        return path
    path = folder / "trainer_state.json"
    state = {"global_step": course.curves.steps, "logging_steps": course.setting.interval, "log_history": history}
    path.write_text(json.dumps(state), encoding="utf-8")
    return path


def write_verl(course: Course, folder: Path) -> Path:
    """Write the log as verl prints it."""
    held_out = dict(course.held_out)
    lines = []
    for row in course.rows():
        step = int(row["step"])
        values = {VERL_NAMES[name]: value for name, value in row.items() if name in VERL_NAMES}
        values["training/global_step"] = step
        if step in held_out:
            values["val-core/math/reward/mean@1"] = held_out[step]
        lines.append(f"step:{step} - " + " - ".join(f"{name}:{value!r}" for name, value in values.items()))
    path = folder / "train.log"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path
