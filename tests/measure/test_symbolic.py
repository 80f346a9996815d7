"""math-verify in its worker: both orders, deadlines that hold, crashes survived."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from threading import Thread

import pytest

from breadth.base.errors import MeasureError, MissingExtraError
from breadth.measure.answers import answer_classes
from breadth.measure.symbolic import SymbolicEquivalence

pytest.importorskip("math_verify", reason="the extra 'math' is not installed")


@pytest.fixture(scope="module")
def equivalent() -> Iterator[SymbolicEquivalence]:
    with SymbolicEquivalence(seconds=20) as worker:
        yield worker


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        (r"\sqrt{8}", r"2\sqrt{2}", True),
        ("x + 1", "1 + x", True),
        (r"\frac{2}{\sqrt{2}}", r"\sqrt{2}", True),
        ("1,2", "2,1", True),
        ("(1,2)", "(2,1)", False),
        ("x=2", "y=2", False),
        ("x=5", "5", True),
        ("5", "6", False),
        ("50%", "0.5", False),
    ],
)
def test_answers_with_different_keys(equivalent: SymbolicEquivalence, a: str, b: str, same: bool) -> None:
    assert equivalent(a, b) is same
    assert equivalent(b, a) is same


def test_votes_take_either_order_and_grades_keep_theirs(equivalent: SymbolicEquivalence) -> None:
    # math-verify equates an inequality with an interval only when the inequality is the reference ...
    assert equivalent.grade("1<x<2", "(1,2)")
    assert not equivalent.grade("(1,2)", "1<x<2")
    assert equivalent("1<x<2", "(1,2)")
    assert equivalent("(1,2)", "1<x<2")
    # ... and takes the right-hand side of an equation only when the equation is the answer.
    assert equivalent.grade("3", "2x+1=3")
    assert not equivalent.grade("2x+1=3", "3")
    assert equivalent("2x+1=3", "3")


def test_words_and_broken_braces_are_not_read_as_products(equivalent: SymbolicEquivalence) -> None:
    assert not equivalent("east", "seat")
    assert not equivalent("5}{", "5")
    assert equivalent("East", "east.")
    assert not equivalent("", "")
    assert not equivalent.grade("5", "nan")


def test_classes_join_by_it(equivalent: SymbolicEquivalence) -> None:
    answers = [r"2\sqrt{2}", r"\sqrt{8}", "3", None, r"\frac{6}{2}", r"\sqrt{9}"]
    assert answer_classes(answers, equivalent).tolist() == [0, 0, 1, -1, 1, 1]


def test_text_from_a_model_travels_as_data(equivalent: SymbolicEquivalence) -> None:
    for text in ('"; import os #1', "\n1\n", "\ud800 1", "1" * 5000, "x\x00 1", r"\input{/etc/passwd}1"):
        assert equivalent(text, "2") is False
    assert equivalent(r"\sqrt{4}", "2")
    assert (equivalent.timeouts, equivalent.crashes) == (0, 0)


def test_threads_share_one_worker(equivalent: SymbolicEquivalence) -> None:
    verdicts: dict[int, bool] = {}

    def compare(number: int) -> None:
        verdicts[number] = equivalent(rf"\sqrt{{{number * number}}}", str(number))

    threads = [Thread(target=compare, args=(number,)) for number in range(11, 17)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert verdicts == dict.fromkeys(range(11, 17), True)


def test_an_expression_that_never_ends_is_given_up_counted_and_not_tried_again() -> None:
    tower = "9^{9^{9^9}}"
    with SymbolicEquivalence(seconds=0.5) as impatient:
        assert not impatient(tower, "8")
        assert (impatient.timeouts, impatient.crashes) == (1, 0)
        assert not impatient(tower, "5")
        assert not impatient("8", tower)
        assert impatient.timeouts == 1
        impatient.seconds = 20
        assert impatient(r"\sqrt{64}", "8"), "the innocent partner must still be compared"


def test_a_worker_that_dies_is_replaced() -> None:
    with SymbolicEquivalence(seconds=20) as fragile:
        assert fragile("x+1", "1+x")
        worker = fragile._worker
        assert worker is not None
        worker.kill()
        worker.wait()
        assert not fragile("x+2", "2+x")
        assert (fragile.timeouts, fragile.crashes) == (0, 1)
        assert fragile("x+3", "3+x")
        replacement = fragile._worker
        assert replacement is not None
    assert replacement.poll() is not None, "the worker ends with the with block"


def test_outside_the_with_block_it_refuses() -> None:
    with pytest.raises(MeasureError, match="with block"):
        SymbolicEquivalence()("x+1", "1+x")


def test_a_script_without_a_main_guard_may_use_it() -> None:
    script = (
        "from breadth.measure.symbolic import SymbolicEquivalence\nwith SymbolicEquivalence(20) as same:"
        " print(same('x+1', '1+x'))"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.stdout.strip(), done.stderr, done.returncode) == ("True", "", 0)


def test_bad_deadlines_and_a_missing_extra_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for seconds in (0, -1, float("nan")):
        with pytest.raises(MeasureError, match="above 0"):
            SymbolicEquivalence(seconds)
    monkeypatch.setattr("breadth.measure.symbolic.find_spec", lambda _: None)
    with pytest.raises(MissingExtraError, match=r"breadth\[math\]"):
        SymbolicEquivalence()
