"""The terminal report: text, tables and figures at every width, in colour and in ASCII."""

from __future__ import annotations

import io
import re
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.console import Group as Stack

from breadth.measure.intervals import Interval
from breadth.report.cells import Missing
from breadth.report.sections import (
    Axis,
    Column,
    Curve,
    Event,
    Fact,
    Facts,
    Group,
    Groups,
    Listing,
    Outcome,
    Page,
    Series,
    Severity,
    Table,
    Text,
    Token,
    Trace,
    Verdict,
)
from breadth.report.style import OUTCOMES, SHOWN_EVENTS, SHOWN_GROUPS, SHOWN_TOKENS, TERMINAL_COLORS
from breadth.report.terminal import MAX_WIDTH, Pen, describe_hidden, indent, render_terminal, two_columns


def console(width: int, encoding: str = "utf-8") -> Console:
    return Console(file=io.TextIOWrapper(io.BytesIO(), encoding=encoding), width=width)


def shown(*parts: RenderableType, width: int = 40) -> str:
    out = Console(file=io.StringIO(), width=width)
    for part in parts:
        out.print(Stack(part), crop=False)
    file = out.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def test_a_pen_knows_its_console() -> None:
    assert Pen.for_console(console(72)) == Pen(72, ascii_only=False)
    assert Pen.for_console(console(500)).width == MAX_WIDTH
    assert Pen.for_console(console(72, "ascii")).ascii_only
    assert Pen.for_console(console(72, "cp1252")).ascii_only


def test_escapes_go_and_markup_is_text() -> None:
    line = Pen(80).words("\x1b[31m[bold]not bold[/bold]\x1b[0m :smile:\n next")
    assert line.plain == "[bold]not bold[/bold] :smile: next"
    assert line.spans == []
    assert shown(line) == "[bold]not bold[/bold] :smile: next\n"


def test_ascii_spells_what_it_can_and_marks_what_it_cannot() -> None:
    assert Pen(80, ascii_only=True).safe("0.4 – 0.5 → ∞ …, 日本") == "0.4 - 0.5 -> inf ..., ??"
    assert [Pen(80, ascii_only=True).symbol(sign) for sign in OUTCOMES.values()] == ["#", "o", "x", "-"]


def test_roles_have_styles() -> None:
    assert Pen(80).words("x", "critical").style == TERMINAL_COLORS["critical"]
    assert Pen(80).words("x", "bold").style == "bold"


def test_headings_are_underlined_as_far_as_they_reach() -> None:
    assert [line.plain for line in Pen(80).title("Title")] == ["Title", "─────"]
    assert [line.plain for line in Pen(80).title("日本")] == ["日本", "────"]
    assert [line.plain for line in Pen(3, ascii_only=True).title("Title")] == ["Title", "---"]
    assert Pen(80).title(" ") == []


def test_paragraphs_are_set_apart() -> None:
    assert [line.plain for line in Pen(80).prose("a\nb\n\nc")] == ["a b", "", "c"]
    assert Pen(80).prose("") == []


def test_a_block_is_never_broken() -> None:
    line = "key: " + "x" * 90
    assert shown(Pen(40).block(f"a:\n  {line}")) == f"a:\n  {line}\n"


def test_what_was_left_out_is_said() -> None:
    assert describe_hidden(980, "more row") == "… 980 more rows; the JSON and the page have them all"
    assert describe_hidden(0, "more row") == describe_hidden(-3, "more row") == ""
    assert [line.plain for line in Pen(80).notes("", "a", " ")] == ["a"]


def test_names_and_values_stand_side_by_side() -> None:
    pen = Pen(30)
    grid = two_columns(
        [(pen.words("short"), pen.words("1")), (pen.words("a very long name indeed"), pen.words("2"))], 30
    )
    lines = [line.rstrip() for line in shown(grid, width=30).splitlines()]
    assert lines[0] == "short         1"
    assert lines[1] == "a very long   2"
    assert lines[2] == "name indeed"


def test_a_setting_is_broken_where_its_parts_meet(printed: Callable[..., str]) -> None:
    name, note = "actor_rollout_ref.actor.clip_ratio_high=0.28", "by actor_rollout_ref.actor.ppo_mini_batch_size=256"
    found = [line for line in lines(printed(Facts("", [Fact(name, 1, note=note)]), 60)) if line][1:]
    # Two fifths of 60 columns are 24 for the name; 34 are left for the note.
    assert found == [
        "actor_rollout_ref.actor.  1",
        "clip_ratio_high=0.28      by",
        "                          actor_rollout_ref.actor.ppo_mini_",
        "                          batch_size=256",
    ]


def test_indented() -> None:
    assert shown(indent([Pen(80).words("a"), Pen(80).words("b")])) == "  a\n  b\n"


CHECKPOINTS = Table(
    "Checkpoints",
    [Column("checkpoint"), Column("pass@1", "%"), Column("effective answers"), Column("mean length", "tokens")],
    [
        ["base", Interval(0.28, 0.25, 0.312), 4.82, 611],
        ["step 300 of the long run", Missing("not saved"), 1.2, 12720],
    ],
    note="Bootstrap.",
)


def lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines()]


def test_side_by_side(printed: Callable[..., str]) -> None:
    found = lines(printed(CHECKPOINTS, 100))
    assert "checkpoint                         pass@1 (%)  effective answers  mean length (tokens)" in found
    assert "base                      28.0 (25.0 to 31.2)               4.82                   611" in found
    assert "step 300 of the long run              n/a [a]               1.20                12,720" in found
    assert "a not saved" in found
    assert "Bootstrap." in found


def test_words_are_squeezed_before_numbers(printed: Callable[..., str]) -> None:
    found = lines(printed(CHECKPOINTS, 60))
    row = next(line for line in found if line.startswith("base"))
    assert row.split() == ["base", "28.0", "(25.0", "to", "31.2)", "4.82", "611"]
    assert all(len(line) <= 60 for line in found)


def test_what_does_not_fit_is_printed_row_by_row(printed: Callable[..., str]) -> None:
    found = lines(printed(CHECKPOINTS, 45))
    start = found.index("checkpoint: base")
    assert [line.split("  ")[-1].strip() for line in found[start + 1 : start + 4]] == [
        "28.0 (25.0 to 31.2)",
        "4.82",
        "611",
    ]
    assert "checkpoint: step 300 of the long run" in found


@pytest.mark.parametrize("width", [60, 100, 160])
def test_many_columns_keep_all_numbers(width: int, printed: Callable[..., str]) -> None:
    numbers = [float(1000 * place + 7) for place in range(14)]
    text = printed(Table("Wide", [Column(f"column {place}") for place in range(14)], [numbers]), width)
    assert all(f"{number:,.0f}" in text for number in numbers)
    assert all(len(line) <= width for line in lines(text))


def test_a_huge_table_folds_with_a_count(printed: Callable[..., str]) -> None:
    text = printed(Table("Long", [Column("n")], [[10_000 + index] for index in range(1000)]))
    assert "10,019" in text
    assert "10,020" not in text
    assert "… 980 more rows; the JSON and the page have them all" in text


def test_no_rows_and_no_columns(printed: Callable[..., str]) -> None:
    assert "No rows." in printed(Table("T", [Column("a")], []))
    assert "No rows." in printed(Table("T", [], []))


def test_a_curve_says_its_numbers(printed: Callable[..., str]) -> None:
    series = [
        Series("this run", [0, 300], [0.62, 0.41], [0.58, 0.38], [0.66, 0.47]),
        Series("other", [0, 300], [0.5, 0.5]),
    ]
    curve = Curve(
        "C",
        series,
        Axis("step"),
        Axis("entropy", "nats"),
        events=[Event(150, "change point")],
        band="95% band",
        note="Note.",
    )
    found = lines(printed(curve, 100))
    assert "entropy (nats)" in found
    assert "● this run  0.62 nats (0.58 to 0.66) at 0, 0.41 nats (0.38 to 0.47) at 300" in found
    assert "■ other     0.5 nats at 0, 0.5 nats at 300" in found
    assert "░ band      95% band" in found
    assert "a step 150  change point" in found
    assert "Note." in found


def test_many_events_fold(printed: Callable[..., str]) -> None:
    events = [Event(place, f"event {place}") for place in range(SHOWN_EVENTS + 30)]
    text = printed(Curve("C", [Series("s", [0, 60], [0, 1])], Axis("step"), Axis("y"), events=events))
    assert "… 30 more events" in text
    assert all(len(line) <= 100 for line in lines(text))


def test_groups_in_a_row(printed: Callable[..., str]) -> None:
    kinds = [*Outcome, *[Outcome.CORRECT] * 5]
    found = lines(printed(Groups("G", [Group("p1", kinds), Group("problem 2", [Outcome.WRONG])], note="Sorted.")))
    assert "● correct   ○ wrong   × unparsable   – truncated" in found
    assert "p1         ●○×–●●●● ●  6/9" in found
    assert "problem 2  ○  0/1" in found
    assert "Sorted." in found


def test_long_groups_wrap(printed: Callable[..., str]) -> None:
    found = lines(printed(Groups("G", [Group("a very long name of a problem indeed", [Outcome.CORRECT] * 64)]), 60))
    assert all(len(line) <= 60 for line in found)
    assert sum(line.count("●") for line in found) == 64 + 1
    assert [line for line in found if line.endswith("64/64")]


def test_many_groups_fold(printed: Callable[..., str]) -> None:
    text = printed(Groups("G", [Group(f"p{index}", [Outcome.CORRECT]) for index in range(SHOWN_GROUPS + 9)]))
    assert "… 9 more problems" in text
    assert "No samples." in printed(Groups("G", []))


def test_marks_stand_under_their_tokens(printed: Callable[..., str]) -> None:
    trace = Trace("T", [Token("Let ", 0.0), Token("me ", 6.0), Token("check", 3.0), Token(" it", 0.0)], unit="nats")
    found = lines(printed(trace))
    start = found.index("Let me check it")
    assert found[start + 1] == "    ██ ▃▃▃▃▃"
    assert "▁ from 1 nats   ▂ from 2 nats   ▃ from 3 nats   ▅ from 4 nats   █ from 5 nats" in found


def test_marks_of_wide_letters_line_breaks_and_kinds(printed: Callable[..., str]) -> None:
    tokens = [Token("日本", 6.0), Token("\n", 6.0), Token("so "), Token("42", 0.0, "answer"), Token(".")]
    found = lines(printed(Trace("T", tokens)))
    start = found.index("日本↵")
    assert found[start + 1 : start + 3] == ["█████", "so [answer: 42]."]


def test_a_trace_in_ascii_uses_digits(printed: Callable[..., str]) -> None:
    found = lines(printed(Trace("T", [Token("a ", 0.0), Token("b", 6.0)]), encoding="ascii"))
    assert found[found.index("a b") + 1] == "  5"


@pytest.mark.parametrize("width", [20, 60, 160])
def test_a_long_trace_wraps_and_folds(width: int, printed: Callable[..., str]) -> None:
    found = lines(printed(Trace("T", [Token(f"word{index} ", index % 7) for index in range(SHOWN_TOKENS + 7)]), width))
    joined = " ".join(found)
    assert f"word{SHOWN_TOKENS - 1}" in joined
    assert f"word{SHOWN_TOKENS}" not in joined
    assert "7 more tokens" in joined
    assert all(len(line) <= width for line in found)


NUMBERS = [
    *(
        "0.612 nats",
        "(0.584 to 0.641)",
        "0.051 nats",
        "71%",
        "(66% to 76%)",
        "436,224",
        "33.4%",
        "0.08",
        "(0.04 to 0.12)",
    ),
    *("28.0 (25.0 to 31.2)", "69 (65 to 72)", "4.82", "3.90", "1,533", "1,720", "55 (51 to 59)"),
    *("16/16", "614,400", "4,800", "1e-6", "100.00", "clip_ratio_high: 0.28   # was 0.2"),
]


@pytest.mark.parametrize("width", [60, 100, 160])
def test_all_numbers_are_there_at_every_width(full: Page, width: int, printed: Callable[..., str]) -> None:
    text = printed(full, width)
    one_line = " ".join(text.split())
    for number in NUMBERS:
        assert " ".join(number.split()) in one_line
    assert all(cell_len(line.rstrip()) <= width for line in text.splitlines())


def test_never_wider_than_a_line_can_be_read(full: Page, printed: Callable[..., str]) -> None:
    assert max(cell_len(line) for line in printed(full, 400).splitlines()) <= 160


def test_severities_are_words(full: Page, printed: Callable[..., str]) -> None:
    text = printed(full)
    assert [word in text for word in ("✖ CRITICAL", "▲ WARNING", "● NOTE", "✔ GOOD", "? CANNOT TELL")] == [True] * 5


def test_piped_output_is_plain(full: Page, printed: Callable[..., str]) -> None:
    assert "\x1b" not in printed(full)


def test_colour_adds_nothing_but_colour(full: Page, printed: Callable[..., str]) -> None:
    colored = printed(full, force_terminal=True, color_system="truecolor", legacy_windows=False)
    assert "\x1b[" in colored
    assert re.sub(r"\x1b\[[\d;]*m", "", colored) == printed(full)


def test_no_color_is_respected(full: Page, printed: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    text = printed(full, force_terminal=True, color_system="truecolor", legacy_windows=False)
    codes = {code for found in re.findall(r"\x1b\[([\d;]*)m", text) for code in found.split(";")}
    assert codes <= {"0", "1", "2", ""}  # bold and dim at most


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "latin-1"])
def test_old_encodings_get_ascii(full: Page, encoding: str, printed: Callable[..., str]) -> None:
    text = printed(full, encoding=encoding)
    assert text.isascii()
    assert "X CRITICAL" in text
    assert "?" not in text.replace("? CANNOT TELL", "")


def hostile_page(text: str) -> Page:
    fact = Fact(text, text, text, text)
    return Page(
        text,
        [
            Verdict(Severity.CRITICAL, text, text, [fact]),
            Table(text, [Column(text, text), Column(text)], [[text, 0.5], [text, None]], text),
            Curve(
                text,
                [Series(text, [1, 2], [1, 2])],
                Axis(text, text),
                Axis(text, text),
                events=[Event(1, text)],
                note=text,
            ),
            Trace(text, [Token(text, 1.0, text), Token(text, 0.5)], text, text, text),
            Groups(text, [Group(text, list(Outcome))], text),
            Text(text, text),
            Listing(text, text, text),
            Facts(text, [fact]),
        ],
        text,
        [fact],
    )


HOSTILE = [
    "\x1b[2J\x1b[31mred",
    "\x1b]0;title\x07x",
    "\x9b31mred",
    "a\x08\x08b\rc",
    "[bold red]x[/bold red] [/] [link=http://evil]y[/link] :bomb:",
    "\u202eright to left",
    "\ud800",
]


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("width", [30, 100])
def test_a_log_cannot_drive_the_terminal(text: str, width: int, printed: Callable[..., str]) -> None:
    shown = printed(hostile_page(text), width)
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", shown)
    if "[bold" in text:
        assert shown.replace("\n", " ").count("[bold") >= 20


def test_markup_does_not_become_style(printed: Callable[..., str]) -> None:
    shown = printed(
        hostile_page("[red on white]x[/]"), force_terminal=True, color_system="truecolor", legacy_windows=False
    )
    assert "[red on white]x[/]" in re.sub(r"\x1b\[[\d;]*m", "", shown)
    assert "47m" not in shown  # no white ground anywhere


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.text(st.one_of(st.sampled_from("[]/\\\x1b\x9b;mred \n\t"), st.characters()), max_size=30), st.integers(20, 160)
)
def test_any_text_at_any_width(printed: Callable[..., str], text: str, width: int) -> None:
    shown = printed(hostile_page(text), width)
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f]", shown)


def test_a_string_buffer_will_do(small: Page) -> None:
    file = io.StringIO()
    render_terminal(small, Console(file=file, width=80))
    assert "42% (38% to 47%)" in file.getvalue()


def test_a_listing_can_be_copied(printed: Callable[..., str]) -> None:
    long = "key: " + "value " * 30
    assert f"a:\n  {long.rstrip()}" in printed(Listing("L", f"a:\n  {long}\n"), 60)
