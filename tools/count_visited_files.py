"""Count the source files that a command of breadth calls into: what a reader who follows it has to open.

python tools/count_visited_files.py doctor outputs/trainer_state.json
python tools/count_visited_files.py solve "What is 6 x 7?" --url http://localhost:8000

A file counts when one of its functions is called, not when it is only imported. The command's own output goes to
standard output, the count and the files to standard error.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from importlib.util import find_spec
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import FrameType


def visited_files(arguments: Sequence[str]) -> set[Path]:
    """Run the command in this process and return the files of breadth whose functions were called."""
    spec = find_spec("breadth")
    root = str(Path(spec.origin).parent) if spec is not None and spec.origin else ""
    files: set[str] = set()

    def record_call(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code  # the bodies of modules and classes, and comprehensions in them, run when imported
        is_function = code.co_flags & CO_OPTIMIZED and not code.co_name.startswith("<")
        if event == "call" and is_function and code.co_filename.startswith(root):
            files.add(code.co_filename)

    sys.argv = ["breadth", *arguments]
    threading.setprofile(record_call)
    sys.setprofile(record_call)
    try:
        from breadth.cli.main import run

        run()
    except SystemExit:
        pass  # the command's own exit status
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return {Path(file).relative_to(root) for file in files}


if __name__ == "__main__":
    found = sorted(map(str, visited_files(sys.argv[1:])))
    print(*found, f"{len(found)} files", sep="\n", file=sys.stderr)
