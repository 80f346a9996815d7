"""Arguments of launch scripts are read with the script's own variables in them; what a shell would have to run is not known."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from breadth.adapters.configs import Computed
from breadth.adapters.scripts import script_arguments
from breadth.base.errors import BrokenFileError


def read(folder: Path, text: str) -> dict[str, Any]:
    (folder / "run.sh").write_text(text, encoding="utf-8")
    return script_arguments(folder / "run.sh")


def test_a_launch_script(tmp_path: Path) -> None:
    found = read(
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
    assert read(tmp_path, "n=1\ncmd --a $n\nn=2\ncmd --b $n\nn=$n$n\ncmd --c $n\n") == {"a": 1, "b": 2, "c": 22}


def test_arrays_of_arguments(tmp_path: Path) -> None:
    text = 'ARGS=(\n  data.train_batch_size=64\n  actor.clip=0.2\n)\npython main.py "${ARGS[@]}"\n'
    assert read(tmp_path, text) == {"data.train_batch_size": 64, "actor.clip": 0.2}


def test_one_argument_a_line(tmp_path: Path) -> None:
    assert read(tmp_path, "# variables\nLR=2e-5   # rate\n# arguments\n--rm\na.b=$LR\na.c=$UNSET\n--x.y 0.2\n") == {
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
    found = read(tmp_path, f"X={value.format(there)}\ncmd --a {value.format(there)} a.b=$X\n")
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
    found = read(tmp_path, text)
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
    read(tmp_path, text)


def test_a_script_of_many_arguments_takes_seconds_at_most_and_a_larger_one_is_refused(tmp_path: Path) -> None:
    begun = time.process_time()
    read(tmp_path, "cmd " + "--x '$(a) b' " * 12_000)
    assert time.process_time() - begun < 20
    with pytest.raises(BrokenFileError, match="is larger"):
        read(tmp_path, "cmd " + "--x 1 " * 50_000)


@settings(max_examples=80, deadline=None)
@given(some.text(alphabet="ab=$(){}`'\"\\ \n-.:+1#[", max_size=60))
def test_any_text_is_read(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    read(tmp_path_factory.mktemp("text"), text)
