"""``max-tokens-ignored``: the server was asked to stop at a number of tokens, and wrote on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from breadth.doctor.evidence.record import Evidence, is_inference_run
from breadth.doctor.finding import Change, CheckResult, Finding, Loop, Prescription
from breadth.report.sections import Fact, Severity

if TYPE_CHECKING:
    from breadth.inference.records import Sampling

_NAME = "max-tokens-ignored"


@dataclass(frozen=True)
class MaxTokensIgnored:
    """Completions, or the thinking in them, are longer than they were allowed to be.

    Counted on the samples: of a sweep against the length cap and against each arm's thinking budget, of a recorded run
    against what its policy asks for; and by the probe, which caps thinking and looks whether it got shorter. A cap that
    was refused with an error is not ignored, and not found here. One sample alone is a note, for it may be miscounted:
    a server that does not count tokens in its streams is counted by its pieces.
    """

    loop: ClassVar[Loop] = "inference"
    causes: ClassVar[tuple[str, ...]] = ()
    of_server: ClassVar[bool] = True

    slack: int = 16
    """Tokens that may come on top: a server that reaches a thinking cap writes a closing text, and the probe allows as
    many.
    """
    several: int = 2
    """Questions on which it must happen for a warning: one sample that was miscounted is on one."""
    most: int = 20_000
    """Samples looked at: one in a thousand that breaks its cap is then seen twenty times."""

    def check(self, evidence: Evidence) -> CheckResult:
        """Count samples that are too long; else believe the probe."""
        counted = self.count_long_samples(evidence) if is_inference_run(evidence) else None
        return counted or check_probe(evidence)

    def count_long_samples(self, evidence: Evidence) -> Finding | None:
        """Return the finding that the samples give; None where all keep to their caps."""
        from breadth.doctor.evidence.sweeps import parse_extra

        caps, run = caps_by_step(evidence), evidence.run
        if not caps or run is None or not run.rollout_files:
            return None
        table = run.query(
            """SELECT step, problem, tokens, extra FROM rollouts WHERE split = 'eval' AND tokens IS NOT NULL
               ORDER BY hash(problem, step, sample) LIMIT ?""",
            self.most,
        )
        over: list[tuple[str, str, int, int]] = []
        for row in table.to_pylist():
            whole, thinking = caps.get(row["step"], (None, None))
            thought = parse_extra(row["extra"]).get("thinking_tokens")
            for what, cap, wrote in (("thinking", thinking, thought), ("the completion", whole, row["tokens"])):
                if cap is not None and isinstance(wrote, int | float) and wrote > cap + self.slack:
                    over.append((row["problem"], what, cap, int(wrote)))
                    break
        return self.report(evidence, over, table.num_rows) if over else None

    def report(self, evidence: Evidence, over: list[tuple[str, str, int, int]], samples: int) -> Finding:
        """Build the finding."""
        from breadth.measure.intervals import wilson

        questions = len({problem for problem, *_ in over})
        what, cap, wrote = max((one[1:] for one in over), key=lambda one: one[2] - one[1])
        excess = sum(longer - allowed for _, _, allowed, longer in over)
        return Finding(
            _NAME,
            Severity.WARNING if questions >= self.several else Severity.NOTE,
            "certain",
            "inference",
            f"{len(over)} of {samples:,} samples are longer than the server was asked to write: {what} {wrote:,}"
            f" tokens, {cap:,} allowed.",
            (
                Fact(
                    "samples past their cap",
                    wilson(len(over), samples),
                    "%",
                    f"on {questions} questions, by more than {self.slack} tokens",
                ),
                Fact("tokens past it on average", excess / len(over)),
                *_server_facts(evidence.server or {}),
            ),
            "The server's own count of the same completions is within the cap.",
            f"{excess:,} tokens were written that nobody asked for; no budget for a question holds here.",
            _prescriptions(evidence.server or {}, cap if what == "thinking" else None),
        )


def caps_by_step(evidence: Evidence) -> dict[int, tuple[int | None, int | None]]:
    """Return for each step of the rollouts how long a completion and its thinking may be."""
    from breadth.doctor.evidence.sweeps import recorded_policy, sweep

    judged = sweep(evidence)
    if judged is not None:
        plan = judged.evidence.plan
        drawn = plan.policy.sampling
        return {step: (drawn.max_tokens, _thinking(drawn, arm.budget)) for step, arm in enumerate(plan.arms)}
    policy = None if evidence.run is None else recorded_policy(evidence.run)
    return {} if policy is None else {0: (policy.sampling.max_tokens, policy.sampling.thinking_tokens)}


def _thinking(drawn: Sampling, budget: int | None) -> int | None:
    return drawn.thinking_tokens if budget is None else budget


def check_probe(evidence: Evidence) -> Finding | None:
    """Return the finding that the probe of the server gives; None where it gives none."""
    server = evidence.server or {}
    refused = any(str(remark).startswith("a cap on thinking:") for remark in server.get("remarks", ()))
    if server.get("thinking_cap") != "no" or refused:
        return None
    from breadth.doctor.evidence.sweeps import policy_in_use

    policy = policy_in_use(evidence)
    asked = None if policy is None else policy.sampling.thinking_tokens
    return Finding(
        _NAME,
        Severity.NOTE if asked is None else Severity.WARNING,
        "certain",
        "inference",
        "Asked to cap its thinking, the server thought on, in 1 of 1"
        f" trials{'' if asked is None else f'; the policy allows {asked:,}'}.",
        tuple(_server_facts(server)),
        "The same question with a cap on thinking is thought about in fewer tokens.",
        "" if asked is None else "Thinking is as long as without a cap, and is paid for.",
        _prescriptions(server, asked),
    )


def _server_facts(server: Mapping[str, Any]) -> list[Fact]:
    known = {
        "caps thinking": "thinking_cap",
        "speculative decoding": "speculative",
        "counts tokens in streams": "usage",
    }
    return [Fact(name, str(server[key]), "", "by the probe") for name, key in known.items() if key in server]


def _prescriptions(server: Mapping[str, Any], thinking: int | None) -> tuple[Prescription, ...]:
    speculative = Prescription(
        "Switch speculative decoding off where caps matter",
        "Servers pass over thinking caps and logits processors while they decode speculatively.",
        side_effect="Slower.",
        source="vllm#39573, sglang#26330",
    )
    named = Prescription(
        "Send the cap where the server reads it, and start it with a parser for its thinking",
        "vLLM: thinking_token_budget at the top level of the request (in chat_template_kwargs it is ignored) and"
        " --reasoning-parser; SGLang: --enable-strict-thinking; llama.cpp: reasoning_budget_tokens.",
        () if thinking is None else (Change("thinking_budget", thinking),),
        source="vLLM PR 20859, sglang#25536",
    )
    from breadth.inference.strategies.budget_forcing import ANSWER_TOKENS

    bounded = Prescription(
        "Bound the whole completion as a backstop, and close the stream there",
        "What is over budget then ends, whatever the server makes of its caps.",
        () if thinking is None else (Change("max_tokens", thinking + ANSWER_TOKENS),),
        "What is cut while it thinks has no answer.",
    )
    return ((speculative,) if server.get("speculative") == "yes" else ()) + (named, bounded)


FINDING = MaxTokensIgnored()
"""As the doctor asks it."""
