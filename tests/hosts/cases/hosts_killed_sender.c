/* A task on another host is killed while it sends: the messages that it had sent completely arrive, whole and
 * in order, and no others; then the notification of its end arrives. */
//@ timeout 120
#include "hosts.h"
#include <signal.h>

#define ROUNDS 5
#define MESSAGES 400
#define LENGTH 700000

static char bytes[LENGTH];

static void fill(int number)
{
    memset(bytes, number * 7, LENGTH);
    memcpy(bytes, &number, sizeof(number));
}

static void send_all(int parent)
{
    int i;
    pvm_recv(parent, 1);
    for (i = 0; i < MESSAGES; i++) {
        fill(i);
        if (i % 2) {
            pvm_psend(parent, 2, bytes, LENGTH, PVM_BYTE);
            continue;
        }
        pvm_initsend(PvmDataRaw);
        pvm_pkbyte(bytes, LENGTH, 1);
        pvm_send(parent, 2);
    }
}

static int is_whole(int number)
{
    int found, i;
    memcpy(&found, bytes, sizeof(found));
    for (i = sizeof(found); i < LENGTH; i++)
        if (bytes[i] != (char)(number * 7))
            return 0;
    return found == number;
}

int main(int argc, char **argv)
{
    int round, child, number, wrong, tag, told, after, message;
    case_begin();
    if (argc > 1) {
        send_all(pvm_parent());
        pause();
        return 0;
    }
    for (round = 0; round < ROUNDS; round++) {
        child = spawn_on("bravo", "child");
        pvm_notify(PvmTaskExit, 3, 1, &child);
        case_signal(child, 1);
        number = wrong = told = after = 0;
        while (!told) {
            message = case_receive(-1, -1, PATIENCE);
            if (message <= 0) {
                printf("nothing after %d messages\n", number);
                return 1;
            }
            pvm_bufinfo(message, NULL, &tag, NULL);
            if (tag == 3) {
                told = 1;
                continue;
            }
            pvm_upkbyte(bytes, LENGTH, 1);
            wrong += !is_whole(number++);
            if (number == 1 + round * 4)
                pvm_sendsig(child, SIGKILL);
        }
        while (case_receive(-1, 2, 0.3) > 0)
            after++;
        printf("round %d: enough %d, wrong %d, after the notify %d\n", round, number > round * 4, wrong, after);
    }
    pvm_exit();
    return 0;
}
