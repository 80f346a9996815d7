"""The report of a tuned sweep: verdicts, curves against cost and budget, every option, what the samples look like, and the policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from breadth.base.settings import dumps
from breadth.inference.stopping.risk import Risk
from breadth.inference.stopping.shape_library import ShapeLibrary
from breadth.inference.strategies.adaptive_vote import AdaptiveVote
from breadth.measure.intervals import Interval
from breadth.report.plaintext import counted
from breadth.report.sections import Axis, Curve, Event, Fact, Listing, Page, Section, Series, Text
from breadth.runs.schema import Header
from breadth.tuning.options import Option
from breadth.tuning.tables import equal_table, grid_table, options_table, score_of, stop_table, traits_table
from breadth.tuning.traits import Traits
from breadth.tuning.tuned import Tuned
from breadth.tuning.verdicts import points, verdicts

SELF_CONSISTENT = (
    "The file has no right answers, so the score is agreement with the answer most samples of all arms give (every arm"
    " counts the same). It says how cheaply the model's own majority can be had, not how often that is right: a model"
    " that is wrong with confidence agrees with itself."
)


def tuning_page(tuned: Tuned, header: Header) -> Page:
    """Return everything the sweep says, the most important first."""
    sections: list[Section] = [
        *verdicts(tuned),
        *_caveats(tuned),
        _cost_curve(tuned),
        options_table(tuned),
        *_budget_curves(tuned),
        *grid_table(tuned),
        traits_table(tuned),
        *equal_table(tuned),
        *stop_table(tuned),
        *_gate(tuned),
        _policy(tuned),
    ]
    return Page(f"Tuning: {header.name}", sections, subtitle=_subtitle(tuned), provenance=_provenance(tuned, header))


def _subtitle(tuned: Tuned) -> str:
    evidence = tuned.evidence
    model = evidence.plan.policy.model or "the server's model"
    labels = "with right answers" if evidence.labelled else "without right answers"
    return (
        f"{model} on {counted(len(evidence.questions), 'question')} {labels}, {evidence.plan.samples_each} samples each"
    )


def _caveats(tuned: Tuned) -> list[Section]:
    evidence = tuned.evidence
    texts = [] if evidence.labelled else [SELF_CONSISTENT]
    texts += evidence.plan.notes
    if evidence.left_out:
        number = counted(evidence.left_out, "question")
        texts.append(
            f"Left out for lack of samples: {number} of the plan, so that all options are compared on the same ones."
        )
    return [Text("\n\n".join(texts), "What to keep in mind")] if texts else []


def _cost_curve(tuned: Tuned) -> Curve:
    votes = [option for option in tuned.options if option.budget is None]
    forced = [option for option in tuned.options if option.budget is not None]
    lines = [_line("plain draws, voted on", votes)] + ([_line("thinking forced", forced)] if forced else [])
    chosen = tuned.choice.option
    events = [Event(chosen.cost, f"chosen: {chosen.name}")] if chosen.cost > 0 else []
    note = "Each point is one option, on the same questions; intervals from resampling questions."
    scored = tuned.evidence.scored
    return Curve(
        f"{scored.capitalize()} against cost",
        lines,
        Axis("tokens a question"),
        Axis(scored, "%"),
        log_x=True,
        events=events,
        note=note,
    )


def _line(name: str, options: Sequence[Option]) -> Series:
    known = sorted((option for option in options if option.cost > 0), key=lambda option: option.cost)
    points = [score_of(option) for option in known]
    return Series(
        name,
        [option.cost for option in known],
        [p.value for p in points],
        [p.low for p in points],
        [p.high for p in points],
    )


def _budget_curves(tuned: Tuned) -> list[Section]:
    forced = [traits for traits in tuned.traits if traits.budget is not None]
    if len(forced) < 2:
        return []
    x = Axis("thinking tokens forced")
    plain = tuned.traits[0].tokens
    mark = [Event(plain, "what the model writes by itself")] if plain > 0 else []
    scored = tuned.evidence.scored
    curves: list[Section] = [
        Curve(
            f"{scored.capitalize()} against thinking",
            [_traced("one sample", forced, [one.score for one in forced])],
            x,
            Axis(scored, "%"),
            log_x=True,
            events=mark,
        )
    ]
    known = [(one, one.entropy) for one in forced if one.entropy is not None]
    if len(known) > 1:
        line = _traced("one sample", [one for one, _ in known], [entropy for _, entropy in known])
        curves.append(
            Curve(
                "Spread of answers against thinking", [line], x, Axis("answer entropy", "nats"), log_x=True, events=mark
            )
        )
    return curves


def _traced(name: str, arms: Sequence[Traits], points: Sequence[Interval]) -> Series:
    return Series(
        name,
        [arm.budget or 0 for arm in arms],
        [p.value for p in points],
        [p.low for p in points],
        [p.high for p in points],
    )


def _gate(tuned: Tuned) -> list[Section]:
    fit = tuned.confidence
    if fit is None:
        return []
    said = fit.gate.reason[0].upper() + fit.gate.reason[1:] + "."
    if fit.change is not None:
        gap = fit.change.difference
        used = "is used" if fit.strategy is not None else "is not used: that may be chance"
        said += f" The vote by confidence changes {tuned.evidence.scored} by {points(gap)} and {used}."
    return [Text(said, "Confidence")]


def _policy(tuned: Tuned) -> Listing:
    """Return the policy as the file has it, without the library of a stop rule, which is long."""
    policy, strategy = tuned.policy, tuned.policy.strategy
    note = 'Run it with: breadth solve "QUESTION" --url URL --policy policy.toml'
    if isinstance(strategy, AdaptiveVote) and isinstance(strategy.stop, Risk):
        note = f"Without the library of {strategy.stop.library.questions} questions, which the file has. {note}"
        policy = replace(policy, strategy=replace(strategy, stop=replace(strategy.stop, library=ShapeLibrary())))
    return Listing("The policy", dumps(policy).strip(), note=note)


def _provenance(tuned: Tuned, header: Header) -> list[Fact]:
    sampling = tuned.evidence.plan.policy.sampling
    return [
        Fact("run folder", header.name),
        Fact("made", header.created),
        Fact(
            "sampling",
            f"temperature {sampling.temperature:g}, top_p {sampling.top_p:g}, at most {sampling.max_tokens:,} tokens",
        ),
        Fact("seed", tuned.evidence.plan.seed),
    ]
