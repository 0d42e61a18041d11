"""What is said of many ranks: the formula against draws by NumPy and against the simulation; the page of two ranks."""

import dataclasses

import numpy as np
import pytest

from benchmarks import ranks, scaling, simulation

COSTS = scaling.Costs(
    stages=dict.fromkeys(scaling._STAGES, (10e-9, 0.2e-9)),
    step=1e-3,
    value=0.5e-9,
    late=0.05,
)
JOB = scaling.Job("test", examples=512, tables=4, rows=100_000, dim=16, zipf=1.05, dense=1e-3, parameters=10_000)
LINK = scaling.NETWORKS[0]


@pytest.mark.parametrize("zipf", [0.0, 1.05])
def test_keys_are_as_many_as_numpy_draws(zipf):
    rows, draws, ranks_ = 20_000, 5_000, 8
    chance = np.arange(1.0, rows + 1) ** -zipf
    random = np.random.default_rng(1)
    drawn = [np.unique(random.choice(rows, draws, p=chance / chance.sum())) for _ in range(ranks_)]
    keys = scaling.Keys(rows, zipf)
    assert keys.distinct(draws) == pytest.approx(np.mean([len(one) for one in drawn]), rel=0.02)
    assert keys.distinct(draws * ranks_) == pytest.approx(len(np.unique(np.concatenate(drawn))), rel=0.02)
    asked = np.bincount(np.concatenate(drawn), minlength=rows)
    spreads = [np.bincount(random.integers(0, ranks_, rows), asked, ranks_).std() for _ in range(200)]
    assert keys.spread(draws, ranks_) == pytest.approx(np.sqrt(np.mean(np.square(spreads))), rel=0.1)


def test_tables_of_any_size_have_the_same_law():
    assert scaling.Keys(1e11, 1.05).distinct(1e5) < 1e5
    assert scaling.Keys(1e11, 0.0).distinct(1e5) == pytest.approx(1e5, rel=1e-3)


@pytest.mark.parametrize("number", [2, 8, 64])
def test_the_formula_says_what_the_simulation_does(number):
    keys = scaling.Keys(JOB.rows, JOB.zipf)
    simulated = simulation.simulate(JOB, keys, number, COSTS, LINK, scaling._HEAD)
    assert scaling.total(scaling.step(JOB, number, COSTS, LINK)) == pytest.approx(simulated, rel=0.1)


def test_without_lateness_and_with_a_free_link_ranks_cost_their_work_alone():
    costs = dataclasses.replace(COSTS, late=0.0)
    free = scaling.Network("free", 0.0, 0.0, 1e18)
    uniform = dataclasses.replace(JOB, zipf=0.0, rows=1e9)
    parts = scaling.step(uniform, 4, costs, free)
    assert scaling.total(parts) == pytest.approx(
        scaling.total(scaling.step(uniform, 1, costs, free)) + parts["skew"], rel=0.01
    )


def test_stages_are_read_as_the_benchmark_prints_them():
    text = (
        "w1 on 2 ranks: 106496 ids a step, one thread each\n"
        "  send gradients        0.91 ms  (fastest tenth 0.62)     8.6 ns/id\n"
        "  all                   5.25 ms\n"
    )
    assert scaling.read_stages(text) == {("w1", 2): {"send gradients": 0.91e-3, "all": 5.25e-3}}


def test_the_page_of_two_ranks_says_which_targets_are_reached():
    def run(milliseconds, **more):
        return {"milliseconds": milliseconds, "core_milliseconds": 2 * milliseconds, "foreign": 0.01, **more}

    exchange = {"exchanges": 3.0, "megabytes": 2.0, "waits": [0.5, 0.7]}
    ways = {ranks.ONE_CORE.label: [run(18.0)] * 3, ranks.ONE_TWO.label: [run(8.0)] * 3, ranks.TWO.label: []}
    ways[ranks.TWO.label] = [run(10.0, **exchange)] * 3
    machine = dict.fromkeys(("commit", "date", "cpu", "vectors", "cores", "memory", "kernel", "python"), "some")
    raw = {
        "machine": {**machine, "versions": {"mx_rec and TensorFlow": "some"}},
        "load": 0.1,
        "rounds": 3,
        "scale": 1,
        "seconds": 4,
        "minutes": 1.0,
        "runs": {"w1": ways},
        "absent": {"Horovod": "no compiler"},
        "ping": {"milliseconds_by_bytes": {"64": 0.03, "1048576": 0.2}},
    }
    page = ranks.markdown(raw)
    assert "| w1: two ranks, one thread each / one rank, one thread | 1.80× | ≥ 1.7× | yes |" in page
    assert "| w1: two ranks, one thread each / one rank, two threads | 0.80× | ≥ 0.85× | no |" in page
    assert "| Horovod | no compiler |" in page
    assert "| w1 | two ranks, one thread each | 409.6 | 10.00 | 0.00 | 20.00 |" in page
