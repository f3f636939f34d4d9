/* Transactions that wait as bytes, and their way into the ring: what recording takes of a scheduler's time.

   The same as packed.py, which documents it; built where the core is compiled (hatch_build.py) and found by
   Python before it. A transaction is written where it waits, in the form of `marshal`, version 2, without an
   object for each value; a test holds both to the same bytes. What is long is kept by reference until it is
   copied into the ring.

   `add_now` and `write` run no code of Python's, so no signal and no other thread comes in between: that is
   why they need no lock. Giving an object back can run anything, so only `let_go` does. The other methods
   belong to who holds the recorder's lock, and `add` may run code of the caller's: what that calls here is
   refused.
*/

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <marshal.h>
#define NPY_NO_DEPRECATED_API NPY_1_22_API_VERSION
#include <numpy/arrayobject.h>
#include <stdint.h>
#include <string.h>
#include <structmember.h>
#include <time.h>

/* As in packed.py. */
enum { FEW_TOKEN_BYTES = 1024, FEW_ARRAY_BYTES = 8192, MANY_ENTRIES = 32, ENTRIES_A_RUN = 4 };

/* As in plans.py: the ways of a field, and the size of a frame's header. */
enum { INT, BOOL, TEXT, TOKENS, ARRAY, CHOICE, ORIGIN, NUMBERS, OTHER, OPTIONAL = 64 };
enum { HEADER = 9 };

/* As in ring.py: its counters. */
enum { PUBLISHED, READ, COUNTERS };

/* What stands before the transactions: the frame's header, and that of their list. */
enum { HEAD = HEADER + 5 };

/* What marshal reads as the size of one object: more would be negative. */
enum { MOST_BYTES = INT32_MAX };

/* What a batch has room for at first, and at most keeps when it was handed over. */
enum { FIRST_BYTES = 1 << 16, KEPT_BYTES = 1 << 20 };

#define MARSHAL_VERSION 2

/* Bytes that belong to another object, and stand before those at `at`. */
typedef struct {
    PyObject *owner;
    const char *data;
    Py_ssize_t size, at;
} Held;

/* Some of those, and how many there are and can be. Those that wait to be let go are a chain. */
typedef struct Holding {
    struct Holding *older;
    Py_ssize_t count, capacity;
    Held each[];
} Holding;

/* How far a batch is: bytes of its own, objects held and their bytes, transactions, events. */
typedef struct {
    Py_ssize_t size, held, held_bytes, count, events;
} Place;

typedef struct {
    PyObject_HEAD
    PyObject *record_class;
    PyObject *packings; /* by class: its number, its `values`, the ways of its fields and their types */
    int form, is_open, is_busy; /* busy is it while a transaction is added */
    char *data;
    Py_ssize_t capacity;
    Holding *holding, *gone; /* `gone` is what waits for `let_go` */
    Place now, before, next; /* `next` is ahead of `now` while a transaction is added, `before` lags by one */
    long long added, accepted, frames;
    int64_t began_ns, recording;
    Py_ssize_t most; /* events, or transactions, that wait */
    Py_buffer phase, memory, counters;
} Batch;

static PyObject *dumps, *op_, *request_id_, *events_, *undone_, *rolled_back_, *reason_, *epoch_;

/* Bytes.

   What puts something answers 0 or -1. Where no exception is set with that, what it was given is odd: of a
   type that does not belong there, or too large.
*/

static char *
room(Batch *batch, Py_ssize_t bytes)
{
    if (bytes > batch->capacity - batch->next.size) {
        int is_too_much = bytes > PY_SSIZE_T_MAX / 2 - batch->next.size;
        Py_ssize_t capacity = is_too_much ? 0 : 2 * (batch->next.size + bytes);
        char *data = is_too_much ? NULL : PyMem_Realloc(batch->data, capacity);
        if (data == NULL) {
            PyErr_NoMemory();
            return NULL;
        }
        batch->data = data;
        batch->capacity = capacity;
    }
    char *found = batch->data + batch->next.size;
    batch->next.size += bytes;
    return found;
}

static void
put_le(char *to, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++) {
        to[i] = (char)(value >> (8 * i));
    }
}

static int
put_mark(Batch *batch, char mark)
{
    char *to = room(batch, 1);
    if (to == NULL) {
        return -1;
    }
    *to = mark;
    return 0;
}

/* A mark and a number, which is the length of `data` where there is some. */
static int
put_sized(Batch *batch, char mark, Py_ssize_t size, const void *data)
{
    if (size > MOST_BYTES) {
        return -1;
    }
    char *to = room(batch, 5 + (data == NULL ? 0 : size));
    if (to == NULL) {
        return -1;
    }
    to[0] = mark;
    put_le(to + 1, (uint64_t)size, 4);
    if (data != NULL) {
        memcpy(to + 5, data, size);
    }
    return 0;
}

static int
put_held(Batch *batch, PyObject *owner, const char *data, Py_ssize_t size)
{
    if (put_sized(batch, 's', size, NULL) < 0) {
        return -1;
    }
    if (batch->holding == NULL || batch->next.held == batch->holding->capacity) {
        Py_ssize_t capacity = 2 * batch->next.held + 8;
        Holding *holding = PyMem_Realloc(batch->holding, sizeof *holding + capacity * sizeof(Held));
        if (holding == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        batch->holding = holding;
        holding->capacity = capacity;
    }
    batch->holding->each[batch->next.held++] = (Held){Py_NewRef(owner), data, size, batch->next.size};
    batch->next.held_bytes += size;
    return 0;
}

static int
put_int64(Batch *batch, int64_t value)
{
    if (value >= INT32_MIN && value <= INT32_MAX) {
        return put_sized(batch, 'i', (Py_ssize_t)value, NULL);
    }
    uint64_t left = value < 0 ? -(uint64_t)value : (uint64_t)value;
    int digits = 0;
    char parts[10];
    for (; left; left >>= 15) {
        put_le(parts + 2 * digits++, left & 0x7fff, 2);
    }
    char *to = room(batch, 5 + 2 * digits);
    if (to == NULL) {
        return -1;
    }
    to[0] = 'l';
    put_le(to + 1, (uint64_t)(int64_t)(value < 0 ? -digits : digits), 4);
    memcpy(to + 5, parts, 2 * digits);
    return 0;
}

/* Values. */

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
put_bytes(Batch *batch, PyObject *value, const char *data, Py_ssize_t size, Py_ssize_t few)
{
    return size > few ? put_held(batch, value, data, size) : put_sized(batch, 's', size, data);
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

/* Loops over long arrays take half the time where the compiler may use what newer processors have. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__GLIBC__)
#define FOR_EACH_PROCESSOR __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define FOR_EACH_PROCESSOR
#endif

/* Entries that are compared without a branch: whether a run ends among them is asked once. */
#define BLOCK 256

FOR_EACH_PROCESSOR static int
breaks(const uint64_t *entries, Py_ssize_t begin, Py_ssize_t end)
{
    uint64_t differs = 0;
    for (Py_ssize_t i = begin; i < end; i++) {
        differs |= (entries[i] - entries[i - 1]) ^ 1;
    }
    return differs != 0;
}

static void
put_run(char *to, const uint64_t *first, const uint64_t *end)
{
    int64_t length = end - first;
    memcpy(to, first, 8);
    memcpy(to + 8, &length, 8);
}

/* Put a long array as its runs, each its first entry and its length. Too many are odd, and leave nothing. */
static int
put_runs(Batch *batch, const uint64_t *entries, Py_ssize_t n)
{
    Py_ssize_t begin = batch->next.size, first = 0, runs = 1;
    Py_ssize_t most = n / ENTRIES_A_RUN < MOST_BYTES / 16 ? n / ENTRIES_A_RUN : MOST_BYTES / 16;
    if (room(batch, 10) == NULL) {
        return -1;
    }
    for (Py_ssize_t i = 1, end; i < n; i = end) {
        end = n - i < BLOCK ? n : i + BLOCK;
        if (breaks(entries, i, end)) {
            for (; i < end; i++) {
                if (entries[i] - entries[i - 1] != 1) {
                    char *to = ++runs > most ? NULL : room(batch, 16);
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
    char *to = room(batch, 16);
    if (to == NULL) {
        return -1;
    }
    put_run(to, entries + first, entries + n);
    memcpy(batch->data + begin, "(\1\0\0\0s", 6);
    put_le(batch->data + begin + 6, (uint64_t)(16 * runs), 4);
    return 0;
}

static int
put_entries(Batch *batch, PyObject *owner, const char *data, Py_ssize_t n)
{
    if (n >= MANY_ENTRIES && put_runs(batch, (const uint64_t *)data, n) == 0) {
        return 0;
    }
    return PyErr_Occurred() ? -1 : put_bytes(batch, owner, data, 8 * n, FEW_ARRAY_BYTES);
}

static int
put_array(Batch *batch, PyObject *value, PyObject *dtype)
{
    PyArrayObject *array = (PyArrayObject *)value;
    if (!PyArray_CheckExact(value) || (PyObject *)PyArray_DESCR(array) != dtype || PyArray_NDIM(array) != 1) {
        return -1;
    }
    Py_ssize_t n = PyArray_DIM(array, 0);
    const char *data = PyArray_BYTES(array);
    if (PyArray_ISCARRAY_RO(array)) {
        return put_entries(batch, value, data, n);
    }
    if (n > PY_SSIZE_T_MAX / 16) {
        return -1;
    }
    /* Copied by numpy, another thread might run meanwhile. */
    PyObject *copy = PyBytes_FromStringAndSize(NULL, 8 * n);
    if (copy == NULL) {
        return -1;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        memcpy(PyBytes_AS_STRING(copy) + 8 * i, data + i * PyArray_STRIDE(array, 0), 8);
    }
    int failed = put_entries(batch, copy, PyBytes_AS_STRING(copy), n);
    Py_DECREF(copy);
    return failed;
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
    case ARRAY: return put_array(batch, value, type);
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

/* Transactions. */

static int64_t
now_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

/* `parts` are its op, request_id, reason, undone, rolled_back and events. */
static int
put_record(Batch *batch, PyObject **parts, int64_t time_us, int64_t duration_us, int at_once)
{
    Py_ssize_t begin = batch->next.size, values = 8, n;
    PyObject *undone = parts[3], *rolled_back = parts[4], *events = parts[5];
    if (!PyByteArray_CheckExact(undone) || !PyBool_Check(rolled_back) || !PyList_CheckExact(events)) {
        return -1;
    }
    if (put_sized(batch, '[', 0, NULL) || put_own_text(batch, parts[0], at_once) ||
        put_own_text_or_none(batch, parts[1], at_once) || put_own_text(batch, parts[2], at_once) ||
        put_sized(batch, 's', PyByteArray_GET_SIZE(undone), PyByteArray_AS_STRING(undone)) ||
        put_mark(batch, rolled_back == Py_True ? 'T' : 'F') || put_int64(batch, time_us) ||
        (duration_us < 0 ? put_mark(batch, 'N') : put_int64(batch, duration_us)) ||
        put_int64(batch, n = PyList_GET_SIZE(events))) {
        return -1;
    }
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(events); i++) {
        if (put_event(batch, PyList_GET_ITEM(events, i), at_once, &values) < 0) {
            return -1;
        }
    }
    if (values > INT32_MAX || PyList_GET_SIZE(events) != n) {
        return -1; /* It is changed by what it calls. */
    }
    put_le(batch->data + begin + 1, (uint64_t)values, 4);
    return 0;
}

static void
accept(Batch *batch, Py_ssize_t events)
{
    batch->next.count++;
    batch->next.events += events;
    batch->before = batch->now;
    batch->now = batch->next;
    batch->added++;
    batch->accepted += events;
}

/* Forget what was put since the last transaction was accepted. What is held for it stands for nothing from
   here on, and waits to be let go. */
static void
cut(Batch *batch)
{
    for (; batch->now.held < batch->next.held; batch->now.held++) {
        Held *held = batch->holding->each + batch->now.held;
        held->size = 0;
        held->at = batch->now.size;
    }
    batch->next = batch->now;
}

/* Whether code that `add` runs calls, which is an error then. */
static int
is_within(Batch *batch)
{
    if (batch->is_busy) {
        PyErr_SetString(PyExc_RuntimeError, "called from inside the transaction that is being added");
    }
    return batch->is_busy;
}

static PyObject *
add_record(Batch *batch, PyObject *record, int64_t time_us, int64_t duration_us, int at_once)
{
    PyObject *names[] = {op_, request_id_, reason_, undone_, rolled_back_, events_}, *parts[6] = {NULL};
    int failed = 0;
    batch->is_busy = 1;
    batch->next = batch->now;
    for (int i = 0; !failed && i < 6; i++) {
        failed = (parts[i] = PyObject_GetAttr(record, names[i])) == NULL ? -1 : 0;
    }
    if (failed || put_record(batch, parts, time_us, duration_us, at_once) < 0) {
        failed = -1;
        cut(batch);
    } else {
        accept(batch, PyList_GET_SIZE(parts[5]));
    }
    batch->is_busy = 0;
    for (int i = 0; i < 6; i++) {
        Py_XDECREF(parts[i]);
    }
    if (failed && PyErr_Occurred()) {
        /* What is wrong with a value is said where it is pickled. */
        if (!PyErr_ExceptionMatches(PyExc_Exception)) {
            return NULL;
        }
        PyErr_Clear();
    }
    return PyBool_FromLong(!failed);
}

static PyObject *
Batch_add(Batch *batch, PyObject *const *given, Py_ssize_t count)
{
    if (count != 3) {
        PyErr_SetString(PyExc_TypeError, "takes a record, its time and how long it took");
        return NULL;
    }
    int64_t time_us = PyLong_AsLongLong(given[1]);
    int64_t duration_us = given[2] == Py_None ? -1 : PyLong_AsLongLong(given[2]);
    return PyErr_Occurred() || is_within(batch) ? NULL
                                                : add_record(batch, given[0], time_us, duration_us, 0);
}

static int
is_well(Batch *batch)
{
    return batch->is_open && *(const volatile int64_t *)batch->phase.buf == batch->recording;
}

static int64_t
taken_us(Batch *batch)
{
    int64_t began_ns = batch->began_ns;
    batch->began_ns = 0;
    return began_ns ? (now_ns(CLOCK_MONOTONIC) - began_ns) / 1000 : -1;
}

static PyObject *
Batch_add_now(Batch *batch, PyObject *record)
{
    if (!is_well(batch) || batch->is_busy || (PyObject *)Py_TYPE(record) != batch->record_class ||
        batch->now.events >= batch->most || batch->now.count >= batch->most) {
        Py_RETURN_FALSE;
    }
    /* Collecting garbage would run whatever is to be run then. */
    int collects = PyGC_Disable();
    int64_t began_ns = batch->began_ns;
    int64_t duration_us = taken_us(batch);
    PyObject *added = add_record(batch, record, now_ns(CLOCK_REALTIME) / 1000, duration_us, 1);
    if (added == Py_False) {
        batch->began_ns = began_ns;
    }
    if (collects) {
        PyGC_Enable();
    }
    return added;
}

static PyObject *
Batch_add_pickled(Batch *batch, PyObject *const *given, Py_ssize_t count)
{
    if (count != 2 || !PyBytes_CheckExact(given[0])) {
        PyErr_SetString(PyExc_TypeError, "takes bytes and a count of events");
        return NULL;
    }
    Py_ssize_t events = PyLong_AsSsize_t(given[1]);
    if (events < 0) {
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_ValueError, "found %zd events", events);
    }
    if (is_within(batch)) {
        return NULL;
    }
    batch->next = batch->now;
    if (put_sized(batch, 's', PyBytes_GET_SIZE(given[0]), PyBytes_AS_STRING(given[0])) < 0) {
        cut(batch);
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_OverflowError, "a transaction is too large");
    }
    accept(batch, events);
    Py_RETURN_NONE;
}

static PyObject *
Batch_begin(Batch *batch, PyObject *nothing)
{
    batch->began_ns = now_ns(CLOCK_MONOTONIC);
    Py_RETURN_NONE;
}

static PyObject *
Batch_times(Batch *batch, PyObject *nothing)
{
    int64_t duration_us = taken_us(batch), time_us = now_ns(CLOCK_REALTIME) / 1000;
    return duration_us < 0 ? Py_BuildValue("LO", (long long)time_us, Py_None)
                           : Py_BuildValue("LL", (long long)time_us, (long long)duration_us);
}

static PyObject *
Batch_take_back(Batch *batch, PyObject *nothing)
{
    if (batch->is_busy || !batch->now.count || batch->before.count == batch->now.count) {
        Py_RETURN_FALSE;
    }
    batch->next = batch->now;
    batch->added--;
    batch->accepted -= batch->now.events - batch->before.events;
    batch->now = batch->before;
    cut(batch);
    batch->before = batch->now;
    Py_RETURN_TRUE;
}

/* Write the head of a frame over the room that is left for it, and tell how long the frame is. */
static Py_ssize_t
headed(Batch *batch)
{
    Py_ssize_t size = batch->now.size + batch->now.held_bytes;
    put_le(batch->data, (uint64_t)(size - HEADER), 8);
    batch->data[8] = (char)batch->form;
    batch->data[HEADER] = '[';
    put_le(batch->data + HEADER + 1, (uint64_t)batch->now.count, 4);
    return size;
}

static void
gather(const Batch *batch, char *to)
{
    Py_ssize_t own = 0;
    for (Py_ssize_t i = 0; i < batch->now.held; i++) {
        const Held *held = batch->holding->each + i;
        memcpy(to, batch->data + own, held->at - own);
        to += held->at - own;
        memcpy(to, held->data, held->size);
        to += held->size;
        own = held->at;
    }
    memcpy(to, batch->data + own, batch->now.size - own);
}

/* Begin anew after a frame was handed over. */
static void
clear(Batch *batch)
{
    if (batch->now.held) {
        batch->holding->count = batch->now.held;
        batch->holding->older = batch->gone;
        batch->gone = batch->holding;
        batch->holding = NULL;
    }
    batch->frames++;
    batch->now = batch->before = batch->next = (Place){.size = HEAD};
    if (batch->capacity > KEPT_BYTES) {
        char *less = PyMem_Realloc(batch->data, KEPT_BYTES);
        if (less != NULL) {
            batch->data = less;
            batch->capacity = KEPT_BYTES;
        }
    }
}

static PyObject *
Batch_let_go(Batch *batch, PyObject *nothing)
{
    /* Whatever an object runs at its end finds the batch whole, and it no longer there. */
    while (!batch->is_busy && batch->now.held && !batch->holding->each[batch->now.held - 1].size) {
        PyObject *owner = batch->holding->each[--batch->now.held].owner;
        batch->next = batch->now;
        if (batch->before.held > batch->now.held) {
            batch->before.held = batch->now.held;
        }
        Py_DECREF(owner);
    }
    while (batch->gone != NULL) {
        Holding *gone = batch->gone;
        batch->gone = gone->older;
        for (Py_ssize_t i = 0; i < gone->count; i++) {
            Py_DECREF(gone->each[i].owner);
        }
        if (batch->holding == NULL) {
            batch->holding = gone;
        } else {
            PyMem_Free(gone);
        }
    }
    Py_RETURN_NONE;
}

static PyObject *
Batch_write(Batch *batch, PyObject *nothing)
{
    if (!is_well(batch) || batch->is_busy || !batch->now.count) {
        Py_RETURN_FALSE;
    }
    int64_t *counters = batch->counters.buf, written = counters[PUBLISHED];
    int64_t read = __atomic_load_n(counters + READ, __ATOMIC_SEQ_CST);
    Py_ssize_t ring = batch->memory.len, at = written % ring, size = headed(batch);
    if (read < 0 || written < read || size > ring - at || size > ring - (written - read)) {
        Py_RETURN_FALSE;
    }
    gather(batch, (char *)batch->memory.buf + at);
    /* Whoever sees this sees what was copied before; and who writes looks next whether the reader sleeps. */
    __atomic_store_n(counters + PUBLISHED, written + size, __ATOMIC_SEQ_CST);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    clear(batch);
    Py_RETURN_TRUE;
}

static PyObject *
Batch_take(Batch *batch, PyObject *nothing)
{
    PyObject *made = is_within(batch) ? NULL : PyBytes_FromStringAndSize(NULL, headed(batch));
    if (made == NULL) {
        return NULL;
    }
    gather(batch, PyBytes_AS_STRING(made));
    clear(batch);
    return Py_BuildValue("[N]", made);
}

/* Its beginning and its end. */

/* Whether a batch can follow a word and write into a ring, given as their memory. */
static int
are_usable(const Py_buffer *phase, const Py_buffer *memory, const Py_buffer *counters)
{
    if (phase->len < 8 || memory->len < 1 || counters->len < 8 * COUNTERS || (uintptr_t)phase->buf % 8 ||
        (uintptr_t)counters->buf % 8) {
        return 0;
    }
    const int64_t *counts = counters->buf;
    return 0 <= counts[READ] && counts[READ] <= counts[PUBLISHED];
}

static PyObject *
Batch_open(Batch *batch, PyObject *const *given, Py_ssize_t count)
{
    Py_buffer found[3] = {{NULL}};
    if (count != 5) {
        PyErr_SetString(PyExc_TypeError, "takes a word, its value, a ring and a limit");
        return NULL;
    }
    int64_t recording = PyLong_AsLongLong(given[1]);
    Py_ssize_t most = PyErr_Occurred() ? 0 : PyLong_AsSsize_t(given[4]);
    for (int i = 0; !PyErr_Occurred() && i < 3; i++) {
        PyObject_GetBuffer(given[i ? i + 1 : 0], found + i, i ? PyBUF_WRITABLE : PyBUF_SIMPLE);
    }
    if (!PyErr_Occurred() && batch->phase.obj != NULL) {
        PyErr_SetString(PyExc_TypeError, "it was opened already");
    } else if (!PyErr_Occurred() && !are_usable(found, found + 1, found + 2)) {
        PyErr_SetString(PyExc_ValueError, "an aligned word, some memory and two counters of it are needed");
    }
    if (PyErr_Occurred()) {
        for (int i = 0; i < 3; i++) {
            PyBuffer_Release(found + i);
        }
        return NULL;
    }
    batch->phase = found[0];
    batch->memory = found[1];
    batch->counters = found[2];
    batch->recording = recording;
    batch->most = most;
    batch->is_open = 1;
    Py_RETURN_NONE;
}

static PyObject *
Batch_shut(Batch *batch, PyObject *nothing)
{
    batch->is_open = 0;
    Py_RETURN_NONE;
}

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
    if (way == ARRAY) {
        const PyArray_Descr *dtype = (PyArray_Descr *)type;
        return PyArray_DescrCheck(type) && PyArray_ISNBO(dtype->byteorder) &&
               (dtype->type_num == NPY_INT64 || dtype->type_num == NPY_UINT64);
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
                PyErr_SetString(PyExc_TypeError, "arrays are of 64-bit integers, and choices are texts");
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

/* The other end. */

static PyObject *
expanded(PyObject *module, PyObject *given)
{
    if (!PyBytes_CheckExact(given) || PyBytes_GET_SIZE(given) % 16) {
        PyErr_SetString(PyExc_ValueError, "runs are bytes, 16 each");
        return NULL;
    }
    Py_ssize_t runs = PyBytes_GET_SIZE(given) / 16, n = 0;
    const char *data = PyBytes_AS_STRING(given);
    for (Py_ssize_t i = 0; i < runs; i++) {
        int64_t length;
        memcpy(&length, data + 16 * i + 8, 8);
        if (length < 1 || length > PY_SSIZE_T_MAX / 8 - n) {
            PyErr_SetString(PyExc_ValueError, "a run has at least one entry, and memory an end");
            return NULL;
        }
        n += length;
    }
    PyObject *made = PyBytes_FromStringAndSize(NULL, 8 * n);
    if (made == NULL) {
        return NULL;
    }
    uint64_t *to = (uint64_t *)PyBytes_AS_STRING(made);
    for (Py_ssize_t i = 0; i < runs; i++) {
        uint64_t pair[2];
        memcpy(pair, data + 16 * i, 16);
        for (uint64_t entry = 0; entry < pair[1]; entry++) {
            *to++ = pair[0] + entry;
        }
    }
    return made;
}

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
        PyModule_AddIntMacro(module, MANY_ENTRIES) < 0 || PyModule_AddIntMacro(module, ENTRIES_A_RUN) < 0 ||
        PyModule_AddIntMacro(module, MARSHAL_VERSION) < 0 || PyModule_AddIntMacro(module, MOST_BYTES) < 0) {
        Py_XDECREF(module);
        return NULL;
    }
    return module;
}
