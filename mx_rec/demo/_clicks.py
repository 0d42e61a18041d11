"""Clicks: a generated log of "was shown this item, clicked or not", whose true click probabilities are known.

Users and items follow power laws. Everyone has a hidden taste, every item hidden traits, and

    P(click) = sigmoid(offset + appeal[item] + STRENGTH * taste[user] . traits[item])

A taste is mostly that of the user's segments and partly the user's own; so with traits and the item's category. The
model never sees tastes, traits or appeals: it has ids only, and ids of things never shown in training tell it nothing.
Whoever knows the probabilities ranks best, so their AUC is the best that any model can reach.
"""

import dataclasses

import numpy as np

USERS = 200_000
ITEMS = 20_000
SEGMENTS = 400
CATEGORIES = 200
SEGMENTS_PER_USER = 3
HISTORY = 5

_DIM = 6  # of tastes and traits
_STRENGTH = 1.6
_OFFSET = -1.0  # about a third of the impressions are clicked
_OWN = 0.1  # the part of a taste's (trait's) variance that is the user's (item's) own, not its segments' (category's)
_CANDIDATES = 16  # popular items out of which a user's history is the best HISTORY
_EVALUATION = -1  # as a step number: the stream of the evaluation set


@dataclasses.dataclass(frozen=True)
class Log:
    """Impressions as [steps, batch size] numbers of users and items; the features follow from `Clicks.features_of`."""

    user: np.ndarray
    item: np.ndarray
    label: np.ndarray


@dataclasses.dataclass(frozen=True)
class Batch:
    features: dict  # name -> int64 ids
    label: np.ndarray  # float32 [n], 1 is a click
    probability: np.ndarray  # float64 [n], the true one
    appeal: np.ndarray  # float64 [n], what of the logit does not depend on the user

    @property
    def best_auc(self) -> float:
        """The AUC that no model can surpass, but by luck."""
        return auc(self.label, self.probability)

    @property
    def impersonal_auc(self) -> float:
        """The AUC of the best ranking that is the same for all users."""
        return auc(self.label, self.appeal)


class Clicks:
    """The log of one seed. Step n is the same in every run, whatever was drawn before."""

    def __init__(self, seed: int):
        self._seed = seed
        rng = np.random.default_rng([seed, 0])
        self._segments = _power_law(rng, SEGMENTS, (USERS, SEGMENTS_PER_USER))
        segment_tastes = rng.standard_normal((SEGMENTS, _DIM))
        shared = segment_tastes[self._segments].sum(axis=1) / np.sqrt(SEGMENTS_PER_USER)
        self._tastes = _blend(shared, rng.standard_normal((USERS, _DIM)))
        self._categories = _power_law(rng, CATEGORIES, ITEMS)
        category_traits = rng.standard_normal((CATEGORIES, _DIM))
        self._traits = _blend(category_traits[self._categories], rng.standard_normal((ITEMS, _DIM))) / np.sqrt(_DIM)
        self._appeal = rng.standard_normal(ITEMS)
        self._history = self._choose_history(rng)

    def log(self, first: int, last: int, size: int) -> Log:
        """Returns the impressions of training steps [first, last), from 0."""
        user = np.empty((max(0, last - first), size), np.int32)
        item, label = np.empty_like(user), np.empty(user.shape, np.float32)
        for row, step in enumerate(range(first, last)):
            user[row], item[row], label[row], _ = self._draw(step, size)
        return Log(user, item, label)

    @property
    def features_of(self) -> dict:
        """Feature -> ("user" or "item", the ids [count, ...] of each user or item)."""
        return {
            "user": ("user", _ids("user", np.arange(USERS))),
            "segments": ("user", _ids("segment", self._segments)),
            "history": ("user", _ids("item", self._history)),
            "item": ("item", _ids("item", np.arange(ITEMS))),
            "category": ("item", _ids("category", self._categories)),
        }

    def evaluation(self, size: int) -> Batch:
        """Impressions that no training step shows."""
        user, item, label, probability = self._draw(_EVALUATION, size)
        number = {"user": user, "item": item}
        return Batch(
            features={name: ids[number[whose]] for name, (whose, ids) in self.features_of.items()},
            label=label,
            probability=probability,
            appeal=self._appeal[item],
        )

    def _draw(self, step, size):
        """Returns (users, items, labels, click probabilities) of one step."""
        rng = np.random.default_rng([self._seed, 1, step + 1])
        user, item = _power_law(rng, USERS, size), _power_law(rng, ITEMS, size)
        affinity = np.einsum("nd,nd->n", self._tastes[user], self._traits[item])
        probability = 1.0 / (1.0 + np.exp(-(_OFFSET + self._appeal[item] + _STRENGTH * affinity)))
        return user, item, (rng.random(size) < probability).astype(np.float32), probability

    def _choose_history(self, rng):
        """Returns [USERS, HISTORY] items: what each user liked best of some popular ones."""
        candidates = _power_law(rng, ITEMS, (USERS, _CANDIDATES))
        affinity = np.einsum("ud,ucd->uc", self._tastes.astype(np.float32), self._traits.astype(np.float32)[candidates])
        best = np.argpartition(affinity, -HISTORY, axis=1)[:, -HISTORY:]
        return np.take_along_axis(candidates, best, axis=1)


def auc(label, score) -> float:
    """Returns the probability that a click scores above a non-click; ties count half."""
    values, group, count = np.unique(score, return_inverse=True, return_counts=True)
    rank = np.cumsum(count) - (count - 1) / 2.0  # mean rank of equal scores, from 1
    clicked = np.asarray(label) > 0.5
    clicks = int(clicked.sum())
    others = clicked.size - clicks
    if not clicks or not others:
        raise ValueError(f"an AUC needs clicks and non-clicks, got {clicks} and {others}")
    return float((rank[group.reshape(-1)][clicked].sum() - clicks * (clicks + 1) / 2.0) / (clicks * others))


def _blend(shared, own):
    return np.sqrt(1.0 - _OWN) * shared + np.sqrt(_OWN) * own


def _power_law(rng, count, shape):
    """Numbers below `count`; number r is drawn in proportion to (r + 0.005 count) ** -1, roughly."""
    low = 0.005 * count  # the head is flattened: one user is not a tenth of the traffic
    return np.minimum((low * ((low + count) / low) ** rng.random(shape) - low).astype(np.int64), count - 1)


def _ids(kind, number):
    """Numbers as hashed 64-bit ids, as real logs have them: spread over the whole range, half of them negative."""
    # splitmix64: one-to-one, so that two things never share an id.
    hashed = number.astype(np.uint64) + np.uint64(int.from_bytes(kind[:8].encode().ljust(8), "little"))
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        hashed = (hashed ^ (hashed >> np.uint64(shift))) * np.uint64(factor)
    return (hashed ^ (hashed >> np.uint64(31))).view(np.int64)
