"""Which of the paths that ranks are given they restore."""

import pytest

from mx_rec import _ranks
from mx_rec.checkpoint import _manifest
from mx_rec.saver import _shares


@pytest.fixture
def save(tmp_path):
    """save(number, ranks, step) leaves the tables of a save to paths of the ranks' own."""

    def leave(number, ranks, step):
        directories = tuple(f"sparse-model-{rank}-{step}" for rank in range(ranks))
        for rank, name in enumerate(directories):
            (tmp_path / name).mkdir(exist_ok=True)
            share = _manifest.Share(rank, number, directories, ())
            replaces = _manifest.Replaced(None, None)
            _manifest.write(_manifest.Manifest(step, None, {}, replaces, None, share), str(tmp_path / name))

    return leave


@pytest.fixture
def find(tmp_path, monkeypatch):
    """find(*names): what each rank restores that is given one of them."""

    def ask(*names):
        prefixes = [str(tmp_path / name) for name in names]
        monkeypatch.setattr(_ranks, "size", lambda: len(names))
        monkeypatch.setattr(_ranks, "together", lambda stream, work: [_shares._look(prefix) for prefix in prefixes])
        found = []
        for rank, prefix in enumerate(prefixes):
            monkeypatch.setattr(_ranks, "rank", lambda rank=rank: rank)
            found.append(_shares.find(prefix).removeprefix(f"{tmp_path}/"))
        return found

    return ask


def test_each_rank_restores_its_own_path(save, find, log):
    save(1, 2, 7)
    assert find("model-0-7", "model-1-7") == ["model-0-7", "model-1-7"] and not log


def test_ranks_without_a_share_restore_rank_0s(save, find, log):
    save(1, 2, 7)
    assert find("model-0-7", "model-1-7", "model-2-7") == ["model-0-7", "model-1-7", "model-0-7"] and not log


def test_all_ranks_may_be_given_rank_0s_path(save, find, log):
    save(1, 2, 7)
    assert find("model-0-7", "model-0-7", "model-0-7") == ["model-0-7", "model-1-7", "model-0-7"] and not log


def test_a_share_of_an_earlier_save_by_more_ranks_is_not_restored(save, find, log):
    save(1, 3, 7)
    save(2, 2, 7)
    assert find("model-0-7", "model-1-7", "model-2-7") == ["model-0-7", "model-1-7", "model-0-7"]
    assert any("model-2-7" in text and "another save" in text for _, text in log)


def test_lists_of_several_directories_may_differ(save, find, log):
    save(1, 2, 6)
    save(2, 2, 7)
    assert find("model-0-6", "model-1-7") == ["model-0-6", "model-1-6"]
    assert any("model-1-7" in text and "another save" in text for _, text in log)


def test_a_common_path_is_that_of_all(tmp_path, find, log):
    (tmp_path / "sparse-model-7").mkdir()
    assert find("model-7", "model-7") == ["model-7", "model-7"] and not log
    assert find("model-8", "model-8") == ["model-8", "model-8"] and not log
