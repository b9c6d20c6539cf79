"""All of Microsoft's live tests of its Python client that can run here."""

import pytest

from tests.soak.microsoft_live import main


@pytest.mark.soak
def test_microsofts_live_tests_pass() -> None:
    assert main([]) == 0
