# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The fast path of `send`, compiled: a record of bytes goes into its open batch in one C call.

It takes no lock. Between reading `queue.open` and the end of `put`, no Python code runs and no object
is created that could start a garbage collection, so no other thread gets a turn. Code that closes a
batch sets `queue.open` to None before it counts the records. Everything else is left to `otherwise`,
which is `send` in plain Python, under the lock.

The objects on the way (topic, queue, batch) are Python's, with slots; they are read where the slots
lie, which is known from their classes, instead of by name. Only objects of exactly these classes
are read so.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItemWithError
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE, PyTuple_SET_ITEM
from libc.stdint cimport int64_t, uint8_t, uint32_t
from posix.time cimport CLOCK_REALTIME, clock_gettime, timespec

from headwater.client.producer.accumulator import ProducerBatch, PartitionQueue
from headwater.client.producer.futures import SendFuture
from headwater.client.producer.topic_queues import TopicQueues

from headwater.records._codec cimport BatchWriter

include "headwater/_slots.pxi"
include "headwater/records/_codec_hash.pxi"

cdef extern from "Python.h":
    object PyType_GenericAlloc(PyTypeObject* type, Py_ssize_t items)

cdef enum:
    ABSENT = -1  # as a length: null

cdef bytes _NO_HEADERS = b"\x00"
cdef PyTypeObject* _future_type = <PyTypeObject*>SendFuture
cdef PyTypeObject* _topic_type = <PyTypeObject*>TopicQueues
cdef PyTypeObject* _queue_type = <PyTypeObject*>PartitionQueue
cdef PyTypeObject* _batch_type = <PyTypeObject*>ProducerBatch
cdef PyTypeObject* _writer_type = <PyTypeObject*>BatchWriter
cdef Py_ssize_t _sticky = slot_place(TopicQueues, b"sticky")
cdef Py_ssize_t _queues = slot_place(TopicQueues, b"queues")
cdef Py_ssize_t _open = slot_place(PartitionQueue, b"open")
cdef Py_ssize_t _writer = slot_place(ProducerBatch, b"writer")
cdef Py_ssize_t _future = slot_place(ProducerBatch, b"future")

if min(_sticky, _queues, _open, _writer, _future) < 0:
    raise ImportError("this Python keeps slots in another way: `send` goes the slow path")


cdef inline PyObject* read_slot(PyObject* owner, PyTypeObject* kind, Py_ssize_t place) noexcept:
    """The value in a slot of `owner`; NULL if it is empty or `owner` is not a `kind`."""
    if owner == NULL or Py_TYPE(owner) != kind:
        return NULL
    return slot_of(owner, place)


cdef class FastSend:
    """`send` of one producer."""

    cdef dict topics
    cdef object otherwise
    cdef object wall_ms

    def __init__(self, dict topics not None, otherwise, wall_ms=None):
        """`topics` is read at each call; `wall_ms` defaults to the system's clock."""
        self.topics = topics
        self.otherwise = otherwise
        self.wall_ms = wall_ms

    def send(
        self, topic, value=None, key=None, partition=None, headers=(), timestamp=None,
        on_delivery=None,
    ):
        """As `ProducerCore.send`."""
        cdef int64_t stamp
        cdef object made
        cdef Py_ssize_t chosen = ABSENT
        if partition is not None:
            if type(partition) is not int or not 0 <= partition <= 0x7FFFFFFF:
                return self.otherwise(topic, value, key, partition, headers, timestamp, on_delivery)
            chosen = partition
        if (
            on_delivery is None
            and (value is None or type(value) is bytes)
            and (key is None or type(key) is bytes)
            and type(topic) is str
            and not headers
            and (timestamp is None or type(timestamp) is int)
        ):
            if timestamp is not None:
                if not 0 <= timestamp < 0x7FFFFFFFFFFFFFFF:
                    return self.otherwise(
                        topic, value, key, partition, headers, timestamp, on_delivery
                    )
                stamp = timestamp
            elif self.wall_ms is not None:
                stamp = self.wall_ms()
            else:
                stamp = now()
            made = self.place(
                PyDict_GetItemWithError(self.topics, topic), chosen, stamp, key, value
            )
            if made is not None:
                return made
        return self.otherwise(topic, value, key, partition, headers, timestamp, on_delivery)

    cdef object place(
        self, PyObject* known, Py_ssize_t chosen, int64_t stamp, object key, object value
    ):
        """Add the record to its open batch; None if that is not possible."""
        cdef const uint8_t* key_at = NULL
        cdef const uint8_t* value_at = NULL
        cdef Py_ssize_t key_size = ABSENT
        cdef Py_ssize_t value_size = ABSENT
        cdef PyObject* queue = read_slot(known, _topic_type, _sticky)
        cdef PyObject* batch
        cdef PyObject* writer
        cdef PyObject* future
        cdef object held
        if key is not None:
            key_at = <const uint8_t*>PyBytes_AS_STRING(key)
            key_size = PyBytes_GET_SIZE(key)
        if chosen != ABSENT or key is not None:
            queue = choose(read_slot(known, _topic_type, _queues), chosen, key_at, key_size)
        if value is not None:
            value_at = <const uint8_t*>PyBytes_AS_STRING(value)
            value_size = PyBytes_GET_SIZE(value)
        batch = read_slot(queue, _queue_type, _open)
        writer = read_slot(batch, _batch_type, _writer)
        future = read_slot(batch, _batch_type, _future)
        if writer == NULL or future == NULL or Py_TYPE(writer) != _writer_type:
            return None
        held = <object>future
        if not (<BatchWriter>writer).put(
            stamp, key_at, key_size, value_at, value_size, _NO_HEADERS
        ):
            return None
        return send_future(held, (<BatchWriter>writer).count - 1, stamp)


cdef inline PyObject* choose(
    PyObject* queues, Py_ssize_t chosen, const uint8_t* key, Py_ssize_t size
) noexcept:
    """The queue of the chosen partition, or of a key's."""
    if queues == NULL or not isinstance(<object>queues, tuple) or not PyTuple_GET_SIZE(<object>queues):
        return NULL
    if chosen != ABSENT:
        if chosen >= PyTuple_GET_SIZE(<object>queues):
            return NULL
        return PyTuple_GET_ITEM(<object>queues, chosen)
    return PyTuple_GET_ITEM(
        <object>queues, (hash_bytes(key, size) & 0x7FFFFFFF) % PyTuple_GET_SIZE(<object>queues)
    )


cdef inline int64_t now() noexcept:
    cdef timespec time
    clock_gettime(CLOCK_REALTIME, &time)
    return <int64_t>time.tv_sec * 1000 + time.tv_nsec // 1000000


cdef inline object send_future(object batch, object index, object timestamp):
    cdef object made = PyType_GenericAlloc(_future_type, 3)
    Py_INCREF(batch)
    PyTuple_SET_ITEM(made, 0, batch)
    Py_INCREF(index)
    PyTuple_SET_ITEM(made, 1, index)
    Py_INCREF(timestamp)
    PyTuple_SET_ITEM(made, 2, timestamp)
    return made
