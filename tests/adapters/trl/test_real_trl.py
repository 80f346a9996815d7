"""End to end with the real TRL:

a tiny model trained on the CPU, its output folder imported and compared number by number.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")

from breadth.adapters.trl.importer import IMPORTER, TRL_SWITCHES
from breadth.doctor.findings.wrong_advantages import find_rule, read_scored
from breadth.runs.importing import ImportResult, import_files
from breadth.runs.names import match_name
from breadth.runs.reader import Run
from breadth.runs.writer import problem_id

pytestmark = [
    pytest.mark.skipif(find_spec("trl") is None, reason="TRL is not installed (extra 'train')"),
    pytest.mark.filterwarnings(
        "ignore::Warning:(torch|transformers|trl|datasets|accelerate|tokenizers|huggingface_hub)"
    ),
]

WORDS = ["<pad>", "<eos>", "what", "is", "1", "2", "3", "4", "5", "6", "7", "8", "9", "plus", "?", "so"]
STEPS = 6
LOGGED = 1
EVALUATED = 3
GENERATIONS = 4


@dataclass(frozen=True)
class Trained:
    """A finished training run."""

    folder: Path
    history: list[dict[str, Any]]
    printed: str


def tokenizer() -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token="so"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>")


def short_reward(
    completions: list[str], log_extra: Callable[..., None], completion_ids: list[list[int]], **_: Any
) -> list[float]:
    log_extra("tokens", [len(ids) for ids in completion_ids])
    log_extra("token_ids", completion_ids)
    return [1.0 if "2" in completion.split() else 0.25 for completion in completions]


def length_reward(completions: list[str], **_: Any) -> list[float | None]:
    return [None if "?" in completion else len(completion.split()) / 10 for completion in completions]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    import contextlib
    import io

    import torch
    from datasets import Dataset
    from transformers import LlamaConfig, LlamaForCausalLM
    from trl import GRPOConfig, GRPOTrainer

    torch.set_num_threads(1)
    torch.manual_seed(0)
    sizes = LlamaConfig(
        vocab_size=len(WORDS),
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        pad_token_id=0,
        eos_token_id=1,
    )
    folder, start = tmp_path_factory.mktemp("grpo"), tmp_path_factory.mktemp("start")
    LlamaForCausalLM(sizes).save_pretrained(
        start
    )  # with beta, TRL loads the reference policy from where the model came from
    config = GRPOConfig(
        output_dir=str(folder),
        log_completions=True,
        logging_steps=LOGGED,
        max_steps=STEPS,
        per_device_train_batch_size=8,
        per_device_eval_batch_size=8,
        num_generations=GENERATIONS,
        max_completion_length=6,
        save_steps=2,
        eval_strategy="steps",
        eval_steps=EVALUATED,
        beta=0.01,
        temperature=0.9,
        reward_weights=[1.0, 0.5],
        learning_rate=1e-2,
        report_to=[],
        use_cpu=True,
        seed=3,
    )
    questions = Dataset.from_dict(
        {"prompt": [f"what is {one} plus {two} ?" for one in range(1, 5) for two in range(1, 5)]}
    )
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        trainer = GRPOTrainer(
            str(start), [short_reward, length_reward], config, questions, questions.select(range(4)), tokenizer()
        )
        trainer.train()
    trainer.save_state()
    (folder / "grpo_config.json").write_text(config.to_json_string())
    return Trained(folder, trainer.state.log_history, printed.getvalue())


@pytest.fixture(scope="module")
def imported(trained: Trained, tmp_path_factory: pytest.TempPathFactory) -> tuple[ImportResult, Run]:
    target = tmp_path_factory.mktemp("imported") / "run"
    return import_files([trained.folder], target, importers=[IMPORTER]), Run.open(target)


def test_every_number_logged_comes_back_to_the_last_digit(trained: Trained, imported: tuple[ImportResult, Run]) -> None:
    _, run = imported
    compared = 0
    for row in trained.history:
        split = "eval" if any(name.startswith("eval_") for name in row) else "train"
        for name, value in row.items():
            theirs = name.removeprefix("eval_") if split == "eval" else name
            if name in ("step", "epoch"):
                continue
            found = match_name(theirs)
            series = run.series(found[0] if found and run.header.names.get(found[0]) == theirs else theirs, split)
            ours = dict(zip(series.steps.tolist(), series.values.tolist(), strict=True))[row["step"]]
            assert ours == value or (math.isnan(ours) and value is None), name
            compared += 1
    assert compared > 100
    assert run.series("entropy").steps.tolist() == [1, 2, 3, 4, 5, 6]
    assert run.series("reward", "eval").steps.tolist() == [3, 6]


def test_rollouts_are_those_of_the_parquet_files(trained: Trained, imported: tuple[ImportResult, Run]) -> None:
    got, run = imported
    files = sorted((trained.folder / "completions").glob("*.parquet"))
    assert [file.name for file in files] == [f"completions_0000{step}.parquet" for step in range(1, STEPS + 1)]
    wanted = [row for file in files for row in pq.read_table(file).to_pylist()]
    found = run.query('SELECT * FROM rollouts JOIN problems USING (problem) ORDER BY step, "group", sample').to_pylist()
    assert got.rollouts == len(wanted) == len(found) == 48
    for theirs, ours in zip(wanted, found, strict=True):
        assert (ours["step"], ours["prompt"], ours["completion"]) == (
            theirs["step"],
            theirs["prompt"],
            theirs["completion"],
        )
        assert ours["problem"] == problem_id(theirs["prompt"])
        assert ours["advantage"] == theirs["advantage"]
        assert ours["reward/short_reward"] == theirs["short_reward"]
        assert ours["reward/length_reward"] == theirs["length_reward"]
        assert ours["reward"] == theirs["short_reward"] + 0.5 * (theirs["length_reward"] or 0.0)
        assert ours["tokens"] == len(theirs["token_ids"]) == len(ours["token_ids"])
        assert ours["split"] == ("eval" if theirs["step"] in (3, 6) else "train")


def test_groups_are_trls_own(imported: tuple[ImportResult, Run]) -> None:
    _, run = imported
    groups = run.query(
        'SELECT "group", count(*) AS rows, count(DISTINCT problem) AS of, max(sample) AS last FROM rollouts GROUP BY 1'
    )
    assert groups.column("rows").to_pylist() == [GENERATIONS] * 12
    assert groups.column("of").to_pylist() == [1] * 12
    assert groups.column("last").to_pylist() == [GENERATIONS - 1] * 12


def test_rewards_and_groups_explain_the_advantages(imported: tuple[ImportResult, Run]) -> None:
    """TRL: advantage = (reward - mean of the group) / (standard deviation of the group + 1e-4), in single precision."""
    _, run = imported
    rows = run.query(
        """SELECT advantage, (reward - avg(reward) OVER g) / (stddev_samp(reward) OVER g + 1e-4) AS expected
        FROM rollouts WINDOW g AS (PARTITION BY "group")"""
    ).to_pylist()
    assert len(rows) == 48
    for row in rows:
        assert row["advantage"] == pytest.approx(row["expected"], abs=1e-5)


def test_the_doctor_recognises_the_rule_of_the_advantages(imported: tuple[ImportResult, Run]) -> None:
    _, run = imported
    scored = read_scored(run)
    assert len(scored) == 32  # of the four steps that were not evaluated
    assert find_rule(scored, 0.99) == "the z-scores of each group (GRPO)"


def test_mean_reward_of_the_rollouts_is_the_one_logged(trained: Trained, imported: tuple[ImportResult, Run]) -> None:
    _, run = imported
    means = run.query(
        "SELECT step, avg(reward) AS mean FROM rollouts WHERE split = 'train' GROUP BY 1 ORDER BY 1"
    ).to_pylist()
    assert [row["step"] for row in means] == [1, 2, 4, 5]
    logged = {row["step"]: row["reward"] for row in trained.history if "reward" in row}
    for row in means:
        assert row["mean"] == pytest.approx(logged[row["step"]], abs=1e-6)


def test_the_settings_are_seen_and_the_pickle_is_refused(imported: tuple[ImportResult, Run]) -> None:
    got, run = imported
    assert run.header.trainer == "trl"
    assert run.header.config["num_generations"] == GENERATIONS
    assert run.header.config["logging_steps"] == LOGGED
    kind = run.header.entropies["entropy"]
    assert (kind.estimator, kind.aggregation, kind.token_set, kind.temperature) == (
        "exact",
        "token-mean",
        "response",
        0.9,
    )
    refused = [remark for remark in got.remarks if remark.file.endswith("training_args.bin")]
    assert len(refused) == 1
    assert "to_json_string" in refused[0].remedy
    assert any("taken as held-out" in remark.problem for remark in got.remarks)
    assert not any("plain sum" in remark.problem for remark in got.remarks), "the weights are in grpo_config.json"


def test_the_console_output_gives_the_same_rows(trained: Trained, tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text(trained.printed)
    import_files([log], tmp_path / "run", importers=[IMPORTER])
    run = Run.open(tmp_path / "run")
    rows = [row for row in trained.history if "reward" in row]
    assert run.series("reward").steps.tolist() == [row["step"] for row in rows]
    assert run.series("reward").values.tolist() == [float(f"{row['reward']:.4g}") for row in rows]
    assert run.series("entropy").values.tolist() == [float(f"{row['entropy']:.4g}") for row in rows]
    assert run.series("reward", "eval").steps.tolist() == [3, 6]


def test_the_switches_name_settings_that_exist() -> None:
    from trl import GRPOConfig

    named = re.findall(r"GRPOConfig\(([^)]*)\)", " ".join(TRL_SWITCHES.values()))
    settings = {pair.split("=")[0].strip() for group in named for pair in group.split(",")}
    assert settings == {"log_completions"}
    assert settings <= GRPOConfig.__dataclass_fields__.keys()
