"""Jobs: what is refused before it is begun, and how much of the thinking is given."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest

from breadth.base.errors import ServerError, SettingsError
from breadth.inference.records import Sampling
from breadth.lab.reasoner import Reasoner, ReasonerShape, build_reasoner
from breadth.lab.sampling.batch import (
    MAX_PREFILL_TOKENS,
    NO_CAP,
    Completion,
    CompletionBatch,
    CompletionJob,
    ThinkingMarks,
    check_job,
    count_admitted,
    initial_rows,
    prefill_groups,
    sample_all,
)
from breadth.lab.task.teacher import ArithmeticFacts, Teacher

MARKS = ThinkingMarks(open=4, close=5, again=6, end=3)


def test_given_thinking_is_counted_from_the_last_opening_mark() -> None:
    assert MARKS.count_thinking((2, 9, 9)) == -1
    assert MARKS.count_thinking((2, 9, 4)) == 0
    assert MARKS.count_thinking((2, 4, 9, 9, 6)) == 3
    assert MARKS.count_thinking((2, 4, 9, 5, 9)) == -1
    assert MARKS.count_thinking((2, 4, 9, 5, 4, 9, 9)) == 2


@pytest.mark.parametrize(
    ("job", "problem"),
    [
        (CompletionJob((), Sampling()), "no tokens"),
        (CompletionJob((1,) * 16, Sampling()), "context holds 16"),
        (CompletionJob((1, 20), Sampling()), "knows 0 to 19"),
        (CompletionJob((1, -1), Sampling()), "knows 0 to 19"),
        (CompletionJob((1,), Sampling(presence_penalty=0.1)), "penalty"),
        (CompletionJob((1,), Sampling(frequency_penalty=-0.1)), "penalty"),
        (CompletionJob((1,), Sampling(repetition_penalty=1.1)), "penalty"),
        (CompletionJob((1,), Sampling(thinking_tokens=3), min_thinking=4), "at most 3"),
    ],
)
def test_what_cannot_be_drawn_is_refused(job: CompletionJob, problem: str) -> None:
    with pytest.raises(ServerError, match=problem) as caught:
        check_job(job, 16, 20)
    assert caught.value.fatal
    assert caught.value.status == 400


def test_a_row_says_what_is_left_to_do() -> None:
    job = CompletionJob((1, 4, 9), Sampling(max_tokens=50, top_k=3), seed=-1, min_thinking=2)
    check_job(job, 16, 20)
    row = initial_rows([(7, job)], MARKS, 16)[0]
    assert (row["key"], row["token"], row["length"], row["limit"]) == (7, 9, 2, 13)  # 16 positions less the 3 given
    assert (row["seed"], row["cap"], row["least"], row["thought"]) == (2**64 - 1, NO_CAP, 2, 1)
    with pytest.raises(SettingsError, match="min_thinking"):
        CompletionJob((1,), Sampling(), min_thinking=-1)


torch = pytest.importorskip("torch", reason="the extra 'train' is not installed")

PLAIN = Sampling(temperature=1.0, top_p=1.0, max_tokens=24)


@pytest.fixture(scope="module")
def lively(enlivened: Callable[[int, int], Reasoner]) -> Reasoner:
    return enlivened(2, 96)


def jobs(count: int) -> list[CompletionJob]:
    """Prompts of 1 to 30 tokens, some shared, rules of every kind."""
    rng = np.random.default_rng(5)
    rules = [
        PLAIN,
        Sampling(temperature=0.7, max_tokens=30),
        Sampling(temperature=0.0, max_tokens=9),
        Sampling(top_k=4, min_p=0.05, max_tokens=17),
    ]
    prompts = [tuple(rng.integers(0, 20, rng.integers(1, 31)).tolist()) for _ in range(count // 2)]
    return [
        CompletionJob(prompts[place % len(prompts)], rules[place % len(rules)], seed=place) for place in range(count)
    ]


def tokens(drawn: list[Completion]) -> list[list[int]]:
    return [one.ids.tolist() for one in drawn]


def test_a_completion_is_the_same_alone_together_and_in_waves(lively: Reasoner) -> None:
    # Logits differ by about 1e-6 with the company; a token flips where its chance lies that near an edge. With these
    # seeds none does.
    asked = jobs(60)
    together = tokens(sample_all(lively, asked))
    assert together[::3] == [tokens(sample_all(lively, [job]))[0] for job in asked[::3]]
    assert together == tokens(sample_all(lively, asked, max_running=7))
    assert together == tokens(sample_all(lively, asked[::-1], max_running=13))[::-1]
    assert together[0] != tokens(sample_all(lively, [CompletionJob(asked[0].ids, asked[0].sampling, seed=99)]))[0]
    assert len({len(one) for one in together}) > 5, "rows must leave at different steps"


def test_numbers_are_those_of_one_pass_over_the_whole(lively: Reasoner) -> None:
    asked = jobs(12)
    for job, drawn in zip(asked, sample_all(lively, asked), strict=True):
        with torch.no_grad():
            raw = (
                lively.model(input_ids=torch.tensor([[*job.ids, *drawn.ids.tolist()]]))
                .logits[0, len(job.ids) - 1 : -1]
                .log_softmax(-1)
            )
        picked = raw.gather(-1, torch.from_numpy(drawn.ids)[:, None])[:, 0]
        assert drawn.logprobs.tolist() == pytest.approx(picked.tolist(), abs=1e-4)
        assert drawn.entropies.tolist() == pytest.approx((-(raw.exp() * raw).sum(-1)).tolist(), abs=1e-4)
        assert not drawn.forced.any()
        if job.sampling.temperature == 0:
            assert drawn.ids.tolist() == raw.argmax(-1).tolist()


def test_completions_end_at_the_end_mark_the_cap_or_the_context(lively: Reasoner) -> None:
    marks = ThinkingMarks.from_tokenizer(lively.tokenizer)
    ended = {"stop": 0, "length": 0}
    for job, drawn in zip(jobs(60), sample_all(lively, jobs(60)), strict=True):
        ended[drawn.finish] += 1
        assert (drawn.ids[-1] == marks.end) == (drawn.finish == "stop")
        assert marks.end not in drawn.ids[:-1]
        assert drawn.finish == "stop" or len(drawn.ids) == job.sampling.max_tokens
    assert min(ended.values()) > 0
    long = Sampling(temperature=0.0, max_tokens=4096)
    cut = [
        one
        for one in sample_all(lively, [CompletionJob((token,) * 90, long) for token in range(7, 20)])
        if one.finish == "length"
    ]
    assert {len(one.ids) for one in cut} == {6}  # a context of 96 less the 90 given


def test_thinking_is_cut_at_its_cap(lively: Reasoner) -> None:
    marks = ThinkingMarks.from_tokenizer(lively.tokenizer)
    sampling = Sampling(temperature=1.0, top_p=1.0, max_tokens=40, thinking_tokens=8)
    given = (2, 12, marks.open, 13, 14)  # two thinking tokens are given, so six may follow
    seen = 0
    for drawn in sample_all(lively, [CompletionJob(given, sampling, seed) for seed in range(40)]):
        first = drawn.ids[:7].tolist()
        end = next(place for place, token in enumerate(first) if token in (marks.close, marks.end))
        forced = drawn.forced[:7].tolist()
        assert forced == [False] * 6 + [True] if any(forced) else end <= 6
        assert not any(forced) or first[6] == marks.close
        seen += any(forced)
    assert seen > 10
    at_once = sample_all(lively, [CompletionJob((2, marks.open), Sampling(max_tokens=3, thinking_tokens=0))])[0]
    assert at_once.ids[0] == marks.close


def test_a_cap_holds_for_thinking_that_the_model_opens_itself(lively: Reasoner) -> None:
    marks = ThinkingMarks.from_tokenizer(lively.tokenizer)
    sampling = Sampling(temperature=1.0, top_p=1.0, max_tokens=60, thinking_tokens=3)
    opened = 0
    for drawn in sample_all(lively, [CompletionJob((2, 12), sampling, seed) for seed in range(60)]):
        thought = -1
        for token, forced in zip(drawn.ids.tolist(), drawn.forced.tolist(), strict=True):
            assert not forced or (thought == 3 and token == marks.close)
            assert thought < 3 or token == marks.close
            opened += token == marks.open
            thought = -1 if token == marks.close else thought + 1 if thought >= 0 else 0 if token == marks.open else -1
    assert opened > 5


def test_forced_thinking_turns_early_ends_into_another_attempt(lively: Reasoner) -> None:
    marks = ThinkingMarks.from_tokenizer(lively.tokenizer)
    sampling = Sampling(temperature=1.0, top_p=1.0, max_tokens=30)
    free = sample_all(lively, [CompletionJob((2, 12, marks.open, 13), sampling, seed) for seed in range(40)])
    held = sample_all(
        lively, [CompletionJob((2, 12, marks.open, 13), sampling, seed, min_thinking=12) for seed in range(40)]
    )
    turned = 0
    for before, after in zip(free, held, strict=True):
        # One thinking token is given, so the next 11 cannot end the thinking; up to the first turn both draw the same.
        early = [place for place, token in enumerate(before.ids[:11].tolist()) if token in (marks.close, marks.end)]
        assert not {marks.close, marks.end} & set(after.ids[:11].tolist())
        assert all(token == marks.again for token in after.ids[after.forced].tolist())
        first = early[0] if early else len(before.ids)
        assert after.ids[:first].tolist() == before.ids[:first].tolist()
        if early:
            turned += 1
            assert after.ids[first] == marks.again
            assert after.forced[first]
    assert turned > 10


def test_bad_weights_and_bad_jobs_are_refused(lively: Reasoner) -> None:
    with pytest.raises(ServerError, match="context holds 96"):
        sample_all(lively, [CompletionJob((1,) * 96, PLAIN)])
    with pytest.raises(SettingsError, match="At most 0"):
        sample_all(lively, jobs(2), max_running=0)
    assert sample_all(lively, []) == []
    broken = build_reasoner(Teacher(ArithmeticFacts(prime=7)), ReasonerShape(hidden=32, layers=1, heads=2, inner=32))
    with torch.no_grad():
        broken.model.lm_head.weight[3, 0] = float("nan")
    with pytest.raises(ServerError, match="not finite"):
        sample_all(broken, jobs(2))


def test_a_broken_row_spoils_no_other(lively: Reasoner) -> None:
    asked = [CompletionJob((2, 12 + place), PLAIN, place) for place in range(3)]
    alone = tokens(sample_all(lively, asked))
    bad = next(
        token for token in range(len(lively.tokenizer)) if not any(token in ids for ids in [*alone, (2, 12, 13, 14)])
    )
    written: dict[int, list[int]] = {0: [], 1: [], 2: []}
    broken = []
    with torch.inference_mode():
        batch = CompletionBatch(lively)
        batch.network.embedding[bad] = float("nan")
        batch.join([(0, asked[0]), (8, CompletionJob((2, bad, 12), PLAIN)), (1, asked[1])])
        for turn in itertools.count():
            if turn == 1:
                batch.join([(2, asked[2])])  # where the broken row was
            if not len(batch.rows):
                break
            step = batch.step()
            broken += step.keys[step.broken].tolist()
            for key, token in zip(step.keys[~step.broken].tolist(), step.ids[~step.broken].tolist(), strict=True):
                written[key].append(token)
    assert broken == [8]
    assert [written[key] for key in range(3)] == alone


def test_who_joins_when_and_what_is_read_together() -> None:
    assert count_admitted(0, 5, 1024) == 5
    assert count_admitted(0, 5000, 1024) == 1024
    assert count_admitted(1020, 4, 1024) == 4
    assert count_admitted(1000, 500, 1024) == 0  # 24 of 1,024 are free, less than a sixteenth
    assert count_admitted(960, 500, 1024) == 64
    assert count_admitted(1, 3, 1) == 0
    texts = [
        (1,) * size for size in (10, 10, 100, MAX_PREFILL_TOKENS // 2, MAX_PREFILL_TOKENS // 2, MAX_PREFILL_TOKENS)
    ]
    assert [len(group) for group in prefill_groups(texts)] == [3, 2, 1]
