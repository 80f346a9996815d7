"""A chain: mechanisms in reading order with their reduction and seed, as it is written in TOML."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from breadth.base import settings
from breadth.base.errors import MechanismError
from breadth.training.mechanism import Mechanism, Role, Stage, name_of
from breadth.training.reduction import Reduction


@dataclass(frozen=True)
class Chain:
    """What an Objective runs. Order is reading order; each mechanism sees what those before it left.

    At most one estimator (without one the trainer's own advantages are used). Where there is any mechanism of the loss
    seat, exactly one of them is the surrogate.
    """

    mechanisms: tuple[Mechanism[Any, Any], ...] = ()
    """The mechanisms, of all seats."""
    reduction: Reduction = field(default_factory=Reduction)
    """How token losses become the loss."""
    seed: int = 0
    """Seed of every random draw in the chain."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "mechanisms", tuple(self.mechanisms))
        for mechanism in self.mechanisms:
            if not isinstance(mechanism, Mechanism):
                raise MechanismError(
                    f"A chain holds {mechanism!r}, which is no mechanism.",
                    "Put mechanism objects into it, e.g. ClippedPolicy().",
                )
        self._check_role(Role.ESTIMATOR, "Keep the one that computes the advantages you want.")
        self._check_role(
            Role.SURROGATE, "Keep the one policy loss you want; the others of the chain weigh tokens or add terms."
        )
        if self.seated(Stage.LOSS) and not self._with_role(Role.SURROGATE):
            names = ", ".join(name_of(one) for one in self.seated(Stage.LOSS))
            raise MechanismError(
                f"The chain has mechanisms of the loss seat ({names}) but no policy loss.",
                "Add one, e.g. ClippedPolicy().",
            )

        self._check_order()

    def seated(self, seat: Stage) -> tuple[Mechanism[Any, Any], ...]:
        """Return the mechanisms of one seat, in order."""
        return tuple(one for one in self.mechanisms if one.stage is seat)

    def plus(self, *more: Mechanism[Any, Any]) -> Self:
        """Return the chain with more mechanisms after its own."""
        return replace(self, mechanisms=(*self.mechanisms, *more))

    @property
    def needs(self) -> dict[str, tuple[str, ...]]:
        """Return optional field -> the mechanisms that read it."""
        needs: dict[str, list[str]] = {}
        for mechanism in self.mechanisms:
            for need in sorted(mechanism.needs):
                needs.setdefault(f"{mechanism.stage.value}.{need}", []).append(name_of(mechanism))
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

    def _with_role(self, role: Role) -> list[Mechanism[Any, Any]]:
        return [one for one in self.mechanisms if one.role is role]

    def _check_order(self) -> None:
        """Refuse a mechanism on the wrong side of a role, and one that prepares for a role nobody takes."""
        for one in self.mechanisms:
            if one.precedes is not None and not self._with_role(one.precedes):
                raise MechanismError(
                    f"{name_of(one)} works for the chain's {one.precedes.value}, but there is none, so nobody would see"
                    " what it did.",
                    "Add one after it, e.g."
                    f" {'GroupAdvantage()' if one.precedes is Role.ESTIMATOR else 'ClippedPolicy()'}.",
                )
        for place, one in enumerate(self.mechanisms):
            early = [
                other for other in self.mechanisms[:place] if other.role is not None and other.role is one.precedes
            ]
            late = [
                other for other in self.mechanisms[place + 1 :] if other.role is not None and other.role is one.follows
            ]
            for other, word in [*((other, "before") for other in early), *((other, "after") for other in late)]:
                raise MechanismError(
                    f"{name_of(one)} must stand {word} {name_of(other)} in the chain: order is reading order.",
                    f"Move it {word} {name_of(other)}.",
                )

    def _check_role(self, role: Role, remedy: str) -> None:
        found = [name_of(one) for one in self._with_role(role)]
        if len(found) > 1:
            raise MechanismError(
                f"The chain has {len(found)} mechanisms in the role of the {role.value}: {', '.join(found)}; it may"
                " have one.",
                remedy,
            )
