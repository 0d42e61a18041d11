"""Switches of the vendor's device."""

from mx_rec import _check

__all__ = ["set_device_sat_mode"]


def set_device_sat_mode(mode: int) -> None:
    """Accepts how the vendor's device treats overflow, 0 (saturate) or 1 (infinity), without effect: floats of a CPU
    follow IEEE 754. What happens to gradients that are not finite, `init(nonfinite_gradients=...)` decides."""
    _check.integer("mode", mode, 0, 1)
