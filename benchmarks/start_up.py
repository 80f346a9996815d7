"""How much `import breadth` adds to starting Python, beside importing numpy alone."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

REPEATS = 11


def seconds(code: str) -> float:
    """Median wall time of a fresh Python that runs ``code``."""
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main() -> None:
    """Print the added seconds and the ratio to numpy's."""
    bare = seconds("pass")
    ours, numpy = seconds("import breadth") - bare, seconds("import numpy") - bare
    print(f"import breadth adds {ours * 1000:.0f} ms to bare Python's {bare * 1000:.0f} ms (the limit is 150 ms)")
    print(f"ratio to importing numpy ({numpy * 1000:.0f} ms): {ours / numpy:.2f}x")


if __name__ == "__main__":
    main()
