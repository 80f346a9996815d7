"""Change one thing in a module, run the module's own tests, and count the changes they notice (mutation testing).

    python tools/mutate.py --each 8 --seed 0

The modules, the bar and the mutants known to change nothing are in tools/mutate.toml. The tests run in forked processes
on a temporary copy of the source: the tree is never edited, and a killed run leaves nothing in it. A mutant is killed
when a test fails, or when the tests need far more processor time than without the change.

Not mutated: text, annotations, decorators, assertions, ``__repr__``, logging, ``strict=`` of zip.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib
import importlib.util
import json
import math
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import tomllib
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).parents[1]
CONFIG = Path("tools") / "mutate.toml"
SPARE_CPU_SECONDS, CPU_FACTOR = 5, 3
"""A mutant may use this much more processor time, and this many times as much, as the unchanged module."""
SPARE_SECONDS, SECONDS_FACTOR = 60, 20
"""The same for a mutant that waits without using the processor."""
MAX_BYTES = 4 << 30
"""Memory of a test process: a mutant may allocate without end."""

SWAPPED_OPERATORS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Continue: ast.Break,
    ast.Break: ast.Continue,
}
SWAPPED_NAMES = {
    "min": "max",
    "max": "min",
    "minimum": "maximum",
    "maximum": "minimum",
    "amin": "amax",
    "amax": "amin",
    "argmin": "argmax",
    "argmax": "argmin",
    "any": "all",
    "all": "any",
}
LOGGERS = {"logging", "logger", "log", "warnings"}
SKIPPED_FIELDS = {"annotation", "returns", "decorator_list", "ctx"}


@dataclass(frozen=True)
class Mutant:
    """A module with one change."""

    module: str
    """Path of the module in the source folder."""
    line: int
    """Line of the change."""
    function: str
    """Dotted name of the function or class around it."""
    before: str
    """First line of the statement."""
    after: str
    """The same, changed."""
    tree: ast.Module = field(repr=False)
    """The whole module."""
    site: Site = field(repr=False)
    """What is changed in it."""
    replacement: ast.AST = field(repr=False)
    """What it is changed to."""
    source: str = field(repr=False)
    """The whole module as text, unchanged."""

    def render(self) -> str:
        """Return the source of the module with the change."""
        self.site.put(self.replacement)
        changed = ast.unparse(ast.fix_missing_locations(self.tree))
        self.site.put(self.site.node)
        return changed

    def __str__(self) -> str:
        return f"{self.module}:{self.line} {self.function}: `{self.before}` -> `{self.after}`"


@dataclass(frozen=True)
class Site:
    """A node of the tree, and where it hangs."""

    parent: ast.AST
    name: str
    index: int | None
    node: ast.AST
    statement: ast.stmt
    function: str

    def put(self, node: ast.AST) -> None:
        """Hang a node where this one hangs."""
        if self.index is None:
            setattr(self.parent, self.name, node)
        else:
            getattr(self.parent, self.name)[self.index] = node


@dataclass(frozen=True)
class Equivalent:
    """A change that no test can notice, and why."""

    module: str
    function: str
    before: str
    after: str
    reason: str


@dataclass
class ModuleResult:
    """What became of one module's mutants."""

    module: str
    possible: int
    """Changes there are, without the equivalent ones."""
    tried: int = 0
    killed: int = 0
    timed_out: int = 0
    """Of those killed: by the limit on time."""
    survivors: list[Mutant] = field(default_factory=list)


def find_mutants(module: str, source: str) -> list[Mutant]:
    """Return every mutant of a module, in the order of the source."""
    tree = ast.parse(source)
    mutants = []
    for site in list(find_sites(tree, "", tree.body[0])):
        for replacement in replacements(site):
            before = first_line(site.statement)
            site.put(ast.fix_missing_locations(ast.copy_location(replacement, site.node)))
            after = first_line(replacement if site.node is site.statement else site.statement)
            site.put(site.node)
            line = getattr(site.node, "lineno", site.statement.lineno)
            mutants.append(Mutant(module, line, site.function, before, after, tree, site, replacement, source))
    return sorted(mutants, key=lambda mutant: mutant.line)


def first_line(node: ast.AST) -> str:
    """Return the first line of a statement, without its decorators."""
    return next(line for line in ast.unparse(node).splitlines() if not line.startswith("@"))


def find_sites(node: ast.AST, function: str, statement: ast.stmt) -> Iterator[Site]:
    """Yield every node that may be changed."""
    for name, value in ast.iter_fields(node):
        if name in SKIPPED_FIELDS:
            continue
        for index, child in enumerate(value if isinstance(value, list) else [value]):
            if not isinstance(child, ast.AST) or is_skipped(child):
                continue
            inner = child if isinstance(child, ast.stmt) else statement
            scope = function
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                scope = f"{function}.{child.name}".lstrip(".")
            yield Site(node, name, index if isinstance(value, list) else None, child, inner, scope)
            yield from find_sites(child, scope, inner)


def is_skipped(node: ast.AST) -> bool:
    """Whether a node and everything in it is left alone."""
    match node:
        case ast.JoinedStr() | ast.Assert() | ast.Import() | ast.ImportFrom():
            return True
        case ast.FunctionDef(name="__repr__") | ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
        case ast.Expr(value=ast.Constant()) | ast.keyword(arg="strict"):
            return True
        case ast.AnnAssign(annotation=ast.Name(id="TypeAlias")):
            return True
        case ast.AnnAssign(target=ast.Name(id="example" | "recipes")):  # any settings would do; the recipes' tests hold
            return True
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name))):
            return name in LOGGERS
    return False


def replacements(site: Site) -> Iterator[ast.AST]:
    """Yield what a node may be replaced with."""
    node = site.node
    match node:
        case ast.Compare():
            for index, operator in enumerate(node.ops):
                swapped = [*node.ops[:index], SWAPPED_OPERATORS[type(operator)](), *node.ops[index + 1 :]]
                yield ast.Compare(node.left, swapped, node.comparators)  # type: ignore[arg-type]
        case ast.BinOp() if type(node.op) in SWAPPED_OPERATORS and not (is_text(node.left) or is_text(node.right)):
            yield ast.BinOp(node.left, SWAPPED_OPERATORS[type(node.op)](), node.right)  # type: ignore[arg-type]
        case ast.AugAssign() if type(node.op) in SWAPPED_OPERATORS and not is_text(node.value):
            yield ast.AugAssign(node.target, SWAPPED_OPERATORS[type(node.op)](), node.value)  # type: ignore[arg-type]
        case ast.BoolOp():
            yield ast.BoolOp(SWAPPED_OPERATORS[type(node.op)](), node.values)  # type: ignore[arg-type]
        case ast.UnaryOp(op=ast.Not() | ast.USub() | ast.Invert()):
            yield node.operand
        case ast.Continue() | ast.Break():
            yield SWAPPED_OPERATORS[type(node)]()
        case ast.Return():
            yield from replace_return(node, site.parent)
        case _:
            yield from replace_value(node)


def replace_return(node: ast.Return, parent: ast.AST) -> Iterator[ast.AST]:
    """Yield ``return None``, and no return at all where the function would go on."""
    if node.value is not None and not (isinstance(node.value, ast.Constant) and node.value.value is None):
        yield ast.Return(ast.Constant(None))
    if not isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef):
        yield ast.Pass()


def replace_value(node: ast.AST) -> Iterator[ast.AST]:
    """Yield another constant, or the opposite function."""
    match node:
        case ast.Constant(value=bool(truth)):
            yield ast.Constant(not truth)
        case ast.Constant(value=int(number) | float(number)):
            yield ast.Constant(number + 1 if number + 1 != number else number * 2)
        case ast.Name(id=name) if name in SWAPPED_NAMES:
            yield ast.Name(SWAPPED_NAMES[name], node.ctx)
        case ast.Attribute(attr=name) if name in SWAPPED_NAMES:
            yield ast.Attribute(node.value, SWAPPED_NAMES[name], node.ctx)
        case ast.keyword(arg="min" | "max" as name):
            yield ast.keyword(SWAPPED_NAMES[name], node.value)


def is_text(node: ast.AST) -> bool:
    """Whether a node is a piece of text."""
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


@dataclass(frozen=True)
class Ended:
    """How a run of the tests ended."""

    status: int
    """Exit status of pytest; 0 when all tests passed, negative when a limit ended it."""
    cpu_seconds: float
    seconds: float


@dataclass
class Bench:
    """Temporary copies of the source, one per job, in which tests run."""

    root: Path
    folder: Path
    jobs: int
    spare_cpu_seconds: float = SPARE_CPU_SECONDS
    cpu_limit: int = 3600
    time_limit: float = 3600.0
    running: dict[int, tuple[Path, float]] = field(default_factory=dict)
    """Process -> its copy, and when it started."""

    def __post_init__(self) -> None:
        self.copies = [self.folder / f"copy{number}" for number in range(self.jobs)]
        for copy in self.copies:
            for name in ("src", "tests"):
                shutil.copytree(self.root / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
            shutil.copy(self.root / "pyproject.toml", copy)

    def start(self, copy: Path, tests: Sequence[str]) -> int:
        """Start the tests on a copy; return the process."""
        sys.stdout.flush()
        process = os.fork()
        if process == 0:
            run_tests(copy, tests, self.cpu_limit)
        self.running[process] = (copy, time.monotonic())
        return process

    def poll(self, process: int) -> Ended | None:
        """Return how a run ended; None while it runs. A run over its time is ended."""
        copy, started = self.running[process]
        seconds = time.monotonic() - started
        ended, status, usage = os.wait4(process, os.WNOHANG)
        if not ended and seconds > self.time_limit:
            end_group(process)
            ended, status, usage = os.wait4(process, 0)
        if not ended:
            return None
        del self.running[process]
        end_group(process)
        shutil.rmtree(copy / "tmp", ignore_errors=True)
        return Ended(os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime, seconds)

    def wait(self, process: int) -> Ended:
        """Wait for a run to end."""
        while (ended := self.poll(process)) is None:
            time.sleep(0.01)
        return ended

    def measure(self, tests: Sequence[str]) -> None:
        """Run the tests on the unchanged source, and set the limits of mutants by it."""
        self.cpu_limit, self.time_limit = 3600, 3600.0
        ended = self.wait(self.start(self.copies[0], tests))
        if ended.status != 0:
            output = (self.copies[0] / "output.txt").read_text(encoding="utf-8", errors="replace")
            sys.exit(f"The tests fail without any change ({ended.status}): {' '.join(tests)}\n{output[-3000:]}")
        for name in (self.copies[0] / "modules.txt").read_text(encoding="utf-8").split():
            with contextlib.suppress(Exception):
                importlib.import_module(name)  # once, before the next process is forked
        self.cpu_limit = math.ceil(self.spare_cpu_seconds + CPU_FACTOR * ended.cpu_seconds)
        self.time_limit = SPARE_SECONDS + SECONDS_FACTOR * ended.seconds

    def try_mutants(self, mutants: Sequence[Mutant], tests: Sequence[str]) -> Iterator[tuple[Mutant, Ended]]:
        """Run the tests on every mutant, several at once; yield each as it ends."""
        queue, free, trying = list(reversed(mutants)), list(self.copies), dict[int, Mutant]()
        while queue or trying:
            while queue and free:
                copy, mutant = free.pop(), queue.pop()
                write_module(copy, mutant.module, mutant.render())
                trying[self.start(copy, tests)] = mutant
            for process, mutant in list(trying.items()):
                copy = self.running[process][0]
                if (ended := self.poll(process)) is not None:
                    del trying[process]
                    write_module(copy, mutant.module, mutant.source)
                    free.append(copy)
                    yield mutant, ended
            time.sleep(0.01)

    def end_all(self) -> None:
        """End what still runs."""
        for process in self.running:
            end_group(process)


def write_module(copy: Path, module: str, source: str) -> None:
    """Put a module into a copy, and remove the bytecode of what was there."""
    file = copy / "src" / module
    for bytecode in file.parent.glob(f"__pycache__/{file.stem}.*"):
        bytecode.unlink()
    file.write_text(source, encoding="utf-8")


def end_group(process: int) -> None:
    """End a run of the tests and whatever it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process, signal.SIGKILL)


def run_tests(copy: Path, tests: Sequence[str], cpu_limit: int) -> NoReturn:
    """Run pytest on a copy of the source, in this process, and leave it."""
    status = 3
    try:
        os.setsid()
        for kind, limit in (
            (resource.RLIMIT_CPU, cpu_limit),
            (resource.RLIMIT_DATA, MAX_BYTES),
            (resource.RLIMIT_CORE, 0),
        ):
            resource.setrlimit(kind, (limit, limit))
        with (copy / "output.txt").open("wb") as output:
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
        (copy / "tmp").mkdir(exist_ok=True)
        os.chdir(copy)
        sys.path.insert(0, str(copy / "src"))
        os.environ["PYTHONPATH"] = str(copy / "src")
        os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = str(copy / "tmp" / "hypothesis")
        import pytest

        seed = ["--hypothesis-seed=0"] if importlib.util.find_spec("hypothesis") else []
        options = [
            "-x",
            "-q",
            "--no-header",
            "--tb=line",
            "-W",
            "ignore::pytest.PytestAssertRewriteWarning",
            "--basetemp",
            str(copy / "tmp" / "pytest"),
            *seed,
        ]
        plugins = [word for name in ("cacheprovider", "randomly", "xdist") for word in ("-p", f"no:{name}")]
        status = int(pytest.main([*options, *plugins, *tests]))
        (copy / "modules.txt").write_text("\n".join(installed_modules()), encoding="utf-8")
    except BaseException:  # noqa: BLE001 - the process must not go on as a second copy of the caller
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def installed_modules() -> Iterator[str]:
    """Yield the modules loaded now that are neither ours nor our tests'."""
    for name, module in list(sys.modules.items()):
        if f"{sys.prefix}{os.sep}" in (getattr(module, "__file__", None) or ""):
            yield name


def read_modules(root: Path, config: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return each module of the list and its own tests: those of the same place, then the contract of its family."""
    modules = {}
    for pattern in config["modules"]:
        files = [file for file in sorted((root / "src").glob(pattern)) if file.name != "__init__.py"]
        if not files:
            sys.exit(f"No module is called {pattern} under src/. Mend the list in {CONFIG}.")
        for file in files:
            place = file.relative_to(root / "src")
            tests = Path("tests", *place.parts[1:]).with_name(f"test_{place.name}")
            contract = config.get("contracts", {}).get(place.parent.as_posix(), [])
            modules[place.as_posix()] = list(dict.fromkeys([tests.as_posix(), *contract]))
    return modules


def choose_mutants(root: Path, module: str, equivalents: Sequence[Equivalent], options: Options) -> list[list[Mutant]]:
    """Return the mutants to try, and all there are; those known to be equivalent are in neither."""
    source = (root / "src" / module).read_text(encoding="utf-8")
    known = {(entry.function, entry.before, entry.after) for entry in equivalents if entry.module == module}
    mutants = find_mutants(module, source)
    if gone := known - {(mutant.function, mutant.before, mutant.after) for mutant in mutants}:
        sys.exit(f"No mutant of {module} is this one any more: {min(gone)}. Remove it from {CONFIG}.")
    mutants = [mutant for mutant in mutants if (mutant.function, mutant.before, mutant.after) not in known]
    chance = random.Random(f"{options.seed} {module}")  # noqa: S311 - a sample, not a secret
    count = min(options.each, len(mutants)) if options.each else len(mutants)
    return [sorted(chance.sample(mutants, count), key=lambda mutant: mutant.line), mutants]


@dataclass(frozen=True)
class Options:
    """What was asked for."""

    each: int
    """Mutants per module at most; 0: all."""
    seed: int
    """Seed of the sample."""
    jobs: int


def run(root: Path, modules: Sequence[str], options: Options, report: Callable[[ModuleResult], None]) -> None:
    """Try mutants of every module that a name in ``modules`` is part of; all of them without names."""
    config = tomllib.loads((root / CONFIG).read_text(encoding="utf-8"))
    equivalents = [Equivalent(**entry) for entry in config.get("equivalent", [])]
    with tempfile.TemporaryDirectory(prefix="mutate-") as folder:
        bench = Bench(root, Path(folder), options.jobs, config.get("spare_cpu_seconds", SPARE_CPU_SECONDS))
        try:
            for module, tests in read_modules(root, config).items():
                if modules and not any(name in module for name in modules):
                    continue
                chosen, possible = choose_mutants(root, module, equivalents, options)
                result = ModuleResult(module, len(possible))
                bench.measure(tests)
                for mutant, ended in bench.try_mutants(chosen, tests):
                    result.tried += 1
                    result.killed += ended.status != 0
                    result.timed_out += ended.status in (-signal.SIGXCPU, -signal.SIGKILL)
                    if ended.status == 0:
                        result.survivors.append(mutant)
                report(result)
        finally:
            bench.end_all()


def print_result(result: ModuleResult) -> None:
    """Print a module's line, and what its tests did not notice."""
    print(f"{result.module:<58} {result.killed:>3} of {result.tried:>3} killed", flush=True)
    for mutant in result.survivors:
        print(f"  survived: {mutant}", flush=True)


def to_json(results: Sequence[ModuleResult], options: Options, bar: float) -> dict[str, Any]:
    """Return the results as a table for a file."""
    return {
        "command": f"python tools/mutate.py --each {options.each} --seed {options.seed}",
        "bar": bar,
        "tried": sum(result.tried for result in results),
        "killed": sum(result.killed for result in results),
        "modules": [
            {
                "module": result.module,
                "possible": result.possible,
                "tried": result.tried,
                "killed": result.killed,
                "timed_out": result.timed_out,
                "survivors": [
                    {name: getattr(mutant, name) for name in ("line", "function", "before", "after")}
                    for mutant in result.survivors
                ],
            }
            for result in results
        ],
    }


def main() -> int:
    """Run from the command line; 0 when at least the bar's share of the mutants is killed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--module", action="append", default=[], help="only modules with this in their path")
    parser.add_argument("--each", type=int, default=8, help="mutants per module; 0: all")
    parser.add_argument("--seed", type=int, default=0, help="seed of the sample")
    parser.add_argument("--jobs", type=int, default=1, help="mutants tried at once")
    parser.add_argument("--out", type=Path, help="write the results as JSON")
    parser.add_argument("--root", type=Path, default=ROOT, help="project to mutate")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    root, options = given.root.resolve(), Options(given.each, given.seed, given.jobs)
    bar = float(tomllib.loads((root / CONFIG).read_text(encoding="utf-8"))["bar"])
    results: list[ModuleResult] = []

    def report(result: ModuleResult) -> None:
        print_result(result)
        results.append(result)
        if given.out:  # after each module: a run that is ended keeps what it has
            given.out.write_text(json.dumps(to_json(results, options, bar), indent=1) + "\n", encoding="utf-8")

    run(root, given.module, options, report)
    tried, killed = sum(result.tried for result in results), sum(result.killed for result in results)
    if not tried:
        sys.exit("There was nothing to mutate. Check --module.")
    print(f"{killed} of {tried} killed, {killed / tried:.1%}; the bar is {bar:.0%}")
    return int(killed < bar * tried)


if __name__ == "__main__":
    sys.exit(main())
