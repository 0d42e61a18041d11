"""Runner: runs the workers of a group by turns, in random order, and repeats runs that other load disturbed."""

import contextlib
import dataclasses
import json
import os
import random
import subprocess
import sys
import time

from benchmarks import environments, memory, paths, scratch

CALM = 0.08  # more than this part of one core spent elsewhere, or stolen by the hypervisor, and a run is repeated
PAUSE = 0.1  # between runs: input pipelines fill their buffers, which must not disturb the next peer
SLOW_STEP_MS = 1500  # a slower step is run once a round


@dataclasses.dataclass(frozen=True)
class Worker:
    """A peer in one configuration. `label` is its name in the report."""

    label: str
    module: str  # in benchmarks.peers
    environment: environments.Environment
    options: dict
    gigabytes: float  # at most; for fitting a group into memory


@dataclasses.dataclass(frozen=True)
class Group:
    """What is compared: workers run by turns. Ratios are formed within a group only."""

    name: str
    title: str
    workers: tuple[Worker, ...]
    measures: tuple[str, ...]
    rounds: int
    seconds: float  # of a run
    steps: int = 3  # of a run at least
    retries: int = 5
    is_growing: bool = False  # workers take new memory while they are timed
    left_out: dict = dataclasses.field(default_factory=dict)  # label -> why it is not among the workers


class Failed(Exception):
    """A worker did not get ready, or died; the message says where its words are."""


class _Process:
    def __init__(self, group, worker):
        python = environments.python(worker.environment)
        paths.LOGS.mkdir(parents=True, exist_ok=True)
        self._log = paths.LOGS / f"{group.name}-{worker.label}.log".replace(" ", "-").replace("/", "-")
        environment = dict(
            os.environ, TF_CPP_MIN_LOG_LEVEL="2", TF_USE_LEGACY_KERAS="1", CUDA_VISIBLE_DEVICES="", PYTHONUNBUFFERED="1"
        )
        with open(self._log, "w") as log:
            self._process = subprocess.Popen(
                [python, "-m", f"benchmarks.peers.{worker.module}", json.dumps(worker.options)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=paths.ROOT,
                env=environment,
                text=True,
            )
        self.label = worker.label
        self.measures, self.info = (), {}

    def wait(self):
        ready = self._answer()
        self.measures, self.info = ready["measures"], ready["info"]

    def run(self, measure, seconds, steps, retries):
        """The calmest of at most 1 + retries runs, ending with the first that nothing disturbed."""
        best = None
        for attempt in range(retries + 1):
            time.sleep(PAUSE if attempt == 0 else 2.0)
            own, (busy, stolen), start = self._ticks(), machine_ticks(), time.monotonic()
            result = self._request({"run": measure, "seconds": seconds, "steps": steps})
            core_ticks = (time.monotonic() - start) * os.sysconf("SC_CLK_TCK")
            busy_after, stolen_after = machine_ticks()
            own = self._ticks() - own
            result["cores"] = own / core_ticks
            disturbed = max(0.0, busy_after - busy - own, stolen_after - stolen) / core_ticks
            result["disturbed"], result["repeated"] = disturbed, attempt
            if best is None or disturbed < best["disturbed"]:
                best = result
            best["repeated"] = attempt
            if disturbed < CALM:
                break
        return best

    def close(self):
        self._process.kill()  # taking gigabytes of tables apart in order would take longer than a round
        self._process.wait()
        self._process.stdout.close()
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()

    def _request(self, request):
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        return self._answer()

    def _answer(self):
        line = self._process.stdout.readline()
        while line and not line.startswith("{"):  # libraries print while they are imported
            line = self._process.stdout.readline()
        if not line:
            code = self._process.wait()
            if code < 0:
                raise Failed(f"killed by signal {-code}" + (", as if memory had run out" if code == -9 else ""))
            words = [text for text in self._log.read_text(errors="replace").splitlines() if text.strip()]
            reason = environments.impersonal(words[-1]) if words else "no message"
            raise Failed(f"exit code {code}: {reason} ({self._log.name})")
        return json.loads(line)

    def _ticks(self):
        with open(f"/proc/{self._process.pid}/stat") as numbers:
            fields = numbers.read().rsplit(")", 1)[1].split()
        return int(fields[11]) + int(fields[12])


def run(group: Group) -> dict:
    """{"name", "title", "workers": {label: {"info", "runs": {measure: [...]}}}, "failed": {label: reason}}."""
    started, workers, failed = [], [], dict(group.left_out)
    start = time.monotonic()
    try:
        for worker in group.workers:
            try:
                started.append(_Process(group, worker))
            except environments.Absent as reason:
                failed[worker.label] = str(reason)
        for worker in started:
            try:
                worker.wait()
                workers.append(worker)
            except Failed as reason:
                failed[worker.label] = str(reason)
        for label, reason in failed.items():
            say(f"{group.name}: {label} is absent: {reason}")
        ready = ", ".join(worker.label for worker in workers)
        say(f"{group.name}: {ready} ready after {time.monotonic() - start:.0f} s")
        runs = _rounds(group, workers, failed)
    finally:
        for worker in started:
            worker.close()
        scratch.clean()
    return {
        "name": group.name,
        "title": group.title,
        "workers": {worker.label: {"info": worker.info, "runs": runs[worker.label]} for worker in workers},
        "failed": failed,
    }


def _rounds(group, workers, failed):
    runs = {worker.label: {} for worker in workers}
    steps = {}
    for worker in workers:
        for measure in group.measures:
            if measure in worker.measures:
                steps[worker, measure] = group.steps
    for worker, measure in list(steps) if group.seconds else []:  # warm-up; the others have nothing to repeat
        if worker.label in failed:
            continue
        try:
            if worker.run(measure, group.seconds, 2, 0)["median_ms"] > SLOW_STEP_MS:
                steps[worker, measure] = 1
        except Failed as reason:
            failed[worker.label] = str(reason)
    order = random.Random(1)
    for number in range(group.rounds):
        turns = [turn for turn in steps if turn[0].label not in failed]
        order.shuffle(turns)
        if group.is_growing:
            memory.touch(sum(worker.gigabytes for worker in group.workers))
        for worker, measure in turns:
            try:
                result = worker.run(measure, group.seconds, steps[worker, measure], group.retries)
                runs[worker.label].setdefault(measure, []).append(result)
            except Failed as reason:
                failed[worker.label] = str(reason)
                say(f"{group.name}: {worker.label} failed: {reason}")
        say(f"{group.name}: round {number + 1} of {group.rounds}")
    return runs


def machine_ticks() -> tuple[int, int]:
    """Returns (ticks that any process ran, ticks stolen by the hypervisor) since boot, all cores."""
    with open("/proc/stat") as lines:
        user, nice, system, _, _, interrupt, soft_interrupt, stolen = map(int, lines.readline().split()[1:9])
    return user + nice + system + interrupt + soft_interrupt, stolen


def say(text):
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)
