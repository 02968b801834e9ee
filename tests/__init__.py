"""The tests, in rooms that mirror the packages."""

import pytest

pytest.register_assert_rewrite("tests.helpers")
