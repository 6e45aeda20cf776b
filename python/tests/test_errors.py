"""What errors say."""
import pytest

import hpvm


@pytest.mark.parametrize("names", [("nohost9.invalid",), (["nohost9.invalid"],)])
def test_a_host_without_an_address_is_named_with_a_cure(names):
    with pytest.raises(hpvm.HostError, match=r"nohost9\.invalid.*is it spelled right"):
        hpvm.add_hosts(*names)


def test_an_operation_that_is_none_is_refused_before_others_wait():
    group = hpvm.Group("words")
    try:
        with pytest.raises(TypeError, match="numpy.add.*not 'sum'"):
            group.reduce([1.0], "sum")
    finally:
        group.leave()
