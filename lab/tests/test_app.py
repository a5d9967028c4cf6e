"""`clearhead lab` comes from this package by an entry point; without it, one line says what to install."""

import pytest

from clearhead.cli.learn import lab
from clearhead.errors import UserError
from clearhead.extensions import extensions


def test_lab_is_a_command_of_this_package():
    assert extensions("commands")["lab"] == "clearhead_lab.app:app"


def test_without_this_package_one_line_says_what_to_install():
    with pytest.raises(
        UserError, match=r"^lab: expected the package clearhead-lab, got none; pip install \.\./clearhead/lab"
    ):
        lab("run", "--quick")
