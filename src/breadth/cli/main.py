"""The command ``breadth``: collects the verbs and turns our errors into messages with an exit status."""

from __future__ import annotations

import errno
import gc
import os
import sys
from typing import Annotated

import typer

from breadth import __version__
from breadth.base.errors import BreadthError
from breadth.cli.compare import compare
from breadth.cli.demo import demo
from breadth.cli.doctor import doctor
from breadth.cli.import_ import import_
from breadth.cli.lab import app as lab
from breadth.cli.probe import probe
from breadth.cli.serve import serve
from breadth.cli.show import show
from breadth.cli.solve import solve
from breadth.cli.tune import tune
from breadth.report.plaintext import plain

BAD_INPUT = 2
"""Exit status when the input or the command line is at fault."""
YOUNG = 50_000
"""Objects made before Python looks for garbage among them, instead of 700: starting up makes a hundred thousand, nearly all to stay,
and looking through them 150 times takes a tenth of a short verb's time."""

app = typer.Typer(
    name="breadth",
    help="Keep a reasoning model's breadth in RL training and spend it well at inference.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("compare")(compare)
app.command("demo")(demo)
app.command("doctor")(doctor)
app.command("import")(import_)
app.command("probe")(probe)
app.command("serve")(serve)
app.command("show")(show)
app.command("solve")(solve)
app.command("tune")(tune)
app.add_typer(lab, name="lab")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"breadth {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    del version


def _only(verb: str) -> None:
    """Leave the other verbs out once one is named: typer reads the signatures of all of them before it looks which is meant."""
    named = [one for one in app.registered_commands if one.name == verb]
    if named:
        app.registered_commands, app.registered_groups = named, []


def run() -> None:
    """Run the command line; an error of ours, or a full disk under our output, is two sentences on standard error and exit status 2."""
    gc.set_threshold(YOUNG)
    _only(*sys.argv[1:2] or [""])
    try:
        try:
            app()
        finally:
            sys.stdout.flush()  # while a refusal can still be told: at exit Python only says that it ignores one
    except BreadthError as error:
        typer.echo(f"breadth: {plain(str(error))}", err=True)
        sys.exit(BAD_INPUT)
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output left; Python would complain about it at exit
        sys.exit(0)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what still waits to be written goes there
        typer.echo(
            f"breadth: Cannot write to standard output: {error.strerror}.\n  -> Redirect it to a disk with free space.",
            err=True,
        )
        sys.exit(BAD_INPUT)
