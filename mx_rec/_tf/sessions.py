"""Sessions: TensorFlow's classes of them, and what a session keeps to itself."""

from tensorflow.python.client.pywrap_tf_session import TF_CloseSession, TF_DeleteSession
from tensorflow.python.client.session import BaseSession as BaseSession
from tensorflow.python.client.session import SessionInterface as SessionInterface


def is_open(session) -> bool:
    """Whether nobody has closed the session."""
    return not session._closed


def give_up(session) -> None:
    """Lets a session go whose making failed before TensorFlow began it: its destructor looks for what it lacks."""
    session._session = None


def take(session):
    """Takes away what the session consists of, for `delete`; None if it has nothing. It is closed from then on, and
    nobody else deletes it."""
    taken = session._session
    if taken is not None:
        session._session, session._closed = None, True
    return taken


def delete(taken) -> None:
    """Closes and deletes what was taken from a session. Waits for what it still runs."""
    TF_CloseSession(taken)
    TF_DeleteSession(taken)
