"""The tiny reasoner: a Llama of some hundred thousand weights with a tokenizer of its own, built, saved and loaded."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from breadth.base import settings
from breadth.base.atomic import atomic_folder
from breadth.base.checks import require
from breadth.base.errors import BrokenFileError, MissingExtraError
from breadth.lab.task.teacher import Teacher
from breadth.lab.task.vocabulary import build_tokenizer, words_of

TASK, SUMS = "teacher.toml", "checksums.json"
"""Beside the weights: what they were taught, and what every file must hash to."""
HASHED = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", TASK)
"""Files no reasoner is complete without; what else lies beside them when it is saved is hashed as well."""
REMEDY = "Install breadth again, or make the weights anew: breadth lab pretrain FOLDER."
SHIPPED = "base"
"""Folder of this package with the weights that ship."""


@dataclass(frozen=True)
class Shape:
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


def build(teacher: Teacher, shape: Shape = Shape(), seed: int = 0) -> Reasoner:  # noqa: B008 - frozen
    """Build an untrained reasoner; its weights depend on the seed alone."""
    try:
        import torch
        from transformers import LlamaConfig, LlamaForCausalLM
    except ImportError as error:
        raise MissingExtraError("The tiny reasoner", "train") from error
    tokenizer = build_tokenizer(teacher.facts.prime)
    config = LlamaConfig(
        vocab_size=len(words_of(teacher.facts.prime)),
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


def save(reasoner: Reasoner, folder: Path) -> None:
    """Write a reasoner to a folder that must not exist yet: weights as safetensors, tokenizer, teacher, checksums."""
    with atomic_folder(folder) as made:
        _write(reasoner, made)


def _write(reasoner: Reasoner, folder: Path) -> None:
    from transformers.utils import logging

    folder.mkdir()
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()  # two megabytes need none, and it would stand in the middle of ours
    try:
        reasoner.model.save_pretrained(folder)
    finally:
        if shown:
            logging.enable_progress_bar()
    reasoner.tokenizer.save_pretrained(folder)
    (folder / TASK).write_text(settings.dumps(reasoner.teacher), encoding="utf-8")
    for path in folder.iterdir():
        path.chmod(
            (folder / TASK).stat().st_mode
        )  # safetensors writes for its owner alone; who may read the rest may read the weights
    sums = {path.name: hash_of(path) for path in sorted(folder.iterdir())}
    (folder / SUMS).write_text(json.dumps(sums, indent=1) + "\n", encoding="utf-8")


def load(folder: Path | None = None) -> Reasoner:
    """Load a reasoner, by default the one that ships; files that do not match their checksums are refused."""
    try:
        from transformers import LlamaForCausalLM, PreTrainedTokenizerFast
    except ImportError as error:
        raise MissingExtraError("The tiny reasoner", "train") from error
    place = shipped() if folder is None else folder
    check(place)
    teacher = settings.load(Teacher, place / TASK)
    model = LlamaForCausalLM.from_pretrained(place).float().eval()
    return Reasoner(model, PreTrainedTokenizerFast.from_pretrained(place), teacher)


def shipped() -> Path:
    """Return the folder of the weights that ship with the package."""
    return Path(str(files("breadth.lab.model") / SHIPPED))


def digest(folder: Path | None = None) -> str:
    """Return one hash that stands for all files of a reasoner, by default the one that ships; made from its checksums."""
    place = shipped() if folder is None else folder
    _sums(place)  # what is no complete reasoner is refused in words
    return hash_of(place / SUMS)


def check(folder: Path) -> None:
    """Refuse a folder whose files are missing or differ from their checksums."""
    for name, hashed in _sums(folder).items():
        try:
            found = hash_of(folder / name)
        except OSError as error:
            raise BrokenFileError(folder / name, f"cannot be read: {error.strerror or error}.", REMEDY) from error
        if found != hashed:
            raise BrokenFileError(folder / name, "does not match its checksum: the file was changed or cut.", REMEDY)


def _sums(folder: Path) -> dict[str, str]:
    """Read what every file must hash to."""
    path = folder / SUMS
    try:
        sums = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BrokenFileError(
            path, f"cannot be read: {error.strerror or error}; so this is no complete reasoner.", REMEDY
        ) from error
    except (ValueError, RecursionError) as error:
        raise BrokenFileError(path, f"is no list of checksums: {error}.", REMEDY) from error
    if not isinstance(sums, dict) or any(Path(name).name != name for name in sums):
        raise BrokenFileError(
            path, "is no list of checksums: it needs the names of files and what they hash to.", REMEDY
        )
    if missing := [name for name in HASHED if name not in sums]:
        raise BrokenFileError(path, f"has no checksum of {', '.join(missing)}.", REMEDY)
    return sums


def hash_of(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def prime_of(folder: Path | None = None) -> int:
    """Return the prime that a reasoner reckons modulo, by default the one that ships."""
    place = shipped() if folder is None else folder
    check(place)
    return settings.load(Teacher, place / TASK).facts.prime
