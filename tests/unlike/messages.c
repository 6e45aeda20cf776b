/* Rows about the contents of messages. */
#include "unlike.h"

/* Item `index` of `stride` is at room + (index * stride + shift) items. */
#define ROOM_ITEMS 64
static const int strides[] = {1, 2, 3, 7, 0, -2};
#define STRIDES ((int)(sizeof strides / sizeof strides[0]))
/* A text in the default encoding, which is the same everywhere. */
#define MARK "between"

static char *place(char *room, int type, int index, int stride)
{
    int shift = stride < 0 ? 2 * ITEMS : 0;
    return room + (index * stride + shift) * types[type].bytes;
}

/* Puts the items at their places in memory and packs them from there. With stride 0 all have the same place, so
 * the last one is packed. */
static const char *pack_strided(int type, int stride)
{
    char items[ITEMS * 16], room[ROOM_ITEMS * 16];
    int i, size = types[type].bytes;
    make_items(type, items);
    memset(room, 0x55, sizeof room);
    for (i = 0; i < ITEMS; i++)
        memcpy(place(room, type, i, stride), items + i * size, size);
    EXPECT(pack_items(type, place(room, type, 0, stride), ITEMS, stride), 0);
    return NULL;
}

static const char *unpack_strided(int type, int stride)
{
    char items[ITEMS * 16], room[ROOM_ITEMS * 16], want[ROOM_ITEMS * 16];
    int i, size = types[type].bytes;
    make_items(type, items);
    memset(room, 0x33, sizeof room);
    memset(want, 0x33, sizeof want);
    for (i = 0; i < ITEMS; i++)
        memcpy(place(want, type, i, stride), items + (stride ? i : ITEMS - 1) * size, size);
    EXPECT(unpack_items(type, place(room, type, 0, stride), ITEMS, stride), 0);
    for (i = 0; i < ROOM_ITEMS; i++)
        MUST(!memcmp(room + i * size, want + i * size, size), "stride %d: place %d differs", stride, i);
    return NULL;
}

static const char *send_type(const struct cell *cell, int type)
{
    const char *error = NULL;
    int i;
    WELL(pvm_initsend(PvmDataDefault));
    for (i = 0; i < STRIDES && !error; i++) {
        error = pack_strided(type, strides[i]);
        if (!error)
            EXPECT(pvm_pkstr(MARK), 0);
    }
    EXPECT(pvm_send(cell->receiver, cell->tag), 0);
    return error;
}

static const char *unpack_all(int type)
{
    const char *error = NULL;
    char text[20];
    int i;
    for (i = 0; i < STRIDES && !error; i++) {
        error = unpack_strided(type, strides[i]);
        if (!error) {
            EXPECT(pvm_upkstr(text), 0);
            MUST(!strcmp(text, MARK), "behind stride %d stands `%s`", strides[i], text);
        }
    }
    return error;
}

/* Checks that the receiver has converted the expected number of items between unlike hosts, and none between
 * alike ones. */
static const char *check_count(const struct cell *cell, int before, int wanted)
{
    EXPECT(converted() - before, alike(cell->from, cell->to) ? 0 : wanted);
    return NULL;
}

static const char *check_type(const struct cell *cell, int type)
{
    const char *error;
    char spare[16];
    int before = converted();
    WELL(receive(cell->sender, cell->tag));
    error = unpack_all(type);
    if (error)
        return error;
    EXPECT(unpack_items(type, spare, 1, 1), PvmNoData);
    return check_count(cell, before, type == T_BYTE ? 0 : STRIDES * ITEMS);
}

static const char *send_strings(const struct cell *cell, int argument)
{
    static char long_text[3000];
    (void)argument;
    memset(long_text, 'x', sizeof long_text - 1);
    WELL(pvm_initsend(PvmDataDefault));
    EXPECT(pvm_pkstr(""), 0);
    EXPECT(pvm_pkstr("abc"), 0);
    EXPECT(pvm_pkstr("\303\266\377\001"), 0);
    EXPECT(pvm_pkstr(long_text), 0);
    EXPECT(pvm_send(cell->receiver, cell->tag), 0);
    return NULL;
}

static const char *check_strings(const struct cell *cell, int argument)
{
    char text[3100];
    size_t i;
    (void)argument;
    WELL(receive(cell->sender, cell->tag));
    EXPECT(pvm_upkstr(text), 0);
    EXPECT((int)strlen(text), 0);
    EXPECT(pvm_upkstr(text), 0);
    EXPECT(strcmp(text, "abc"), 0);
    EXPECT(pvm_upkstr(text), 0);
    EXPECT(strcmp(text, "\303\266\377\001"), 0);
    EXPECT(pvm_upkstr(text), 0);
    EXPECT((int)strlen(text), 2999);
    for (i = 0; i < 2999; i++)
        MUST(text[i] == 'x', "byte %d of a string is %d", (int)i, text[i]);
    EXPECT(pvm_upkstr(text), PvmNoData);
    return NULL;
}

/* A value that does not fit into the receiver's type ends the unpack call. The values before it are unpacked;
 * it and the following ones can still be unpacked. */
static const char *send_large(const struct cell *cell, int type)
{
    char items[ITEMS * 8];
    make_large(type, items, sizeof(long));
    WELL(pvm_initsend(PvmDataDefault));
    EXPECT(pack_items(type, items, ITEMS, 1), 0);
    EXPECT(pvm_pkstr(MARK), 0);
    EXPECT(pvm_send(cell->receiver, cell->tag), 0);
    return NULL;
}

static const char *check_large(const struct cell *cell, int type)
{
    char items[ITEMS * 8], want[ITEMS * 8], text[20], rest[8 * (ITEMS - LARGE_FIRST)];
    int size = types[type].bytes, from_long = kinds[cell->from].long_bytes;
    WELL(receive(cell->sender, cell->tag));
    make_large(type, want, from_long);
    memset(items, 0x33, sizeof items);
    if (from_long <= (int)sizeof(long)) {
        EXPECT(unpack_items(type, items, ITEMS, 1), 0);
        EXPECT(memcmp(items, want, ITEMS * size), 0);
    } else {
        memset(want + LARGE_FIRST * size, 0x33, sizeof want - LARGE_FIRST * size);
        EXPECT(unpack_items(type, items, ITEMS, 1), PvmOverflow);
        EXPECT(memcmp(items, want, sizeof items), 0);
        EXPECT(unpack_items(type, items, 1, 1), PvmOverflow);
        EXPECT(pvm_upkbyte(rest, sizeof rest, 1), 0);
        if (kinds[cell->from].signature == kinds[0].signature)
            EXPECT(memcmp(rest, type == T_LONG ? "\360\336\274\232\170\126\064\022\0\0\0\0\0\0\0\200" :
                "\360\336\274\232\170\126\064\022\377\377\377\377\377\377\377\377", 16), 0);
        else
            EXPECT(memcmp(rest, type == T_LONG ? "\022\064\126\170\232\274\336\360\200\0\0\0\0\0\0\0" :
                "\022\064\126\170\232\274\336\360\377\377\377\377\377\377\377\377", 16), 0);
    }
    EXPECT(pvm_upkstr(text), 0);
    EXPECT(strcmp(text, MARK), 0);
    return NULL;
}

/* Native bytes: hosts of the same format can unpack every type; other hosts can only unpack them as bytes
 * (otherwise PvmBadMsg). */
static const char *send_native(const struct cell *cell, int encoding)
{
    static char items[TYPES][ITEMS * 16];
    int type;
    WELL(pvm_initsend(encoding));
    for (type = 0; type < TYPES; type++) {
        make_items(type, items[type]);
        EXPECT(pack_items(type, items[type], ITEMS, 1), 0);
    }
    EXPECT(pvm_send(cell->receiver, cell->tag), 0);
    return NULL;
}

static const char *check_native(const struct cell *cell, int encoding)
{
    char items[ITEMS * 16], got[ITEMS * 16];
    int type, mid = receive(cell->sender, cell->tag), before = converted(), bytes, sum = 0;
    (void)encoding;
    WELL(mid);
    for (type = 0; type < TYPES; type++) {
        int size = types[type].bytes, result;
        if (type == T_LONG || type == T_ULONG)
            size = kinds[cell->from].long_bytes;
        sum += ITEMS * size;
        make_items(type, items);
        memset(got, 0x33, sizeof got);
        result = unpack_items(type, got, ITEMS, 1);
        if (alike(cell->from, cell->to) || type == T_BYTE) {
            MUST(result == 0, "%s: %d", types[type].name, result);
            MUST(!memcmp(got, items, ITEMS * size), "%s differs", types[type].name);
        } else {
            MUST(result == PvmBadMsg, "%s: %d", types[type].name, result);
            EXPECT(pvm_upkbyte(got, ITEMS * size, 1), 0);
        }
    }
    EXPECT(pvm_bufinfo(mid, &bytes, NULL, NULL), 0);
    EXPECT(bytes, sum);
    return check_count(cell, before, 0);
}

static const char *send_packf(const struct cell *cell, int argument)
{
    short shorts[2] = {-2, 300};
    double complex_number[2] = {1.5, -0.25};
    float floats[3] = {0.5f, 99, -3};
    (void)argument;
    EXPECT(pvm_packf("%+ %c %hd %hud %d %ud %ld %lud %f %lf %lx %s %2hd %2.2f %*d", PvmDataDefault, 'c', -7, 60000,
                     -100000, 4000000000u, -5L, 4000000000ul, 0.75, 1e300, complex_number, "text", shorts, floats, 1,
                     &argument), 0);
    EXPECT(pvm_send(cell->receiver, cell->tag), 0);
    return NULL;
}

static const char *check_packf(const struct cell *cell, int argument)
{
    char byte, text[20];
    short small, shorts[2];
    unsigned short unsigned_small;
    int plain, last;
    unsigned unsigned_plain;
    long large;
    unsigned long unsigned_large;
    float single, floats[3] = {0, 7, 0};
    double real, complex_number[2];
    WELL(receive(cell->sender, cell->tag));
    EXPECT(pvm_unpackf("%c %hd %hud %d %ud %ld %lud %f %lf %lx %s %2hd %2.2f %*d", &byte, &small, &unsigned_small,
                       &plain, &unsigned_plain, &large, &unsigned_large, &single, &real, complex_number, text, shorts,
                       floats, 1, &last), 0);
    MUST(byte == 'c' && small == -7 && unsigned_small == 60000, "%d %d %d", byte, small, unsigned_small);
    MUST(plain == -100000 && unsigned_plain == 4000000000u, "%d %u", plain, unsigned_plain);
    MUST(large == -5 && unsigned_large == 4000000000ul, "%ld %lu", large, unsigned_large);
    MUST(single == 0.75 && real == 1e300, "%g %g", single, real);
    MUST(complex_number[0] == 1.5 && complex_number[1] == -0.25, "%g %g", complex_number[0], complex_number[1]);
    MUST(!strcmp(text, "text") && shorts[0] == -2 && shorts[1] == 300, "%s %d %d", text, shorts[0], shorts[1]);
    MUST(floats[0] == 0.5 && floats[1] == 7 && floats[2] == -3, "%g %g %g", floats[0], floats[1], floats[2]);
    MUST(last == argument, "%d", last);
    return NULL;
}

/* The receiver's type determines the conversion of psend messages. */
static const char *send_psend(const struct cell *cell, int type)
{
    char items[ITEMS * 16];
    make_items(type, items);
    EXPECT(pvm_psend(cell->receiver, cell->tag, items, ITEMS, types[type].number), 0);
    EXPECT(pvm_psend(cell->receiver, cell->tag, items, ITEMS, types[type].number), 0);
    EXPECT(pvm_psend(cell->receiver, cell->tag, items, ITEMS, types[type].number), 0);
    return NULL;
}

static const char *check_psend(const struct cell *cell, int type)
{
    char items[ITEMS * 16], got[(ITEMS + 2) * 16];
    int from, tag, bytes, before = converted(), size = types[type].bytes, number = types[type].number;
    make_items(type, items);
    memset(got, 0x33, sizeof got);
    /* More room than items, then less room; then the items are received as bytes by pvm_recv. */
    EXPECT(pvm_precv(cell->sender, cell->tag, got, ITEMS + 2, number, &from, &tag, &bytes), 0);
    EXPECT(from, cell->sender);
    EXPECT(bytes, ITEMS * size);
    EXPECT(memcmp(got, items, ITEMS * size), 0);
    EXPECT(got[ITEMS * size], 0x33);
    memset(got, 0x33, sizeof got);
    EXPECT(pvm_precv(-1, cell->tag, got, 2, number, NULL, NULL, &bytes), 0);
    EXPECT(bytes, ITEMS * size);
    EXPECT(memcmp(got, items, 2 * size), 0);
    EXPECT(got[2 * size], 0x33);
    WELL(receive(cell->sender, cell->tag));
    EXPECT(unpack_items(type, got, ITEMS, 1), alike(cell->from, cell->to) || type == T_BYTE ? 0 : PvmBadMsg);
    return check_count(cell, before, 2 * ITEMS);
}

static const char *send_psend_large(const struct cell *cell, int type)
{
    char items[ITEMS * 8];
    make_large(type, items, sizeof(long));
    EXPECT(pvm_psend(cell->receiver, cell->tag, items, ITEMS, types[type].number), 0);
    return NULL;
}

static const char *check_psend_large(const struct cell *cell, int type)
{
    char items[ITEMS * 8], want[ITEMS * 8];
    int size = types[type].bytes, from_long = kinds[cell->from].long_bytes, bytes, before;
    make_large(type, want, from_long);
    memset(items, 0x33, sizeof items);
    before = pvm_setopt(PvmAutoErr, 0);
    if (from_long <= (int)sizeof(long)) {
        EXPECT(pvm_precv(cell->sender, cell->tag, items, ITEMS, types[type].number, NULL, NULL, &bytes), 0);
        EXPECT(bytes, ITEMS * size);
        EXPECT(memcmp(items, want, ITEMS * size), 0);
    } else {
        memset(want + LARGE_FIRST * size, 0x33, sizeof want - LARGE_FIRST * size);
        EXPECT(pvm_precv(cell->sender, cell->tag, items, ITEMS, types[type].number, NULL, NULL, &bytes), PvmOverflow);
        EXPECT(memcmp(items, want, sizeof items), 0);
    }
    pvm_setopt(PvmAutoErr, before);
    return NULL;
}

/* The number of items of a message that is so long that it is sent in pieces. */
#define LONG_ITEMS 150000
static const char *send_long(const struct cell *cell, int one_call)
{
    double *items = malloc(LONG_ITEMS * sizeof *items);
    int i;
    for (i = 0; i < LONG_ITEMS; i++)
        items[i] = i * 1.25 - 7;
    if (one_call) {
        EXPECT(pvm_psend(cell->receiver, cell->tag, items, LONG_ITEMS, PVM_DOUBLE), 0);
    } else {
        WELL(pvm_initsend(PvmDataDefault));
        EXPECT(pvm_pkdouble(items, LONG_ITEMS, 1), 0);
        EXPECT(pvm_send(cell->receiver, cell->tag), 0);
    }
    free(items);
    return NULL;
}

static const char *check_long(const struct cell *cell, int one_call)
{
    double *items = calloc(LONG_ITEMS, sizeof *items);
    int i, bytes, before = converted();
    if (one_call) {
        EXPECT(pvm_precv(cell->sender, cell->tag, items, LONG_ITEMS, PVM_DOUBLE, NULL, NULL, &bytes), 0);
        EXPECT(bytes, LONG_ITEMS * 8);
    } else {
        WELL(receive(cell->sender, cell->tag));
        EXPECT(pvm_upkdouble(items, LONG_ITEMS, 1), 0);
    }
    for (i = 0; i < LONG_ITEMS; i++)
        MUST(items[i] == i * 1.25 - 7, "item %d is %g", i, items[i]);
    free(items);
    return check_count(cell, before, LONG_ITEMS);
}

/* A message inside a message: one that the sender itself has packed, and one that the third host forwards
 * inside another. */
static const char *send_embedded(const struct cell *cell, int argument)
{
    int inner, outer, number = -77;
    long large = -123456;
    (void)argument;
    WELL(inner = pvm_mkbuf(PvmDataDefault));
    pvm_setsbuf(inner);
    EXPECT(pvm_pkint(&number, 1, 1), 0);
    EXPECT(pvm_pklong(&large, 1, 1), 0);
    EXPECT(pvm_pkstr("inside"), 0);
    WELL(outer = pvm_mkbuf(PvmDataDefault));
    pvm_setsbuf(outer);
    EXPECT(pvm_pkstr("before"), 0);
    EXPECT(pvm_pkmesg(inner), 0);
    EXPECT(pvm_pkint(&number, 1, 1), 0);
    EXPECT(pvm_send(cell->via < 0 ? cell->receiver : cell->forwarder, cell->tag), 0);
    pvm_freebuf(inner);
    pvm_freebuf(outer);
    return NULL;
}

/* The whole received message goes into a message of the third host. */
static const char *embed_once_more(const struct cell *cell, int argument)
{
    int mid, outer, number = 5;
    (void)argument;
    WELL(mid = receive(cell->sender, cell->tag));
    WELL(outer = pvm_mkbuf(PvmDataDefault));
    pvm_setsbuf(outer);
    EXPECT(pvm_pkint(&number, 1, 1), 0);
    EXPECT(pvm_pkmesg(mid), 0);
    EXPECT(pvm_send(cell->receiver, cell->tag), 0);
    pvm_freebuf(outer);
    return NULL;
}

static const char *check_inner(void)
{
    int number = 0, mid, before;
    long large = 0;
    char text[20];
    EXPECT(pvm_upkstr(text), 0);
    EXPECT(strcmp(text, "before"), 0);
    WELL(mid = pvm_upkmesg());
    EXPECT(pvm_upkint(&number, 1, 1), 0);
    EXPECT(number, -77);
    before = pvm_setrbuf(mid);
    EXPECT(pvm_upkint(&number, 1, 1), 0);
    EXPECT(number, -77);
    EXPECT(pvm_upklong(&large, 1, 1), 0);
    EXPECT((int)large, -123456);
    EXPECT(pvm_upkstr(text), 0);
    EXPECT(strcmp(text, "inside"), 0);
    pvm_setrbuf(before);
    pvm_freebuf(mid);
    return NULL;
}

static const char *check_embedded(const struct cell *cell, int argument)
{
    const char *error;
    int number = 0, mid;
    (void)argument;
    WELL(receive(cell->via < 0 ? cell->sender : cell->forwarder, cell->tag));
    if (cell->via < 0)
        return check_inner();
    EXPECT(pvm_upkint(&number, 1, 1), 0);
    EXPECT(number, 5);
    WELL(mid = pvm_upkmesg());
    pvm_setrbuf(mid);
    error = check_inner();
    pvm_freebuf(mid);
    return error;
}

/* Every type in one message; a third host forwards it unread, and it keeps the first host's format.
 */
static const char *send_all_types(const struct cell *cell, int argument)
{
    char items[ITEMS * 16];
    int type;
    (void)argument;
    WELL(pvm_initsend(PvmDataDefault));
    for (type = 0; type < TYPES; type++) {
        make_items(type, items);
        EXPECT(pack_items(type, items, ITEMS, 1), 0);
    }
    EXPECT(pvm_pkstr(MARK), 0);
    EXPECT(pvm_send(cell->forwarder, cell->tag), 0);
    return NULL;
}

static const char *unpack_all_types(void)
{
    char items[ITEMS * 16], got[ITEMS * 16], text[20];
    int type;
    for (type = 0; type < TYPES; type++) {
        make_items(type, items);
        EXPECT(unpack_items(type, got, ITEMS, 1), 0);
        MUST(!memcmp(got, items, ITEMS * types[type].bytes), "%s differs", types[type].name);
    }
    EXPECT(pvm_upkstr(text), 0);
    EXPECT(strcmp(text, MARK), 0);
    return NULL;
}

static const char *pass_on(const struct cell *cell, int append)
{
    int mid, before = converted(), old;
    char items[ITEMS * 16];
    WELL(mid = receive(cell->sender, cell->tag));
    old = pvm_setsbuf(mid);
    if (append) {
        int type;
        for (type = 0; type < TYPES; type++) {
            make_items(type, items);
            EXPECT(pack_items(type, items, ITEMS, 1), 0);
        }
        EXPECT(pvm_pkstr(MARK), 0);
    }
    EXPECT(pvm_send(cell->receiver, cell->tag), 0);
    pvm_setsbuf(old);
    pvm_freebuf(mid);
    /* The forwarder does not interpret the bytes; items that it appends get the format of the bytes. */
    EXPECT(converted() - before, append && !alike(cell->from, cell->via) ? (TYPES - 1) * ITEMS : 0);
    return NULL;
}

static const char *check_passed(const struct cell *cell, int appended)
{
    const char *error;
    char byte;
    int before = converted();
    WELL(receive(cell->forwarder, cell->tag));
    error = unpack_all_types();
    if (!error && appended)
        error = unpack_all_types();
    if (error)
        return error;
    EXPECT(pvm_upkbyte(&byte, 1, 1), PvmNoData);
    return check_count(cell, before, (appended ? 2 : 1) * (TYPES - 1) * ITEMS);
}

/* ----- A message handler: it is called with the message, and no receive call returns that message */

static struct {
    int handler, calls;
    double real;
    long whole;
} handled;

static int handle(int mid)
{
    int old = pvm_setrbuf(mid);
    handled.calls++;
    if (pvm_upkdouble(&handled.real, 1, 1) < 0 || pvm_upklong(&handled.whole, 1, 1) < 0)
        handled.real = handled.whole = 0;
    pvm_setrbuf(old);
    return 0;
}

static const char *add_handler(const struct cell *cell, int argument)
{
    (void)argument;
    handled.calls = 0;
    WELL(handled.handler = pvm_addmhf(cell->sender, cell->tag, pvm_getcontext(), handle));
    return NULL;
}

static const char *send_handled(const struct cell *cell, int whole)
{
    WELL(pvm_initsend(PvmDataDefault));
    EXPECT(pvm_pkdouble(&(double){-0.375}, 1, 1), 0);
    EXPECT(pvm_pklong(&(long){whole}, 1, 1), 0);
    EXPECT(pvm_send(cell->receiver, cell->tag), 0);
    return NULL;
}

static const char *check_handled(const struct cell *cell, int whole)
{
    struct timeval pause = {0, 50000};
    int pauses;
    for (pauses = 0; !handled.calls && pauses < PATIENCE * 20; pauses++)
        EXPECT(pvm_trecv(cell->sender, cell->tag, &pause), 0);
    EXPECT(pvm_delmhf(handled.handler), 0);
    EXPECT(handled.calls, 1);
    MUST(handled.real == -0.375 && handled.whole == whole, "%g and %ld", handled.real, handled.whole);
    return NULL;
}

void messages_rows(void)
{
    char name[40];
    int i;
    for (i = 0; i < TYPES; i++)
        make_pair(types[i].name, i, send_type, check_type);
    make_pair("string", 0, send_strings, check_strings);
    make_pair("large long", T_LONG, send_large, check_large);
    make_pair("large ulong", T_ULONG, send_large, check_large);
    make_pair("packf", 4711, send_packf, check_packf);
    make_pair("long message", 0, send_long, check_long);
    make_pair("raw", PvmDataRaw, send_native, check_native);
    make_pair("in place", PvmDataInPlace, send_native, check_native);
    for (i = 0; i < TYPES; i++) {
        snprintf(name, sizeof name, "psend %s", types[i].name);
        make_pair(name, i, send_psend, check_psend);
    }
    make_pair("psend large long", T_LONG, send_psend_large, check_psend_large);
    make_pair("psend large ulong", T_ULONG, send_psend_large, check_psend_large);
    make_pair("psend, long message", 1, send_long, check_long);
    make_row("message handler", -70000, -1,
             (struct step[STEPS_MAX]){{RECEIVER, add_handler}, {SENDER, send_handled}, {RECEIVER, check_handled}});
    make_pair("pkmesg", 0, send_embedded, check_embedded);
    for (i = 0; i < KINDS; i++) {
        snprintf(name, sizeof name, "pkmesg by %s", kinds[i].label);
        make_row(name, 0, i, (struct step[STEPS_MAX]){{SENDER, send_embedded}, {FORWARDER, embed_once_more}, {RECEIVER, check_embedded}});
    }
    for (i = 0; i < KINDS; i++) {
        snprintf(name, sizeof name, "forwarded by %s", kinds[i].label);
        make_row(name, 0, i, (struct step[STEPS_MAX]){{SENDER, send_all_types}, {FORWARDER, pass_on}, {RECEIVER, check_passed}});
        snprintf(name, sizeof name, "appended by %s", kinds[i].label);
        make_row(name, 1, i, (struct step[STEPS_MAX]){{SENDER, send_all_types}, {FORWARDER, pass_on}, {RECEIVER, check_passed}});
    }
}
