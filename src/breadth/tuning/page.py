"""The report of a tuned sweep: verdicts, curves against cost and budget, tables of every option, and the policy."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace

from breadth.base.settings import dumps
from breadth.inference.stopping.risk import Risk
from breadth.inference.stopping.shapes import ShapeLibrary
from breadth.inference.strategies.adaptive_vote import AdaptiveVote
from breadth.measure.intervals import Interval, curve_intervals, mean_interval
from breadth.report.cells import Cell, Missing
from breadth.report.plaintext import pluralize
from breadth.report.sections import Axis, Column, Curve, Event, Fact, Listing, Page, Section, Series, Table, Text
from breadth.runs.schema import Header
from breadth.tuning.choice import Option, vote_scores
from breadth.tuning.evidence import ArmEvidence, ArmTraits
from breadth.tuning.result import TuningResult
from breadth.tuning.verdicts import points, write_verdicts

SELF_CONSISTENT = (
    "The file has no right answers, so the score is agreement with the answer most samples of all arms give (every arm"
    " counts the same). It measures how cheaply the model's own majority can be had, not how often that is right: a"
    " model that is wrong with confidence agrees with itself."
)


def build_tuning_page(tuned: TuningResult, header: Header, policy_file: str = "policy.toml") -> Page:
    """Build the report of a sweep, the most important first."""
    sections: list[Section] = [
        *write_verdicts(tuned),
        *caveats(tuned),
        cost_chart(tuned),
        build_options_table(tuned),
        *budget_charts(tuned),
        *build_grid_table(tuned),
        build_traits_table(tuned),
        *build_equal_tokens_table(tuned),
        *build_stop_table(tuned),
        *confidence_section(tuned),
        policy_listing(tuned, policy_file),
    ]
    evidence = tuned.evidence
    model = evidence.plan.policy.model or "the server's model"
    questions = pluralize(len(evidence.questions), "question")
    labels = "with right answers" if evidence.labelled else "without right answers"
    subtitle = f"{model} on {questions} {labels}, {evidence.plan.samples_each} samples each"
    return Page(f"Tuning: {header.name}", sections, subtitle=subtitle, provenance=_provenance(tuned, header))


def caveats(tuned: TuningResult) -> list[Section]:
    """List what limits the results: no right answers, notes of the plan, questions left out."""
    evidence = tuned.evidence
    texts = [] if evidence.labelled else [SELF_CONSISTENT]
    texts += evidence.plan.notes
    if evidence.left_out:
        number = pluralize(evidence.left_out, "question")
        texts.append(
            f"Left out for lack of samples: {number} of the plan, so that all options are compared on the same ones."
        )
    return [Text("\n\n".join(texts), "What to keep in mind")] if texts else []


def cost_chart(tuned: TuningResult) -> Curve:
    """Draw the score of every option against its tokens."""
    votes = [option for option in tuned.options if option.budget is None]
    forced = [option for option in tuned.options if option.budget is not None]
    lines = [_line("plain samples, voted on", votes)] + ([_line("thinking forced", forced)] if forced else [])
    chosen = tuned.choice.option
    events = [Event(chosen.cost, f"chosen: {chosen.name}")] if chosen.cost > 0 else []
    note = "Each point is one option, on the same questions; intervals from resampling questions."
    scored = tuned.evidence.score_name
    return Curve(
        f"{scored.capitalize()} against cost",
        lines,
        Axis("tokens per question"),
        Axis(scored, "%"),
        log_x=True,
        events=events,
        note=note,
    )


def _line(name: str, options: Sequence[Option]) -> Series:
    known = sorted((option for option in options if option.cost > 0), key=lambda option: option.cost)
    points = [score_interval(option) for option in known]
    return Series(
        name,
        [option.cost for option in known],
        [p.value for p in points],
        [p.low for p in points],
        [p.high for p in points],
    )


def budget_charts(tuned: TuningResult) -> list[Section]:
    """Draw score and answer entropy against forced thinking; nothing with fewer than two budgets."""
    forced = [traits for traits in tuned.traits if traits.budget is not None]
    if len(forced) < 2:
        return []
    x = Axis("thinking tokens forced")
    plain = tuned.traits[0].tokens
    mark = [Event(plain, "what the model writes by itself")] if plain > 0 else []
    scored = tuned.evidence.score_name
    curves: list[Section] = [
        Curve(
            f"{scored.capitalize()} against thinking",
            [_budget_series(forced, [arm.score for arm in forced])],
            x,
            Axis(scored, "%"),
            log_x=True,
            events=mark,
        )
    ]
    known = [(arm, arm.entropy) for arm in forced if arm.entropy is not None]
    if len(known) > 1:
        line = _budget_series([arm for arm, _ in known], [entropy for _, entropy in known])
        curves.append(
            Curve(
                "Spread of answers against thinking", [line], x, Axis("answer entropy", "nats"), log_x=True, events=mark
            )
        )
    return curves


def _budget_series(arms: Sequence[ArmTraits], points: Sequence[Interval]) -> Series:
    return Series(
        "one sample",
        [arm.budget or 0 for arm in arms],
        [p.value for p in points],
        [p.low for p in points],
        [p.high for p in points],
    )


def confidence_section(tuned: TuningResult) -> list[Section]:
    """Say whether confidence may be used; nothing where no log-probs were requested."""
    fit = tuned.confidence
    if fit is None:
        return []
    text = fit.gate.reason[0].upper() + fit.gate.reason[1:] + "."
    if fit.change is not None:
        gap = fit.change.difference
        used = "is used" if fit.strategy is not None else "is not used: that may be chance"
        text += f" The vote by confidence changes {tuned.evidence.score_name} by {points(gap)} and {used}."
    return [Text(text, "Confidence")]


def policy_listing(tuned: TuningResult, file: str = "policy.toml") -> Listing:
    """Return the policy without the library of a stop rule, which is long; ``file`` is where it was written."""
    policy, strategy = tuned.policy, tuned.policy.strategy
    note = f'Run it with: breadth solve "QUESTION" --url URL --policy {shlex.quote(file)}'
    if isinstance(strategy, AdaptiveVote) and isinstance(strategy.stop, Risk):
        note = f"Without the library of {strategy.stop.library.questions} questions, which the file has. {note}"
        policy = replace(policy, strategy=replace(strategy, stop=replace(strategy.stop, library=ShapeLibrary())))
    return Listing("The policy", dumps(policy).strip(), note=note)


def _provenance(tuned: TuningResult, header: Header) -> list[Fact]:
    sampling = tuned.evidence.plan.policy.sampling
    return [
        Fact("run", header.name),
        Fact("made", header.created),
        Fact(
            "sampling",
            f"temperature {sampling.temperature:g}, top_p {sampling.top_p:g}, at most {sampling.max_tokens:,} tokens",
        ),
        Fact("seed", tuned.evidence.plan.seed),
    ]


def build_options_table(tuned: TuningResult) -> Table:
    """Return every option, cheapest first."""
    priced = any(option.money > 0 for option in tuned.options)
    columns = [
        Column("option"),
        Column("samples"),
        Column(tuned.evidence.score_name, "%"),
        Column("tokens per question"),
        Column("seconds"),
        *([Column("money per question")] if priced else []),
    ]
    rows: list[list[Cell]] = [
        [
            mark_option(tuned, option),
            option.width,
            score_interval(option),
            option.cost,
            option.seconds,
            *([option.money] if priced else []),
        ]
        for option in tuned.options
    ]
    note = (
        "Cheapest first. Votes are scored exactly over all subsets of that many samples, ties shared. Seconds"
        " are those of the sweep, with its load on the server; the samples of a vote run in parallel."
    )
    return Table("Options", columns, rows, note=note)


def mark_option(tuned: TuningResult, option: Option) -> str:
    """Return the option's name with its marks: a column of its own would be out of sight on a phone."""
    marks = ((tuned.choice.option, "chosen"), (tuned.choice.best, "highest"))
    words = [word for marked, word in marks if marked is option]
    return f"{option.name} ({', '.join(words)})" if words else option.name


def build_grid_table(tuned: TuningResult) -> list[Section]:
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
        f"{evidence.score_name.capitalize()}, exactly over all subsets of that many samples. Votes over forced traces"
        " are here for comparison and are no options: a policy votes on plain samples or forces one trace."
    )
    return [Table("Thinking and width together", columns, [grid_row(arm, widths) for arm in arms], note=note)]


def grid_row(arm: ArmEvidence, widths: list[int]) -> list[Cell]:
    """Return one arm's row: the score of votes of each width over its samples."""
    samples = arm.classes.shape[1]
    drawn = [width for width in widths if width <= samples]
    scores = curve_intervals(vote_scores(arm, drawn), bounds=(0.0, 1.0))
    missing = [Missing(f"{samples} samples of each question at each budget; see --samples")] * (
        len(widths) - len(drawn)
    )
    return [arm.arm.name, float(arm.tokens.mean()), *scores, *missing]


def build_traits_table(tuned: TuningResult) -> Table:
    """Return the description of each arm's samples."""
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
    return Table("What the samples look like", columns, [traits_row(arm) for arm in tuned.traits], note=note)


def traits_row(arm: ArmTraits) -> list[Cell]:
    """Return one arm's row of the table of samples."""
    entropy: Cell = (
        arm.entropy if arm.entropy is not None else Missing("one sample per arm, or no answer that could be read")
    )
    return [arm.name, entropy, arm.changing, arm.lost, arm.found, arm.unread, arm.truncated]


def build_equal_tokens_table(tuned: TuningResult) -> list[Section]:
    """Return longer thinking against more samples; nothing where thinking was not forced."""
    if not tuned.equal:
        return []
    columns = [
        Column("thinking forced"),
        Column("trace tokens"),
        Column(f"trace {tuned.evidence.score_name}", "%"),
        Column("vote of"),
        Column("vote tokens"),
        Column(f"vote {tuned.evidence.score_name}", "%"),
        Column("vote minus trace", "%"),
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
        "The vote is the widest over plain samples that costs no more than the trace. Paired by question; p by sign"
        " flips, not corrected for the number of rows."
    )
    return [Table("Longer thinking against more samples, at equal tokens", columns, rows, note=note)]


def build_stop_table(tuned: TuningResult) -> list[Section]:
    """Return the stop rules tried; nothing where the choice is no vote that could stop."""
    if tuned.stop is None:
        return []
    drawn = tuned.evidence.plain.classes.shape[1]
    columns = [
        Column("stop rule"),
        Column(tuned.evidence.score_name, "%"),
        Column("change", "%"),
        Column("samples"),
        Column("tokens"),
        Column(f"as all {drawn} samples", "%"),
    ]
    rows: list[list[Cell]] = [
        [
            f"{option.name} (chosen)" if option is tuned.stop.chosen else option.name,
            option.score,
            option.change.display_value,
            option.draws.value,
            option.tokens,
            option.agreement,
        ]
        for option in tuned.stop.tried
    ]
    note = (
        "Replayed over the samples of the sweep in the same random orders; samples in flight when a vote is decided are"
        f" charged whole. Change = against the vote that never stops early. As all {drawn} samples = how often the"
        " answer is that of a vote over all."
    )
    return [Table(f"When the {tuned.choice.option.name} may stop", columns, rows, note=note)]


def score_interval(option: Option) -> Interval:
    """Return an option's mean score with its interval over questions."""
    return mean_interval(option.scores, bounds=(0.0, 1.0))
