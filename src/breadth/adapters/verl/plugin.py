"""What verl loads through the entry-point group ``verl.plugins``: importing this module installs our hooks.

verl imports what an entry point names, in every process, at the end of ``import verl``, and calls nothing. So this file
imports neither torch nor verl. Each hook runs when the module of verl it belongs to is imported.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

from breadth.adapters.verl.registration import register_loss, register_trainers

HOOKS: dict[str, Callable[[], None]] = {
    "verl.trainer.ppo.core_algos": register_loss,
    "verl.trainer.ppo.v1": register_trainers,
}
"""Module of verl -> hook to run once it is imported."""


def install_hooks() -> None:
    """Run each hook now if its module is already imported, otherwise as soon as it is."""
    for module, hook in HOOKS.items():
        if module in sys.modules:
            hook()
        elif not any(isinstance(finder, _ImportWatcher) and finder.module == module for finder in sys.meta_path):
            sys.meta_path.insert(0, _ImportWatcher(module, hook))


class _ImportWatcher(MetaPathFinder):
    """Waits for the import of one module and runs its hook afterwards; an error of the hook fails the import."""

    def __init__(self, module: str, hook: Callable[[], None]) -> None:
        self.module, self.hook = module, hook

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:  # noqa: ARG002  # protocol
        if name != self.module:
            return None
        sys.meta_path.remove(self)
        try:
            spec = find_spec(name)
        finally:
            sys.meta_path.insert(0, self)
        if spec is not None and spec.loader is not None:
            spec.loader = _HookLoader(spec.loader, self)
        return spec


class _HookLoader(Loader):
    """A module's own loader, followed by the hook."""

    def __init__(self, own: Loader, watch: _ImportWatcher) -> None:
        self.own, self.watch = own, watch

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.own.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self.own.exec_module(module)
        sys.meta_path.remove(self.watch)  # only now: a failed import may be retried
        self.watch.hook()


install_hooks()
