"""What is there is counted, what is missing comes with the setting of the run's own trainer."""

from __future__ import annotations

from pathlib import Path

from breadth.doctor.instruments.presence import WANTED, presence, switches
from breadth.report.cells import Missing
from breadth.report.sections import Facts, Text
from breadth.runs.reader import Run
from breadth.runs.schema import Header, Remark
from breadth.runs.writer import RunWriter


def facts(run: Run, title: str) -> dict[str, tuple[object, str]]:
    (section,) = [one for one in presence(run) if isinstance(one, Facts) and one.title == title]
    return {fact.name: (fact.value, fact.note) for fact in section.facts}


def test_what_is_there_is_counted(run: Run) -> None:
    here = facts(run, "What is here")
    assert here["trainer"][0] == "trl"
    assert here["steps"][0] == "1 to 16, 16 logged"
    assert here["rollouts"][0] == "128 of 2 problems at 16 steps"
    assert here["entropy is"][0] == "exact, token-mean, response tokens, temperature 1"


def test_what_is_missing_comes_with_its_switch(run: Run) -> None:
    missing = facts(run, "What is missing")
    assert "entropy" not in missing
    assert "rollouts" not in missing
    assert missing["truncated"] == (f"would show {WANTED['truncated']}", missing["truncated"][1])
    assert "GRPOConfig" in missing["kl reference"][1]


def test_an_unknown_trainer_has_no_switches(tmp_path: Path) -> None:
    RunWriter(tmp_path, Header(trainer="homemade")).metrics(1, {"a": 1.0})
    run = Run.open(tmp_path)
    assert switches(run) == {}
    assert set(facts(run, "What is missing")) == {name.replace("_", " ") for name in WANTED}


def test_a_shaped_reward_is_said_to_grade_nothing(tmp_path: Path) -> None:
    RunWriter(tmp_path).rollouts({"problem": ["a"] * 3, "reward": [0.0, 0.5, 1.0]}, 1)
    graded = facts(Run.open(tmp_path), "What is here")["right or wrong"][0]
    assert isinstance(graded, Missing)


def test_remarks_and_broken_files_are_shown(tmp_path: Path) -> None:
    header = Header(remarks=(Remark("odd.", "a/b.log", 3, "Mend it."),), remarks_left_out=4)
    RunWriter(tmp_path, header).metrics(1, {"a": 1.0})
    (tmp_path / "rollouts" / "x.parquet").write_bytes(b"no")
    (text,) = [section for section in presence(Run.open(tmp_path)) if isinstance(section, Text)]
    assert "b.log, row 3: odd. Mend it." in text.text
    assert "x.parquet" in text.text
    assert "and 4 more" in text.text
