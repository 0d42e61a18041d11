"""LazyAdam under the name that scripts with dynamic expansion use. The same optimizer: see lazy_adam."""

from mx_rec.optimizers.lazy_adam import LazyAdam


def create_hash_optimizer_by_address(
    learning_rate=0.001, beta1=0.9, beta2=0.999, epsilon=1e-8, name="LazyAdamByAddress"
):
    """A LazyAdam optimizer. Rows may be given by address or by variable, as with every optimizer here."""
    return LazyAdam(learning_rate, beta1, beta2, epsilon, name)
