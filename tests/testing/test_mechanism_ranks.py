"""Every mechanism on two real gloo processes, and the comparison itself with results that differ."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from breadth.testing.mechanism_ranks import check_ranks, run_chain
from breadth.training.catalogue import MECHANISMS
from breadth.training.chain import Chain
from breadth.training.mechanism import Mechanism, name_of
from breadth.training.reduction import Reduction

TOLD = ("losses", "gradients", "advantages", "plans")


def make(name: str, **options: Any) -> Mechanism[Any, Any]:
    mechanism: Mechanism[Any, Any] = MECHANISMS.load(name)(**options)
    return mechanism


def acting_chains() -> list[Chain]:
    """Chains that together hold every mechanism of the catalogue, with settings under which each does something here."""
    degenerate: Any = make("degenerate-guard")
    shaped = [make("brier-reward"), make("group-advantage"), make("outcome-bonus"), make("repeat-penalty"), make("planning-credit")]
    entropies = [
        make("entropy-advantage"),
        make("entropy-pi", target=0.5, threshold=0.3),
        make("repo", settle=2),
        make("clipped-policy", high=0.28, dual=3.0),
        make("entropy-bonus", coefficient=0.1),
        make("entropy-target", target=1.3, reads="exact", increment=0.05, largest=1.0),
        make("fork-thermostat", settle=2, floor=0.9, ceiling=1.1, proportional=0.5, integral=0.1, limit=1.0),
        make("reference-kl", coefficient=0.1),
    ]
    guards = [
        make("leave-one-out"),
        replace(degenerate, gates=replace(degenerate.gates, needed=1), settle=2),
        make("rare-success-cap", cap=0.5, size=4),
        make("length-guard", floor=0.99, settle=1, smoothing=1.0),
    ]
    picking = [
        make("sequence-ratio", low=0.2, high=0.28),
        make("clip-cov", share=0.2, lower=0.0, upper=math.inf),
        make("kl-cov", share=0.2),
        make("forking-tokens", share=0.5),
    ]
    return [
        Chain((*shaped, *entropies)),
        Chain((*guards, *picking), Reduction("sequence-mean"), seed=5),
        Chain((make("pass-at-k", k=2), make("flat-filter"), make("gradient-preserving"), make("temperature", start=1.0, end=0.5, over=4))),
        Chain((make("maxrl"), make("cispo"), make("difficulty", pilot=8)), Reduction("fixed-length", 12)),
    ]


def test_every_mechanism_gives_the_same_on_two_processes() -> None:
    chains = acting_chains()
    assert {name_of(one) for chain in chains for one in chain.mechanisms} == set(MECHANISMS.entries)
    check_ranks(chains)


@pytest.mark.parametrize("place", range(4))
def test_every_mechanism_of_those_chains_acts(place: int) -> None:
    chain = acting_chains()[place]
    whole = run_chain(chain, 0, 1)
    for one in chain.mechanisms:
        if one.role is None:
            without = run_chain(replace(chain, mechanisms=tuple(other for other in chain.mechanisms if other is not one)), 0, 1)
            assert any(without[name] != whole[name] for name in TOLD), name_of(one)


@pytest.fixture
def doctored(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[list[Any]], object]], None]:
    """Return a check of one chain on two made-up ranks, whose results a function may spoil before they are compared."""
    chain = Chain((make("group-advantage"), make("clipped-policy"), make("fork-thermostat"), make("difficulty")))

    def check(spoil: Callable[[list[Any]], object]) -> None:
        def spawn(worker: Any, args: tuple[str, list[str]], nprocs: int) -> None:
            alone = run_chain(Chain.loads(args[1][0]), 0, 1)
            nothing = {name: _scaled(alone[name], 0.0) for name in ("losses", "gradients")}
            told = [alone, alone | nothing | {"advantages": []}]
            spoil(told)
            for rank in range(nprocs):
                Path(args[0], f"rank-{rank}.json").write_text(json.dumps([told[rank]]), encoding="utf-8")

        monkeypatch.setattr("breadth.testing.mechanism_ranks.spawning.spawn", spawn)
        check_ranks([chain])

    return check


def _scaled(values: Any, factor: float) -> Any:
    return [_scaled(one, factor) for one in values] if isinstance(values, list) else factor * values


def test_results_that_add_up_pass(doctored: Callable[[Callable[[list[Any]], object]], None]) -> None:
    doctored(len)  # spoils nothing


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda told: told[1]["losses"].__setitem__(3, 1e-4), "other losses"),
        (lambda told: told[1]["gradients"][0].__setitem__(7, 1e-4), "other gradients"),
        (lambda told: told[1]["advantages"].append(told[0]["advantages"][0]), "other advantages"),
        (lambda told: told[0]["advantages"][0].__setitem__(3, 9.0), "other advantages"),
        (lambda told: told[1].update(plans=[]), "rank 1 plans otherwise"),
        (lambda told: told[1].update(states={}), "rank 1 ends in another state"),
    ],
    ids=["loss", "gradient", "rollouts", "advantage", "plan", "state"],
)
def test_results_that_differ_are_told(doctored: Callable[..., None], spoil: Callable[[list[Any]], None], told: str) -> None:
    with pytest.raises(AssertionError, match=told):
        doctored(spoil)
