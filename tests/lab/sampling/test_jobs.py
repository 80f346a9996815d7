"""Jobs: what is refused before it is begun, and how much of the thinking is given."""

from __future__ import annotations

import pytest

from breadth.base.errors import ServerError, SettingsError
from breadth.inference.records import Sampling
from breadth.lab.sampling.jobs import ENDLESS, Job, Marks, begun, check

MARKS = Marks(open=4, close=5, again=6, end=3)


def test_given_thinking_is_counted_from_the_last_opening_mark() -> None:
    assert MARKS.thought((2, 9, 9)) == -1
    assert MARKS.thought((2, 9, 4)) == 0
    assert MARKS.thought((2, 4, 9, 9, 6)) == 3
    assert MARKS.thought((2, 4, 9, 5, 9)) == -1
    assert MARKS.thought((2, 4, 9, 5, 4, 9, 9)) == 2


@pytest.mark.parametrize(
    ("job", "problem"),
    [
        (Job((), Sampling()), "no tokens"),
        (Job((1,) * 16, Sampling()), "context holds 16"),
        (Job((1, 20), Sampling()), "knows 0 to 19"),
        (Job((1, -1), Sampling()), "knows 0 to 19"),
        (Job((1,), Sampling(presence_penalty=0.1)), "penalty"),
        (Job((1,), Sampling(frequency_penalty=-0.1)), "penalty"),
        (Job((1,), Sampling(repetition_penalty=1.1)), "penalty"),
        (Job((1,), Sampling(thinking_tokens=3), least_thinking=4), "at most 3"),
    ],
)
def test_what_cannot_be_drawn_is_refused(job: Job, problem: str) -> None:
    with pytest.raises(ServerError, match=problem) as caught:
        check(job, 16, 20)
    assert caught.value.fatal
    assert caught.value.status == 400


def test_a_row_says_what_is_left_to_do() -> None:
    job = Job((1, 4, 9), Sampling(max_tokens=50, top_k=3), seed=-1, least_thinking=2)
    check(job, 16, 20)
    row = begun([(7, job)], MARKS, 16)[0]
    assert (row["key"], row["token"], row["length"], row["limit"]) == (7, 9, 2, 13)  # 16 positions less the 3 given
    assert (row["seed"], row["cap"], row["least"], row["thought"]) == (2**64 - 1, ENDLESS, 2, 1)
    with pytest.raises(SettingsError, match="least_thinking"):
        Job((1,), Sampling(), least_thinking=-1)
