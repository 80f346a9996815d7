"""Changes worded for SGLang's server."""

from __future__ import annotations

from breadth.bridge.doctor.words.server_words import ServerWords

SETTINGS = ServerWords(
    "sglang",
    fields={
        "thinking_budget": lambda tokens: {"custom_params": {"thinking_budget": int(tokens)}},
        "votes": lambda count: {"n": int(count)},
        "top_logprobs": lambda count: {"logprobs": True, "top_logprobs": int(count)},
    },
    flags={
        "thinking_budget": lambda _: ["--reasoning-parser <the model's>", "--enable-strict-thinking"],
        "logprobs_raw": lambda _: ["SGLANG_RETURN_ORIGINAL_LOGPROB=1"],
    },
)
"""The dialect of the catalogue; flags and fields of SGLang 0.5.18, which has no guard against loops."""
