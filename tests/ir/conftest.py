"""`pytest tests/ir --update-golden` writes the golden files anew; look at the difference before committing it."""

from __future__ import annotations

import pytest

FLAG = "--update-golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(FLAG, action="store_true", help="write the golden files anew")


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    # This file is found too late for its flag when all of tests/ is collected.
    return bool(request.config.getoption(FLAG, default=False))
