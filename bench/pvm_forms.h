/* The forms in which a PVM program may send and receive a message. */
#ifndef HPVM_BENCH_PVM_FORMS_H
#define HPVM_BENCH_PVM_FORMS_H

#include "bench.h"
#include <pvm3.h>

enum form {
    PSEND, RAW_BYTE, RAW_INT, RAW_DOUBLE, DEFAULT_BYTE, DEFAULT_INT, DEFAULT_DOUBLE, FORM_COUNT
};

static const char *const form_names[FORM_COUNT] = {
    "psend", "raw_byte", "raw_int", "raw_double", "default_byte", "default_int", "default_double"
};

/* Checks the result of a PVM call that must not fail, and returns it. */
static inline int must(int result, const char *call)
{
    if (result < 0) {
        fprintf(stderr, "bench: %s gave %d\n", call, result);
        exit(1);
    }
    return result;
}

static inline int pack(enum form form, char *data, int size)
{
    switch (form) {
    case RAW_INT:
    case DEFAULT_INT:
        return pvm_pkint((int *)data, size / (int)sizeof(int), 1);
    case RAW_DOUBLE:
    case DEFAULT_DOUBLE:
        return pvm_pkdouble((double *)data, size / (int)sizeof(double), 1);
    default:
        return pvm_pkbyte(data, size, 1);
    }
}

static inline int unpack(enum form form, char *data, int size)
{
    switch (form) {
    case RAW_INT:
    case DEFAULT_INT:
        return pvm_upkint((int *)data, size / (int)sizeof(int), 1);
    case RAW_DOUBLE:
    case DEFAULT_DOUBLE:
        return pvm_upkdouble((double *)data, size / (int)sizeof(double), 1);
    default:
        return pvm_upkbyte(data, size, 1);
    }
}

/* Sends `size` bytes, by pvm_psend or by pvm_initsend, a pack call and pvm_send. */
static inline void send_form(enum form form, int to, int tag, char *data, int size)
{
    if (form == PSEND) {
        must(pvm_psend(to, tag, data, size, PVM_BYTE), "pvm_psend");
        return;
    }
    must(pvm_initsend(form >= DEFAULT_BYTE ? PvmDataDefault : PvmDataRaw), "pvm_initsend");
    must(pack(form, data, size), "packing");
    must(pvm_send(to, tag), "pvm_send");
}

/* Receives `size` bytes, by pvm_precv or by pvm_recv and an unpack call. */
static inline void receive_form(enum form form, int from, int tag, char *data, int size)
{
    if (form == PSEND) {
        int sender, its_tag, length;
        must(pvm_precv(from, tag, data, size, PVM_BYTE, &sender, &its_tag, &length), "pvm_precv");
        if (length != size)
            fail("pvm_precv gave another length");
        return;
    }
    must(pvm_recv(from, tag), "pvm_recv");
    must(unpack(form, data, size), "unpacking");
}

#endif
