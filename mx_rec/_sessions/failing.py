"""A run that fails on one rank fails on all: the others learn of it where they wait for this rank, and why.

Without it a rank whose batch holds a bad id, or whose data have ended, would leave the others waiting. So training ends
for all ranks at the same step. Evaluation goes on until the data of all have ended: a rank whose own have ended first
answers for its rows until then.
"""

import tensorflow as tf

from mx_rec import _ranks
from mx_rec._native import world
from mx_rec._ops.lookup import LookupOp
from mx_rec._ops.ranked import streams_of
from mx_rec._sessions.watching import ops_of
from mx_rec._tf.patch import Patch
from mx_rec._tf.sessions import BaseSession
from mx_rec._tf.walking import ancestors

# native/base/status.h
_CODES = {
    (tf.errors.InvalidArgumentError, ValueError, TypeError): 1,  # also what a feed of another shape is
    tf.errors.NotFoundError: 2,
    tf.errors.ResourceExhaustedError: 4,
    tf.errors.DataLossError: 6,
    tf.errors.OutOfRangeError: 8,
}
_OTHER = 5
# native/exchange/ranked_lookup.h: kEndedPlan
_ENDED_PLAN = [0x6465646E65]


def _run(self, fetches, feed_dict=None, options=None, run_metadata=None):
    begun = world.begun()
    try:
        return PATCHES[0].stock(self, fetches, feed_dict, options, run_metadata)
    except Exception as error:
        ranked = [op for op in ancestors(ops_of(self.graph, fetches), with_control=True) if streams_of(op)]
        if isinstance(error, tf.errors.OutOfRangeError) and world.begun() == begun and _only_read(ranked):
            _answer_others(self, ranked, options)
        elif ranked:
            code = next((code for kind, code in _CODES.items() if isinstance(error, kind)), _OTHER)
            streams = [name for op in ranked for name in streams_of(op)]
            world.fail_since(begun, streams, code, getattr(error, "message", None) or str(error))
        raise


def _only_read(ranked):
    """Whether these ops, of which there is one at least, look rows up and do nothing else between ranks."""
    lookups = [LookupOp.of(op) for op in ranked]
    return bool(lookups) and all(lookup is not None and not list(lookup.inserted()) for lookup in lookups)


def _answer_others(session, ranked, options):
    """Takes part in the lookups of the other ranks until their data have ended, too."""
    feed = {LookupOp(op).plan: _ENDED_PLAN for op in ranked}
    try:
        while True:
            PATCHES[0].stock(session, ranked, feed, options)
    except tf.errors.OutOfRangeError:
        pass


PATCHES = [
    Patch(
        lambda: BaseSession if _ranks.are_several() else None,
        "run",
        _run,
        "ranks would wait for ever for one whose run has failed",
    )
]
