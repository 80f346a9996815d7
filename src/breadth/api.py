"""The verbs as functions: diagnose, compare, solve and tune, as ``import breadth`` offers them.

The command line calls these too. Each joins packages that do not import each other.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from breadth.base.errors import SettingsError
from breadth.base.system import scratch_folder

if TYPE_CHECKING:
    from breadth.doctor.finding import Finding
    from breadth.inference.policy import Policy
    from breadth.report.sections import Page
    from breadth.runs.importer import Importer
    from breadth.runtime.driver import SolveResult
    from breadth.tuning.result import TuningResult

T = TypeVar("T")
OnProgress = Callable[[str], None]
"""Called with one line about what is being done."""
URL_VARIABLES = ("BREADTH_URL", "OPENAI_BASE_URL")
KEY_VARIABLES = ("BREADTH_KEY", "OPENAI_API_KEY")


@dataclass(frozen=True, eq=False)
class Result:
    """A page that prints as text, shows itself in a notebook and saves as HTML."""

    page: Page = field(repr=False)
    """The page as typed sections."""

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON can hold it."""
        from breadth.report.jsonable import to_jsonable

        document: dict[str, Any] = to_jsonable(self.page)
        return document

    def save_html(self, path: str | Path) -> None:
        """Write one self-contained page."""
        from breadth.report.html_page import save_html

        save_html(self.page, Path(path))

    def __repr__(self) -> str:
        from rich.console import Console

        from breadth.report.terminal import render_terminal

        out = io.StringIO()
        render_terminal(self.page, Console(file=out, width=100, no_color=True))
        return out.getvalue()

    def _repr_html_(self) -> str:
        from html import escape

        from breadth.report.html_page import render_html

        return (
            f'<iframe srcdoc="{escape(render_html(self.page))}" style="width:100%;height:40em;border:0"'
            " sandbox></iframe>"
        )


@dataclass(frozen=True, eq=False, repr=False)
class Diagnosis(Result):
    """Which failures were found, with proof and patch, in one run or several."""

    findings: tuple[Finding, ...]
    """Everything found, run by run, worst first."""
    document: dict[str, Any] = field(repr=False)
    """The same as ``breadth doctor --json`` prints it."""

    def to_json(self) -> dict[str, Any]:
        """Return what ``breadth doctor --json`` prints; its ``schema`` key says which version."""
        return self.document


def diagnose(
    *paths: str | Path, columns: Mapping[str, str] | None = None, on_progress: OnProgress | None = None
) -> Diagnosis:
    """Say which failure a run has, prove it, and give the patch for its trainer or server.

    ``paths``: run folders, logs, rollout dumps, configurations, training data, policy.toml, a server's URL, in any mix.
    Configurations are parsed, never executed. ``columns``: our name -> your column, as in ``{"step": "iteration"}``.
    """
    from breadth.doctor.page import doctor_page, to_json

    if not paths:
        raise SettingsError(
            "No path was given.", "Give a log, a trainer's output folder, a run folder or a configuration."
        )
    with scratch_folder() as folder:
        diagnoses, collected = diagnose_runs(paths, folder, columns=columns, on_progress=on_progress)
        findings = tuple(finding for diagnosis in diagnoses for finding in diagnosis.findings)
        return Diagnosis(doctor_page(diagnoses, collected), findings, to_json(diagnoses, collected))


def diagnose_runs(
    paths: Sequence[str | Path],
    folder: Path,
    *,
    columns: Mapping[str, str] | None = None,
    on_progress: OnProgress | None = None,
) -> tuple[list[Any], Any]:
    """Read what the paths hold, probe what is a URL, and diagnose each run; ``folder`` keeps what is imported."""
    from breadth.doctor.collect import collect_evidence
    from breadth.doctor.diagnosis import diagnose_run as diagnose_run
    from breadth.runs.paths import locate

    report = on_progress or (lambda _: None)
    places = [probe_server(str(path), folder) if is_url(path) else locate(path) for path in paths]
    collected = collect_evidence(places, folder, importers=importers_with(columns), on_progress=report)
    diagnoses = []
    for case in collected.cases:
        report(case.name)
        diagnoses.append(diagnose_run(case))
    return diagnoses, collected


def importers_with(columns: Mapping[str, str] | None) -> list[Importer] | None:
    """Return the importer that reads these columns; None, which is to choose by content, without any."""
    if not columns:
        return None
    from breadth.adapters.generic.importer import GenericImporter

    return [GenericImporter(mapping=columns)]


def is_url(path: str | Path) -> bool:
    """Tell a server's address from a file's path."""
    return str(path).startswith(("http://", "https://"))


def probe_server(url: str, folder: Path) -> Path:
    """Probe a server and keep the result where the doctor can read it."""
    from breadth.runtime.probe import probe

    place = folder / "server.toml"
    run_async(probe(url, key=api_key())).save(place)
    return place


def compare(
    *runs: str | Path,
    samples: int | None = None,
    tokens: int | None = None,
    columns: Mapping[str, str] | None = None,
    on_progress: OnProgress | None = None,
) -> Result:
    """Compare checkpoints or runs on their common problems: pass@k, votes, breadth, and what to use for a budget.

    ``runs``: run folders, ``RUN@STEP`` for one checkpoint, folders of runs, or files of samples, whose models, arms and
    budgets of thinking are compared; one run alone compares its checkpoints. The first is the reference. Held-out
    problems are used where all runs have them. ``samples`` or ``tokens``: the budget per question; by default all
    samples there are. ``columns``: our name -> your column, as in ``{"arm": "variant"}``.
    """
    if samples is not None and tokens is not None:
        raise SettingsError("Both --samples and --tokens were given.", "Give the budget one way.")
    from breadth.comparison.accuracy import keep_common_problems, measure_curves, recommend
    from breadth.comparison.page import comparison_page

    with scratch_folder() as folder:
        found = read_policies([str(run) for run in runs], folder, columns=columns, on_progress=on_progress)
    policies, most = keep_common_problems(found)
    measured = [measure_curves(policy, most) for policy in policies]
    return Result(comparison_page(measured, recommend(measured, draws=samples, tokens=tokens)))


def read_policies(
    runs: Sequence[str],
    folder: Path,
    *,
    columns: Mapping[str, str] | None = None,
    on_progress: OnProgress | None = None,
) -> list[Any]:
    """Return the policies that the runs, their checkpoints or their arms hold; ``folder`` keeps what is imported."""
    from breadth.comparison.accuracy import checkpoints, choose_split, parse_address, read_run_policies
    from breadth.doctor.collect import collect_runs, no_runs_error
    from breadth.runs.grouping import make_unique
    from breadth.runs.paths import display_name, locate

    opened: list[tuple[Any, Sequence[int]]] = []
    for number, text in enumerate(runs):
        place, steps = parse_address(text)
        collected, sources = collect_runs(
            [locate(place)],
            folder / str(number),
            importers=importers_with(columns),
            on_progress=on_progress or (lambda _: None),
            only_runs=True,
        )
        if not collected:
            raise no_runs_error([Path(place)], sources, "no run")
        latest = {run.folder: run for _, run in collected}  # rollouts belong to the last run of a folder
        opened += [(run, steps) for run in latest.values()]
    split = choose_split([run for run, _ in opened])
    called = [run.name for run, _ in opened]
    if len(opened) == len(runs):  # runs of one name in several folders are called by the ends of their paths
        ends = [display_name(locate(parse_address(text)[0])) for text in runs]
        called = [name if called.count(name) == 1 else end for name, end in zip(called, ends, strict=True)]
    names = make_unique(called)
    if len(opened) == 1 and not opened[0][1]:
        opened = [(run, checkpoints(run)) for run, _ in opened]
    policies = [
        policy
        for name, (run, steps) in zip(names, opened, strict=True)
        for policy in read_run_policies(run, name, steps, split)
    ]
    if len(policies) < 2:
        raise SettingsError(
            "There is one policy only.",
            "Name two runs, a run that kept held-out replies of several checkpoints, or a file with several arms.",
        )
    return policies


def solve(question: str, **settings: Any) -> SolveResult:
    """Answer one question under a policy: the answer, how sure it is, and what it cost. Takes what `solve_async` takes.

    Works inside a notebook too, where an event loop is already running.
    """
    return run_async(solve_async(question, **settings))


async def solve_async(
    question: str,
    *,
    url: str | Sequence[str] | None = None,
    policy: str = "adaptive-vote",
    model: str | None = None,
    system: str | None = None,
    answer_format: str | None = None,
    max_tokens: int | None = None,
    temperature: float | None = None,
    budget_tokens: int | None = None,
    seconds: float | None = None,
    seed: int = 0,
    dialect: str = "auto",
) -> SolveResult:
    """Answer one question under a policy, awaited.

    ``url``: the server, or several that share the work; by default BREADTH_URL or OPENAI_BASE_URL.
    ``policy``: a policy.toml, or a strategy with settings such as ``"adaptive-vote,most=16"``.
    ``budget_tokens`` and ``seconds`` are hard limits. None leaves a setting to the policy.
    """
    from breadth.inference.records import Budget
    from breadth.runtime.connect import connect
    from breadth.runtime.driver import Driver
    from breadth.runtime.ledger import Ledger
    from breadth.runtime.solve_context import ModelJudge

    sampling = {"max_tokens": max_tokens, "temperature": temperature}
    chosen = resolve_policy(policy, answer_format, sampling, {"model": model, "system": system})
    chosen.strategy.prepare()
    urls = server_urls([url] if isinstance(url, str) else url, 'url="http://localhost:8000"')
    sampler = await connect(urls, dialect=dialect, key=api_key(), model=chosen.model)
    try:
        ledger = Ledger(Budget(output_tokens=budget_tokens, seconds=seconds), chosen.prices)
        driver = Driver(sampler, ledger, {"default": ModelJudge()})
        return await driver.solve(
            chosen.strategy, chosen.task(require_utf8("question", question), seed=seed), budget=chosen.budget
        )
    finally:
        await sampler.close()


def tune(
    url: str | Sequence[str] | None = None,
    *,
    tasks: str | Path,
    out: str | Path,
    policy: str = "single",
    widths: Sequence[int] = (1, 2, 4, 8),
    budgets: Sequence[int] | None = None,
    samples: int = 4,
    questions: int | None = None,
    budget_tokens: int | None = None,
    concurrency: int = 8,
    seed: int = 0,
    dialect: str = "auto",
) -> TuningResult:
    """Measure accuracy, variance and cost on a server; choose a policy and write it as ``out``/policy.toml.

    ``tasks``: JSONL, CSV or Parquet of questions with their right answers. ``widths``: vote sizes.
    ``budgets``: thinking tokens to force; None lets the model's own lengths decide, () measures votes only.
    ``budget_tokens``: a ceiling on all tokens written. A killed sweep resumes.
    """
    from breadth.base.settings import dump
    from breadth.runs.reader import Run
    from breadth.runtime.connect import connect
    from breadth.runtime.questions import keep_labelled, read_questions, shuffle_questions
    from breadth.runtime.recording import SweepOptions
    from breadth.runtime.sweep import Sweep
    from breadth.tuning.result import analyze_sweep

    measured = resolve_policy(policy, None, {}, {})
    asked = shuffle_questions(keep_labelled(read_questions(Path(tasks))), seed)[:questions]
    options = SweepOptions(
        measured, tuple(sorted(set(widths))), None if budgets is None else tuple(sorted(set(budgets))), samples, seed
    )
    urls = server_urls([url] if isinstance(url, str) else url, 'url="http://localhost:8000"')

    async def collect() -> None:
        sampler = await connect(urls, dialect=dialect, key=api_key(), model=measured.model)
        try:
            sweep = Sweep(sampler, asked, options, Path(out), ceiling=budget_tokens, concurrency=concurrency)
            await sweep.run_pilot()
            await sweep.collect()
        finally:
            await sampler.close()

    run_async(collect())
    result = analyze_sweep(Run.open(Path(out)))
    dump(result.policy, Path(out) / "policy.toml")
    return result


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end; in a thread of its own where a loop is running already, as in a notebook."""
    import asyncio  # slow to load, and the doctor on a log needs neither
    from concurrent.futures import ThreadPoolExecutor

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


def server_urls(given: Sequence[str] | None, example: str = "--url http://localhost:8000") -> list[str]:
    """Return the servers' addresses as given or from the environment; ``example`` is how to write one."""
    urls = list(given or []) or [address for name in URL_VARIABLES if (address := os.environ.get(name))][:1]
    if not urls:
        raise SettingsError("No server was given.", f"Give {example}, or set BREADTH_URL or OPENAI_BASE_URL.")
    return urls


def api_key() -> str | None:
    """Return the server's key from the environment: never from the command line, where others can see it."""
    name, value = next(
        ((name, value) for name in KEY_VARIABLES if (value := os.environ.get(name, "").strip())), ("", "")
    )
    if not value.isprintable():
        raise SettingsError(f"{name} holds characters that no key has.", "Copy the key again, all of it on one line.")
    return value or None


def resolve_policy(
    text: str, answer_format: str | None, sampling: Mapping[str, Any], others: Mapping[str, Any]
) -> Policy:
    """Return the policy with the caller's settings on top; None leaves a setting as it is."""
    from breadth.base.settings import from_table, to_table
    from breadth.inference.policy import Policy

    for name, value in others.items():
        require_utf8(f"--{name}", value or "")
    table = to_table(Policy.parse(text))
    for part, changes in {"sampling": sampling, "reading": {"how": answer_format}}.items():
        table[part] |= {name: value for name, value in changes.items() if value is not None}
    table |= {name: value for name, value in others.items() if value is not None}
    return from_table(Policy, table, "the command line")


def require_utf8(what: str, text: str) -> str:
    """Return the text; refuse one that is not UTF-8, which no server reads."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise SettingsError(
            f"The {what} is not UTF-8 text: a byte after {text[: error.start][-20:]!r}.", "Write it in UTF-8."
        ) from error
    return text
