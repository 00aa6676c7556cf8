"""What tests of the core may ask for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.core.backends import by_reference


@pytest.fixture
def checked_by_reference() -> Iterator[None]:
    """Whatever is compiled is run by the reference target too, and must agree."""
    with by_reference.checked():
        yield
