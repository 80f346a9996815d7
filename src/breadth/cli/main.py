"""The command ``breadth``: loads a verb by its name and turns our errors into messages with an exit status."""

from __future__ import annotations

import errno
import gc
import inspect
import os
import sys
from importlib import import_module
from typing import Annotated, Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from breadth import __version__
from breadth.base.errors import TRAIN_PACKAGES, BreadthError, MissingExtraError, redact_text
from breadth.report.plaintext import strip_escapes

BAD_INPUT = 2
"""Exit status when the input or the command line is at fault."""
GC_THRESHOLD = 50_000
"""New objects before Python looks for garbage among them, instead of 700.

Starting up makes a hundred thousand objects, nearly all to stay; looking through them 150 times takes a tenth of a
short verb's time.
"""


class LazyVerbs(TyperGroup):
    """A group that imports the module of a verb when the verb is run; the list of verbs needs none of them."""

    verbs: ClassVar[dict[str, tuple[str, str]]] = {}
    """Name -> ``module:function`` (or ``module:app``) and the line of help in the list."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        for name, (_, line) in self.verbs.items():
            self.add_command(TyperCommand(name, help=line))  # a name with its help, until it is run

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return the verb that was typed, loaded."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, load_verb(name, self.verbs[name][0]) if name in self.verbs else command, rest

    def invoke(self, ctx: Any) -> Any:
        """Run what was typed; a complaint about it repeats no password of an address."""
        try:
            return super().invoke(ctx)
        except Exception as error:
            if isinstance(message := getattr(error, "message", None), str):  # typer's, whose class is not public
                error.message = redact_text(message)  # type: ignore[attr-defined]
            raise


def load_verb(name: str, place: str) -> Any:
    """Import a verb's module and return its command, or its group where the place names a Typer app."""
    module, _, attribute = place.partition(":")
    verb = getattr(import_module(module), attribute)
    if isinstance(verb, typer.Typer):
        return get_command(verb)
    single = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    paragraphs = inspect.cleandoc(verb.__doc__ or "").split("\n\n")  # Typer would keep the line breaks of the source
    single.command(name, help="\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs))(verb)
    return get_command(single)


class Verbs(LazyVerbs):
    """The verbs of ``breadth``."""

    verbs: ClassVar[dict[str, tuple[str, str]]] = {
        "compare": ("breadth.cli.compare:compare", "Compare checkpoints or runs: pass@k, votes, breadth, best use."),
        "demo": ("breadth.cli.demo:demo", "Train a tiny reasoner with and without protection, and answer both ways."),
        "doctor": ("breadth.cli.doctor:doctor", "Find the failure of a run, prove it, and give the patch."),
        "import": ("breadth.cli.import_:import_", "Import a trainer's files into a run folder."),
        "lab": ("breadth.cli.lab:app", "Run the tiny reasoner that ships with breadth, and its experiments."),
        "measure": ("breadth.cli.measure:app", "Measure what a log does not hold, with a model of your own."),
        "probe": ("breadth.cli.probe:probe", "Find out what a server can do."),
        "serve": ("breadth.cli.serve:serve", "Serve an OpenAI-compatible proxy that answers under a policy."),
        "show": ("breadth.cli.show:show", "Show what a run holds, its instruments with intervals."),
        "solve": ("breadth.cli.solve:solve", "Answer a question under a policy, with confidence and cost."),
        "tune": ("breadth.cli.tune:tune", "Measure a server and write the best policy for it."),
    }


app = typer.Typer(
    name="breadth",
    cls=Verbs,
    help="Keep a reasoning model's breadth in RL training and spend it well at inference.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def print_version(wanted: bool) -> None:
    """Print the version and exit, where it was asked for."""
    if wanted:
        typer.echo(f"breadth {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Keep a reasoning model's breadth in RL training and spend it well at inference."""
    del version


def flush_or_discard_output() -> None:
    """Write what is still buffered, or drop it where that is impossible, so that nothing fails at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def run() -> None:
    """Run the command line; our errors, and a full disk under our output, are two sentences and exit status 2."""
    gc.set_threshold(GC_THRESHOLD)
    # numpy's matrices are a few columns wide here: threads would spin longer than they compute. torch has its own.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        try:
            app()
        except SystemExit:
            sys.stdout.flush()  # here an error can still be reported; at exit Python only mentions that it ignores one
            raise
        except ModuleNotFoundError as error:
            if error.name not in TRAIN_PACKAGES:
                raise
            raise MissingExtraError(f"breadth {' '.join(sys.argv[1:3])}", "train") from error
    except BreadthError as error:
        flush_or_discard_output()
        typer.echo(f"breadth: {strip_escapes(str(error))}", err=True)
        sys.exit(BAD_INPUT)
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output left; Python would complain about it at exit
        sys.exit(0)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        flush_or_discard_output()
        typer.echo(
            f"breadth: Cannot write to standard output: {error.strerror}.\n  -> Redirect it to a disk with free space.",
            err=True,
        )
        sys.exit(BAD_INPUT)
