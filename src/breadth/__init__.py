"""Keep a reasoning model's breadth in RL training and spend it well at inference.

``import breadth`` is light: a name below is loaded when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from breadth.base.errors import TRAIN_PACKAGES, MissingExtraError

if TYPE_CHECKING:
    from breadth.adapters.trl.trainer import BreadthGRPOTrainer as BreadthGRPOTrainer
    from breadth.api import Diagnosis as Diagnosis
    from breadth.api import Result as Result
    from breadth.api import compare as compare
    from breadth.api import diagnose as diagnose
    from breadth.api import solve as solve
    from breadth.api import solve_async as solve_async
    from breadth.api import tune as tune
    from breadth.doctor.overview import overview as overview
    from breadth.inference.policy import Policy as Policy
    from breadth.inference.records import Task as Task
    from breadth.inference.stored_replay import replay as replay
    from breadth.measure.answers import answer_key as answer_key
    from breadth.measure.answers import stated_answer as stated_answer
    from breadth.measure.entropy import fit_law as fit_law
    from breadth.measure.intervals import Interval as Interval
    from breadth.measure.pass_at_k import mean_pass_at_k as mean_pass_at_k
    from breadth.measure.pass_at_k import pass_at_k as pass_at_k
    from breadth.measure.trends import trend as trend
    from breadth.measure.vote_counting import maj_at_k as maj_at_k
    from breadth.measure.vote_counting import mean_maj_at_k as mean_maj_at_k
    from breadth.runs.importing import import_files as import_files
    from breadth.runs.reader import Run as Run
    from breadth.runs.writer import RunWriter as RunWriter
    from breadth.runtime.connect import connect as connect
    from breadth.runtime.driver import Driver as Driver
    from breadth.training.chain import Chain as Chain
    from breadth.training.mechanism import Regime as Regime
    from breadth.training.objective import Objective as Objective

__version__ = "0.1.0"

_PLACES = {
    "tune": "breadth.api",
    "solve_async": "breadth.api",
    "solve": "breadth.api",
    "diagnose": "breadth.api",
    "compare": "breadth.api",
    "Result": "breadth.api",
    "Diagnosis": "breadth.api",
    "BreadthGRPOTrainer": "breadth.adapters.trl.trainer",
    "Chain": "breadth.training.chain",
    "Driver": "breadth.runtime.driver",
    "Interval": "breadth.measure.intervals",
    "Objective": "breadth.training.objective",
    "Policy": "breadth.inference.policy",
    "Regime": "breadth.training.mechanism",
    "Run": "breadth.runs.reader",
    "RunWriter": "breadth.runs.writer",
    "Task": "breadth.inference.records",
    "answer_key": "breadth.measure.answers",
    "connect": "breadth.runtime.connect",
    "fit_law": "breadth.measure.entropy",
    "import_files": "breadth.runs.importing",
    "maj_at_k": "breadth.measure.vote_counting",
    "mean_maj_at_k": "breadth.measure.vote_counting",
    "mean_pass_at_k": "breadth.measure.pass_at_k",
    "overview": "breadth.doctor.overview",
    "pass_at_k": "breadth.measure.pass_at_k",
    "replay": "breadth.inference.stored_replay",
    "stated_answer": "breadth.measure.answers",
    "trend": "breadth.measure.trends",
}

__all__ = ["__version__", *sorted(_PLACES)]


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        try:
            return getattr(import_module(_PLACES[name]), name)
        except ModuleNotFoundError as error:
            if error.name in TRAIN_PACKAGES:
                raise MissingExtraError(name, "train") from error
            raise
    raise AttributeError(f"module 'breadth' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
