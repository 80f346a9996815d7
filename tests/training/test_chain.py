"""Chains: what they refuse at construction, and the way to TOML and back."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from breadth.base.errors import BreadthError, BrokenFileError, CatalogueError, MechanismError, SettingsError
from breadth.training.chain import Chain
from breadth.training.credit.group_advantage import GroupAdvantage
from breadth.training.loss.clipped_policy import ClippedPolicy
from breadth.training.loss.fork_thermostat import ForkThermostat
from breadth.training.mechanism import Mechanism, Stage
from breadth.training.reduction import Reduction

FULL = Chain(
    (GroupAdvantage(scale="none"), ClippedPolicy(high=math.inf, dual=3.0), ForkThermostat(settle=2)),
    Reduction("fixed-length", 64),
    7,
)


def refused(*mechanisms: Any) -> BreadthError:
    with pytest.raises(MechanismError) as caught:
        Chain(mechanisms)
    return caught.value


def loaded(name: str, **options: Any) -> Mechanism[Any, Any]:
    mechanism: Mechanism[Any, Any] = Mechanism.catalogue.load(name)(**options)
    return mechanism


def test_two_surrogates() -> None:
    error = refused(ClippedPolicy(), GroupAdvantage(), loaded("cispo"))
    assert "2 mechanisms with the role surrogate: clipped-policy, cispo; only one is allowed" in error.problem
    assert "Keep the one policy loss" in error.remedy


def test_no_surrogate() -> None:
    error = refused(GroupAdvantage(), ForkThermostat())
    assert "(fork-thermostat) but no policy loss" in error.problem
    assert error.remedy == "Add one, e.g. ClippedPolicy()."


def test_two_estimators() -> None:
    error = refused(GroupAdvantage(), loaded("leave-one-out"), ClippedPolicy())
    assert "2 mechanisms with the role estimator: group-advantage, leave-one-out" in error.problem
    assert "Keep the one that computes the advantages" in error.remedy


@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        ("clipped-policy", "entropy-advantage", "entropy-advantage must come before clipped-policy"),
        ("clip-cov", "clipped-policy", "clip-cov must come after clipped-policy"),
        ("group-advantage", "brier-reward", "brier-reward must come before group-advantage"),
        ("repeat-penalty", "group-advantage", "repeat-penalty must come after group-advantage"),
    ],
)
def test_wrong_order(first: str, second: str, told: str) -> None:
    error = refused(loaded(first), loaded(second))
    assert told in error.problem
    assert "Move it" in error.remedy
    Chain((loaded(second), loaded(first)))


@pytest.mark.parametrize(("name", "role", "example"), [("brier-reward", "estimator", "GroupAdvantage()")])
def test_a_preparation_for_nobody(name: str, role: str, example: str) -> None:
    error = refused(loaded(name), ClippedPolicy())
    assert f"{name} prepares for the {role}, but the chain has none" in error.problem
    assert example in error.remedy


def test_what_is_no_mechanism() -> None:
    assert "ClippedPolicy" in refused(ClippedPolicy).problem  # the class instead of an object of it
    assert "'clipped-policy', which is not a mechanism" in refused("clipped-policy").problem


def test_an_empty_chain_and_one_of_credit_alone_are_fine() -> None:
    assert Chain().mechanisms_of(Stage.LOSS) == ()
    assert Chain((GroupAdvantage(),)).mechanisms_of(Stage.CREDIT) == (GroupAdvantage(),)


def test_a_list_becomes_a_tuple() -> None:
    assert Chain([ClippedPolicy()]) == Chain((ClippedPolicy(),))  # type: ignore[arg-type]  # people will


def test_stages_keep_the_order_and_plus_appends() -> None:
    chain = Chain((ClippedPolicy(),)).plus(ForkThermostat(), GroupAdvantage())
    assert chain.mechanisms_of(Stage.LOSS) == (ClippedPolicy(), ForkThermostat())
    assert chain.mechanisms_of(Stage.CREDIT) == (GroupAdvantage(),)
    with pytest.raises(MechanismError, match="surrogate"):
        chain.plus(ClippedPolicy())


def test_needs_are_named_by_stage_with_who_reads_them() -> None:
    chain = Chain(
        (GroupAdvantage(), loaded("repeat-penalty"), ClippedPolicy(), ForkThermostat(), loaded("forking-tokens"))
    )
    assert chain.needs == {
        "credit.outcomes": ("repeat-penalty",),
        "loss.entropy": ("fork-thermostat", "forking-tokens"),
        "loss.entropy.gradient": ("fork-thermostat",),
    }


def test_toml_both_ways(tmp_path: Path) -> None:
    assert Chain.loads(FULL.dumps()) == FULL
    file = tmp_path / "chain.toml"
    file.write_text(FULL.dumps(), encoding="utf-8")
    assert Chain.load(file) == FULL
    assert Chain.loads("") == Chain()


def test_toml_as_somebody_writes_it() -> None:
    text = """
    seed = 3
    [[mechanisms]]
    kind = "clipped-policy"
    high = 0.28
    [reduction]
    by = "sequence-mean"
    """
    assert Chain.loads(text) == Chain((ClippedPolicy(high=0.28),), Reduction("sequence-mean"), 3)


def test_an_unknown_kind_gets_the_nearest_name() -> None:
    with pytest.raises(CatalogueError) as caught:
        Chain.loads('[[mechanisms]]\nkind = "fork-termostat"')
    assert "no 'fork-termostat' among the mechanisms" in caught.value.problem
    assert "Did you mean 'fork-thermostat'?" in caught.value.remedy


def test_a_misspelt_key_gets_the_nearest_name() -> None:
    with pytest.raises(SettingsError) as caught:
        Chain.loads('[[mechanisms]]\nkind = "clipped-policy"\nhihg = 0.28')
    assert caught.value.problem == "In mechanisms[0]: there is no setting 'hihg'."
    assert "Did you mean 'high'?" in caught.value.remedy


def test_a_table_without_a_kind_lists_them() -> None:
    with pytest.raises(SettingsError) as caught:
        Chain.loads("[[mechanisms]]\nhigh = 0.28")
    assert "has no 'kind'" in caught.value.problem
    assert "clipped-policy" in caught.value.remedy


def test_a_value_of_the_wrong_type_or_outside_its_range() -> None:
    with pytest.raises(SettingsError, match=r"mechanisms\[0\].high: got 'much'"):
        Chain.loads('[[mechanisms]]\nkind = "clipped-policy"\nhigh = "much"')
    with pytest.raises(SettingsError, match="ClippedPolicy got low = 3"):
        Chain.loads('[[mechanisms]]\nkind = "clipped-policy"\nlow = 3')


def test_a_wrong_chain_in_a_file_names_the_file(tmp_path: Path) -> None:
    file = tmp_path / "chain.toml"
    file.write_text('[[mechanisms]]\nkind = "clipped-policy"\nhihg = 0.28', encoding="utf-8")
    with pytest.raises(BrokenFileError) as caught:
        Chain.load(file)
    assert caught.value.path == file
    assert "Did you mean 'high'?" in caught.value.remedy
