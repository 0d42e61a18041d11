"""Saving and restoring take little memory beside the table, however large it is."""

import numpy as np
import pytest

from mx_rec._native import table as native_table
from tests.shared.saver_model import Model, native

pytestmark = pytest.mark.usefixtures("installed")
ROWS, DIM = 400_000, 32  # 154 MB with two slots
LIMIT = 64 << 20


def resident(name):
    """Bytes: VmRSS now, or VmHWM, the most since `forget_peak`."""
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


def forget_peak():
    try:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
    except OSError as error:
        pytest.skip(f"the system does not forget a process's peak: {error}")


@pytest.mark.parametrize("restores_over_rows", [False, True])
def test_no_second_copy_of_a_table(tmp_path, restores_over_rows):
    model = Model(["user"], dim=DIM)
    table = native(model.anchors["user"])
    keys = np.arange(ROWS) * 7919
    values = np.random.RandomState(0).uniform(size=(ROWS, 3, DIM)).astype(np.float32)
    table.write(keys, values)
    saver = model.saver()
    forget_peak()
    before = resident("VmRSS")
    path = saver.save(model.session, str(tmp_path / "model"), global_step=1)
    assert resident("VmHWM") - before < LIMIT

    if not restores_over_rows:
        native_table.clear_all()
        model = Model(["user"], dim=DIM)
        table, saver = native(model.anchors["user"]), model.saver()
        assert table.facts().is_untouched
    forget_peak()
    before = resident("VmRSS")
    saver.restore(model.session, path)
    assert resident("VmHWM") - max(before, resident("VmRSS")) < LIMIT
    np.testing.assert_array_equal(table.read(keys)[0], values)
