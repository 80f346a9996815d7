"""Requests answered by a policy: drawn, decided, and sent whole or as a stream with signs of life."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import Any

import orjson
from aiohttp import web

from breadth.base.errors import BreadthError
from breadth.inference.records import Task
from breadth.runtime.driver import Solved
from breadth.runtime.proxy.body import Call
from breadth.runtime.proxy.faults import Refusal, refusal_of, unanswered
from breadth.runtime.proxy.policies import Chosen
from breadth.runtime.proxy.proxy import Note, Proxy, fresh_seed
from breadth.runtime.proxy.reply import about_answer, stream_events, whole_body
from breadth.runtime.proxy.stream import begun

HEARTBEAT = b": drawing\n\n"
"""A comment, which clients of server-sent events leave out."""


@dataclass(frozen=True)
class Answering:
    """One request being answered by its policy."""

    proxy: Proxy
    """Whose it is."""
    call: Call
    """What was asked."""
    chosen: Chosen
    """Policy that answers."""
    model: str
    """Model to ask."""
    note: Note
    """What is told about it afterwards."""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Draw, decide and reply."""
        task = self._task()
        if self.call.stream:
            return await self._streamed(request, task)
        solved = await self._solve(task)
        return web.Response(body=orjson.dumps(whole_body(self.call.path, solved, self._about(solved))), content_type="application/json")

    def _task(self) -> Task:
        policy = self.chosen.policy
        sampling = self.call.sampling(policy.sampling)
        return self.call.task(sampling, policy.reading, model=self.model, system=policy.system, seed=fresh_seed())

    async def _solve(self, task: Task) -> Solved:
        """Run the policy; a request for which nothing arrived is refused with the reason."""
        strategy, budget = self.chosen.policy.strategy, self.proxy.budget(self.call, self.chosen)
        solved = replace(await self.proxy.driver.solve(strategy, task, budget=budget), trace=self.note.trace)
        self.note.solved = solved
        if solved.answer.chosen is None:
            raise unanswered(solved, budget.seconds, self.proxy.upstreams)
        self.proxy.metrics.decided(solved, getattr(strategy, "most", None))
        return solved

    async def _streamed(self, request: web.Request, task: Task) -> web.StreamResponse:
        """Reply as a stream: comments while drawing, then the text. A client that leaves ends the draws with it."""
        solving = asyncio.create_task(self._solve(task))
        try:
            while not (await asyncio.wait({solving}, timeout=self.proxy.limits.heartbeat))[0]:
                await (await self._stream(request)).write(HEARTBEAT)
            solved = solving.result()
            response = await self._stream(request)
            events = stream_events(self.call.path, solved, self._about(solved), with_usage=self.call.wants_usage)
            await response.write(b"".join(events))
        except (Refusal, BreadthError) as error:
            if self.note.stream is None:
                raise
            response = self.note.stream
            refusal = error if isinstance(error, Refusal) else refusal_of(error, self.proxy.upstreams)
            self.note.status = refusal.status
            await response.write(refusal.event)
        finally:
            solving.cancel()
            await asyncio.gather(solving, return_exceptions=True)
        return response

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        return await begun(request, self.note) if self.note.stream is None else self.note.stream

    def _about(self, solved: Solved) -> dict[str, Any]:
        return about_answer(solved, self.chosen.policy.strategy, self.chosen.label, self.proxy.upstreams)
