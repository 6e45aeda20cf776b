/* A task that breaks every rule: it belongs to the same machine and user, and at any time writes random data
 * into all shared memory that it can write, while the other tasks exchange messages. It may disturb itself and
 * its own messages, but nothing else.
 *   hostile SECONDS SEED     runs one attacking process (a life) after the other; then prints
 *                            total lives=N writes=N ended=N crashed=N
 */
#define _GNU_SOURCE /* F_SETPIPE_SZ */
#include <errno.h>
#include <fcntl.h>
#include <pvm3.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    LIFE_SECONDS_MAX = 6,             /* a life is ended after this time, whatever it does */
    REGIONS_MAX = 16,
    VICTIMS_MAX = 64,
    LARGEST_MESSAGE = 400 << 10,
    TABLE_BYTES = 65536 * 128,        /* one line for each peer, after the segment's first page */
    PAGE_BYTES = 4096,
    HEAP_BYTES = 256 << 10,           /* the part of the heap that is written */
    LINES_BYTES = 64 * 128,           /* the part of the table that is written */
    LINE_WORDS = 8,
    TAG = 5
};

/* Memory that this task may write and others read. */
struct region {
    volatile uint64_t *words;
    size_t count;
};

static struct region regions[REGIONS_MAX];
static unsigned region_count;
static uint64_t state;
static volatile uint64_t *writes;     /* shared with the parent */

static uint64_t draw(void)
{
    state += 0x9e3779b97f4a7c15;
    uint64_t word = (state ^ state >> 30) * 0xbf58476d1ce4e5b9;
    word = (word ^ word >> 27) * 0x94d049bb133111eb;
    return word ^ word >> 31;
}

static uint64_t below(uint64_t bound)
{
    return draw() % bound;
}

static void add_region(char *start, size_t bytes)
{
    if (region_count < REGIONS_MAX)
        regions[region_count++] = (struct region){(volatile uint64_t *)(void *)start, bytes / 8};
}

/* Finds all shared writable mappings: this task's segment, and the memory of groups. */
static void find_regions(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512], rights[8], name[256];
    unsigned long start, end;
    while (maps != NULL && fgets(line, sizeof line, maps) != NULL) {
        name[0] = 0;
        if (sscanf(line, "%lx-%lx %7s %*s %*s %*s %255s", &start, &end, rights, name) < 3 ||
            strncmp(rights, "rw-s", 4) != 0 || strncmp(name, "/memfd:hpvm", 11) != 0)
            continue;
        if (end - start < PAGE_BYTES + TABLE_BYTES + HEAP_BYTES) {
            add_region((char *)start, end - start < HEAP_BYTES ? end - start : HEAP_BYTES);
            continue;
        }
        add_region((char *)start, PAGE_BYTES);
        add_region((char *)start + PAGE_BYTES, LINES_BYTES);
        add_region((char *)start + PAGE_BYTES + TABLE_BYTES, HEAP_BYTES);
    }
    if (maps != NULL)
        fclose(maps);
}

/* Writes a slot of a queue that looks valid, but has another kind, length or sequence number. */
static void forge(struct region region)
{
    size_t line = below(region.count / LINE_WORDS) * LINE_WORDS;
    uint64_t stamp = region.words[line], lap = stamp >> 32 == 0 ? 1 : (stamp >> 32) + below(2);
    uint64_t bytes = below(2) ? below(600) : stamp >> 8 & 0xffffff;
    region.words[line] = lap << 32 | bytes << 8 | below(11);
    if (below(2))
        region.words[line + LINE_WORDS / 2] = lap << 32 | below(17) << 8 | below(11);
}

static void write_rubbish(void)
{
    static const uint64_t extremes[] = {0, 1, 2, UINT64_MAX, UINT64_MAX - 1, INT64_MAX, 1ull << 63, 1ull << 32, 4096,
                                        64, 504, 505, 65535, 65536, 1ull << 40};
    struct region region = regions[below(region_count)], other = regions[below(region_count)];
    size_t at = below(4) ? below(region.count) : below(region.count < 512 ? region.count : 512), words;
    switch (below(8)) {
    case 0:
        region.words[at] = draw();
        break;
    case 1:
        region.words[at] = extremes[below(sizeof extremes / sizeof *extremes)];
        break;
    case 2:
        region.words[at] = other.words[below(other.count)];
        break;
    case 3:
        region.words[at] ^= 1ull << below(64);
        break;
    case 4:
        region.words[at] += below(2) ? 1 : -1ull;
        break;
    case 5:
        for (words = below(64); words > 0 && at < region.count; words--)
            region.words[at++] = draw();
        break;
    case 6:
        ((volatile uint32_t *)region.words)[at * 2] = (uint32_t)getpid() + (uint32_t)below(9) - 4;
        break;
    default:
        forge(region);
    }
    ++*writes;
}

/* Attacks the descriptors: doorbells and the socket to the daemon. */
static void abuse_descriptors(void)
{
    char path[64], target[64], rubbish[64];
    int fd;
    for (fd = 3; fd < 40; fd++) {
        ssize_t length;
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        if ((length = readlink(path, target, sizeof target - 1)) < 0)
            continue;
        target[length] = 0;
        for (length = 0; length < (ssize_t)sizeof rubbish; length++)
            rubbish[length] = (char)draw();
        if (strncmp(target, "pipe:", 5) == 0) {
            /* Changes a doorbell: makes its pipe larger, fills it, sometimes empties it, and lets reads and
             * writes block. */
            fcntl(fd, F_SETPIPE_SZ, 1 << (12 + below(9)));
            fcntl(fd, F_SETFL, O_NONBLOCK);
            while (write(fd, rubbish, sizeof rubbish) > 0)
                ;
            while (below(2) && read(fd, rubbish, sizeof rubbish) > 0)
                ;
            fcntl(fd, F_SETFL, 0);
            if (below(2))
                fchmod(fd, 0); /* so that nobody can open it again */
        } else if (strncmp(target, "socket:", 7) == 0) {
            if (below(2) && write(fd, rubbish, 1 + below(sizeof rubbish)) < 0)
                return;
            if (below(2))
                close(fd); /* the daemon considers this task dead, but it continues to write */
        }
    }
}

/* Sends to many tasks in every way, so that there are queues, blocks, pipelined sends and
 * rendezvous to attack. */
static void talk(const int *victims, int count, char *body)
{
    int victim = victims[below((uint64_t)count)];
    int bytes = (int)(below(3) ? below(1000) : below(LARGEST_MESSAGE));
    if (below(2)) {
        pvm_psend(victim, TAG, body, bytes, PVM_BYTE);
    } else if (below(4)) {
        pvm_initsend(below(2) ? PvmDataRaw : PvmDataDefault);
        pvm_pkbyte(body, bytes, 1);
        pvm_send(victim, TAG);
    } else {
        pvm_initsend(PvmDataRaw);
        pvm_pkbyte(body, bytes, 1);
        pvm_mcast((int *)victims, count, TAG);
    }
    while (pvm_nrecv(-1, -1) > 0)
        ;
}

static int find_victims(int *victims)
{
    struct pvmtaskinfo *tasks;
    int total, count = 0, index;
    if (pvm_tasks(0, &total, &tasks) < 0)
        return 0;
    for (index = 0; index < total; index++)
        if (tasks[index].ti_tid != pvm_mytid() && (count < VICTIMS_MAX || below(2)))
            victims[count < VICTIMS_MAX ? count++ : (int)below(VICTIMS_MAX)] = tasks[index].ti_tid;
    return count;
}

/* Lives one life. Its own library may crash or hang because of the random data. */
static void live(void)
{
    int victims[VICTIMS_MAX], count, round, posted = below(2) != 0;
    char *body = calloc(1, LARGEST_MESSAGE);
    alarm(LIFE_SECONDS_MAX);
    if (body == NULL || pvm_mytid() < 0)
        return;
    if (below(4) == 0) {
        pvm_joingroup("hostile");
        pvm_barrier("hostile", 1);
    }
    count = find_victims(victims);
    for (round = 0; round < 20 && count > 0; round++)
        talk(victims, count, body);
    find_regions();
    if (region_count == 0)
        abort(); /* a program that cannot write there tests nothing */
    for (round = (int)below(2000); round > 0; round--) {
        unsigned bursts = (unsigned)below(below(8) ? 20 : 2000);
        while (bursts-- > 0)
            write_rubbish();
        if (posted && count > 0 && below(8) == 0)
            talk(victims, count, body);
        if (below(600) == 0)
            abuse_descriptors();
        usleep((useconds_t)below(2000));
    }
}

int main(int argc, char **argv)
{
    unsigned lives = 0, ended = 0, crashed = 0;
    time_t end = time(NULL) + (argc > 1 ? atoi(argv[1]) : 10);
    writes = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (argc != 3 || writes == MAP_FAILED)
        return 2;
    state = strtoull(argv[2], NULL, 10);
    while (time(NULL) < end) {
        int status;
        pid_t child;
        state = draw();
        if ((child = fork()) == 0) {
            live();
            _exit(0);
        }
        if (child < 0 || waitpid(child, &status, 0) < 0)
            return 1;
        lives++;
        if (WIFEXITED(status))
            ended++;
        else
            crashed++;
    }
    printf("total lives=%u writes=%llu ended=%u crashed=%u\n", lives, (unsigned long long)*writes, ended, crashed);
    return 0;
}
