/* What a fabric carries on a trusted network can be read there. The task that looks on must see it: otherwise the same
 * look in `hosts_fabric_sealed` would show nothing. */
//@ ours-only D3: skip
//@ daemon-env PVM_FABRIC=tcp
//@ daemon-env PVM_TRUSTED_NET=1
//@ timeout 90
#define _GNU_SOURCE
#include "fabric.h"
#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <sys/socket.h>

#define MARK "a word that nobody else may read "
#define LONG_BYTES 100000
#define MESSAGES 20

enum { SECRET = PONG + 1, ASK, ANSWER };

static char body[LONG_BYTES], frame[1 << 17];

/* Counts the frames with the mark that have arrived at this host. */
static int marks(int sniffer)
{
    int count = 0;
    ssize_t length;
    while ((length = recv(sniffer, frame, sizeof frame, MSG_DONTWAIT)) > 0)
        count += memmem(frame, (size_t)length, MARK, strlen(MARK)) != NULL;
    return count;
}

/* Answers pings, takes secrets, and says what the network has shown. */
static void child(void)
{
    int sniffer = socket(AF_PACKET, SOCK_RAW, htons(ETH_P_ALL)), seen = 0, taken = 0, wrong = 0, buffer, tag, bytes;
    for (;;) {
        buffer = pvm_recv(pvm_parent(), -1);
        pvm_bufinfo(buffer, &bytes, &tag, NULL);
        seen += marks(sniffer);
        if (tag == PING) {
            pvm_initsend(PvmDataRaw);
            pvm_send(pvm_parent(), PONG);
        } else if (tag == SECRET) {
            memset(body, 0, sizeof body);
            pvm_upkbyte(body, bytes, 1);
            wrong += memcmp(body, MARK, strlen(MARK)) != 0 || body[bytes - 1] != 'x';
            taken++;
        } else {
            break;
        }
    }
    bytes = pvm_getopt(PvmFabricTasks);
    pvm_initsend(PvmDataDefault);
    pvm_pkint(&sniffer, 1, 1);
    pvm_pkint(&bytes, 1, 1);
    pvm_pkint(&taken, 1, 1);
    pvm_pkint(&wrong, 1, 1);
    pvm_pkint(&seen, 1, 1);
    pvm_send(pvm_parent(), ANSWER);
}

int main(int argc, char **argv)
{
    int tid, i, words[5];
    (void)argv;
    tid = begin_with(child, argc);
    for (i = 0; i < MESSAGES; i++) {
        int bytes = i % 2 ? LONG_BYTES : 200, k;
        for (k = 0; k < bytes; k++)
            body[k] = MARK[k % (int)strlen(MARK)];
        body[bytes - 1] = 'x';
        pvm_initsend(PvmDataRaw);
        pvm_pkbyte(body, bytes, 1);
        pvm_send(tid, SECRET);
    }
    pvm_initsend(PvmDataDefault);
    pvm_send(tid, ASK);
    SHOW(case_receive(tid, ANSWER, PATIENCE) > 0);
    pvm_upkint(words, 5, 1);
    printf("looked on: %d, tasks by the fabric: %d, secrets taken: %d, wrong: %d\n", words[0] >= 0, words[1], words[2],
           words[3]);
    printf("read in the network: %s\n", words[4] > 0 ? "yes" : "no");
    pvm_exit();
    return 0;
}
