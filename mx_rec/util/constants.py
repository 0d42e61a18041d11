"""Old place of the constants."""

from mx_rec.constants.constants import *  # noqa: F403
