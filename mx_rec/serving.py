"""Serving: import this module to load exported models.

    import mx_rec.serving
    model = tf.saved_model.load(export_dir)

It registers the ops of the models with TensorFlow, and does nothing else: no `init` is needed, and the model itself
loads its tables.
"""

from mx_rec._native import library

library.ops()
