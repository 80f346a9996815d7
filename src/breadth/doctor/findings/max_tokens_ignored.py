"""``max-tokens-ignored``: the server was asked to stop at a number of tokens, and kept writing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from breadth.doctor.evidence.record import Evidence, is_inference_run
from breadth.doctor.finding import Change, CheckResult, Excluded, Finding, Loop, Prescription
from breadth.report.sections import Fact, Severity

_NAME = "max-tokens-ignored"


@dataclass(frozen=True)
class MaxTokensIgnored:
    """Completions, or the thinking in them, are longer than the request allows.

    Counted on the samples: for a sweep against the length cap and each arm's thinking budget, for a recorded run
    against its policy's settings. The probe caps thinking too and checks whether it got shorter. A cap that was refused
    with an error is not ignored, and not reported here. A single sample is a note, since it may be miscounted: if a
    server does not count tokens in its streams, we count stream chunks.
    """

    loop: ClassVar[Loop] = "inference"
    causes: ClassVar[tuple[str, ...]] = ()
    summary: ClassVar[str] = "completions are longer than the limit"
    first_step: ClassVar[str] = "send the limit where the server reads it"
    reads_server: ClassVar[bool] = True

    slack: int = 16
    """Tokens allowed on top: a server that reaches a thinking cap writes a closing text, and the probe allows as many.
    """
    several: int = 2
    """Questions on which it must happen for a warning: one miscounted sample affects only one."""
    most: int = 20_000
    """Samples that are read: one in a thousand that breaks its cap is then seen twenty times."""

    def check(self, evidence: Evidence) -> CheckResult:
        """Count samples that are too long; else use the probe."""
        counted = self.count_long_samples(evidence) if is_inference_run(evidence) else None
        return counted if isinstance(counted, Finding) else check_probe(evidence) or counted

    def count_long_samples(self, evidence: Evidence) -> Finding | Excluded | None:
        """Return what the samples give: too long, or all within their caps; None where no cap was asked for."""
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
            completion_cap, thinking = caps.get(row["step"], (None, None))
            thought = parse_extra(row["extra"]).get("thinking_tokens")
            for what, cap, wrote in (
                ("thinking", thinking, thought),
                ("the completion", completion_cap, row["tokens"]),
            ):
                if cap is not None and isinstance(wrote, int | float) and wrote > cap + self.slack:
                    over.append((row["problem"], what, cap, int(wrote)))
                    break
        if over:
            return self.report(evidence, over, table.num_rows)
        capped = any(cap is not None for allowed in caps.values() for cap in allowed)
        return Excluded(_NAME, f"none of {table.num_rows:,} samples is over its cap") if capped and len(table) else None

    def report(self, evidence: Evidence, over: list[tuple[str, str, int, int]], samples: int) -> Finding:
        """Build the finding."""
        from breadth.measure.intervals import wilson

        questions = len({problem for problem, *_ in over})
        what, cap, wrote = max((sample[1:] for sample in over), key=lambda sample: sample[2] - sample[1])
        excess = sum(longer - allowed for _, _, allowed, longer in over)
        return Finding(
            _NAME,
            Severity.WARNING if questions >= self.several else Severity.NOTE,
            "certain",
            "inference",
            f"{len(over)} of {samples:,} samples are longer than the request allowed: {what} {wrote:,}"
            f" tokens, {cap:,} allowed.",
            (
                Fact(
                    "samples over their cap",
                    wilson(len(over), samples),
                    "%",
                    f"on {questions} questions, by more than {self.slack} tokens",
                ),
                Fact("tokens over it on average", excess / len(over)),
                *_server_facts(evidence.server or {}),
            ),
            "The server's own token count of the same completions is within the cap.",
            f"{excess:,} tokens were written over the caps; no per-question budget holds on this server.",
            _prescriptions(evidence.server or {}, cap if what == "thinking" else None),
        )


def caps_by_step(evidence: Evidence) -> dict[int, tuple[int | None, int | None]]:
    """Return the caps on completion and thinking for each step of the rollouts."""
    from breadth.doctor.evidence.sweeps import recorded_policy, sweep

    result = sweep(evidence)
    if evidence.is_evaluation:
        return {}  # a file from elsewhere does not say what was asked for
    if result is not None:
        plan = result.evidence.plan
        sampling = plan.policy.sampling
        return {
            step: (sampling.max_tokens, sampling.thinking_tokens if arm.budget is None else arm.budget)
            for step, arm in enumerate(plan.arms)
        }
    policy = None if evidence.run is None else recorded_policy(evidence.run)
    return {} if policy is None else {0: (policy.sampling.max_tokens, policy.sampling.thinking_tokens)}


def check_probe(evidence: Evidence) -> Finding | Excluded | None:
    """Return what the probe of the server gives; None where it did not measure it."""
    server = evidence.server or {}
    refused = any(str(remark).startswith("a cap on thinking:") for remark in server.get("remarks", ()))
    if server.get("thinking_cap") == "yes":
        return Excluded(_NAME, "the server kept to a cap on thinking, in 1 of 1 trials")
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
        "Asked to cap its thinking, the server kept thinking, in 1 of 1"
        f" trials{'' if asked is None else f'; the policy allows {asked:,}'}.",
        tuple(_server_facts(server)),
        "The same question with a cap on thinking uses fewer thinking tokens.",
        "" if asked is None else "Thinking is as long as without a cap, and costs as much.",
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
        "Turn off speculative decoding where caps matter",
        "Servers skip thinking caps and logits processors during speculative decoding.",
        side_effect="Slower.",
        source="vllm#39573, sglang#26330",
    )
    named = Prescription(
        "Send the cap where the server reads it, and start the server with a reasoning parser",
        "vLLM: thinking_token_budget at the top level of the request (in chat_template_kwargs it is ignored) and"
        " --reasoning-parser; SGLang: --enable-strict-thinking; llama.cpp: reasoning_budget_tokens.",
        () if thinking is None else (Change("thinking_budget", thinking),),
        source="vLLM PR 20859, sglang#25536",
    )
    from breadth.inference.strategies.budget_forcing import ANSWER_TOKENS

    bounded = Prescription(
        "Also cap the whole completion, and close the stream there",
        "Completions over budget then end, whatever the server does with its caps.",
        () if thinking is None else (Change("max_tokens", thinking + ANSWER_TOKENS),),
        "A completion that is cut while thinking has no answer.",
    )
    return ((speculative,) if server.get("speculative") == "yes" else ()) + (named, bounded)


FINDING = MaxTokensIgnored()
"""The check with its default thresholds."""
