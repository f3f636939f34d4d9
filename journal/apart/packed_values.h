/* A part of packed.c, which includes it once, after packed_arrays.h: events, and the values that their fields
   hold. */

/* Set when the module begins. */
static PyObject *dumps, *op_, *request_id_, *events_, *undone_, *rolled_back_, *reason_, *epoch_;

/* Put what is rare, as the interpreter has it: `made` are bytes, NULL where an exception is set. */
static int
put_made(Batch *batch, char mark, PyObject *made)
{
    if (made == NULL) {
        return -1;
    }
    int failed = -1;
    if (PyBytes_CheckExact(made) && mark) {
        failed = put_sized(batch, mark, PyBytes_GET_SIZE(made), PyBytes_AS_STRING(made));
    } else if (PyBytes_CheckExact(made)) {
        char *to = room(batch, PyBytes_GET_SIZE(made));
        failed = to == NULL ? -1 : (memcpy(to, PyBytes_AS_STRING(made), PyBytes_GET_SIZE(made)), 0);
    }
    Py_DECREF(made);
    return failed;
}

static int
put_int(Batch *batch, PyObject *value)
{
    if (!PyLong_CheckExact(value)) {
        return -1;
    }
    int overflow;
    int64_t number = PyLong_AsLongLongAndOverflow(value, &overflow);
    return overflow ? put_made(batch, 0, PyMarshal_WriteObjectToString(value, MARSHAL_VERSION))
                    : put_int64(batch, number);
}

/* A str, or a member of an enumeration of them. */
static int
put_text(Batch *batch, PyObject *value)
{
    if (PyUnicode_IS_ASCII(value)) {
        return put_sized(batch, 'u', PyUnicode_GET_LENGTH(value), PyUnicode_DATA(value));
    }
    return put_made(batch, 'u', PyUnicode_AsEncodedString(value, "utf-8", "surrogatepass"));
}

static int
put_text_or_none(Batch *batch, PyObject *value)
{
    if (value == Py_None) {
        return put_mark(batch, 'N');
    }
    return PyUnicode_CheckExact(value) ? put_text(batch, value) : -1;
}

static int
put_pickled(Batch *batch, PyObject *value, int at_once)
{
    return at_once ? -1 : put_made(batch, 's', PyObject_CallOneArg(dumps, value));
}

static int
put_all_numbers(Batch *batch, PyObject *values, int within)
{
    int failed = put_sized(batch, '(', PyTuple_GET_SIZE(values), NULL);
    for (Py_ssize_t i = 0; !failed && i < PyTuple_GET_SIZE(values); i++) {
        PyObject *value = PyTuple_GET_ITEM(values, i);
        int is_range = PyTuple_CheckExact(value) && !within;
        failed = is_range ? put_all_numbers(batch, value, 1) : put_int(batch, value);
    }
    return failed;
}

/* Put a tuple, pickled where it holds anything but numbers. */
static int
put_numbers(Batch *batch, PyObject *values, int at_once)
{
    Py_ssize_t begin = batch->next.size;
    if (put_all_numbers(batch, values, 0) == 0) {
        return 0;
    }
    batch->next.size = begin;
    return PyErr_Occurred() ? -1 : put_pickled(batch, values, at_once);
}

static int
put_origin(Batch *batch, PyObject *value)
{
    PyObject *request_id = PyObject_GetAttr(value, request_id_), *epoch = PyObject_GetAttr(value, epoch_);
    int failed = -1;
    if (request_id != NULL && epoch != NULL) {
        failed = put_text_or_none(batch, request_id) || put_int(batch, epoch) ? -1 : 0;
    }
    Py_XDECREF(request_id);
    Py_XDECREF(epoch);
    return failed;
}

static int
put_field(Batch *batch, PyObject *value, int way, PyObject *type, int at_once)
{
    if (value == Py_None && way & OPTIONAL) {
        return put_mark(batch, 'N') || (way == (ORIGIN | OPTIONAL) && put_mark(batch, 'N')) ? -1 : 0;
    }
    switch (way &= ~OPTIONAL) {
    case INT: return put_int(batch, value);
    case BOOL: return PyBool_Check(value) ? put_mark(batch, value == Py_True ? 'T' : 'F') : -1;
    case TEXT: return PyUnicode_CheckExact(value) ? put_text(batch, value) : -1;
    case PAGE_ARRAY:
    case SUM_ARRAY: return put_array(batch, value, way, type);
    case NUMBERS: return PyTuple_CheckExact(value) ? put_numbers(batch, value, at_once) : -1;
    case TOKENS:
        if (!PyBytes_CheckExact(value)) {
            return -1;
        }
        return put_bytes(batch, value, PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value), FEW_TOKEN_BYTES);
    default:
        if ((PyObject *)Py_TYPE(value) != type) {
            return -1;
        }
        if (way == CHOICE) {
            return put_text(batch, value);
        }
        return way == ORIGIN ? put_origin(batch, value) : put_pickled(batch, value, at_once);
    }
}

static int
put_event(Batch *batch, PyObject *event, int at_once, Py_ssize_t *values)
{
    PyObject *event_class = (PyObject *)Py_TYPE(event);
    if (at_once && !PyType_CheckExact(event_class)) {
        return -1; /* Looking for it would ask its own class. */
    }
    PyObject *packing = PyDict_GetItemWithError(batch->packings, event_class);
    if (packing == NULL) {
        return -1;
    }
    PyObject *tell = PyTuple_GET_ITEM(packing, 1), *ways = PyTuple_GET_ITEM(packing, 2);
    PyObject *types = PyTuple_GET_ITEM(packing, 3);
    Py_ssize_t n = PyTuple_GET_SIZE(types);
    if (at_once && PyFunction_Check(tell)) {
        return -1;
    }
    PyObject *told = PyObject_CallOneArg(tell, event);
    if (told == NULL) {
        return -1;
    }
    int failed = -1;
    if (PyTuple_CheckExact(told) && PyTuple_GET_SIZE(told) == n) {
        failed = put_int(batch, PyTuple_GET_ITEM(packing, 0));
        *values += 1 + n;
        for (Py_ssize_t i = 0; !failed && i < n; i++) {
            int way = PyBytes_AS_STRING(ways)[i];
            failed = put_field(batch, PyTuple_GET_ITEM(told, i), way, PyTuple_GET_ITEM(types, i), at_once);
            *values += (way & ~OPTIONAL) == ORIGIN;
        }
    }
    Py_DECREF(told);
    return failed;
}

/* A text of the transaction's own: one of a class of the caller's goes as a str. */
static int
put_own_text(Batch *batch, PyObject *value, int at_once)
{
    return !PyUnicode_Check(value) || (at_once && !PyUnicode_CheckExact(value)) ? -1 : put_text(batch, value);
}

static int
put_own_text_or_none(Batch *batch, PyObject *value, int at_once)
{
    return value == Py_None ? put_mark(batch, 'N') : put_own_text(batch, value, at_once);
}
