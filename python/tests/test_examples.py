import doctest
import importlib

import pytest

NAMES = ["hpvm"] + [f"hpvm.{n}" for n in "aio errors groups machine mailboxes messages pool watches".split()]


@pytest.mark.parametrize("name", NAMES)
def test_the_examples_of_docstrings_are_true(name):
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0 and result.failed == 0
