"""Settings that contradict each other, whoever the trainer is; what a trainer's own rules say comes with its knobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from breadth.doctor.evidence import Evidence
from breadth.doctor.finding import Change, Prescription
from breadth.doctor.knobs import Knobs
from breadth.doctor.lint.points import Point

GROUPED = frozenset(
    {
        "grpo",
        "grpo_passk",
        "rloo",
        "opo",
        "gpg",
        "reinforce_plus_plus_baseline",
        "grpo_vectorized",
        "rloo_vectorized",
        "group_norm",
        "reinforce_baseline",
        "dr_grpo",
    }
)
"""Estimators that compare the responses of a prompt with one another."""
FILTERING = frozenset({"nemo-rl"})
"""Trainers that cut the distribution in the loss as the sampler did."""
WHOLE: dict[str, float] = {"top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}
"""Sampling knobs -> the value at which rollouts are drawn from the policy itself."""


def contradictions(evidence: Evidence) -> Iterator[Point]:
    """Yield every contradiction."""
    for clash in evidence.knobs.clashes:
        ran = evidence.run is not None and clash.weight == "refused"
        why = clash.why + {"refused": "; the trainer refuses to start"}.get(clash.weight, "") * (not ran)
        yield Point(
            clash.settings,
            why + ("; the run started all the same" if ran else ""),
            grave=clash.weight != "slight" and not ran,
        )
    rules: tuple[Callable[[Knobs], Iterator[Point]], ...] = (_alone, _reversed, _inside, _greedy, _no_room, _masked)
    for rule in rules:
        yield from rule(evidence.knobs)
    if evidence.dialect is None or evidence.dialect.trainer not in FILTERING:
        yield from _elsewhere(evidence.knobs)


def _alone(knobs: Knobs) -> Iterator[Point]:
    """Look for groups of one, which have nothing to be compared with."""
    if knobs.group != 1 or knobs.estimator not in GROUPED or not {"group", "estimator"} & knobs.theirs.keys():
        return
    said = "; ".join(dict.fromkeys((knobs.given("estimator"), knobs.given("group"))))
    why = f"{knobs.estimator} compares the responses of a prompt with one another, and there is one"
    remedy = Prescription(
        "Draw 8 rollouts of a prompt",
        "The advantage is what one response has over the others.",
        (Change("group", 8),),
        "Eight times the rollouts, or an eighth of the prompts.",
        "arXiv 2402.03300",
    )
    yield Point(said, why, grave=True, remedy=remedy)


def _reversed(knobs: Knobs) -> Iterator[Point]:
    """Look for clip-higher turned round: likely tokens may fall further than unlikely ones may rise."""
    low, high = knobs.clip_low, knobs.clip_high
    if (
        low is None
        or high is None
        or knobs.clips is False
        or not {"clip_low", "clip_high"} <= knobs.theirs.keys()
        or high >= low
    ):
        return
    why = f"the ratio may fall by {low:g} and rise by {high:g} only: clip-higher the wrong way round"
    remedy = Prescription(
        f"Exchange the two: {high:g} below, {low:g} above", "Unlikely tokens need the room.", _exchanged(low, high)
    )
    yield Point(f"{knobs.given('clip_low')}; {knobs.given('clip_high')}", why, grave=True, remedy=remedy)


def _exchanged(low: float, high: float) -> tuple[Change, ...]:
    return (Change("clip_low", high), Change("clip_high", low))


def _inside(knobs: Knobs) -> Iterator[Point]:
    """Look for a cap on the ratio below the upper clip: it takes the clip's place."""
    if knobs.dual_clip is None or knobs.clip_high is None or not knobs.clips or "dual_clip" not in knobs.theirs:
        return
    if knobs.loss in ("cispo", "dppo_tv", "dppo_kl") or knobs.dual_clip > 1 + knobs.clip_high:
        return
    why = f"a cap of {knobs.dual_clip:g} on the ratio lies inside the clip, which ends at {1 + knobs.clip_high:g}"
    remedy = Prescription(
        "Raise the cap to 3, or take it out", "It is for ratios far beyond the clip.", (Change("dual_clip", 3.0),)
    )
    yield Point(knobs.given("dual_clip"), why, grave=True, remedy=remedy)


def _greedy(knobs: Knobs) -> Iterator[Point]:
    """Look for rollouts without chance: all responses of a prompt are then one."""
    if knobs.temperature != 0 or "temperature" not in knobs.theirs or knobs.group == 1:
        return
    remedy = Prescription(
        "Draw rollouts at a temperature of 1", "Responses must differ to be compared.", (Change("temperature", 1.0),)
    )
    yield Point(
        knobs.given("temperature"),
        "all responses of a prompt are the same at a temperature of 0",
        grave=True,
        remedy=remedy,
    )


def _no_room(knobs: Knobs) -> Iterator[Point]:
    """Look for completions that are cut by the sampler's room before they reach their cap."""
    if knobs.longest is None or knobs.context is None or not {"longest", "context"} & knobs.theirs.keys():
        return
    needed = knobs.longest + (knobs.longest_prompt or 0)
    if needed <= knobs.context:
        return
    said = "; ".join(knobs.given(knob) for knob in ("longest_prompt", "longest", "context") if knob in knobs.theirs)
    why = f"prompt and completion may have {needed:,} tokens, the sampler has room for {knobs.context:,}"
    remedy = Prescription(
        "Give the sampler room for both",
        "Long completions are cut below their cap.",
        (Change("longest", knobs.longest),),
    )
    yield Point(said, why, grave=True, remedy=remedy)


def _masked(knobs: Knobs) -> Iterator[Point]:
    """Look for a penalty for length that never reaches the longest."""
    if knobs.mask_truncated and knobs.length_penalty:
        why = (
            "completions that were cut are left out of the loss, so the largest penalties for length are never learned"
            " from"
        )
        said = "; ".join(dict.fromkeys((knobs.given("mask_truncated"), knobs.given("length_penalty"))))
        yield Point(said, why, grave=False)


def _elsewhere(knobs: Knobs) -> Iterator[Point]:
    """Look for rollouts drawn from another distribution than the one whose log-probs the loss takes, with nothing to weigh them."""
    uncorrected = knobs.correct_mismatch is False or (knobs.correct_mismatch is None and knobs.engine == "hf")
    bent = [knob for knob, whole in WHOLE.items() if knob in knobs.theirs and getattr(knobs, knob) not in (None, whole)]
    bent = [knob for knob in bent if knob != "top_p" or (knobs.top_p or 0) < 1]
    if not bent or not uncorrected:
        return
    why = (
        "rollouts are drawn from a part of the distribution, or from a bent one, and the loss takes them as drawn from"
        " all of it"
    )
    remedy = Prescription(
        "Draw rollouts from the whole distribution",
        "Tokens that are never drawn only lose: cutting the tail at every step narrows the policy.",
        tuple(Change(knob, WHOLE[knob]) for knob in bent),
        "More noise in the rollouts; correcting for the mismatch is the other way.",
        "DAPO trains at top_p 1, arXiv 2503.14476",
    )
    yield Point("; ".join(knobs.given(knob) for knob in bent), why, grave=False, remedy=remedy)
