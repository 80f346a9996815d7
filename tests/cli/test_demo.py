"""``breadth demo`` shows every instrument on the log that ships with the package."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable

Command = Callable[..., "subprocess.CompletedProcess[str]"]


def test_the_demo_shows_the_story_of_its_log(breadth: Command) -> None:
    done = breadth("demo", "--json")
    assert done.returncode == 0, done.stderr
    sections = json.loads(done.stdout)["sections"]
    titles = [section.get("title", "") for section in sections]
    for title in ("What is here", "Metrics", "Entropy", "Coverage", "pass@k and maj@k", "Different answers", "Texts"):
        assert title in titles
    (metrics,) = [section for section in sections if section.get("title") == "Metrics"]
    directions = {row[0]: row[3] for row in metrics["rows"]}
    assert directions["entropy (nats)"] == "falling"
    assert directions["reward"] == "rising"


def test_the_demo_says_what_to_do_next(breadth: Command) -> None:
    assert "breadth show PATH" in breadth("demo").stdout
