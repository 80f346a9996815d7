"""Every dialect of the catalogue loads, keeps to the protocol and words any change without breaking."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from breadth.adapters.nemo_rl.config import FIELDS as NEMO_FIELDS
from breadth.adapters.openrlhf.config import DEFAULTS as OPENRLHF_DEFAULTS
from breadth.adapters.openrlhf.config import FIELDS as OPENRLHF_FIELDS
from breadth.adapters.trl.config import DEFAULTS as TRL_DEFAULTS
from breadth.adapters.trl.config import FIELDS as TRL_FIELDS
from breadth.adapters.verl.config import DEFAULTS as VERL_DEFAULTS
from breadth.adapters.verl.config import FIELDS as VERL_FIELDS
from breadth.doctor.dialects import DIALECTS, dialect_of
from breadth.doctor.evidence import Evidence
from breadth.doctor.finding import Change, Finding
from breadth.doctor.findings import contradictory_settings, no_op_settings, wrong_units
from breadth.doctor.knobs import NAMES, Knobs
from breadth.runs.importer import IMPORTERS
from breadth.runtime.dialect import DIALECTS as SERVERS

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
    "filter_flat",
    "correct_mismatch",
    "logs_rollouts",
    "entropy_adaptive",
    "sequence_ratio",
    "length_penalty",
    "clips",
)
CHANGES = [Change(knob, SAMPLES.get(knob, True if knob in SWITCHES else 2)) for knob in sorted(NAMES | SAMPLES.keys())]


@pytest.mark.parametrize("name", DIALECTS.names())
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.knob)
def test_any_change_is_worded_in_single_lines_or_left_out(name: str, change: Change) -> None:
    dialect = DIALECTS.load(name)
    lines = dialect.patch([change], Knobs())
    assert isinstance(lines, tuple)
    assert all(line and "\n" not in line for line in lines)
    assert dialect.trainer == name


@pytest.mark.parametrize("name", DIALECTS.names())
def test_nothing_is_recognised_in_nothing(name: str, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("")
    dialect = DIALECTS.load(name)
    assert not dialect.recognises(tmp_path / "a.yaml", b"")
    assert dialect.knobs({}).theirs == {}
    assert dialect.patch([], Knobs()) == ()


def test_names_are_those_of_importers_and_servers() -> None:
    assert {"trl", "verl"} <= set(IMPORTERS.names()) & set(DIALECTS.names())
    assert set(SERVERS.names()) - {"openai"} <= set(DIALECTS.names())
    assert DIALECTS.family != SERVERS.family  # else a plug-in of one would turn up in the other


def test_a_trainer_that_nobody_speaks_has_no_dialect() -> None:
    assert dialect_of("skyrl") is None
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
    some.sampled_from(["$X", "1e-6", "10" * 200, "grpo", "cispo", "kl_cov", "gspo", "dapo", "naive", "\x1b[31m"]),
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
    "nemo-rl": sorted({*NEMO_FIELDS.values(), "policy.train_global_batch_size", "policy.max_total_sequence_length"}),
}
CHECKS = (no_op_settings.FINDING, contradictory_settings.FINDING, wrong_units.FINDING)


@pytest.mark.parametrize("name", READ)
@settings(max_examples=60, deadline=None)
@given(data=some.data())
def test_whatever_stands_in_a_file_is_judged_and_patched_without_breaking(name: str, data: some.DataObject) -> None:
    dialect = DIALECTS.load(name)
    config = data.draw(some.dictionaries(some.sampled_from(READ[name]), VALUES, max_size=12))
    knobs = dialect.knobs(config)
    for check in CHECKS:
        outcome = check.check(Evidence("config", None, knobs, dialect))
        if isinstance(outcome, Finding):
            assert outcome.headline.isprintable()
            for prescription in outcome.prescriptions:
                dialect.patch(prescription.changes, knobs)
    dialect.patch(CHANGES, knobs)
