"""MovieLens: what feature admission and eviction do to quality and size, on real data in time order.

    python -m benchmarks.movielens            # 3 seeds, into benchmarks/results/movielens.md
    python -m benchmarks.movielens --quick    # 1 seed, 20,000 ratings, into benchmarks/results/partial.movielens.md

One pass over 100,000 ratings; a rating of 4 or 5 is a click. Every batch is predicted before it is trained on, by an
evaluation lookup, as a serving model would see it: keys without a row read zeros. Most features are crosses with many
keys that occur once or twice, which is what admission is for; most users come for a day and never again, and a key of a
movie and a week is of no use a week later, which is what eviction is for.
"""

import argparse
import dataclasses
import logging
import os
import pathlib
import statistics
import sys
import time

import numpy as np
import tensorflow as tf

from benchmarks import clicks, machine, movielens_data, paths
from mx_rec.core.asc.helper import FeatureSpec, get_asc_insert_func
from mx_rec.core.asc.manager import start_asc_pipeline
from mx_rec.core.embedding import create_table, sparse_lookup
from mx_rec.core.feature_process import evict
from mx_rec.optimizers.lazy_adam import create_hash_optimizer
from mx_rec.util.initialize import init, terminate_config_initializer
from mx_rec.util.variable import get_dense_and_sparse_variable

v1 = tf.compat.v1

# The rates are the best of a few for the plain setting in the first half of the data, which the AUC leaves out.
BATCH, DIM, HIDDEN = 32, 8, 64
DENSE_RATE, SPARSE_RATE = 0.001, 0.01
INITIAL = 0.01  # standard deviation of a fresh row
DAY = 86400
EVICT_EVERY = 50  # steps: between hours and days of data
SEEDS = 3
QUICK = 20_000  # ratings
_SCORED = 0.5  # the AUC is of what comes after this part
_HELD_OUT = 0.9  # the second AUC is of what comes after this part, by the model of this moment
_ROW_BYTES = 4 * DIM * 3  # the embedding and the two slots of LazyAdam


@dataclasses.dataclass(frozen=True)
class Setting:
    """A row of the report; everything off: plain."""

    name: str
    access_threshold: int = -1
    eviction_days: int = -1
    filter_bytes: int = 0
    keep: int = -1
    spared: tuple[str, ...] = ()  # features that are neither refused nor evicted

    @property
    def evicts(self) -> bool:
        return self.eviction_days >= 0 or self.keep >= 0


_CROSSES = {"spared": ("user", "movie")}
SETTINGS = (
    Setting("plain"),
    Setting("admission 2", access_threshold=2),
    Setting("admission 5", access_threshold=5),
    Setting("admission 5, filter of 128 KiB a table", access_threshold=5, filter_bytes=128 << 10),
    Setting("eviction after 30 days", eviction_days=30),
    Setting("admission 5 and eviction", access_threshold=5, eviction_days=30),
    # It goes by counts, which a threshold of 0 keeps, refusing nothing.
    Setting("the 5,000 most frequent of a table", access_threshold=0, keep=5_000),
    Setting("crosses only: admission 2", access_threshold=2, **_CROSSES),
    Setting("crosses only: admission 5", access_threshold=5, **_CROSSES),
    Setting("crosses only: eviction after 30 days", eviction_days=30, **_CROSSES),
    Setting("crosses only: admission 5 and eviction", access_threshold=5, eviction_days=30, **_CROSSES),
)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """Of one run. All but `seconds` follow from the setting and the seed."""

    auc: float
    held_out_auc: float
    rows: int
    peak_rows: int
    refused: int
    evicted: int
    bytes: int
    seconds: float


def main() -> int:
    arguments = _parse()
    try:
        data = movielens_data.load(arguments.data_dir)
    except movielens_data.Missing as reason:
        print(f"skipped: MovieLens-100K is not there and could not be fetched: {reason}")
        return 0
    if arguments.quick:
        data = data.first(QUICK)
    for noisy in (tf.get_logger(), logging.getLogger("mx_rec")):
        noisy.setLevel(logging.ERROR)
    start = time.monotonic()
    seeds = 1 if arguments.quick else SEEDS
    run(data, SETTINGS[0], seed=0, steps=30)  # once for nothing: the first run in a process is slower
    outcomes = {setting: [] for setting in SETTINGS}
    for seed in range(seeds):
        for setting in SETTINGS:  # by turns, so that other load on the machine meets all of them
            outcome = run(data, setting, seed)
            outcomes[setting].append(outcome)
            numbers = f"AUC {outcome.auc:.6f}  rows {outcome.rows:8,}  {outcome.seconds:.1f} s"
            _say(f"seed {seed}  {setting.name:40} {numbers}")
    text = markdown(data, outcomes, time.monotonic() - start)
    result = paths.RESULTS / ("partial.movielens.md" if arguments.quick else "movielens.md")
    result.parent.mkdir(parents=True, exist_ok=True)
    result.write_text(text)
    print(text)
    _say(f"written to {result.relative_to(paths.ROOT)}")
    return 0


def run(data, setting, seed, steps=None) -> Outcome:
    """Trains once through the data, or through their first `steps` batches."""
    steps = len(data.label) // BATCH if steps is None else steps
    arrays = {**data.features, "label": data.label, "time": data.time}
    arrays = {name: array[: steps * BATCH].reshape(steps, BATCH, *array.shape[1:]) for name, array in arrays.items()}
    held_out_from = int(_HELD_OUT * steps)
    scores, peak = [], 0
    init()
    try:
        with tf.Graph().as_default():
            model = _Model(setting, seed, arrays)
            with v1.Session() as session:
                session.run(v1.global_variables_initializer())
                model.train_input.start(session, arrays)
                model.score_input.start(session, arrays)
                score, train = session.make_callable(model.scores), session.make_callable(model.train)
                start = time.perf_counter()
                for step in range(steps):
                    if step == held_out_from:
                        pause = time.perf_counter()
                        held_out = model.held_out_scores(session, arrays, step)
                        start += time.perf_counter() - pause
                    scores.append(score())
                    train()
                    if setting.evicts and (step + 1) % EVICT_EVERY == 0:
                        peak = max(peak, model.total("rows"))
                        if setting.keep >= 0:
                            evict(by="count", keep=setting.keep)
                        else:
                            evict()
                seconds = time.perf_counter() - start
                stats = {name: model.total(name) for name in ("rows", "refused", "evicted", "bytes")}
    finally:
        terminate_config_initializer()
    scored_from = int(_SCORED * steps)
    return Outcome(
        auc=clicks.auc(arrays["label"][scored_from:].ravel(), np.concatenate(scores[scored_from:])),
        held_out_auc=clicks.auc(arrays["label"][held_out_from:].ravel(), held_out),
        peak_rows=max(peak, stats["rows"]),
        seconds=seconds,
        **stats,
    )


class _Model:
    """Wide and deep: a table for each feature, the embeddings side by side into a hidden layer, and the first float of
    each also right into the logit, so that a key acts from its first step on."""

    def __init__(self, setting, seed, arrays):
        v1.set_random_seed(seed)
        self._features = [name for name in arrays if name not in ("label", "time")]
        self._tables = {
            name: create_table(
                key_dtype=tf.int64,
                dim=DIM,
                name=name,
                # Equal seeds would give a number the same row in every table.
                emb_initializer=v1.truncated_normal_initializer(stddev=INITIAL, seed=1000 * seed + number),
                device_vocabulary_size=1_000_000,
                admission_filter_bytes=setting.filter_bytes,
            )
            for number, name in enumerate(self._features)
        }
        self.train_input = _Input(self._features, arrays, setting, is_train=True)
        self.score_input = _Input(self._features, arrays, setting, is_train=False)
        logits = self._logits(self.train_input)
        labels = self.train_input.batch["label"]
        loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits))
        dense, sparse = get_dense_and_sparse_variable()
        dense_optimizer = v1.train.AdamOptimizer(learning_rate=DENSE_RATE)
        self.train = tf.group(
            dense_optimizer.apply_gradients(dense_optimizer.compute_gradients(loss, dense)),
            create_hash_optimizer(learning_rate=SPARSE_RATE).apply_gradients(zip(tf.gradients(loss, sparse), sparse)),
        )
        self.scores = self._logits(self.score_input)
        start_asc_pipeline()

    def held_out_scores(self, session, arrays, first):
        """Of all batches from `first` on, by the model as it is; the scoring input then stands at `first` again."""
        rest = {name: array[first:] for name, array in arrays.items()}
        self.score_input.start(session, rest)
        scores = [session.run(self.scores) for _ in rest["label"]]
        self.score_input.start(session, rest)
        return np.concatenate(scores)

    def total(self, name):
        """A number of stats(), of all tables."""
        return sum(table.stats()[name] for table in self._tables.values())

    def _logits(self, source):
        embeddings = []
        for spec in source.specs:
            combiner = "sum" if source.batch[spec.index_key].shape.rank == 2 else None
            table = self._tables[spec.table_name]
            embeddings.append(
                sparse_lookup(table, spec, is_train=source.is_train, batch=source.batch, combiner=combiner)
            )
        with v1.variable_scope("model", reuse=v1.AUTO_REUSE):
            hidden = tf.nn.relu(_dense("hidden", tf.concat(embeddings, axis=1), HIDDEN))
            deep = tf.squeeze(_dense("output", hidden, 1), axis=1)
        return deep + tf.add_n([embedding[:, 0] for embedding in embeddings])


def _dense(name, x, width):
    with v1.variable_scope(name):
        kernel = v1.get_variable("kernel", [x.shape[1], width])
        bias = v1.get_variable("bias", [width], initializer=v1.zeros_initializer())
    return tf.matmul(x, kernel) + bias


class _Input:
    """Prepared batches, one for each index of the arrays' first axis."""

    def __init__(self, features, arrays, setting, is_train):
        self.is_train = is_train
        thresholds = {
            "access_threshold": setting.access_threshold,
            "eviction_threshold": setting.eviction_days * DAY if setting.eviction_days >= 0 else -1,
        }
        # What only training needs, only training says.
        tracked = set(features) - set(setting.spared) if is_train else ()
        self.specs = [FeatureSpec(name, **(thresholds if name in tracked else {})) for name in features]
        timestamp = [FeatureSpec("time", is_timestamp=True)] if is_train else []
        self._fed = {name: v1.placeholder(array.dtype, [None, *array.shape[1:]]) for name, array in arrays.items()}
        dataset = tf.data.Dataset.from_tensor_slices(self._fed)
        dataset = dataset.map(get_asc_insert_func(self.specs + timestamp, is_training=is_train)).prefetch(4)
        options = tf.data.Options()
        options.autotune.enabled = False  # starting an iterator anew would wait for its thread
        self._iterator = v1.data.make_initializable_iterator(dataset.with_options(options))
        self.batch = self._iterator.get_next()

    def start(self, session, arrays):
        session.run(self._iterator.initializer, {self._fed[name]: array for name, array in arrays.items()})


def averages_auc(data) -> float:
    """The AUC of a model without gradients: how much the user and the movie were liked before this batch, added up."""
    numbers = (data.user, data.movie)
    liked = [np.full(1 + number.max(), 1.0) for number in numbers]
    met = [np.full(len(counts), 2.0) for counts in liked]
    scores = np.zeros(len(data.label))
    for first in range(0, len(scores), BATCH):
        batch = slice(first, first + BATCH)
        for i, number in enumerate(numbers):
            keys = number[batch]
            scores[batch] += liked[i][keys] / met[i][keys]
            np.add.at(liked[i], keys, data.label[batch])
            np.add.at(met[i], keys, 1.0)
    first = int(_SCORED * len(scores))
    return clicks.auc(data.label[first:], scores[first:])


def markdown(data, outcomes, seconds) -> str:
    host = machine.describe()
    keys = {name: np.unique(ids, return_counts=True)[1] for name, ids in data.features.items()}
    seeds = len(next(iter(outcomes.values())))
    days = (data.time[-1] - data.time[0]) / DAY
    clicked = 100 * data.label.mean()
    many = seeds > 1
    head = (
        "# MovieLens-100K: feature admission and eviction\n\n"
        f"Commit {host['commit']}, {host['date']}. {host['cpu']} ({host['vectors']}), {host['cores']} cores, "
        f"{host['memory']}, Linux {host['kernel']}, Python {host['python']}.\n"
        f"{host['versions']['mx_rec and TensorFlow']}. {seconds / 60:.1f} minutes for all runs. "
        "Made by `python -m benchmarks.movielens`.\n\n"
        f"One pass over {len(data.label):,} ratings of {days:.0f} days in time order, in batches of {BATCH}; a click "
        f"is a rating of 4 or 5 ({clicked:.0f} %). {len(keys)} tables of dim {DIM}, LazyAdam at {SPARSE_RATE}; "
        f"eviction every {EVICT_EVERY} steps. {'Means' if many else 'Numbers'} of {seeds} seed{'s' if many else ''}"
        f"{'; ± is half the distance of the highest and the lowest' if many else ''}.\n\n"
        "- AUC: of the second half of the ratings, each batch predicted before it is trained on. For comparison, how "
        "much the user and the movie were liked before the batch, added up without any training, has "
        f"{averages_auc(data):.4f}.\n"
        "- − plain: the difference to the plain run of the same seed.\n"
        "- AUC, last 10 %: of the last tenth, by the model that has seen none of it.\n"
        "- refused: keys that got no row, of all that occurred; one that comes back after it was forgotten is another. "
        "With a filter an estimate, here too low: keys that share its cells are taken for one.\n"
        f"- MB of rows: rows at the end × {_ROW_BYTES} bytes (embedding and slots). MB of tables: "
        '`stats()["bytes"]`, which is also index, counts, refused keys, and room for more; evicted rows stay allocated '
        "for new keys, so with eviction it tells the peak.\n"
        "- seconds: of the loop that scores and trains, the median; other programs ran on the machine, too.\n"
        "- crosses only: the users and the movies themselves are neither refused nor evicted. These rows were added "
        "after those above them had shown a loss.\n\n"
    )
    plain = outcomes[SETTINGS[0]]
    columns = ("", "AUC", "− plain", "AUC, last 10 %", "rows at the end", "peak rows", "refused", "evicted")
    columns += ("MB of rows", "MB of tables", "seconds")
    rows = []
    for setting, runs in outcomes.items():
        gains = [run.auc - base.auc for run, base in zip(runs, plain)]
        rows.append(
            (
                setting.name,
                _mean([run.auc for run in runs]),
                "" if runs is plain else _mean(gains, sign="+"),
                _mean([run.held_out_auc for run in runs]),
                *(f"{_whole(runs, name):,}" for name in ("rows", "peak_rows", "refused", "evicted")),
                f"{_whole(runs, 'rows') * _ROW_BYTES / 1e6:.1f}",
                f"{_whole(runs, 'bytes') / 1e6:.1f}",
                f"{statistics.median(run.seconds for run in runs):.1f}",
            )
        )
    features = [
        (name, f"{len(counts):,}", f"{100 * np.mean(counts == 1):.0f} %", f"{100 * np.mean(counts < 5):.0f} %")
        for name, counts in keys.items()
    ]
    return (
        head
        + _table(columns, rows)
        + "\n\n## The features\n\n"
        + _table(("", "keys", "that occur once", "less than 5 times"), features)
        + "\n"
    )


def _mean(values, sign=""):
    spread = f" ± {(max(values) - min(values)) / 2:.4f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):{sign}.4f}{spread}"


def _whole(runs, name):
    return round(statistics.mean(getattr(run, name) for run in runs))


def _table(columns, rows):
    lines = [columns, ("---",) * len(columns), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _say(text):
    print(f"== {text}", file=sys.stderr, flush=True)


def _parse():
    parser = argparse.ArgumentParser(prog="python -m benchmarks.movielens", description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help=f"one seed, {QUICK:,} ratings: under 40 s")
    parser.add_argument(
        "--data-dir",
        type=pathlib.Path,
        default=pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "mx_rec",
        help="where MovieLens-100K is kept once it was fetched; default %(default)s",
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
