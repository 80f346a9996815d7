"""Samples from elsewhere as a sweep: an arm for each budget that the file names, or plain samples for votes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

import orjson

from breadth.inference.policy import Policy
from breadth.inference.strategies.budget_forcing import BudgetForcing
from breadth.inference.strategies.single import Single
from breadth.inference.sweep_plan import PLAIN_ARM, Arm, SweepPlan, plain_arm
from breadth.runs.outcomes import correctness_sql
from breadth.runs.reader import Run
from breadth.tuning.evidence import SweepEvidence, build_evidence

MAX_QUESTIONS = 2000
"""Questions that are read: score differences are then known to about two points."""
Row = Mapping[str, Any]


def read_imported(run: Run) -> SweepEvidence:
    """Read imported samples: an arm for each budget, the samples without one as the plain arm.

    Where every sample has a budget, the largest budget is the plain arm too: it limits thinking least.
    """
    rows, cost_unit = read_rows(run)
    drawn: dict[int | None, dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        drawn[row["budget"]][row["problem"]].append(row)
    forced = sorted(budget for budget in drawn if budget is not None)
    budgets: list[int | None] = [None, *forced] if None in drawn else [*forced[-1:], *forced[:-1]]
    arms = [build_arm(budget, Counter(map(len, drawn[budget].values()))) for budget in budgets]
    samples = {
        name: {place: drawn[budget][name][: arms[place].draws] for place, budget in enumerate(budgets)}
        for name in dict.fromkeys(row["problem"] for row in rows)
    }
    draws = arms[0].draws
    widths = tuple(sorted({*(2**power for power in range(draws.bit_length())), draws}))
    plan = SweepPlan(Policy(), (plain_arm(widths),), widths, len(samples))
    return build_evidence(run, plan, arms, samples, cost_unit)


def read_rows(run: Run) -> tuple[list[Row], str]:
    """Read the samples as `breadth tune` records them, and what their costs count.

    Without tokens a sample costs its budget; where some have none, each costs one sample. One without a grade and
    without an answer is wrong where others have grades.
    """
    right = correctness_sql(run) or "NULL"
    table = run.query(
        f"""SELECT problem, answer, CAST({right} AS BOOLEAN) AS correct, tokens, truncated, completion, extra, budget
            FROM rollouts WHERE split = 'eval' AND problem IN
            (SELECT problem FROM rollouts WHERE split = 'eval' GROUP BY problem ORDER BY hash(problem), problem LIMIT ?)
            ORDER BY problem, sample""",  # noqa: S608 - the expression is ours
        MAX_QUESTIONS,
    )
    rows = table.to_pylist()
    is_graded = any(row["correct"] is not None for row in rows)
    has_tokens, has_budgets = (all(row[name] is not None for row in rows) for name in ("tokens", "budget"))
    for row in rows:
        if is_graded and row["correct"] is None and row["answer"] is None:
            row["correct"] = False
        if not has_tokens:
            row["tokens"] = row["budget"] if has_budgets else 1
        row["extra"] = orjson.dumps(
            {"seconds": 0, "input_tokens": 0, "cached_tokens": 0, "confidence": read_confidence(row["extra"])}
        )
    return rows, "tokens" if has_tokens or has_budgets else "samples"


def read_confidence(extra: str | None) -> float | None:
    """Return the confidence among the columns we have no name for; None where there is none."""
    if not extra or '"confidence"' not in extra:
        return None
    value = orjson.loads(extra).get("confidence")
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def build_arm(budget: int | None, sizes: Counter[int]) -> Arm:
    """Return an arm with the samples that most questions have; ``sizes`` counts questions by their samples."""
    draws = max(sizes, key=lambda size: (sizes[size], size))
    if budget is None:
        return Arm(PLAIN_ARM, Single(), draws)
    tokens = max(1, budget)  # a budget of zero tokens: no thinking
    return Arm(f"budget {budget:,}", BudgetForcing(cues=0, minimum=tokens, maximum=tokens), draws, tokens)
