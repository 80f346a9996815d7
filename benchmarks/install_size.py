"""What an installation of the core takes on the disk, next to its_hub's.

    python benchmarks/install_size.py --save docs/data/install.json

It installs breadth with the versions of constraints.txt into a fresh environment; that needs a package index and takes
a minute or two.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
ITS_HUB_MEGABYTES = 167
"""An environment with its_hub 1.2.0 (`benchmarks/proxy.py`); it stores no runs and has no SQL."""
MAX_MEGABYTES = 400
"""The bar."""
LARGEST = 6
"""Parts listed."""


def install_core(folder: Path) -> None:
    """Make an environment with the core of breadth in it."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    install = [str(folder / "bin" / "pip"), "--disable-pip-version-check", "install", "--quiet"]
    subprocess.run([*install, "--constraint", str(ROOT / "constraints.txt"), str(ROOT)], check=True)


def megabytes(folder: Path) -> int:
    """Return what a file or a folder takes on the disk."""
    return sum(path.lstat().st_blocks * 512 for path in (folder, *folder.rglob("*"))) // 2**20


def measure_core() -> dict[str, Any]:
    """Return the size of a fresh environment, and of its largest parts."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "core"
        install_core(folder)
        (packages,) = folder.glob("lib/python*/site-packages")
        sizes: Counter[str] = Counter()
        for path in packages.iterdir():
            sizes[path.name.partition(".")[0].lstrip("_")] += megabytes(path)
        parts = dict(sizes.most_common(LARGEST))
        return {"megabytes": megabytes(folder), "parts": parts, "python": platform.python_version()}


def main() -> None:
    """Measure, print, save; exit with status 1 above the bar."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--save", type=Path, help="write the figures as JSON")
    chosen = parser.parse_args()
    done = measure_core()
    size = done["megabytes"]
    print(f"core: {size} MB (the limit is {MAX_MEGABYTES} MB); {done['parts']}")
    print(f"ratio to its_hub ({ITS_HUB_MEGABYTES} MB): {size / ITS_HUB_MEGABYTES:.2f}x")
    if chosen.save:
        chosen.save.write_text(json.dumps({"command": "python benchmarks/install_size.py"} | done, indent=1) + "\n")
    sys.exit(size > MAX_MEGABYTES)


if __name__ == "__main__":
    main()
