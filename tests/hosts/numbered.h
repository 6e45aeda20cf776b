/* Messages that contain a number, followed by bytes that all have this number as their value. */
#ifndef NUMBERED_H
#define NUMBERED_H

#include "case.h"

#define NUMBERED_BYTES_MAX (2 << 20)

/* Makes the send buffer a message with this number and length. */
static void pack_numbered(int number, int size)
{
    static char bytes[NUMBERED_BYTES_MAX];
    memset(bytes, number, size);
    pvm_initsend(PvmDataRaw);
    pvm_pkint(&number, 1, 1);
    pvm_pkint(&size, 1, 1);
    pvm_pkbyte(bytes, size, 1);
}

static void send_numbered(int tid, int tag, int number, int size)
{
    pack_numbered(number, size);
    pvm_send(tid, tag);
}

/* Returns whether the active message has this number and is complete. */
static int is_numbered(int number)
{
    static char bytes[NUMBERED_BYTES_MAX];
    int found, size, i;
    pvm_upkint(&found, 1, 1);
    pvm_upkint(&size, 1, 1);
    if (found != number || size < 0 || size > NUMBERED_BYTES_MAX || pvm_upkbyte(bytes, size, 1) < 0)
        return 0;
    for (i = 0; i < size; i++)
        if (bytes[i] != (char)number)
            return 0;
    return 1;
}

#endif
