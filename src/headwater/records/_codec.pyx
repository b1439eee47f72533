# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The record codec of the clients, compiled: the contract of `codec.py` over typed memory.

The wire is hostile: every length is compared with the bytes that are left before it is used, each
byte is read once, no allocation trusts a count. Python code that could run in between (a sequence
of the caller, a destructor) never finds a pointer that it can make dangle: buffers are held while
they are read, and a writer's memory is looked up only after the last such call.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport (
    PyByteArray_AS_STRING,
    PyByteArray_FromStringAndSize,
    PyByteArray_Resize,
)
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.ref cimport Py_INCREF, PyObject
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE, PyTuple_SET_ITEM
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport (
    INT32_MAX,
    INT64_MAX,
    INT64_MIN,
    int16_t,
    int32_t,
    int64_t,
    uint8_t,
    uint32_t,
    uint64_t,
)
from libc.string cimport memcpy

from headwater.errors import E, KafkaError
from headwater.records.checksum import crc32c
from headwater.records.columns import Column, Columns, Headers
from headwater.records.compression import compress, decompress
from headwater.records.record import encode_headers, unreadable_format
from headwater.records.rules import MAX_UNCOMPRESSED_BYTES
from headwater.records.header_writing import complete_batch

cdef enum:
    HEADER_SIZE = 61
    OVERHEAD = 12
    CRC_START = 21
    MAGIC = 2
    CODEC_MASK = 0x07
    LOG_APPEND_TIME = 0x08
    TRANSACTIONAL = 0x10
    CONTROL = 0x20
    FIRST_CAPACITY = 1024
    SMALLEST_RECORD = 7
    ROW_FIELDS = 6
    ABSENT = -1  # as a length: null
    WORTH_KEEPING = 32 * 1024
    WORTH_CHECKING_AHEAD = 64 * 1024
    MOST_AHEAD = 512 * 1024  # checked bytes are still in the processor's cache when they are decoded
    MOST_LENT = 4

cdef extern from "Python.h":
    object PyType_GenericAlloc(type kind, Py_ssize_t size)
    void PyObject_GC_UnTrack(object owner)
    PyObject* PyList_GET_ITEM(list items, Py_ssize_t index)
    Py_ssize_t Py_REFCNT(PyObject* owner)

cdef bytes NO_HEADERS = b"\x00"

include "_codec_numbers.pxi"
include "_codec_checksum.pxi"
include "_codec_writing.pxi"
include "_codec_reading.pxi"
include "_codec_columns.pxi"
include "_codec_tables.pxi"
