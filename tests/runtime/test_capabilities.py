"""The record of what a server was found to do: what it offers a sampler, how it is saved and shown."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from breadth.adapters.llama_cpp.dialect import LlamaCppDialect
from breadth.adapters.vllm.dialect import VllmDialect
from breadth.base.errors import BrokenFileError
from breadth.runtime.capabilities import Capabilities
from breadth.runtime.dialect import Dialect

FOUND = Capabilities(
    "http://x", "m", LlamaCppDialect(thinks=True), 20, "raw", "yes", "yes", "yes", "yes", "yes", "yes", "no", 1024, 8, ("a: b",)
)


def test_it_round_trips_through_toml(tmp_path: Path) -> None:
    for one in (FOUND, Capabilities("http://x", "", Dialect())):
        one.save(tmp_path / "server.toml")
        assert Capabilities.load(tmp_path / "server.toml") == one


def test_a_damaged_file_is_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    FOUND.save(file)
    file.write_text(file.read_text().replace("prefix =", "prefx ="))
    with pytest.raises(BrokenFileError, match=r"server.toml: there is no setting 'prefx'"):
        Capabilities.load(file)


def test_what_was_not_found_is_not_offered() -> None:
    assert FOUND.offers == {"logprobs", "confidences", "prefix", "seed", "thinking", "halt"}
    poor = replace(FOUND, top_logprobs=0, prefix="no", seed="no", thinking_cap="no")
    assert poor.offers == {"halt"}
    assert replace(FOUND, top_logprobs=1).offers == FOUND.offers - {"confidences"}


def test_what_could_not_be_told_is_believed_of_the_dialect() -> None:
    plain = Capabilities("http://x", "m", Dialect(), top_logprobs=5)
    assert plain.offers == {"logprobs", "confidences", "seed", "halt"}
    assert replace(plain, dialect=VllmDialect()).offers == plain.offers | {"prefix", "thinking"}


def test_it_is_shown_in_words() -> None:
    rows = dict(FOUND.rows())
    assert rows["log-probs"] == "raw, 20 alternatives"
    assert rows["dialect"] == "llama-cpp"
    assert rows["context"] == "1024 tokens"
    assert rows["remark"] == "a: b"
    strange = dict(Capabilities("http://x", "m", VllmDialect()).rows())
    assert strange["dialect"] == "vllm (no real server has answered it in our tests)"
    assert (strange["log-probs"], strange["context"]) == ("none", "unknown")
