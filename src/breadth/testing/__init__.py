"""Contracts and fakes for plug-in authors: ``check_mechanism``, ``check_strategy``, a fault-injecting server, ..."""


def expect(condition: object, problem: str) -> None:
    """Raise an AssertionError with the problem unless the condition holds, even under ``python -O``."""
    if not condition:
        raise AssertionError(problem)
