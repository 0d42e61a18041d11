"""What the TensorFlow peers share that are fed with arrays of ids."""


class Fed:
    """Steps of a session whose placeholder `ids` is fed with one of `batches` after the other."""

    def __init__(self, session, ids, batches):
        self._session, self._ids, self._batches = session, ids, batches

    def step(self, op):
        """A function of the step's number that runs `op`."""
        call = self._session.make_callable(op, feed_list=[self._ids])
        return lambda i: call(self._batches[i % len(self._batches)])

    def check_training(self, output, train):
        """Runs the step `train` once; it must change every row of `output` that the first batch reads."""

        def read():
            return self._session.run(output, {self._ids: self._batches[0]})

        untrained = read()
        train(0)
        assert (read() != untrained).any(axis=1).all(), "training must change the rows"
