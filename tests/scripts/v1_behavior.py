"""A plugin of pytest: all tests run as scripts do that begin with `tf.compat.v1.disable_v2_behavior()`.

Dense variables stay resources. The reference variables of version 1 change in place while other ops of the step still
read them, so that two runs of a stock model differ: nothing that is to be equal could be compared.
"""

import tensorflow as tf

tf.compat.v1.disable_v2_behavior()
tf.compat.v1.enable_resource_variables()
