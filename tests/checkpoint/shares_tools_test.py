"""What several ranks have saved to paths of their own, each its share, stays or goes together when it is pruned."""

import dataclasses
import os

import pytest

from mx_rec.checkpoint import _manifest
from tests.shared.saver_model import Model

pytestmark = pytest.mark.usefixtures("installed")
RANKS, STEPS = 2, (5, 6, 7)


@pytest.fixture
def run(tmp_path):
    """A directory with the shares of three saves by two ranks, as rank 0's list has them."""
    model = Model()
    savers = [model.saver(max_to_keep=10) for _ in range(RANKS)]
    for step in STEPS:
        names = tuple(f"sparse-model-{rank}-{step}" for rank in range(RANKS))
        for rank in reversed(range(RANKS)):
            model.set(step, keys=range(1 + rank, 9, RANKS))
            savers[rank].save(model.session, str(tmp_path / f"model-{rank}"), step, write_meta_graph=False)
            directory = str(tmp_path / names[rank])
            share = _manifest.Share(rank, 100 + step, names, ())
            manifest = dataclasses.replace(_manifest.read(directory), share=share)
            _manifest.write(manifest, directory)
    return tmp_path


def left(run):
    return sorted(name.removeprefix("sparse-") for name in os.listdir(run) if name.startswith("sparse-"))


def test_the_newest_of_each_rank_stay(run, tool):
    assert tool("prune", run, "--keep", 1)[0] == 0
    assert left(run) == ["model-0-7", "model-1-7"]


def test_all_shares_of_the_latest_stay(run, tool):
    """The ranks died before rank 0 had noted the save of step 7."""
    (run / "checkpoint").write_text(f'model_checkpoint_path: "{run}/model-0-6"\n')
    assert tool("prune", run, "--keep", 1)[0] == 0
    assert left(run) == ["model-0-6", "model-0-7", "model-1-6", "model-1-7"]


def test_a_share_is_as_whole_as_the_others(run, tool):
    path = run / "sparse-model-1-7" / "user" / "key" / "slice.data"
    path.write_bytes(b"x" + path.read_bytes()[1:])
    _, out, _ = tool("prune", run, "--keep", 1)
    assert {"model-0-6", "model-1-6"} <= set(left(run)) and "saved with model-1-7" in out


def test_a_share_without_the_others_is_not_whole(run, tool):
    (run / "sparse-model-1-7").rename(run.parent / "elsewhere")
    _, out, _ = tool("prune", run, "--keep", 1)
    assert {"model-0-6", "model-1-6"} <= set(left(run)) and "is missing" in out
