"""YAML as plain values: both readings of an exponent, and a bound on what a text may unfold to."""

from __future__ import annotations

from typing import Any

import pytest

from breadth.adapters.yaml_values import MOST_NODES, loaded


@pytest.mark.parametrize(
    ("text", "plain", "hydra"),
    [
        ("1e-6", "1e-6", 1e-6),
        ("5e-06", "5e-06", 5e-6),
        ("1E3", "1E3", 1000.0),
        ("1.0e6", "1.0e6", 1e6),  # PyYAML wants a sign in the exponent too
        ("1.0e-6", 1e-6, 1e-6),
        (".5e-1", 0.05, 0.05),
        ("8", 8, 8),
        ("0.2", 0.2, 0.2),
        ("1e", "1e", "1e"),
        ("e5", "e5", "e5"),
    ],
)
def test_yaml_1_1_reads_an_exponent_without_dot_and_sign_as_text_and_hydra_does_not(
    text: str, plain: Any, hydra: Any
) -> None:
    assert loaded(text) == plain
    assert type(loaded(text)) is type(plain)
    assert loaded(text, exponents=True) == hydra


def test_a_long_table_without_anchors_has_a_bound_too() -> None:
    with pytest.raises(ValueError, match="50,000 values"):
        loaded("[" + "1," * MOST_NODES + "1]")


@pytest.mark.parametrize("text", ["a: [", "a: \x01", "a: 1\n---\nb: 2\n", "a: !!python/object:object {}"])
def test_what_is_no_plain_yaml_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"line|special"):
        loaded(text)
