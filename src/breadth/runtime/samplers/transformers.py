"""Completions from a model in this process (transformers), with exact log-probs and full-vocabulary entropies."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from array import array
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from breadth.base.errors import BrokenFileError, MissingExtraError, ServerError
from breadth.inference.confidence import token_confidence
from breadth.inference.halting import Watcher
from breadth.inference.records import Candidate, Finish, Sampling
from breadth.runtime.sampler import ALL_OFFERS, Meter, SampleRequest
from breadth.runtime.samplers.completion import as_float32, split_thinking


def sample_token(logits: Any, sampling: Sampling, prompt: Sequence[int], written: Sequence[int], generator: Any) -> int:
    """Sample a token: penalties, temperature, min-p, top-k, top-p; temperature 0 takes the likeliest.

    The repetition penalty covers prompt and reply, presence and frequency penalties the reply alone, as in OpenAI and
    vLLM.
    """
    import torch

    scores = apply_penalties(logits, sampling, prompt, written)
    if sampling.temperature == 0:
        return int(scores.argmax())
    scores = scores / sampling.temperature
    if sampling.min_p > 0:
        scores = scores.masked_fill(scores < scores.max() + math.log(sampling.min_p), -math.inf)
    if 0 < sampling.top_k < len(scores):
        scores = scores.masked_fill(scores < scores.topk(sampling.top_k).values[-1], -math.inf)
    if sampling.top_p < 1:
        ordered, indices = scores.sort(descending=True)
        before = ordered.softmax(-1).cumsum(-1) - ordered.softmax(-1)
        scores = scores.scatter(0, indices[before >= sampling.top_p], -math.inf)
    return int(torch.multinomial(scores.softmax(-1), 1, generator=generator))


def apply_penalties(logits: Any, sampling: Sampling, prompt: Sequence[int], written: Sequence[int]) -> Any:
    """Return logits with the penalties for tokens seen before."""
    import torch

    if sampling.repetition_penalty == 1 and not sampling.presence_penalty and not sampling.frequency_penalty:
        return logits
    counts = torch.bincount(torch.tensor(list(written), dtype=torch.long), minlength=len(logits))[: len(logits)]
    seen = counts.clone()
    seen[torch.tensor(list(prompt), dtype=torch.long)] += 1
    weaker = torch.where(logits > 0, logits / sampling.repetition_penalty, logits * sampling.repetition_penalty)
    penalized = torch.where(seen > 0, weaker, logits)
    return penalized - sampling.presence_penalty * (counts > 0) - sampling.frequency_penalty * counts


DECODE_WINDOW_TOKENS = 16
"""Tokens decoded together."""
_BROKEN = "\N{REPLACEMENT CHARACTER}"


class TransformersSampler:
    """Samples from a causal language model loaded by transformers, one completion after another in its own thread.

    Log-probs are raw (before temperature and truncation), confidences come from the true top k (20 unless a request
    sets another number), and the entropy of every step over the whole vocabulary is in ``message["entropies"]``. For
    measuring, and for models small enough to have no server: it does not batch.
    """

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self.model = model
        """A causal language model, in evaluation mode."""
        self.tokenizer = tokenizer
        """Its tokenizer."""
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="breadth-transformers")

    @classmethod
    def load(cls, source: str | Path, *, gguf_file: str | None = None, device: str = "cpu") -> TransformersSampler:
        """Load model and tokenizer from a folder or a hub name; ``gguf_file`` in it is unpacked to float32.

        Nothing from the folder is executed or unpickled: transformers refuses models with their own code, and weights
        are read from safetensors or GGUF.
        """
        try:
            import torch
            from transformers import AutoModelForCausalLM, AutoTokenizer
        except ImportError as error:
            raise MissingExtraError("Sampling from a model in this process", "train") from error
        options: dict[str, Any] = {} if gguf_file is None else {"gguf_file": gguf_file}
        tokenizer = AutoTokenizer.from_pretrained(str(source), trust_remote_code=False, **options)
        if gguf_file is None:
            options["use_safetensors"] = True
        try:
            model = AutoModelForCausalLM.from_pretrained(
                str(source), dtype=torch.float32, trust_remote_code=False, **options
            )
        except OSError as error:
            first = str(error).strip().partition("\n")[0]
            raise BrokenFileError(
                source,
                f"cannot be loaded as a model of transformers: {first}",
                "Give a folder with config.json, the tokenizer and the weights as safetensors (where they are pickled,"
                " save them with save_pretrained), or the name of a public model.",
            ) from error
        return cls(model.eval().to(device), tokenizer)

    @property
    def offers(self) -> frozenset[str]:
        """Everything."""
        return ALL_OFFERS

    async def sample(self, request: SampleRequest, meter: Meter) -> Candidate:
        """Sample one completion; see `Sampler`. A cancelled sample stops before its next token."""
        stop = threading.Event()
        job = self._thread.submit(self._write, request, meter, stop)
        work = asyncio.wrap_future(job)
        try:
            async with asyncio.timeout(request.seconds):
                return await asyncio.shield(work)
        except TimeoutError as error:
            raise ServerError(
                f"The sample took longer than the {request.seconds} s it may take.", "Allow more seconds, fewer tokens."
            ) from error
        finally:
            stop.set()
            if not work.done() and not job.cancel():
                await asyncio.wait([work])

    async def close(self) -> None:
        """End the thread."""
        self._thread.shutdown(wait=True, cancel_futures=True)

    def _write(self, request: SampleRequest, meter: Meter, stop: threading.Event) -> Candidate:
        """Write a completion token by token; runs in the thread."""
        import torch

        started = time.perf_counter()
        meter.calls += 1
        ids, written = self._prompt_ids(request), list[int]()
        text = _Text(self.tokenizer)
        trace = _Trace(request.sampling.top_logprobs or 20, None if request.halt is None else request.halt.watch())
        generator = torch.Generator().manual_seed(request.seed)
        max_tokens = self._max_new_tokens(ids, request)
        meter.prompt_tokens += len(ids)
        inputs, cache, finish = torch.tensor([ids], device=self.model.device), None, "length"
        with torch.inference_mode():
            for _ in range(max_tokens):
                if stop.is_set():
                    break
                out = self.model(input_ids=inputs, past_key_values=cache, use_cache=True)
                cache, logits = out.past_key_values, out.logits[0, -1].float().cpu()
                token = sample_token(logits, request.sampling, ids, written, generator)
                written.append(token)
                inputs = torch.tensor([[token]], device=self.model.device)
                meter.tokens += 1
                reason = self._add_token(token, text, trace, logits, request)
                if reason is not None:
                    finish = reason
                    break
        return _build_candidate(request, text, trace, finish, meter, time.perf_counter() - started)

    def _add_token(self, token: int, text: _Text, trace: _Trace, logits: Any, request: SampleRequest) -> Finish | None:
        """Add a token and return why the completion ends with it, if it does."""
        end_ids = self.model.generation_config.eos_token_id
        end_ids = end_ids if isinstance(end_ids, list) else [end_ids]
        closing = token in {*end_ids, self.tokenizer.eos_token_id} - {None}
        piece = "" if closing else text.add(token)
        halted = trace.add(token, logits, piece)
        if closing:
            return "stop"
        if any(stop in text.whole for stop in request.sampling.stop):
            text.cut_before(request.sampling.stop)
            return "stop"
        return "halt" if halted else None

    def _prompt_ids(self, request: SampleRequest) -> list[int]:
        if isinstance(request.prompt, str):
            return list(self.tokenizer(request.prompt + request.prefix)["input_ids"])
        messages = [dict(message) for message in request.prompt]
        rendered = self.tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        return list(self.tokenizer(rendered + request.prefix, add_special_tokens=False)["input_ids"])

    def _max_new_tokens(self, ids: list[int], request: SampleRequest) -> int:
        """Return how many tokens may be written: the cap, or less where the context ends before it."""
        context = getattr(self.model.config, "max_position_embeddings", None)
        if not ids:
            raise ServerError("The prompt has no tokens.", "Ask something.", fatal=True)
        if context is not None and len(ids) >= context:
            raise ServerError(
                f"The prompt has {len(ids)} tokens; the model's context holds {context}.",
                "Shorten the prompt.",
                fatal=True,
            )
        return request.sampling.max_tokens if context is None else min(request.sampling.max_tokens, context - len(ids))


class _Text:
    """The text of a growing list of tokens: characters of several tokens appear when the last one is there."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._window: list[int] = []
        self._emitted = 0
        self.pieces: list[str] = []

    @property
    def whole(self) -> str:
        return "".join(self.pieces)

    def add(self, token: int) -> str:
        """Add a token and return the text it completes."""
        self._window.append(token)
        recent = self._decode(self._window)
        stable = recent.rstrip(_BROKEN)
        fresh = stable[self._emitted :]
        self.pieces.append(fresh)
        self._emitted = max(self._emitted, len(stable))
        if len(self._window) > DECODE_WINDOW_TOKENS and stable == recent:
            # One token stays: the text of a token may depend on whether it is the first.
            self._window = [token]
            self._emitted = len(self._decode(self._window))
        return fresh

    def cut_before(self, stops: tuple[str, ...]) -> None:
        """Remove the first stop text and everything after it."""
        whole = self.whole
        self.pieces = [whole[: min(position for stop in stops if (position := whole.find(stop)) >= 0)]]

    def _decode(self, ids: list[int]) -> str:
        return str(self._tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))


@dataclass
class _Trace:
    """Measurements at each token."""

    top: int
    watcher: Watcher | None
    logprobs: array[float] = field(default_factory=lambda: array("f"))
    confidences: array[float] = field(default_factory=lambda: array("f"))
    entropies: array[float] = field(default_factory=lambda: array("f"))

    def add(self, token: int, logits: Any, piece: str) -> bool:
        """Measure a token; True when the watcher ends the completion."""
        raw = logits.log_softmax(-1)
        confidence, _ = token_confidence(raw.topk(min(self.top, len(raw))).values.tolist(), self.top)
        logprob = float(raw[token])
        self.logprobs.append(logprob)
        self.confidences.append(confidence)
        self.entropies.append(float(-(raw.exp() * raw.clamp(min=-1e4)).sum()))
        return self.watcher is not None and self.watcher.push(piece, logprob, confidence)


def _build_candidate(
    request: SampleRequest, text: _Text, trace: _Trace, finish: str, meter: Meter, seconds: float
) -> Candidate:
    reasoning, reply, thinking = split_thinking(text.pieces) if not request.prefix else ("", text.whole, 0)
    return Candidate(
        text=reply,
        reasoning=reasoning,
        finish=finish,  # type: ignore[arg-type]  # one of the literals
        prefix=request.prefix,
        prompt_tokens=meter.prompt_tokens,
        tokens=len(trace.logprobs),
        thinking_tokens=thinking,
        logprobs=as_float32(trace.logprobs),
        confidences=as_float32(trace.confidences),
        seed=request.seed,
        model=request.model,
        seconds=seconds,
        message={"entropies": as_float32(trace.entropies)},
    )
