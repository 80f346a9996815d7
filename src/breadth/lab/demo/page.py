"""A demo as a page: what it means, the two by two table, and the pictures behind it."""

from __future__ import annotations

from collections.abc import Sequence

from breadth.lab.demo.figures import budget_curves, coverage_curve, role_curve, traces, training_curves
from breadth.lab.demo.law import law
from breadth.lab.demo.results import DemoResults
from breadth.lab.demo.words import meaning, narrowing, overthinking, protection
from breadth.lab.measuring.corners import Corners
from breadth.measure.intervals import Interval
from breadth.report.cells import Cell, interval, number
from breadth.report.plaintext import counted
from breadth.report.sections import Column, Fact, Page, Section, Table

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
