"""A policy by file or by name, with settings; what is misspelt is named with what was meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from breadth.base.errors import BrokenFileError, CatalogueError, SettingsError
from breadth.base.settings import dump
from breadth.inference.halting import Loop
from breadth.inference.policy import Policy
from breadth.inference.records import Budget, Sampling
from breadth.inference.stopping.rule import Lead
from breadth.inference.strategies.adaptive_vote import AdaptiveVote
from breadth.inference.strategies.single import Single


def test_a_name_is_a_strategy_with_its_defaults() -> None:
    assert Policy.parse("adaptive-vote") == Policy()
    assert Policy.parse("single").strategy == Single()


def test_settings_follow_the_name() -> None:
    named = Policy.parse("adaptive-vote, most=16, stop.kind=lead, stop.votes=2").strategy
    assert named == AdaptiveVote(most=16, stop=Lead(2))


def test_a_file_holds_everything(tmp_path: Path) -> None:
    policy = Policy(
        AdaptiveVote(most=9),
        Sampling(temperature=0.9, stop=("\n\n",)),
        budget=Budget(output_tokens=500),
        system="Be brief.",
    )
    dump(policy, tmp_path / "policy.toml")
    assert Policy.parse(str(tmp_path / "policy.toml")) == policy


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        ("adaptve-vote", CatalogueError, "Did you mean 'adaptive-vote'"),
        ("adaptive-vote,mst=3", SettingsError, "Did you mean 'most'"),
        ("adaptive-vote,most=many", SettingsError, "need int"),
        ("adaptive-vote,most=0", SettingsError, "at least one sample"),
        ("adaptive-vote,most", SettingsError, "<setting>=<value>"),
        ("adaptive-vote,stop.kind=leed", CatalogueError, "lead"),
        ("", CatalogueError, "strategies"),
        ("adaptive-vote,stop=3,stop.kind=lead", SettingsError, "'stop' is given a value and settings of its own"),
        ("adaptive-vote,most=" + "9" * 5000, SettingsError, "need int"),
        ("adaptive-vote,most=" + "[" * 5000, SettingsError, "need int"),
        ("nowhere.toml", BrokenFileError, "nowhere.toml: cannot be read"),
    ],
)
def test_what_is_wrong_is_named(text: str, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said.replace("(", r"\(")):
        Policy.parse(text)


def test_a_bad_file_is_named_with_its_setting(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text('[strategy]\nkind = "adaptive-vote"\nmots = 3\n', encoding="utf-8")
    with pytest.raises(BrokenFileError, match="mots"):
        Policy.parse(str(path))


def test_a_question_becomes_a_chat_with_what_the_model_is_told_first() -> None:
    task = Policy(system="Be brief.", model="m").task("6 x 7?", name="q", seed=5)
    assert task.prompt == ({"role": "system", "content": "Be brief."}, {"role": "user", "content": "6 x 7?"})
    assert (task.model, task.seed, task.question) == ("m", 5, "6 x 7?")
    chat = ({"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"})
    assert Policy().task(chat).prompt == chat


def test_a_policy_may_cut_what_repeats_itself(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text('[halt]\nkind = "loop"\nleast = 60\n', encoding="utf-8")
    policy = Policy.parse(str(path))
    assert policy.halt == Loop(least=60)
    assert policy.task("q").halt == Loop(least=60)
    dump(policy, path)
    assert Policy.parse(str(path)) == policy
