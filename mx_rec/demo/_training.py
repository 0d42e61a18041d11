"""The demo's training, in the order of calls that any Session script of mx_rec follows.

init -> feature specs -> datasets through the insert function -> tables -> lookups and model, for training and for
evaluation -> dense and sparse optimizer -> Saver -> start_asc_pipeline -> Session -> terminate

On several ranks each has its part of every batch, and trains with the others what one rank would train.
"""

import dataclasses
import signal
import time

import numpy as np
import tensorflow as tf
from tensorflow.compat import v1

from mx_rec import _ranks
from mx_rec.core.asc.helper import get_asc_insert_func
from mx_rec.core.asc.manager import start_asc_pipeline
from mx_rec.core.feature_process import evict
from mx_rec.demo import _clicks, _two_tower
from mx_rec.demo._report import Report, say, tensorboard_command
from mx_rec.demo._run_directory import step_of
from mx_rec.optimizers.lazy_adam import create_hash_optimizer
from mx_rec.util.communication import hccl_ops
from mx_rec.util.initialize import get_rank_id, get_rank_size, init, terminate_config_initializer
from mx_rec.util.variable import get_dense_and_sparse_variable

_EVALUATION_SIZE = 1 << 16  # a standard error of the AUC of about 0.0017
_EVALUATION_STEPS = 16
_EVALUATIONS, _SAVES = 10, 5  # in a run from step 0 to the last
_EVICTIONS = 20
_FIRST_DAY, _STEP_SECONDS = 1_700_000_000, 60  # data time: of the first step, and between two
_LEARNING_RATE = 0.01
_HALVED_AFTER = 600  # steps; then 1 / sqrt(step), whatever --steps says, so that a longer run continues a shorter one


@dataclasses.dataclass(frozen=True)
class _Graph:
    tables: dict
    train_input: object
    evaluation_input: object
    train: object  # one step
    loss: object  # over all ranks
    scores: object  # of one evaluation batch, of all ranks


@dataclasses.dataclass(frozen=True)
class Outcome:
    status: int  # exit status
    auc: float
    stats: dict  # of each table


def train(options, directory) -> Outcome:
    """Trains up to step `options.steps`, from the last checkpoint if there is one."""
    tf.get_logger().setLevel("ERROR")  # the v1 calls below are meant
    checkpoint = tf.train.latest_checkpoint(directory.path)
    first = step_of(checkpoint) if checkpoint else 0
    evaluate_every = max(1, options.steps // _EVALUATIONS)
    save_every = max(1, options.steps // _SAVES)
    evict_every = max(1, options.steps // _EVICTIONS)

    clicks = _clicks.Clicks(options.seed)
    held_out = clicks.evaluation(_EVALUATION_SIZE)
    if get_rank_id() == 0:
        _introduce(options, directory, checkpoint, first, held_out)

    init(
        max_steps=options.steps,
        train_steps=evaluate_every,
        eval_steps=_EVALUATION_STEPS,
        save_steps=save_every,
        if_load=checkpoint is not None,
        use_dynamic=True,
    )
    with tf.Graph().as_default():
        graph = _build(options, clicks, held_out, first)
        saver = v1.train.Saver(max_to_keep=3)
        start_asc_pipeline()
        with v1.Session() as session, _StopRequest() as stop:
            graph.train_input.start(session)
            if checkpoint:
                saver.restore(session, checkpoint)
                # So that checkpoints of the earlier run count towards max_to_keep.
                saver.recover_last_checkpoints(tf.train.get_checkpoint_state(directory.path).all_model_checkpoint_paths)
            else:
                session.run(v1.global_variables_initializer())
            report = Report(graph.tables, directory.logs, first, max(first, options.steps), options.batch_size)
            step, evaluated, saved = first, None, step_of(checkpoint) if checkpoint else 0
            while True:
                stop.agree()
                is_over = step >= options.steps or stop.signal is not None
                if (step % evaluate_every == 0 or step == first or is_over) and step != evaluated:
                    auc = _evaluate(session, graph, held_out)
                    report.evaluation(step, auc)
                    evaluated = step
                if (step % save_every == 0 or is_over) and step != saved:
                    checkpoint = saver.save(session, directory.prefix, global_step=step)
                    saved = step
                if is_over:
                    break
                if step in (first, evaluated, saved):
                    report.start_clock()
                _, loss = session.run([graph.train, graph.loss])
                step += 1
                report.step(step, loss)
                if options.forget and step % evict_every == 0:
                    evict()
            report.close()
            _conclude(options, report, held_out, auc, checkpoint)
            stats = report.stats()
    terminate_config_initializer()
    return Outcome(0 if stop.signal is None else 128 + stop.signal, auc, stats)


def compare(forgetful, everything) -> None:
    """Says what admission and eviction saved, and what they cost."""
    if get_rank_id() != 0:
        return
    rows, size = (
        [sum(stats[what] for stats in outcome.stats.values()) for outcome in (forgetful, everything)]
        for what in ("rows", "bytes")
    )
    say()
    say(f"{'':<24}{'rows':>10}{'memory':>12}{'AUC':>9}")
    for name, row, byte, outcome in zip(("--forget", "every row kept"), rows, size, (forgetful, everything)):
        say(f"{name:<24}{row:>10,}{byte / 1e6:>9.1f} MB{outcome.auc:>9.4f}")
    say(
        f"Forgetting saved {1 - rows[0] / rows[1]:.0%} of the rows and {1 - size[0] / size[1]:.0%} of the memory; the "
        f"AUC changed by {forgetful.auc - everything.auc:+.4f}."
    )


def _build(options, clicks, held_out, first):
    v1.set_random_seed(options.seed)
    train_specs, evaluation_specs = _two_tower.feature_specs(options.forget), _two_tower.feature_specs()

    whole = clicks.log(first, options.steps, options.batch_size)
    log = _clicks.Log(*(_mine(array) for array in (whole.user, whole.item, whole.label)))
    ids_of = {name: (whose, _Fed(ids)) for name, (whose, ids) in clicks.features_of.items()}

    def look_up_features(impressions):
        features = {name: tf.gather(ids.tensor, impressions[whose]) for name, (whose, ids) in ids_of.items()}
        return {**features, "label": impressions["label"], "time": impressions["time"]}

    times = _FIRST_DAY + _STEP_SECONDS * np.arange(first, first + len(log.label))
    impressions = {"user": log.user, "item": log.item, "label": log.label, "time": times}
    impressions = {name: _Fed(array) for name, array in impressions.items()}
    train_input = _input(impressions, train_specs, is_train=True, make_features=look_up_features)
    train_input.feeds.update(ids.feed for _, ids in ids_of.values())

    batches = {**held_out.features, "label": held_out.label}
    batches = {name: _Fed(_mine(v.reshape(_EVALUATION_STEPS, -1, *v.shape[1:]))) for name, v in batches.items()}
    evaluation_input = _input(batches, evaluation_specs, is_train=False)

    global_step = v1.train.get_or_create_global_step()
    rate = _LEARNING_RATE / tf.sqrt(1.0 + 3.0 * tf.cast(global_step, tf.float32) / _HALVED_AFTER)
    dense_optimizer = v1.train.AdamOptimizer(learning_rate=rate)
    sparse_optimizer = create_hash_optimizer(learning_rate=rate)

    tables = _two_tower.create_tables(options.seed)
    logits = _two_tower.logits(tables, train_specs, train_input.batch, is_train=True)
    scores = _two_tower.logits(tables, evaluation_specs, evaluation_input.batch, is_train=False)
    labels = train_input.batch["label"]
    loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits))

    dense_variables, sparse_variables = get_dense_and_sparse_variable()
    if get_rank_size() > 1:
        loss *= log.label.shape[1] / options.batch_size  # this rank's share of the mean over the whole batch
    dense_gradients = [
        (hccl_ops.allreduce(gradient), variable)
        for gradient, variable in dense_optimizer.compute_gradients(loss, dense_variables)
    ]
    sparse_gradients = tf.gradients(loss, sparse_variables)
    train = tf.group(
        dense_optimizer.apply_gradients(dense_gradients, global_step=global_step),
        sparse_optimizer.apply_gradients(zip(sparse_gradients, sparse_variables)),
    )
    return _Graph(tables, train_input, evaluation_input, train, hccl_ops.allreduce(loss), hccl_ops.allgather(scores))


def _mine(batches):
    """This rank's part of each batch, [steps, batch size, ...]. All ranks' parts in turn are the batch."""
    return batches if get_rank_size() == 1 else np.array_split(batches, get_rank_size(), axis=1)[get_rank_id()]


class _Fed:
    """An array that the graph gets when an iterator starts, so that it is in no checkpoint's graph file."""

    def __init__(self, array):
        self.tensor = v1.placeholder(array.dtype, array.shape)
        self.feed = (self.tensor, array)


@dataclasses.dataclass(frozen=True)
class _Input:
    batch: dict
    initializer: object
    feeds: dict

    def start(self, session):
        session.run(self.initializer, self.feeds)


def _input(arrays, specs, is_train, make_features=None):
    """Returns the input of `arrays`, a batch per index of their first axis."""
    dataset = tf.data.Dataset.from_tensor_slices({name: fed.tensor for name, fed in arrays.items()})
    if make_features is not None:
        dataset = dataset.map(make_features)
    dataset = dataset.map(get_asc_insert_func(tgt_key_specs=specs, is_training=is_train, dump_graph=False))
    dataset = dataset.prefetch(10)
    if not is_train:
        # Starting an iterator anew waits for the thread that tunes its buffers, which may sleep for 5 s.
        tuning = tf.data.Options()
        tuning.autotune.enabled = False
        dataset = dataset.with_options(tuning)
    iterator = v1.data.make_initializable_iterator(dataset)
    return _Input(iterator.get_next(), iterator.initializer, dict(fed.feed for fed in arrays.values()))


def _evaluate(session, graph, held_out):
    graph.evaluation_input.start(session)
    scores = [session.run(graph.scores) for _ in range(_EVALUATION_STEPS)]
    return _clicks.auc(held_out.label, np.concatenate(scores))


class _StopRequest:
    """Ends training after the step that is under way when Ctrl-C is pressed, or the process is killed politely, so that
    the checkpoint holds whole steps. A second Ctrl-C ends the program."""

    def __init__(self):
        self.signal = None

    def __enter__(self):
        self._before = {number: signal.signal(number, self._note) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_):
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def agree(self) -> None:
        """Has all ranks stop after the same step, if one of them is to stop."""
        self.signal = max(told[0] for told in _ranks.gather("demo/stop", bytes([self.signal or 0]))) or None

    def _note(self, number, _):
        if self.signal is not None:
            raise KeyboardInterrupt
        self.signal = number


def _introduce(options, directory, checkpoint, first, held_out):
    people, things = f"{_clicks.USERS:,} users", f"{_clicks.ITEMS:,} items"
    if options.is_reference:
        say("\nThe same with a row for every id, to compare:\n")
    on = f", on {get_rank_size()} ranks" if get_rank_size() > 1 else ""
    say(f"mx_rec demo: a two-tower click model, with TensorFlow {tf.__version__}{on}")
    say(f"data    {people} and {things}, power laws; {options.batch_size:,} samples per step")
    say(f"goal    AUC {held_out.best_auc:.4f}, that of the true probabilities, on {_EVALUATION_SIZE:,} other samples")
    if not checkpoint:
        say(f"run     new, in {directory.path}, to step {options.steps:,}")
    elif first < options.steps:
        say(f"run     resuming at step {first:,} of {options.steps:,} from checkpoint {checkpoint}")
    else:
        say(f"run     already finished: checkpoint {checkpoint} is at step {first:,}, --steps is {options.steps:,}")
    say(f"watch   {tensorboard_command(directory.logs)}")
    say()


def _conclude(options, report, held_out, auc, checkpoint):
    best, impersonal = held_out.best_auc, held_out.impersonal_auc
    facts = {
        "AUC reached": f"{auc:.4f}",
        "best reachable AUC": f"{best:.4f}   the true click probabilities; {best - auc:.4f} more",
        "without personalisation": f"{impersonal:.4f}   the true appeal of each item, the same for all users",
    }
    if report.steps:
        facts["training"] = f"{report.steps:,} steps, {report.samples_per_second():,.0f} samples/s"
    facts["time"] = f"{time.monotonic() - options.started:.0f} s in all"
    facts["checkpoint"] = checkpoint or "none yet"
    summary = report.summary(facts)
    if get_rank_id() != 0:
        return
    say(f"\n{summary}\n")
    if options.is_reference:
        return
    if not checkpoint or step_of(checkpoint) < options.steps:
        saved = " and saved" if checkpoint else ""
        say(f"Interrupted{saved}. To resume: {options.again} --steps {options.steps}")
    else:
        say(f"To train on: {options.again} --steps {2 * step_of(checkpoint)}")
        say(f"To start over: {options.again} --fresh")
