"""The vendor's packages `npu_bridge`, `npu_device`, `tf_adapter` and `rec_sdk_common`: doors to modules of mx_rec.

Scripts import them, often before mx_rec. They are no files, which would lie over a real installation, but a finder at
the very end of `sys.meta_path`: a package of that name that is installed, or a `tf_adapter.py` beside the script, is
found before. The finder is there from the start of the interpreter, by `mx_rec_doors.pth`, and otherwise from the
import of mx_rec on.
"""

import importlib
import sys
from importlib.machinery import ModuleSpec

# The part that the vendor's two generations share: by its name there, the module of ours whose names it shows.
_VENDOR = {
    "estimator": None,
    "estimator.npu": None,
    "estimator.npu.npu_config": "mx_rec.npu.npu_config",
    "estimator.npu.npu_estimator": "mx_rec.npu.npu_estimator",
    "estimator.npu.npu_hook": "mx_rec.npu.hooks",
    "estimator.npu.npu_optimizer": "mx_rec.npu.distribution",
    "estimator.npu.npu_plugin": "mx_rec.npu.npu_plugin",
    "estimator.npu.util": "mx_rec.npu.util",
    "estimator.npu_ops": "mx_rec.util.communication.npu_ops",
    "estimator.npu_unary_ops": "mx_rec.npu.npu_unary_ops",
    "hccl": None,
    "hccl.hccl_ops": "mx_rec.util.communication.hccl_ops",
    "npu_init": "mx_rec.npu.npu_init",
}

# Every door, and the module of ours whose names it shows; None for a package that has none of its own.
DOORS = {
    "npu_bridge": None,
    **{f"npu_bridge.{name}": module for name, module in _VENDOR.items()},
    "npu_device": None,
    "npu_device.compat": "mx_rec.npu.behavior",
    "npu_device.compat.v1": None,
    **{f"npu_device.compat.v1.{name}": module for name, module in _VENDOR.items()},
    "rec_sdk_common": None,
    "rec_sdk_common.communication": None,
    "rec_sdk_common.communication.hccl": None,
    "rec_sdk_common.communication.hccl.hccl_info": "mx_rec.util.communication.rank_info",
    "rec_sdk_common.log": "mx_rec.util.log",
    "rec_sdk_common.util": None,
    "rec_sdk_common.util.tf_adapter": "mx_rec.util.tf_version_adapter",
    "rec_sdk_common.validator": None,
    "rec_sdk_common.validator.validator": "mx_rec.validator.validator",
    "tf_adapter": "mx_rec.npu.npu_init",
}
_PACKAGES = {name.rpartition(".")[0] for name in DOORS}


class _Doors:
    """Finder and loader of the doors."""

    def find_spec(self, name, path=None, target=None):
        """Returns the spec of a door. None for other names, and for modules that a real package of the name lacks."""
        del path, target
        if name not in DOORS:
            return None
        parent = sys.modules.get(name.rpartition(".")[0])
        if "." in name and getattr(getattr(parent, "__spec__", None), "loader", None) is not self:
            return None
        return ModuleSpec(name, self, origin="mx_rec", is_package=name in _PACKAGES)

    def create_module(self, spec):
        del spec  # an ordinary module will do

    def exec_module(self, module):
        name = module.__name__
        module.__doc__ = f"A door of mx_rec to {DOORS[name] or 'the modules in this package'}."
        module.__all__ = []
        if DOORS[name] is not None:
            room = importlib.import_module(DOORS[name])
            module.__all__ = list(room.__all__)
            vars(module).update({public: getattr(room, public) for public in room.__all__})
        if name in _PACKAGES:
            module.__getattr__ = _submodule_of(name)


def _submodule_of(package):
    """Returns the `__getattr__` of a package: its modules need not be imported to be used."""

    def __getattr__(name):
        if f"{package}.{name}" not in DOORS:
            raise AttributeError(f"module '{package}' of mx_rec has no attribute '{name}' (docs/ported_scripts.md)")
        return importlib.import_module(f"{package}.{name}")

    return __getattr__


_finder = _Doors()
find_spec = _finder.find_spec


def install() -> None:
    """Puts the finder at the end of those that Python asks for modules. Repeating it changes nothing."""
    if _finder not in sys.meta_path:
        sys.meta_path.append(_finder)
