"""SmolLM2 as a policy: unpacked from its GGUF file, sampled in batches, trained through TRL.

A reply ends with its line. A prompt is read once for all its replies, and a finished reply costs nothing more. A killed
training run resumes from its last checkpoint.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from breadth.base.errors import BrokenFileError, MissingExtraError, SettingsError
from breadth.base.system import atomic_folder
from breadth.lab.demo.plan import ArmName, arm_chain
from breadth.lab.reasoner import file_sha256
from breadth.lab.smollm2.experiment import SmolLM2Plan, read_sum_answer, training_sums

GGUF_MAGIC = b"GGUF"
"""How a GGUF file begins."""
JOB_NAME = "The SmolLM2 replication"


@dataclass(frozen=True)
class SmolLM2Policy:
    """A language model that answers in one line."""

    model: Any
    """A causal language model of transformers, float32, in evaluation mode."""
    tokenizer: Any
    """Its tokenizer; the end of a line is the end of a reply."""

    @property
    def end(self) -> int:
        """The token that ends a reply."""
        return int(self.tokenizer.eos_token_id)

    def decode_reply(self, ids: list[int]) -> str:
        """Return the text of a reply, without what ends it."""
        text = self.tokenizer.decode(
            ids[:-1] if ids[-1] == self.end else ids, skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        return str(text)


def model_fingerprint(place: Path) -> str:
    """Return the hash of a GGUF file, or of a folder with a transformers model; refuse anything else."""
    if place.is_dir():
        files = sorted(path for path in place.iterdir() if path.is_file())
        if not (place / "config.json").is_file():
            raise BrokenFileError(
                place, "holds no config.json, so no model of transformers.", "Name a GGUF file or such a folder."
            )
        return hashlib.sha256("".join(f"{path.name} {file_sha256(path)}\n" for path in files).encode()).hexdigest()
    try:
        with place.open("rb") as stream:
            begins = stream.read(len(GGUF_MAGIC))
    except OSError as error:
        remedy = "Name the GGUF file of SmolLM2-135M-Instruct; tools/fetch_model.py fetches it."
        raise BrokenFileError(place, f"cannot be read: {error.strerror or error}.", remedy) from error
    if begins != GGUF_MAGIC:
        raise BrokenFileError(
            place, "is no GGUF file: it does not begin with that word.", "Fetch it again, or name another."
        )
    return file_sha256(place)


def check_libraries(place: Path) -> None:
    """Refuse, before anything runs, to go on without what training and reading the file need."""
    if any(find_spec(name) is None for name in ("torch", "transformers", "trl")):
        raise MissingExtraError(JOB_NAME, "train")
    if not place.is_dir() and find_spec("gguf") is None:
        raise SettingsError(
            "Reading a GGUF file needs the package gguf, which is not installed.",
            'Install it with: pip install "gguf>=0.17"',
        )


def unpack_model(place: Path, folder: Path) -> None:
    """Write a model to a folder as transformers loads it, whole or not at all; what is there already is left as it is.

    TRL loads the reference policy from a folder, and unpacking four-bit weights takes longer than reading what was
    unpacked.
    """
    if not folder.exists():
        save_policy(read_model(place), folder)


def load_policy(folder: Path) -> SmolLM2Policy:
    """Load what `unpack` or `save` has written."""
    return read_model(folder)


def save_policy(policy: SmolLM2Policy, folder: Path) -> None:
    """Write a policy to a folder that must not exist yet."""
    with atomic_folder(folder) as made:
        policy.model.save_pretrained(made)
        policy.tokenizer.save_pretrained(made)


def read_model(place: Path) -> SmolLM2Policy:
    """Load a GGUF file or a folder, with the line break as the end of a reply."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # all of it is here; nothing is looked for elsewhere
    for name in ("HF_HUB_DISABLE_PROGRESS_BARS", "TQDM_DISABLE"):  # the terminal has a bar of ours
        os.environ.setdefault(name, "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    try:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer
    except ImportError as error:
        raise MissingExtraError(JOB_NAME, "train") from error
    folder, options = (place, {}) if place.is_dir() else (place.parent, {"gguf_file": place.name})
    tokenizer = AutoTokenizer.from_pretrained(str(folder), trust_remote_code=False, **options)
    model = AutoModelForCausalLM.from_pretrained(str(folder), dtype=torch.float32, trust_remote_code=False, **options)
    return end_at_newline(SmolLM2Policy(model.eval(), tokenizer))


def end_at_newline(policy: SmolLM2Policy) -> SmolLM2Policy:
    """Make the line break the end of a reply in tokenizer and model; the old end of text becomes padding."""
    model, tokenizer = policy.model, policy.tokenizer
    ids = tokenizer("\n", add_special_tokens=False)["input_ids"]
    if len(ids) != 1:
        raise SettingsError(
            f"The model reads a line break as {len(ids)} tokens; it has to be one.", "Take SmolLM2-135M-Instruct."
        )
    (end,) = ids
    if tokenizer.eos_token_id != end:
        tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
        tokenizer.eos_token = tokenizer.convert_ids_to_tokens(end)
    for settings in (model.config, model.generation_config):
        settings.eos_token_id, settings.pad_token_id = end, tokenizer.pad_token_id
    return policy


MAX_ROWS = 256
"""Replies drawn at one time: enough for the arithmetic to be worth it, few enough for little memory."""


@dataclass(frozen=True)
class SumReply:
    """One reply, drawn as the policy is: at temperature 1, from the whole vocabulary."""

    ids: list[int]
    """Its tokens, the end of the line included."""
    entropies: NDArray[np.float32]
    """Of the distributions they were drawn from, in nats."""
    text: str
    """What it says."""
    ended: bool
    """Whether it ended by itself."""

    @property
    def answer(self) -> str | None:
        """The answer in it."""
        return read_sum_answer(self.text, ended=self.ended)


def sample_replies(
    policy: SmolLM2Policy, prompts: Sequence[str], each: int, longest: int, seed: int
) -> list[list[SumReply]]:
    """Draw so many replies to each prompt, of at most so many tokens; the same seed draws the same."""
    import torch

    generator, step = torch.Generator().manual_seed(seed), max(1, MAX_ROWS // each)
    found: list[list[SumReply]] = []
    with torch.inference_mode():
        for start in range(0, len(prompts), step):
            some = prompts[start : start + step]
            drawn = _sample_batch(policy, some, each, longest, generator)
            found += [drawn[place * each : (place + 1) * each] for place in range(len(some))]
    return found


def sums_rollout_function(policy: SmolLM2Policy, longest: int) -> Callable[[Sequence[str], Any], dict[str, Any]]:
    """Return TRL's ``rollout_func``: a reply to each prompt given, drawn from the weights as they are then.

    Its seed comes from torch's own chance, which checkpoints keep: a run that goes on draws what it would have drawn.
    """
    import torch

    def rollouts(prompts: Sequence[str], _: Any) -> dict[str, Any]:
        counts = Counter(prompts)
        was_training = policy.model.training
        policy.model.eval()
        drawn = sample_replies(policy, list(counts), max(counts.values()), longest, int(torch.randint(2**62, ())))
        policy.model.train(was_training)
        waiting: dict[str, Iterator[SumReply]] = {
            prompt: iter(replies) for prompt, replies in zip(counts, drawn, strict=True)
        }
        return {
            "prompt_ids": [list(policy.tokenizer(prompt)["input_ids"]) for prompt in prompts],
            "completion_ids": [next(waiting[prompt]).ids for prompt in prompts],
            "logprobs": None,
        }

    return rollouts


class _RunningRows:
    """The replies that have not ended: what the model remembers of each, and what it may say next."""

    def __init__(self, policy: SmolLM2Policy, prompts: Sequence[str], each: int) -> None:
        import torch

        read = [policy.tokenizer(prompt)["input_ids"] for prompt in prompts]
        width = max(map(len, read))
        ids = torch.tensor([[policy.end] * (width - len(row)) + row for row in read])
        mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in read])
        places = (mask.cumsum(1) - 1).clamp(min=0)
        out = policy.model(input_ids=ids, attention_mask=mask, position_ids=places, use_cache=True, logits_to_keep=1)
        self.model, self.cache = policy.model, out.past_key_values
        self.cache.batch_repeat_interleave(each)
        self.logits = out.logits[:, -1].repeat_interleave(each, 0)
        self.mask, self.last = mask.repeat_interleave(each, 0), places[:, -1:].repeat_interleave(each, 0)
        self.numbers = torch.arange(len(prompts) * each)

    def sample(self, generator: Any) -> tuple[Any, Any]:
        """Draw the next token of each row; return them and the entropy of each choice."""
        import torch

        likely = self.logits.float().log_softmax(-1)
        shares = likely.exp()
        return torch.multinomial(shares, 1, generator=generator), -(shares * likely.clamp(min=-1e4)).sum(-1)

    def advance(self, tokens: Any, kept: Any) -> None:
        """Let the model read the tokens of the rows that are kept; the others are forgotten."""
        import torch

        if not bool(kept.all()):
            places = kept.nonzero()[:, 0]
            self.cache.batch_select_indices(places)
            tokens, self.mask, self.last, self.numbers = (
                tokens[places],
                self.mask[places],
                self.last[places],
                self.numbers[places],
            )
        self.mask, self.last = torch.cat([self.mask, torch.ones_like(tokens)], 1), self.last + 1
        read = {
            "attention_mask": self.mask,
            "position_ids": self.last,
            "past_key_values": self.cache,
            "use_cache": True,
        }
        self.logits = self.model(input_ids=tokens, **read).logits[:, -1]


def _sample_batch(
    policy: SmolLM2Policy, prompts: Sequence[str], each: int, longest: int, generator: Any
) -> list[SumReply]:
    rows = _RunningRows(policy, prompts, each)
    ids: list[list[int]] = [[] for _ in rows.numbers]
    entropies: list[list[float]] = [[] for _ in rows.numbers]
    for left in reversed(range(longest)):
        tokens, choices = rows.sample(generator)
        for number, token, entropy in zip(rows.numbers.tolist(), tokens[:, 0].tolist(), choices.tolist(), strict=True):
            ids[number].append(token)
            entropies[number].append(entropy)
        kept = tokens[:, 0] != policy.end
        if not left or not bool(kept.any()):
            break
        rows.advance(tokens, kept)
    return [
        SumReply(tokens, np.array(entropy, np.float32), policy.decode_reply(tokens), tokens[-1] == policy.end)
        for tokens, entropy in zip(ids, entropies, strict=True)
    ]


SMOLLM2_CHECKPOINT_STEPS = 10
"""Optimizer steps between checkpoints: weights and Adam's two moments, 1.6 GB each."""


def train_smollm2(
    plan: SmolLM2Plan, arm: ArmName, folder: Path, base: Path, on_step: Callable[[int], None]
) -> SmolLM2Policy:
    """Train all weights of a base and return the policy; a finished one is loaded, an interrupted run resumes."""
    from breadth.lab.grpo import (
        CHECKPOINTS_FOLDER,
        POLICY_FOLDER,
        silence_libraries,
        step_callback,
        train_from_newest,
    )

    if (folder / POLICY_FOLDER).is_dir():
        return load_policy(folder / POLICY_FOLDER)
    silence_libraries()
    policy = load_policy(base)
    trainer = build_smollm2_trainer(plan, arm, policy, folder)
    trainer.add_callback(step_callback(lambda step, _: on_step(step)))
    train_from_newest(trainer, folder / CHECKPOINTS_FOLDER)
    trained = SmolLM2Policy(trainer.model.eval(), policy.tokenizer)
    save_policy(trained, folder / POLICY_FOLDER)
    shutil.rmtree(folder / CHECKPOINTS_FOLDER, ignore_errors=True)
    return trained


def sums_reward_function(policy: SmolLM2Policy) -> Callable[..., list[float]]:
    """Return the reward: 1 for a reply that ends by itself and whose answer is the sum, 0 for anything else.

    It reads tokens, not the text TRL decodes, in which a reply that was cut looks like a whole one.
    """

    def right_answers(completion_ids: Sequence[Sequence[int]], gold: Sequence[str], **_: Any) -> list[float]:
        replies = [list(ids) for ids in completion_ids]
        answers = [read_sum_answer(policy.decode_reply(ids), ended=ids[-1] == policy.end) for ids in replies]
        return [float(answer == right) for answer, right in zip(answers, gold, strict=True)]

    return right_answers


def build_smollm2_trainer(plan: SmolLM2Plan, arm: ArmName, policy: SmolLM2Policy, folder: Path) -> Any:
    """Return the TRL trainer of an arm."""
    try:
        from datasets import Dataset

        from breadth.adapters.trl.trainer import BreadthGRPOTrainer
        from breadth.lab.grpo import CHECKPOINTS_FOLDER, RUN_FOLDER, cpu_grpo_config
    except ImportError as error:
        raise MissingExtraError(JOB_NAME, "train") from error
    chain = arm_chain(arm)
    config = cpu_grpo_config(
        folder / CHECKPOINTS_FOLDER,
        chain,
        max_steps=plan.steps,
        learning_rate=plan.learning_rate,
        warmup_steps=min(5, plan.steps - 1),
        per_device_train_batch_size=plan.prompts * plan.group // plan.accumulation_steps,
        gradient_accumulation_steps=plan.accumulation_steps,
        steps_per_generation=plan.accumulation_steps,
        num_generations=plan.group,
        max_completion_length=plan.max_completion_length,
        save_steps=SMOLLM2_CHECKPOINT_STEPS,
        seed=plan.seed,
    )
    return BreadthGRPOTrainer(
        policy.model.train(),
        sums_reward_function(policy),
        config,
        Dataset.from_list(
            [{"prompt": problem.prompt, "gold": problem.answer} for problem in training_sums(plan.train_problems)]
        ),
        processing_class=policy.tokenizer,
        objective=chain,
        outcome=lambda text: read_sum_answer(text, ended=True),
        rollout_func=sums_rollout_function(policy, plan.max_completion_length),
        run=folder / RUN_FOLDER,
    )
