"""Tables with rows on disk: what steps may do, what happens when the disk does not, files, numbers, bad input."""

import os
import resource

import numpy as np
import pytest
import tensorflow as tf

from mx_rec.core.embedding import sparse_lookup
from mx_rec.core.feature_process import evict
from mx_rec.core.table_stats import summary_of
from mx_rec.optimizers import gradient_descent, lazy_adam_by_addr
from tests.shared import model

v1 = tf.compat.v1

# ---- What a step may and may not do.


class Fed:
    """A table "t" of dim 4 whose ids are fed."""

    def __init__(self, path, memory=50, disk=1000, **options):
        options = {
            "host_vocabulary_size": memory - 1,
            "ssd_vocabulary_size": disk,
            "ssd_data_path": [str(path)],
            **options,
        }
        self.table = model.table("t", v1.random_uniform_initializer(seed=4), dim=4, rows=1, **options)
        self.ids = v1.placeholder(tf.int64, [None])
        self.embeddings = sparse_lookup(self.table, self.ids)
        gradient = tf.gradients(tf.reduce_sum(self.embeddings), [self.table.variable])[0]
        self.train = gradient_descent.create_hash_optimizer(0.5).apply_gradients([(gradient, self.table.variable)])
        self.read = sparse_lookup(self.table, self.ids, is_train=False)
        self.session = v1.Session()
        self.session.run(v1.global_variables_initializer())

    def step(self, ids):
        return self.session.run([self.embeddings, self.train], {self.ids: ids})[0]

    def rows(self):
        keys, values = model.dump(self.table)
        return dict(zip(keys.tolist(), values[:, 0].tolist()))


def test_a_batch_that_does_not_fit_into_memory_says_what_would(started, tmp_path):
    fed = Fed(tmp_path)
    fed.step(np.arange(50))
    before = fed.rows()
    with pytest.raises(tf.errors.ResourceExhaustedError) as failure:
        fed.step(np.arange(30, 100))
    for part in ("'t'", "70 rows", "device_vocabulary_size + host_vocabulary_size is 50", "host_vocabulary_size"):
        assert part in str(failure.value)
    assert fed.rows() == before
    fed.step(np.arange(60, 110))
    assert fed.table.size() == 100


def test_with_expansion_memory_grows_for_a_large_batch(tmp_path):
    with model.process(use_dynamic_expansion=True):
        fed = Fed(tmp_path)
        fed.step(np.arange(200))
        assert fed.table.stats()["rows_in_memory"] == 200
        fed.step(np.arange(200, 210))
        assert fed.table.stats()["rows_in_memory"] == 50


def test_a_full_table_is_an_error_that_names_the_limit(started, tmp_path):
    fed = Fed(tmp_path, memory=50, disk=50)
    for first in range(0, 100, 25):
        fed.step(np.arange(first, first + 25))
    before = fed.rows()
    with pytest.raises(tf.errors.ResourceExhaustedError, match="ssd_vocabulary_size.* is 100 rows"):
        fed.step([1000])
    assert fed.rows() == before
    fed.step(np.arange(40))


def test_a_full_disk_is_an_error_after_which_training_goes_on(started, tmp_path):
    fed = Fed(tmp_path, memory=50, disk=100_000)
    fed.step(np.arange(50))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = fed.rows()
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
        with pytest.raises(tf.errors.ResourceExhaustedError) as failure:
            fed.step(np.arange(50, 80))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    for part in ("'t'", str(tmp_path), "File too large", "ssd_data_path", "Nothing was lost"):
        assert part in str(failure.value)
    assert fed.rows() == before
    fed.step(np.arange(50, 80))
    assert fed.table.size() == 80
    assert {key: row for key, row in fed.rows().items() if key < 50} == before


def test_rows_that_come_back_are_the_ones_that_went(started, tmp_path):
    fed = Fed(tmp_path)
    expected = {}
    random = np.random.RandomState(0)
    for _ in range(200):
        ids = random.choice(300, 40, replace=False)
        embeddings = fed.step(ids)
        for key, embedding in zip(ids.tolist(), embeddings):
            if key in expected:
                np.testing.assert_array_equal(embedding, expected[key])
            expected[key] = embedding - np.float32(0.5)
    stats = fed.table.stats()
    assert stats["promotions"] > 1000 and stats["rows_in_memory"] == 50
    for key, embedding in expected.items():  # one by one, far more often than memory has room for
        np.testing.assert_array_equal(fed.session.run(fed.read, {fed.ids: [key, key]}), [embedding, embedding])
    assert (fed.session.run(fed.read, {fed.ids: [-5, 10**12]}) == 0).all()


def test_addresses_are_good_for_one_step(started, tmp_path):
    table = model.table(
        "t", dim=4, rows=10, host_vocabulary_size=10, ssd_vocabulary_size=100, ssd_data_path=[str(tmp_path)]
    )
    ids = v1.placeholder(tf.int64, [None])
    loss = tf.reduce_sum(sparse_lookup(table, ids))
    (rows,) = tf.compat.v1.get_collection("ASCEND_SPARSE_LOOKUP_LOCAL_EMB")
    (addresses,) = tf.compat.v1.get_collection("ASCEND_SPARSE_LOOKUP_ID_OFFSET")
    train = lazy_adam_by_addr.create_hash_optimizer_by_address(0.1).apply_gradients(
        [tf.gradients(loss, rows), [addresses]]
    )
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        for first in range(0, 60, 15):
            old, _ = session.run([addresses, train], {ids: np.arange(first, first + 15)})
        with pytest.raises(tf.errors.InvalidArgumentError, match=f"'t': {old[0]} is not the address of a row now"):
            session.run(train, {ids: np.arange(15), addresses: old})
    assert table.size() == 60


def test_addresses_of_evicted_rows_are_refused(started):
    table = model.table("t", dim=4)
    ids = v1.placeholder(tf.int64, [None])
    loss = tf.reduce_sum(sparse_lookup(table, ids, access_and_evict_config={"access_threshold": 0}))
    (addresses,) = tf.compat.v1.get_collection("ASCEND_SPARSE_LOOKUP_ID_OFFSET")
    (rows,) = tf.compat.v1.get_collection("ASCEND_SPARSE_LOOKUP_LOCAL_EMB")
    gradient = tf.gradients(loss, rows)[0]
    train = lazy_adam_by_addr.create_hash_optimizer_by_address(0.1).apply_gradients([(gradient, addresses)])
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        old, _ = session.run([addresses, train], {ids: [1, 2, 3]})
        session.run(train, {ids: [1, 2, 3], addresses: old})  # these rows are there still
        assert evict(by="count", below=100) == {"t": 3}
        with pytest.raises(tf.errors.InvalidArgumentError, match="evicted"):
            session.run(train, {ids: [4, 5, 6], addresses: old})


# ---- Files, numbers, and bad input.


def scratch_files():
    links = []
    for name in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink(f"/proc/self/fd/{name}"))
        except FileNotFoundError:
            continue
    return [link for link in links if "mxrec_scratch" in link]


def test_files_have_no_names_and_vanish_with_the_table(tmp_path):
    with model.process():
        fed = Fed(tmp_path)
        for first in range(0, 200, 50):
            fed.step(np.arange(first, first + 50))
        assert fed.table.stats()["rows_on_disk"] == 150
        assert os.listdir(tmp_path) == []
        assert len(scratch_files()) == 1 and str(tmp_path) in scratch_files()[0]
        fed.session.close()
    assert scratch_files() == []


def test_space_on_disk_is_used_again(started, tmp_path):
    fed = Fed(tmp_path, memory=50, disk=2000)
    random = np.random.RandomState(1)
    sizes = []
    for _ in range(6):
        for _ in range(300):
            fed.step(random.choice(1500, 45, replace=False))
        sizes.append(fed.table.stats()["bytes_on_disk"])
    assert fed.table.stats()["demotions"] > 20 * fed.table.size()
    assert sizes[-1] == sizes[0]


def test_the_numbers_add_up_and_reach_tensorboard(started, tmp_path):
    fed = Fed(tmp_path)
    for first in range(0, 200, 40):
        fed.step(np.arange(first, first + 40))
    fed.step(np.arange(20))
    stats = fed.table.stats()
    assert stats["rows"] == stats["rows_in_memory"] + stats["rows_on_disk"] == 200
    assert stats["demotions"] - stats["promotions"] == stats["rows_on_disk"]
    assert stats["hits"] + stats["promotions"] == 20
    assert stats["hit_rate"] == stats["hits"] / 20
    assert stats["read_microseconds"] > 0
    tags = {value.tag for value in summary_of({"t": stats}).value}
    assert {"mx_rec/t/rows_on_disk", "mx_rec/t/hit_rate", "mx_rec/t/read_microseconds"} <= tags


@pytest.mark.parametrize(
    "options, words",
    [
        ({"ssd_vocabulary_size": 10}, ["'t'", "ssd_vocabulary_size", "host_vocabulary_size"]),
        ({"ssd_vocabulary_size": -1}, ["ssd_vocabulary_size", "-1"]),
        ({"ssd_vocabulary_size": 10**9 + 1}, ["ssd_vocabulary_size", "1000000001"]),
        ({"ssd_vocabulary_size": 1.5}, ["ssd_vocabulary_size", "1.5"]),
        ({"host_vocabulary_size": 10**9 + 1}, ["host_vocabulary_size", "1000000001"]),
        ({"ssd_data_path": "here"}, ["ssd_data_path", "list", "'here'"]),
        ({"ssd_data_path": []}, ["ssd_data_path", "at least one"]),
        ({"ssd_data_path": [""]}, ["ssd_data_path"]),
        ({"ssd_data_path": [3]}, ["ssd_data_path", "3"]),
        ({"ssd_data_path": ["{tmp}/missing"]}, ["ssd_data_path", "existing directory", "missing"]),
        ({"ssd_data_path": ["{tmp}/file"]}, ["ssd_data_path", "existing directory", "file"]),
        ({"ssd_data_path": ["{tmp}/link"]}, ["ssd_data_path", "symbolic link", "link"]),
        ({"ssd_data_path": ["{tmp}/../x"]}, ["ssd_data_path", "'..'"]),
    ],
    ids=lambda value: "",
)
def test_bad_settings_are_told(started, tmp_path, options, words):
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path)
    if isinstance(options.get("ssd_data_path"), list):
        paths = [p.format(tmp=tmp_path) if isinstance(p, str) else p for p in options["ssd_data_path"]]
        options = {"ssd_data_path": paths, "host_vocabulary_size": 5, "ssd_vocabulary_size": 5}
    with pytest.raises(ValueError) as failure:
        model.table("t", **options)
    for word in words:
        assert word in str(failure.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_without_write_permission_is_told(started, tmp_path):
    (tmp_path / "locked").mkdir(mode=0o500)
    with pytest.raises(ValueError, match="may write to.*locked"):
        Fed(tmp_path / "locked")


def test_another_tier_is_another_configuration(started, tmp_path):
    Fed(tmp_path)
    with pytest.raises(ValueError, match="'t' exists with"):
        model.table("t", v1.random_uniform_initializer(seed=4), dim=4, rows=1, host_vocabulary_size=49)


def test_a_directory_that_has_gone_is_an_error_in_the_step(started, tmp_path):
    (tmp_path / "gone").mkdir()
    fed = Fed(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    fed.step(np.arange(50))
    with pytest.raises(tf.errors.UnknownError, match="'t'.*gone"):
        fed.step(np.arange(50, 60))
    (tmp_path / "gone").mkdir()
    fed.step(np.arange(50, 60))
    assert fed.table.size() == 60
