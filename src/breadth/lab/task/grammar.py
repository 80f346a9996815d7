"""The language of Routes: the routes to an answer, how a trace is written, and how it is parsed token by token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache

from breadth.lab.task.problems import NUMBER, ROUTES_OPERATORS, Problem

ROUTES = ("add", "left", "right", "expand")
"""Add first and multiply once; multiply each term of the left sum by the right sum; the left sum by each term of the
right; expand.
"""


@dataclass(frozen=True)
class RouteStep:
    """One operation of a route; its operands are the values of these names."""

    name: str
    """Name of its result."""
    sign: str
    """``+`` or ``*``."""
    first: str
    """Name of one operand."""
    second: str
    """Name of the other."""


def available_routes(problem: Problem) -> tuple[str, ...]:
    """List the routes that differ for a problem: with one term on the right there is nothing to distribute there."""
    return ROUTES if len(problem.right) > 1 else ("add", "left")


@cache
def route_steps(route: str, terms: int, added: bool) -> tuple[RouteStep, ...]:
    """List the operations of a route; ``terms`` counts those on the right: ``a b`` and ``c d``, and ``e`` is added."""
    right = "t" if terms > 1 else "c"
    sums = (RouteStep("s", "+", "a", "b"),), (RouteStep("t", "+", "c", "d"),) if terms > 1 else ()
    products = {
        "add": (*sums[0], *sums[1], RouteStep("r", "*", "s", right)),
        "left": (
            *sums[1],
            RouteStep("u", "*", "a", right),
            RouteStep("v", "*", "b", right),
            RouteStep("r", "+", "u", "v"),
        ),
        "right": (
            *sums[0],
            RouteStep("u", "*", "s", "c"),
            RouteStep("v", "*", "s", "d"),
            RouteStep("r", "+", "u", "v"),
        ),
        "expand": (
            *(RouteStep(left + other, "*", left, other) for left in "ab" for other in "cd"),
            RouteStep("u", "+", "ac", "ad"),
            RouteStep("v", "+", "bc", "bd"),
            RouteStep("r", "+", "u", "v"),
        ),
    }
    return (*products[route], *((RouteStep("z", "+", "r", "e"),) if added else ()))


@dataclass
class RouteProgress:
    """How far one attempt along a route has come: the values known, the steps still to take."""

    problem: Problem
    """What is being solved."""
    route: str
    """Along which route."""
    values: dict[str, int] = field(default_factory=dict)
    """Name -> value found so far."""
    left: list[RouteStep] = field(default_factory=list)
    """Steps not taken yet."""
    result: int | None = None
    """Value of the last step taken."""

    def __post_init__(self) -> None:
        given = (*self.problem.left, *self.problem.right)
        self.values = dict(zip("abcd", given, strict=False))
        if self.problem.added is not None:
            self.values["e"] = self.problem.added
        self.left = list(route_steps(self.route, len(self.problem.right), self.problem.added is not None))

    def ready_steps(self) -> list[RouteStep]:
        """List the steps whose operands are known."""
        return [step for step in self.left if step.first in self.values and step.second in self.values]

    def take(self, step: RouteStep, value: int) -> None:
        """Note the value of a step."""
        self.left.remove(step)
        self.values[step.name] = self.result = value

    def with_step(self, step: RouteStep, value: int) -> RouteProgress:
        """Return how far it would be with one more step taken; this one stays as it is."""
        further = RouteProgress(self.problem, self.route)
        further.values, further.left = dict(self.values), list(self.left)
        further.take(step, value)
        return further

    def matching_steps(self, sign: str, first: int, second: int) -> list[RouteStep]:
        """List the steps that may be taken now with these operands, in either order; equal terms make it several."""
        wanted = ((first, second), (second, first))
        return [
            step
            for step in self.ready_steps()
            if step.sign == sign and (self.values[step.first], self.values[step.second]) in wanted
        ]


OPEN, CLOSE, AGAIN, END = "<think>", "</think>", "again", "<eos>"
"""Thinking begins, thinking ends, one more attempt, the reply ends."""
STYLES = ("infix", "prefix")
"""The two surface formats of an operation: ``3 + 5 =8`` and ``+ 3 5 =8``."""
OPERATION_TOKENS = 4
"""Tokens of an operation in either format."""


class TokenRole(StrEnum):
    """What a token is."""

    PLANNING = "planning"
    """A choice: route, operand, operator, one more attempt or the end of thinking."""
    EXECUTION = "execution"
    """A value: the result of an operation, or the answer."""
    FORM = "form"
    """Neither: the opening of the thinking, the end of the reply."""
    STRAY = "stray"
    """A token the grammar has no place for, and all that follow it."""


@dataclass(frozen=True)
class Operation:
    """One operation as written."""

    sign: str
    """``+`` or ``*``."""
    first: int
    """First operand."""
    second: int
    """Second operand."""
    value: int
    """What was written as its result."""


@dataclass(frozen=True)
class Attempt:
    """One attempt: its route, its operations, and whether it holds together."""

    route: str
    """Along which route."""
    style: str
    """Surface format of its first operation; empty when there is none."""
    operations: tuple[Operation, ...]
    """What was written."""
    followed: bool
    """Whether every operation is a step of the route with the operands that are due, and the route was walked to its
    end.
    """

    @property
    def result(self) -> int | None:
        """The last value found."""
        return self.operations[-1].value if self.operations else None


@dataclass(frozen=True)
class ReplyTrace:
    """A reply taken apart."""

    roles: tuple[TokenRole, ...]
    """What each token is."""
    attempts: tuple[Attempt, ...]
    """The attempts, the last one perhaps unfinished."""
    answer: int | None
    """The answer given; None where the reply does not end as it should."""
    well_formed: bool
    """Whether every token has its place and the reply is complete."""


def result_word(value: int) -> str:
    """Write the result of an operation: one token with its equals sign, directly after the second operand.

    With a sign of its own between them a model this small takes ten times as long to learn its facts by heart.
    """
    return f"={value}"


def write_operation(style: str, sign: str, first: int, second: int, value: int) -> list[str]:
    """Write an operation."""
    head = [str(first), sign, str(second)] if style == "infix" else [sign, str(first), str(second)]
    return [*head, result_word(value)]


def parse(problem: Problem, words: Sequence[str]) -> ReplyTrace:
    """Take a reply apart, from the opening of its thinking on. Nothing is raised: what has no place is stray."""
    reader = _TraceReader(problem, list(words))
    return reader.read()


def token_roles(words: Sequence[str]) -> tuple[TokenRole, ...]:
    """Say what each token of a reply is; for that the problem need not be known."""
    return _TraceReader(None, list(words)).read().roles


class _TraceReader:
    """Walks over the tokens once."""

    def __init__(self, problem: Problem | None, words: list[str]) -> None:
        self.problem, self.words = problem, words
        self.roles: list[TokenRole] = []
        self.attempts: list[Attempt] = []
        self.answer: int | None = None

    def read(self) -> ReplyTrace:
        complete = self._read_thinking() and self._read_end()
        formed = complete and len(self.roles) == len(self.words)
        strays = [TokenRole.STRAY] * (len(self.words) - len(self.roles))
        return ReplyTrace((*self.roles, *strays), tuple(self.attempts), self.answer if formed else None, formed)

    def _next(self) -> str:
        return self.words[len(self.roles)] if len(self.roles) < len(self.words) else ""

    def _read_thinking(self) -> bool:
        """Read up to and with the end of the thinking."""
        if self._next() != OPEN:
            return False
        self.roles.append(TokenRole.FORM)
        while self._next() in ROUTES:
            whole = self._read_attempt()
            if self._next() == CLOSE:
                break
            if self._next() != AGAIN or not whole:
                return False
            self.roles.append(TokenRole.PLANNING)
        if self._next() != CLOSE:
            return False
        self.roles.append(TokenRole.PLANNING)
        return True

    def _read_attempt(self) -> bool:
        """Read a route and the operations behind it, an unfinished last one included; say whether there is no such."""
        route = self._next()
        self.roles.append(TokenRole.PLANNING)
        found: list[tuple[str, Operation]] = []
        end = len(self.roles)
        while (operation := self._read_operation()) is not None:
            found.append(operation)
            end = len(self.roles)
        operations = tuple(written for _, written in found)
        followed = (
            self.problem is not None and len(self.roles) == end and follows_route(self.problem, route, operations)
        )
        self.attempts.append(Attempt(route, found[0][0] if found else "", operations, followed))
        return len(self.roles) == end

    def _read_operation(self) -> tuple[str, Operation] | None:
        """Read an operation; of an unfinished one only the roles."""
        start = len(self.roles)
        if start >= len(self.words):
            return None
        for place in range(OPERATION_TOKENS):
            role = role_in_operation(place, self.words[start], self._next())
            if role is None:
                return None
            self.roles.append(role)
        first, second, third, value = self.words[start : start + OPERATION_TOKENS]
        style, sign, left, right = (
            ("prefix", first, second, third) if first in ROUTES_OPERATORS else ("infix", second, first, third)
        )
        return style, Operation(sign, int(left), int(right), int(value[1:]))

    def _read_end(self) -> bool:
        """Read the answer and the end."""
        if not NUMBER.fullmatch(self._next()):
            return False
        self.answer = int(self._next())
        self.roles.append(TokenRole.EXECUTION)
        if self._next() != END:
            return False
        self.roles.append(TokenRole.FORM)
        return True


def role_in_operation(place: int, opening: str, word: str) -> TokenRole | None:
    """Return the role of a token in an operation, given the operation's first token; None if it does not belong."""
    prefix, number, sign = opening in ROUTES_OPERATORS, NUMBER.fullmatch(word) is not None, word in ROUTES_OPERATORS
    if place == 0:
        return TokenRole.PLANNING if number or sign else None
    if place == OPERATION_TOKENS - 1:
        return TokenRole.EXECUTION if word[:1] == "=" and NUMBER.fullmatch(word[1:]) else None
    wanted = number if prefix or place == 2 else sign
    return TokenRole.PLANNING if wanted else None


def follows_route(problem: Problem, route: str, operations: Sequence[Operation]) -> bool:
    """Say whether the operations are the route's, each with the operands that are due, and none is missing."""
    if route not in available_routes(problem):
        return False
    progress = RouteProgress(problem, route)
    return len(operations) == len(progress.left) and can_continue(progress, operations)


def can_continue(progress: RouteProgress, operations: Sequence[Operation]) -> bool:
    """Say whether the operations are steps still to take, under some reading of those that fit several steps.

    Equal terms make such: with a = b the products ``a * c`` and ``b * c`` read alike, but shaky facts may give them
    different values, and which is which shows only in the sums behind them.
    """
    if not operations:
        return True
    operation, rest = operations[0], operations[1:]
    steps = progress.matching_steps(operation.sign, operation.first, operation.second)
    return any(can_continue(progress.with_step(step, operation.value), rest) for step in steps)
