"""A chain: mechanisms in order, with their reduction and seed; it reads and writes TOML."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from breadth.base import settings
from breadth.base.errors import MechanismError
from breadth.training.mechanism import Mechanism, Role, Stage, mechanism_name
from breadth.training.reduction import Reduction


@dataclass(frozen=True)
class Chain:
    """What an Objective runs. Mechanisms run in order; each sees what the ones before it left.

    A chain has at most one estimator; without one, the trainer's own advantages are used. If it has any mechanism of
    the loss stage, exactly one of them is the surrogate.
    """

    mechanisms: tuple[Mechanism[Any, Any], ...] = ()
    """The mechanisms, of all stages."""
    reduction: Reduction = field(default_factory=Reduction)
    """How token losses become the loss."""
    seed: int = 0
    """Random seed of the chain."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "mechanisms", tuple(self.mechanisms))
        for mechanism in self.mechanisms:
            if not isinstance(mechanism, Mechanism):
                raise MechanismError(
                    f"A chain contains {mechanism!r}, which is not a mechanism.",
                    "Pass mechanism objects, e.g. ClippedPolicy().",
                )
        self._check_role(Role.ESTIMATOR, "Keep the one that computes the advantages you want.")
        self._check_role(
            Role.SURROGATE, "Keep the one policy loss you want; other mechanisms weight tokens or add terms."
        )
        if self.mechanisms_of(Stage.LOSS) and not self.mechanisms_with(Role.SURROGATE):
            names = ", ".join(mechanism_name(mechanism) for mechanism in self.mechanisms_of(Stage.LOSS))
            raise MechanismError(
                f"The chain has mechanisms of the loss stage ({names}) but no policy loss.",
                "Add one, e.g. ClippedPolicy().",
            )
        self._check_order()

    def mechanisms_of(self, stage: Stage) -> tuple[Mechanism[Any, Any], ...]:
        """Return the mechanisms of one stage, in order."""
        return tuple(mechanism for mechanism in self.mechanisms if mechanism.stage is stage)

    def plus(self, *more: Mechanism[Any, Any]) -> Self:
        """Return the chain with more mechanisms appended."""
        return replace(self, mechanisms=(*self.mechanisms, *more))

    @property
    def needs(self) -> dict[str, tuple[str, ...]]:
        """Optional field (``stage.field``) -> names of the mechanisms that read it."""
        needs: dict[str, list[str]] = {}
        for mechanism in self.mechanisms:
            for need in sorted(mechanism.needs):
                needs.setdefault(f"{mechanism.stage.value}.{need}", []).append(mechanism_name(mechanism))
        return {need: tuple(names) for need, names in needs.items()}

    def dumps(self) -> str:
        """Return the chain as TOML."""
        return settings.dumps(self)

    @classmethod
    def loads(cls, text: str) -> Self:
        """Read a chain from TOML text."""
        return settings.loads(cls, text)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a chain from a TOML file."""
        return settings.load(cls, path)

    def mechanisms_with(self, role: Role) -> list[Mechanism[Any, Any]]:
        """Return the mechanisms with a role; a valid chain has at most one."""
        return [mechanism for mechanism in self.mechanisms if mechanism.role is role]

    def _check_order(self) -> None:
        """Refuse a mechanism on the wrong side of a role, and one that prepares for a role no mechanism has."""
        for mechanism in self.mechanisms:
            if mechanism.precedes is not None and not self.mechanisms_with(mechanism.precedes):
                raise MechanismError(
                    f"{mechanism_name(mechanism)} prepares for the {mechanism.precedes.value}, but the chain has none.",
                    "Add one after it, e.g."
                    f" {'GroupAdvantage()' if mechanism.precedes is Role.ESTIMATOR else 'ClippedPolicy()'}.",
                )
        for index, mechanism in enumerate(self.mechanisms):
            early = [
                other
                for other in self.mechanisms[:index]
                if other.role is not None and other.role is mechanism.precedes
            ]
            late = [
                other
                for other in self.mechanisms[index + 1 :]
                if other.role is not None and other.role is mechanism.follows
            ]
            for other, word in [*((other, "before") for other in early), *((other, "after") for other in late)]:
                raise MechanismError(
                    f"{mechanism_name(mechanism)} must come {word} {mechanism_name(other)} in the chain.",
                    f"Move it {word} {mechanism_name(other)}.",
                )

    def _check_role(self, role: Role, remedy: str) -> None:
        names = [mechanism_name(mechanism) for mechanism in self.mechanisms_with(role)]
        if len(names) > 1:
            raise MechanismError(
                f"The chain has {len(names)} mechanisms with the role {role.value}: {', '.join(names)}; only one is"
                " allowed.",
                remedy,
            )
