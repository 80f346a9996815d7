"""The task that mechanisms' effects are measured on: a tiny reasoner that works problems modulo 13 from shaky tables.

A Llama of a quarter of a million weights learns, by plain cross-entropy, to write short worked problems in modular
arithmetic from a teacher who knows each fact of his tables only some of the time. It therefore starts out diverse:
several routes, several wordings, several answers. Every draw is seeded. Used by ``tools/measure_effects.py`` alone; the
lab has a task of its own.
"""

from __future__ import annotations

import re

import numpy as np
import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from breadth.measure.validate import FloatArray, IntArray

MODULUS = 13
PRETRAINING_STEPS, PRETRAINING_BATCH = 800, 128
ROUTES = (
    ("{a} + {b} = {s}", "{s} * {c} = \\boxed{{{t}}}."),
    ("{b} + {a} = {s}", "{c} * {s} = \\boxed{{{t}}}."),
    ("{a} * {c} = {u}", "{b} * {c} = {v}", "{u} + {v} = \\boxed{{{t}}}."),
)
VOICES = (("Step by step: ", ". Then ", 0.0), ("Well, ", ", and ", 0.05), ("Quickly: ", ", so ", 0.2))
"""How the teacher may sound: opening, link between steps, and how often a fact slips his mind altogether."""
HABIT = 0.8
"""How often a voice uses its own words and not those of any voice: words say something about care, not everything."""
PIECES = r"\d+|\n|[^\d\n]+"
Problem = tuple[int, int, int]
Voice = tuple[str, str, float]


class Teacher:
    """Works problems aloud from tables in which each fact is right only part of the time, at a rate of its own."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        left, right = np.indices((MODULUS, MODULUS))
        self.sums = noisy_table((left + right) % MODULUS, (8.0, 1.0), rng)
        self.products = noisy_table(left * right % MODULUS, (0.3, 0.4), rng)

    def work(self, problem: Problem) -> str:
        """Write one worked answer, right or wrong."""
        a, b, c = problem
        route = ROUTES[self.rng.integers(len(ROUTES))]
        own = VOICES[self.rng.integers(len(VOICES))]
        opening, link = (self.word(own, place) for place in (0, 1))
        values = self.values(problem, own[2], expand=len(route) == 3)
        return (opening + link.join(route)).format(a=a, b=b, c=c, **values)

    def word(self, own: Voice, place: int) -> str:
        """Choose the words for a place: by habit, or any voice's."""
        voice = own if self.rng.random() < HABIT else VOICES[self.rng.integers(len(VOICES))]
        return str(voice[place])

    def values(self, problem: Problem, slips: float, *, expand: bool) -> dict[str, int]:
        """Add, then multiply; or expand: multiply twice, then add."""
        a, b, c = problem
        if not expand:
            s = self.recall(self.sums, a, b, slips)
            return {"s": s, "t": self.recall(self.products, s, c, slips)}
        u, v = self.recall(self.products, a, c, slips), self.recall(self.products, b, c, slips)
        return {"u": u, "v": v, "t": self.recall(self.sums, u, v, slips)}

    def recall(self, table: FloatArray, left: int, right: int, slips: float) -> int:
        """Draw what the table says of one fact (both orders of its sides are one fact), or any number on a slip."""
        if self.rng.random() < slips:
            return int(self.rng.integers(MODULUS))
        return int(self.rng.choice(MODULUS, p=table[min(left, right), max(left, right)]))


def noisy_table(truth: IntArray, knowledge: tuple[float, float], rng: np.random.Generator) -> FloatArray:
    """Give each fact a chance of being right, drawn from a Beta law, and spread the rest unevenly over wrong values."""
    table = rng.dirichlet(np.full(MODULUS, 0.4), truth.shape)
    np.put_along_axis(table, truth[..., None], 0.0, -1)
    chance = rng.beta(*knowledge, truth.shape)[..., None]
    table *= (1 - chance) / table.sum(-1, keepdims=True)
    np.put_along_axis(table, truth[..., None], chance, -1)
    return np.asarray(table)


def question(problem: Problem) -> str:
    """Put the problem as the model sees it."""
    a, b, c = problem
    return f"Modulo {MODULUS}, what is ({a} + {b}) * {c}?\n"


def exact_match(completions: list[str], truth: list[str], **_: object) -> list[float]:
    """Reward 1 when the last box holds the right answer, 0 for anything else."""
    boxed = [re.findall(r"\\boxed\{(\d+)\}", completion)[-1:] for completion in completions]
    return [float(found == [right]) for found, right in zip(boxed, truth, strict=True)]


def draw_problem(rng: np.random.Generator) -> Problem:
    """Draw three numbers below the modulus."""
    a, b, c = (int(number) for number in rng.integers(MODULUS, size=3))
    return a, b, c


def build_tokenizer(texts: list[str]) -> PreTrainedTokenizerFast:
    """Make each number one token, each line break one, and each stretch of words and signs between them one."""
    pieces = sorted({piece for text in texts for piece in re.findall(PIECES, text)})
    words = {piece: number for number, piece in enumerate(["<pad>", "<eos>", "<unk>", *pieces])}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(PIECES), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")


def build_model(tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    """Build an untrained Llama with about a quarter of a million weights."""
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=96,
            intermediate_size=192,
            num_hidden_layers=3,
            num_attention_heads=4,
            max_position_embeddings=64,
            pad_token_id=tokenizer.pad_token_id,
            eos_token_id=tokenizer.eos_token_id,
            bos_token_id=None,
        )
    )


def pretrain(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, teacher: Teacher) -> None:
    """Teach the model to write as the teacher does: cross-entropy on the worked part of fresh examples."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=PRETRAINING_STEPS, pct_start=0.15)
    asked = len(tokenizer(question((0, 0, 0))).input_ids)  # every question has as many tokens
    for step in range(PRETRAINING_STEPS):
        problems = [draw_problem(teacher.rng) for _ in range(PRETRAINING_BATCH)]
        texts = [question(problem) + teacher.work(problem) + "<eos>" for problem in problems]
        batch = tokenizer(texts, return_tensors="pt", padding=True, padding_side="right", return_token_type_ids=False)
        labels = batch.input_ids.masked_fill(batch.attention_mask == 0, -100)
        labels[:, :asked] = -100
        loss = model(**batch, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 100 == 0:
            print(f"pretraining step {step}: loss {loss.item():.3f}", flush=True)
