"""What the demo tells while it runs: lines, a progress bar, TensorBoard logs, the summary at the end.

Rank 0 speaks for all ranks: samples are those of the whole batch, rows and bytes those of all. The others take part,
as each knows its own rows alone.
"""

import importlib.util
import json
import os
import shlex
import sys
import time

import tensorflow as tf
from tqdm import tqdm

from mx_rec import _ranks
from mx_rec.core.table_stats import histograms_of, summary_of

_LOG_EVERY = 10  # steps between points of the loss curve
_REFRESH = 0.5  # seconds between updates of the bar's numbers
_BAR = "{percentage:3.0f}%|{bar:10}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}]{postfix}"


def say(text="") -> None:
    """Prints a line above the bar, at once also where the output is a file or a pipe."""
    tqdm.write(text, file=sys.stdout)
    sys.stdout.flush()


def tensorboard_command(logs) -> str:
    """Returns the shell command that shows the logs."""
    program = os.path.join(os.path.dirname(sys.executable), "tensorboard")
    if os.path.exists(program):
        command = [program.removeprefix(os.getcwd() + os.sep)]
    else:
        command = [sys.executable, "-m", "tensorboard.main"]
    command = shlex.join([*command, "--logdir", logs])
    return command if importlib.util.find_spec("tensorboard") else f"pip install tensorboard && {command}"


class Report:
    """The progress of training from step `first` to step `last`.

    A step's time is that since the last one or since start_clock(), whichever is later: the samples per second leave
    out evaluations and saves, and nothing else.
    """

    def __init__(self, tables, logs, first, last, batch_size):
        self._tables = tables
        self._batch_size = batch_size
        self._writer = None
        if _ranks.facts().rank == 0:
            self._writer = tf.compat.v1.summary.FileWriter(logs)
            # What a killed run logged after its last checkpoint will be logged again; TensorBoard is to drop the old.
            start = tf.compat.v1.SessionLog(status=tf.compat.v1.SessionLog.START)
            self._writer.add_session_log(start, global_step=first + 1)
        # Without a terminal there is no bar, only the lines of the evaluations.
        disable = None if self._writer else True
        self._bar = tqdm(initial=first, total=last, disable=disable, dynamic_ncols=True, leave=False, bar_format=_BAR)
        self.steps, self._seconds = 0, 0.0  # of training, in this process
        self._clock = None  # when the step under way began
        self._window = (0, 0.0)  # steps and seconds at the last line
        self._losses = []  # since the last line
        self._refreshed = 0.0

    def start_clock(self) -> None:
        self._clock = time.monotonic()

    def step(self, step, loss) -> None:
        """Notes that step number `step`, from 1, has been trained."""
        now = time.monotonic()
        self._seconds += now - self._clock
        self._clock = now
        self.steps += 1
        self._losses.append(loss)
        if step % _LOG_EVERY == 0 and self._writer is not None:
            self._log(step, loss=loss)
        self._bar.update()
        if not self._bar.disable and now - self._refreshed > _REFRESH:
            self._refreshed = now
            rows = " ".join(f"{name.replace('_table', '')} {_brief(t.size())}" for name, t in self._tables.items())
            speed = f"{_brief(self.samples_per_second())} samples/s"
            self._bar.set_postfix_str(f"loss {loss:.3f}, {speed}, rows: {rows}", refresh=False)

    def evaluation(self, step, auc) -> None:
        """Tells that the model after `step` steps reached `auc`."""
        points, stats = {"auc": auc}, self.stats()
        text = f"step {step:>6,}   AUC {auc:.4f}"
        if self._losses:
            steps, seconds = self._window
            rate = (self.steps - steps) * self._batch_size / (self._seconds - seconds)
            loss = sum(self._losses) / len(self._losses)
            rows = sum(its["rows"] for its in stats.values())
            text += f"   loss {loss:.4f}   {rate:>9,.0f} samples/s   {rows:>9,} rows"
            points["samples_per_second"] = rate
            self._window, self._losses = (self.steps, self._seconds), []
        if self._writer is None:
            return
        self._log(step, **points)
        self._writer.add_summary(summary_of(stats), global_step=step)
        self._writer.add_summary(histograms_of(self._tables.values()), global_step=step)
        self._writer.flush()
        say(text)

    def samples_per_second(self) -> float:
        """The mean since the start of this process; 0 if it trained nothing."""
        return self.steps * self._batch_size / self._seconds if self.steps else 0.0

    def summary(self, facts) -> str:
        """Returns the tables, then the pairs of `facts`, in columns."""
        counted = ("seen", "refused", "evicted")
        stats = self.stats()
        stats["all tables"] = {key: sum(s[key] for s in stats.values()) for key in ("rows", "bytes", *counted)}
        columns = counted if stats["all tables"]["refused"] + stats["all tables"]["evicted"] else ()
        lines = [f"{'table':<16}{'rows':>10}{'dim':>6}{'memory':>12}" + "".join(f"{key:>10}" for key in columns)]
        for name, its in stats.items():
            dim = self._tables[name].embedding_size if name in self._tables else ""
            cells = "".join(f"{its[key]:>10,}" for key in columns)
            lines.append(f"{name:<16}{its['rows']:>10,}{dim:>6}{its['bytes'] / 1e6:>9.1f} MB{cells}")
        width = max(map(len, facts)) + 3
        return "\n".join([*lines, "", *(f"{name:<{width}}{value}" for name, value in facts.items())])

    def close(self) -> None:
        self._bar.close()
        if self._writer is not None:
            self._writer.close()

    def stats(self) -> dict:
        """Returns what each table's stats() count, over all ranks."""
        mine = {name: table.stats() for name, table in self._tables.items()}
        parts = [json.loads(told) for told in _ranks.gather("demo/stats", json.dumps(mine).encode())]
        return {name: {what: sum(part[name][what] for part in parts) for what in its} for name, its in mine.items()}

    def _log(self, step, **points):
        values = [tf.compat.v1.Summary.Value(tag=tag, simple_value=value) for tag, value in points.items()]
        self._writer.add_summary(tf.compat.v1.Summary(value=values), global_step=step)


def _brief(number):
    return f"{number / 1e3:.0f}k" if number >= 10_000 else f"{number:.0f}"
