"""Rollouts at the start and at the end of a run: sums over tokens, texts, shares, and how they changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from breadth.doctor.evidence.record import Evidence, Window, is_inference_run, rollout_windows
from breadth.doctor.evidence.scores import is_training_run
from breadth.doctor.finding import CannotTell
from breadth.measure.intervals import Bounds, Columns, Interval, quotient, resample
from breadth.measure.validate import FloatArray, IntArray
from breadth.runs.outcomes import GROUP_SQL, MAX_TEXT_CHARACTERS, correctness_sql
from breadth.runs.reader import Run

Names = npt.NDArray[np.object_]
"""Problem ids, one for each row."""

MIN_CLUSTERS = 10
"""Problems, or rollouts, below which no interval is resampled: it would be too narrow (`mean_interval`)."""
MAX_TOKEN_ROLLOUTS = 4_000
"""Rollouts of a window whose tokens are read: a mean over them is known to 1.6 % (1 / sqrt 4,000) of the spread between
rollouts."""
MAX_CHARACTERS = 2_000_000
"""Characters of a window that are read at most: 400 very long texts then take seconds, not a minute."""
UNIT_INTERVAL = (0.0, 1.0)
_PER_TOKEN = {"entropy": "entropy", "logprob": "logprobs", "old_logprob": "old_logprobs", "counts": "mask"}
# Name of a per-token number in `token_sums` -> the column of lists it comes from.
_TRL_TOKENS = (
    'BreadthGRPOTrainer(..., run="FOLDER") instead of GRPOTrainer: it records the log-prob and entropy of every token'
)


@dataclass(frozen=True, eq=False)
class Ends:
    """The start and the end of a run's rollouts."""

    start: Window
    """The first eighth of the steps."""
    now: Window
    """The last eighth."""

    @property
    def where(self) -> str:
        """Name the rollouts that are compared."""
        kind = "held-out rollouts" if self.now.split == "eval" else "rollouts"
        return f"{kind} of {self.start.name} against {self.now.name}"


def covers_training(evidence: Evidence) -> bool:
    """Say whether this is a training run, even if only rollouts of several checkpoints show it."""
    return is_training_run(evidence) or training_ends(evidence) is not None


@lru_cache(maxsize=1)
def training_ends(evidence: Evidence) -> Ends | None:
    """Return both ends of the training rollouts, else of the held-out ones; None without two steps."""
    found = () if is_inference_run(evidence) else evidence.windows
    return Ends(*found) if len(found) == 2 else None


@lru_cache(maxsize=1)
def evaluation_ends(evidence: Evidence) -> Ends | None:
    """Return both ends of the held-out rollouts, which repeat the same problems, else of the training ones."""
    if evidence.run is None or is_inference_run(evidence):
        return None
    found = rollout_windows(evidence.run, "eval")
    return Ends(*found) if len(found) == 2 else training_ends(evidence)


def missing_rollouts(evidence: Evidence, finding: str, what: str = "", switch: str = "rollouts") -> CannotTell:
    """Return that a finding cannot tell: rollouts of two steps, or ``what`` they should hold, are missing."""
    if evidence.run is None or not evidence.run.rollout_files:
        return CannotTell(finding, "rollouts were not recorded", evidence.how_to_log("rollouts"))
    if training_ends(evidence) is None:
        return CannotTell(finding, "rollouts of only one step are recorded, so start and end cannot be compared")
    return CannotTell(finding, f"rollouts at the start or the end have no {what}", evidence.how_to_log(switch))


def missing_answers(evidence: Evidence, finding: str, ends: Ends) -> CannotTell | None:
    """Return that a finding cannot tell without grades or answers; None where both ends have them."""
    if not (ends.start.is_graded and ends.now.is_graded):
        return missing_rollouts(evidence, finding, "grade, or not all of them", "correct")
    if not all((window.classes >= 0).any() for window in (ends.start, ends.now)):
        return missing_rollouts(evidence, finding, "answer that can be read", "answer")
    return None


def token_logging_hint(evidence: Evidence) -> str:
    """Return the setting that makes the user's trainer record every token; empty where it is not known."""
    trainer = "" if evidence.run is None else evidence.run.header.trainer
    ours = {
        "trl": _TRL_TOKENS,
        "generic": "write the lists 'logprobs' and 'entropy' with every completion: one number per token, in nats",
    }
    return evidence.how_to_log("logprobs") or ours.get(trainer, "")


@dataclass(frozen=True, eq=False)
class TokenSums:
    """Terms added up over the tokens of each rollout."""

    problems: Names
    """Problem of each rollout."""
    tokens: FloatArray
    """Tokens that count."""
    sums: Columns
    """Each term's sum."""

    def __len__(self) -> int:
        return len(self.problems)


def token_sums(run: Run, window: Window, terms: Mapping[str, str], needed: Sequence[str] = ("entropy",)) -> TokenSums:
    """Sum terms over the tokens of a bounded sample of a window's rollouts, the same ones every time.

    Terms are SQL over ``entropy``, ``logprob`` and ``old_logprob`` of one token. A token counts where the mask says so
    and what is ``needed`` is a finite number. A rollout whose lists differ in length is left out: its numbers cannot be
    matched to tokens.
    """
    added = "".join(f', sum({term}) AS "{name}"' for name, term in terms.items())
    finite = " AND ".join(f"isfinite({name})" for name in needed)
    table = run.query(
        f"""SELECT coalesce(any_value(problem), '') AS problem, count(*) AS tokens {added}
            FROM ({token_rows_sql(needed)}) WHERE coalesce(counts, true) AND {finite}
            GROUP BY rollout ORDER BY rollout""",  # noqa: S608 - ours
        *_place(window),
        steps=_place(window)[1:],
    )
    columns = {name: table.column(name).to_numpy().astype(np.float64) for name in ("tokens", *terms)}
    return TokenSums(_objects(table.column("problem").to_pylist()), columns.pop("tokens"), columns)


@dataclass(frozen=True)
class EntropyThreshold:
    """The entropy above which a given share of a window's tokens lies."""

    nats: float
    """The threshold, up to the error of an approximate quantile; NaN without tokens."""
    length: float
    """Mean tokens per rollout; NaN without tokens."""


def entropy_threshold(run: Run, window: Window, share: float) -> EntropyThreshold:
    """Return the entropy above which this share of the tokens of a window's rollouts lies."""
    table = run.query(
        f"""SELECT approx_quantile(CAST(entropy AS DOUBLE), {1 - share!r}) AS edge,
                   count(*) / count(DISTINCT rollout) AS length
            FROM ({token_rows_sql(("entropy",))}) WHERE coalesce(counts, true) AND isfinite(entropy)""",  # noqa: S608 - our own numbers and names
        *_place(window),
        steps=_place(window)[1:],
    )
    edge, length = (table.column(name)[0].as_py() for name in ("edge", "length"))
    return EntropyThreshold(np.nan, np.nan) if edge is None else EntropyThreshold(float(edge), float(length))


def token_rows_sql(needed: Sequence[str]) -> str:
    """Return SQL with one row per token, for at most `MAX_TOKEN_ROLLOUTS` rollouts.

    Its parameters are split, first and last step.
    """
    lists = [_PER_TOKEN[name] for name in needed]
    others = [name for name in _PER_TOKEN.values() if name not in lists]
    there = " AND ".join(f"{name} IS NOT NULL AND len({name}) = len({lists[0]})" for name in lists)
    equal = " AND ".join(f"({name} IS NULL OR len({name}) = len({lists[0]}))" for name in others)
    unnested = ", ".join(f"unnest({theirs}) AS {ours}" for ours, theirs in _PER_TOKEN.items())
    return f"""SELECT rollout, problem, {unnested}
               FROM (SELECT row_number() OVER () AS rollout, * FROM
                     (SELECT problem, {", ".join(_PER_TOKEN.values())} FROM rollouts
                      WHERE split = ? AND step BETWEEN ? AND ? AND {there} AND {equal}
                      ORDER BY hash(problem, step, sample) LIMIT {MAX_TOKEN_ROLLOUTS}))"""  # noqa: S608 - column names are ours


def truncated_entropy_ratio(evidence: Evidence) -> Interval | None:
    """Return the entropy per token of truncated rollouts over that of the others, now; None with few of either."""
    ends = training_ends(evidence)
    if evidence.run is None or ends is None or not {"truncated", "entropy"} <= evidence.run.columns:
        return None
    table = evidence.run.query(
        f"""SELECT coalesce(problem, '') AS problem, CAST(truncated AS DOUBLE) AS cut, len(entropy) AS tokens,
                   list_sum(entropy) AS nats FROM rollouts
            WHERE split = ? AND step BETWEEN ? AND ? AND truncated IS NOT NULL AND len(entropy) > 0
                  AND isfinite(list_sum(entropy))
            ORDER BY hash(problem, step, sample) LIMIT {MAX_TOKEN_ROLLOUTS}""",  # noqa: S608 - our own number
        *_place(ends.now),
        steps=_place(ends.now)[1:],
    )
    cut, tokens, nats = (table.column(name).to_numpy().astype(np.float64) for name in ("cut", "tokens", "nats"))
    if min(cut.sum(), len(cut) - cut.sum()) < MIN_CLUSTERS:
        return None
    columns = {
        "cut": nats * cut,
        "cut_tokens": tokens * cut,
        "rest": nats * (1 - cut),
        "rest_tokens": tokens * (1 - cut),
    }

    def ratio(means: Columns) -> FloatArray:
        return quotient(quotient(means["cut"], means["cut_tokens"]), quotient(means["rest"], means["rest_tokens"]))

    owners = _objects(table.column("problem").to_pylist())
    return resample(columns, owners).interval(ratio, "cut_tokens", (0.0, np.inf))


@dataclass(frozen=True)
class RecordedCounts:
    """How many rollouts have their log-probs, and how many groups have no difference in reward.

    Counted over the steps that have any log-probs.
    """

    rollouts: int
    """Rollouts of these steps."""
    with_column: int
    """Of them with a log-probability for every token."""
    groups: int
    """Groups of two or more whose rewards, or advantages, are known."""
    flat: int
    """Of them without a difference."""


def count_recorded(run: Run, window: Window, column: str) -> RecordedCounts:
    """Count what a run recorded of its rollouts.

    Rollouts that were dropped because of their outcome bias means over the rest.
    """
    table = run.query(
        f"""WITH seen AS (SELECT {GROUP_SQL}, coalesce(reward, advantage) AS score, {column} IS NOT NULL AS present
                          FROM rollouts WHERE split = ? AND step BETWEEN ? AND ?),
                 bands AS (SELECT step, count(*) AS drawn, count(*) FILTER (WHERE present) AS present,
                                  count(score) > 1 AS known, count(score) > 1 AND min(score) = max(score) AS flat
                           FROM seen GROUP BY {GROUP_SQL})
            SELECT sum(drawn) AS drawn, sum(present) AS present,
                   count(*) FILTER (WHERE known) AS known, count(*) FILTER (WHERE flat) AS flat
            FROM bands WHERE step IN (SELECT step FROM bands GROUP BY step HAVING sum(present) > 0)""",  # noqa: S608 - the column is ours
        *_place(window),
        steps=_place(window)[1:],
    )
    row = table.to_pylist()[0]
    return RecordedCounts(*(int(row[name] or 0) for name in ("drawn", "present", "known", "flat")))


@dataclass(frozen=True, eq=False)
class Completions:
    """A bounded sample of a window's completions, spread over problems."""

    problems: Names
    """Problem of each."""
    texts: tuple[str, ...]
    """What the policy wrote: untrusted."""
    right: FloatArray
    """1 right, 0 wrong, NaN not known."""

    def __len__(self) -> int:
        return len(self.texts)


@lru_cache(maxsize=1)
def completions_at_ends(evidence: Evidence) -> tuple[Completions, Completions] | None:
    """Return completions of the start and of now; None where either end has none."""
    found = training_ends(evidence)
    if evidence.run is None or found is None:
        return None
    start, now = (sample_completions(evidence.run, window) for window in (found.start, found.now))
    return (start, now) if len(start) and len(now) else None


def sample_completions(run: Run, window: Window) -> Completions:
    """Read a bounded sample of a window's completions."""
    from breadth.doctor.evidence.record import MAX_TEXTS_PER_WINDOW

    table = run.query(
        f"""SELECT coalesce(problem, '') AS problem, left(completion, {MAX_TEXT_CHARACTERS}) AS completion,
                   CAST({correctness_sql(run) or "NULL"} AS DOUBLE) AS right_ FROM rollouts
            WHERE split = ? AND step BETWEEN ? AND ? AND completion IS NOT NULL
            ORDER BY hash(problem, step, sample) LIMIT {MAX_TEXTS_PER_WINDOW}""",  # noqa: S608 - column names are ours
        *_place(window),
        steps=_place(window)[1:],
    )
    texts = table.column("completion").to_pylist()
    read = max(1, sum(total <= MAX_CHARACTERS for total in accumulate(map(len, texts))))
    right = [np.nan if value is None else value for value in table.column("right_").to_pylist()]
    return Completions(
        _objects(table.column("problem").to_pylist()[:read]),
        tuple(texts[:read]),
        np.array(right[:read], dtype=np.float64),
    )


@dataclass(frozen=True)
class Shift:
    """A mean at the start and now, and its change, from the same resamples of problems."""

    start: Interval
    """At the start."""
    now: Interval
    """Now."""
    change: Interval
    """Now minus start."""
    problems: int
    """Problems of the end that has fewer."""


def mean_shift(start: tuple[Names, FloatArray], now: tuple[Names, FloatArray], bounds: Bounds = UNIT_INTERVAL) -> Shift:
    """Compare the mean of (problems, values) at both ends, resampling whole problems of both ends together."""
    owners = np.concatenate([start[0], now[0]])
    late = np.repeat([0.0, 1.0], [len(start[0]), len(now[0])])
    values = np.concatenate([start[1], now[1]])
    found = resample({"start": values * (1 - late), "starts": 1 - late, "now": values * late, "nows": late}, owners)
    fewer = min(("starts", "nows"), key=lambda name: int(np.count_nonzero(found.sums[name])))
    width = bounds[1] - bounds[0]

    def change(means: Columns) -> FloatArray:
        return quotient(means["now"], means["nows"]) - quotient(means["start"], means["starts"])

    return Shift(
        found.ratio("start", "starts", bounds),
        found.ratio("now", "nows", bounds),
        found.interval(change, fewer, (-width, width)),
        int(np.count_nonzero(found.sums[fewer])),
    )


@lru_cache(maxsize=1)
def coverage_shift(ends: Ends | None) -> tuple[int, Shift] | None:
    """Return k and the change of pass@k, where k is the smaller group size; None without grades."""
    if ends is None or not (ends.start.is_graded and ends.now.is_graded):
        return None
    from breadth.measure.pass_at_k import pass_at_k

    both = [count_correct(window) for window in (ends.start, ends.now)]
    most = min(int(np.bincount(drawn).argmax()) for _, drawn, _ in both)
    start, now = (
        (names[enough], pass_at_k(drawn[enough], right[enough], most))
        for names, drawn, right in both
        for enough in (np.asarray(drawn >= most),)
    )
    return most, mean_shift(start, now)


def count_correct(window: Window) -> tuple[Names, IntArray, IntArray]:
    """Return problem, rollouts and correct rollouts of each group."""
    samples = window.samples
    _, first, place = np.unique(samples.groups, return_index=True, return_inverse=True)
    right = np.bincount(place, samples.correct).astype(np.int64)
    return _objects(samples.names)[samples.problems[first]], np.bincount(place).astype(np.int64), right


def _objects(names: Sequence[str]) -> Names:
    return np.array(names, dtype=object)


def _place(window: Window) -> tuple[str, int, int]:
    return window.split, window.first, window.last
