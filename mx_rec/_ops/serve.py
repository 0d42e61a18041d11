"""MxrecServe: loads the tables of an exported model."""

from mx_rec._ops import library
from mx_rec._ops.op import Op, reads


class ServeOp(Op):
    TYPE = "MxrecServe"
    asset = reads(0)  # the path of a file in the model's assets, from which it finds the tables


def build(asset, tables):
    """Builds the op for `tables`, which are given by name. `complete` must tell it later what files they have."""
    names = sorted(tables)
    return library.ops().mxrec_serve(
        asset=asset,
        tables=names,
        directories=names,
        dims=[tables[name].embedding_size for name in names],
        rows=[0] * len(names),
        table_of_file=[],
        files=[],
        bytes=[],
        crc32c=[],
        table_of_padding=[number for number, name in enumerate(names) for _ in tables[name].padding_keys],
        padding_keys=[key for name in names for key in tables[name].padding_keys],
        name="serve",
    )


def complete(node, entries) -> None:
    """Tells a node of a GraphDef, if it is such an op, which files were written: `entries` of a manifest, by table."""
    if node.op != ServeOp.TYPE:
        return
    names = [name.decode() for name in node.attr["directories"].list.s]
    files = [(t, file, facts) for t, name in enumerate(names) for file, facts in entries[name].files.items()]
    node.attr["rows"].list.i[:] = [entries[name].rows for name in names]
    node.attr["table_of_file"].list.i.extend(t for t, _, _ in files)
    node.attr["files"].list.s.extend(file.encode() for _, file, _ in files)
    node.attr["bytes"].list.i.extend(facts.bytes for _, _, facts in files)
    node.attr["crc32c"].list.i.extend(facts.crc32c for _, _, facts in files)
