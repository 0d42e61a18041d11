"""The libraries refuse a TensorFlow they were not built for."""

import pytest
import tensorflow as tf

from mx_rec._native import library


def test_the_version_built_for_is_accepted():
    library.check_version(tf.__version__)


@pytest.mark.parametrize("other", ["1.15.0", "2.16.2", tf.__version__ + ".dev0"])
def test_another_version_is_refused_naming_both_and_the_remedy(other):
    with pytest.raises(ImportError) as error:
        library.check_version(other)
    for part in (other, tf.__version__, "pip install --no-build-isolation"):
        assert part in str(error.value)


def test_a_missing_library_says_how_to_build_it():
    with pytest.raises(ImportError, match=r"no_such\.so.*make setup"):
        library.path("no_such.so")
