"""Configurations merged and translated; what the user set counts first. Patches for servers and policy.toml."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from breadth.adapters.axolotl import TOP_LEVEL
from breadth.adapters.nemo_rl import NEMO_RL_FIELDS
from breadth.adapters.openrlhf import DEFAULTS as OPENRLHF_DEFAULTS
from breadth.adapters.openrlhf import OPENRLHF_FIELDS
from breadth.adapters.roll import ROLL_DEFAULTS, ROLL_FIELDS
from breadth.adapters.skyrl import SKYRL_DEFAULTS, SKYRL_FIELDS
from breadth.adapters.slime import SLIME_DEFAULTS, SLIME_FIELDS
from breadth.adapters.trl.config import TRL_DEFAULTS as TRL_DEFAULTS
from breadth.adapters.trl.config import TRL_FIELDS as TRL_FIELDS
from breadth.adapters.verl.names import VERL_DEFAULTS, VERL_FIELDS
from breadth.base.settings import loads
from breadth.doctor.evidence.record import Evidence
from breadth.doctor.finding import Change, Finding
from breadth.doctor.findings import contradictory_settings, no_op_settings, wrong_units
from breadth.doctor.trainer_config import (
    DIALECTS,
    POLICY_DIALECT,
    SETTING_NAMES,
    Conflict,
    ServerPatch,
    TrainerConfig,
    UnusedSetting,
    dialect_of,
    merge_configs,
)
from breadth.inference.halting import Loop
from breadth.inference.policy import Policy
from breadth.inference.strategies.adaptive_vote import AdaptiveVote
from breadth.inference.strategies.single import Single
from breadth.runs.importer import IMPORTERS
from breadth.runtime.dialect import SERVER_DIALECTS as SERVERS


def test_on_policy_is_one_update_or_less_and_not_known_without() -> None:
    assert [TrainerConfig(updates=updates).on_policy for updates in (None, 0.25, 1, 1.5, 4)] == [
        None,
        True,
        True,
        False,
        False,
    ]


def test_how_the_user_wrote_a_knob() -> None:
    config = TrainerConfig(clip_high=0.28, user_settings={"clip_high": "epsilon_high=0.28"})
    assert config.describe("clip_high") == "epsilon_high=0.28"
    assert config.describe("clip_low") == "clip low left at its default"


def test_what_the_user_set_counts_before_a_default_and_the_first_before_the_second() -> None:
    first = TrainerConfig(group=8, temperature=1.0, top_p=None, kl=0.1, user_settings={"kl": "beta=0.1"})
    second = TrainerConfig(
        group=4, temperature=0.7, top_p=0.9, kl=0.2, user_settings={"group": "num_generations=4", "kl": "beta=0.2"}
    )
    both = merge_configs(first, second)
    assert (both.group, both.temperature, both.top_p, both.kl) == (4, 1.0, 0.9, 0.1)
    assert both.user_settings == {"group": "num_generations=4", "kl": "beta=0.1"}


def test_remarks_of_both_are_kept_once() -> None:
    idle, clash = UnusedSetting("a=1", "off", intended=True), Conflict("b=2", "no", "wrong")
    both = merge_configs(
        TrainerConfig(unused=(idle,), text_numbers={"a": "1e-6"}),
        TrainerConfig(unused=(idle,), conflicts=(clash,), text_numbers={"b": "2e-6"}),
    )
    assert (both.unused, both.conflicts, both.text_numbers) == ((idle,), (clash,), {"a": "1e-6", "b": "2e-6"})


def test_every_knob_is_not_known_until_it_is() -> None:
    assert all(getattr(TrainerConfig(), name) is None for name in SETTING_NAMES)


SAMPLES = {
    "loss": "vanilla",
    "aggregation": "token-mean",
    "engine": "vllm",
    "estimator": "grpo",
    "covariance": "kl-cov",
    "filter_metric": "acc",
    "chain": "kl_cov",
    "thinking_budget": 512,
    "votes": 8,
    "vote_confidence": False,
    "max_tokens": 1024,
    "top_logprobs": 20,
    "logprobs_raw": True,
    "loop_guard": True,
}
SWITCHES = (
    "mask_truncated",
    "dynamic_sampling",
    "correct_mismatch",
    "logs_rollouts",
    "entropy_adaptive",
    "sequence_ratio",
    "length_penalty",
    "clips",
)
CHANGES = [
    Change(knob, SAMPLES.get(knob, True if knob in SWITCHES else 2)) for knob in sorted(SETTING_NAMES | SAMPLES.keys())
]


@pytest.mark.parametrize("name", DIALECTS.names())
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.setting)
def test_any_change_is_worded_in_single_lines_or_left_out(name: str, change: Change) -> None:
    dialect = DIALECTS.load(name)
    lines = dialect.patch([change], TrainerConfig())
    assert isinstance(lines, tuple)
    assert all(line and "\n" not in line for line in lines)
    assert dialect.trainer == name


@pytest.mark.parametrize("name", DIALECTS.names())
def test_nothing_is_recognised_in_nothing(name: str, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("")
    dialect = DIALECTS.load(name)
    assert not dialect.recognises(tmp_path / "a.yaml", b"")
    assert dialect.translate({}).user_settings == {}
    assert dialect.patch([], TrainerConfig()) == ()


def test_names_are_those_of_importers_and_servers() -> None:
    assert {"trl", "verl"} <= set(IMPORTERS.names()) & set(DIALECTS.names())
    assert set(SERVERS.names()) - {"openai"} <= set(DIALECTS.names())
    assert DIALECTS.family != SERVERS.family  # else a plug-in of one would turn up in the other


def test_a_trainer_that_nobody_speaks_has_no_dialect() -> None:
    assert dialect_of("torchforge") is None
    found = dialect_of("trl")
    assert found is not None
    assert found.trainer == "trl"


VALUES = some.one_of(
    some.integers(),
    some.floats(),
    some.booleans(),
    some.none(),
    some.text(max_size=12),
    some.just({"expr": "args.x"}),
    some.lists(some.integers(), max_size=3),
    some.just({"num_generations": 8, "epsilon_high": "$X", "delta": 3.0, 5: "x"}),
    some.sampled_from(["$X", "1e-6", "10" * 200, "grpo", "cispo", "kl_cov", "gspo", "dapo", "naive", "\x1b[31m"]),
    some.sampled_from(["list(range(0,16))", "megatron_train", "clip_cov", "reinforce_plus_plus", "seq"]),
    some.just(10**400),
)
READ = {
    "trl": sorted(
        {
            *TRL_DEFAULTS,
            *TRL_FIELDS.values(),
            "steps_per_generation",
            "generation_batch_size",
            "scale_rewards",
            "reward_weights",
        }
    ),
    "verl": sorted(
        {*VERL_DEFAULTS, *VERL_FIELDS.values(), "trainer.n_gpus_per_node", "trainer.nnodes", "defaults", "config_name"}
    ),
    "openrlhf": sorted({*OPENRLHF_DEFAULTS, *OPENRLHF_FIELDS.values(), "algo.dynamic_filtering_range"}),
    "skyrl": sorted({*SKYRL_DEFAULTS, *SKYRL_FIELDS.values(), "data.val_data"}),
    "roll": sorted({*ROLL_DEFAULTS, *ROLL_FIELDS.values(), "sequence_length", "actor_train.device_mapping"}),
    "slime": sorted({*SLIME_DEFAULTS, *SLIME_FIELDS.values(), "global_batch_size", "num_steps_per_rollout"}),
    "axolotl": sorted({*TOP_LEVEL, "trl"}),
    "nemo-rl": sorted({*NEMO_RL_FIELDS.values(), "policy.train_global_batch_size", "policy.max_total_sequence_length"}),
}
CHECKS = (no_op_settings.FINDING, contradictory_settings.FINDING, wrong_units.FINDING)


@pytest.mark.parametrize("name", READ)
@settings(max_examples=60, deadline=None)
@given(data=some.data())
def test_whatever_stands_in_a_file_is_judged_and_patched_without_breaking(name: str, data: some.DataObject) -> None:
    dialect = DIALECTS.load(name)
    config = data.draw(some.dictionaries(some.sampled_from(READ[name]), VALUES, max_size=12))
    settings = dialect.translate(config)
    for check in CHECKS:
        outcome = check.check(Evidence("config", None, settings, dialect))
        if isinstance(outcome, Finding):
            assert outcome.headline.isprintable()
            for prescription in outcome.prescriptions:
                dialect.patch(prescription.changes, settings)
    dialect.patch(CHANGES, settings)


WORDS = ServerPatch(
    "mine",
    {"votes": lambda count: {"n": count}},
    {"votes": lambda _: ["--many"], "loop_guard": lambda _: ["--many", "--guard"]},
)


def test_fields_and_flags() -> None:
    changes = [Change("votes", 3), Change("loop_guard", True), Change("max_tokens", 9), Change("unknown", 1)]
    assert WORDS.patch(changes, TrainerConfig()) == ('request: {"n": 3, "max_tokens": 9}', "server: --many --guard")
    assert WORDS.patch([Change("loop_guard", False)], TrainerConfig()) == ()


def test_it_has_no_file_to_read(tmp_path: Path) -> None:
    assert not WORDS.recognises(tmp_path / "a.yaml", b"mine")
    assert WORDS.read(tmp_path) == {}
    assert WORDS.translate({"n": 3}) == TrainerConfig()


def policy(*changes: Change) -> Policy:
    return loads(Policy, "\n".join(POLICY_DIALECT.patch(changes, TrainerConfig())))


def test_everything_at_once_loads_as_it_was_meant() -> None:
    found = policy(
        Change("thinking_budget", 512),
        Change("votes", 16),
        Change("max_tokens", 2048),
        Change("top_logprobs", 20),
        Change("loop_guard", True),
        Change("temperature", 0.7),
        Change("top_p", 1.0),
    )
    assert isinstance(found.strategy, AdaptiveVote)
    assert found.strategy.most == 16
    assert (found.sampling.thinking_tokens, found.sampling.max_tokens, found.sampling.top_logprobs) == (512, 2048, 20)
    assert (found.sampling.temperature, found.sampling.top_p) == (0.7, 1.0)
    assert isinstance(found.halt, Loop)


def test_one_vote_is_no_vote_and_confidences_are_left_out_of_one() -> None:
    assert isinstance(policy(Change("votes", 1)).strategy, Single)
    assert isinstance(policy(Change("vote_confidence", False)).strategy, AdaptiveVote)
    both = policy(Change("vote_confidence", False), Change("votes", 12)).strategy
    assert isinstance(both, AdaptiveVote)
    assert both.most == 12


def test_what_is_the_server_s_or_a_trainer_s_is_left_out() -> None:
    assert (
        POLICY_DIALECT.patch(
            [Change("logprobs_raw", True), Change("clip_high", 0.28), Change("loop_guard", False)], TrainerConfig()
        )
        == ()
    )
