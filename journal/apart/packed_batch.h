/* A part of packed.c, which includes it once, after packed_values.h: transactions are added to a batch, taken
   back and handed over. */

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
