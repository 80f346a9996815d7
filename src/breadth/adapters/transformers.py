"""Score the completions of a run under each other's prompts, with a local causal language model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from breadth.base.errors import BrokenFileError, MissingExtraError, SettingsError
from breadth.measure.validate import FloatArray, IntArray
from breadth.runs.outcomes import rollout_steps
from breadth.runs.reader import Run

WINDOWS_PER_RUN = 8
"""``first`` and ``last`` read this fraction of the steps, the eighths that the doctor compares."""
MAX_BATCH_SCORES = 50_000_000
"""Scores (rows times tokens times vocabulary) of one pass: 200 MB in float32, and twice that while it is made."""
JOB_NAME = "Measuring mutual information"


@dataclass(frozen=True)
class Traces:
    """Completions of some prompts, and the steps they were sampled at."""

    prompts: tuple[str, ...]
    """Prompts as the policy saw them, all different."""
    completions: tuple[str, ...]
    """What the policy wrote."""
    own: tuple[int, ...]
    """Number of each completion's prompt."""
    first: int
    """First step read."""
    last: int
    """Last step read."""


def read_traces(run: Run, place: str, prompts: int, samples: int) -> Traces:
    """Read completions of at most so many prompts, and so many of each prompt, the same ones every time.

    ``place`` is ``first`` or ``last`` for the first or the last eighth of the steps, or a step. Training rollouts are
    read where there are any, else held-out ones.
    """
    split = "train" if len(rollout_steps(run)) else "eval"
    first, last = find_steps(rollout_steps(run, split), place)
    rows = run.query(
        """WITH texts AS (SELECT p.prompt AS prompt, r.completion AS completion,
                                 row_number() OVER (PARTITION BY p.prompt ORDER BY hash(r.step, r.sample), r.completion)
                                 AS place
                          FROM rollouts r JOIN problems p ON r.problem = p.problem
                          WHERE r.split = ? AND r.step BETWEEN ? AND ?
                                AND length(p.prompt) > 0 AND length(r.completion) > 0)
           SELECT prompt, completion FROM texts
           WHERE place <= ? AND prompt IN (SELECT prompt FROM texts GROUP BY prompt ORDER BY hash(prompt) LIMIT ?)
           ORDER BY hash(prompt), prompt, place""",
        split,
        first,
        last,
        samples,
        prompts,
        steps=(first, last),
    )
    texts = rows.column("prompt").to_pylist()
    names = tuple(dict.fromkeys(texts))
    if len(names) < 2:
        raise BrokenFileError(
            run.folder,
            f"has completions with {len(names)} prompts at steps {first} to {last}; 2 or more are needed.",
            "Choose other --steps, or import the rollouts with their prompts.",
        )
    numbers = {name: number for number, name in enumerate(names)}
    completions = tuple(rows.column("completion").to_pylist())
    return Traces(names, completions, tuple(numbers[text] for text in texts), first, last)


def find_steps(steps: IntArray, place: str) -> tuple[int, int]:
    """Return the first and the last step of a place: ``first``, ``last`` or a number."""
    if not len(steps):
        raise SettingsError(
            "The run has no rollouts.", "Record completions with their prompts; `breadth show RUN` says how."
        )
    size = max(1, len(steps) // WINDOWS_PER_RUN)
    if place in ("first", "last"):
        chosen = steps[:size] if place == "first" else steps[-size:]
        return int(chosen[0]), int(chosen[-1])
    if not place.isdigit() or int(place) not in steps:
        raise SettingsError(
            f"There are no rollouts at step {place!r}; there are some from step {steps[0]} to {steps[-1]}.",
            "Give first, last, or a step that has rollouts.",
        )
    return int(place), int(place)


@dataclass(frozen=True)
class TextScorer:
    """A causal language model that scores texts."""

    model: Any
    """A causal language model, in evaluation mode."""
    tokenizer: Any
    """Its tokenizer."""

    def cross_score(self, traces: Traces, max_tokens: int) -> FloatArray:
        """Return the mean log-probability per token of every completion under every prompt: completions x prompts.

        A completion is read up to ``max_tokens`` tokens.
        """
        contexts = [self.encode_prompt(prompt) for prompt in traces.prompts]
        replies = [
            list(self.tokenizer(text, add_special_tokens=False)["input_ids"])[:max_tokens]
            for text in traces.completions
        ]
        self.check_length(max(map(len, contexts)) + max(map(len, replies)))
        scores = np.empty((len(replies), len(contexts)))
        for place, context in enumerate(contexts):
            scores[:, place] = self.score_replies(context, replies)
        return scores

    def check_length(self, tokens: int) -> None:
        """Refuse texts that are longer than what the model can read."""
        limit = getattr(self.model.config, "max_position_embeddings", None)
        if limit is not None and tokens > limit:
            raise SettingsError(
                f"The longest prompt and completion are {tokens:,} tokens together; the model reads {limit:,}.",
                "Lower --max-tokens, or name a model with a longer context.",
            )

    def encode_prompt(self, prompt: str) -> list[int]:
        """Return the tokens of a prompt; the run's text is the policy's, so nothing is added but a first token."""
        ids = list(self.tokenizer(prompt, add_special_tokens=False)["input_ids"])
        start = self.tokenizer.bos_token_id
        return ids if start is None or ids[:1] == [start] else [int(start), *ids]

    def score_replies(self, context: Sequence[int], replies: Sequence[Sequence[int]]) -> FloatArray:
        """Return the mean log-probability per token of each reply after a prompt; NaN for one without tokens."""
        scores = np.full(len(replies), np.nan)
        for batch in self.batch_replies(len(context), replies):
            scores[batch] = self.score_batch(context, [replies[place] for place in batch])
        return scores

    def batch_replies(self, context: int, replies: Sequence[Sequence[int]]) -> Iterator[list[int]]:
        """Yield numbers of replies of about one length, as many as fit into memory; a reply without tokens is none."""
        room = MAX_BATCH_SCORES // int(self.model.config.vocab_size)
        batch: list[int] = []
        for place in sorted((place for place, reply in enumerate(replies) if reply), key=lambda at: len(replies[at])):
            if batch and (len(batch) + 1) * (context + len(replies[place])) > room:
                yield batch
                batch = []
            batch.append(place)
        if batch:
            yield batch

    def score_batch(self, context: Sequence[int], replies: Sequence[Sequence[int]]) -> FloatArray:
        """Score replies together: padded at their end, which no earlier token sees."""
        import torch

        width, start = max(map(len, replies)), len(context)
        rows = [[*context, *reply, *[0] * (width - len(reply))] for reply in replies]
        seen = [[1] * (start + len(reply)) + [0] * (width - len(reply)) for reply in replies]
        ids = torch.tensor(rows, device=self.model.device)
        with torch.inference_mode():
            logits = self.model(input_ids=ids, attention_mask=torch.tensor(seen, device=ids.device)).logits
            logprobs = logits[:, start - 1 : -1].float().log_softmax(-1)
            own = logprobs.gather(-1, ids[:, start:, None])[..., 0].double().cpu().numpy()
        return np.array([row[: len(reply)].mean() for row, reply in zip(own, replies, strict=True)])


def load_scorer(name: str) -> TextScorer:
    """Load a model of transformers from a folder, or by its name; no code that comes with it is run."""
    try:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer
    except ImportError as error:
        raise MissingExtraError(JOB_NAME, "train") from error
    try:
        tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
        model = AutoModelForCausalLM.from_pretrained(name, dtype="auto", trust_remote_code=False, use_safetensors=True)
    except (OSError, ValueError) as error:
        first = str(error).strip().partition("\n")[0]
        raise BrokenFileError(
            Path(name),
            f"cannot be loaded as a model of transformers: {first}",
            "Give a folder with config.json, the weights and the tokenizer, or the name of a public model.",
        ) from error
    return TextScorer(model.to("cuda" if torch.cuda.is_available() else "cpu").eval(), tokenizer)
