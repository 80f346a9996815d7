"""The tiny reasoner: a Llama of some hundred thousand weights with its own tokenizer; its files, its pretraining."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from breadth.base import settings
from breadth.base.errors import BrokenFileError, MissingExtraError, require
from breadth.base.system import atomic_folder
from breadth.lab.task.problems import LEVELS, Problem, draw_problem
from breadth.lab.task.teacher import Teacher, TeacherTrace
from breadth.lab.task.vocabulary import build_tokenizer, vocabulary_words
from breadth.measure.validate import IntArray

TEACHER_FILE, CHECKSUMS_FILE = "teacher.toml", "checksums.json"
"""Files next to the weights: the teacher they learnt from, and the checksum of every file."""
REQUIRED_FILES = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", TEACHER_FILE)
"""Files that every reasoner needs; any others saved with them are hashed as well."""
REINSTALL_REMEDY = "Install breadth again, or make the weights again: breadth lab pretrain FOLDER."
SHIPPED_FOLDER = "base"
"""Folder of this package with the weights that ship."""


@dataclass(frozen=True)
class ReasonerShape:
    """How large the model is."""

    hidden: int = 128
    """Width of the residual stream."""
    layers: int = 3
    """Blocks."""
    heads: int = 4
    """Attention heads of a block."""
    inner: int = 256
    """Width inside a block's feed-forward part."""
    context: int = 2048
    """Positions it may be asked for; traces it learnt from are far shorter."""

    def __post_init__(self) -> None:
        for field in ("hidden", "layers", "heads", "inner", "context"):
            require(self, field, getattr(self, field) >= 1, "1 or more")
        require(self, "hidden", self.hidden % (2 * self.heads) == 0, "an even number for each head")


@dataclass(frozen=True)
class Reasoner:
    """A model, its tokenizer, and the teacher it learnt from."""

    model: Any
    """A LlamaForCausalLM in evaluation mode."""
    tokenizer: Any
    """Its tokenizer."""
    teacher: Teacher
    """Who wrote the traces it learnt from; knows which facts are firm."""


def build_reasoner(teacher: Teacher, shape: ReasonerShape = ReasonerShape(), seed: int = 0) -> Reasoner:  # noqa: B008 - frozen
    """Build an untrained reasoner; its weights depend on the seed alone."""
    try:
        import torch
        from transformers import LlamaConfig, LlamaForCausalLM
    except ImportError as error:
        raise MissingExtraError("The tiny reasoner", "train") from error
    tokenizer = build_tokenizer(teacher.facts.prime)
    config = LlamaConfig(
        vocab_size=len(vocabulary_words(teacher.facts.prime)),
        hidden_size=shape.hidden,
        intermediate_size=shape.inner,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.heads,
        max_position_embeddings=shape.context,
        tie_word_embeddings=True,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config)
    return Reasoner(model.eval(), tokenizer, teacher)


def save_reasoner(reasoner: Reasoner, folder: Path) -> None:
    """Write a reasoner to a folder that must not exist yet: weights as safetensors, tokenizer, teacher, checksums."""
    with atomic_folder(folder) as made:
        _write_reasoner(reasoner, made)


def _write_reasoner(reasoner: Reasoner, folder: Path) -> None:
    from transformers.utils import logging

    folder.mkdir()
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()  # two megabytes need none, and it would disturb ours
    try:
        reasoner.model.save_pretrained(folder)
    finally:
        if shown:
            logging.enable_progress_bar()
    reasoner.tokenizer.save_pretrained(folder)
    (folder / TEACHER_FILE).write_text(settings.dumps(reasoner.teacher), encoding="utf-8")
    for path in folder.iterdir():
        path.chmod(
            (folder / TEACHER_FILE).stat().st_mode
        )  # safetensors writes for its owner alone; the weights get the mode of the other files
    sums = {path.name: file_sha256(path) for path in sorted(folder.iterdir())}
    (folder / CHECKSUMS_FILE).write_text(json.dumps(sums, indent=1) + "\n", encoding="utf-8")


def load_reasoner(folder: Path | None = None) -> Reasoner:
    """Load a reasoner, by default the one that ships; files that do not match their checksums are refused."""
    try:
        from transformers import LlamaForCausalLM, PreTrainedTokenizerFast
    except ImportError as error:
        raise MissingExtraError("The tiny reasoner", "train") from error
    place = default_folder() if folder is None else folder
    check_files(place)
    teacher = settings.load(Teacher, place / TEACHER_FILE)
    model = LlamaForCausalLM.from_pretrained(place).float().eval()
    return Reasoner(model, PreTrainedTokenizerFast.from_pretrained(place), teacher)


def default_folder() -> Path:
    """Return the folder of the weights that ship with the package."""
    return Path(str(files("breadth.lab") / SHIPPED_FOLDER))


def reasoner_digest(folder: Path | None = None) -> str:
    """Return one hash for all files of a reasoner (by default the shipped one), made from its checksums."""
    place = default_folder() if folder is None else folder
    read_checksums(place)  # refuses an incomplete reasoner with a message
    return file_sha256(place / CHECKSUMS_FILE)


def check_files(folder: Path) -> None:
    """Refuse a folder whose files are missing or differ from their checksums."""
    for name, hashed in read_checksums(folder).items():
        try:
            found = file_sha256(folder / name)
        except OSError as error:
            raise BrokenFileError(
                folder / name, f"cannot be read: {error.strerror or error}.", REINSTALL_REMEDY
            ) from error
        if found != hashed:
            raise BrokenFileError(
                folder / name, "does not match its checksum: the file was changed or cut.", REINSTALL_REMEDY
            )


def read_checksums(folder: Path) -> dict[str, str]:
    """Read what every file must hash to."""
    path = folder / CHECKSUMS_FILE
    try:
        sums = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BrokenFileError(
            path, f"cannot be read: {error.strerror or error}; so this is no complete reasoner.", REINSTALL_REMEDY
        ) from error
    except (ValueError, RecursionError) as error:
        raise BrokenFileError(path, f"is no list of checksums: {error}.", REINSTALL_REMEDY) from error
    if not isinstance(sums, dict) or any(Path(name).name != name for name in sums):
        raise BrokenFileError(
            path, "is no list of checksums: it needs the names of files and what they hash to.", REINSTALL_REMEDY
        )
    if missing := [name for name in REQUIRED_FILES if name not in sums]:
        raise BrokenFileError(path, f"has no checksum of {', '.join(missing)}.", REINSTALL_REMEDY)
    return sums


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def reasoner_prime(folder: Path | None = None) -> int:
    """Return the prime modulus of a reasoner's task, by default of the shipped one."""
    place = default_folder() if folder is None else folder
    check_files(place)
    return settings.load(Teacher, place / TEACHER_FILE).facts.prime


LEVEL_SHARES = (0.15, 0.7, 0.15)
"""Shares of easy, medium and hard problems."""
BATCHES_PER_SHELF = 64
"""Batches that are drawn and sorted by length together, to keep padding short."""
IGNORED_LABEL = -100
OnLoss = Callable[[int, float], None]
"""Called with the step and its loss."""


@dataclass(frozen=True)
class PretrainingPlan:
    """Sizes of pretraining."""

    steps: int = 8000
    """Optimizer steps."""
    batch: int = 32
    """Traces per step."""
    learning_rate: float = 2.5e-3
    """Highest learning rate; it rises over the first hundred steps and falls along a cosine to nothing."""
    seed: int = 0
    """Seed of weights, problems and traces."""

    def __post_init__(self) -> None:
        require(self, "steps", self.steps >= 1, "1 or more")
        require(self, "batch", self.batch >= 1, "1 or more")
        require(self, "learning_rate", 0 < self.learning_rate < 1, "a number above 0, below 1")
        require(self, "seed", self.seed >= 0, "0 or more")


def pretrain(
    teacher: Teacher,
    plan: PretrainingPlan = PretrainingPlan(),  # noqa: B008 - frozen
    shape: ReasonerShape = ReasonerShape(),  # noqa: B008 - frozen
    held_out: frozenset[Problem] = frozenset(),
    on_loss: OnLoss | None = None,
) -> Reasoner:
    """Build and pretrain a reasoner; held-out problems are never shown, nor any commuted form of them."""
    reasoner = build_reasoner(teacher, shape, plan.seed)  # first of all: it says what to install where torch is missing
    import torch

    model = reasoner.model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=plan.learning_rate, betas=(0.9, 0.98), weight_decay=0.01)
    batches = training_batches(teacher, plan, held_out, reasoner.tokenizer.get_vocab())
    for step in range(plan.steps):
        inputs, labels = next(batches)
        for group in optimizer.param_groups:
            group["lr"] = (
                plan.learning_rate * min(1.0, (step + 1) / 100) * 0.5 * (1 + math.cos(math.pi * step / plan.steps))
            )
        logits = model(input_ids=torch.from_numpy(inputs)).logits  # padded on the right: no token sees the padding
        following = torch.from_numpy(labels)[:, 1:].flatten()
        loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), following, ignore_index=IGNORED_LABEL)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if on_loss is not None:
            on_loss(step + 1, loss.item())
    model.eval()
    return reasoner


def training_batches(
    teacher: Teacher, plan: PretrainingPlan, held_out: frozenset[Problem], vocabulary: dict[str, int]
) -> Iterator[tuple[IntArray, IntArray]]:
    """Yield batches of token ids and labels without end, each of traces of similar length."""
    rng = np.random.default_rng((plan.seed, 13))  # a stream of its own: the same seed draws other things elsewhere
    never = frozenset(problem.canonical for problem in held_out)
    while True:
        shelf = sorted(
            (_trace_with_labels(teacher, never, vocabulary, rng) for _ in range(BATCHES_PER_SHELF * plan.batch)),
            key=lambda pair: len(pair[0]),
        )
        for place in rng.permutation(BATCHES_PER_SHELF):
            yield _pad_lessons(shelf[place * plan.batch : (place + 1) * plan.batch], vocabulary["<pad>"])


def _trace_with_labels(
    teacher: Teacher, never: frozenset[Problem], vocabulary: dict[str, int], rng: np.random.Generator
) -> tuple[list[int], list[int]]:
    """Return the tokens of one problem with its trace, and their labels."""
    while True:
        problem = draw_problem(rng, teacher.facts.prime, LEVELS[rng.choice(len(LEVELS), p=LEVEL_SHARES)])
        if problem.canonical not in never:
            break
    written: TeacherTrace = teacher.write(problem, rng)
    question = [vocabulary["<bos>"], *(vocabulary[word] for word in problem.words)]
    reply = [vocabulary[word] for word in written.words]
    learnt = [IGNORED_LABEL if place == written.imposed else token for place, token in enumerate(reply)]
    return question + reply, [IGNORED_LABEL] * len(question) + learnt


def _pad_lessons(plan: list[tuple[list[int], list[int]]], padding: int) -> tuple[IntArray, IntArray]:
    width = max(len(tokens) for tokens, _ in plan)
    inputs = np.full((len(plan), width), padding, np.int64)
    labels = np.full((len(plan), width), IGNORED_LABEL, np.int64)
    for row, (tokens, learnt) in enumerate(plan):
        inputs[row, : len(tokens)] = tokens
        labels[row, : len(learnt)] = learnt
    return inputs, labels
