"""Every error says what is wrong, where, and what to do."""

from __future__ import annotations

import inspect
import pickle
from dataclasses import dataclass

import pytest

from breadth.base import errors
from breadth.base.errors import (
    BreadthError,
    BrokenFileError,
    MeasureError,
    MissingExtraError,
    SettingsError,
    has_credentials,
    nearest_name,
    redact_address,
    redact_settings,
    redact_text,
    require,
    suggestion,
)

CLASSES = [thing for _, thing in inspect.getmembers(errors, inspect.isclass) if thing.__module__ == errors.__name__]


@pytest.mark.parametrize("cls", CLASSES)
def test_the_tree_drawn_at_the_top_is_the_tree(cls: type) -> None:
    assert issubclass(cls, BreadthError)
    assert f"{cls.__name__} " in str(errors.__doc__)


def test_a_file_error_names_file_row_and_remedy() -> None:
    error = BrokenFileError("a/b.jsonl", "is not JSON.", "Delete the line.", row=7)
    assert str(error) == "a/b.jsonl, row 7: is not JSON.\n  -> Delete the line."
    assert (error.row, error.path.name) == (7, "b.jsonl")


def test_no_error_prints_the_password_of_an_address() -> None:
    for error in (
        BrokenFileError(
            "ftp://user:sec ret@host/x?key=secret", "https://user:secret@host: no.", "See s3://a:secret@b."
        ),
        SettingsError("No run at https://host/x?key=secret.", "Name ftp://user:secret@host/x"),
    ):
        shown = f"{error} {error!r} {error.args}"
        assert "***" in shown
        assert "secret" not in shown
        assert "sec ret" not in shown


def test_ours_are_also_what_python_programmers_catch() -> None:
    assert issubclass(MeasureError, ValueError)
    assert issubclass(MissingExtraError, ImportError)
    assert 'pip install "breadth[math]"' in str(MissingExtraError("Symbolic equivalence", "math"))


@pytest.mark.parametrize(
    "error", [BrokenFileError("x", "p", "r", row=3), MissingExtraError("Job", "math"), MeasureError("p", "r")]
)
def test_errors_cross_process_boundaries(error: BreadthError) -> None:
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


@dataclass(frozen=True)
class Cup:
    size: float = 0.2


def test_what_holds_passes() -> None:
    require(Cup(), "size", True, "a number above 0")


def test_what_does_not_is_named() -> None:
    with pytest.raises(SettingsError) as caught:
        require(Cup(-1.5), "size", False, "a number above 0")
    assert caught.value.problem == "Cup got size = -1.5; it needs a number above 0."
    assert caught.value.remedy == "Set size to a number above 0."


def test_nearest_ignores_case_and_small_slips() -> None:
    assert nearest_name("Entropi", ["entropy", "reward"]) == "entropy"
    assert nearest_name("zzz", ["entropy", "reward"]) is None


def test_suggestion_always_lists_what_there_is() -> None:
    assert (
        suggestion("rewrd", ["entropy", "reward"], "metrics")
        == "Did you mean 'reward'? The metrics are: entropy, reward."
    )
    assert suggestion("zzz", ["b", "a"], "metrics") == "Use one of the metrics: a, b."
    assert "none are registered" in suggestion("x", [], "metrics")


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("ftp://user:secret@host/x", "ftp://***@host/x"),
        ("ftp:/user:secret@host/x", "ftp:/***@host/x"),
        ("https://secret@host", "https://***@host"),
        ("s3://key:sec/ret@bucket/run", "s3://***@bucket/run"),
        ("s3://key:sec?r@t@bucket/run", "s3://***@bucket/run"),
        ("http://user:s3 cret@host:80/x", "http://***@host:80/x"),
        ("https://host/x?key=secret&y=1", "https://host/x?***"),
        ("https://user:secret@host/x?secret#secret", "https://***@host/x?***"),
        ("https://host/x#access_token=secret", "https://host/x#***"),
        ("host:80?api_key=secret&n=1", "host:80?api_key=***&n=1"),
        ("http://localhost:8000/v1/models/a@b", "http://localhost:8000/v1/models/a@b"),
        ("runs/a@300", "runs/a@300"),
        ("C:/runs/a@300", "C:/runs/a@300"),
    ],
)
def test_an_address_is_shown_without_what_opens_it(address: str, shown: str) -> None:
    assert redact_address(address) == shown
    if " " not in address:
        assert redact_text(f"No run at '{address}', {address}: it is empty.") == (
            f"No run at '{shown}', {shown}: it is empty."
        )


@pytest.mark.parametrize(
    ("address", "has"),
    [
        ("user:secret@host", True),
        ("//user:secret@host", True),
        ("http://a@host", True),
        ("http://host:80/a@b", False),
        ("http://host", False),
    ],
)
def test_a_user_name_is_found_with_and_without_a_scheme(address: str, has: bool) -> None:
    assert has_credentials(address) is has


def test_an_address_with_a_blank_in_its_password_is_known_in_a_text() -> None:
    text = "There is no 'http://user:p w/secret@h', no 'http:/user:p w@secret@h', no (//user:secret@h)."
    assert redact_text(text) == "There is no 'http://***@h', no 'http:/***@h', no (//***@h)."
    plain = "Ask http://localhost:8000 for RUN@STEP, https://host: see a@b, [http://[::1]:80] c@d."
    assert redact_text(plain) == plain


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("HF_TOKEN: hf_abc", "HF_TOKEN: ***"),
        ('{"hub_token": "hf_abc", "n": 1}', '{"hub_token": "***", "n": 1}'),
        ("OPENAI_API_KEY=sk-1 python train.py", "OPENAI_API_KEY=*** python train.py"),
        ("Authorization: Bearer abc", "Authorization: Bearer ***"),
        ("password = 'x y'", "password = '*** y'"),
        ("token: hf_0123456789abcdefghi", "token: ***"),
        ("aws_secret_access_key=abc", "aws_secret_access_key=***"),
        ("loss per token: 0.25, max_tokens=4096", "loss per token: 0.25, max_tokens=4096"),
        ("pad_token: <pad>, prompt_key=question", "pad_token: <pad>, prompt_key=question"),
    ],
)
def test_a_secret_setting_in_a_text_has_no_value(text: str, shown: str) -> None:
    assert redact_text(text) == shown


def test_settings_lose_what_is_secret_by_name_and_in_names() -> None:
    settings = {
        "hub_token": "x",
        "env": {"HF_TOKEN": "x", "WANDB_API_KEY": "x", "token": "x", "A": "token"},
        "https://user:secret@host/m": [{"password": 5, "max_tokens": 4096, "use_auth_token": True}],
        "eos_token": "<eos>",
        "reward_fn_key": "data_source",
        "secrets": {"a": "x"},
    }
    assert redact_settings(settings) == {
        "hub_token": "***",
        "env": {"HF_TOKEN": "***", "WANDB_API_KEY": "***", "token": "***", "A": "token"},
        "https://***@host/m": [{"password": "***", "max_tokens": 4096, "use_auth_token": True}],
        "eos_token": "<eos>",
        "reward_fn_key": "data_source",
        "secrets": "***",
    }


def test_a_long_text_is_read_in_no_time() -> None:
    text = "?" + "key" * 100_000 + ":/" * 100_000 + "&auth" * 100_000
    assert len(redact_text(text)) > 0
