"""A demo as a page: what it means, the two by two table, and the pictures behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from breadth.doctor.trainer_config import TrainerConfig
from breadth.lab.demo.conclusions import law, meaning, narrowing, overthinking, protection
from breadth.lab.demo.plan import ANCHOR, ARMS, ArmName, Plan
from breadth.lab.demo.results import DemoResults
from breadth.lab.evaluation.corners import Corners
from breadth.lab.evaluation.evaluate import Measured
from breadth.measure.intervals import Interval
from breadth.report.cells import Cell, interval, number
from breadth.report.plaintext import counted
from breadth.report.sections import Axis, Column, Curve, Event, Fact, Page, Section, Series, Table, Token, Trace

TITLE = "Breadth kept in training, spent at inference"


def demo_page(results: DemoResults, command: str, judged: Sequence[Section] = ()) -> Page:
    """Return the whole report: every judgement beside what it rests on, and what others judged, such as the doctor."""
    sections: list[Section] = [
        meaning(results.corners),
        two_by_two(results.corners),
        effects(results.corners),
        spending(results.corners),
        narrowing(results),
        protection(results),
        coverage_table(results),
        coverage_curve(results),
        *training_curves(results),
        role_curve(results),
        *law(results),
        breadth_table(results),
        overthinking(results),
        *budget_curves(results),
        *judged,
        *traces(results),
    ]
    return Page(TITLE, sections, _subtitle(results), _provenance(results, command))


def short_page(results: DemoResults, judged: Sequence[Section] = ()) -> Page:
    """Return what fits a terminal: the tables and what they mean, narrow enough for eighty columns."""
    tables = [
        _narrow(table) for table in (two_by_two(results.corners), effects(results.corners), coverage_table(results))
    ]
    ours = [narrowing(results), protection(results), overthinking(results)]
    return Page(TITLE, [*tables, *ours, *judged, meaning(results.corners)], _subtitle(results))


def two_by_two(table: Corners) -> Table:
    """Return the four corners."""
    return Table(
        "The four corners: share of right answers at equal tokens",
        [Column("training"), Column("one long thought"), Column("vote")],
        [
            ["plain GRPO", table.plain_extended.accuracy, table.plain_parallel.accuracy],
            ["protected", table.protected_extended.accuracy, table.protected_parallel.accuracy],
        ],
        f"95% intervals over {table.problems} problems, {counted(table.repeats, 'answer')} to each in each corner. The"
        f" long thought is forced to exactly {table.thinking} tokens; the vote, over independent thoughts, may write no"
        " more than it did on the same problem.",
    )


def effects(table: Corners) -> Table:
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
        [[name, one.value, *([one.over_seeds] if over_seeds else []), one.p_value] for name, one in rows.items()],
        "Differences between corners, each problem compared with itself. The interaction is how much more the vote"
        " gains after protected training. By chance: how often tossing the sign of each problem's difference gives one"
        " as large.",
    )


def spending(table: Corners, remark: str = "") -> Table:
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
    rows: list[list[Cell]] = [[name, one.tokens, one.saved, one.unread] for name, one in corners.items()]
    notes = [
        (
            "Tokens are those written for an answer. The vote is adaptive: it stops when the leading answer is unlikely"
            " to be overtaken, and what it does not need it saves."
        ),
        remark,
    ]
    if table.repeats > 1:
        columns.insert(3, Column("entropy of answers", "nats"))
        for row, one in zip(rows, corners.values(), strict=True):
            row.insert(3, one.answer_entropy)
        notes.append("The entropy is that of the answers repeats give to one problem.")
    return Table("What each corner spends", columns, rows, " ".join(filter(None, notes)))


def coverage_table(results: DemoResults) -> Table:
    """Return what the base and both arms know."""
    plan, policies = results.plan, {"base": results.base, "plain GRPO": results.plain, "protected": results.protected}
    return Table(
        "What training does to the policy",
        [Column("policy"), Column("pass@1"), Column(f"maj@{plan.votes}"), Column(f"pass@{plan.samples}")],
        [
            [name, one.at(1).pass_rate, one.at(plan.votes).majority_rate, one.at(plan.samples).pass_rate]
            for name, one in policies.items()
        ],
        f"{plan.samples} replies to each of {plan.problems} problems that neither pretraining nor training has seen;"
        " 95% intervals over problems.",
    )


def breadth_table(results: DemoResults) -> Table:
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
        [[name, one.planning, one.execution, one.answer_entropy, one.tokens] for name, one in policies.items()],
        "On the held-out problems. Forks and mechanical: the mean entropy of tokens that choose (route, operand,"
        " operator, one more attempt) and of tokens that state a value. Answers: the entropy of the answers to one"
        " problem. Tokens are those of a reply.",
    )


def _narrow(table: Table) -> Table:
    """Return a table whose intervals have two decimals, whatever their width would deserve."""
    rows = [[interval(cell, decimals=2) if isinstance(cell, Interval) else cell for cell in row] for row in table.rows]
    return Table(
        table.title,
        [Column(one.name, one.unit, "left" if not place else "right") for place, one in enumerate(table.columns)],
        rows,
    )


def _subtitle(results: DemoResults) -> str:
    plan = results.plan
    return (
        f"A tiny reasoner, {plan.steps} steps of GRPO through TRL in each of two arms, {plan.problems} held-out"
        f" problems, seed {plan.seed}, {results.seconds / 60:.1f} minutes"
    )


def _provenance(results: DemoResults, command: str) -> list[Fact]:
    plan = results.plan
    trained = (
        f"{plan.prompts} problems x {plan.group} replies a step, learning rate {plan.rate:g}, {plan.trained} problems"
    )
    return [
        Fact("command", command),
        Fact("seed", plan.seed),
        Fact("training", trained),
        Fact("versions", ", ".join(f"{name} {version}" for name, version in results.versions.items())),
        Fact("base weights", f"sha256 {results.base_digest[:16]}"),
        Fact("time", f"{number(results.seconds)} seconds"),
    ]


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


def knobs_of(plan: Plan, arm: ArmName) -> TrainerConfig:
    """Return an arm's settings as the doctor knows them."""
    return TrainerConfig(
        group=plan.group,
        prompts=plan.prompts,
        updates=plan.updates,
        learning_rate=plan.rate,
        kl=0.0 if arm == "plain" else ANCHOR,
        entropy_bonus=0.0,
        temperature=1.0,
        top_p=1.0,
        max_completion_length=plan.longest,
        engine="hf",
    )


def doctored(folder: Path, plan: Plan) -> Table:
    """Diagnose both arms; the doctor is told the settings and nothing of what was found otherwise."""
    from breadth.doctor.diagnosis import diagnose_run
    from breadth.doctor.evidence.record import Evidence
    from breadth.lab.grpo import RUN
    from breadth.runs.reader import Run

    rows: list[list[Cell]] = []
    for arm in ARMS:
        found = diagnose_run(Evidence(arm, Run.open(folder / arm / RUN), knobs_of(plan, arm)))
        rows += [[arm, one.severity.value, one.name, one.headline] for one in found.findings]
        if not found.findings:
            rows.append([arm, "nothing", "-", f"Nothing found in {len(found.clear)} checks."])
    columns = [Column(name) for name in ("arm", "severity", "finding", "what it says")]
    note = f"With proof and prescriptions: breadth doctor {folder.name}/plain/{RUN} {folder.name}/protected/{RUN}"
    return Table("What the doctor says of both arms", columns, rows, note)
