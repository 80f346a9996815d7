"""Keywords of calls are read out of Python and notebooks without running either."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from breadth.adapters.calls import LARGEST_SCRIPT, REST, call_keywords
from breadth.adapters.configs import Computed
from breadth.base.errors import BrokenFileError

NAMES = frozenset({"GRPOConfig"})


def read(folder: Path, text: str, name: str = "train.py") -> dict[str, Any]:
    (folder / name).write_text(text, encoding="utf-8")
    return call_keywords(folder / name, NAMES)


def cell(source: str | list[str], kind: str = "code") -> dict[str, Any]:
    return {"cell_type": kind, "source": source, "outputs": [{"text": "GRPOConfig(num_generations=99)"}]}


def test_literals_names_and_arithmetic(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        "import trl\nLENGTH: int = 2048\nPROMPT = LENGTH // 4\nRATE = 5e-6\n"
        "def main():\n    group = 8\n    return trl.GRPOConfig(num_generations=group, learning_rate=RATE,\n"
        "        max_completion_length=LENGTH - PROMPT,\n"
        "        beta=-0.5, use_vllm=True, reward_weights=[1.0, 0.5], epsilon_high=None)\n",
    )
    # 2048 - 2048 // 4 = 1536
    assert found == {
        "num_generations": 8,
        "learning_rate": 5e-6,
        "max_completion_length": 1536,
        "beta": -0.5,
        "use_vllm": True,
        "reward_weights": [1.0, 0.5],
        "epsilon_high": None,
    }


def test_what_only_running_would_tell_is_set_but_not_known(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        "n = 4\nn = 8\nm = 2\nm += 1\nfor k in range(3): pass\n"
        "def f(p=1):\n  GRPOConfig(num_generations=n, a=m, b=k, c=p, beta=args.beta, d=9**9)\n",
    )
    assert {name: str(value) for name, value in found.items()} == {
        "num_generations": "n",
        "a": "m",
        "b": "k",
        "c": "p",
        "beta": "args.beta",
        "d": "9 ** 9",
    }
    assert all(isinstance(value, Computed) for value in found.values())


def test_two_calls_that_agree_say_it_and_two_that_differ_do_not(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        "a = GRPOConfig(beta=0.0, num_generations=8)\nb = GRPOConfig(beta=0.1, num_generations=8, top_p=0.9)\n",
    )
    assert found == {"beta": Computed("0.0 or 0.1"), "num_generations": 8, "top_p": 0.9}


def test_tables_that_are_handed_over_whole(tmp_path: Path) -> None:
    text = (
        "common = dict(num_generations=4, beta=args.b)\nmore = {'top_p': 0.9}\nGRPOConfig(**common, **more,"
        " temperature=1.0)\n"
    )
    assert read(tmp_path, text) == {"num_generations": 4, "beta": Computed("args.b"), "top_p": 0.9, "temperature": 1.0}
    assert REST in read(tmp_path, "GRPOConfig(**load(), num_generations=4)\n")


def test_a_notebook_is_its_code_cells(tmp_path: Path) -> None:
    cells = [
        cell("# GRPOConfig(num_generations=77)", "markdown"),
        cell(["%pip install trl\n", "!nvidia-smi\n", "LENGTH = 1024\n"]),
        cell("%%capture\nif True:\n    !ls\n"),
        cell("this is no python ("),
        cell("args = GRPOConfig(num_generations=2, max_completion_length=LENGTH)"),
    ]
    assert read(tmp_path, json.dumps({"cells": cells}), "a.ipynb") == {
        "num_generations": 2,
        "max_completion_length": 1024,
    }


@pytest.mark.parametrize("text", ["{", "[" * 100_000, "not JSON"])
def test_a_notebook_that_is_none_is_an_error(tmp_path: Path, text: str) -> None:
    with pytest.raises(BrokenFileError, match="no notebook"):
        read(tmp_path, text, "a.ipynb")


@pytest.mark.parametrize("text", ["[]", "3", '{"cells": 3}', '{"cells": [3, {"cell_type": "code"}]}'])
def test_a_notebook_without_code_says_nothing(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, text, "a.ipynb") == {}


def test_a_cell_with_the_call_that_cannot_be_parsed_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BrokenFileError, match="can be parsed"):
        read(tmp_path, json.dumps({"cells": [cell("GRPOConfig(num_generations=")]}), "a.ipynb")


HOSTILE = {
    "syntax": "GRPOConfig(num_generations=\n",
    "null": "GRPOConfig(a=1\0)",
    "parentheses": "GRPOConfig(" + "(" * 50_000,
    "sum": "GRPOConfig(a=" + "+".join(["1"] * 100_000) + ")",
    "attributes": "GRPOConfig(a=a" + ".a" * 100_000 + ")",
    "signs": "GRPOConfig(a=" + "-" * 100_000 + "1)",
    "digits": "GRPOConfig(a=" + "9" * 10_000 + ")",
    "size": "#" * (LARGEST_SCRIPT + 1),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_python_is_refused_in_time(tmp_path: Path, name: str) -> None:
    begun = time.process_time()
    with pytest.raises(BrokenFileError):
        read(tmp_path, HOSTILE[name])
    assert time.process_time() - begun < 10


def test_nothing_is_executed_and_nothing_grows(tmp_path: Path) -> None:
    there = tmp_path / "there"
    found = read(
        tmp_path,
        f"import os\nos.system('touch {there}')\nx = open({str(there)!r}, 'w')\nGRPOConfig(a=open({str(there)!r}, 'w'),"
        " b='x' * 10**10, c=9**9**9, d=10**17 * 10**17, e='\\d', f=1 / 0, g=2.0 * 3)\n",
    )
    assert not there.exists()
    assert found["e"] == "\\d"
    assert found["g"] == 6.0
    assert all(isinstance(found[name], Computed) for name in "abcf")
    assert isinstance(found["d"], Computed)


@settings(max_examples=60, deadline=None)
@given(some.text(max_size=80))
def test_any_text_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.mktemp("text") / "a.py"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    with suppress(BrokenFileError):
        assert call_keywords(path, NAMES) == {}
