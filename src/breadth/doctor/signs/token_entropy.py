"""The entropy of every token in the rollouts, step by step, beside the number that was logged."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from breadth.doctor.evidence import FEWEST, Evidence
from breadth.measure.trends import Trend, factor_trend
from breadth.runs.outcomes import rollout_steps

Floats = npt.NDArray[np.float64]
MOST_STEPS = 64
"""Steps that are read, spread over the run: enough for a trend, and little enough that a million rollouts take seconds.
"""
MOST_TOKENS = 50_000_000
"""Tokens that are read in all (200 MB); steps are left out, never rollouts of a step, whose mean was logged over all of
them.
"""
_COUNTED = """CASE WHEN mask IS NULL OR len(mask) <> len(entropy) THEN list_sum(entropy)
              ELSE list_inner_product(entropy, mask::FLOAT[]) END"""
_TOKENS = "CASE WHEN mask IS NULL OR len(mask) <> len(entropy) THEN len(entropy) ELSE list_sum(mask::FLOAT[]) END"


@dataclass(frozen=True, eq=False)
class TokenEntropy:
    """Entropies of tokens in rollouts, averaged three ways at each step that also has a logged value."""

    steps: npt.NDArray[np.int64]
    """Steps."""
    logged: Floats
    """As the trainer logged it."""
    per_token: Floats
    """Mean over all tokens."""
    per_sequence: Floats
    """Mean over rollouts of their sums."""

    @property
    def trend(self) -> Trend:
        """Where the mean over tokens started and where it is."""
        return factor_trend(self.steps, self.per_token)

    @property
    def apart(self) -> Trend:
        """Logged over counted: level where both tell the same story, whatever the factor."""
        return factor_trend(self.steps, self.logged / self.per_token)

    @property
    def summed(self) -> bool:
        """Whether the logged value is the sum over a sequence rather than a mean over tokens: nearer to it at most steps."""
        to_sum, to_mean = (np.abs(np.log(self.logged / one)) for one in (self.per_sequence, self.per_token))
        return bool(np.median(to_sum) < np.median(to_mean))


def token_entropy(evidence: Evidence) -> TokenEntropy | None:
    """Read the entropies of tokens at steps that were logged too; None where they are there at fewer than eight."""
    run, logged = evidence.run, evidence.series("entropy")
    if run is None or logged is None or "entropy" not in run.columns:
        return None
    steps = np.intersect1d(rollout_steps(run), logged.steps)
    if len(steps) < FEWEST:
        return None
    sql = "SELECT coalesce(sum(len(entropy)), 0)::BIGINT AS tokens FROM rollouts WHERE split = 'train' AND step = ?"
    most = min(MOST_STEPS, max(FEWEST, MOST_TOKENS // max(run.query(sql, int(steps[0]))["tokens"].to_pylist()[0], 1)))
    if len(steps) > most:
        steps = steps[np.linspace(0, len(steps) - 1, most).round().astype(np.int64)]
    table = run.query(
        f"""SELECT step, sum({_COUNTED}) / sum({_TOKENS}) AS per_token, avg({_COUNTED}) AS per_sequence FROM rollouts
            WHERE split = 'train' AND len(entropy) > 0 AND step IN (SELECT unnest(?)) GROUP BY step ORDER BY step""",  # noqa: S608 - column names are ours
        steps.tolist(),
    )
    found = {name: table[name].to_numpy().astype(np.float64) for name in ("per_token", "per_sequence")}
    at = table["step"].to_numpy()
    values = logged.values[np.isin(logged.steps, at)]
    good = np.isfinite(found["per_token"]) & (found["per_token"] > 0) & (found["per_sequence"] > 0) & (values > 0)
    if good.sum() < FEWEST:
        return None
    return TokenEntropy(at[good], values[good], found["per_token"][good], found["per_sequence"][good])
