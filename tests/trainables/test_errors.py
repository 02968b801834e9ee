"""What an error says."""

from __future__ import annotations

from trainables.errors import nearest


def test_a_name_that_is_valid_twice_stands_once():
    assert nearest("dem", ["other", "demo", "demo"]) == "did you mean 'demo'? Valid: demo, other"
    assert nearest("zebra", []) == "Valid: none"
