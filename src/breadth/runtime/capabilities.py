"""What one particular server was found to do, as a record that is saved as TOML and shown."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from breadth.base import settings
from breadth.runtime.dialect import Dialect

Found = Literal["yes", "no", "unknown"]
"""What a trial showed; unknown where it could show nothing, and a remark says why."""


@dataclass(frozen=True)
class Capabilities:
    """One server, as a probe found it."""

    url: str
    """Its address."""
    model: str
    """Model that was tried."""
    dialect: Dialect
    """How it is spoken to, as fitted to it."""
    top_logprobs: int = 0
    """Alternatives it sent for a token at most, of the numbers tried; 0 when it sends no log-probs."""
    logprobs: Literal["raw", "processed", "unknown"] = "unknown"
    """Whether log-probs are those of the model, or those after temperature and top-p: confidences of the two do not compare."""
    prefix: Found = "unknown"
    """Whether it continues the given beginning of a reply."""
    seed: Found = "unknown"
    """Whether the same seed drew the same text, side by side with other draws, and another seed another."""
    n: Found = "unknown"
    """Whether it gives several completions for one request. Draws are separate requests either way."""
    thinking: Found = "unknown"
    """Whether it sets thinking apart from the reply."""
    thinking_cap: Found = "unknown"
    """Whether it keeps to a cap on thinking."""
    usage: Found = "unknown"
    """Whether a stream says what was used; without, tokens are counted by events, a little short of the truth."""
    speculative: Found = "unknown"
    """Whether it decodes speculatively, by its own word; caps on thinking and logit processors may then be passed over."""
    context: int | None = None
    """Tokens of prompt and reply together at most, by its own word."""
    slots: int | None = None
    """Completions it works on at a time, by its own word; more wait."""
    remarks: tuple[str, ...] = ()
    """What it refused, and why something is unknown."""

    @property
    def offers(self) -> frozenset[str]:
        """What a sampler of this server can do; what could not be told is believed of the dialect."""
        found: dict[str, Found] = {
            "logprobs": "yes" if self.top_logprobs else "no",
            "confidences": "yes" if self.top_logprobs > 1 else "no",
            "prefix": self.prefix,
            "seed": self.seed,
            "thinking": self.thinking_cap,
        }
        kept = {name for name in self.dialect.offers if found.get(name, "unknown") != "no"}
        return frozenset(kept | {name for name, verdict in found.items() if verdict == "yes"})

    def rows(self) -> list[tuple[str, str]]:
        """Return what was found as lines of a table: what, and how it is."""
        name = settings.to_table(self.dialect)["kind"]
        logprobs = f"{self.logprobs}, {self.top_logprobs} alternatives" if self.top_logprobs else "none"
        return [
            ("server", self.url),
            ("model", self.model),
            ("dialect", name if self.dialect.answered or name == "openai" else f"{name} (no real server has answered it in our tests)"),
            ("log-probs", logprobs),
            ("continues a beginning", self.prefix),
            ("keeps to seeds", self.seed),
            ("several completions a request", self.n),
            ("sets thinking apart", self.thinking),
            ("caps thinking", self.thinking_cap),
            ("counts tokens in streams", self.usage),
            ("speculative decoding", self.speculative),
            ("context", "unknown" if self.context is None else f"{self.context} tokens"),
            ("works side by side", "unknown" if self.slots is None else f"{self.slots} completions"),
            *(("remark", remark) for remark in self.remarks),
        ]

    def save(self, path: Path) -> None:
        """Write it to a TOML file, whole or not at all."""
        settings.dump(self, path)

    @classmethod
    def load(cls, path: Path) -> Capabilities:
        """Read it from a TOML file."""
        return settings.load(cls, path)
