/* A sends FIRST to B, and then causes C to send SECOND to B: B receives FIRST first. */
#include "order.h"
#include <signal.h>

/* As order_receiver, but B polls until SECOND, or an order of its parent, has arrived. */
static int prober(void)
{
    int parent = pvm_parent(), wrong = 0;
    for (;;) {
        while (!pvm_probe(-1, SECOND) && !pvm_probe(parent, ASK))
            ;
        if (pvm_nrecv(parent, ASK) > 0)
            break;
        wrong += order_next() != FIRST;
        order_next();
        case_signal(parent, DONE);
    }
    order_send(parent, ASK, wrong);
    pvm_exit();
    return 0;
}

/* As order_relay, but C waits for signals. */
static int sleeper(void)
{
    int receiver, number;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, NULL);
    pvm_recv(pvm_parent(), START);
    receiver = order_value();
    case_signal(pvm_parent(), DONE);
    while (sigwait(&set, &number) == 0) {
        order_send(receiver, SECOND, 0);
        order_ring();
    }
    return 1;
}

/* Runs rounds in which C is told by a message, or by a signal. */
static void run(int b, int c, int rounds, int by_signal)
{
    int r;
    for (r = 0; r < rounds; r++) {
        order_send(b, FIRST, r);
        if (by_signal)
            pvm_sendsig(c, SIGUSR1);
        else
            order_send(c, GO, r);
        order_await(b, DONE);
    }
}

int main(int argc, char **argv)
{
    int b, c, c_sleeps, b_probes, rounds = order_rounds(300), late;
    case_begin();
    if (argc > 1) {
        char *role = order_role(argv[1]);
        if (!strcmp(role, "prober"))
            return prober();
        if (!strcmp(role, "sleeper"))
            return sleeper();
        return strcmp(role, "relay") ? order_receiver() : order_relay();
    }
    pvm_mytid();
    for (late = 0; late < 2; late++) {
        if (late)
            order_hang_bell();
        order_spawn("receiver", 1, &b);
        order_spawn("relay", 1, &c);
        order_spawn("sleeper", 1, &c_sleeps);
        order_lead(c, b, SECOND);
        run(b, c, rounds, 0);
        order_print(b, "a message to C");
        order_send(c_sleeps, START, b);
        order_await(c_sleeps, DONE);
        run(b, c_sleeps, rounds, 1);
        order_print(b, "a signal to C");
        order_end(b);
        order_send(c, STOP, 0);
        pvm_kill(c_sleeps);
    }
    order_unpipe(ORDER_BELL);
    order_bell = -1;

    order_spawn("prober", 1, &b_probes);
    order_spawn("relay", 1, &c);
    order_lead(c, b_probes, SECOND);
    run(b_probes, c, rounds, 0);
    order_print(b_probes, "a message to C, B polls for SECOND");
    order_send(c, STOP, 0);
    pvm_exit();
    return 0;
}
