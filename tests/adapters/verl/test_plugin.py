"""What verl loads: in fresh processes, through a real entry point, as verl's own import does it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("verl", reason="verl is not installed")

ENTRY = "[verl.plugins]\nbreadth = breadth.adapters.verl.plugin\n"


def run(script: str, path: Path | None = None, **environment: str) -> str:
    """Run a script in a process of its own, with a folder of installed packages before the others."""
    paths = os.pathsep.join([str(path)] if path else []) + os.pathsep + os.environ.get("PYTHONPATH", "")
    whole = {**os.environ, "PYTHONPATH": paths, "PYTHONWARNINGS": "ignore", "OMP_NUM_THREADS": "1", **environment}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=whole, check=False)
    return (done.stdout + (done.stderr if done.returncode else "")).strip()


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A package whose metadata names our plug-in, as pip leaves it."""
    folder = tmp_path / "breadth_entry-0.1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: breadth-entry\nVersion: 0.1\n", encoding="utf-8")
    (folder / "entry_points.txt").write_text(ENTRY, encoding="utf-8")
    return tmp_path


def test_importing_the_plugin_imports_neither_torch_nor_verl() -> None:
    script = """
import sys, breadth.adapters.verl.plugin as plugin
print([name for name in ("torch", "verl", "ray") if name in sys.modules])
plugin.install_hooks()
print(len(sys.meta_path))
"""
    bare = "import sys; print(len(sys.meta_path))"
    assert run(script).splitlines() == [
        "[]",
        str(int(run(bare)) + 2),
    ], "one watch for each hook, however often it is armed"


def test_verl_loads_it_and_the_loss_is_there(installed: Path) -> None:
    script = (
        "import verl; from verl.trainer.ppo.core_algos import get_policy_loss_fn;"
        " print(get_policy_loss_fn('breadth').__module__)"
    )
    assert run(script, installed).splitlines()[-1] == "breadth.adapters.verl.registration"


def test_import_verl_alone_costs_nothing(installed: Path) -> None:
    script = (
        "import sys, verl; print('breadth.adapters.verl.plugin' in sys.modules, 'breadth.adapters.verl.loss' in"
        " sys.modules)"
    )
    assert run(script, installed).splitlines()[-1] == "True False"


def test_verl_can_be_told_not_to_load_it(installed: Path) -> None:
    script = "import sys, verl; print('breadth.adapters.verl.plugin' in sys.modules)"
    assert run(script, installed, VERL_USE_EXTERNAL_PLUGINS="none").splitlines()[-1] == "False"


def test_the_trainers_are_there_when_verls_are(installed: Path) -> None:
    pytest.importorskip(
        "verl.trainer.ppo.v1", reason="verl's trainers and what they need (verl[verl-core]) are not installed"
    )
    script = "from verl.trainer.ppo.v1 import get_trainer_cls; print(get_trainer_cls('breadth').__name__)"
    assert run(script, installed).splitlines()[-1] == "BreadthTrainer"


@pytest.mark.parametrize("first", ["loss", "self_check", "trainer"])
def test_our_modules_may_be_imported_first(installed: Path, first: str) -> None:
    if first == "trainer":
        pytest.importorskip(
            "verl.trainer.ppo.v1", reason="verl's trainers and what they need (verl[verl-core]) are not installed"
        )
    assert run(f"import breadth.adapters.verl.{first}; print('fine')", installed).splitlines()[-1] == "fine"


def test_a_hook_that_fails_fails_the_import_loudly_and_again(installed: Path) -> None:
    script = """
import breadth.adapters.verl.plugin as plugin, sys
for finder in sys.meta_path:
    if isinstance(finder, plugin._ImportWatcher): finder.hook = lambda: 1 / 0
try:
    import verl.trainer.ppo.core_algos
except ZeroDivisionError:
    print("loud")
"""
    assert run(script).splitlines()[-1] == "loud"
