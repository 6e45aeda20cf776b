/* Every TCP connection of the first host is reset every two seconds, those of its daemon too, while tasks on all hosts
 * exchange messages, meet in barriers, start and end. No host is lost, and nothing is lost or comes twice. */
//@ fresh
//@ ours-only the daemons of PVM have no connections: skip
//@ timeout 120
#include "hosts.h"

#define GROUP "resets"
#define MEMBERS 8
#define ROUNDS 250
#define BRIEF 40
/* Ends all connections of this host, ten times; says how many there were. */
#define RESETS "for time in 1 2 3 4 5 6 7 8 9 10; do sleep 2; ss -HKtn state established; done | wc -l"

enum { NUMBER = 1, REPORT, ENDED, LOST };

static const char *const names[] = {"alfa", "bravo", "charlie", "delta"};

static void member(void)
{
    int round, me = pvm_joingroup(GROUP), well = pvm_barrier(GROUP, MEMBERS) == 0;
    int next = pvm_gettid(GROUP, (me + 1) % MEMBERS), before = pvm_gettid(GROUP, (me + MEMBERS - 1) % MEMBERS);
    for (round = 0; round < ROUNDS; round++) {
        pvm_initsend(PvmDataDefault);
        pvm_pkint(&round, 1, 1);
        well &= pvm_send(next, NUMBER) == 0;
        well &= received_number(before, NUMBER) == round;
        well &= pvm_barrier(GROUP, MEMBERS) == 0;
        usleep(70000);
    }
    well &= pvm_nrecv(-1, NUMBER) == 0;
    pvm_initsend(PvmDataDefault);
    pvm_pkint(&well, 1, 1);
    pvm_send(pvm_parent(), REPORT);
}

/* Starts tasks that end at once. Returns how many ended, each with one notification. */
static int start_brief_tasks(void)
{
    int number, ended = 0;
    for (number = 0; number < BRIEF; number++) {
        int tid = spawn_on(names[number % 4], "brief");
        pvm_notify(PvmTaskExit, ENDED, 1, &tid);
        ended += tid > 0 && received_number(-1, ENDED) == tid;
        usleep(400000);
    }
    return ended;
}

int main(int argc, char **argv)
{
    int tids[MEMBERS], hosts[4], i, resets = 0, well = 0, count = 0;
    FILE *said;
    case_begin();
    if (argc > 1) {
        pvm_mytid();
        if (strcmp(argv[1], "member") == 0)
            member();
        pvm_exit();
        return 0;
    }
    pvm_mytid();
    for (i = 0; i < 4; i++)
        hosts[i] = host_tid(names[i]);
    pvm_notify(PvmHostDelete, LOST, 4, hosts);
    SHOW(spawn_on_all("member", tids));
    SHOW(spawn_on_all("member", tids + 4));
    said = popen(RESETS, "r");
    SHOW(start_brief_tasks());
    for (i = 0; i < MEMBERS; i++)
        well += received_number(tids[i], REPORT);
    SHOW(well);
    SHOW(fscanf(said, "%d", &resets) == 1 && resets >= 30);
    pclose(said);
    SHOW(pvm_nrecv(-1, ENDED));
    SHOW(pvm_nrecv(-1, LOST));
    pvm_config(&count, NULL, NULL);
    SHOW(count);
    pvm_exit();
    return 0;
}
