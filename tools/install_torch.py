"""Install the torch a developer chose, and say beforehand when it would bring CUDA packages."""

from __future__ import annotations

import json
import subprocess
import sys

HEAVY = ("nvidia-", "cuda-", "triton")


def main(requirement: list[str]) -> int:
    """Install ``requirement`` (pip arguments) into the running Python."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    plan = subprocess.run(
        [*pip, "install", "--quiet", "--dry-run", "--report", "-", *requirement], capture_output=True, text=True
    )
    if plan.returncode:
        print(plan.stderr, file=sys.stderr)
        return plan.returncode
    cuda = sorted(name for name in planned(plan.stdout) if name.startswith(HEAVY))
    if cuda:
        print(
            f"note: {' '.join(requirement)} brings {len(cuda)} CUDA packages, several GB: {', '.join(cuda[:4])}, ...\n "
            "     The tests need only a CPU build. To choose one, give pip the CPU index that the PyTorch install page"
            " names:\n      make test TORCH='torch==2.13.0 --index-url <CPU index>'"
        )
    return subprocess.run([*pip, "install", "--quiet", *requirement]).returncode


def planned(report: str) -> list[str]:
    """Return the names of the packages an installation report lists."""
    return [entry["metadata"]["name"].lower() for entry in json.loads(report)["install"]]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
