"""Standings: what is flagged, how stages are counted, and lots that nobody but the seed decides."""

from __future__ import annotations

import json

from breadth.base import settings
from breadth.training.plan.standings import Standing, Standings, lot, shares_of


def test_two_failures_in_a_row_flag_a_problem() -> None:
    standings = Standings(
        {"c": Standing("deferred", failures=2), "a": Standing("deferred", failures=3), "b": Standing("deferred", failures=1)}
    )
    assert standings.flagged() == ("a", "c")


def test_shares_of_the_stages_by_hand() -> None:
    shares = shares_of([Standing(), Standing("active"), Standing("active"), Standing("deferred", failures=2)])
    assert {name: share.value for name, share in shares.items()} == {
        "candidate": 0.25,
        "active": 0.5,
        "deferred": 0.25,
        "easy": 0.0,
        "flagged": 0.25,
    }
    assert shares_of([])["active"].count == 0


def test_standings_survive_json_with_odd_names() -> None:
    standings = Standings({'a.b "c"\n\\': Standing("easy", 3, 2, 0, 7), "": Standing()})
    assert settings.from_table(Standings, json.loads(json.dumps(settings.to_table(standings)))) == standings


def test_lots_are_uniform_and_depend_on_everything() -> None:
    lots = [lot(f"problem {number}", 0, 0) for number in range(4000)]
    assert all(0 <= one < 1 for one in lots)
    assert abs(sum(lots) / len(lots) - 0.5) < 0.02  # four standard errors are 0.018
    assert abs(sum(one < 0.02 for one in lots) / len(lots) - 0.02) < 0.009
    assert len({lot("a", 0, 0), lot("b", 0, 0), lot("a", 1, 0), lot("a", 0, 1)}) == 4
    assert lot("a", 0, 0) == lot("a", 0, 0)
    assert 0 <= lot("\ud800", 0, 0) < 1  # a name that UTF-8 cannot hold
