"""The list of columns is that of the core."""

import pathlib
import re

from mx_rec.checkpoint import _columns

LAYOUT = pathlib.Path(__file__).resolve().parents[2] / "native/checkpoint/layout.h"


def test_the_columns_are_those_of_the_core():
    named = re.findall(r'constexpr char k\w+Column\[\] = "(\w+)";', LAYOUT.read_text())
    assert sorted(_columns.ALL) == sorted(named)
