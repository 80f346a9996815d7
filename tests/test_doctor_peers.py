"""The comparison with the peers' doctors scores as it says: doubt is a hit, what was not judged is not a miss."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from breadth.doctor.finding import FINDINGS

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


@pytest.fixture
def scoring(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return import_module("peers.scoring")


@pytest.fixture
def rules(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return import_module("peers.rules")


@pytest.fixture
def cases(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return import_module("peers.cases")


def verdict(scoring: ModuleType, truth: str, *said: tuple[str, str, bool], **rest: Any) -> Any:
    told = tuple(scoring.Said(name, frozenset(labels.split()), loud) for name, labels, loud in said)
    meant = frozenset({truth.removeprefix("no ")})
    return scoring.Verdict("peer", "set", "run", truth, meant, rest.pop("also", frozenset()), told, **rest)


def test_a_rule_of_several_meanings_counts_for_each(scoring: ModuleType) -> None:
    both = ("DEAD", "zero-variance-groups overly-hard", True)
    assert verdict(scoring, "overly-hard", both).named()
    assert verdict(scoring, "zero-variance-groups", both).named()
    assert not verdict(scoring, "zero-variance-groups", both).astray
    assert not verdict(scoring, "truncation", both).named()
    assert verdict(scoring, "truncation", both).astray
    assert not verdict(scoring, "truncation", both, also=frozenset({"overly-hard"})).astray


def test_a_note_names_only_where_notes_count_and_alarms_nobody(scoring: ModuleType) -> None:
    note = ("hint", "truncation", False)
    assert not verdict(scoring, "truncation", note).named()
    assert verdict(scoring, "truncation", note).named(notes=True)
    assert not verdict(scoring, "zero-variance-groups", note).astray
    assert verdict(scoring, "healthy", note).alarms == ()


def test_an_alarm_without_a_label_of_ours_alarms_a_healthy_run_and_is_no_other_failure(scoring: ModuleType) -> None:
    slow = ("SLOW", "", True)
    found = scoring.counts([verdict(scoring, "healthy", slow), verdict(scoring, "truncation", slow)], frozenset())
    assert {name: (one.hits, one.judged) for name, one in found.items()} == {
        "failures named": (0, 1),
        "with notes": (0, 1),
        "another named": (0, 1),
        "healthy alarmed": (1, 1),
    }


def test_what_was_not_judged_is_shown_and_not_counted(scoring: ModuleType) -> None:
    named = verdict(scoring, "truncation", ("CUT", "truncation", True))
    unread = verdict(scoring, "truncation", unread="too short")
    gone = verdict(scoring, "no truncation")
    unclear = verdict(scoring, "unclear", ("CUT", "truncation", True))
    found = scoring.counts([named, named, named, unread, gone, unclear], frozenset({"truncation"}))
    assert found["failures named"].interval == "3 of 3, 1 unread (0.44 to 1.00)"  # Wilson: 3 / (3 + 1.96²) = 0.4385
    assert str(found["named without its series"]) == "0 of 1"
    assert "healthy alarmed" not in found


def test_a_failure_that_a_tool_has_no_rule_for_is_marked(scoring: ModuleType) -> None:
    several = [verdict(scoring, "truncation", ("CUT", "truncation", True)), verdict(scoring, "drift")]
    rows = scoring.by_label(several, {"peer": frozenset({"truncation"})})
    assert rows[0][3:5] == ["failures named", "of those it has a rule for"]
    assert rows[0][:3] == ["", "truncation", "drift"]
    assert rows[1][:5] == ["peer", "1 of 1", "-", "1 of 2 (0.09 to 0.91)", "1 of 1 (0.21 to 1.00)"]


def test_rules_speak_of_findings_that_we_have(rules: ModuleType) -> None:
    for peer in rules.RULES:
        assert rules.nameable(peer) <= FINDINGS.entries.keys()


def test_a_rule_that_says_several_things_is_read_by_its_words(rules: ModuleType) -> None:
    assert rules.labels("rldoctor", "length_pathology", "24% of rollouts are truncated.") == {"truncation"}
    assert rules.labels("rldoctor", "length_pathology", "50% are truncated. It is being paid by the token.") == {
        "truncation",
        "reward-hacking",
    }
    assert rules.labels("rlwatch", "loss_nan", "whatever") == frozenset()
    with pytest.raises(KeyError, match="no line"):
        rules.labels("rlwatch", "a_newer_rule", "")


def test_rows_get_the_names_that_a_peer_knows(cases: ModuleType) -> None:
    row = {
        "step": 3,
        "truncated": 0.5,
        "reward/format": 0.1,
        "rewards/right/mean": 0.2,
        "entropy": 0.7,
        "kl_old": 0.01,
        "kl_reference": 2.0,
    }
    own = {"truncated": "response_length/clip_ratio", "entropy": "actor/entropy"}
    case = cases.Case("logs", "run", "truncation", frozenset(), (row,), own)
    assert cases.under_own_names(case)[0].keys() >= {
        "step",
        "response_length/clip_ratio",
        "actor/entropy",
        "reward/format",
    }
    assert cases.under_trl_names(case) == [
        {
            "step": 3,
            "completions/clipped_ratio": 0.5,
            "rewards/format/mean": 0.1,
            "rewards/right/mean": 0.2,
            "entropy": 0.7,
            "kl_old": 0.01,
            "kl": 2.0,
        }
    ]
    assert cases.under_sb3_names(case) == [{"step": 3, "train/approx_kl": 0.01, "train/entropy_loss": 0.7}]
