"""Files that last: what these functions have done survives a power cut once they return."""

import os
import shutil
import threading

_LARGE = 64 << 20
_removals: list[threading.Thread] = []


def sync(path: str) -> None:
    """Returns when the file, or the list of files of the directory, has reached the disk."""
    handle = os.open(path or ".", os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write(path: str, content: bytes, temporary: str, mode: int) -> None:
    """Makes or replaces the file `path` in one instant. `temporary` is a name in the same directory."""
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.rename(temporary, path)
    except BaseException:
        remove(temporary)
        raise
    sync(os.path.dirname(path))


def put(source: str, target: str, temporary: str) -> None:
    """Makes or replaces `target` by another name of the file `source`, or by a copy of it where the file system has no
    such names. The caller syncs the directory."""
    if is_same(source, target):
        return  # a rename between two names of one file would do nothing, and leave both
    remove(temporary)
    try:
        os.link(source, temporary)
    except OSError:
        shutil.copy(source, temporary)
        sync(temporary)
    os.rename(temporary, target)


def is_same(one: str, other: str) -> bool:
    """Whether both are names of one file."""
    try:
        return os.path.samefile(one, other)
    except OSError:
        return False


def remove(path: str) -> None:
    """Removes a file or a directory with all that is in it, as far as it can be removed."""
    try:
        os.unlink(path)
    except IsADirectoryError:
        shutil.rmtree(path, ignore_errors=True)
    except OSError:
        pass


def remove_later(path: str) -> None:
    """The same for a directory with a name that nobody looks for; if it is large, in a thread: a file system takes
    0.25 s to let go of a gigabyte. The process does not end before it is done."""
    if _size(path) < _LARGE:
        return remove(path)
    thread = threading.Thread(target=remove, args=(path,), name="mx_rec removal")
    try:
        thread.start()
    except RuntimeError:  # the interpreter is ending
        remove(path)
    else:
        _removals.append(thread)


def _size(path):
    return sum(os.lstat(os.path.join(parent, name)).st_size for parent, _, names in os.walk(path) for name in names)


def finish_removals() -> None:
    """Returns when all that was to be removed later is gone."""
    while _removals:
        _removals.pop().join()
