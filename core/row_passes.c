/* What is asked of arrays of pages and slots, and done to tables by them: each in one pass.

   The same functions as in row_passes.py, which documents them; built where the core is compiled
   (hatch_build.py) and found by Python before it. Each checks what it is given, and looks at every index
   before it writes by the first. Pages are int32, slots int64; none is negative.
*/

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#define NPY_NO_DEPRECATED_API NPY_1_22_API_VERSION
#include <numpy/arrayobject.h>
#include <stdint.h>
#include <string.h>

/* Loops over long rows take half the time where the compiler may use what newer processors have. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__GLIBC__)
#define FOR_EACH_PROCESSOR __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define FOR_EACH_PROCESSOR
#endif

/* Entries after which a pass that may end early looks whether it does: so many take no branch. */
#define BLOCK 256

/* An index of a table: `rows`, or the run of `n` entries from `first` on where that is NULL. */
typedef struct {
    const int32_t *rows;
    Py_ssize_t first;
    Py_ssize_t n;
} Index;

/* An array of one of C's signed integers that has so many bytes, whichever that is. */
static PyArrayObject *
as_integers(PyObject *given, int bytes, const char *what)
{
    PyArrayObject *array = (PyArrayObject *)given;
    if (!PyArray_Check(given) || PyArray_NDIM(array) != 1 || !PyArray_ISSIGNED(array) ||
        PyArray_ITEMSIZE(array) != bytes || !PyArray_ISCARRAY_RO(array)) {
        PyErr_Format(PyExc_TypeError, "%s must be a contiguous int%d[n]", what, 8 * bytes);
        return NULL;
    }
    return array;
}

static PyArrayObject *
as_pages(PyObject *given, const char *what)
{
    return as_integers(given, 4, what);
}

/* A table of `type`, or one of any integers that is written where that is NPY_NOTYPE. */
static PyArrayObject *
as_table(PyObject *given, int type)
{
    PyArrayObject *array = (PyArrayObject *)given;
    if (!PyArray_Check(given) || PyArray_NDIM(array) != 1 || !PyArray_ISCARRAY_RO(array) ||
        (type == NPY_NOTYPE ? !PyArray_ISSIGNED(array) || !PyArray_ISWRITEABLE(array)
                            : PyArray_TYPE(array) != type)) {
        PyErr_SetString(PyExc_TypeError, "a table must be a contiguous array of the right integers");
        return NULL;
    }
    return array;
}

static const int32_t *
entries(PyArrayObject *array)
{
    return (const int32_t *)PyArray_DATA(array);
}

static int
overlap(PyArrayObject *one, PyArrayObject *other)
{
    const char *a = PyArray_BYTES(one), *b = PyArray_BYTES(other);
    return a < b + PyArray_NBYTES(other) && b < a + PyArray_NBYTES(one);
}

/* Find an index and look whether it lies in a table. 0, or -1 with an exception.

   From here on no code of Python's may run, which could change the index or the table: what else is given is
   looked at before.
*/
FOR_EACH_PROCESSOR static int
find_index(PyObject *given, PyArrayObject *table, Index *index)
{
    Py_ssize_t size = PyArray_SIZE(table);
    if (PySlice_Check(given)) {
        PySliceObject *slice = (PySliceObject *)given;
        Py_ssize_t end, step;
        if (!PyLong_CheckExact(slice->start) || !PyLong_CheckExact(slice->stop) || slice->step != Py_None) {
            PyErr_SetString(PyExc_TypeError, "a run is a slice of two ints");
            return -1;
        }
        if (PySlice_Unpack(given, &index->first, &end, &step) < 0) {
            return -1;
        }
        if ( index->first < 0 || end < index->first || end > size) {
            PyErr_Format(PyExc_IndexError, "no run within a table of %zd entries: %R", size, given);
            return -1;
        }
        index->rows = NULL;
        index->n = end - index->first;
        return 0;
    }
    PyArrayObject *array = as_pages(given, "an index");
    if (array == NULL) {
        return -1;
    }
    if (overlap(array, table)) {
        PyErr_SetString(PyExc_ValueError, "an index is a part of the table");
        return -1;
    }
    index->rows = entries(array);
    index->n = PyArray_SIZE(array);
    index->first = 0;
    /* As unsigned numbers the negative ones are too large as well. */
    uint32_t largest = 0;
    for (Py_ssize_t i = 0; i < index->n; i++) {
        uint32_t row = (uint32_t)index->rows[i];
        largest = row > largest ? row : largest;
    }
    if (index->n && largest >= (size_t)size) {
        PyErr_Format(PyExc_IndexError, "a page lies past the end of a table of %zd entries", size);
        return -1;
    }
    return 0;
}

static PyArrayObject *
new_array(Py_ssize_t n, int type)
{
    npy_intp size = n;
    return (PyArrayObject *)PyArray_SimpleNew(1, &size, type);
}

static int
check_count(Py_ssize_t found, Py_ssize_t wanted)
{
    if (found != wanted) {
        PyErr_Format(PyExc_TypeError, "takes %zd arguments (%zd given)", wanted, found);
        return -1;
    }
    return 0;
}

/* Questions. */

FOR_EACH_PROCESSOR static PyObject *
all_set(PyObject *module, PyObject *given)
{
    PyArrayObject *array = as_pages(given, "pages");
    if (array == NULL) {
        return NULL;
    }
    const int32_t *pages = entries(array);
    Py_ssize_t n = PyArray_SIZE(array);
    for (Py_ssize_t i = 0; i < n;) {
        Py_ssize_t end = n - i < BLOCK ? n : i + BLOCK;
        int missing = 0;
        for (; i < end; i++) {
            missing |= pages[i] == 0;
        }
        if (missing) {
            Py_RETURN_FALSE;
        }
    }
    Py_RETURN_TRUE;
}

static PyObject *
any_set(PyObject *module, PyObject *given)
{
    PyArrayObject *array = as_pages(given, "pages");
    if (array == NULL) {
        return NULL;
    }
    const int32_t *pages = entries(array);
    Py_ssize_t n = PyArray_SIZE(array);
    for (Py_ssize_t i = 0; i < n; i++) {
        if (pages[i] != 0) {
            Py_RETURN_TRUE;
        }
    }
    Py_RETURN_FALSE;
}

FOR_EACH_PROCESSOR static PyObject *
is_ascending(PyObject *module, PyObject *given)
{
    PyArrayObject *array = as_pages(given, "pages");
    if (array == NULL) {
        return NULL;
    }
    const int32_t *pages = entries(array);
    Py_ssize_t n = PyArray_SIZE(array);
    for (Py_ssize_t i = 1; i < n;) {
        Py_ssize_t end = n - i < BLOCK ? n : i + BLOCK;
        int falls = 0;
        for (; i < end; i++) {
            falls |= pages[i] <= pages[i - 1];
        }
        if (falls) {
            Py_RETURN_FALSE;
        }
    }
    Py_RETURN_TRUE;
}

FOR_EACH_PROCESSOR static PyObject *
is_run(PyObject *module, PyObject *given)
{
    PyArrayObject *array = as_pages(given, "pages");
    if (array == NULL) {
        return NULL;
    }
    const int32_t *pages = entries(array);
    Py_ssize_t n = PyArray_SIZE(array);
    /* The ends tell most of those that are none. */
    if (n > 1) {
        if ((int64_t)pages[n - 1] - pages[0] != n - 1) {
            Py_RETURN_FALSE;
        }
    }
    for (Py_ssize_t i = 1; i < n;) {
        Py_ssize_t end = n - i < BLOCK ? n : i + BLOCK;
        uint32_t differs = 0;
        for (; i < end; i++) {
            differs |= ((uint32_t)pages[i] - (uint32_t)pages[0]) ^ (uint32_t)i;
        }
        if (differs) {
            Py_RETURN_FALSE;
        }
    }
    Py_RETURN_TRUE;
}

/* Tables. */

FOR_EACH_PROCESSOR static PyObject *
all_equal_at(PyObject *module, PyObject *const *given, Py_ssize_t count)
{
    Index index;
    PyArrayObject *array;
    if (check_count(count, 3) < 0) {
        return NULL;
    }
    int64_t value = PyLong_AsLongLong(given[2]);
    if (PyErr_Occurred() || (array = as_table(given[0], NPY_INT32)) == NULL ||
        find_index(given[1], array, &index) < 0) {
        return NULL;
    }
    const int32_t *table = (const int32_t *)PyArray_DATA(array) + index.first;
    if (value != (int32_t)value) {
        return PyBool_FromLong(index.n == 0);
    }
    int32_t differs = 0, wanted = (int32_t)value;
    for (Py_ssize_t i = 0; i < index.n; i++) {
        differs |= table[index.rows ? index.rows[i] : i] ^ wanted;
    }
    return PyBool_FromLong(!differs);
}

FOR_EACH_PROCESSOR static PyObject *
entries_at(PyObject *module, PyObject *const *given, Py_ssize_t count)
{
    Index index;
    PyArrayObject *array, *found;
    if (check_count(count, 2) < 0 || (array = as_table(given[0], NPY_INT32)) == NULL ||
        find_index(given[1], array, &index) < 0 || (found = new_array(index.n, NPY_INT32)) == NULL) {
        return NULL;
    }
    const int32_t *table = (const int32_t *)PyArray_DATA(array) + index.first;
    int32_t *out = (int32_t *)PyArray_DATA(found);
    for (Py_ssize_t i = 0; i < index.n; i++) {
        out[i] = table[index.rows ? index.rows[i] : i];
    }
    return (PyObject *)found;
}

#define PUT(type)                                                                                            \
    do {                                                                                                     \
        type *table = (type *)PyArray_DATA(array) + index.first;                                             \
        for (Py_ssize_t i = 0; i < index.n; i++) {                                                           \
            table[index.rows ? index.rows[i] : i] = (type)value;                                             \
        }                                                                                                    \
    } while (0)

#define PUT_EACH(type)                                                                                       \
    do {                                                                                                     \
        type *table = (type *)PyArray_DATA(array) + index->first;                                            \
        for (Py_ssize_t i = 0; i < index->n; i++) {                                                          \
            table[index->rows ? index->rows[i] : i] = value[i];                                              \
        }                                                                                                    \
    } while (0)

static PyObject *
put_each(PyArrayObject *array, const Index *index, PyObject *given)
{
    PyArrayObject *values = as_pages(given, "values");
    if (values == NULL) {
        return NULL;
    }
    if (PyArray_SIZE(values) != index->n || overlap(values, array)) {
        PyErr_SetString(PyExc_ValueError, "one value for each entry is needed, none of them in the table");
        return NULL;
    }
    const int32_t *value = entries(values);
    switch (PyArray_ITEMSIZE(array)) {
    case 8: PUT_EACH(int64_t); break;
    case 4: PUT_EACH(int32_t); break;
    default: PyErr_SetString(PyExc_TypeError, "a table of int64 or int32 is needed"); return NULL;
    }
    Py_RETURN_NONE;
}

FOR_EACH_PROCESSOR static PyObject *
put_at(PyObject *module, PyObject *const *given, Py_ssize_t count)
{
    Index index;
    PyArrayObject *array;
    if (check_count(count, 3) < 0) {
        return NULL;
    }
    int each = PyArray_Check(given[2]);
    int64_t value = each ? 0 : PyLong_AsLongLong(given[2]);
    if (PyErr_Occurred() || (array = as_table(given[0], NPY_NOTYPE)) == NULL ||
        find_index(given[1], array, &index) < 0) {
        return NULL;
    }
    if (each) {
        return put_each(array, &index, given[2]);
    }
    int64_t most = INT64_MAX >> (64 - 8 * PyArray_ITEMSIZE(array));
    if (value > most || value < -most - 1) {
        PyErr_SetString(PyExc_OverflowError, "a value does not fit into the entries of a table");
        return NULL;
    }
    switch (PyArray_ITEMSIZE(array)) {
    case 8: PUT(int64_t); break;
    case 4: PUT(int32_t); break;
    case 1: PUT(int8_t); break;
    default: PyErr_SetString(PyExc_TypeError, "a table of int64, int32 or int8 is needed"); return NULL;
    }
    Py_RETURN_NONE;
}

/* Parts and wholes. */

static PyObject *
copied_part(PyObject *module, PyObject *const *given, Py_ssize_t count)
{
    PyArrayObject *array, *part;
    if (check_count(count, 3) < 0 || (array = as_pages(given[0], "pages")) == NULL) {
        return NULL;
    }
    Py_ssize_t first = PyLong_AsSsize_t(given[1]);
    Py_ssize_t end = PyLong_AsSsize_t(given[2]);
    if (PyErr_Occurred()) {
        return NULL;
    }
    if (first < 0 || end < first || end > PyArray_SIZE(array)) {
        PyErr_Format(PyExc_IndexError, "no part [%zd, %zd) of %zd pages", first, end, PyArray_SIZE(array));
        return NULL;
    }
    if ((part = new_array(end - first, NPY_INT32)) == NULL) {
        return NULL;
    }
    memcpy(PyArray_DATA(part), entries(array) + first, (end - first) * sizeof(int32_t));
    PyArray_CLEARFLAGS(part, NPY_ARRAY_WRITEABLE);
    return (PyObject *)part;
}

static PyObject *
joined(PyObject *module, PyObject *given)
{
    if (!PyList_CheckExact(given) || PyList_GET_SIZE(given) == 0) {
        PyErr_SetString(PyExc_TypeError, "a list of at least one chunk is needed");
        return NULL;
    }
    Py_ssize_t n = 0;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(given); i++) {
        PyArrayObject *chunk = as_pages(PyList_GET_ITEM(given, i), "a chunk");
        if (chunk == NULL) {
            return NULL;
        }
        n += PyArray_SIZE(chunk);
    }
    PyArrayObject *whole = new_array(n, NPY_INT32);
    if (whole == NULL) {
        return NULL;
    }
    int32_t *out = (int32_t *)PyArray_DATA(whole);
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(given); i++) {
        PyArrayObject *chunk = (PyArrayObject *)PyList_GET_ITEM(given, i);
        memcpy(out, PyArray_DATA(chunk), PyArray_SIZE(chunk) * sizeof *out);
        out += PyArray_SIZE(chunk);
    }
    return (PyObject *)whole;
}

/* Slots. */

static int
page_size_of(PyObject *given, int64_t *size)
{
    *size = PyLong_AsLongLong(given);
    if (*size < 1) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_ValueError, "a page size is at least 1");
        }
        return -1;
    }
    return 0;
}

FOR_EACH_PROCESSOR static PyObject *
pages_of(PyObject *module, PyObject *const *given, Py_ssize_t count)
{
    PyArrayObject *array, *found;
    int64_t size;
    if (check_count(count, 3) < 0 || (array = as_integers(given[0], 8, "slots")) == NULL ||
        page_size_of(given[1], &size) < 0) {
        return NULL;
    }
    int64_t limit = PyLong_AsLongLong(given[2]);
    if (limit == -1 && PyErr_Occurred()) {
        return NULL;
    }
    if (PyArray_SIZE(array) % size) {
        PyErr_Format(PyExc_ValueError, "%zd slots are not whole pages", PyArray_SIZE(array));
        return NULL;
    }
    if (limit / size > (int64_t)INT32_MAX + 1) {
        PyErr_SetString(PyExc_OverflowError, "a pool has at most 2**31 pages");
        return NULL;
    }
    Py_ssize_t n = PyArray_SIZE(array) / size;
    if ((found = new_array(n, NPY_INT32)) == NULL) {
        return NULL;
    }
    const int64_t *slots = (const int64_t *)PyArray_DATA(array);
    int32_t *pages = (int32_t *)PyArray_DATA(found);
    int64_t wrong = 0;
    if (size == 1) {
        for (Py_ssize_t i = 0; i < n; i++) {
            wrong |= (slots[i] < 1) | (slots[i] >= limit);
            pages[i] = (int32_t)slots[i];
        }
    } else {
        for (Py_ssize_t i = 0; i < n && !wrong; i++, slots += size) {
            int64_t first = slots[0];
            wrong = first < size || first >= limit || first % size;
            for (int64_t j = 1; j < size; j++) {
                wrong |= (int64_t)((uint64_t)slots[j] - (uint64_t)first) ^ j;
            }
            pages[i] = (int32_t)(first / size);
        }
    }
    if (wrong) {
        Py_DECREF(found);
        Py_RETURN_NONE;
    }
    PyArray_CLEARFLAGS(found, NPY_ARRAY_WRITEABLE);
    return (PyObject *)found;
}

FOR_EACH_PROCESSOR static PyObject *
slots_of(PyObject *module, PyObject *const *given, Py_ssize_t count)
{
    PyArrayObject *array, *found;
    int64_t size;
    if (check_count(count, 2) < 0 || (array = as_pages(given[0], "pages")) == NULL ||
        page_size_of(given[1], &size) < 0) {
        return NULL;
    }
    Py_ssize_t n = PyArray_SIZE(array);
    if (n > PY_SSIZE_T_MAX / 8 / size) {
        return PyErr_NoMemory();
    }
    if ((found = new_array(n * size, NPY_INT64)) == NULL) {
        return NULL;
    }
    const int32_t *pages = entries(array);
    int64_t *slots = (int64_t *)PyArray_DATA(found);
    if (size == 1) {
        for (Py_ssize_t i = 0; i < n; i++) {
            slots[i] = pages[i];
        }
        return (PyObject *)found;
    }
    for (Py_ssize_t i = 0; i < n; i++, slots += size) {
        uint64_t first = (uint64_t)(int64_t)pages[i] * (uint64_t)size;
        for (int64_t j = 0; j < size; j++) {
            slots[j] = (int64_t)(first + (uint64_t)j);
        }
    }
    return (PyObject *)found;
}

#define FAST(name) {#name, (PyCFunction)(void (*)(void))name, METH_FASTCALL, NULL}

static PyMethodDef methods[] = {
    {"all_set", all_set, METH_O, NULL},
    {"any_set", any_set, METH_O, NULL},
    {"is_ascending", is_ascending, METH_O, NULL},
    {"is_run", is_run, METH_O, NULL},
    FAST(all_equal_at),
    FAST(entries_at),
    FAST(put_at),
    FAST(copied_part),
    {"joined", joined, METH_O, NULL},
    FAST(pages_of),
    FAST(slots_of),
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "row_passes", .m_size = -1, .m_methods = methods,
};

PyMODINIT_FUNC
PyInit_row_passes(void)
{
    import_array();
    return PyModule_Create(&definition);
}
