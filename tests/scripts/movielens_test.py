"""Real data in time order: MovieLens-100K trained with and without admission and eviction. Needs a network once."""

import collections
import pathlib

import pytest

from benchmarks import movielens, movielens_data

RATINGS = 12_800


@pytest.fixture(scope="module")
def ratings():
    try:
        return movielens_data.load(pathlib.Path("~/.cache/mx_rec").expanduser()).first(RATINGS)
    except movielens_data.Missing as reason:
        pytest.skip(f"MovieLens-100K is not there: {reason}")


def expected(ratings, access, age):
    """(rows, evicted) of all tables by plain counting, key by key."""
    rows = evicted = 0
    for ids in ratings.features.values():
        ids = ids.reshape(len(ids), -1)
        count, last, resident = collections.Counter(), {}, set()
        for step in range(RATINGS // movielens.BATCH):
            batch = slice(step * movielens.BATCH, (step + 1) * movielens.BATCH)
            now = int(ratings.time[batch].max())  # the script gives a time to each sample; a key takes its latest
            for keys, time in zip(ids[batch].tolist(), ratings.time[batch].tolist()):
                for key in keys:
                    count[key] += 1
                    last[key] = max(last.get(key, 0), time)
            resident.update(key for key in {k for keys in ids[batch].tolist() for k in keys} if count[key] >= access)
            if age is not None and (step + 1) % movielens.EVICT_EVERY == 0:
                old = {key for key, time in last.items() if now - time >= age}
                evicted += len(old & resident)
                resident -= old
                for key in old:
                    del count[key], last[key]
        rows += len(resident)
    return rows, evicted


@pytest.mark.slow
@pytest.mark.parametrize("access, days", [(-1, -1), (3, -1), (-1, 2), (3, 2)])
def test_rows_are_those_of_plain_counting_and_the_model_learns(access, days, ratings):
    setting = movielens.Setting("test", access_threshold=access, eviction_days=days)
    outcome = movielens.run(ratings, setting, seed=0)
    rows, evicted = expected(ratings, access, None if days < 0 else days * movielens.DAY)
    assert (outcome.rows, outcome.evicted) == (rows, evicted)
    assert evicted > 0 or days < 0
    assert outcome.auc > 0.6
