/* A part of packed.c, which includes it once, before the others: what a batch consists of, and bytes that are
   added to it.

   What puts something answers 0 or -1. Where no exception is set with that, what it was given is odd: of a
   type that does not belong there, or too large.
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
enum { FEW_TOKEN_BYTES = 1024, FEW_ARRAY_BYTES = 8192 };
enum { MANY_ENTRIES = 64, MOST_ENTRIES = INT32_MAX, ENTRIES_A_RUN = 4 };

/* As in plans.py: the ways of a field, and the size of a frame's header. */
enum { INT, BOOL, TEXT, TOKENS, PAGE_ARRAY, SUM_ARRAY, CHOICE, ORIGIN, NUMBERS, OTHER, OPTIONAL = 64 };
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

/* Rare, and a function of its own so that `room` is small enough to be inlined wherever something is put. */
__attribute__((noinline, cold)) static int
grow(Batch *batch, Py_ssize_t bytes)
{
    int is_too_much = bytes > PY_SSIZE_T_MAX / 2 - batch->next.size;
    Py_ssize_t capacity = is_too_much ? 0 : 2 * (batch->next.size + bytes);
    char *data = is_too_much ? NULL : PyMem_Realloc(batch->data, capacity);
    if (data == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    batch->data = data;
    batch->capacity = capacity;
    return 0;
}

static inline char *
room(Batch *batch, Py_ssize_t bytes)
{
    if (bytes > batch->capacity - batch->next.size && grow(batch, bytes) < 0) {
        return NULL;
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

static int
put_bytes(Batch *batch, PyObject *value, const char *data, Py_ssize_t size, Py_ssize_t few)
{
    return size > few ? put_held(batch, value, data, size) : put_sized(batch, 's', size, data);
}
