"""Completions from a model in this process (transformers), with exact log-probs and entropies over the whole vocabulary."""

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

from breadth.base.errors import MissingExtraError, ServerError
from breadth.inference.confidence import token_confidence
from breadth.inference.halting import Watcher
from breadth.inference.records import Candidate, Finish, Sampling
from breadth.runtime.sampler import Meter, SampleRequest
from breadth.runtime.samplers.completion import as_float32, split_thinking


def sample_token(logits: Any, sampling: Sampling, prompt: Sequence[int], written: Sequence[int], generator: Any) -> int:
    """Draw a token: penalties, temperature, min-p, top-k, top-p, chance; temperature 0 takes the likeliest.

    Repetition is punished over prompt and reply, presence and frequency over the reply alone, as OpenAI and vLLM have
    it.
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
        ordered, places = scores.sort(descending=True)
        before = ordered.softmax(-1).cumsum(-1) - ordered.softmax(-1)
        scores = scores.scatter(0, places[before >= sampling.top_p], -math.inf)
    return int(torch.multinomial(scores.softmax(-1), 1, generator=generator))


def apply_penalties(logits: Any, sampling: Sampling, prompt: Sequence[int], written: Sequence[int]) -> Any:
    """Return logits with the penalties for tokens seen before."""
    import torch

    if sampling.repetition_penalty == 1 and not sampling.presence_penalty and not sampling.frequency_penalty:
        return logits
    counts = torch.bincount(torch.tensor(list(written), dtype=torch.long), minlength=len(logits))[: len(logits)]
    known = counts.clone()
    known[torch.tensor(list(prompt), dtype=torch.long)] += 1
    weaker = torch.where(logits > 0, logits / sampling.repetition_penalty, logits * sampling.repetition_penalty)
    punished = torch.where(known > 0, weaker, logits)
    return punished - sampling.presence_penalty * (counts > 0) - sampling.frequency_penalty * counts


OFFERS = frozenset({"logprobs", "confidences", "prefix", "seed", "halt"})
"""What it can do: all there is."""
DECODE_WINDOW_TOKENS = 16
"""Tokens decoded together."""
_BROKEN = "\N{REPLACEMENT CHARACTER}"


class TransformersSampler:
    """Draws from a causal language model loaded by transformers, one completion after another in a thread of its own.

    Log-probs are raw (before temperature and cuts), confidences are from the true top k (20 unless a draw asks for
    another number), and the entropy of every step over the whole vocabulary is in ``message["entropies"]``. For
    measuring, and for models small enough to have no server: it does not batch.
    """

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self.model = model
        """A causal language model, in evaluation mode."""
        self.tokenizer = tokenizer
        """Its tokenizer."""
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="breadth-transformers")

    @classmethod
    def load(cls, place: str | Path, *, gguf_file: str | None = None, device: str = "cpu") -> TransformersSampler:
        """Load model and tokenizer from a folder or a hub name; ``gguf_file`` names a GGUF file in it, which is unpacked to float32.

        Nothing from the folder is executed: models that bring code of their own are refused by transformers.
        """
        try:
            import torch
            from transformers import AutoModelForCausalLM, AutoTokenizer
        except ImportError as error:
            raise MissingExtraError("Drawing from a model in this process", "train") from error
        options: dict[str, Any] = {} if gguf_file is None else {"gguf_file": gguf_file}
        tokenizer = AutoTokenizer.from_pretrained(str(place), **options)
        model = AutoModelForCausalLM.from_pretrained(str(place), dtype=torch.float32, **options)
        return cls(model.eval().to(device), tokenizer)

    @property
    def offers(self) -> frozenset[str]:
        """Everything."""
        return OFFERS

    async def sample(self, request: SampleRequest, meter: Meter) -> Candidate:
        """Draw one completion; see `Sampler`. A cancelled draw stops before its next token."""
        stop = threading.Event()
        job = self._thread.submit(self._write, request, meter, stop)
        work = asyncio.wrap_future(job)
        try:
            async with asyncio.timeout(request.seconds):
                return await asyncio.shield(work)
        except TimeoutError as error:
            raise ServerError(
                f"The draw took longer than the {request.seconds} s it may take.", "Allow more seconds, fewer tokens."
            ) from error
        finally:
            stop.set()
            if not work.done() and not job.cancel():
                await asyncio.wait([work])

    async def close(self) -> None:
        """End the thread."""
        self._thread.shutdown(wait=True, cancel_futures=True)

    def _write(self, draw: SampleRequest, meter: Meter, stop: threading.Event) -> Candidate:
        """Write a completion token by token; runs in the thread."""
        import torch

        started = time.perf_counter()
        meter.calls += 1
        ids, written = self._prompt_ids(draw), list[int]()
        text = _Text(self.tokenizer)
        trace = _Trace(draw.sampling.top_logprobs or 20, None if draw.halt is None else draw.halt.watch())
        generator = torch.Generator().manual_seed(draw.seed)
        room = self._room(ids, draw)
        meter.prompt_tokens += len(ids)
        fed, cache, finish = torch.tensor([ids], device=self.model.device), None, "length"
        with torch.inference_mode():
            for _ in range(room):
                if stop.is_set():
                    break
                out = self.model(input_ids=fed, past_key_values=cache, use_cache=True)
                cache, logits = out.past_key_values, out.logits[0, -1].float().cpu()
                token = sample_token(logits, draw.sampling, ids, written, generator)
                written.append(token)
                fed = torch.tensor([[token]], device=self.model.device)
                meter.tokens += 1
                ended = self._ended(token, text, trace, logits, draw)
                if ended is not None:
                    finish = ended
                    break
        return _candidate(draw, text, trace, finish, meter, time.perf_counter() - started)

    def _ended(self, token: int, text: _Text, trace: _Trace, logits: Any, draw: SampleRequest) -> Finish | None:
        """Take a token in and say why the completion ends with it, if it does."""
        closing = token in self._end_ids()
        piece = "" if closing else text.add(token)
        halted = trace.add(token, logits, piece)
        if closing:
            return "stop"
        if any(stop in text.whole for stop in draw.sampling.stop):
            text.cut_before(draw.sampling.stop)
            return "stop"
        return "halt" if halted else None

    def _end_ids(self) -> set[int]:
        said = self.model.generation_config.eos_token_id
        ids = said if isinstance(said, list) else [said]
        return {one for one in [*ids, self.tokenizer.eos_token_id] if one is not None}

    def _prompt_ids(self, draw: SampleRequest) -> list[int]:
        if isinstance(draw.prompt, str):
            return list(self.tokenizer(draw.prompt + draw.prefix)["input_ids"])
        messages = [dict(message) for message in draw.prompt]
        rendered = self.tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        return list(self.tokenizer(rendered + draw.prefix, add_special_tokens=False)["input_ids"])

    def _room(self, ids: list[int], draw: SampleRequest) -> int:
        """Return how many tokens may be written: the cap, or less where the context ends before it."""
        room = getattr(self.model.config, "max_position_embeddings", None)
        if not ids:
            raise ServerError("The prompt has no tokens.", "Ask something.", fatal=True)
        if room is not None and len(ids) >= room:
            raise ServerError(
                f"The prompt has {len(ids)} tokens; the model's context holds {room}.",
                "Shorten the prompt.",
                fatal=True,
            )
        return draw.sampling.max_tokens if room is None else min(draw.sampling.max_tokens, room - len(ids))


class _Text:
    """The text of a growing list of tokens: characters of several tokens appear when the last one is there."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._window: list[int] = []
        self._told = 0
        self.pieces: list[str] = []

    @property
    def whole(self) -> str:
        return "".join(self.pieces)

    def add(self, token: int) -> str:
        """Take a token in and return the text it completes."""
        self._window.append(token)
        recent = self._decoded(self._window)
        stable = recent.rstrip(_BROKEN)
        fresh = stable[self._told :]
        self.pieces.append(fresh)
        self._told = max(self._told, len(stable))
        if len(self._window) > DECODE_WINDOW_TOKENS and stable == recent:
            # One token stays, for how a token reads may depend on whether it is the first.
            self._window = [token]
            self._told = len(self._decoded(self._window))
        return fresh

    def cut_before(self, stops: tuple[str, ...]) -> None:
        """Leave out the first stop text and what follows it."""
        whole = self.whole
        self.pieces = [whole[: min(place for stop in stops if (place := whole.find(stop)) >= 0)]]

    def _decoded(self, ids: list[int]) -> str:
        return str(self._tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))


@dataclass
class _Trace:
    """What is measured at each token."""

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


def _candidate(draw: SampleRequest, text: _Text, trace: _Trace, finish: str, meter: Meter, seconds: float) -> Candidate:
    reasoning, said, thinking = split_thinking(text.pieces) if not draw.prefix else ("", text.whole, 0)
    return Candidate(
        text=said,
        reasoning=reasoning,
        finish=finish,  # type: ignore[arg-type]  # one of the literals
        prefix=draw.prefix,
        prompt_tokens=meter.prompt_tokens,
        tokens=len(trace.logprobs),
        thinking_tokens=thinking,
        logprobs=as_float32(trace.logprobs),
        confidences=as_float32(trace.confidences),
        seed=draw.seed,
        model=draw.model,
        seconds=seconds,
        message={"entropies": as_float32(trace.entropies)},
    )
