/* Messages of 0 bytes to 64 MiB to another host and back, on every route and in every form. */
//@ timeout 120
#include "hosts.h"

static const int sizes[] = {0, 1, 3, 4, 7, 63, 64, 65, 1000, 4079, 4080, 4081, 16383, 16384, 65535, 65536, 65537,
                            262143, 262144, 262145, 1000000, 1 << 20, (4 << 20) + 1, 64 << 20};
#define SIZES (int)(sizeof sizes / sizeof sizes[0])
#define LONGEST (64 << 20)

static unsigned char byte_at(int place, int seed)
{
    return (unsigned char)(place * 7 + (place >> 9) * 13 + seed);
}

static char *bytes;

static void fill(int size, int seed)
{
    int i;
    for (i = 0; i < size; i++)
        bytes[i] = (char)byte_at(i, seed);
}

static int wrong(int size, int seed)
{
    int i;
    for (i = 0; i < size; i++)
        if ((unsigned char)bytes[i] != byte_at(i, seed))
            return i + 1;
    return 0;
}

/* The other side sends back what it receives, in the same form. */
static void echo(void)
{
    int parent = pvm_parent(), form, route, size, length, tag, source;
    while (pvm_recv(parent, 1) > 0) {
        pvm_upkint(&form, 1, 1);
        pvm_upkint(&route, 1, 1);
        pvm_upkint(&size, 1, 1);
        if (form < 0)
            break;
        pvm_setopt(PvmRoute, route);
        if (form == 3) {
            pvm_precv(parent, 2, bytes, LONGEST, PVM_BYTE, &source, &tag, &length);
            pvm_psend(parent, 3, bytes, length, PVM_BYTE);
            continue;
        }
        pvm_recv(parent, 2);
        pvm_upkbyte(bytes, size, 1);
        pvm_initsend(form);
        pvm_pkbyte(bytes, size, 1);
        pvm_send(parent, 3);
    }
}

static int go(int tid, int form, int route, int size, int seed)
{
    int length = -1, order[3];
    order[0] = form;
    order[1] = route;
    order[2] = size;
    pvm_initsend(PvmDataDefault);
    pvm_pkint(order, 3, 1);
    pvm_send(tid, 1);
    pvm_setopt(PvmRoute, route);
    fill(size, seed);
    if (form == 3) {
        pvm_psend(tid, 2, bytes, size, PVM_BYTE);
        memset(bytes, 0, size);
        pvm_precv(tid, 3, bytes, LONGEST, PVM_BYTE, NULL, NULL, &length);
        return length != size ? -2 : wrong(size, seed);
    }
    pvm_initsend(form);
    pvm_pkbyte(bytes, size, 1);
    pvm_send(tid, 2);
    pvm_setsbuf(0);
    memset(bytes, 0, size);
    if (case_receive(tid, 3, PATIENCE) <= 0)
        return -1;
    pvm_bufinfo(pvm_getrbuf(), &length, NULL, NULL);
    if (length < size)
        return -2;
    pvm_upkbyte(bytes, size, 1);
    return wrong(size, seed);
}

int main(int argc, char **argv)
{
    static const int routes[] = {PvmDontRoute, PvmRouteDirect};
    int r, form, s, tid, right, found;
    case_begin();
    bytes = malloc(LONGEST);
    if (argc > 1) {
        echo();
        pvm_exit();
        return 0;
    }
    pvm_mytid();
    for (r = 0; r < 2; r++) {
        tid = spawn_on("charlie", "echo");
        for (form = 0; form < 4; form++) {
            for (right = s = 0; s < SIZES; s++) {
                /* The longest message is sent only once on each route, since PVM 3.4.6 takes seconds for it. */
                if (sizes[s] > (8 << 20) && form != 1)
                    continue;
                found = go(tid, form, routes[r], sizes[s], s + form);
                right += found == 0;
                if (found)
                    printf("route %d form %d size %d: %d\n", routes[r], form, sizes[s], found);
            }
            printf("route %d form %d: %d right\n", routes[r], form, right);
        }
        pvm_initsend(PvmDataDefault);
        form = -1;
        pvm_pkint(&form, 1, 1);
        pvm_pkint(&form, 1, 1);
        pvm_pkint(&form, 1, 1);
        pvm_send(tid, 1);
        case_gone(tid);
    }
    pvm_exit();
    return 0;
}
