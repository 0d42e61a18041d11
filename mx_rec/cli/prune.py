"""`python -m mx_rec prune`: removes checkpoints that are no longer wanted, both halves of each.

Checkpoints are taken by name: "model-100" and "model-200" belong together, "best-100" to others. Those without a step
at the end of the name are left alone, as are names under which no tables were ever saved. What is removed is older, by
step, than one that was just verified.

Of a removed checkpoint that a delta builds on, the tables stay as long as the delta does.
"""

import argparse
import dataclasses
import os
import re
from typing import Optional

from mx_rec.checkpoint import _chain, _layout, _owner
from mx_rec.checkpoint import _files as _saver_files
from mx_rec.checkpoint._errors import CheckpointError, DamagedError
from mx_rec.cli import verify
from mx_rec.reading import _finding, _reading, _verifying
from mx_rec.transaction import _lock, _recovery

_DESCRIPTION = """\
Removes the older checkpoints in a directory, dense files and tables, and what killed processes left of them. Of every
name (model-*, best-*) the newest N that pass verification stay, and the one that TensorFlow's `checkpoint` file calls
the latest. Damaged ones go if a newer one is whole. Tables stay while a delta builds on them. The `checkpoint` file is
updated. While a process saves into the directory, what looks like a save under way stays; so does what processes of
another machine have left, as they may be at work: see --other-hosts.
"""
_DENSE = r"\.(index|meta|data-\d{5}-of-\d{5})"


def add_command(commands) -> None:
    """Adds `prune` to the command line's subparsers."""
    parser = commands.add_parser("prune", help="remove older checkpoints", description=_DESCRIPTION)
    parser.add_argument("dir", metavar="DIR", help="the directory with checkpoints")
    parser.add_argument("--keep", type=_positive, required=True, metavar="N", help="how many whole ones stay")
    parser.add_argument("--every", type=_positive, metavar="M", help="those whose step is a multiple of M stay as well")
    parser.add_argument(
        "--other-hosts",
        action="store_true",
        help="no process of another machine is saving here: tidy up after them, too",
    )
    parser.add_argument("--dry-run", action="store_true", help="only say what would be done")
    parser.set_defaults(run=run)


def run(options) -> int:
    """Runs the command; returns the exit status."""
    if not os.path.isdir(options.dir):
        raise CheckpointError(f"'{options.dir}' is no directory; give the one with checkpoints")
    directory = os.path.abspath(options.dir)
    with _lock.borrowed(directory) as is_locked:
        return _prune(directory, is_locked, options)


def _prune(directory, is_locked, options):
    """`is_locked`: no process of this machine saves into the directory meanwhile."""
    leftovers = _survey(directory, is_locked, options.other_hosts)
    busy = {one.prefix for one in leftovers.busy}
    states = _read_states(directory)
    families = _families(directory)
    checker = _verifying.Checker()
    verdicts = [_judge(prefixes, options, states, busy, checker) for prefixes in families.values()]
    needed = _chain.needed(directory, {prefix for verdict in verdicts for prefix in verdict.remove})
    for verdict in verdicts:
        verdict.keep_tables(needed)
    if not verdicts:
        print(f"'{options.dir}' holds no checkpoints with tables whose names end in a step")
    for verdict in verdicts:
        verdict.show(options.dry_run)
    _show(leftovers, options)
    removed = [prefix for verdict in verdicts for prefix in verdict.remove]
    files = [path for prefix in removed for path in _files(prefix) if path not in needed]
    size = sum(map(_size, [*files, *(one.path for one in leftovers.remove)]))
    if not options.dry_run:
        leftovers.settle()
        # First: whoever reads them while files go must not be sent to one of these.
        _update_states(directory, states, removed, [verdict.newest for verdict in verdicts])
        for prefix in removed:
            _remove(prefix, needed)
    print(f"{'would free' if options.dry_run else 'freed'} {size:,} bytes")
    if any(verdict.newest is None for verdict in verdicts):
        return 1
    left = [path for path in files if os.path.lexists(path)]
    if left and not options.dry_run:
        raise CheckpointError(f"could not be removed: {', '.join(left)}")
    return 0


def _positive(text):
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1, got {text!r}")
    return number


def _line(verb, dry_run, path, reason=""):
    verb = f"would {verb}" if dry_run and verb in ("remove", "complete") else verb
    return f"{verb:<16}{os.path.basename(path)}" + (f"   ({reason})" if reason else "")


# ---- What there is.


def _families(directory):
    """{name: prefixes from new to old} of those under which tables were saved, with a step."""
    found = {*_finding.list_prefixes(directory)}
    names = {_finding.split_step(prefix)[0] for prefix in found}
    dense = (re.fullmatch(f"(.+-\\d+){_DENSE}", name) for name in os.listdir(directory))
    found |= {os.path.join(directory, match.group(1)) for match in dense if match}
    families = {}
    held = [prefix for prefix in found if _files(prefix) or _recovery.locate(prefix).pair is not None]
    for prefix in sorted(held, key=lambda prefix: _finding.split_step(prefix)[1] or 0, reverse=True):
        name, step = _finding.split_step(prefix)
        if step is not None and name in names:
            families.setdefault(name, []).append(prefix)
    return families


def _files(prefix):
    """The paths of a checkpoint's two halves, as far as they exist."""
    parent, name = os.path.split(prefix)
    dense = [os.path.join(parent, n) for n in sorted(os.listdir(parent)) if re.fullmatch(re.escape(name) + _DENSE, n)]
    tables = _layout.of(prefix)
    return [*dense, tables] if os.path.lexists(tables) else dense


def _size(path):
    inside = [os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names]
    return sum(os.lstat(file).st_size for file in inside) if os.path.isdir(path) else os.lstat(path).st_size


def _survey(directory, is_locked, other_hosts):
    found = _recovery.survey(directory, is_locked, other_hosts=other_hosts)
    # A whole checkpoint is completed even if nobody was told of it: what follows may count on it as the newest one.
    return dataclasses.replace(found, install=[*found.install, *found.withdraw], withdraw=[])


def _show(leftovers, options):
    reason = "left by a process that ended"
    for pair in leftovers.install:
        print(_line("complete", options.dry_run, pair.prefix, f"{reason}, in {os.path.basename(pair.sparse)}"))
    for one in leftovers.remove:
        print(_line("remove", options.dry_run, one.path, reason))
    for one in leftovers.busy:
        if one.host != _owner.host():
            reason = f"made on {one.host}; if none saves there, --other-hosts"
        else:
            reason = f"{_lock.holder(os.path.dirname(one.path))} saves here"
        print(_line("leave", options.dry_run, one.path, reason))


# ---- What to do.


@dataclasses.dataclass
class _Verdict:
    """For the checkpoints of one name. Prefixes, each with the reason, which may be empty."""

    keep: dict[str, str] = dataclasses.field(default_factory=dict)
    leave: dict[str, str] = dataclasses.field(default_factory=dict)  # kept for now, though not whole
    remove: dict[str, str] = dataclasses.field(default_factory=dict)
    tables: dict[str, str] = dataclasses.field(default_factory=dict)  # those of `remove` whose tables stay
    newest: Optional[str] = None  # the newest whole one

    def keep_tables(self, needed):
        """Takes note of the tables that stay, by directory, with what needs them."""
        for prefix in self.remove:
            user = needed.get(_layout.of(prefix))
            if user is not None:
                self.tables[prefix] = f"{os.path.basename(user)} builds on them"

    def show(self, dry_run):
        for verb, prefixes in (("keep", self.keep), ("leave", self.leave), ("remove", self.remove)):
            for prefix, reason in prefixes.items():
                if prefix not in self.tables or _layout.has_dense(prefix):
                    print(_line(verb, dry_run, prefix, reason))
        for prefix, reason in self.tables.items():
            print(_line("keep tables", dry_run, prefix, reason))


def _judge(prefixes, options, states, busy, checker):
    """Verifies from new to old, as far as the answer matters."""
    verdict, latest = _Verdict(), {prefix for paths in states.values() for prefix in _saved_together(paths[0])}
    for prefix in prefixes:
        step = _finding.split_step(prefix)[1]
        is_multiple = options.every is not None and step % options.every == 0
        if prefix in busy:
            verdict.leave[prefix] = "a process may be at work on it"
            continue
        if len(verdict.keep) >= options.keep and prefix not in latest and not is_multiple:
            verdict.remove[prefix] = ""
            continue
        flaw = _flaw(prefix, checker)
        if flaw is None:
            beyond = "the latest, by TensorFlow's file" if prefix in latest else f"a multiple of {options.every}"
            verdict.keep[prefix] = beyond if len(verdict.keep) >= options.keep else ""
            verdict.newest = verdict.newest or prefix
        elif verdict.newest is None:
            verdict.leave[prefix] = f"no newer one is whole; {flaw}"
        else:
            verdict.remove[prefix] = flaw
    return verdict


def _saved_together(prefix):
    """The checkpoints of all ranks that were saved with it, to paths of their own; itself alone, if there are none, or
    that cannot be told."""
    try:
        return _chain.prefixes_of_save(_recovery.locate(prefix).sparse)
    except ValueError:
        return [prefix]


def _flaw(prefix, checker):
    """Why a checkpoint cannot be restored, or None. A rank's share cannot if that of another one cannot."""
    flaw = _flaw_alone(prefix, checker)
    if flaw is not None:
        return flaw
    try:
        _chain.with_shares(_recovery.locate(prefix).sparse, lambda other: _recovery.locate(other).sparse)
    except ValueError as error:
        return str(error)
    flaws = {other: _flaw_alone(other, checker) for other in _saved_together(prefix) if other != prefix}
    return next((f"saved with {os.path.basename(other)}: {flaw}" for other, flaw in flaws.items() if flaw), None)


def _flaw_alone(prefix, checker):
    if not os.path.isdir(_recovery.locate(prefix).sparse):
        return "without tables"
    try:
        checkpoint = _reading.open_checkpoint(prefix)
        if checkpoint.dense == "missing":
            return "without a dense part"
        damage = verify.check_with_bar(checkpoint, checker).damage
    except DamagedError as error:
        damage = [str(error)]
    return "; ".join(damage) or None


# ---- TensorFlow's state files.


def _read_states(directory):
    """{file name: the checkpoints it names, the latest first}: `checkpoint`, and others of Saver's latest_filename."""
    paths = [os.path.join(directory, name) for name in os.listdir(directory)]
    states = {os.path.basename(path): _finding.read_state(path) for path in paths if os.path.isfile(path)}
    return {name: named for name, named in states.items() if named}


def _update_states(directory, states, removed, newest):
    """Has no state file name a removed checkpoint. One whose latest went gets the newest whole one of that name."""
    gone = set(removed)
    stale = [name for name, named in states.items() if not gone.isdisjoint(named)]
    if not stale:
        return
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import tensorflow as tf

    from mx_rec.saver import _checkpoint_list

    for name in stale:
        state = tf.train.get_checkpoint_state(directory, name)
        is_relative = _names_relative_paths(os.path.join(directory, name))
        named = [_finding.at_home(path, directory) for path in state.all_model_checkpoint_paths]
        times = dict(zip(named, state.all_model_checkpoint_timestamps))
        latest = _finding.at_home(state.model_checkpoint_path, directory)
        if latest in gone:
            family = _finding.split_step(latest)[0]
            latest = next(prefix for prefix in newest if prefix and _finding.split_step(prefix)[0] == family)
        # TensorFlow wants the latest to be the last one.
        paths = [path for path in dict.fromkeys(named) if path not in gone and path != latest] + [latest]
        has_times = all(path in times for path in paths)
        _checkpoint_list.write(
            directory,
            latest,
            paths,
            name,
            is_relative,
            times=[times[path] for path in paths] if has_times else None,
            last_preserved=state.last_preserved_timestamp or None,
        )


def _names_relative_paths(path):
    return not re.search(rb'^model_checkpoint_path: "/', _saver_files.read_regular(path, 1 << 24), re.MULTILINE)


# ---- Removing.


def _remove(prefix, needed):
    """The tables last: without them the dense part could be restored as a model without tables."""
    tables = _layout.of(prefix)
    for path in _files(prefix):
        if path != tables:
            try:
                os.remove(path)
            except OSError:
                pass  # told at the end, with what else is left
    if tables not in needed:
        _layout.remove(prefix)
