"""The tables of a tuned sweep: every option, budgets by widths, what the samples look like, equal tokens, when a vote may stop."""

from __future__ import annotations

from breadth.measure.intervals import Interval, curve_intervals, mean_interval
from breadth.report.cells import Cell, Missing
from breadth.report.sections import Column, Section, Table
from breadth.tuning.evidence import ArmEvidence
from breadth.tuning.options import Option, votes_of
from breadth.tuning.stopping import StopOption
from breadth.tuning.traits import Traits
from breadth.tuning.tuned import Tuned


def options_table(tuned: Tuned) -> Table:
    """Return every option, cheapest first."""
    priced = any(option.money > 0 for option in tuned.options)
    columns = [
        Column("option"),
        Column("draws"),
        Column(tuned.evidence.scored, "%"),
        Column("tokens a question"),
        Column("seconds"),
        *([Column("money a question")] if priced else []),
    ]
    rows: list[list[Cell]] = [
        [
            _marked(tuned, option),
            option.width,
            score_of(option),
            option.cost,
            option.seconds,
            *([option.money] if priced else []),
        ]
        for option in tuned.options
    ]
    note = (
        "Cheapest first. Votes are scored exactly over all ways to draw so many of the samples, ties shared. Seconds"
        " are those of the sweep, with its load on the server; votes are drawn side by side."
    )
    return Table("Options", columns, rows, note=note)


def _marked(tuned: Tuned, option: Option) -> str:
    """Return the name with what is to be said of it: a column of its own would be out of sight on a phone."""
    words = [word for one, word in ((tuned.choice.option, "chosen"), (tuned.choice.best, "highest")) if one is option]
    return f"{option.name} ({', '.join(words)})" if words else option.name


def grid_table(tuned: Tuned) -> list[Section]:
    """Return the score of votes of every width over the samples of every arm; nothing where thinking was not forced."""
    evidence = tuned.evidence
    arms = (evidence.plain, *evidence.serial)
    widths = sorted({1, *(width for width in evidence.plan.widths if width <= evidence.plain.classes.shape[1])})
    if not evidence.serial or len(widths) < 2:
        return []
    columns = [
        Column("samples"),
        Column("tokens of one"),
        *(Column(f"vote of {width}" if width > 1 else "one", "%") for width in widths),
    ]
    note = (
        f"{evidence.scored.capitalize()}, exactly over all ways to draw so many. Votes over forced traces are here for"
        " comparison and are no options: a policy votes on plain draws or forces one trace."
    )
    return [Table("Thinking and width together", columns, [_grid_row(arm, widths) for arm in arms], note=note)]


def _grid_row(arm: ArmEvidence, widths: list[int]) -> list[Cell]:
    samples = arm.classes.shape[1]
    drawn = [width for width in widths if width <= samples]
    scores = curve_intervals(votes_of(arm, drawn), bounds=(0.0, 1.0))
    missing = [Missing(f"{samples} samples of each question at each budget; see --samples")] * (
        len(widths) - len(drawn)
    )
    return [arm.arm.name, float(arm.tokens.mean()), *scores, *missing]


def traits_table(tuned: Tuned) -> Table:
    """Return what the samples of each arm look like."""
    columns = [
        Column("samples"),
        Column("answer entropy", "nats"),
        Column("change their answer", "%"),
        Column("right lost"),
        Column("right found"),
        Column("unread", "%"),
        Column("cut at the cap", "%"),
    ]
    note = (
        f"Entropy of the answers to a question over {tuned.traits[0].samples} samples of every arm (Miller-Madow)."
        " Change their answer = state one answer, then another, in one trace; lost and found are such changes away"
        " from and to the right answer. Unread = no answer found."
    )
    return Table("What the samples look like", columns, [_traits_row(one) for one in tuned.traits], note=note)


def _traits_row(one: Traits) -> list[Cell]:
    entropy: Cell = (
        one.entropy if one.entropy is not None else Missing("one sample an arm, or no answer that could be read")
    )
    return [one.name, entropy, one.changing, one.lost, one.found, one.unread, one.truncated]


def equal_table(tuned: Tuned) -> list[Section]:
    """Return longer thinking beside more draws; nothing where thinking was not forced."""
    if not tuned.equal:
        return []
    columns = [
        Column("thinking forced"),
        Column("trace tokens"),
        Column(f"trace {tuned.evidence.scored}", "%"),
        Column("vote of"),
        Column("vote tokens"),
        Column(f"vote {tuned.evidence.scored}", "%"),
        Column("vote less trace", "%"),
        Column("p"),
    ]
    rows: list[list[Cell]] = [
        [
            pair.budget,
            pair.serial_tokens,
            pair.serial,
            pair.width,
            pair.parallel_tokens,
            pair.parallel,
            pair.difference.difference,
            pair.difference.p_value,
        ]
        for pair in tuned.equal
    ]
    note = (
        "The vote is the widest over plain draws that costs no more than the trace. Paired by question; p by sign"
        " flips, not corrected for the number of rows."
    )
    return [Table("Longer thinking against more draws, at equal tokens", columns, rows, note=note)]


def stop_table(tuned: Tuned) -> list[Section]:
    """Return the stop rules tried; nothing where the choice is no vote that could stop."""
    if tuned.stop is None:
        return []
    drawn = tuned.evidence.plain.classes.shape[1]
    columns = [
        Column("stop rule"),
        Column(tuned.evidence.scored, "%"),
        Column("change", "%"),
        Column("draws"),
        Column("tokens"),
        Column(f"as all {drawn} draws", "%"),
    ]
    rows: list[list[Cell]] = [
        [_taken(one, tuned.stop.chosen), one.score, one.change.shown, one.draws.value, one.tokens, one.agreement]
        for one in tuned.stop.tried
    ]
    note = (
        "Replayed over the draws of the sweep in the same random orders; draws in flight when a vote is decided are"
        f" charged whole. Change = against the vote that never stops early. As all {drawn} draws = how often the answer"
        " is that of a vote over all."
    )
    return [Table(f"When the {tuned.choice.option.name} may stop", columns, rows, note=note)]


def _taken(one: StopOption, chosen: StopOption) -> str:
    return f"{one.name} (chosen)" if one is chosen else one.name


def score_of(option: Option) -> Interval:
    """Return an option's mean score with its interval over questions."""
    return mean_interval(option.scores, bounds=(0.0, 1.0))
