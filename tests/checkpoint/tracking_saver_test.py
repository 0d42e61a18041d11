"""Checkpoints of tables that count their keys: what comes back, and what the log says where it cannot."""

import json
import logging

import numpy as np
import pytest
import tensorflow as tf

from mx_rec.checkpoint import _manifest
from tests.shared import admission, model

v1 = tf.compat.v1


def trained(data, **options):
    return admission.train_all(data, **options)


def save(trainer, directory):
    return v1.train.Saver().save(trainer.session, str(directory / "model"))


def restore(data, path, **options):
    """A new process's trainer, restored."""
    trainer = admission.build(data, "spec", **options)
    trainer.session = v1.Session()
    v1.train.Saver().restore(trainer.session, path)
    return trainer


@pytest.fixture
def data():
    return admission.stream(20, 11)


def test_counts_times_steps_and_the_clock_come_back(data, tmp_path):
    keys = admission.keys_and_counts(data)[0]
    options = {"access_threshold": 4, "eviction_threshold": 60, "faae_coefficient": 3}
    with model.process():
        trainer = trained(data, **options)
        history, tracking = trainer.table.native.history(keys), trainer.table.native.tracking
        assert trainer.table.stats()["candidates"] > 0 < trainer.table.size()
        path = save(trainer, tmp_path)
    with model.process():
        trainer = restore(data, path, **options)
        assert trainer.table.native.tracking == tracking
        np.testing.assert_array_equal(trainer.table.native.history(keys), history)


def test_the_files_are_those_of_the_original(data, tmp_path):
    with model.process():
        trainer = trained(data, access_threshold=4, eviction_threshold=60)
        save(trainer, tmp_path)
        keys, rows = admission.keys_and_counts(data)[0], trainer.table.native.keys()
        counts, times, _ = trainer.table.native.history(keys)
    directory = tmp_path / "sparse-model" / "t"
    assert np.fromfile(directory / "table_2_threshold/slice.data", np.int32).tolist() == [4, 60, 1]
    words = np.fromfile(directory / "history_record/slice.data", np.int64)
    assert words[0] == data["time"].max()
    saved = {key: (count, time) for key, count, time in words[1:].reshape(-1, 3).tolist()}
    assert saved == dict(zip(keys.tolist(), zip(counts.tolist(), times.tolist())))
    assert np.fromfile(directory / "key/slice.data", np.int64).tolist() == rows.tolist()


def test_thresholds_and_coefficient_of_the_checkpoint_replace_those_of_the_script(data, tmp_path, caplog):
    with model.process():
        path = save(trained(data, access_threshold=4, eviction_threshold=60, faae_coefficient=3), tmp_path)
    with model.process(), caplog.at_level(logging.WARNING, logger="mx_rec"):
        trainer = restore(data, path, access_threshold=9, eviction_threshold=60)
        tracking = trainer.table.native.tracking
        assert (tracking.access_threshold, tracking.coefficient) == (4, 3)
    assert "access_threshold 9 -> 4, coefficient 1 -> 3" in caplog.text


def test_a_script_without_thresholds_leaves_the_counts_alone(data, tmp_path, caplog):
    with model.process():
        trainer = trained(data, access_threshold=4)
        keys = np.sort(trainer.table.native.keys())
        path = save(trainer, tmp_path)
    with model.process(), caplog.at_level(logging.INFO, logger="mx_rec"):
        trainer = restore(data, path)
        assert trainer.table.native.tracking is None
        np.testing.assert_array_equal(np.sort(trainer.table.native.keys()), keys)
    assert "which are not restored" in caplog.text


def test_a_checkpoint_without_counts_is_loaded_and_they_begin_anew(data, tmp_path, caplog):
    with model.process():
        trainer = trained(data)
        keys = trainer.table.native.keys()
        path = save(trainer, tmp_path)
    with model.process(), caplog.at_level(logging.WARNING, logger="mx_rec"):
        trainer = restore(data, path, access_threshold=4)
        assert trainer.table.size() == len(keys)
        assert trainer.table.native.history(keys)[0].tolist() == [0] * len(keys)
    assert "was saved without counts" in caplog.text


def test_a_checkpoint_of_the_original_brings_its_thresholds_and_counts(data, tmp_path):
    keys = admission.keys_and_counts(data)[0]
    with model.process():
        trainer = trained(data, access_threshold=4, eviction_threshold=60)
        counts = trainer.table.native.history(keys)[0]
        path = save(trainer, tmp_path)
    (tmp_path / "sparse-model" / "manifest.json").unlink()  # the original writes neither of these
    for file in (tmp_path / "sparse-model" / "t" / "last_step").iterdir():
        file.unlink()
    with model.process():
        trainer = restore(data, path, access_threshold=1, eviction_threshold=1, faae_coefficient=2)
        tracking = trainer.table.native.tracking
        assert (tracking.access_threshold, tracking.eviction_threshold, tracking.coefficient) == (4, 60, 2)
        assert trainer.table.native.history(keys)[0].tolist() == counts.tolist()


def test_a_filter_comes_back_or_begins_anew(data, tmp_path, caplog):
    keys = admission.keys_and_counts(data)[0]
    options = {"access_threshold": 1000, "admission_filter_bytes": 1 << 16}
    with model.process():
        trainer = trained(data, **options)
        counts = trainer.table.native.history(keys)[0]
        assert counts.sum() > 0
        path = save(trainer, tmp_path)
    with model.process():
        assert restore(data, path, **options).table.native.history(keys)[0].tolist() == counts.tolist()
    with model.process(), caplog.at_level(logging.WARNING, logger="mx_rec"):
        trainer = restore(data, path, access_threshold=1000, admission_filter_bytes=1 << 17)
        assert trainer.table.native.history(keys)[0].sum() == 0
    assert "admission_filter_bytes=65536, not 131072" in caplog.text


@pytest.mark.parametrize("file", ["history_record", "last_step"])
def test_a_damaged_history_is_refused_and_nothing_is_lost(file, data, tmp_path):
    with model.process():
        trainer = trained(data, access_threshold=4)
        path = save(trainer, tmp_path)
        damaged = tmp_path / "sparse-model" / "t" / file / "slice.data"
        content = bytearray(damaged.read_bytes())
        content[20] ^= 1
        damaged.write_bytes(content)
        before, stats = model.dump(trainer.table), trainer.table.stats()
        with pytest.raises(ValueError, match=f"{file}/slice.data' is damaged"):
            v1.train.Saver().restore(trainer.session, path)
        model.assert_same_rows({"t": model.dump(trainer.table)}, {"t": before})
        assert trainer.table.stats() == stats


def test_the_manifest_of_an_older_version_is_read(data, tmp_path):
    with model.process():
        trainer = trained(data)
        path, size = save(trainer, tmp_path), trainer.table.size()
    manifest = tmp_path / "sparse-model" / "manifest.json"
    content = json.loads(manifest.read_text())
    del content["tables"]["t"]["tracking"], content["crc32c"]
    manifest.write_bytes(_manifest.seal(content))
    with model.process():
        assert restore(data, path).table.size() == size
