"""Patches come and go, and leave those of others alone."""

import types

from mx_rec._tf import patches
from mx_rec._tf.patch import Patch


def made(owner):
    patch = Patch(lambda: owner, "act", lambda: f"ours of {patch.stock()}", "for a test")
    return patch


def test_a_patch_stands_in_and_goes():
    owner = types.SimpleNamespace(act=lambda: "stock")
    stock, patch = owner.act, made(owner)
    for _ in range(2):
        patch.install()
        assert owner.act() == "ours of stock"
    for _ in range(2):
        patch.uninstall()
        assert owner.act is stock


def test_a_patch_of_somebody_else_that_came_later_stays(caplog):
    owner = types.SimpleNamespace(act=lambda: "stock")
    patch = made(owner)
    patch.install()
    ours = owner.act
    owner.act = theirs = lambda: f"theirs of {ours()}"
    patch.uninstall()
    assert owner.act is theirs and owner.act() == "theirs of ours of stock"
    assert "was patched by another library" in caplog.text
    patch.install()  # ours is still there: once is enough
    assert owner.act() == "theirs of ours of stock"
    owner.act = ours  # they take theirs out
    patch.uninstall()
    assert owner.act() == "stock"


def test_every_patch_says_why():
    described = patches.described()
    assert len(described) >= 15 and all(name and why for name, why in described)
