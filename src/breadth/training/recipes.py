"""Named chains with their paper: published methods, and ours. Each is a table in the file of its mechanism."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from breadth.base.errors import CatalogueError, MechanismError, suggestion
from breadth.base.settings import from_table
from breadth.training.catalogue import MECHANISMS
from breadth.training.chain import Chain
from breadth.training.mechanism import RecipeTable
from breadth.training.objective import Objective


@dataclass(frozen=True)
class Recipe:
    """A published chain, or one of ours."""

    chain: Chain
    """The chain to run."""
    paper: str
    """Where it comes from."""
    note: str
    """What the paper does beyond the chain, or what to know before using it."""


def build_recipe(name: str, table: RecipeTable) -> Recipe:
    """Build a recipe from the table of its mechanism."""
    settings = {"mechanisms": table.mechanisms, "reduction": {"by": table.reduction}}
    return Recipe(from_table(Chain, settings, f"the recipe {name}"), table.paper, table.note)


RECIPES: Mapping[str, Recipe] = MappingProxyType(
    {
        name: build_recipe(name, table)
        for mechanism in map(MECHANISMS.load, MECHANISMS.entries)
        for name, table in mechanism.recipes.items()
    }
)
"""Name -> recipe, in the order of the mechanisms; every number is its mechanism's default or the paper's."""


def resolve_chain(objective: Objective | Chain | Path | str) -> Chain:
    """Return the chain of an objective, a chain itself, a recipe by name, or a TOML file by path."""
    if isinstance(objective, Objective):
        return objective.chain
    if isinstance(objective, Chain):
        return objective
    if isinstance(objective, str) and objective in RECIPES:
        return RECIPES[objective].chain
    if not isinstance(objective, str | Path):
        raise MechanismError(
            f"An objective cannot be a {type(objective).__name__}.",
            "Give a recipe's name, the path of a TOML file, or a chain: Chain((GroupAdvantage(), ClippedPolicy())).",
        )
    path = Path(objective)
    if path.is_file():
        return Chain.load(path)
    raise CatalogueError(
        f"There is no recipe and no file called '{objective}'.", suggestion(str(objective), RECIPES, "recipes")
    )
