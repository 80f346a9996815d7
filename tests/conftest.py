"""Fixtures every test may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def fixtures() -> Path:
    """Folder of real logs, votes and curves that the project does not carry."""
    folder = os.environ.get("BREADTH_FIXTURES")
    if not folder:
        pytest.skip("BREADTH_FIXTURES is not set: the real files are not here")
    return Path(folder)
