"""The contract of mechanisms can fail: for each promise, a mechanism that breaks it and is told so."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from breadth.base.errors import MechanismError
from breadth.base.stats import Mean
from breadth.testing import mechanisms
from breadth.testing.mechanisms import chain_around, check_mechanism, check_ranks, run_chain, states_agree
from breadth.training import records, reduction
from breadth.training.catalogue import MECHANISMS
from breadth.training.chain import Chain
from breadth.training.credit.group_advantage import GroupAdvantage
from breadth.training.loss.clipped_policy import ClippedPolicy
from breadth.training.mechanism import Effect, Mechanism, Role, Selection, mechanism_name
from breadth.training.objective import Objective
from breadth.training.ops import group_mean, masked_mean
from breadth.training.records import Batch, Plan, Rollouts, not_none
from breadth.training.reduction import Reduction

FILLER = ClippedPolicy(high=0.28)


@dataclass(frozen=True)
class Good(Mechanism[Batch, None]):
    """Multiplies every weight; breaks nothing."""

    factor: float = 0.5

    def apply(self, batch: Batch, state: None, selection: Selection | None) -> Effect[Batch]:
        return Effect(batch.scale_weights(torch.full_like(batch.logprobs, self.factor)))


@dataclass(frozen=True)
class Undocumented(Good):
    factor: float = 0.5


class Undecorated(Mechanism[Batch, None]):
    """Has no fields, for it is no dataclass."""

    def apply(self, batch: Batch, state: None, selection: Selection | None) -> Effect[Batch]:
        return Effect(batch)


@dataclass
class Thawed(Mechanism[Batch, None]):
    """Can be written to."""

    factor: float = 0.5

    def apply(self, batch: Batch, state: None, selection: Selection | None) -> Effect[Batch]:
        return Effect(batch)


@dataclass(frozen=True)
class Forgetful(Good):
    """None is not its default, so TOML loses it."""

    bound: float | None = 1.0


@dataclass(frozen=True)
class Unpicklable(Good):
    """Comes back from pickle with its defaults."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Unpicklable, ()


@dataclass(frozen=True)
class ListedNeeds(Good):
    """Needs a list."""

    @property
    def needs(self) -> Any:
        return ["entropy"]


@dataclass(frozen=True)
class UnknownNeeds(Good):
    """Needs a field that no record has."""

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({"entropies"})


@dataclass(frozen=True)
class Needy(Good):
    """Needs the entropy and says so."""

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({"entropy"})


@dataclass(frozen=True)
class Secretive(Good):
    """Reads the entropy and does not say so."""

    def apply(self, batch: Batch, state: None, selection: Selection | None) -> Effect[Batch]:
        return Effect(batch.scale_weights(not_none(batch.entropy).detach()))


@dataclass(frozen=True)
class Freeloading(Needy):
    """Pays for entropy, but asks for no gradient of it."""

    def apply(self, batch: Batch, state: None, selection: Selection | None) -> Effect[Batch]:
        return Effect(batch, (-self.factor * not_none(batch.entropy),))


@dataclass(frozen=True)
class Bag:
    """A state of anything."""

    things: Any = 0


@dataclass(frozen=True)
class Tupled(Mechanism[Batch, Bag]):
    """Its state comes back from JSON as a list."""

    def init(self) -> Bag:
        return Bag((1, 2))

    def apply(self, batch: Batch, state: Bag, selection: Selection | None) -> Effect[Batch]:
        return Effect(batch)


@dataclass(frozen=True)
class Tensored(Tupled):
    """Keeps a tensor."""

    def init(self) -> Bag:
        return Bag(torch.zeros(2))


@dataclass(frozen=True)
class Hopeless(Tupled):
    """Divides by the tokens of a period, and keeps what that gives when there were none."""

    def init(self) -> Bag:
        return Bag()

    def apply(self, batch: Batch, state: Bag, selection: Selection | None) -> Effect[Batch]:
        return Effect(batch, stats={"logprob": Mean(batch.logprobs.detach().sum(), batch.mask.sum())})

    def update(self, state: Bag, stats: Mapping[str, Any]) -> Bag:
        return Bag(stats["logprob"].value) if "logprob" in stats else state


@dataclass(frozen=True)
class Averaging(Hopeless):
    """Averages the means of micro-batches, whatever their size."""

    def apply(self, batch: Batch, state: Bag, selection: Selection | None) -> Effect[Batch]:
        return Effect(batch, stats={"logprob": Mean(masked_mean(batch.logprobs.detach(), batch.mask), 1)})


@dataclass(frozen=True)
class Centring(Mechanism[Batch, None]):
    """Centres the advantages of each micro-batch instead of surveying the whole."""

    precedes = Role.SURROGATE

    def apply(self, batch: Batch, state: None, selection: Selection | None) -> Effect[Batch]:
        return Effect(replace(batch, advantages=batch.advantages - masked_mean(batch.advantages, batch.mask)))


@dataclass(frozen=True)
class Positional(Mechanism[Batch, None]):
    """Weighs sequences by where they stand in the whole batch, not by who they are."""

    def survey(self, whole: Batch, state: None) -> Selection:
        return Selection({"place": torch.arange(len(whole.mask))})

    def apply(self, batch: Batch, state: None, selection: Selection | None) -> Effect[Batch]:
        assert selection is not None
        return Effect(batch.scale_weights(selection.tokens["place"][:, None].double()))


@dataclass(frozen=True)
class Scribbling(Good):
    """Multiplies in place, in the record it is given."""

    def apply(self, batch: Batch, state: None, selection: Selection | None) -> Effect[Batch]:
        not_none(batch.weights).mul_(self.factor)
        return Effect(batch)


@dataclass(frozen=True)
class Renumbering(Mechanism[Batch, None]):
    """Writes into the rows of the whole batch while it looks at it."""

    def survey(self, whole: Batch, state: None) -> Selection:
        not_none(whole.rows).add_(0)
        return Selection()

    def apply(self, batch: Batch, state: None, selection: Selection | None) -> Effect[Batch]:
        return Effect(batch)


@dataclass(frozen=True)
class Rooting(Mechanism[Batch, None]):
    """Has an infinite slope where the policies agree."""

    def apply(self, batch: Batch, state: None, selection: Selection | None) -> Effect[Batch]:
        return Effect(batch, ((batch.logprobs - batch.logprobs.detach()).abs().sqrt(),))


@dataclass(frozen=True)
class Waking(Mechanism[Batch, None]):
    """Gives tokens a weight that had none."""

    def apply(self, batch: Batch, state: None, selection: Selection | None) -> Effect[Batch]:
        return Effect(replace(batch, weights=not_none(batch.weights) + 1))


@dataclass(frozen=True)
class Tolling(Mechanism[Batch, None]):
    """Adds a constant to every position; right as long as the engine masks."""

    def apply(self, batch: Batch, state: None, selection: Selection | None) -> Effect[Batch]:
        return Effect(batch, (torch.ones_like(batch.logprobs),))


@dataclass(frozen=True)
class Towering(Mechanism[Batch, None]):
    """Finite in double precision alone."""

    def apply(self, batch: Batch, state: None, selection: Selection | None) -> Effect[Batch]:
        return Effect(batch.scale_weights((batch.logprobs.detach() + 100).exp() / 1e43))


@dataclass(frozen=True)
class Curious(Mechanism[Rollouts, None]):
    """Adds the entropy at all positions, those that do not count included."""

    follows = Role.ESTIMATOR

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({"entropy"})

    def apply(self, batch: Rollouts, state: None, selection: Selection | None) -> Effect[Rollouts]:
        return Effect(batch.add_advantages(torch.where(batch.is_scored, not_none(batch.entropy).mean(-1), 0.0)))


@dataclass(frozen=True)
class Generous(Mechanism[Rollouts, None]):
    """Pays every rollout, without a reward too."""

    follows = Role.ESTIMATOR
    amount: float = 1.0

    def apply(self, batch: Rollouts, state: None, selection: Selection | None) -> Effect[Rollouts]:
        return Effect(batch.add_advantages(torch.full_like(batch.rewards, self.amount)))


@dataclass(frozen=True)
class Queueing(Generous):
    """Pays by the place in the queue."""

    def apply(self, batch: Rollouts, state: None, selection: Selection | None) -> Effect[Rollouts]:
        return Effect(batch.add_advantages(torch.where(batch.is_scored, torch.arange(len(batch)).double(), 0.0)))


@dataclass(frozen=True)
class Overwriting(Generous):
    """Writes into the rewards."""

    def apply(self, batch: Rollouts, state: None, selection: Selection | None) -> Effect[Rollouts]:
        batch.rewards.add_(1)
        return Effect(batch)


@dataclass(frozen=True)
class Naive(Mechanism[Rollouts, None]):
    """Divides by a deviation that may be zero."""

    role = Role.ESTIMATOR

    def apply(self, batch: Rollouts, state: None, selection: Selection | None) -> Effect[Rollouts]:
        known = batch.rewards.nan_to_num()
        centred = known - group_mean(known, batch.groups, batch.is_scored)
        return Effect(
            replace(batch, advantages=torch.where(batch.is_scored, centred / centred.square().mean().sqrt(), 0.0))
        )


@dataclass(frozen=True)
class Hopeful(Naive):
    """Divides by the share of failures, which may be none."""

    def apply(self, batch: Rollouts, state: None, selection: Selection | None) -> Effect[Rollouts]:
        known = batch.rewards.nan_to_num()
        centred = known - group_mean(known, batch.groups, batch.is_scored)
        return Effect(
            replace(
                batch, advantages=torch.where(batch.is_scored, centred / (1 - masked_mean(known, batch.is_scored)), 0.0)
            )
        )


@dataclass(frozen=True)
class Fickle(Mechanism[Plan, None]):
    """Rolls its own dice."""

    def apply(self, batch: Plan, state: None, selection: Selection | None) -> Effect[Plan]:
        return Effect(replace(batch, temperature=random.random()))


@dataclass(frozen=True)
class Favouring(Mechanism[Plan, None]):
    """Samples only the first in the list."""

    def apply(self, batch: Plan, state: None, selection: Selection | None) -> Effect[Plan]:
        return Effect(replace(batch, samples=(8,) + (0,) * (len(batch.samples) - 1)))


BROKEN: dict[str, list[Mechanism[Any, Any]]] = {
    "is not a documented dataclass": [Undocumented(), Undecorated()],
    "Thawed is not frozen": [Thawed()],
    "does not survive TOML": [Forgetful(bound=None)],
    "it does not survive pickle": [Unpicklable(0.7)],
    "needs is not a frozenset": [ListedNeeds()],
    "needs 'entropies', which is no field of Batch": [UnknownNeeds()],
    "without the fields it does not need it fails": [Secretive()],
    "an entropy without its gradient, which it does not need, changes the gradient": [Freeloading()],
    "the state does not survive JSON": [Tupled()],
    "JSON cannot hold the state": [Tensored(), Hopeless()],
    "2 micro-batches changes the states": [Averaging()],
    "2 micro-batches changes the loss": [Centring()],
    "another order of the sequences changes the": [Positional()],
    "writes into the batch's weights": [Scribbling()],
    "its survey writes into the batch's rows": [Renumbering()],
    "loss or gradient is not finite": [Rooting()],
    "not zero where the weights are zero": [Waking()],
    "bfloat16 gives numbers that are not finite": [Towering()],
    "garbage outside the mask changes": [Curious()],
    "a rollout without a reward gets an advantage": [Generous()],
    "another order of the rollouts changes": [Queueing()],
    "writes into the rollouts' rewards": [Overwriting()],
    "1 rollouts give an advantage that is not finite": [Naive()],
    "equal rewards give an advantage that is not finite": [Hopeful()],
    "the same history gives another plan": [Fickle()],
    "another order of the problems gives another plan": [Favouring()],
}
"""What the contract says -> the mechanisms that make it say so."""


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, thing in list(globals().items()):
        if isinstance(thing, type) and issubclass(thing, Mechanism) and thing.__module__ == __name__:
            monkeypatch.setitem(MECHANISMS.entries, f"test-{name.lower()}", f"{__name__}:{name}")


@pytest.mark.parametrize(
    ("told", "mechanism"),
    [(told, one) for told, some in BROKEN.items() for one in some],
    ids=lambda one: type(one).__name__,
)
def test_a_broken_promise_is_told(told: str, mechanism: Mechanism[Any, Any]) -> None:
    with pytest.raises(AssertionError) as caught:
        check_mechanism(mechanism)
    assert told in str(caught.value)


def test_what_breaks_nothing_passes() -> None:
    check_mechanism(Good(), neutral=Good(1.0))
    check_mechanism(Needy())


def test_a_neutral_setting_that_does_something() -> None:
    with pytest.raises(AssertionError, match="the neutral settings change the loss of step 0"):
        check_mechanism(Good(), neutral=Good(1.0 + 1e-12))
    with pytest.raises(AssertionError, match="the neutral settings change the advantages of generation 0"):
        check_mechanism(MECHANISMS.load("repeat-penalty")(), neutral=MECHANISMS.load("repeat-penalty")(1e-3))
    with pytest.raises(AssertionError, match="the neutral settings change the plan 1"):
        check_mechanism(
            MECHANISMS.load("temperature")(1.0, 0.5, 4), neutral=MECHANISMS.load("temperature")(1.0, 0.9, 4)
        )


def test_a_class_can_be_tried_before_it_has_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(MECHANISMS.entries, "test-good")
    before = dict(MECHANISMS.entries)
    check_mechanism(Good(), neutral=Good(1.0))
    assert before == MECHANISMS.entries, "the provisional name is gone"


def test_a_class_inside_a_function_is_refused() -> None:
    @dataclass(frozen=True)
    class Local(Good):
        """Nobody can import this one."""

    with pytest.raises(AssertionError, match="Local is defined in a function"):
        check_mechanism(Local())


def _nothing(self: Any, given: Any) -> None:
    return None


def _unmasked(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return values


def test_an_engine_that_lets_missing_fields_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Objective, "attach", _nothing)
    with pytest.raises(AssertionError, match="a missing 'entropy' is not refused at attach"):
        check_mechanism(Needy())


def test_an_engine_that_does_not_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    check_mechanism(Tolling())
    monkeypatch.setattr(reduction, "masked_values", _unmasked)
    with pytest.raises(AssertionError, match=r"an empty mask gives a loss of 192"):  # 16 sequences of 12 positions
        check_mechanism(Tolling())
    monkeypatch.setattr(records, "masked_values", _unmasked)
    with pytest.raises(AssertionError, match="nan outside the mask changes the"):
        check_mechanism(Good())


def test_an_engine_that_loses_states(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Objective, "restore", _nothing)
    with pytest.raises(AssertionError, match="the state does not survive JSON"):
        check_mechanism(MECHANISMS.load("fork-thermostat")())


def test_the_chain_around_a_mechanism() -> None:
    assert chain_around(Good()).mechanisms == (FILLER, Good())
    assert chain_around(Centring()).mechanisms == (Centring(), FILLER)
    assert chain_around(Generous()).mechanisms == (GroupAdvantage(), Generous())
    assert chain_around(GroupAdvantage("none")).mechanisms == (GroupAdvantage("none"),)
    assert chain_around(Good(), before=(Centring(), ClippedPolicy()), after=(Good(2.0),)).mechanisms == (
        Centring(),
        ClippedPolicy(),
        Good(),
        Good(2.0),
    )
    assert chain_around(None, like=Good()).mechanisms == (FILLER,)
    assert chain_around(None, before=(ClippedPolicy(),), like=Good()).mechanisms == (ClippedPolicy(),)
    assert chain_around(Fickle()).mechanisms == (Fickle(),)
    with pytest.raises(MechanismError):
        chain_around(Good(), before=(ClippedPolicy(), ClippedPolicy()))


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        ({"a": [1.0, "x"]}, {"a": (1.0 + 1e-9, "x")}, True),
        ({"a": 1.0}, {"a": 1.00001}, False),
        ({"a": 1e6}, {"a": 1e6 + 0.5}, True),  # relative above one
        ({"a": 1.0}, {"b": 1.0}, False),
        ([1.0], [1.0, 2.0], False),
        ("raising", "inside", False),
        (math.nan, math.nan, False),
    ],
)
def test_states_agree_to_the_tolerance(left: Any, right: Any, same: bool) -> None:
    assert states_agree(left, right) is same
    assert mechanisms.MAX_STATE_DIFFERENCE == 1e-6


TOLD = ("losses", "gradients", "advantages", "plans")


def make(name: str, **options: Any) -> Mechanism[Any, Any]:
    mechanism: Mechanism[Any, Any] = MECHANISMS.load(name)(**options)
    return mechanism


def acting_chains() -> list[Chain]:
    """Chains that together hold every mechanism of the catalogue, with settings under which each has an effect."""
    degenerate: Any = make("degenerate-guard")
    shaped = [
        make("brier-reward"),
        make("group-advantage"),
        make("outcome-bonus"),
        make("repeat-penalty"),
        make("planning-credit"),
    ]
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
        Chain(
            (
                make("pass-at-k", k=2),
                make("flat-filter"),
                make("gradient-preserving"),
                make("temperature", start=1.0, end=0.5, over=4),
            )
        ),
        Chain((make("maxrl"), make("cispo"), make("difficulty", pilot=8)), Reduction("fixed-length", 12)),
    ]


def test_every_mechanism_gives_the_same_on_two_processes() -> None:
    chains = acting_chains()
    there = {mechanism_name(mechanism) for chain in chains for mechanism in chain.mechanisms}
    others = {name: kind for name, kind in MECHANISMS if name not in there and not name.startswith("test-")}
    check_ranks([*chains, *(chain_around(kind(**kind.example)) for kind in others.values())])


@pytest.mark.parametrize("place", range(4))
def test_every_mechanism_of_those_chains_acts(place: int) -> None:
    chain = acting_chains()[place]
    whole = run_chain(chain, 0, 1)
    for one in chain.mechanisms:
        if one.role is None:
            without = run_chain(
                replace(chain, mechanisms=tuple(other for other in chain.mechanisms if other is not one)), 0, 1
            )
            assert any(without[name] != whole[name] for name in TOLD), mechanism_name(one)


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

        monkeypatch.setattr("breadth.testing.mechanisms.spawning.spawn", spawn)
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
def test_results_that_differ_are_told(
    doctored: Callable[..., None], spoil: Callable[[list[Any]], None], told: str
) -> None:
    with pytest.raises(AssertionError, match=told):
        doctored(spoil)
