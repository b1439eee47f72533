# What other compiled modules may use of the codec without passing through Python.

cimport cython
from libc.stdint cimport int64_t, uint8_t


@cython.final
cdef class BatchWriter:
    cdef readonly Py_ssize_t size
    cdef readonly Py_ssize_t count
    cdef Py_ssize_t limit
    cdef Py_ssize_t capacity
    cdef int64_t first_timestamp
    cdef int64_t max_timestamp
    cdef bytearray memory
    cdef bint given

    cdef bint put(
        self,
        int64_t timestamp,
        const uint8_t* key,
        Py_ssize_t key_size,
        const uint8_t* value,
        Py_ssize_t value_size,
        bytes headers,
    ) except -1
    cdef int grow(self, Py_ssize_t size) except -1
