"""The report of a demo: what it means, the two-by-two table, the curves behind it, and the doctor's diagnosis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from breadth.doctor.trainer_config import TrainerConfig
from breadth.lab.demo.plan import ANCHOR, ARMS, ArmName, DemoPlan
from breadth.lab.demo.results import (
    DemoResults,
    conclude_corners,
    conclude_entropy_law,
    conclude_forced_thinking,
    conclude_plain_training,
    conclude_protection,
)
from breadth.lab.evaluation.corners import Corners
from breadth.lab.evaluation.evaluate import PolicyEval
from breadth.measure.intervals import Interval
from breadth.report.cells import Cell, format_interval, format_number
from breadth.report.plaintext import pluralize
from breadth.report.sections import Axis, Column, Curve, Event, Fact, Page, Section, Series, Table, Token, Trace

DEMO_TITLE = "Breadth kept in training, spent at inference"


def demo_page(results: DemoResults, command: str, diagnosis: Sequence[Section] = ()) -> Page:
    """Return the whole report: each conclusion with the numbers it rests on, and the doctor's diagnosis."""
    sections: list[Section] = [
        conclude_corners(results.corners),
        corners_table(results.corners),
        effects_table(results.corners),
        corners_spending_table(results.corners),
        conclude_plain_training(results),
        conclude_protection(results),
        coverage_table(results),
        coverage_curve(results),
        *training_curves(results),
        role_curve(results),
        *conclude_entropy_law(results),
        policy_breadth_table(results),
        conclude_forced_thinking(results),
        *budget_curves(results),
        *diagnosis,
        *sample_traces(results),
    ]
    return Page(DEMO_TITLE, sections, subtitle(results), provenance(results, command))


def short_page(results: DemoResults, diagnosis: Sequence[Section] = ()) -> Page:
    """Return what fits a terminal of eighty columns: the tables and what they mean."""
    tables = [
        narrow_table(table)
        for table in (corners_table(results.corners), effects_table(results.corners), coverage_table(results))
    ]
    ours = [conclude_plain_training(results), conclude_protection(results), conclude_forced_thinking(results)]
    return Page(DEMO_TITLE, [*tables, *ours, *diagnosis, conclude_corners(results.corners)], subtitle(results))


def corners_table(table: Corners) -> Table:
    """Return the accuracy of the four corners."""
    return Table(
        "The four corners: accuracy at equal tokens",
        [Column("training"), Column("one long thought"), Column("vote")],
        [
            ["plain GRPO", table.plain_extended.accuracy, table.plain_parallel.accuracy],
            ["protected", table.protected_extended.accuracy, table.protected_parallel.accuracy],
        ],
        f"95% intervals over {table.problems} problems, {pluralize(table.repeats, 'answer')} to each in each corner."
        f" The long thought is forced to exactly {table.thinking} tokens; the vote over independent replies may use no"
        " more tokens on the same problem.",
    )


def effects_table(table: Corners) -> Table:
    """Return what each remedy is worth, and whether they interact."""
    rows = {
        "vote instead of a long thought, plain": table.vote_when_plain,
        "vote instead of a long thought, protected": table.vote_when_protected,
        "protected instead of plain, by vote": table.protection_when_parallel,
        "protected instead of plain, by long thought": table.protection_when_extended,
        "interaction": table.interaction,
    }
    over_seeds = [Column("over seeds")] if table.seeds > 1 else []
    return Table(
        "What each remedy is worth",
        [Column("remedy"), Column("gain in accuracy"), *over_seeds, Column("p-value", decimals=4)],
        [
            [name, effect.value, *([effect.over_seeds] if over_seeds else []), effect.p_value]
            for name, effect in rows.items()
        ],
        "Differences between corners, paired by problem. The interaction is how much more the vote gains after"
        " protected training. p-value: how often flipping the signs of the problems' differences at random gives one"
        " as large.",
    )


def corners_spending_table(table: Corners, remark: str = "") -> Table:
    """Return what the corners cost and, if problems were answered repeatedly, how much the answers vary."""
    corners = {
        "plain, long thought": table.plain_extended,
        "plain, vote": table.plain_parallel,
        "protected, long thought": table.protected_extended,
        "protected, vote": table.protected_parallel,
    }
    columns = [
        Column("corner"),
        Column("tokens", decimals=0),
        Column("saved", "%", decimals=0),
        Column("no answer", "%", decimals=0),
    ]
    rows: list[list[Cell]] = [
        [name, corner.tokens, corner.saved, corner.unreadable] for name, corner in corners.items()
    ]
    notes = [
        (
            "Tokens are per answer. The vote is adaptive: it stops when the leading answer is unlikely to be overtaken,"
            " and saves the rest."
        ),
        remark,
    ]
    if table.repeats > 1:
        columns.insert(3, Column("entropy of answers", "nats"))
        for row, corner in zip(rows, corners.values(), strict=True):
            row.insert(3, corner.answer_entropy)
        notes.append("The entropy is over the answers that repeats give to one problem.")
    return Table("What each corner spends", columns, rows, " ".join(filter(None, notes)))


def coverage_table(results: DemoResults) -> Table:
    """Return pass@1, majority vote and pass@k of the base and both arms."""
    plan, policies = results.plan, {"base": results.base, "plain GRPO": results.plain, "protected": results.protected}
    return Table(
        "What training does to the policy",
        [Column("policy"), Column("pass@1"), Column(f"maj@{plan.votes}"), Column(f"pass@{plan.samples}")],
        [
            [
                name,
                policy.scores_at(1).pass_rate,
                policy.scores_at(plan.votes).majority_rate,
                policy.scores_at(plan.samples).pass_rate,
            ]
            for name, policy in policies.items()
        ],
        f"{plan.samples} replies to each of {plan.problems} problems that neither pretraining nor training has seen;"
        " 95% intervals over problems.",
    )


def policy_breadth_table(results: DemoResults) -> Table:
    """Return the entropies and reply lengths of the base and both arms."""
    policies = {"base": results.base, "plain GRPO": results.plain, "protected": results.protected}
    return Table(
        "How broad the policy is",
        [
            Column("policy"),
            Column("forks", "nats"),
            Column("mechanical", "nats"),
            Column("answers", "nats"),
            Column("tokens"),
        ],
        [
            [name, policy.planning, policy.execution, policy.answer_entropy, policy.tokens]
            for name, policy in policies.items()
        ],
        "On the held-out problems. Forks and mechanical: the mean entropy of tokens that choose (route, operand,"
        " operator, one more attempt) and of tokens that state a value. Answers: the entropy of the answers to one"
        " problem. Tokens are per reply.",
    )


def narrow_table(table: Table) -> Table:
    """Return a table with two decimals in every interval, narrow enough for a terminal."""
    rows = [
        [format_interval(cell, decimals=2) if isinstance(cell, Interval) else cell for cell in row]
        for row in table.rows
    ]
    return Table(
        table.title,
        [
            Column(column.name, column.unit, "left" if not place else "right")
            for place, column in enumerate(table.columns)
        ],
        rows,
    )


def subtitle(results: DemoResults) -> str:
    """Return the size of the demo in one line."""
    plan = results.plan
    return (
        f"A tiny reasoner, {plan.steps} steps of GRPO through TRL in each of two arms, {plan.problems} held-out"
        f" problems, seed {plan.seed}, {results.seconds / 60:.1f} minutes"
    )


def provenance(results: DemoResults, command: str) -> list[Fact]:
    """Return how the results were made."""
    plan = results.plan
    trained = (
        f"{plan.prompts} problems x {plan.group} replies per step, learning rate {plan.learning_rate:g},"
        f" {plan.train_problems} problems"
    )
    return [
        Fact("command", command),
        Fact("seed", plan.seed),
        Fact("training", trained),
        Fact("versions", ", ".join(f"{name} {version}" for name, version in results.versions.items())),
        Fact("base weights", f"sha256 {results.base_digest[:16]}"),
        Fact("time", f"{format_number(results.seconds)} seconds"),
    ]


STEP_AXIS = Axis("optimizer step")
PLAIN_LABEL, PROTECTED_LABEL = "plain GRPO", "protected"


def training_curves(results: DemoResults) -> list[Curve]:
    """Return entropy and score of both arms against the step."""
    plain, protected = results.plain_training, results.protected_training
    return [
        Curve(
            "Entropy in training",
            [
                Series(PLAIN_LABEL, plain.steps, plain.entropy),
                Series(PROTECTED_LABEL, protected.steps, protected.entropy),
            ],
            STEP_AXIS,
            Axis("entropy per token", "nats"),
            note="Mean over all tokens trained on.",
        ),
        Curve(
            "Score in training",
            [
                Series(PLAIN_LABEL, plain.steps, plain.reward),
                Series(PROTECTED_LABEL, protected.steps, protected.reward),
            ],
            STEP_AXIS,
            Axis("right replies", "%"),
            note="Replies sampled at each step, to training problems.",
        ),
    ]


def role_curve(results: DemoResults) -> Curve:
    """Return the entropy of forks and of mechanical tokens separately."""
    arms = {PLAIN_LABEL: results.plain_training, PROTECTED_LABEL: results.protected_training}
    return Curve(
        "Forks and mechanical tokens",
        [
            line
            for name, log in arms.items()
            for line in (
                Series(f"forks, {name}", log.steps, log.planning),
                Series(f"mechanical, {name}", log.steps, log.execution),
            )
        ],
        STEP_AXIS,
        Axis("entropy per token", "nats"),
        note=(
            "A grammar tells which tokens choose (forks) and which state a value (mechanical). Which of the two loses"
            " entropy is the question: breadth over routes is worth keeping, doubt about a sum is not."
        ),
    )


def coverage_curve(results: DemoResults) -> Curve:
    """Return pass@k of the base and both arms."""
    policies = {
        PLAIN_LABEL: results.plain,
        PROTECTED_LABEL: results.protected,
        "base": results.base,
    }  # the arms look as in the other curves
    return Curve(
        "pass@k on held-out problems",
        [
            series_with_band(name, [at.k for at in policy.curve], [at.pass_rate for at in policy.curve])
            for name, policy in policies.items()
        ],
        Axis("replies per problem, k"),
        Axis("one of them is right", "%"),
        log_x=True,
        note="Where lines cross, training has traded breadth for score.",
    )


def budget_curves(results: DemoResults) -> list[Curve]:
    """Return accuracy and answer entropy of the plain arm against forced thinking."""
    forced, table = results.forced, results.corners
    tokens = [point.tokens for point in forced]
    axis, mark = Axis("forced thinking tokens"), [Event(table.thinking, "budget of the four corners")]
    return [
        Curve(
            "Accuracy against forced thinking, plain arm",
            [
                series_with_band("long thought", tokens, [point.accuracy_rate for point in forced]),
                series_with_band("vote", [table.thinking], [table.plain_parallel.accuracy]),
                series_with_band("vote, protected", [table.thinking], [table.protected_parallel.accuracy]),
            ],
            axis,
            Axis("accuracy", "%"),
            log_x=True,
            events=mark,
            note=(
                f"An unforced reply takes {results.plain.tokens.value:.0f} tokens. If thinking ends before the budget,"
                " the model is made to try again; at the budget it is cut off. The votes of both arms use no more"
                " tokens than the long thought of the same budget."
            ),
        ),
        Curve(
            "Entropy of answers against forced thinking, plain arm",
            [series_with_band("long thought", tokens, [point.entropy_rate for point in forced])],
            axis,
            Axis("entropy of answers per problem", "nats"),
            log_x=True,
            events=mark,
        ),
    ]


def headline_curves(results: DemoResults) -> list[Curve]:
    """Return the two curves that sum the demo up, with titles short enough to fit side by side."""
    accuracy, _ = budget_curves(results)
    return [
        replace(coverage_curve(results), title="Training: pass@k"),
        replace(accuracy, title="Inference: one long thought, or a vote", events=()),
    ]


def sample_traces(results: DemoResults) -> list[Trace]:
    """Return the first reply of each arm to the first problem, shaded by entropy."""
    return [sample_trace("the plain arm", results.plain), sample_trace("the protected arm", results.protected)]


def sample_trace(name: str, policy: PolicyEval) -> Trace:
    """Return the sample reply of a policy, token by token."""
    tokens = [
        Token(f"{'' if place == 0 else ' '}{token.word}", token.entropy) for place, token in enumerate(policy.reply)
    ]
    return Trace(
        f"A reply of {name} to {policy.question}",
        tokens,
        "entropy",
        "nats",
        "The first reply to the first problem, not a selected one. Tokens with an equals sign state a value; nearly all"
        " others choose.",
    )


def series_with_band(name: str, x: list[int], y: list[Interval]) -> Series:
    """Return a line with the band of its intervals."""
    return Series(
        name, x, [interval.value for interval in y], [interval.low for interval in y], [interval.high for interval in y]
    )


def demo_trainer_config(plan: DemoPlan, arm: ArmName) -> TrainerConfig:
    """Return an arm's settings in the terms of the doctor."""
    return TrainerConfig(
        group=plan.group,
        prompts=plan.prompts,
        updates=plan.updates,
        learning_rate=plan.learning_rate,
        kl=0.0 if arm == "plain" else ANCHOR,
        entropy_bonus=0.0,
        temperature=1.0,
        top_p=1.0,
        max_completion_length=plan.max_completion_length,
        engine="hf",
    )


def diagnosis_table(folder: Path, plan: DemoPlan) -> Table:
    """Diagnose both arms from their run folders and settings alone; the doctor sees nothing else of the demo."""
    from breadth.doctor.diagnosis import diagnose_run
    from breadth.doctor.evidence.record import Evidence
    from breadth.lab.grpo import RUN_FOLDER
    from breadth.runs.reader import Run

    rows: list[list[Cell]] = []
    for arm in ARMS:
        found = diagnose_run(Evidence(arm, Run.open(folder / arm / RUN_FOLDER), demo_trainer_config(plan, arm)))
        rows += [[arm, finding.severity.value, finding.name, finding.headline] for finding in found.findings]
        if not found.findings:
            checks = len(found.clear)
            doubt = "" if found.is_good else " The numbers do not show that all is well."
            rows.append([arm, "nothing", "-", f"Nothing found in {checks} checks.{doubt}"])
    columns = [Column(name) for name in ("arm", "severity", "finding", "headline")]
    runs = " ".join(f"{folder.name}/{arm}/{RUN_FOLDER}" for arm in ARMS)
    note = f"With proof and prescriptions: breadth doctor {runs}"
    return Table("What the doctor finds in both arms", columns, rows, note)
