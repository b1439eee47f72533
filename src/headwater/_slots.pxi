# Reads and writes the slots of Python objects by their offset instead of by name.

from cpython.object cimport PyObject, PyTypeObject
from cpython.ref cimport Py_DECREF, Py_INCREF

cdef extern from "Python.h":
    PyTypeObject* Py_TYPE(PyObject* owner)

cdef extern from *:
    """
    #include <structmember.h>

    static Py_ssize_t slot_place(PyObject *kind, const char *name) {
        Py_ssize_t place = -1;
        PyObject *found = PyObject_GetAttrString(kind, name);
        if (found != NULL && Py_TYPE(found) == &PyMemberDescr_Type) {
            place = ((PyMemberDescrObject *)found)->d_member->offset;
        }
        else if (found == NULL) {
            PyErr_Clear();
        }
        Py_XDECREF(found);
        return place;
    }
    """
    Py_ssize_t slot_place(object kind, const char* name)


cdef inline PyObject* slot_of(PyObject* owner, Py_ssize_t place) noexcept:
    """The value in a slot of `owner`, an instance of the class that `place` was found for."""
    return (<PyObject**>(<char*>owner + place))[0]


cdef inline void set_slot(PyObject* owner, Py_ssize_t place, object value) noexcept:
    cdef PyObject** at = <PyObject**>(<char*>owner + place)
    cdef PyObject* before = at[0]
    Py_INCREF(value)
    at[0] = <PyObject*>value
    if before != NULL:
        Py_DECREF(<object>before)
