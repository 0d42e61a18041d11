"""Every name that scripts of the original import is where they look for it, takes what they pass, and is documented."""

import importlib
import inspect
import re

import pytest
import tensorflow as tf

from tests.shared import contract
from tests.shared.paths import ROOT

pytestmark = pytest.mark.border

PAGE = ROOT / "docs" / "ported_scripts.md"


@pytest.mark.parametrize("name", contract.NAMES, ids=lambda name: f"{name.name} of {name.modules[0]}")
def test_a_name_of_the_original_can_be_imported_and_called(name, request):
    if name.modules == ("tf.data.Dataset",):
        request.getfixturevalue("started")
        homes = [tf.data.Dataset]
    else:
        homes = [importlib.import_module(module) for module in name.modules]
    found = [getattr(home, name.name) for home in homes]
    assert all(one is found[0] for one in found) or name.name in ("hccl_ops", "npu_ops")
    if name.parameters is not None:
        parameters = list(inspect.signature(found[0]).parameters)
        assert [wanted for wanted in name.parameters.split() if wanted not in parameters] == []


def test_what_scripts_pass_by_position_has_its_place():
    for function, first in (
        ("mx_rec.core.embedding.create_table", "key_dtype dim name emb_initializer device_vocabulary_size"),
        ("mx_rec.core.embedding.sparse_lookup", "hashtable ids send_count is_train name modify_graph batch"),
        ("mx_rec.core.asc.feature_spec.FeatureSpec", "name table_name index_key access_threshold eviction_threshold"),
        ("mx_rec.core.feature_process.EvictHook", "evict_enable evict_time_interval evict_step_interval"),
        ("mx_rec.graph.modifier.GraphModifierHook", "dump_graph modify_graph"),
    ):
        module, _, attribute = function.rpartition(".")
        parameters = list(inspect.signature(getattr(importlib.import_module(module), attribute)).parameters)
        assert parameters[: len(first.split())] == first.split(), function


def test_the_page_on_ported_scripts_tells_of_every_name_and_of_no_other():
    rows = re.findall(r"^\| `([^`]+)` \| (`[^|]+`) \| (\w+) \|", PAGE.read_text(), re.MULTILINE)
    told = {(name, tuple(re.findall(r"`([^`]+)`", modules)), verdict) for name, modules, verdict in rows}
    assert told == {(name.name, name.modules, name.verdict) for name in contract.NAMES}


def test_the_star_imports_give_what_the_list_says_and_no_more():
    listed = {name.name for name in contract.NAMES if "npu_bridge.npu_init" in name.modules}
    assert set(importlib.import_module("npu_bridge.npu_init").__all__) == listed
