# cython: language_level=3
"""The short way of `send`, compiled: a record of bytes goes into its open batch in one C call.

It takes no lock. From the look at `queue.open` to the end of `append` no Python code runs and
nothing is made that could start a garbage collection, so no other thread has a turn in between; and
whoever closes a batch makes `queue.open` None before it counts the records. What cannot be done in
this way is left to `otherwise`, which is `send` in plain Python, under the lock.
"""

from cpython.dict cimport PyDict_GetItemWithError
from cpython.object cimport PyObject, PyTypeObject
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE, PyTuple_SET_ITEM
from posix.time cimport CLOCK_REALTIME, clock_gettime, timespec

from headwater.client.producer.futures import SendFuture
from headwater.records.codec import murmur2

cdef extern from "Python.h":
    object PyType_GenericAlloc(PyTypeObject* type, Py_ssize_t items)

cdef object _murmur2 = murmur2
cdef PyTypeObject* _future_type = <PyTypeObject*>SendFuture


cdef class Intake:
    """`send` of one producer."""

    cdef dict topics
    cdef object otherwise
    cdef object wall_ms

    def __init__(self, dict topics not None, otherwise, wall_ms=None):
        """`topics` is read at each call; without `wall_ms` the time is the system's."""
        self.topics = topics
        self.otherwise = otherwise
        self.wall_ms = wall_ms

    def send(
        self, topic, value=None, key=None, partition=None, headers=(), timestamp=None,
        on_delivery=None,
    ):
        """As `Sending.send`."""
        cdef PyObject* known
        cdef object queue, batch, index, stamp = timestamp
        cdef tuple queues
        if (
            partition is None
            and on_delivery is None
            and (value is None or type(value) is bytes)
            and (key is None or type(key) is bytes)
            and type(topic) is str
            and not headers
        ):
            known = PyDict_GetItemWithError(self.topics, topic)
            if known != NULL:
                if stamp is None:
                    stamp = self.now()
                if key is None:
                    queue = (<object>known).sticky
                else:
                    queues = (<object>known).queues
                    index = (_murmur2(key) & 0x7FFFFFFF) % PyTuple_GET_SIZE(queues)
                    queue = <object>PyTuple_GET_ITEM(queues, index)
                batch = queue.open
                if batch is not None:
                    index = batch.append(stamp, key, value)
                    if index != -1:
                        return _future(batch.future, index, stamp)
        return self.otherwise(topic, value, key, partition, headers, timestamp, on_delivery)

    cdef object now(self):
        cdef timespec now
        if self.wall_ms is not None:
            return self.wall_ms()
        clock_gettime(CLOCK_REALTIME, &now)
        return <long long>now.tv_sec * 1000 + now.tv_nsec // 1000000


cdef inline object _future(object batch, object index, object timestamp):
    cdef object made = PyType_GenericAlloc(_future_type, 3)
    Py_INCREF(batch)
    PyTuple_SET_ITEM(made, 0, batch)
    Py_INCREF(index)
    PyTuple_SET_ITEM(made, 1, index)
    Py_INCREF(timestamp)
    PyTuple_SET_ITEM(made, 2, timestamp)
    return made
