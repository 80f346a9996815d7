"""``breadth measure mi`` on a run folder, with a tiny model of random weights."""

from __future__ import annotations

import json
import math
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from breadth.adapters.transformers import Traces, load_scorer, read_traces
from breadth.cli.measure import build_page, measure_traces
from breadth.measure.mutual_information import prompt_information
from breadth.report.sections import Table
from breadth.runs.reader import Run
from breadth.runs.schema import Header
from breadth.runs.writer import RunWriter

Command = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a model with a tokenizer of single letters."""
    import torch
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    letters = ["<end>", *"abcdefgh "]
    backend = Tokenizer(models.WordLevel({letter: number for number, letter in enumerate(letters)}, unk_token="<end>"))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    torch.manual_seed(0)
    sizes = LlamaConfig(
        vocab_size=len(letters),
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=64,
        bos_token_id=None,
        eos_token_id=0,
    )
    folder = tmp_path_factory.mktemp("models") / "tiny"
    LlamaForCausalLM(sizes).save_pretrained(folder)
    PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<end>").save_pretrained(folder)
    return folder


@pytest.fixture
def run(tmp_path: Path) -> Path:
    writer = RunWriter(tmp_path / "run", Header(name="small"))
    for step in (1, 2, 3):
        texts = ["ab", "ba", "cd", "dc"] if step == 1 else ["gh"] * 4
        writer.rollouts({"problem": ["p", "p", "q", "q"], "sample": [0, 1, 0, 1], "completion": texts}, step)
    writer.problems({"problem": ["p", "q"], "prompt": ["a b", "c d"]})
    return writer.folder


def test_numbers_come_by_name(breadth: Command, run: Path, model: Path) -> None:
    done = breadth("measure", "mi", run, "--model", model, "--json")
    assert done.returncode == 0, done.stderr
    places = json.loads(done.stdout)["places"]
    scorer = load_scorer(str(model))
    for place, step in (("first", 1), ("last", 3)):
        traces = read_traces(Run.open(run), place, 16, 4)
        alone = prompt_information(scorer.cross_score(traces, 512), traces.own)
        assert places[place]["mutual_information"]["value"] == pytest.approx(alone.mutual_information.value, abs=1e-4)
        assert places[place]["limit"] == pytest.approx(math.log(2))
        assert (places[place]["first"], places[place]["last"]) == (step, step)
        assert (places[place]["prompts"], places[place]["traces"]) == (2, 4)


def test_the_page_shows_one_row_for_each_place(breadth: Command, run: Path, model: Path) -> None:
    done = breadth("measure", "mi", run, "--model", model, "--steps", "2", "--samples", 1)
    assert done.returncode == 0, done.stderr
    assert "2 to 2" in done.stdout
    assert "1 to 1" not in done.stdout


def test_completions_without_tokens_are_left_out(model: Path) -> None:
    traces = Traces(("a b", "c d"), ("ab", "", "cd"), (0, 0, 1), 1, 4)
    found = measure_traces(load_scorer(str(model)), traces, 9)
    assert (found.prompts, found.traces) == (2, 2)
    (table, _) = build_page("mine", "tiny", {"first": traces}, {"first": found}).sections
    assert isinstance(table, Table)
    assert [len(row) for row in table.rows] == [len(table.columns)]
    assert np.isfinite(found.mutual_information.value)


def test_a_run_without_rollouts_says_what_is_missing(breadth: Command, log: Path, model: Path) -> None:
    done = breadth("measure", "mi", log, "--model", model)
    assert done.returncode == 2
    assert "no rollouts" in done.stderr
