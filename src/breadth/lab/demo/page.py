"""A demo as a page: what it means, the two by two table, and the pictures behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from breadth.doctor.trainer_config import TrainerConfig
from breadth.lab.demo.conclusions import (
    conclude_corners,
    conclude_entropy_law,
    conclude_forced_thinking,
    conclude_plain_training,
    conclude_protection,
)
from breadth.lab.demo.plan import ANCHOR, ARMS, ArmName, DemoPlan
from breadth.lab.demo.results import DemoResults
from breadth.lab.evaluation.corners import Corners
from breadth.lab.evaluation.evaluate import PolicyEval
from breadth.measure.intervals import Interval
from breadth.report.cells import Cell, format_interval, format_number
from breadth.report.plaintext import pluralize
from breadth.report.sections import Axis, Column, Curve, Event, Fact, Page, Section, Series, Table, Token, Trace

DEMO_TITLE = "Breadth kept in training, spent at inference"


def demo_page(results: DemoResults, command: str, diagnosis: Sequence[Section] = ()) -> Page:
    """Return the whole report: every judgement beside what it rests on, and what others judged, such as the doctor."""
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
    """Return what fits a terminal: the tables and what they mean, narrow enough for eighty columns."""
    tables = [
        narrow_table(table)
        for table in (corners_table(results.corners), effects_table(results.corners), coverage_table(results))
    ]
    ours = [conclude_plain_training(results), conclude_protection(results), conclude_forced_thinking(results)]
    return Page(DEMO_TITLE, [*tables, *ours, *diagnosis, conclude_corners(results.corners)], subtitle(results))


def corners_table(table: Corners) -> Table:
    """Return the four corners."""
    return Table(
        "The four corners: share of right answers at equal tokens",
        [Column("training"), Column("one long thought"), Column("vote")],
        [
            ["plain GRPO", table.plain_extended.accuracy, table.plain_parallel.accuracy],
            ["protected", table.protected_extended.accuracy, table.protected_parallel.accuracy],
        ],
        f"95% intervals over {table.problems} problems, {pluralize(table.repeats, 'answer')} to each in each corner. The"
        f" long thought is forced to exactly {table.thinking} tokens; the vote, over independent thoughts, may write no"
        " more than it did on the same problem.",
    )


def effects_table(table: Corners) -> Table:
    """Return what each remedy is worth, and whether they need each other."""
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
        [Column("remedy"), Column("more right answers"), *over_seeds, Column("by chance", decimals=4)],
        [
            [name, effect.value, *([effect.over_seeds] if over_seeds else []), effect.p_value]
            for name, effect in rows.items()
        ],
        "Differences between corners, each problem compared with itself. The interaction is how much more the vote"
        " gains after protected training. By chance: how often tossing the sign of each problem's difference gives one"
        " as large.",
    )


def corners_spending_table(table: Corners, remark: str = "") -> Table:
    """Return what the corners cost and, where problems were answered more than once, how their answers scatter."""
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
            "Tokens are those written for an answer. The vote is adaptive: it stops when the leading answer is unlikely"
            " to be overtaken, and what it does not need it saves."
        ),
        remark,
    ]
    if table.repeats > 1:
        columns.insert(3, Column("entropy of answers", "nats"))
        for row, corner in zip(rows, corners.values(), strict=True):
            row.insert(3, corner.answer_entropy)
        notes.append("The entropy is that of the answers repeats give to one problem.")
    return Table("What each corner spends", columns, rows, " ".join(filter(None, notes)))


def coverage_table(results: DemoResults) -> Table:
    """Return what the base and both arms know."""
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
    """Return how broad the base and both arms are."""
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
        " problem. Tokens are those of a reply.",
    )


def narrow_table(table: Table) -> Table:
    """Return a table whose intervals have two decimals, whatever their width would deserve."""
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
    plan = results.plan
    return (
        f"A tiny reasoner, {plan.steps} steps of GRPO through TRL in each of two arms, {plan.problems} held-out"
        f" problems, seed {plan.seed}, {results.seconds / 60:.1f} minutes"
    )


def provenance(results: DemoResults, command: str) -> list[Fact]:
    plan = results.plan
    trained = f"{plan.prompts} problems x {plan.group} replies a step, learning rate {plan.learning_rate:g}, {plan.train_problems} problems"
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
            Axis("entropy of a token", "nats"),
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
            note="Of the replies drawn for each step, to problems trained on.",
        ),
    ]


def role_curve(results: DemoResults) -> Curve:
    """Return the entropy of forks and of mechanical tokens apart."""
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
        Axis("entropy of a token", "nats"),
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
        [_coverage(name, policy) for name, policy in policies.items()],
        Axis("replies to a problem, k"),
        Axis("one of them is right", "%"),
        log_x=True,
        note="Where lines cross, training has bought its score with breadth.",
    )


def budget_curves(results: DemoResults) -> list[Curve]:
    """Return accuracy and answer entropy of the plain arm against forced thinking."""
    forced, table = results.forced, results.corners
    tokens = [point.tokens for point in forced]
    axis, mark = Axis("thinking tokens, forced"), [Event(table.thinking, "budget of the four corners")]
    return [
        Curve(
            "Accuracy against forced thinking, plain arm",
            [
                series_with_band("long thought", tokens, [point.accuracy_rate for point in forced]),
                series_with_band("vote", [table.thinking], [table.plain_parallel.accuracy]),
                series_with_band("vote, protected", [table.thinking], [table.protected_parallel.accuracy]),
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
            [series_with_band("long thought", tokens, [point.entropy_rate for point in forced])],
            axis,
            Axis("entropy of the answers to a problem", "nats"),
            log_x=True,
            events=mark,
        ),
    ]


def headline_curves(results: DemoResults) -> list[Curve]:
    """Return the two curves that tell the whole, with headings short enough to stand above them side by side."""
    accuracy, _ = budget_curves(results)
    return [
        replace(coverage_curve(results), title="Training: what k replies hold"),
        replace(accuracy, title="Inference: one long thought, or a vote", events=()),
    ]


def sample_traces(results: DemoResults) -> list[Trace]:
    """Return the first reply of each arm to the first problem, shaded by entropy."""
    return [sample_trace("the plain arm", results.plain), sample_trace("the protected arm", results.protected)]


def sample_trace(name: str, one: PolicyEval) -> Trace:
    tokens = [Token(f"{'' if place == 0 else ' '}{token.word}", token.entropy) for place, token in enumerate(one.reply)]
    return Trace(
        f"A reply of {name} to {one.question}",
        tokens,
        "entropy",
        "nats",
        "The first reply to the first problem, not a chosen one. Tokens with an equals sign state a value; nearly all"
        " others choose.",
    )


def _coverage(name: str, one: PolicyEval) -> Series:
    return series_with_band(name, [at.k for at in one.curve], [at.pass_rate for at in one.curve])


def series_with_band(name: str, x: list[int], y: list[Interval]) -> Series:
    return Series(
        name, x, [interval.value for interval in y], [interval.low for interval in y], [interval.high for interval in y]
    )


def demo_trainer_config(plan: DemoPlan, arm: ArmName) -> TrainerConfig:
    """Return an arm's settings as the doctor knows them."""
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
    """Diagnose both arms; the doctor is told the settings and nothing of what was found otherwise."""
    from breadth.doctor.diagnosis import diagnose_run
    from breadth.doctor.evidence.record import Evidence
    from breadth.lab.grpo import RUN_FOLDER
    from breadth.runs.reader import Run

    rows: list[list[Cell]] = []
    for arm in ARMS:
        found = diagnose_run(Evidence(arm, Run.open(folder / arm / RUN_FOLDER), demo_trainer_config(plan, arm)))
        rows += [[arm, finding.severity.value, finding.name, finding.headline] for finding in found.findings]
        if not found.findings:
            rows.append([arm, "nothing", "-", f"Nothing found in {len(found.clear)} checks."])
    columns = [Column(name) for name in ("arm", "severity", "finding", "what it says")]
    note = f"With proof and prescriptions: breadth doctor {folder.name}/plain/{RUN_FOLDER} {folder.name}/protected/{RUN_FOLDER}"
    return Table("What the doctor says of both arms", columns, rows, note)
