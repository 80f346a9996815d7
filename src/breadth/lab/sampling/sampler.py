"""Completions of the reasoner for the driver, hundreds at once, with exact log-probs, confidences and entropies."""

from __future__ import annotations

import asyncio
import time
from array import array
from dataclasses import dataclass, field, replace
from typing import Any

from breadth.base.errors import ServerError
from breadth.inference.confidence import token_confidence
from breadth.inference.halting import Watcher
from breadth.inference.records import Candidate, Finish
from breadth.lab.reasoner import Reasoner
from breadth.lab.sampling.batch import CompletionJob
from breadth.lab.sampling.engine import Engine, SampledToken, Ticket
from breadth.runtime.sampler import Meter, SampleRequest
from breadth.runtime.samplers.completion import as_float32, split_thinking

REASONER_OFFERS = frozenset({"logprobs", "confidences", "prefix", "seed", "halt"})
"""Everything a sampler can offer."""
DEFAULT_TOP_LOGPROBS = 20
"""Log-probs that a confidence averages, unless a draw asks for another number (arXiv 2508.15260)."""


class ReasonerSampler:
    """Samples from the reasoner; all requests awaited at one time are batched, in a separate thread.

    Tokens are words set apart by spaces; a continuation brings the space that its prefix lacks. Log-probs are raw,
    confidences are from the true top k, the entropy of every step is in ``message["entropies"]``. The same draw gives
    the same completion in any company. Weights are those the model has when the sampler is made. ``thinking_tokens`` is
    kept: at it the closing mark is forced.
    """

    def __init__(self, reasoner: Reasoner, *, max_running: int = 512, threads: int = 1) -> None:
        self.tokenizer = reasoner.tokenizer
        """Words and numbers."""
        self.engine = Engine(reasoner, max_running=max_running, threads=threads)
        """Where all draws are drawn together."""
        self._words = [str(word) for word in self.tokenizer.convert_ids_to_tokens(range(len(self.tokenizer)))]

    @property
    def offers(self) -> frozenset[str]:
        """Everything."""
        return REASONER_OFFERS

    async def sample(self, request: SampleRequest, meter: Meter) -> Candidate:
        """Draw one completion; see `Sampler`. Nothing of a cancelled draw is charged once it is cancelled."""
        ids = self._prompt_ids(request)
        sampling = replace(request.sampling, top_logprobs=request.sampling.top_logprobs or DEFAULT_TOP_LOGPROBS)
        loop = asyncio.get_running_loop()
        pending = _PendingCompletion(request, meter, self._words, loop, loop.create_future(), sampling.top_logprobs)
        ticket = self.engine.submit(CompletionJob(tuple(ids), sampling, request.seed), pending.on_token, pending.fail)
        meter.calls += 1
        meter.prompt_tokens += len(ids)
        try:
            pending.attach(ticket)
            async with asyncio.timeout(request.seconds):
                finish = await pending.ended
        except TimeoutError as error:
            raise ServerError(
                f"The draw took longer than the {request.seconds} s it may take.", "Allow more seconds, fewer tokens."
            ) from error
        finally:
            ticket.cancel()
        return pending.candidate(finish, len(ids))

    async def close(self) -> None:
        """End the thread; draws that are still awaited fail."""
        await asyncio.to_thread(self.engine.close)

    def _prompt_ids(self, draw: SampleRequest) -> list[int]:
        """Return the tokens of prompt and prefix, tokenized separately: joined words would become one unknown token."""
        prompt = draw.prompt
        if not isinstance(prompt, str):
            messages = [dict(message) for message in prompt]
            prompt = self.tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        given = self.tokenizer(prompt, add_special_tokens=isinstance(draw.prompt, str))["input_ids"]
        return [*given, *self.tokenizer(draw.prefix, add_special_tokens=False)["input_ids"]]


@dataclass
class _PendingCompletion:
    """One completion in progress; it receives its tokens in the engine's thread."""

    draw: SampleRequest
    meter: Meter
    words: list[str]
    loop: asyncio.AbstractEventLoop
    ended: asyncio.Future[Finish]
    top: int
    pieces: list[str] = field(default_factory=list)
    logprobs: array[float] = field(default_factory=lambda: array("f"))
    confidences: array[float] = field(default_factory=lambda: array("f"))
    entropies: array[float] = field(default_factory=lambda: array("f"))
    ticket: Ticket | None = None
    over: bool = False

    def __post_init__(self) -> None:
        prefix = self.draw.prefix
        self.begun = time.perf_counter()
        self.watcher: Watcher | None = None if self.draw.halt is None else self.draw.halt.watch()
        self.gap = " " if prefix and not prefix[-1].isspace() else ""
        self.tail = ""
        # A stop text may begin in earlier pieces, but no further back than its own length.
        self.reach = max(map(len, self.draw.sampling.stop), default=0)

    def attach(self, ticket: Ticket) -> None:
        """Attach the ticket; tokens, even the last one, may have arrived before it."""
        self.ticket = ticket
        if self.over:
            ticket.cancel()

    def on_token(self, token: SampledToken) -> None:
        """Record a token; report the end if the completion ends with it."""
        if self.over:
            return
        self.meter.tokens += 1
        piece = "" if token.last == "stop" else self.gap + self.words[token.id]
        self.gap = " "
        confidence, _ = token_confidence([logprob for _, logprob in token.top], self.top)
        self.logprobs.append(token.logprob)
        self.confidences.append(confidence)
        self.entropies.append(token.entropy)
        halted = self.watcher is not None and self.watcher.push(piece, token.logprob, confidence)
        finish = self._finish(piece, token, halted)
        if finish is not None:
            self.over = True
            if self.ticket is not None:
                self.ticket.cancel()
            self._report(finish)

    def fail(self, error: Exception) -> None:
        """Report that the completion has failed."""
        self.over = True
        self._report(error)

    def candidate(self, finish: Finish, prompt_tokens: int) -> Candidate:
        """Return the finished completion."""
        draw, whole = self.draw, "".join(self.pieces)
        reasoning, answer, thinking = ("", whole, 0) if draw.prefix else split_thinking(self.pieces)
        return Candidate(
            text=answer,
            reasoning=reasoning,
            finish=finish,
            prefix=draw.prefix,
            prompt_tokens=prompt_tokens,
            tokens=len(self.logprobs),
            thinking_tokens=thinking,
            logprobs=as_float32(self.logprobs),
            confidences=as_float32(self.confidences),
            seed=draw.seed,
            model=draw.model,
            seconds=time.perf_counter() - self.begun,
            message={"entropies": as_float32(self.entropies)},
        )

    def _finish(self, piece: str, token: SampledToken, halted: bool) -> Finish | None:
        """Append the text of a token and return why the completion ends with it, if it does."""
        self.pieces.append(piece)
        self.tail = (self.tail + piece)[-(self.reach + len(piece)) :] if self.reach else ""
        if token.last == "stop":
            return "stop"
        if any(stop in self.tail for stop in self.draw.sampling.stop):
            whole = "".join(self.pieces)
            self.pieces = [whole[: min(place for stop in self.draw.sampling.stop if (place := whole.find(stop)) >= 0)]]
            return "stop"
        return "halt" if halted else token.last or None

    def _report(self, outcome: Finish | Exception) -> None:
        self.loop.call_soon_threadsafe(_settle, self.ended, outcome)


def _settle(ended: asyncio.Future[Finish], outcome: Any) -> None:
    if ended.done():
        return
    if isinstance(outcome, Exception):
        ended.set_exception(outcome)
    else:
        ended.set_result(outcome)
