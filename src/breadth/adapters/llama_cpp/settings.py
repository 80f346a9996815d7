"""Changes worded for llama.cpp's server."""

from __future__ import annotations

from breadth.bridge.doctor.words.server_words import ServerWords

DRY = 0.8
"""Multiplier of the DRY sampler, as its author proposes; it makes the next turn of a loop less likely, and is off by default."""

SETTINGS = ServerWords(
    "llama-cpp",
    fields={
        "thinking_budget": lambda tokens: {"reasoning_budget_tokens": int(tokens)},
        "votes": lambda count: {"n": int(count)},
        "top_logprobs": lambda count: {"logprobs": True, "top_logprobs": int(count)},
        "logprobs_raw": lambda _: {"post_sampling_probs": False},
        "loop_guard": lambda _: {"dry_multiplier": DRY},
    },
    flags={"votes": lambda count: [f"--parallel {int(count)}"]},
)
"""The dialect of the catalogue; fields of llama.cpp b10586, which draws no more at a time than it has slots."""
