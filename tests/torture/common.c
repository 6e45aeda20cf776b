/* The table, failures, random numbers. */
#include "torture.h"

#include <fcntl.h>
#include <pvm3.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

struct table *table;
struct log *mine;
unsigned me;

void table_open(const char *path, int create)
{
    int file = open(path, O_RDWR | (create ? O_CREAT | O_EXCL : 0), 0600);
    if (file < 0 || (create && ftruncate(file, sizeof *table) < 0)) {
        perror(path);
        exit(2);
    }
    table = mmap(NULL, sizeof *table, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (table == MAP_FAILED) {
        perror(path);
        exit(2);
    }
}

void fail(const char *format, ...)
{
    char text[ERROR_BYTES_MAX];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    snprintf(mine->error, sizeof mine->error, "%s", text);
    mine->state = FAILED;
    if (me == 0)
        printf("error the chief: %s\n", text);
    fprintf(stderr, "torture: task %u: %s\n", me, text);
    exit(3);
}

void failed_call(const char *call, int code)
{
    if (code == PvmSysErr && table->may_lose_daemon) {
        mine->state = LOST_DAEMON;
        exit(0);
    }
    fail("%s gave %d", call, code);
}

void doing(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(mine->doing, sizeof mine->doing, format, arguments);
    va_end(arguments);
}

void done_doing(void)
{
    mine->doing[0] = 0;
}

uint64_t now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

int mutated(const char *name)
{
    return strcmp(table->mutation, name) == 0;
}

uint64_t mix(uint64_t a, uint64_t b)
{
    uint64_t x = a * 0x9e3779b97f4a7c15u ^ (b + 0x7f4a7c159e3779b9u);
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

uint64_t draw(struct random *random)
{
    return mix(random->state += 0x9e3779b97f4a7c15u, 0);
}

unsigned below(struct random *random, unsigned bound)
{
    return (unsigned)((draw(random) >> 32) * bound >> 32);
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "worker") == 0) {
        table_open(argv[2], 0);
        return work(argv[3]);
    }
    if (argc > 2 && strcmp(argv[1], "chief") == 0) {
        table_open(argv[2], 1);
        return lead(argc - 3, argv + 3);
    }
    fprintf(stderr, "usage: torture chief TABLE [seconds=N] [seed=N] [tasks=N] [patience=N] [round=N]\n"
                    "                           [mutate=NAME] [lose=1]\n");
    return 2;
}
