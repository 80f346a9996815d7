"""``breadth doctor`` and ``breadth compare`` on texts that would act on a terminal, a page or a program."""

from __future__ import annotations

import json
import random
from html.parser import HTMLParser
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from breadth.base.errors import BreadthError
from breadth.cli.main import app
from breadth.report.markup import ATTRIBUTES, TAGS
from breadth.runs.schema import Header
from breadth.runs.writer import RunWriter

HOSTILE = [
    "<script>document.title='pwned'</script>",
    "</style><script>document.title='pwned'</script>",
    "</title><img src=x onerror=\"document.title='pwned'\">",
    "\" onmouseover=\"document.title='pwned'",
    "[bold red]alarm[/bold red]",
    "[/nothing]",
    "\x1b[2J\x1b[31mred",
    "\x1b]0;owned\x07",
    "\x9b2J",
    "\x9d0;owned\x9c",
    "nul\x00nul",
    "\u202eesrever",
    "\ud800",
    "{{7*7}}",
    "%s%n{0}",
]
ALL = " ".join(HOSTILE)
NAMES = [text.replace("/", "|") for text in HOSTILE]
"""The same as parts of a metric's or a file's name."""
ACTING = "\x00\x07\x1b\x90\x9b\x9c\x9d\u202e\ud800"
"""Characters that none of our output may hold."""


class Reader(HTMLParser):
    """Keeps the tags and attributes of a page, as a browser would see them."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.words = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.words += data


def run(*words: object) -> str:
    """Run the command line; a refusal of ours is an answer, too, as it would be printed."""
    result = CliRunner().invoke(app, list(map(str, words)), env={"COLUMNS": "120"})
    if isinstance(result.exception, BreadthError):
        from breadth.report.plaintext import strip_escapes

        return strip_escapes(str(result.exception))
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.output


def checked(folder: Path, *words: object) -> str:
    """Ask for terminal, JSON and page at once, hold all three to be harmless, and return what the terminal shows."""
    page = folder / "page.html"
    shown, machine = run(*words, "--html", page), run(*words, "--json")
    assert not [character for character in ACTING if character in shown]
    assert machine.isascii()
    json.loads(machine)
    reader = Reader()
    reader.feed(source := page.read_text(encoding="utf-8"))
    assert reader.tags <= TAGS
    assert reader.attributes <= {name.lower() for name in ATTRIBUTES}
    assert source.count("<style") == source.count("</style") == 1
    assert not [character for character in ACTING if character in source]
    return shown


def write_log(path: Path, right: str = "accuracy", form: str = "format") -> Path:
    """Write a log in which entropy collapses and one reward component rises alone, so that both names are quoted."""
    noise = random.Random(0)
    rows = [
        {
            "step": step,
            "epoch": step / 40,
            "loss": 0.0,
            "entropy": 0.7 * 0.05 ** (step / 40) * (1 + noise.gauss(0, 0.02)),
            "reward": 0.3 + 0.3 * step / 40,
            f"rewards/{right}/mean": 0.2 + noise.gauss(0, 0.005),
            f"rewards/{form}/mean": 0.1 + 0.3 * step / 40 + noise.gauss(0, 0.005),
        }
        for step in range(1, 41)
    ]
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"global_step": 40, "log_history": rows}))
    return path


def rollout(step: int, problem: int, sample: int) -> dict[str, object]:
    """Draw a reply: in several formats and at work at first, later one that loops and repeats its answer."""
    rng = random.Random(f"{step}, {problem}, {sample}")
    text = rng.choice(HOSTILE)
    early = [
        f"1. {text}\n2. so 12 * 3 = 36\n",
        f"- {text}\n- so 4 + 5 = 9\n",
        f"```\nprint({text})\n```\n",
        f"We think of {text} and 3 + 4 = 7. ",
    ]
    said = (
        (ALL + " so the answer is \\boxed{7}. ") * 5
        if step > 1
        else rng.choice(early) + f"The answer is \\boxed{{{problem}}}"
    )
    entropy = [abs(rng.gauss(0.5 if step == 1 else 0.02, 0.05)) for _ in range(20)]
    right = rng.random() < (0.6 if step == 1 else 0.1)
    return {
        "step": step,
        "prompt": f"{ALL} {problem}?",
        "completion": said,
        "answer": HOSTILE[sample] if step == 1 else HOSTILE[0],
        "correct": right,
        "reward": float(right),
        "entropy": entropy,
        "logprobs": [-one for one in entropy],
        f"reward/{NAMES[0]}": 1.0,
        ALL: ALL,
    }


def test_replies_are_words(tmp_path: Path) -> None:
    """More than twenty problems with eight replies each at both ends: findings quote texts, and nothing acts."""
    rows = [rollout(step, problem, sample) for step in (1, 2) for problem in range(24) for sample in range(8)]
    rows += [
        {**rollout(2, 99, 0), "completion": long}
        for long in ("A" * 500_000, "\n" * 10_000, "\x9d" * 50_000, "\\(" * 50_000)
    ]
    path = tmp_path / "rollouts.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    shown = checked(tmp_path, "doctor", path)
    assert "degenerate-rollouts" in shown
    assert "overconfidence" in shown


@pytest.mark.parametrize("name", [" ".join(NAMES[start : start + 3]) for start in range(0, len(NAMES), 3)])
def test_names_of_components_are_words(name: str, tmp_path: Path) -> None:
    shown = checked(
        tmp_path, "doctor", write_log(tmp_path / "trainer_state.json", f"accuracy {name}", f"format {name}")
    )
    assert "; accuracy " in (said := " ".join(shown.split()))
    assert "has stayed flat" in said


def test_a_component_keeps_its_markup_as_text(tmp_path: Path) -> None:
    name = "[bold]<b>accuracy"
    shown = checked(tmp_path, "doctor", write_log(tmp_path / "trainer_state.json", name))
    assert name in shown
    reader = Reader()
    reader.feed((tmp_path / "page.html").read_text())
    assert f"{name} has stayed flat" in reader.words


@pytest.mark.parametrize(
    "name", ["".join(NAMES[:5]), "".join(NAMES[5:]).replace("\x00", "").replace("\ud800", "\udcd8"), "a" * 255]
)
def test_names_of_folders_and_files_are_words(name: str, tmp_path: Path) -> None:
    """A file system takes any bytes but a slash and a zero, among them some that are no UTF-8."""
    try:
        (tmp_path / name).mkdir()
    except OSError:
        pytest.skip("this file system takes no such name")
    log = write_log(tmp_path / name / "trainer_state.json")
    assert "entropy-collapse" in checked(tmp_path, "doctor", tmp_path / name)
    alone = log.rename(tmp_path / f"{name[:200]}.json")
    assert not set(ACTING) & set(run("doctor", alone, "--html", alone.with_suffix(".html")))


def test_a_run_folder_and_its_configuration_are_words(tmp_path: Path) -> None:
    header = Header(
        name=ALL, trainer="[/b]<script>", config={"loss_type": ALL, "<b>": {ALL: ALL}}, names={"entropy": ALL}
    )
    writer = RunWriter(tmp_path / "run", header, flush=False)
    for step in range(1, 41):
        writer.metrics(step, {"entropy": 0.7 * 0.93**step, "reward": 0.3, "truncated": 0.3})
    assert "entropy-collapse" in checked(tmp_path, "doctor", tmp_path / "run")
    log = write_log(tmp_path / "trainer_state.json")
    assert "All runs" in checked(tmp_path, "doctor", tmp_path / "run", log)


def test_configurations_are_words_and_nothing_runs(tmp_path: Path) -> None:
    log, trap = write_log(tmp_path / "out" / "trainer_state.json"), tmp_path / "executed"
    python, script = tmp_path / "train.py", tmp_path / "train.sh"
    python.write_text(
        f"open({str(trap)!r}, 'w')\nGRPOConfig(num_generations=8, loss_type={NAMES[2]!r}, beta={NAMES[4]!r})\n"
    )
    checked(tmp_path, "doctor", log, python)
    call = (
        f"python -m verl.trainer.main_ppo algorithm.adv_estimator='{NAMES[5]}\x1b[2J'"
        f" actor_rollout_ref.rollout.n=$(touch {trap})\n"
    )
    script.write_text(call)
    checked(tmp_path, "doctor", script)
    assert not trap.exists()


def test_what_is_refused_is_refused_in_words(tmp_path: Path) -> None:
    for number, text in enumerate(HOSTILE):
        path = tmp_path / f"{number}.json"
        path.write_bytes(text.encode("utf-8", errors="replace"))
        shown = run("doctor", path)
        assert "is of no kind we know" in shown
        assert not set(ACTING) & set(shown)
    assert "holds nothing that the doctor can read" in run("doctor", tmp_path)


def test_runs_that_are_compared_are_words(tmp_path: Path) -> None:
    both = [tmp_path / place for place in ("[bold]<b>a\x1b[2J", "[nothing]b\u202e")]
    for folder, replies in zip(both, (8, 4), strict=True):
        rows = [
            {
                "problem": f"{text} {number}",
                "answer": HOSTILE[sample % replies],
                "correct": sample % 2 == 0,
                "tokens": 9,
            }
            for number, text in enumerate(HOSTILE[:12])
            for sample in range(8)
        ]
        RunWriter(folder, Header(name=ALL), flush=False).rollouts(pa.Table.from_pylist(rows), 1, split="eval")
    assert "[nothing]b" in checked(tmp_path, "compare", *both)
