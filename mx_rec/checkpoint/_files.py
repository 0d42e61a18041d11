"""Files that last: what these functions have done survives a power cut once they return."""

import io
import os
import shutil
import stat
import threading

from mx_rec._process import Part, part

_LARGE = 64 << 20


class _Removals(Part):
    """Those under way in threads."""

    lasts = True

    def __init__(self):
        self.lock = threading.Lock()
        self.threads: dict[str, threading.Thread] = {}  # by absolute path


def sync(path: str) -> None:
    """Returns when the file, or the list of files of the directory, has reached the disk."""
    handle = os.open(path or ".", os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def open_regular(path: str) -> io.FileIO:
    """Opens a file to be read. ValueError if it is none that lies on a disk: a FIFO would keep its reader waiting, a
    device has no end."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise ValueError(f"checkpoint file '{path}' is no regular file")
        return io.FileIO(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def read_regular(path: str, limit: int) -> bytes:
    """The content of a file. ValueError if it is no regular one, or longer than `limit` bytes."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        content = b"" if size > limit else file.read(limit + 1)
    if max(size, len(content)) > limit:
        raise ValueError(f"checkpoint file '{path}' is too long: it has {size} bytes, at most {limit} can be right")
    return content


def check_no_links(directory: str, *names: str) -> None:
    """ValueError if a part of the path directory/names... below `directory` is a symbolic link: what a checkpoint
    names lies in it. What is missing is no link."""
    path = directory
    for name in names:
        path = os.path.join(path, name)
        if os.path.islink(path):
            raise ValueError(
                f"checkpoint file '{path}' is a symbolic link, and those are not followed inside a checkpoint; put the "
                "file itself there"
            )


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
    """Removes a file, or a directory with all that is in it. What cannot be removed stays."""
    removals = part(_Removals)
    with removals.lock:
        thread = removals.threads.get(os.path.abspath(path))
    if thread is not None:
        thread.join()
    _remove(path)


def _remove(path):
    try:
        os.unlink(path)
    except IsADirectoryError:
        shutil.rmtree(path, ignore_errors=True)
    except OSError:
        pass
    removals = part(_Removals)
    with removals.lock:
        removals.threads.pop(os.path.abspath(path), None)


def remove_later(path: str) -> None:
    """Removes a directory whose name nobody looks for; in a thread if it is large, as a file system takes 0.25 s to let
    go of a gigabyte. The process does not end before that thread."""
    if _size(path) < _LARGE:
        return remove(path)
    thread = threading.Thread(target=_remove, args=(path,), name="mx_rec removal")
    removals = part(_Removals)
    with removals.lock:
        removals.threads[os.path.abspath(path)] = thread
    try:
        thread.start()
    except RuntimeError:  # the interpreter is ending
        _remove(path)


def is_being_removed(path: str) -> bool:
    """Whether a thread of this process is removing it."""
    removals = part(_Removals)
    with removals.lock:
        return os.path.abspath(path) in removals.threads


def finish_removals() -> None:
    """Returns when all that was to be removed later is gone."""
    removals = part(_Removals)
    with removals.lock:
        threads = list(removals.threads.values())
    for thread in threads:
        thread.join()


def _size(path):
    return sum(os.lstat(os.path.join(parent, name)).st_size for parent, _, names in os.walk(path) for name in names)
