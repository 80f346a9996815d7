"""The model of the second rung: unpacked once from its GGUF file to a folder, and told that a reply ends with its line."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from breadth.base.atomic import whole_folder
from breadth.base.errors import BrokenFileError, MissingExtraError, SettingsError
from breadth.lab.model.reasoner import hash_of

MAGIC = b"GGUF"
"""How a GGUF file begins."""
JOB = "The second rung"


@dataclass(frozen=True)
class Policy:
    """A language model that answers in one line."""

    model: Any
    """A causal language model of transformers, float32, in evaluation mode."""
    tokenizer: Any
    """Its tokenizer; the end of a line is the end of a reply."""

    @property
    def end(self) -> int:
        """The token that ends a reply."""
        return int(self.tokenizer.eos_token_id)

    def said(self, ids: list[int]) -> str:
        """Return the text of a reply, without what ends it."""
        text = self.tokenizer.decode(
            ids[:-1] if ids[-1] == self.end else ids, skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        return str(text)


def fingerprint(place: Path) -> str:
    """Return the hash of a GGUF file, or of the files of a folder with a model of transformers; refuse what is neither."""
    if place.is_dir():
        files = sorted(path for path in place.iterdir() if path.is_file())
        if not (place / "config.json").is_file():
            raise BrokenFileError(
                place, "holds no config.json, so no model of transformers.", "Name a GGUF file or such a folder."
            )
        return hashlib.sha256("".join(f"{path.name} {hash_of(path)}\n" for path in files).encode()).hexdigest()
    try:
        with place.open("rb") as stream:
            begins = stream.read(len(MAGIC))
    except OSError as error:
        remedy = "Name the GGUF file of SmolLM2-135M-Instruct; tools/fetch_model.py fetches it."
        raise BrokenFileError(place, f"cannot be read: {error.strerror or error}.", remedy) from error
    if begins != MAGIC:
        raise BrokenFileError(
            place, "is no GGUF file: it does not begin with that word.", "Fetch it again, or name another."
        )
    return hash_of(place)


def check_libraries(place: Path) -> None:
    """Refuse, before anything runs, to go on without what training and reading the file need."""
    if any(find_spec(name) is None for name in ("torch", "transformers", "trl")):
        raise MissingExtraError(JOB, "train")
    if not place.is_dir() and find_spec("gguf") is None:
        raise SettingsError(
            "Reading a GGUF file needs the package gguf, which is not installed.",
            'Install it with: pip install "gguf>=0.17"',
        )


def unpack(place: Path, folder: Path) -> None:
    """Write a model to a folder as transformers loads it, whole or not at all; what is there already is left as it is.

    TRL loads the reference policy from a folder, and unpacking four-bit weights takes longer than reading what was
    unpacked.
    """
    if not folder.exists():
        save(_read(place), folder)


def load(folder: Path) -> Policy:
    """Load what `unpack` or `save` has written."""
    return _read(folder)


def save(policy: Policy, folder: Path) -> None:
    """Write a policy to a folder that must not exist yet."""
    with whole_folder(folder) as made:
        policy.model.save_pretrained(made)
        policy.tokenizer.save_pretrained(made)


def _read(place: Path) -> Policy:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # all of it is here; nothing is looked for elsewhere
    for name in ("HF_HUB_DISABLE_PROGRESS_BARS", "TQDM_DISABLE"):  # the terminal has a bar of ours
        os.environ.setdefault(name, "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    try:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer
    except ImportError as error:
        raise MissingExtraError(JOB, "train") from error
    folder, options = (place, {}) if place.is_dir() else (place.parent, {"gguf_file": place.name})
    tokenizer = AutoTokenizer.from_pretrained(str(folder), **options)
    model = AutoModelForCausalLM.from_pretrained(str(folder), dtype=torch.float32, **options)
    return _ending_at_newline(Policy(model.eval(), tokenizer))


def _ending_at_newline(policy: Policy) -> Policy:
    """Make the line break what ends a reply, for whoever asks the tokenizer or the model; what ended a message becomes padding."""
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
