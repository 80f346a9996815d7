"""The defaults of a sample request: no prefix, no halt rule, no deadline, vetted sampling fields."""

from __future__ import annotations

from breadth.inference.records import Sampling
from breadth.runtime.sampler import Meter, Sampler, SampleRequest
from breadth.runtime.samplers.scripted import ScriptedSampler


def test_a_draw_and_its_meter_start_empty() -> None:
    draw = SampleRequest("6 x 7 =")
    assert (draw.sampling, draw.prefix, draw.halt, draw.seconds) == (Sampling(), "", None, None)
    assert Meter() == Meter(calls=0, prompt_tokens=0, cached_tokens=0, tokens=0)


def test_a_scripted_source_is_a_sampler() -> None:
    sampler: Sampler = ScriptedSampler([])
    assert "prefix" in sampler.offers
