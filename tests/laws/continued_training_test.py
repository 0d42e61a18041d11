"""Training that is saved, restored and continued has the bits of training that nobody interrupted: whatever the
optimizer, the tier, admission and eviction, for checkpoints of all rows and of what changed, written between two steps
or while training goes on."""

import numpy as np
import pytest
import tensorflow as tf

from mx_rec.saver import wait
from tests.shared import model
from tests.shared.optimizers import every_optimizer
from tests.shared.tracked import Tracked
from tests.shared.training import Run

v1 = tf.compat.v1

KEYS = 1500
STEPS = 30
SAVES = {10: False, 16: True, 23: True}  # after which step, and whether only what changed
TIERS = {
    "memory": lambda path: {"rows": 2 * KEYS},
    "disk": lambda path: {
        "rows": 1,
        "host_vocabulary_size": 159,
        "ssd_vocabulary_size": 2 * KEYS,
        "ssd_data_path": [str(path)],
    },
}

every_tier = pytest.mark.parametrize("tier", TIERS)
both_ways = pytest.mark.parametrize("is_async", [False, True], ids=["between_steps", "while_training"])


def kind_of(directory, step):
    names = [f"{kind}model-{step}" for kind in ("sparse-", "delta-sparse-")]
    return [name for name in names if (directory / name).is_dir()]


@every_optimizer
@every_tier
@both_ways
def test_the_bits_are_those_of_training_without_a_break(create, tier, is_async, tmp_path):
    options = TIERS[tier](tmp_path)
    batches = model.batches(STEPS, keys=np.random.RandomState(7).permutation(model.vocabulary(KEYS)))
    with Run(batches, create, tables=options) as run:
        expected = run.train(STEPS)

    def save(run, i):
        if i in SAVES:
            run.saver.save(run.session, str(tmp_path / "model"), global_step=i, save_delta=SAVES[i])

    init = {"is_async_checkpoint": is_async, "is_incremental_checkpoint": True}
    init |= {"save_checkpoint_due_time": 1000, "save_delta_checkpoints_secs": 1000}
    with Run(batches, create, tables=options, **init) as run:
        run.train(STEPS, between=save).assert_same(expected)  # saving changes nothing either
        wait()
    for step, is_delta in SAVES.items():
        assert kind_of(tmp_path, step) == [f"delta-sparse-model-{step}" if is_delta else f"sparse-model-{step}"]
        rest = {name: array[step * model.BATCH :] for name, array in batches.items()}
        with Run(rest, create, tables=options) as run:
            run.saver.restore(run.session, str(tmp_path / f"model-{step}"))
            outcome = run.train(STEPS - step)
            expected.__class__(expected.losses[step:], expected.weight, expected.rows).assert_same(outcome)


@every_optimizer
@every_tier
@both_ways
def test_admission_and_eviction_go_on_as_without_a_break(create, tier, is_async, tmp_path):
    options, steps = TIERS[tier](tmp_path), 140
    saves = {45: False, 75: True, 110: True}
    policies = [{"by": "count", "below": 3}, {"by": "step", "older_than": 70}]

    def trained(process, save=False, restored=None):
        with model.process(**process), v1.Session() as session:
            tracked = Tracked(create, policies, **options)
            session.run(v1.global_variables_initializer())
            begin = 0
            if restored is not None:
                tracked.saver.restore(session, str(tmp_path / f"model-{restored}"))
                begin = restored
            losses = []
            for step in range(begin, steps):
                if save and step in saves:
                    tracked.saver.save(
                        session,
                        str(tmp_path / "model"),
                        step,
                        save_delta=saves[step],
                        is_incremental_checkpoint=True,
                    )
                losses += tracked.train(session, 1, begin=step)
            wait()
            return losses, *tracked.outcome()

    expected = trained({})
    assert expected[3][4] > 100, "something was evicted"
    losses, rows, history, numbers = trained({"is_async_checkpoint": is_async}, save=True)
    assert (losses, history, numbers) == (expected[0], expected[2], expected[3])
    model.assert_same_rows(rows, expected[1])
    for step, is_delta in saves.items():
        assert kind_of(tmp_path, step) == [f"delta-sparse-model-{step}" if is_delta else f"sparse-model-{step}"]
        losses, rows, history, _ = trained({}, restored=step)
        assert losses == expected[0][step:]
        model.assert_same_rows(rows, expected[1])
        assert history == expected[2]
