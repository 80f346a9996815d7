"""``processed-logprobs``: the server's log-probs include temperature and top-p, so confidences are not the model's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from breadth.doctor.evidence.record import Evidence, is_inference_run
from breadth.doctor.finding import CannotTell, Change, CheckResult, Excluded, Finding, Loop, Prescription
from breadth.report.sections import Fact, Severity

if TYPE_CHECKING:
    from breadth.inference.records import Sampling

_NAME = "processed-logprobs"


@dataclass(frozen=True)
class ProcessedLogprobs:
    """The server returns log-probs after the sampler has changed them.

    By the probe's trial: at a quarter of the temperature processed log-probs lie four times as far apart, raw ones do
    not move. A confidence computed from them moves with temperature, top-p and top-k, and tokens that were cut off
    count as impossible; published thresholds, and gates fitted elsewhere, do not apply to it. At temperature 1 with
    nothing cut off both are the same, and nothing is reported. A warning where the policy in use reads log-probs, else
    a note.
    """

    loop: ClassVar[Loop] = "inference"
    causes: ClassVar[tuple[str, ...]] = ()
    summary: ClassVar[str] = "log-probs come after temperature and top-p"
    first_step: ClassVar[str] = "start the server with raw log-probs"
    reads_server: ClassVar[bool] = True

    def check(self, evidence: Evidence) -> CheckResult:
        """Read the result of probing the server."""
        if evidence.server is None and not is_inference_run(evidence):
            return None
        kind = (evidence.server or {}).get("logprobs", "unknown")
        sampling, looks = sampling_in_use(evidence)
        if kind == "raw":
            return Excluded(_NAME, "the server sends raw log-probs")
        if sampling is not None and is_neutral(sampling):
            return Excluded(_NAME, "at temperature 1 and top-p 1 processed and raw are the same")
        if kind != "processed":
            asked = looks or (sampling is not None and sampling.top_logprobs > 0)
            missing = "whether the server's log-probs are raw is not known"
            return (
                CannotTell(_NAME, missing, "breadth probe URL --save server.toml, named next to this")
                if asked
                else None
            )
        return describe_processing(sampling, looks=looks)


def describe_processing(sampling: Sampling | None, *, looks: bool) -> Finding:
    """Build the finding."""
    settings = "" if sampling is None else f" of temperature {sampling.temperature:g} and top-p {sampling.top_p:g}"
    facts = [Fact("log-probs", "processed", "", "by the probe: they move with the temperature")]
    if sampling is not None:
        facts.append(
            Fact("temperature", sampling.temperature, "", f"top-p {sampling.top_p:g}, top-k {sampling.top_k or 'all'}")
        )
    return Finding(
        _NAME,
        Severity.WARNING if looks else Severity.NOTE,
        "certain",
        "inference",
        f"The server's log-probs are processed{settings or ', not those of temperature 1'}: confidences are of a"
        " different"
        " distribution.",
        tuple(facts),
        "The log-probs of the same token are equal at two temperatures.",
        "The policy in use reads them." if looks else "",
        (
            Prescription(
                "Start the server with raw log-probs, those of the model before temperature, top-p and top-k",
                "Confidence is then the model's own, and comparable with published and fitted values.",
                (Change("logprobs_raw", True),),
                "Gates and thresholds fitted on processed ones must be fitted again.",
                "vLLM --logprobs-mode raw_logprobs; llama.cpp without post_sampling_probs; arXiv 2508.15260",
            ),
            Prescription(
                "Or sample at temperature 1 with top-p 1, where processed and raw are the same",
                "The sampler then changes nothing.",
                (Change("temperature", 1.0), Change("top_p", 1.0)),
                "Samples vary more; a single sample scores less.",
            ),
        ),
    )


def sampling_in_use(evidence: Evidence) -> tuple[Sampling | None, bool]:
    """Return the sampling settings of the policy in use, or of the sweep, and whether the policy reads log-probs."""
    from breadth.doctor.evidence.sweeps import policy_in_use, sweep

    policy, result = policy_in_use(evidence), sweep(evidence)
    looks = policy is not None and bool(policy.strategy.needs & {"confidences", "logprobs"})
    if policy is not None and (looks or result is None):
        return policy.sampling, looks
    return (None if result is None else result.evidence.plan.policy.sampling), looks


def is_neutral(sampling: Sampling) -> bool:
    """Say whether the sampler leaves the distribution unchanged."""
    kept = sampling.temperature == 1 and sampling.top_p == 1 and sampling.top_k == 0 and sampling.min_p == 0
    return (
        kept and sampling.repetition_penalty == 1 and sampling.presence_penalty == 0 and sampling.frequency_penalty == 0
    )


FINDING = ProcessedLogprobs()
"""The check with its default thresholds."""
