/* A part of packed.c, which includes it once, after packed_bytes.h: arrays of events, at both ends.

   Pages are int32 and go as runs where those are few: a pair of the first entry and the length for each. Sums
   are uint64 and go as their bytes.
*/

/* Loops over long arrays take half the time where the compiler may use what newer processors have. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__GLIBC__)
#define FOR_EACH_PROCESSOR __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define FOR_EACH_PROCESSOR
#endif

/* Entries that are compared without a branch: whether a run ends among them is asked once. */
#define BLOCK 256

FOR_EACH_PROCESSOR static int
breaks(const uint32_t *entries, Py_ssize_t begin, Py_ssize_t end)
{
    uint32_t differs = 0;
    for (Py_ssize_t i = begin; i < end; i++) {
        differs |= (entries[i] - entries[i - 1]) ^ 1;
    }
    return differs != 0;
}

static void
put_run(char *to, const uint32_t *first, const uint32_t *end)
{
    int32_t length = (int32_t)(end - first);
    memcpy(to, first, 4);
    memcpy(to + 4, &length, 4);
}

/* Put many pages as their runs, each its first entry and its length. Too many are odd, and leave nothing. */
static int
put_runs(Batch *batch, const uint32_t *entries, Py_ssize_t n)
{
    Py_ssize_t begin = batch->next.size, first = 0, runs = 1;
    Py_ssize_t most = n / ENTRIES_A_RUN < MOST_BYTES / 8 ? n / ENTRIES_A_RUN : MOST_BYTES / 8;
    if (room(batch, 10) == NULL) {
        return -1;
    }
    for (Py_ssize_t i = 1, end; i < n; i = end) {
        end = n - i < BLOCK ? n : i + BLOCK;
        if (breaks(entries, i, end)) {
            for (; i < end; i++) {
                if (entries[i] - entries[i - 1] != 1) {
                    char *to = ++runs > most ? NULL : room(batch, 8);
                    if (to == NULL) {
                        batch->next.size = begin;
                        return -1;
                    }
                    put_run(to, entries + first, entries + i);
                    first = i;
                }
            }
        }
    }
    char *to = room(batch, 8);
    if (to == NULL) {
        return -1;
    }
    put_run(to, entries + first, entries + n);
    memcpy(batch->data + begin, "(\1\0\0\0s", 6);
    put_le(batch->data + begin + 6, (uint64_t)(8 * runs), 4);
    return 0;
}

/* Put what lies in one piece: `n` pages, or sums, of `width` bytes each. */
static int
put_entries(Batch *batch, PyObject *owner, const char *data, Py_ssize_t n, int way, Py_ssize_t width)
{
    if (way == PAGE_ARRAY && n >= MANY_ENTRIES && n <= MOST_ENTRIES) {
        if (put_runs(batch, (const uint32_t *)data, n) == 0) {
            return 0;
        }
        if (PyErr_Occurred()) {
            return -1;
        }
    }
    return put_bytes(batch, owner, data, width * n, FEW_ARRAY_BYTES);
}

static int
put_array(Batch *batch, PyObject *value, int way, PyObject *dtype)
{
    PyArrayObject *array = (PyArrayObject *)value;
    if (!PyArray_CheckExact(value) || (PyObject *)PyArray_DESCR(array) != dtype || PyArray_NDIM(array) != 1) {
        return -1;
    }
    Py_ssize_t n = PyArray_DIM(array, 0), width = way == SUM_ARRAY ? 8 : 4;
    const char *data = PyArray_BYTES(array);
    if (PyArray_ISCARRAY_RO(array)) {
        return put_entries(batch, value, data, n, way, width);
    }
    if (n > PY_SSIZE_T_MAX / 8) {
        return -1;
    }
    /* Copied by numpy, another thread might run meanwhile. */
    PyObject *copy = PyBytes_FromStringAndSize(NULL, width * n);
    if (copy == NULL) {
        return -1;
    }
    char *to = PyBytes_AS_STRING(copy);
    for (Py_ssize_t i = 0; i < n; i++) {
        memcpy(to + i * width, data + i * PyArray_STRIDE(array, 0), width);
    }
    int failed = put_entries(batch, copy, to, n, way, width);
    Py_DECREF(copy);
    return failed;
}

static PyObject *
expanded(PyObject *module, PyObject *given)
{
    if (!PyBytes_CheckExact(given) || PyBytes_GET_SIZE(given) % 8) {
        PyErr_SetString(PyExc_ValueError, "runs are bytes, 8 each");
        return NULL;
    }
    Py_ssize_t runs = PyBytes_GET_SIZE(given) / 8, n = 0;
    const char *data = PyBytes_AS_STRING(given);
    for (Py_ssize_t i = 0; i < runs; i++) {
        int32_t length;
        memcpy(&length, data + 8 * i + 4, 4);
        if (length < 1 || length > PY_SSIZE_T_MAX / 4 - n) {
            PyErr_SetString(PyExc_ValueError, "a run has at least one entry, and memory an end");
            return NULL;
        }
        n += length;
    }
    PyObject *made = PyBytes_FromStringAndSize(NULL, 4 * n);
    if (made == NULL) {
        return NULL;
    }
    uint32_t *to = (uint32_t *)PyBytes_AS_STRING(made);
    for (Py_ssize_t i = 0; i < runs; i++) {
        uint32_t pair[2];
        memcpy(pair, data + 8 * i, 8);
        for (uint32_t entry = 0; entry < pair[1]; entry++) {
            *to++ = pair[0] + entry;
        }
    }
    return made;
}
