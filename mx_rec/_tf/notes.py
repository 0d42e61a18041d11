"""Notes that mx_rec leaves on objects of TensorFlow: variables, graphs, ops, sessions, Savers."""


class Note:
    """What is noted of an object under one name. It goes when the object goes, and a copy of the object has it, too."""

    def __init__(self, name):
        self._attribute = f"_mx_rec_{name}"

    def of(self, owner, otherwise=None):
        """What was noted of `owner`; `otherwise` if nothing was."""
        return getattr(owner, self._attribute, otherwise)

    def set(self, owner, content) -> None:
        """Notes `content`, in the place of what was noted before."""
        setattr(owner, self._attribute, content)
