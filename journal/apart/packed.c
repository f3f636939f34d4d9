/* Transactions that wait as bytes, and their way into the ring: what recording takes of a scheduler's time.

   The same as packed.py, which documents it; built where the core is compiled (hatch_build.py) and found by
   Python before it. A transaction is written where it waits, in the form of `marshal`, version 2, without an
   object for each value; a test holds both to the same bytes. What is long is kept by reference until it is
   copied into the ring.

   `add_now` and `write` run no code of Python's, so no signal and no other thread comes in between: that is
   why they need no lock. Giving an object back can run anything, so only `let_go` does. The other methods
   belong to who holds the recorder's lock, and `add` may run code of the caller's: what that calls here is
   refused.

   It is one unit for the compiler, so that what is called for each value is inlined; its parts stand here in
   the order in which they need one another.
*/

#include "packed_bytes.h"
#include "packed_arrays.h"
#include "packed_values.h"
#include "packed_batch.h"

static void
Batch_dealloc(Batch *batch)
{
    clear(batch);
    Py_DECREF(Batch_let_go(batch, NULL));
    PyMem_Free(batch->holding);
    PyMem_Free(batch->data);
    Py_XDECREF(batch->packings);
    Py_XDECREF(batch->record_class);
    PyBuffer_Release(&batch->phase);
    PyBuffer_Release(&batch->memory);
    PyBuffer_Release(&batch->counters);
    Py_TYPE(batch)->tp_free(batch);
}

/* Whether the values of a field can be read as what its way says. */
static int
is_fit(int way, PyObject *type)
{
    if (way == PAGE_ARRAY || way == SUM_ARRAY) {
        const PyArray_Descr *dtype = (PyArray_Descr *)type;
        return PyArray_DescrCheck(type) && PyArray_ISNBO(dtype->byteorder) &&
               dtype->type_num == (way == PAGE_ARRAY ? NPY_INT32 : NPY_UINT64);
    }
    return way != CHOICE || (PyType_Check(type) && PyType_IsSubtype((PyTypeObject *)type, &PyUnicode_Type));
}

/* Keep what is known of the classes, which is a tuple for each. 0, or -1 with an exception. */
static int
learn(Batch *batch, PyObject *packings)
{
    PyObject *event_class, *packing, *number, *tell, *ways, *types;
    Py_ssize_t at = 0;
    while (PyDict_Next(packings, &at, &event_class, &packing)) {
        if (!PyTuple_CheckExact(packing) ||
            !PyArg_ParseTuple(packing, "OOSO!", &number, &tell, &ways, &PyTuple_Type, &types)) {
            return PyErr_Occurred() ? -1 : (PyErr_SetString(PyExc_TypeError, "a class needs a tuple"), -1);
        }
        if (PyBytes_GET_SIZE(ways) != PyTuple_GET_SIZE(types)) {
            PyErr_SetString(PyExc_ValueError, "each field needs a way and a type");
            return -1;
        }
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(types); i++) {
            if (!is_fit(PyBytes_AS_STRING(ways)[i] & ~OPTIONAL, PyTuple_GET_ITEM(types, i))) {
                PyErr_SetString(PyExc_TypeError, "pages are int32, sums are uint64, and choices are texts");
                return -1;
            }
        }
    }
    batch->packings = PyDict_Copy(packings);
    batch->data = PyMem_Malloc(batch->capacity = FIRST_BYTES);
    return batch->packings == NULL ? -1 : batch->data == NULL ? (PyErr_NoMemory(), -1) : 0;
}

static PyObject *
Batch_new(PyTypeObject *type, PyObject *given, PyObject *named)
{
    PyObject *packings, *record_class;
    int form;
    if (named != NULL && PyDict_GET_SIZE(named)) {
        PyErr_SetString(PyExc_TypeError, "takes no keywords");
        return NULL;
    }
    if (!PyArg_ParseTuple(given, "O!iO", &PyDict_Type, &packings, &form, &record_class)) {
        return NULL;
    }
    Batch *batch = (Batch *)type->tp_alloc(type, 0);
    if (batch == NULL) {
        return NULL;
    }
    batch->form = form;
    batch->record_class = Py_NewRef(record_class);
    batch->now = batch->before = batch->next = (Place){.size = HEAD};
    if (learn(batch, packings) < 0) {
        Py_DECREF(batch);
        return NULL;
    }
    return (PyObject *)batch;
}

#define FAST(name) {#name, (PyCFunction)(void (*)(void))Batch_##name, METH_FASTCALL, NULL}
#define PLAIN(name) {#name, (PyCFunction)Batch_##name, METH_NOARGS, NULL}

static PyMethodDef methods[] = {
    {"add_now", (PyCFunction)Batch_add_now, METH_O, NULL},
    FAST(add),
    FAST(add_pickled),
    PLAIN(begin),
    PLAIN(times),
    PLAIN(take_back),
    PLAIN(write),
    PLAIN(take),
    PLAIN(let_go),
    FAST(open),
    PLAIN(shut),
    {NULL, NULL, 0, NULL},
};

static PyMemberDef members[] = {
    {"count", T_PYSSIZET, offsetof(Batch, now.count), READONLY, NULL},
    {"events", T_PYSSIZET, offsetof(Batch, now.events), READONLY, NULL},
    {"added", T_LONGLONG, offsetof(Batch, added), READONLY, NULL},
    {"accepted", T_LONGLONG, offsetof(Batch, accepted), READONLY, NULL},
    {"frames", T_LONGLONG, offsetof(Batch, frames), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyTypeObject Batch_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "kvledger.journal.apart.packed.Batch",
    .tp_basicsize = sizeof(Batch),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = Batch_new,
    .tp_dealloc = (destructor)Batch_dealloc,
    .tp_methods = methods,
    .tp_members = members,
};

static PyMethodDef functions[] = {{"expanded", expanded, METH_O, NULL}, {NULL, NULL, 0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "packed", .m_size = -1, .m_methods = functions,
};

/* Keep an object for good. 0, or -1 with an exception. */
static int
intern(PyObject **object, const char *name)
{
    return (*object = PyUnicode_InternFromString(name)) == NULL ? -1 : 0;
}

PyMODINIT_FUNC
PyInit_packed(void)
{
    import_array();
    PyObject *pickle = PyImport_ImportModule("pickle");
    dumps = pickle == NULL ? NULL : PyObject_GetAttrString(pickle, "dumps");
    Py_XDECREF(pickle);
    if (dumps == NULL || intern(&op_, "op") || intern(&request_id_, "request_id") ||
        intern(&events_, "events") || intern(&undone_, "undone") || intern(&rolled_back_, "rolled_back") ||
        intern(&reason_, "reason") || intern(&epoch_, "epoch") || PyType_Ready(&Batch_type) < 0) {
        return NULL;
    }
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL || PyModule_AddObjectRef(module, "Batch", (PyObject *)&Batch_type) < 0 ||
        PyModule_AddIntMacro(module, FEW_TOKEN_BYTES) < 0 ||
        PyModule_AddIntMacro(module, FEW_ARRAY_BYTES) < 0 ||
        PyModule_AddIntMacro(module, MANY_ENTRIES) < 0 || PyModule_AddIntMacro(module, MOST_ENTRIES) < 0 ||
        PyModule_AddIntMacro(module, ENTRIES_A_RUN) < 0 ||
        PyModule_AddIntMacro(module, MARSHAL_VERSION) < 0 || PyModule_AddIntMacro(module, MOST_BYTES) < 0) {
        Py_XDECREF(module);
        return NULL;
    }
    return module;
}
