"""Loss and backward of our trainer beside TRL's own GRPOTrainer, on the same model and the same tokens, in one run.

A Llama with a vocabulary that dominates, as real ones have, and an optimizer step of four micro-batches. Three
mechanisms without a survey; three with two surveys among them, which cost a forward pass of all micro-batches but the
first; and the thermostat beside TRL's own entropy bonus, for both need the gradient of the entropy, which TRL's plain
loss does without. Also counted: tensors as large as one micro-batch's logits (TRL's fused head makes some in passing on
a CPU), of which there must be no more than in TRL, but for those that TRL's own forward pass makes in a survey. Last,
``length_buckets``: the plain loss on lengths that are spread as those of reasoning are (log-normal, the median a
quarter of the cap), sequences of like length together, beside TRL's one pass padded to the longest.

One thread; the best processor time of several runs, alternating, so that a busy machine slows neither side.

Run: python benchmarks/training.py
"""

from __future__ import annotations

import os

os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}  # read when the libraries below are imported

import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer

from breadth.adapters.trl.convert import ROWS_KEY, forward_pass
from breadth.adapters.trl.trainer import BreadthGRPOTrainer
from breadth.training.chain import Chain
from breadth.training.loss.clip_cov import ClipCov
from breadth.training.loss.clipped_policy import ClippedPolicy
from breadth.training.loss.entropy_advantage import EntropyAdvantage
from breadth.training.loss.fork_thermostat import ForkThermostat
from breadth.training.loss.forking_tokens import ForkingTokens
from breadth.training.loss.repo import Repo

VOCABULARY, PROMPT, TOKENS, SEQUENCES, MICRO_BATCHES = 8192, 16, 192, 8, 4
REPEATS = 5
"""Optimizer steps timed of each."""
RACES: tuple[tuple[str, Chain, dict[str, Any], float], ...] = (
    ("three mechanisms, no survey", Chain((EntropyAdvantage(), Repo(), ClippedPolicy())), {}, 1.03),
    ("three, two of them survey", Chain((ClippedPolicy(), ClipCov(), ForkingTokens())), {}, 1.40),
    (
        "thermostat, TRL with bonus",
        Chain((ClippedPolicy(), ForkThermostat(settle=1, floor=1.5, ceiling=2.0))),
        {"entropy_coef": 0.01},
        1.10,
    ),
)
"""What is timed, its chain, the settings of TRL's trainer beside it, and how many times TRL's time it may take.

The last is no promise: 0.97 and 1.06 were seen."""
PARTS, PARTS_BAR = 4, 0.75
"""Parts of a micro-batch of eight sequences, and how many times TRL's time they may take."""


class LargeTensors(TorchDispatchMode):  # type: ignore[misc]  # torch is untyped here
    """Counts the tensors made that hold as many numbers as one micro-batch's logits."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one operation and look at what it returns."""
        result = function(*args, **(kwargs or {}))
        made = result if isinstance(result, tuple | list) else (result,)
        self.count += sum(
            isinstance(one, torch.Tensor) and one.numel() >= SEQUENCES * TOKENS * VOCABULARY for one in made
        )
        return result


def build(folder: str, chain: Chain | None, settings: dict[str, Any], **options: Any) -> Any:
    """Build TRL's trainer, or ours around a chain, on the same weights."""
    torch.manual_seed(0)
    sizes = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=192,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=4,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
    )
    words = Tokenizer(models.WordLevel({str(number): number for number in range(VOCABULARY)}, unk_token="0"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="0", eos_token="1")
    arguments = GRPOConfig(
        folder,
        per_device_train_batch_size=SEQUENCES,
        gradient_accumulation_steps=MICRO_BATCHES,
        num_generations=8,
        max_completion_length=TOKENS,
        use_cpu=True,
        bf16=False,
        report_to=[],
        **settings,
    )
    data = Dataset.from_dict({"prompt": ["2 3"] * SEQUENCES * MICRO_BATCHES})
    kind: Any = GRPOTrainer if chain is None else BreadthGRPOTrainer
    ours = {} if chain is None else {"objective": chain, **options}
    trainer = kind(LlamaForCausalLM(sizes), lambda **_: [0.0], arguments, data, processing_class=tokenizer, **ours)
    trainer.current_gradient_accumulation_steps = MICRO_BATCHES
    trainer.model.train()
    return trainer


def make_window(*, spread: bool = False) -> list[dict[str, Any]]:
    """Return the micro-batches of one optimizer step, as TRL's buffer holds them; lengths narrow or spread widely."""
    dice = torch.Generator().manual_seed(0)
    window = []
    for number in range(MICRO_BATCHES):
        lengths = torch.randint(TOKENS // 2, TOKENS + 1, (SEQUENCES, 1), generator=dice)
        if spread:
            lengths = (TOKENS / 4 * torch.randn(SEQUENCES, 1, generator=dice).mul(0.7).exp()).long().clamp(1, TOKENS)
        window.append(
            {
                "prompt_ids": torch.randint(2, VOCABULARY, (SEQUENCES, PROMPT), generator=dice),
                "prompt_mask": torch.ones(SEQUENCES, PROMPT, dtype=torch.long),
                "completion_ids": torch.randint(2, VOCABULARY, (SEQUENCES, TOKENS), generator=dice),
                "completion_mask": (torch.arange(TOKENS) < lengths).long(),
                "advantages": torch.randn(SEQUENCES, generator=dice),
                "old_per_token_logps": torch.full((SEQUENCES, TOKENS), -9.0),
                ROWS_KEY: torch.arange(SEQUENCES) + number * SEQUENCES,
            }
        )
    tokens = sum(inputs["completion_mask"].sum() for inputs in window)
    return [inputs | {"num_items_in_batch": tokens} for inputs in window]


def optimizer_step(trainer: Any, window: Sequence[dict[str, Any]]) -> None:
    """Take the loss and the gradient of one optimizer step."""
    trainer._buffered_inputs, trainer._step = list(window), 0
    for number, inputs in enumerate(window):
        trainer.accelerator.gradient_state._set_sync_gradients(number == MICRO_BATCHES - 1)
        trainer._compute_loss(trainer.model, inputs).backward()
        trainer._step += 1
    trainer.model.zero_grad()
    trainer._metrics["train"].clear()


def seconds(job: Callable[[], None]) -> float:
    """Return the processor time of a job."""
    start = time.process_time()
    job()
    return time.process_time() - start


def large_tensors(trainer: Any, window: Sequence[dict[str, Any]]) -> int:
    """Return how many tensors as large as the logits one optimizer step makes."""
    counted = LargeTensors()
    with counted:
        optimizer_step(trainer, window)
    return counted.count


def forward_tensors(trainer: Any, inputs: dict[str, Any]) -> int:
    """Return how many tensors as large as the logits TRL's own forward pass makes without gradient."""
    counted = LargeTensors()
    with counted, torch.no_grad():
        forward_pass(trainer, trainer.model, inputs)
    return counted.count


def race(bare: Any, ours: Any, window: Sequence[dict[str, Any]]) -> tuple[float, float]:
    """Return the best time of each, taken in turn."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(REPEATS):
        for trainer, found in zip((bare, ours), times, strict=True):
            found.append(seconds(partial(optimizer_step, trainer, window)))
    return min(times[0]), min(times[1])


def main() -> int:
    """Print the table; exit with 1 when a ratio is above the one promised or a copy of the logits is made."""
    torch.set_num_threads(1)
    window, held = make_window(), True
    print(
        f"loss and backward of {MICRO_BATCHES} x {SEQUENCES} x {TOKENS} tokens, vocabulary {VOCABULARY:,}, one thread"
    )
    with tempfile.TemporaryDirectory() as folder:
        for name, chain, settings, most in RACES:
            bare, ours = build(folder, None, settings), build(folder, chain, {})
            for _ in range(2):  # the first steps set the thermostat's band and warm both up
                copies, own_copies = large_tensors(bare, window), large_tensors(ours, window)
            allowed = copies + (MICRO_BATCHES - 1) * forward_tensors(bare, window[0]) * ours.objective.surveys
            theirs, own = race(bare, ours, window)
            held = held and own / theirs <= most and own_copies <= allowed
            print(f"  {name:<28} {own:6.3f} s  TRL {theirs:6.3f} s  {own / theirs:.3f}x (at most {most}x)", end="")
            print(f"  tensors as large as the logits: {own_copies}, TRL {copies}, allowed {allowed}")
        spread = make_window(spread=True)
        bare, ours = build(folder, None, {}), build(folder, Chain((ClippedPolicy(),)), {}, length_buckets=PARTS)
        theirs, own = race(bare, ours, spread)
        filled = float(torch.cat([inputs["completion_mask"] for inputs in spread]).float().mean())
        print(
            f"  {f'in {PARTS} buckets':<28} {own:6.3f} s  TRL {theirs:6.3f} s  {own / theirs:.3f}x (at most"
            f" {PARTS_BAR}x)",
            end="",
        )
        print(f"  lengths spread: {filled:.0%} of the batch are tokens, the rest is padding")
    return 0 if held and own / theirs <= PARTS_BAR else 1


if __name__ == "__main__":
    raise SystemExit(main())
