"""The list of models."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from breadth.base.errors import BreadthError, ServerError, SettingsError
from breadth.base.settings import dump
from breadth.inference.policy import Policy
from breadth.inference.records import Budget, Prices, Sampling
from breadth.inference.strategies.adaptive_vote import AdaptiveVote
from breadth.inference.strategies.single import Single
from breadth.inference.strategies.vote import Vote
from breadth.runtime.proxy.errors import ApiError
from breadth.runtime.proxy.routing import ModelCache, Policies, models_body


def test_the_servers_own_a_named_one_and_one_written_out(tmp_path: Path) -> None:
    file = tmp_path / "careful.toml"
    dump(Policy(strategy=Vote(n=5), sampling=Sampling(temperature=0.3)), file)
    policies = Policies.parse("single", [f"careful={file}", "quick=vote,n=3"], client_policies=True)
    assert policies.choose("").policy.strategy == Single()
    careful = policies.choose("careful")
    assert (careful.policy.strategy, careful.label, careful.sets_sampling) == (Vote(n=5), "careful", True)
    quick = policies.choose(" quick ")
    assert (quick.policy.strategy, quick.label, quick.sets_sampling) == (Vote(n=3), "quick", False)
    written = policies.choose("adaptive-vote,most=4")
    assert (written.policy.strategy, written.label) == (AdaptiveVote(most=4), "adaptive-vote")


@pytest.mark.parametrize(
    "text", ["/etc/passwd", "x.toml", "X.TOML ", "vote,n=3.toml", "a" * 1000, "..", "vote.toml,n=2"]
)
def test_no_file_is_read_for_a_request(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> str:
        raise AssertionError("a file was read")

    policies = Policies.parse("single")
    monkeypatch.setattr(Path, "read_text", never)
    with pytest.raises(ApiError) as caught:
        policies.choose(text)
    assert (caught.value.status, caught.value.param) == (400, "breadth.policy")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("adaptve-vote", "'adaptive-vote'"),
        ("carefull", "'careful'"),
        ("vote,m=3", "m"),
        ("vote,n", "n"),
        ("vote,n=many", "n"),
        ("vote,n=0", "n = 0"),
        ("vote,n=1,n.x=3", "vote"),
        ("adaptive-vote,stop.kind=nonsense", "nonsense"),
    ],
)
def test_a_policy_that_is_none_says_what_was_meant(text: str, said: str) -> None:
    with pytest.raises(ApiError) as caught:
        Policies.parse("single", ["careful=vote"], client_policies=True).choose(text)
    assert caught.value.status == 400
    assert said in caught.value.message


def test_a_request_cannot_ask_for_more_draws_than_the_server_makes() -> None:
    policies = Policies.parse("vote,n=500", max_samples=64, client_policies=True)
    assert policies.choose("").policy.strategy == Vote(n=500)  # the operator's own word
    assert policies.choose("vote,n=64").policy.strategy == Vote(n=64)
    for text in ("vote,n=65", "adaptive-vote,width=100000", "adaptive-vote,stop.kind=lead,stop.votes=1000"):
        with pytest.raises(ApiError, match="at most 64"):
            policies.choose(text)


STRICT = Policy(
    strategy=Vote(n=2),
    sampling=Sampling(temperature=0.3, max_tokens=20),
    budget=Budget(calls=2, output_tokens=40, seconds=9.0, money=0.5),
    prices=Prices(output=1.0),
    model="m",
    system="Be brief.",
)


def test_a_strategy_in_words_changes_the_strategy_of_the_servers_policy_and_nothing_else(tmp_path: Path) -> None:
    dump(STRICT, tmp_path / "own.toml")
    policies = Policies.parse(str(tmp_path / "own.toml"), ["cheap=single"], client_policies=True)
    for text, strategy in (("cheap", Single()), ("single", Single()), ("vote,n=1", Vote(n=1))):
        chosen = policies.choose(text)
        assert chosen.policy == replace(STRICT, strategy=strategy)
        assert chosen.sets_sampling
    for text in ("vote,n=3", "adaptive-vote,most=256"):
        with pytest.raises(ApiError, match="at most 2 times"):
            policies.choose(text)


def test_an_added_file_has_its_own_ceilings_and_takes_those_it_leaves_out(tmp_path: Path) -> None:
    dump(STRICT, tmp_path / "own.toml")
    dump(Policy(strategy=Vote(n=9), budget=Budget(calls=9), system="Think."), tmp_path / "more.toml")
    dump(Policy(strategy=Vote(n=2)), tmp_path / "bare.toml")
    files = [f"{name}={tmp_path / name}.toml" for name in ("more", "bare")]
    policies = Policies.parse(str(tmp_path / "own.toml"), files)
    more, bare = policies.choose("more").policy, policies.choose("bare").policy
    assert more.budget == replace(STRICT.budget, calls=9)
    assert (more.system, more.model) == ("Think.", "m")
    assert (bare.budget, bare.system) == (STRICT.budget, "Be brief.")


def test_money_is_limited_at_one_price_or_refused_at_the_start(tmp_path: Path) -> None:
    dump(Policy(prices=Prices(output=1.0), budget=Budget(money=0.5)), tmp_path / "dear.toml")
    with pytest.raises(SettingsError, match="other prices"):
        Policies.parse("single", [f"dear={tmp_path / 'dear.toml'}"])
    Policies.parse(str(tmp_path / "dear.toml"), [f"dear={tmp_path / 'dear.toml'}"])


def test_a_request_writes_its_own_policy_only_where_the_operator_allows_it() -> None:
    policies = Policies.parse("vote,n=2", ["careful=vote,n=5"])
    assert policies.choose("careful").policy.strategy == Vote(n=5)
    for text in ("vote,n=256", "single", "vote"):
        with pytest.raises(ApiError, match="careful") as caught:
            policies.choose(text)
        assert (caught.value.status, caught.value.code) == (403, "policy_not_allowed")
    with pytest.raises(ApiError) as caught:
        policies.choose("carefull")
    assert (caught.value.status, "'careful'" in caught.value.message) == (400, True)
    assert "vote" not in policies.names


@pytest.mark.parametrize("named", ["careful", "=vote", "vote=single", "a b=vote", "a@b=vote", "x=nothing"])
def test_a_name_must_be_a_name_of_a_policy_and_of_no_strategy(named: str) -> None:
    with pytest.raises(BreadthError):
        Policies.parse("single", [named])


def test_a_bad_policy_of_the_operators_is_refused_at_the_start() -> None:
    with pytest.raises(BreadthError, match="adaptive-vote"):
        Policies.parse("adaptve-vote")
    with pytest.raises(SettingsError, match="--add-policy"):
        Policies.parse("single", ["vote=single"])


@pytest.mark.parametrize(
    ("model", "parts"),
    [
        ("smollm2", ("smollm2", "")),
        ("smollm2@adaptive-vote,most=4", ("smollm2", "adaptive-vote,most=4")),
        ("org/m@2024@vote", ("org/m@2024", "vote")),
        ("claude@20240229", ("claude@20240229", "")),
        ("@cf/meta/llama", ("@cf/meta/llama", "")),
        ("m@", ("m", "")),
        ("", ("", "")),
    ],
)
def test_a_models_suffix_is_a_policy_unless_the_upstream_has_that_name(model: str, parts: tuple[str, str]) -> None:
    assert Policies.parse("single").split(model, ["claude@20240229"]) == parts


def test_every_model_stands_there_plain_and_under_every_named_policy() -> None:
    ids = [entry["id"] for entry in models_body(["a", "b"], ["careful", "quick"])["data"]]
    assert ids == ["a", "b", "a@careful", "b@careful", "a@quick", "b@quick"]


def test_the_upstream_is_asked_again_only_when_the_list_is_old() -> None:
    asked = 0

    async def ask() -> list[str]:
        nonlocal asked
        asked += 1
        return [f"model-{asked}"]

    async def main() -> None:
        known = ModelCache(ask)
        assert [await known.get(), await known.get()] == [["model-1"]] * 2
        assert await known.get(-1.0) == ["model-2"]
        known.fetched_at -= 31.0
        assert [await known.get(60.0), await known.get()] == [["model-2"], ["model-3"]]

    asyncio.run(main())


def test_those_who_ask_together_share_one_question_and_its_failure() -> None:
    asked = 0

    async def ask() -> list[str]:
        nonlocal asked
        asked += 1
        await asyncio.sleep(0.01)
        if asked == 1:
            raise ServerError("nobody there", "start it")
        return ["a"]

    async def main() -> None:
        known = ModelCache(ask)
        failed = await asyncio.gather(*(known.get() for _ in range(20)), return_exceptions=True)
        assert {type(one) for one in failed} == {ServerError}
        assert await asyncio.gather(*(known.get() for _ in range(20))) == [["a"]] * 20
        assert asked == 2
        impatient = asyncio.create_task(known.get(-1.0))
        await asyncio.sleep(0)
        impatient.cancel()
        assert await known.get(-1.0) == ["a"]
        assert asked == 3
        await known.close()

    asyncio.run(main())
