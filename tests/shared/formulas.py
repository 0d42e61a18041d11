"""The model of model.py in NumPy, trained by an optimizer's formula: what laws compare ours with."""

import numpy as np

from tests.shared import model
from tests.shared.optimizer_cases import START


def first_rows(keys):
    """The embeddings that are written before training: of every other key."""
    random = np.random.RandomState(5)
    return {
        name: {key: random.normal(scale=0.3, size=model.DIM).astype(np.float32) for key in np.unique(keys)[::2]}
        for name in model.TABLES
    }


def every_key(data):
    return np.concatenate([data[name].reshape(-1) for name in model.TABLE_OF])


def train_numpy(case, data, steps, rates=None, batch=model.BATCH):
    """{table: {key: row [1 + slots, dim]}} after so many steps of the model of model.py, by the formulas of a case, in
    double precision; `rates` are those of each step, else case.rate is that of all."""
    fresh = np.stack([np.full(model.DIM, START), *(np.full(model.DIM, initial) for _, initial in case.slots)])
    tables = {name: {} for name in model.TABLES}
    for name, rows in first_rows(every_key(data)).items():
        for key, w in rows.items():
            tables[name][key] = np.concatenate([w[None].astype(np.float64), fresh[1:]])
    for i in range(steps):
        part = {name: array[i * batch : (i + 1) * batch] for name, array in data.items()}
        ids = {name: part[name].reshape(batch, -1) for name in model.TABLE_OF}
        e = np.zeros((batch, model.DIM))
        for name, of_feature in ids.items():
            rows = tables[model.TABLE_OF[name]]
            for b, position in np.ndindex(of_feature.shape):
                e[b] += rows.setdefault(of_feature[b, position], fresh.copy())[0]
        gradient = (e - part["target"]) / batch
        sums = {}
        for name, of_feature in ids.items():
            for b, position in np.ndindex(of_feature.shape):
                row = (model.TABLE_OF[name], of_feature[b, position])
                sums[row] = sums.get(row, 0.0) + gradient[b]
        for (name, key), g in sums.items():
            case.rule(tables[name][key], g, case.rate if rates is None else rates[i], i + 1)
    return tables


def assert_close(actual, expected, tolerance=1e-5):
    for name, rows in actual.items():
        keys = list(rows)
        np.testing.assert_allclose(
            np.stack([rows[key] for key in keys]),
            np.stack([expected[name][key] for key in keys]),
            rtol=0,
            atol=tolerance,
            err_msg=f"table '{name}'",
        )
