"""One page with every instrument a run can feed, what is missing last."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from breadth.doctor.evidence.run_course import entropy_interventions
from breadth.doctor.overview import (
    INSTRUMENT_INPUTS,
    contents_sections,
    law_section,
    metric_sections,
    overview,
    trainer_switches,
)
from breadth.measure.intervals import Interval
from breadth.report.cells import Missing
from breadth.report.sections import Curve, Facts, Table, Text
from breadth.runs.outcomes import count_outcomes, read_samples
from breadth.runs.reader import Run
from breadth.runs.schema import Header, Remark
from breadth.runs.writer import RunWriter


def test_a_full_run_feeds_every_instrument(run: Run) -> None:
    page = overview(run)
    titles = [getattr(section, "title", "") for section in page.sections]
    assert titles[0] == "What is here"
    assert titles[-1] == "What is missing"
    for title in (
        "Metrics",
        "Entropy",
        "Coverage",
        "pass@k and maj@k",
        "Different answers",
        "Texts",
        "Groups of step 16",
    ):
        assert title in titles
    assert page.title == "small"


def test_an_empty_run_still_has_a_page(tmp_path: Path) -> None:
    RunWriter(tmp_path)
    page = overview(Run.open(tmp_path))
    assert [getattr(section, "title", "") for section in page.sections] == ["What is here", "What is missing"]


def facts(run: Run, title: str) -> dict[str, tuple[object, str]]:
    (section,) = [one for one in contents_sections(run) if isinstance(one, Facts) and one.title == title]
    return {fact.name: (fact.value, fact.note) for fact in section.facts}


def test_what_is_there_is_counted(run: Run) -> None:
    here = facts(run, "What is here")
    assert here["trainer"][0] == "trl"
    assert here["steps"][0] == "1 to 16, 16 logged"
    assert here["rollouts"][0] == "128 of 2 problems at 16 steps"
    assert here["entropy is"][0] == "exact, token-mean, response tokens, temperature 1"


def test_metrics_of_an_evaluation_alone_are_counted(tmp_path: Path) -> None:
    RunWriter(tmp_path).metrics(1, {"inference/confidence": 0.5, "inference/correct": 1.0}, split="eval")
    here = facts(Run.open(tmp_path), "What is here")
    assert (here["steps"][0], here["metrics"][0]) == ("1 to 1, 1 logged", 2)


def test_what_is_missing_comes_with_its_switch(run: Run) -> None:
    missing = facts(run, "What is missing")
    assert "entropy" not in missing
    assert "rollouts" not in missing
    assert missing["truncated"] == (f"would show {INSTRUMENT_INPUTS['truncated']}", missing["truncated"][1])
    assert "beta above 0" in missing["kl reference"][1]


def test_groups_that_two_ranks_number_alike_are_two(tmp_path: Path) -> None:
    for rank in range(2):
        RunWriter(tmp_path / "run", rank=rank).rollouts(
            {
                "problem": [f"{rank}-{group}" for group in range(4) for _ in range(4)],
                "group": [str(group) for group in range(4) for _ in range(4)],
                "answer": [str(place % 3) for place in range(16)],
                "reward": [float(place % 3 == rank) for place in range(16)],
            },
            1,
        )
    run = Run.open(tmp_path / "run")
    outcomes = count_outcomes(run)
    assert outcomes is not None
    assert outcomes.graded.tolist() == [4] * 8
    assert len(np.unique(read_samples(run, 1, 1).groups)) == 8
    assert overview(run).sections


def test_an_unknown_trainer_has_no_switches(tmp_path: Path) -> None:
    RunWriter(tmp_path, Header(trainer="homemade")).metrics(1, {"a": 1.0})
    run = Run.open(tmp_path)
    assert trainer_switches(run) == {}
    assert set(facts(run, "What is missing")) == {name.replace("_", " ") for name in INSTRUMENT_INPUTS}


def test_a_shaped_reward_is_said_to_grade_nothing(tmp_path: Path) -> None:
    RunWriter(tmp_path).rollouts({"problem": ["a"] * 3, "reward": [0.0, 0.5, 1.0]}, 1)
    graded = facts(Run.open(tmp_path), "What is here")["right or wrong"][0]
    assert isinstance(graded, Missing)
    assert "more than two values" in graded.reason


def test_without_any_reward_none_is_spoken_of_and_the_way_to_a_grade_is_shown(tmp_path: Path) -> None:
    RunWriter(tmp_path, Header(trainer="trl")).rollouts({"problem": ["a"] * 3, "answer": ["1", "2", "2"]}, 1)
    here = facts(Run.open(tmp_path), "What is here")
    graded, note = here["right or wrong"]
    assert isinstance(graded, Missing)
    assert "there is no reward" in graded.reason
    assert "correct='REWARD'" in note
    assert here["rollouts"][0] == "3 of 1 problem at 1 step"


def test_only_a_known_time_is_shown_as_the_time_of_making(run: Run) -> None:
    def names(shown: Run) -> list[str]:
        return [fact.name for fact in overview(shown).provenance]

    assert names(run) == ["run", "created", "from"]
    assert names(replace(run, header=replace(run.header, created=""))) == ["run", "from"]


def test_remarks_and_broken_files_are_shown(tmp_path: Path) -> None:
    header = Header(remarks=(Remark("odd.", "a/b.log", 3, "Mend it."),), remarks_left_out=4)
    RunWriter(tmp_path, header).metrics(1, {"a": 1.0})
    (tmp_path / "rollouts" / "x.parquet").write_bytes(b"no")
    (text,) = [section for section in contents_sections(Run.open(tmp_path)) if isinstance(section, Text)]
    assert "b.log, row 3: odd. Mend it." in text.text
    assert "x.parquet" in text.text
    assert "and 4 more" in text.text


def test_start_and_now_are_medians_of_the_ends(run: Run) -> None:
    table, *curves = metric_sections(run)
    assert isinstance(table, Table)
    rows = {str(row[0]): row for row in table.rows}
    assert set(rows) == {"entropy (nats)", "reward"}
    # 16 points: windows of three. Start: median of 1, 1/2, 1/3; now: median of 1/14, 1/15, 1/16.
    assert rows["entropy (nats)"][1].value == 0.5  # type: ignore[union-attr]  # an interval by construction
    assert rows["entropy (nats)"][2].value == 1 / 15  # type: ignore[union-attr]  # likewise
    assert rows["entropy (nats)"][3] == "falling"
    assert [curve.title for curve in curves if isinstance(curve, Curve)] == ["Entropy", "Reward"]


def test_the_trainers_own_name_is_given_where_it_differs(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path, Header(names={"entropy": "actor/entropy"}))
    for step in (1, 2, 3):
        writer.metrics(step, {"entropy": 1.0 / step, "learning_rate": 0.1})
    table, curve = metric_sections(Run.open(tmp_path))
    assert isinstance(table, Table)
    assert isinstance(curve, Curve)
    assert curve.note == "Logged as actor/entropy."
    assert table.rows[0][3] == "cannot tell"


def test_nothing_known_nothing_shown(tmp_path: Path) -> None:
    RunWriter(tmp_path).metrics(1, {"odd": 1.0})
    assert metric_sections(Run.open(tmp_path)) == []


def test_a_series_of_nothing_but_nan_is_no_curve(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path)
    for step in (1, 2, 3):
        writer.metrics(step, {"entropy": float("nan")})
    (table,) = metric_sections(Run.open(tmp_path))
    assert isinstance(table, Table)
    assert table.rows[0][3] == "cannot tell"


def test_an_interval_stays_where_the_quantity_can_be(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path)
    for step in range(24):
        writer.metrics(step, {"zero_variance_groups": float(step % 3 == 0) * 0.9, "grad_norm": 1.0})
    table, *curves = metric_sections(Run.open(tmp_path))
    assert isinstance(table, Table)
    for row in table.rows:
        assert row[1].low >= 0  # type: ignore[union-attr]  # an interval by construction
    assert [curve.title for curve in curves if isinstance(curve, Curve)] == ["Share of zero-variance groups"]


def test_a_jump_is_marked_and_a_blip_is_not(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path)
    for step in range(80):
        wobble = 0.01 * ((step * 7) % 5)
        writer.metrics(
            step, {"entropy": (1.0 if step < 40 else 0.3) + wobble, "truncated": 0.02 if step in (13, 15) else 0.0}
        )
    curves = {curve.title: curve for curve in metric_sections(Run.open(tmp_path)) if isinstance(curve, Curve)}
    assert [round(event.x) for event in curves["Entropy"].events] == [40]
    assert curves["Share of truncated completions"].events == ()


def build(folder: Path, config: dict[str, object], levels: tuple[float, ...] = ()) -> Run:
    """A run that follows R = 0.95 - 0.30 exp(H) with small noise while entropy decays."""
    noise = np.random.default_rng(3).normal(0, 0.004, 120)
    writer = RunWriter(folder, Header(config=config, reward_levels=levels))
    for step in range(120):
        entropy = 0.9 * 0.98**step
        writer.metrics(step, {"entropy": entropy, "reward": 0.95 - 0.30 * float(np.exp(entropy)) + float(noise[step])})
    return Run.open(folder)


def test_the_ceiling_is_found_where_the_law_holds(tmp_path: Path) -> None:
    (facts,) = law_section(build(tmp_path, {}))
    assert isinstance(facts, Facts)
    assert facts.title == "Entropy law"
    ceiling = facts.facts[0].value
    assert isinstance(ceiling, Interval)
    assert ceiling.value == pytest.approx(0.65, abs=0.01)
    assert 0.65 in ceiling


def test_an_intervention_makes_it_invalid_and_is_named(tmp_path: Path) -> None:
    (facts,) = law_section(build(tmp_path, {"args": {"entropy_coef": 0.01}}))
    assert isinstance(facts, Facts)
    assert facts.title == "Entropy law: not valid here"
    assert any("entropy_coef = 0.01" in str(fact.value) for fact in facts.facts)


def test_settings_that_are_off_are_no_intervention() -> None:
    config = {"beta": 0.0, "use_kl_loss": False, "entropy_coef": None, "actor": {"kl_loss_coef": 0.001}}
    assert list(entropy_interventions(config)) == ["a KL penalty (kl_loss_coef = 0.001)"]


def test_without_both_series_there_is_no_law(tmp_path: Path) -> None:
    RunWriter(tmp_path).metrics(1, {"entropy": 1.0})
    assert law_section(Run.open(tmp_path)) == []


def test_a_ceiling_above_the_largest_reward_is_not_believed(tmp_path: Path) -> None:
    (facts,) = law_section(build(tmp_path, {}, (0.0, 0.5)))
    assert isinstance(facts, Facts)
    assert facts.title == "Entropy law: not valid here"
    assert "above the largest possible reward, 0.5" in str(facts.facts[0].value)
