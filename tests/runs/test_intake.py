"""What files say adds up, whoever read them."""

from __future__ import annotations

from breadth.base import settings
from breadth.base.errors import UnsafeFileError
from breadth.runs.intake import Failure, Summary
from breadth.runs.records import Remark
from breadth.runs.schema import EntropyKind

FIRST = Summary(1, 2, {"length": "completion_length"}, {"a": 1}, None, False, (0.0,), (Remark("x", "f"),), ())
SECOND = Summary(
    3,
    4,
    {"length": "response_length", "kl_old": "ppo_kl"},
    {"b": 2},
    EntropyKind("sampled"),
    True,
    (1.0,),
    (),
    (Failure("UnsafeFileError", Remark("y", "g", 2, "z")),),
)


def test_summaries_add_up_and_a_changed_name_is_said() -> None:
    both = FIRST + SECOND
    assert (both.metric_rows, both.rollouts) == (4, 6)
    assert both.names == {"length": "completion_length", "kl_old": "ppo_kl"}
    assert both.config == {"a": 1, "b": 2}
    assert (both.entropy, both.token_entropy, both.levels) == (EntropyKind("sampled"), True, (0.0, 1.0))
    assert both.remarks[-1].problem == "length is completion_length in some rows and response_length in others."
    assert isinstance(both.failures[0].error, UnsafeFileError)
    assert str(both.failures[0].error) == "g, row 2: y\n  -> z"


def test_three_levels_are_enough_to_know() -> None:
    many = Summary(levels=(0.0, 0.5)) + Summary(levels=(0.25, 1.0))
    assert len(many.levels) == 3


def test_a_summary_crosses_processes_as_toml() -> None:
    assert settings.loads(Summary, settings.dumps(FIRST + SECOND)) == FIRST + SECOND
