"""Scores of a tiny random model against one pass per pair; what is read of a run; what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from breadth.adapters import transformers as adapter
from breadth.adapters.transformers import TextScorer, Traces, find_steps, load_scorer, read_traces
from breadth.base.errors import BrokenFileError, MissingExtraError, SettingsError
from breadth.runs.reader import Run
from breadth.runs.schema import Header
from breadth.runs.writer import RunWriter

PROMPTS = ("add one", "b", "count the letters of this")
REPLIES = ("yes", "I count seven of them", "no", "one")
BOUND = 1e-4
"""Far above float32's epsilon (1.2e-7) times the terms of a sum here (64) and the size of a score (below 10)."""


def make_model(**settings: Any) -> Any:
    torch.manual_seed(0)
    sizes = transformers.LlamaConfig(
        vocab_size=257,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=128,
        initializer_range=0.3,
        eos_token_id=256,
        bos_token_id=None,
        **settings,
    )
    return transformers.LlamaForCausalLM(sizes).eval()


def make_tokenizer(**settings: Any) -> Any:
    """Return a tokenizer whose tokens are bytes."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    numbers = {letter: place for place, letter in enumerate(letters)}
    backend = Tokenizer(models.BPE(numbers | {"<end>": 256}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<end>", **settings)


@pytest.fixture(scope="module")
def scorer() -> TextScorer:
    torch.set_num_threads(1)
    return TextScorer(make_model(), make_tokenizer())


def score_pair(scorer: TextScorer, prompt: str, reply: str) -> float:
    """Score one reply after one prompt: no batch, no padding, no mask."""
    context, ids = (scorer.tokenizer(text)["input_ids"] for text in (prompt, reply))
    with torch.no_grad():
        logprobs = scorer.model(torch.tensor([context + ids])).logits[0].log_softmax(-1)
    return float(np.mean([float(logprobs[len(context) + at - 1, token]) for at, token in enumerate(ids)]))


def test_scores_are_those_of_each_pair_alone(scorer: TextScorer) -> None:
    scores = scorer.cross_score(Traces(PROMPTS, REPLIES, (0, 1, 2, 2), 1, 1), 100)
    expected = [[score_pair(scorer, prompt, reply) for prompt in PROMPTS] for reply in REPLIES]
    assert scores == pytest.approx(np.array(expected), abs=BOUND)
    assert np.ptp(scores) > 100 * BOUND  # or the comparison would say nothing


def test_the_size_of_a_batch_changes_nothing(scorer: TextScorer, monkeypatch: pytest.MonkeyPatch) -> None:
    traces = Traces(PROMPTS, REPLIES, (0, 1, 2, 2), 1, 1)
    together = scorer.cross_score(traces, 100)
    monkeypatch.setattr(adapter, "MAX_BATCH_SCORES", 1)
    replies = [[1, 2, 3], [], [4], [5, 6]]
    assert list(scorer.batch_replies(4, replies)) == [[2], [3], [0]]
    assert scorer.cross_score(traces, 100) == pytest.approx(together, abs=BOUND)
    monkeypatch.setattr(adapter, "MAX_BATCH_SCORES", 257 * 12)
    assert list(scorer.batch_replies(4, replies)) == [[2, 3], [0]]


def test_a_completion_is_read_up_to_the_limit(scorer: TextScorer) -> None:
    texts = {"yes": 9, "yes, it is": 3}
    whole, cut = (scorer.cross_score(Traces(PROMPTS, (text,), (0,), 1, 1), limit) for text, limit in texts.items())
    assert cut == pytest.approx(whole, abs=BOUND)


def test_a_reply_without_tokens_has_no_score(scorer: TextScorer) -> None:
    assert np.isnan(scorer.score_replies([1, 2], [[], [3]])).tolist() == [True, False]


def test_a_first_token_is_added_once(scorer: TextScorer) -> None:
    started = TextScorer(scorer.model, make_tokenizer(bos_token="<end>"))
    assert scorer.encode_prompt("b") == [ord("b") - ord("!")]
    assert started.encode_prompt("b") == started.encode_prompt("<end>b") == [256, *scorer.encode_prompt("b")]


def test_texts_beyond_the_context_are_refused(scorer: TextScorer) -> None:
    with pytest.raises(SettingsError, match="the model reads 128"):
        scorer.cross_score(Traces(("a" * 120, "b"), ("c" * 9,), (0,), 1, 1), 100)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Sixteen steps with three prompts and two completions each; held-out rows that must not be read."""
    writer = RunWriter(tmp_path / "run", Header(name="small"))
    names = ["a", "a", "b", "b", "c", "c"]
    for step in range(1, 17):
        texts = [f"{name}{sample} at {step}" for name in "abc" for sample in (0, 1)]
        writer.rollouts({"problem": names, "sample": [0, 1] * 3, "completion": texts}, step)
        writer.rollouts({"problem": ["a"], "completion": ["held out"]}, step, split="eval")
    writer.problems({"problem": ["a", "b", "c"], "prompt": ["A", "B", "C"]})
    return Run.open(writer.folder)


def test_completions_are_read_with_their_own_prompts(run: Run) -> None:
    traces = read_traces(run, "last", 16, 4)
    assert (traces.first, traces.last) == (15, 16)
    assert sorted(traces.prompts) == ["A", "B", "C"]
    assert len(traces.completions) == 12
    for text, own in zip(traces.completions, traces.own, strict=True):
        assert text[0].upper() == traces.prompts[own]
        assert text.endswith(("15", "16"))
    assert read_traces(run, "last", 16, 4) == traces


def test_prompts_and_samples_are_bounded(run: Run) -> None:
    traces = read_traces(run, "first", 2, 1)
    assert len(traces.prompts) == len(traces.completions) == 2
    assert (traces.first, traces.last) == (1, 2)
    assert {text.rpartition(" ")[2] for text in read_traces(run, "7", 9, 9).completions} == {"7"}


def test_held_out_rollouts_are_read_where_there_are_no_others(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path / "eval", Header(name="eval"))
    writer.rollouts({"problem": ["a", "b"], "completion": ["x", "y"]}, 3, split="eval")
    writer.problems({"problem": ["a", "b"], "prompt": ["A", "B"]})
    assert read_traces(Run.open(writer.folder), "first", 9, 9).first == 3


def test_what_cannot_be_compared_is_refused(run: Run, tmp_path: Path) -> None:
    writer = RunWriter(tmp_path / "lonely", Header(name="lonely"))
    writer.rollouts({"problem": ["a", "a"], "completion": ["x", "y"]}, 1)
    writer.problems({"problem": ["a"], "prompt": ["A"]})
    with pytest.raises(BrokenFileError, match="1 prompts"):
        read_traces(Run.open(writer.folder), "first", 9, 9)
    with pytest.raises(SettingsError, match="no rollouts at step '99'"):
        read_traces(run, "99", 9, 9)
    with pytest.raises(SettingsError, match="no rollouts at step 'middle'"):
        read_traces(run, "middle", 9, 9)
    with pytest.raises(SettingsError, match="The run has no rollouts"):
        find_steps(np.empty(0, dtype=np.int64), "first")


def test_a_saved_model_scores_as_before(scorer: TextScorer, tmp_path: Path) -> None:
    scorer.model.save_pretrained(tmp_path / "model")
    scorer.tokenizer.save_pretrained(tmp_path / "model")
    loaded = load_scorer(str(tmp_path / "model"))
    traces = Traces(PROMPTS, REPLIES, (0, 1, 2, 2), 1, 1)
    assert loaded.cross_score(traces, 9) == pytest.approx(scorer.cross_score(traces, 9), abs=BOUND)


def test_a_folder_without_a_model_and_a_missing_package_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(BrokenFileError, match="cannot be loaded as a model"):
        load_scorer(str(tmp_path))
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    with pytest.raises(MissingExtraError, match="train"):
        load_scorer(str(tmp_path))
