/* Rows about FMP: bytes arrive as they are, whatever the formats of the hosts, and do not mix with messages of PVM. */
#include "unlike.h"
#include <fmp.h>

static const size_t lengths[] = {0, 1, 8, 16, 17, 505, 70000, 1 << 20};
#define LENGTHS ((int)(sizeof lengths / sizeof lengths[0]))

static const char *send_fmp(const struct cell *cell, int argument)
{
    unsigned char *data = malloc(1 << 20);
    const char *error = NULL;
    size_t i;
    int k;
    (void)argument;
    for (i = 0; i < 1 << 20; i++)
        data[i] = (unsigned char)(i * 7 + i / 251);
    for (k = 0; k < LENGTHS && !error; k++) {
        int fmp = fmp_send(cell->receiver, cell->tag, data, lengths[k]);
        int pvm = pvm_psend(cell->receiver, cell->tag, &k, 1, PVM_INT);
        error = fmp || pvm ? wrong("sends give %d and %d", fmp, pvm) : NULL;
    }
    free(data);
    return error;
}

/* Waits for a message by probes. Only the probe for the sender's side may find it. */
static const char *probe(const struct cell *cell, fmp_info *info)
{
    int is_local = pvm_tidtohost(cell->sender) == pvm_tidtohost(fmp_self()), tries, near, far;
    for (tries = 0; tries < PATIENCE * 1000; tries++) {
        near = fmp_probe_local(cell->sender, FMP_ANY, info);
        far = fmp_probe_network(FMP_ANY, cell->tag, info);
        if (near || far) {
            EXPECT(near, is_local);
            EXPECT(far, !is_local);
            return NULL;
        }
        usleep(1000);
    }
    return wrong("no message");
}

static const char *receive_fmp(const struct cell *cell, unsigned char *data, size_t length)
{
    const char *error;
    fmp_info info = {0, 0, 0};
    size_t i;
    error = probe(cell, &info);
    if (error)
        return error;
    EXPECT(info.source, cell->sender);
    EXPECT(info.tag, cell->tag);
    EXPECT((int)info.length, (int)length);
    if (length > 0)
        EXPECT(fmp_receive(cell->sender, FMP_ANY, data, length - 1, &info), FMP_ETRUNC);
    EXPECT(fmp_receive(FMP_ANY, cell->tag, data, length, &info), 0);
    EXPECT((int)info.length, (int)length);
    for (i = 0; i < length; i++)
        MUST(data[i] == (unsigned char)(i * 7 + i / 251), "byte %d of %d", (int)i, (int)length);
    return NULL;
}

static const char *check_fmp(const struct cell *cell, int argument)
{
    unsigned char *data = malloc(1 << 20);
    const char *error = NULL;
    int k, found;
    (void)argument;
    for (k = 0; k < LENGTHS && !error; k++)
        error = receive_fmp(cell, data, lengths[k]);
    free(data);
    for (k = 0; k < LENGTHS && !error; k++) {
        EXPECT(pvm_precv(cell->sender, cell->tag, &found, 1, PVM_INT, NULL, NULL, NULL), 0);
        EXPECT(found, k);
    }
    return error;
}

void fmp_rows(void)
{
    make_pair("fmp", 0, send_fmp, check_fmp);
}
