"""`mx_rec run`: a script runs as with `python script.py`, and has TensorFlow 1 besides."""

import os
import subprocess
import sys
import textwrap

import pytest

pytestmark = pytest.mark.border


def call(directory, *arguments, **environment):
    """`python ARGUMENTS` in a directory."""
    inherited = {name: value for name, value in os.environ.items() if "RANK" not in name and "OMPI" not in name}
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=directory,
        env={**inherited, **environment},
        capture_output=True,
        text=True,
        timeout=200,
    )


def write(directory, text, name="script.py"):
    directory.mkdir(exist_ok=True)
    path = directory / name
    path.write_text(textwrap.dedent(text))
    return path


def assert_same(directory, script, *arguments):
    """What both ways of running a script give is the same: output, errors and exit status. Returns it."""
    plain = call(directory, script, *arguments)
    ours = call(directory, "-m", "mx_rec", "run", script, *arguments)
    assert (ours.stdout, ours.stderr, ours.returncode) == (plain.stdout, plain.stderr, plain.returncode)
    return ours


def test_a_script_is_main_and_sees_its_own_arguments_and_directory(tmp_path):
    write(tmp_path / "own", "NUMBER = 7\n", "helper.py")
    script = write(
        tmp_path / "own",
        '''
        """A script."""
        import pickle, sys
        import helper

        class Thing:
            pass

        print(__name__, __file__, __doc__, __package__, __spec__)
        print(sys.argv, sys.path[0], helper.NUMBER, sys.modules["__main__"].Thing is Thing)
        print(type(pickle.loads(pickle.dumps(Thing()))) is Thing, "tensorflow" in sys.modules)
        ''',
    )
    out = assert_same(tmp_path, script, "-h", "--flag=1", "run", "--", "-n").stdout
    assert "'-h', '--flag=1', 'run', '--', '-n'" in out and out.endswith("True False\n")
    assert_same(tmp_path, script.relative_to(tmp_path))


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("import sys; sys.exit(3)", 3),
        ("import sys; sys.exit('a message')", 1),
        ("raise SystemExit", 0),
        ("def f():\n    raise KeyError('x')\n\ntry:\n    f()\nexcept KeyError:\n    raise ValueError('y')", 1),
        ("x = (", 1),
        ("import atexit; atexit.register(print, 'bye'); import no_such_module", 1),
        ("open('/nonexistent')", 1),
    ],
)
def test_errors_and_exit_status_are_those_of_python(text, status, tmp_path):
    assert assert_same(tmp_path, write(tmp_path, text)).returncode == status


def test_what_is_no_script_is_refused(tmp_path):
    (tmp_path / "binary.py").write_bytes(b"\x00\x01")
    for path, message in (("missing.py", "there is no file"), (".", "is a directory"), ("binary.py", "not a Python")):
        done = call(tmp_path, "-m", "mx_rec", "run", path)
        assert done.returncode == 2
        assert done.stderr.startswith("mx_rec run: ") and message in done.stderr and "Traceback" not in done.stderr
    assert call(tmp_path, "-m", "mx_rec", "run").returncode == 2


def test_launchers_variables_say_one_rank_unless_they_are_set(tmp_path):
    script = write(
        tmp_path,
        """
        import os
        names = ("RANK_ID", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK")
        sizes = ("RANK_SIZE", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE")
        print(*(os.environ[name] for name in names), *(os.environ[name] for name in sizes))
        """,
    )
    assert call(tmp_path, "-m", "mx_rec", "run", script).stdout == "0 0 0 1 1 1\n"
    given = {"OMPI_COMM_WORLD_RANK": "3", "RANK_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}
    assert call(tmp_path, "-m", "mx_rec", "run", script, **given).stdout == "3 3 3 4 4 2\n"


def test_tensorflow_has_the_names_and_the_behaviour_of_version_1(tmp_path):
    write(
        tmp_path,
        """
        import tensorflow.contrib.layers as layers
        from tensorflow.contrib.lookup import HashTable, KeyValueTensorInitializer, MutableHashTable

        import tensorflow as tf

        regularizer = tf.contrib.layers.l2_regularizer(0.5)
        """,
        "beside.py",
    )
    script = write(
        tmp_path,
        """
        import numpy as np
        import tensorflow as tf
        import tensorflow.compat.v1 as v1
        from tensorflow.python.framework import ops
        from tensorflow import flags

        import beside

        tf.app.flags.DEFINE_integer("number", 5, "a number")
        FLAGS = flags.FLAGS
        tf.logging.set_verbosity(tf.logging.ERROR)

        def main(unused):
            assert not tf.executing_eagerly() and v1 is tf.compat.v1 and ops.get_default_graph is not None
            assert tf.Tensorshape([3])[0].value == 3 and tf.Tensorshape is tf.TensorShape
            assert beside.tf is tf and tf.AUTO_REUSE is v1.AUTO_REUSE and tf.nest is not None
            dataset = tf.data.Dataset.from_tensor_slices(np.arange(6)).batch(3)
            iterator = dataset.map(lambda x: x + 1).make_initializable_iterator()
            once = dataset.prefetch(1).make_one_shot_iterator().get_next()
            words = beside.HashTable(beside.KeyValueTensorInitializer(["a", "b"], [10, 20], tf.string, tf.int64), -1)
            index = tf.contrib.lookup.index_table_from_tensor(tf.constant(["x", "y"]), num_oov_buckets=1)
            x = tf.placeholder(tf.float32, [None, 3])
            with tf.variable_scope("net", regularizer=beside.regularizer):
                y = beside.layers.fully_connected(
                    x, 2, None, weights_initializer=tf.ones_initializer(),
                    weights_regularizer=tf.contrib.layers.l1_regularizer(2.0), scope="first")
                tf.get_variable("w", [2], initializer=tf.contrib.layers.xavier_initializer())
            assert sorted(v.name for v in tf.trainable_variables()) == [
                "net/first/biases:0", "net/first/weights:0", "net/w:0"]
            losses = tf.losses.get_regularization_losses()
            assert len(losses) == 3, losses
            with tf.Session() as session:
                session.run([tf.global_variables_initializer(), tf.tables_initializer(), iterator.initializer])
                assert session.run(iterator.get_next()).tolist() == [1, 2, 3]
                assert session.run(once).tolist() == [0, 1, 2]
                assert session.run(words.lookup(tf.constant(["b", "z"]))).tolist() == [20, -1]
                assert session.run(index.lookup(tf.constant(["y", "?"]))).tolist() == [1, 2]
                assert session.run(y, {x: [[1, 2, 3]]}).tolist() == [[6, 6]]
                assert 12.0 in session.run(losses)
            try:
                tf.contrib.slim
            except AttributeError as error:
                print(error)
            print(FLAGS.number)

        if __name__ == "__main__":
            tf.app.run()
        """,
    )
    done = call(tmp_path, "-m", "mx_rec", "run", script, "--number", "9")
    assert done.returncode == 0, done.stderr[-3000:]
    refusal, number = done.stdout.splitlines()
    assert number == "9"
    assert "no tensorflow.contrib.slim" in refusal and "layers, lookup" in refusal


def test_installed_packages_have_the_tensorflow_that_they_always_have(tmp_path):
    script = write(
        tmp_path,
        """
        import tensorflow as tf
        import mx_rec._lowering.lookups, sys
        from mx_rec.npu import NPUEstimator  # imports tensorflow_estimator, where TensorFlow has no part for it, too
        real = sys.modules["tensorflow"]
        import mx_rec.graph.modifier as modifier
        assert modifier.tf is real and real is not tf
        assert real.data.Dataset is not tf.data.Dataset or not hasattr(real, "Session")
        """,
    )
    done = call(tmp_path, "-m", "mx_rec", "run", script)
    assert done.returncode == 0, done.stderr[-3000:]
