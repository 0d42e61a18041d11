"""What a warm start takes from which checkpoint: settings resolved to tables and variables, and checked."""

import dataclasses
import os
import re

import tensorflow as tf

from mx_rec._tables import graphs
from mx_rec._tables.anchors import table_of
from mx_rec._tf import checkpoints
from mx_rec.checkpoint import _chain
from mx_rec.reading import _finding
from mx_rec.saver import _loading

v1 = tf.compat.v1


@dataclasses.dataclass(frozen=True)
class Source:
    """One checkpoint and what the settings say about it."""

    path: str  # as given
    prefix: str  # of the checkpoint
    selector: object  # of `vars_to_warm_start`
    vocab_info: dict
    previous_names: dict


@dataclasses.dataclass(frozen=True)
class TableSource:
    """The rows of a table: where they come from."""

    table: object
    source: Source
    name: str  # in the checkpoint
    chain: list[_chain.Link]  # that the checkpoint consists of


def sources_of(paths, selectors, vocab_infos, previous_names) -> list[Source]:
    """The settings, checkpoint by checkpoint. With a list of paths, all are lists of that length; vocabularies and
    names may be None."""
    if not isinstance(paths, (list, tuple)):
        return [_source(paths, selectors, vocab_infos, previous_names)]
    if not paths:
        raise ValueError("warm start: `ckpt_to_initialize_from` must hold at least one path, got an empty list")
    fields = {"vars_to_warm_start": selectors, "var_name_to_vocab_info": vocab_infos,
              "var_name_to_prev_var_name": previous_names}  # fmt: skip
    columns = [paths]
    for label, value in fields.items():
        if value in (None, {}) and label != "vars_to_warm_start":  # WarmStartSettings makes {} of None
            value = [None] * len(paths)
        if not isinstance(value, (list, tuple)) or len(value) != len(paths):
            got = f"a list of {len(value)}" if isinstance(value, (list, tuple)) else repr(value)
            raise ValueError(
                f"warm start: with {len(paths)} paths in `ckpt_to_initialize_from`, `{label}` must be a list of "
                f"{len(paths)}, one for each path, got {got}"
            )
        columns.append(value)
    return [_source(*row) for row in zip(*columns)]


def _source(path, selector, vocab_info, previous_names):
    for label, value in (("var_name_to_vocab_info", vocab_info), ("var_name_to_prev_var_name", previous_names)):
        if value is not None and not isinstance(value, dict):
            raise ValueError(f"warm start from '{path}': `{label}` must be a dict, got {value!r}")
    return Source(str(path), _prefix(path), selector, dict(vocab_info or {}), dict(previous_names or {}))


def _prefix(path):
    """The checkpoint that a path means: of a directory the latest one, or the one in an exported model."""
    if not isinstance(path, (str, bytes, os.PathLike)) or not os.fspath(path):
        raise ValueError(f"warm start: `ckpt_to_initialize_from` must be a path, or a list of paths, got {path!r}")
    path = os.fsdecode(path)
    if not os.path.isdir(path):
        prefix = path
    else:
        state = tf.train.get_checkpoint_state(path)
        exported = os.path.join(path, "variables", "variables")
        if state is not None:
            prefix = _finding.at_home(state.model_checkpoint_path, path)
        elif _finding.exists(exported):
            prefix = exported
        else:
            raise ValueError(
                f"warm start: directory '{path}' has no checkpoint: it holds no file named 'checkpoint', nor an "
                "exported model; give the directory that a training saved to, or a checkpoint's prefix (D/model-7)"
            )
    if not _finding.exists(prefix):
        raise ValueError(
            f"warm start: there is no checkpoint '{prefix}'; give a prefix (D/model-7) or a directory with checkpoints"
        )
    return prefix


@dataclasses.dataclass
class Selection:
    """What comes from one source: tables, and variables as TensorFlow's own warm start takes them."""

    source: Source
    tables: list[TableSource]
    selector: object
    variables: dict[str, list]  # by name, what TensorFlow will make of the selector
    previous_names: dict
    vocab_info: dict
    ignored: list[str]  # vocabularies that name tables


def selection_of(source: Source, directory: str) -> Selection:
    """What the settings take of `source`, whose tables are in `directory`. ValueError if something is selected that is
    not there, or nothing at all."""
    known = graphs.state().tables
    names, selector = _select(source, known)
    variables = {} if selector == [] else checkpoints.variables_by_name(selector)
    if selector is None:
        variables = {name: found for name, found in variables.items() if name in source.vocab_info}
    unused = sorted(name for name in source.previous_names if name in known and name not in names)
    if unused:
        raise ValueError(
            f"warm start from '{source.path}': `var_name_to_prev_var_name` renames the tables {unused}, which "
            f"`vars_to_warm_start`={source.selector!r} does not select"
        )
    return Selection(
        source,
        [_table_source(known[name], source, directory) for name in names],
        selector,
        variables,
        {name: old for name, old in source.previous_names.items() if name not in known},
        {name: info for name, info in source.vocab_info.items() if name not in known},
        sorted(name for name in source.vocab_info if name in known),
    )


def _select(source, known):
    """(names of tables, what is left for TensorFlow)."""
    selector = source.selector
    if selector is None:
        return [], None
    if isinstance(selector, str):
        names = _matching(selector, known, source)
        if not names and not v1.get_collection(v1.GraphKeys.TRAINABLE_VARIABLES, scope=selector):
            _nothing(selector, source, known, v1.trainable_variables(), "trainable variable")
        return names, selector
    if not isinstance(selector, (list, tuple)):
        raise ValueError(
            f"warm start from '{source.path}': `vars_to_warm_start` must be a regular expression, a list of names, or "
            f"a list of variables, got {selector!r}"
        )
    names, variables = [], []
    for item in selector:
        table = table_of(item)
        if table is not None:
            names.append(table.table_name)
        elif not isinstance(item, str):
            variables.append(item)  # TensorFlow says what is wrong with it
        else:
            matching = _matching(item, known, source)
            dense = [v for v in v1.global_variables(scope=item) if table_of(v) is None]
            if not matching and not dense:
                _nothing(item, source, known, v1.global_variables(), "variable")
            names += matching
            variables += dense
    return list(dict.fromkeys(names)), list({id(variable): variable for variable in variables}.values())


def _matching(expression, known, source):
    try:
        return [name for name in known if re.fullmatch(expression, name)]
    except re.error as error:
        raise ValueError(
            f"warm start from '{source.path}': `vars_to_warm_start` {expression!r} is no regular expression: {error}"
        ) from error


def _nothing(expression, source, known, variables, kind):
    names = sorted({v.op.name for v in variables if table_of(v) is None})
    shown = names[:20] + ["..."] if len(names) > 20 else names
    raise ValueError(
        f"warm start from '{source.path}': {expression!r} of `vars_to_warm_start` matches no table in full, and no "
        f"{kind} from its beginning; the tables are {sorted(known)}, the variables {shown}"
    )


def _table_source(table, source, directory):
    name = source.previous_names.get(table.table_name, table.table_name)
    what = f"warm start: table '{table.table_name}'"
    if not os.path.isdir(directory):
        raise ValueError(
            f"{what} is selected by {source.selector!r}, but checkpoint '{source.prefix}' has no tables (there is no "
            f"directory '{directory}'); select its variables only, or give another checkpoint"
        )
    chain = _loading.links(directory)
    held = chain[-1].tables
    if name not in held:
        raise ValueError(
            f"{what}: checkpoint '{source.prefix}' has no table '{name}', only {sorted(held)}; select other tables in "
            "`vars_to_warm_start`, or name the table it was in `var_name_to_prev_var_name`"
        )
    entry = held[name].entry
    if entry is not None and entry.dim != table.embedding_size:
        raise ValueError(
            f"{what} has dim {table.embedding_size}, table '{name}' of checkpoint '{source.prefix}' has dim {entry.dim}"
            "; create the table with the checkpoint's dim, or leave it out of `vars_to_warm_start`"
        )
    return TableSource(table, source, name, chain)
