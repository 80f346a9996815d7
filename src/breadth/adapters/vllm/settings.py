"""Changes worded for vLLM's server."""

from __future__ import annotations

from breadth.bridge.doctor.words.server_words import ServerWords

LOOP = {"min_pattern_size": 50, "max_pattern_size": 200, "min_count": 4}
"""Four turns of a passage of 50 to 200 tokens: what our own loop guard ends, 200 tokens of one passage over and over."""

SETTINGS = ServerWords(
    "vllm",
    fields={
        "thinking_budget": lambda tokens: {"thinking_token_budget": int(tokens)},
        "votes": lambda count: {"n": int(count)},
        "top_logprobs": lambda count: {"logprobs": True, "top_logprobs": int(count)},
        "loop_guard": lambda _: {"repetition_detection": LOOP},
    },
    flags={
        "thinking_budget": lambda _: ["--reasoning-parser <the model's>"],
        "top_logprobs": lambda count: [f"--max-logprobs {int(count)}"] if count > 20 else [],
        "logprobs_raw": lambda _: ["--logprobs-mode raw_logprobs"],
    },
)
"""The dialect of the catalogue; flags and fields of vLLM 0.28."""
