"""Settings are read from launch scripts, Python files and notebooks; nothing is executed."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from breadth.adapters.configs import Computed
from breadth.adapters.scripts import MAX_SCRIPT_BYTES, UNPACKED, call_keywords, script_arguments
from breadth.base.errors import BrokenFileError


def read_script(folder: Path, text: str) -> dict[str, Any]:
    (folder / "run.sh").write_text(text, encoding="utf-8")
    return script_arguments(folder / "run.sh")


def test_a_launch_script(tmp_path: Path) -> None:
    found = read_script(
        tmp_path,
        """#!/bin/bash
set -x
export N=8 RATE=1e-6   # comment
local PROMPTS=${PROMPTS:-512}
MODEL="${MODEL:-${ROOT}/model}"
files="['a.parquet','b.parquet']"
LENGTH=$((1024 * 8))
SUM=$((LENGTH + 2*$N))
# data.train_batch_size=1 \\
python3 -m verl.trainer.main_ppo \\
    data.train_batch_size=$PROMPTS \\
    data.max_response_length=${LENGTH} data.max_model_len=$SUM \\
    +data.train_files="$files" \\
    actor.lr=$RATE \\
    ++actor.use_kl=False ~actor.gone \\
    model.path=$MODEL \\
    trainer.logger='["console","wandb"]' $@ 2>&1 | tee log
accelerate launch train.py --num-generations $N --use_vllm --eps 0.2 0.28 --beta=0.04 --name "$(date)" --flag
""",
    )
    assert found["data.train_batch_size"] == 512
    assert found["data.max_response_length"] == 8192
    assert found["data.max_model_len"] == 8208  # 1024 * 8 + 2 * 8
    assert found["data.train_files"] == ["a.parquet", "b.parquet"]
    assert found["actor.lr"] == 1e-6
    assert found["actor.use_kl"] is False
    assert isinstance(found["model.path"], Computed)
    assert found["trainer.logger"] == ["console", "wandb"]
    assert found["num_generations"] == 8
    assert found["use_vllm"] is True
    assert found["eps"] == [0.2, 0.28]
    assert found["beta"] == 0.04
    assert isinstance(found["name"], Computed)
    assert found["flag"] is True
    assert "actor.gone" not in found
    assert "N" not in found  # a variable is no argument


def test_a_variable_counts_as_it_stands_where_it_is_used(tmp_path: Path) -> None:
    assert read_script(tmp_path, "n=1\ncmd --a $n\nn=2\ncmd --b $n\nn=$n$n\ncmd --c $n\n") == {"a": 1, "b": 2, "c": 22}


def test_arrays_of_arguments(tmp_path: Path) -> None:
    text = 'ARGS=(\n  data.train_batch_size=64\n  actor.clip=0.2\n)\npython main.py "${ARGS[@]}"\n'
    assert read_script(tmp_path, text) == {"data.train_batch_size": 64, "actor.clip": 0.2}


def test_one_argument_a_line(tmp_path: Path) -> None:
    assert read_script(
        tmp_path, "# variables\nLR=2e-5   # rate\n# arguments\n--rm\na.b=$LR\na.c=$UNSET\n--x.y 0.2\n"
    ) == {
        "rm": True,
        "a.b": 2e-5,
        "a.c": Computed("$UNSET"),
        "x.y": 0.2,
    }


@pytest.mark.parametrize(
    "value",
    [
        "$(touch {0})",
        "`touch {0}`",
        "$(echo $(touch {0}))",
        "$((touch {0}))",
        "${{X:-$(touch {0})}}",
        "$(cat <<E\ntouch {0}\nE\n)",
        "$((9**9**9))",
    ],
)
def test_nothing_is_executed(tmp_path: Path, value: str) -> None:
    there = tmp_path / "there"
    found = read_script(tmp_path, f"X={value.format(there)}\ncmd --a {value.format(there)} a.b=$X\n")
    assert not there.exists()
    assert isinstance(found["a.b"], Computed) or "a.b" not in found or "$" in str(found["a.b"])
    assert not isinstance(found.get("a"), int | float)


def test_variables_that_double_without_end_are_not_known(tmp_path: Path) -> None:
    text = (
        "v0=abcdefgh\n"
        + "".join(f"v{i}=$v{i - 1}$v{i - 1}\n" for i in range(1, 60))
        + "x=$x\ncmd --a $v59 --b $x --c ${d:-$d}\n"
    )
    begun = time.process_time()
    found = read_script(tmp_path, text)
    assert time.process_time() - begun < 5
    assert all(isinstance(found[name], Computed) for name in "abc")


@pytest.mark.parametrize(
    "text",
    [
        "cmd --a 'open",
        'cmd --a "',
        "cmd \\",
        "\\\n\\\n",
        "=",
        "--=1",
        "a.b=",
        "cmd --a ${",
        "$((",
        "\x00 --a 1",
        "cmd --a [1, 2",
    ],
)
def test_broken_scripts_are_read_as_far_as_they_go(tmp_path: Path, text: str) -> None:
    read_script(tmp_path, text)


def test_a_script_of_many_arguments_takes_seconds_at_most_and_a_larger_one_is_refused(tmp_path: Path) -> None:
    begun = time.process_time()
    read_script(tmp_path, "cmd " + "--x '$(a) b' " * 12_000)
    assert time.process_time() - begun < 20
    with pytest.raises(BrokenFileError, match="is larger"):
        read_script(tmp_path, "cmd " + "--x 1 " * 50_000)


@settings(max_examples=80, deadline=None)
@given(some.text(alphabet="ab=$(){}`'\"\\ \n-.:+1#[", max_size=60))
def test_any_text_is_read(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    read_script(tmp_path_factory.mktemp("text"), text)


NAMES = frozenset({"GRPOConfig"})


def read_calls(folder: Path, text: str, name: str = "train.py") -> dict[str, Any]:
    (folder / name).write_text(text, encoding="utf-8")
    return call_keywords(folder / name, NAMES)


def cell(source: str | list[str], kind: str = "code") -> dict[str, Any]:
    return {"cell_type": kind, "source": source, "outputs": [{"text": "GRPOConfig(num_generations=99)"}]}


def test_literals_names_and_arithmetic(tmp_path: Path) -> None:
    found = read_calls(
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
    found = read_calls(
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
    found = read_calls(
        tmp_path,
        "a = GRPOConfig(beta=0.0, num_generations=8)\nb = GRPOConfig(beta=0.1, num_generations=8, top_p=0.9)\n",
    )
    assert found == {"beta": Computed("0.0 or 0.1"), "num_generations": 8, "top_p": 0.9}


def test_tables_that_are_handed_over_whole(tmp_path: Path) -> None:
    text = (
        "common = dict(num_generations=4, beta=args.b)\nmore = {'top_p': 0.9}\nGRPOConfig(**common, **more,"
        " temperature=1.0)\n"
    )
    assert read_calls(tmp_path, text) == {
        "num_generations": 4,
        "beta": Computed("args.b"),
        "top_p": 0.9,
        "temperature": 1.0,
    }
    assert UNPACKED in read_calls(tmp_path, "GRPOConfig(**load(), num_generations=4)\n")


def test_a_notebook_is_its_code_cells(tmp_path: Path) -> None:
    cells = [
        cell("# GRPOConfig(num_generations=77)", "markdown"),
        cell(["%pip install trl\n", "!nvidia-smi\n", "LENGTH = 1024\n"]),
        cell("%%capture\nif True:\n    !ls\n"),
        cell("this is no python ("),
        cell("args = GRPOConfig(num_generations=2, max_completion_length=LENGTH)"),
    ]
    assert read_calls(tmp_path, json.dumps({"cells": cells}), "a.ipynb") == {
        "num_generations": 2,
        "max_completion_length": 1024,
    }


@pytest.mark.parametrize("text", ["{", "[" * 100_000, "not JSON"])
def test_a_notebook_that_is_none_is_an_error(tmp_path: Path, text: str) -> None:
    with pytest.raises(BrokenFileError, match="no notebook"):
        read_calls(tmp_path, text, "a.ipynb")


@pytest.mark.parametrize("text", ["[]", "3", '{"cells": 3}', '{"cells": [3, {"cell_type": "code"}]}'])
def test_a_notebook_without_code_says_nothing(tmp_path: Path, text: str) -> None:
    assert read_calls(tmp_path, text, "a.ipynb") == {}


def test_a_cell_with_the_call_that_cannot_be_parsed_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BrokenFileError, match="can be parsed"):
        read_calls(tmp_path, json.dumps({"cells": [cell("GRPOConfig(num_generations=")]}), "a.ipynb")


HOSTILE = {
    "syntax": "GRPOConfig(num_generations=\n",
    "null": "GRPOConfig(a=1\0)",
    "parentheses": "GRPOConfig(" + "(" * 50_000,
    "sum": "GRPOConfig(a=" + "+".join(["1"] * 100_000) + ")",
    "attributes": "GRPOConfig(a=a" + ".a" * 100_000 + ")",
    "signs": "GRPOConfig(a=" + "-" * 100_000 + "1)",
    "digits": "GRPOConfig(a=" + "9" * 10_000 + ")",
    "size": "#" * (MAX_SCRIPT_BYTES + 1),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_python_is_refused_in_time(tmp_path: Path, name: str) -> None:
    begun = time.process_time()
    with pytest.raises(BrokenFileError):
        read_calls(tmp_path, HOSTILE[name])
    assert time.process_time() - begun < 10


def test_nothing_is_executed_and_nothing_grows(tmp_path: Path) -> None:
    there = tmp_path / "there"
    found = read_calls(
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
