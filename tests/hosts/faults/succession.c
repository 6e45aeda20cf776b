/* How long requests and messages take when the first daemon is killed. Times are in us.
 *   succession put | spawn | add HOST
 * prints `ready`, makes the request at the next line until it succeeds, and prints `done TIME FAILURES`: when it has
 * succeeded, and how often it has failed before.
 *   succession stream HOST
 * receives a stream of messages from HOST. At each line of its input it prints `gap TIME`: the longest time between two
 * messages since the line before.
 */
#include "hosts.h"

/* The time between two messages, and between two requests. */
#define PACE_US 500
#define BYTES 100
/* The seconds after which something hangs. */
#define LIMIT 60.0

enum { DATA = 1, FINISH };

static double now(void)
{
    struct timeval time;
    gettimeofday(&time, NULL);
    return time.tv_sec * 1e6 + time.tv_usec;
}

/* Makes a request. Returns whether it has succeeded. */
static int request(const char *what, char *host)
{
    char *arguments[] = {"child", NULL};
    int value = 1;
    if (strcmp(what, "put") == 0) {
        pvm_initsend(PvmDataDefault);
        pvm_pkint(&value, 1, 1);
        return pvm_putinfo("succession", pvm_getsbuf(), PvmMboxMultiInstance) >= 0;
    }
    if (strcmp(what, "spawn") == 0)
        return pvm_spawn(case_path(), arguments, PvmTaskDefault, "", 1, &value) == 1;
    return pvm_addhosts(&host, 1, &value) == 1;
}

static void measure_request(const char *what, char *host)
{
    int failures = 0;
    double began;
    printf("ready\n");
    is_told(-1);
    began = now();
    for (; !request(what, host); failures++) {
        if (now() - began > LIMIT * 1e6) {
            printf("error hang: a request of the kind %s does not succeed\n", what);
            exit(1);
        }
        usleep(PACE_US);
    }
    printf("done %.0f %d\n", now(), failures);
    is_told(-1);
}

static void sender(void)
{
    char bytes[BYTES] = {0};
    int number;
    for (number = 0; pvm_nrecv(pvm_parent(), FINISH) == 0; number++) {
        pvm_initsend(PvmDataRaw);
        pvm_pkint(&number, 1, 1);
        pvm_pkbyte(bytes, BYTES, 1);
        pvm_send(pvm_parent(), DATA);
        usleep(PACE_US);
    }
    pvm_exit();
}

static void stream(const char *host)
{
    int number, next = 0, tid, reports = 0;
    double last = 0, gap = 0, time;
    pvm_setopt(PvmRoute, PvmRouteDirect);
    if ((tid = spawn_on(host, "sender")) < 0) {
        printf("error cannot spawn the sender (%d)\n", tid);
        exit(1);
    }
    for (printf("ready\n"); reports < 3;) {
        if (case_receive(tid, DATA, LIMIT) <= 0) {
            printf("error hang: no message\n");
            exit(1);
        }
        time = now();
        pvm_upkint(&number, 1, 1);
        if (number != next++) {
            printf("error message %d comes as number %d\n", number, next - 1);
            exit(1);
        }
        if (last > 0 && time - last > gap)
            gap = time - last;
        last = time;
        if (is_told(0)) {
            printf("gap %.0f\n", gap);
            gap = 0;
            reports++;
        }
    }
    case_signal(tid, FINISH);
}

int main(int argc, char **argv)
{
    case_begin();
    setvbuf(stdin, NULL, _IONBF, 0);
    if (argc < 2 || pvm_mytid() < 0)
        return 2;
    if (strcmp(argv[1], "child") == 0)
        ;
    else if (strcmp(argv[1], "sender") == 0)
        sender();
    else if (strcmp(argv[1], "stream") == 0)
        stream(argc > 2 ? argv[2] : "");
    else
        measure_request(argv[1], argc > 2 ? argv[2] : NULL);
    pvm_exit();
    return 0;
}
