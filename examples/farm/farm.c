/*
 * farm: a parallel picture, by a dynamic master/worker farm.
 *
 * The master cuts a picture of the Mandelbrot set into tiles and sends them to workers that it has spawned. The
 * tiles differ much in cost, so each worker gets a new tile when it has finished one. A worker may die at any
 * moment, alone or with its host: then the master gets a notify message, sends the lost tiles to other workers and
 * starts a new worker. With --per-host it also starts workers on each host that is added meanwhile. The picture is
 * always the same.
 *
 *     cc -O2 farm.c -lpvm3 -o farm
 *     pvm run ./farm --workers 4
 *
 * Everything here is plain PVM 3.4: pvm_spawn, pvm_notify, pvm_send, pvm_recv.
 *
 * Copyright 2026 the hpvm authors. Licence: Apache-2.0.
 */
#include <pvm3.h>

#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { TAG_SCENE = 1, TAG_TILE, TAG_RESULT, TAG_STOP, TAG_EXIT, TAG_HOSTS };

enum {
    TILE_SIDE = 32,       /* pixels */
    IN_HAND_MAX = 2,      /* tiles that a worker has: it computes one, the other waits */
    WORKERS_MAX = 1024,
    LOSSES_MAX = 100,     /* the master gives up after this number of dead workers */
    PIXEL_BYTES = 3
};

/* The picture to compute. The master sends it to each worker once. */
struct scene {
    int width, height;    /* pixels */
    int samples;          /* per side: samples * samples points make a pixel */
    int iterations;       /* a point that stays near for so many steps belongs to the set */
    double centre[2];     /* of the picture, in the complex plane */
    double extent;        /* width of the picture in that plane */
};

/* The part of the picture that tile number `tile` covers. */
struct area {
    int left, top, width, height;
};

static int tiles_across(const struct scene *scene)
{
    return (scene->width + TILE_SIDE - 1) / TILE_SIDE;
}

static int tile_count(const struct scene *scene)
{
    return tiles_across(scene) * ((scene->height + TILE_SIDE - 1) / TILE_SIDE);
}

static struct area tile_area(const struct scene *scene, int tile)
{
    struct area area;
    area.left = tile % tiles_across(scene) * TILE_SIDE;
    area.top = tile / tiles_across(scene) * TILE_SIDE;
    area.width = scene->width - area.left < TILE_SIDE ? scene->width - area.left : TILE_SIDE;
    area.height = scene->height - area.top < TILE_SIDE ? scene->height - area.top : TILE_SIDE;
    return area;
}

/* ---- mathematics: colours of points. With its own log2 and square root, the program needs no -lm ---- */

static double log_two(double x)
{
    int exponent;
    double mantissa = frexp(x, &exponent) * 2.0 - 1.0; /* 0 .. 1 */
    double t = mantissa / (mantissa + 2.0);            /* log(1 + m) = 2 artanh(t) */
    double square = t * t;
    double sum = 1.0 + square * (1.0 / 3 + square * (1.0 / 5 + square * (1.0 / 7 + square / 9)));
    return exponent - 1 + 2.0 * t * sum * 1.4426950408889634;
}

static double square_root(double x)
{
    int exponent, step;
    double mantissa = frexp(x, &exponent);
    double root = ldexp(0.5 + 0.5 * mantissa, exponent / 2);
    if (x <= 0.0)
        return 0.0;
    for (step = 0; step < 6; step++)
        root = 0.5 * (root + x / root);
    return root;
}

/* A cyclic gradient: maps position 0 .. 1 to red, green, blue (0 .. 255). */
static void gradient(double position, double colour[3])
{
    static const double stops[][4] = {
        {0.0, 9, 1, 47},        {0.12, 24, 62, 150},    {0.27, 72, 148, 214},
        {0.42, 236, 250, 252},  {0.58, 255, 196, 62},   {0.74, 190, 82, 12},
        {0.88, 74, 16, 30},     {1.0, 9, 1, 47}};
    int stop = 1, part;
    double share;
    position -= (int)position;
    while (stops[stop][0] < position)
        stop++;
    share = (position - stops[stop - 1][0]) / (stops[stop][0] - stops[stop - 1][0]);
    share = share * share * (3.0 - 2.0 * share);
    for (part = 0; part < 3; part++)
        colour[part] = stops[stop - 1][part + 1] * (1.0 - share) + stops[stop][part + 1] * share;
}

/*
 * Adds the colour of one point. The derivative of the iteration shows in which direction the set lies. Used as
 * the slope of a surface that is lit from one side, this direction makes the picture look like a relief.
 */
static void add_point(const struct scene *scene, double cx, double cy, double sum[3])
{
    double x = 0, y = 0, dx = 0, dy = 0, radius = 0;
    int count = 0;
    while (count < scene->iterations && radius < 1e6) {
        double next_dx = 2.0 * (x * dx - y * dy) + 1.0;
        double next_x = x * x - y * y + cx;
        dy = 2.0 * (x * dy + y * dx);
        dx = next_dx;
        y = 2.0 * x * y + cy;
        x = next_x;
        radius = x * x + y * y;
        count++;
    }
    if (radius >= 1e6) { /* outside the set; a point of the set stays black */
        double smooth = count + 1 - log_two(log_two(radius) * 0.5);
        double ux = x * dx + y * dy, uy = y * dx - x * dy;
        double length = square_root(ux * ux + uy * uy);
        double light = length > 0 ? (0.7071 * (ux + uy) / length + 1.4) / 2.4 : 1.0;
        double colour[3];
        int part;
        gradient(log_two(smooth + 8.0) * 0.62, colour);
        if (light < 0.12)
            light = 0.12;
        for (part = 0; part < 3; part++)
            sum[part] += colour[part] * (0.25 + 0.85 * light);
    }
}

static void paint_tile(const struct scene *scene, struct area area, unsigned char *pixels)
{
    double step = scene->extent / scene->width / scene->samples;
    double left = scene->centre[0] - scene->extent / 2;
    double top = scene->centre[1] + scene->extent * scene->height / scene->width / 2;
    int row, column, part, sample, samples = scene->samples * scene->samples;
    for (row = 0; row < area.height; row++) {
        for (column = 0; column < area.width; column++) {
            double sum[3] = {0, 0, 0};
            for (sample = 0; sample < samples; sample++) {
                int across = (area.left + column) * scene->samples + sample % scene->samples;
                int down = (area.top + row) * scene->samples + sample / scene->samples;
                add_point(scene, left + (across + 0.5) * step, top - (down + 0.5) * step, sum);
            }
            for (part = 0; part < 3; part++) {
                double value = sum[part] / samples;
                *pixels++ = (unsigned char)(value > 255.0 ? 255.0 : value + 0.5);
            }
        }
    }
}

/* ---- worker ---- */

static void pack_scene(struct scene *scene)
{
    pvm_pkint(&scene->width, 4, 1); /* width, height, samples, iterations lie side by side */
    pvm_pkdouble(scene->centre, 2, 1);
    pvm_pkdouble(&scene->extent, 1, 1);
}

static void unpack_scene(struct scene *scene)
{
    pvm_upkint(&scene->width, 4, 1);
    pvm_upkdouble(scene->centre, 2, 1);
    pvm_upkdouble(&scene->extent, 1, 1);
}

static int work(void)
{
    static unsigned char pixels[TILE_SIDE * TILE_SIDE * PIXEL_BYTES];
    struct scene scene = {0};
    int master = pvm_parent();
    if (master <= 0 || pvm_notify(PvmTaskExit, TAG_EXIT, 1, &master) < 0)
        return 1;
    for (;;) {
        int tag, source, buffer = pvm_recv(-1, -1);
        if (buffer < 0 || pvm_bufinfo(buffer, NULL, &tag, &source) < 0)
            return 1;
        if (tag == TAG_SCENE) {
            unpack_scene(&scene);
        } else if (tag == TAG_TILE) {
            int tile;
            struct area area;
            pvm_upkint(&tile, 1, 1);
            area = tile_area(&scene, tile);
            paint_tile(&scene, area, pixels);
            pvm_initsend(PvmDataDefault);
            pvm_pkint(&tile, 1, 1);
            pvm_pkbyte((char *)pixels, area.width * area.height * PIXEL_BYTES, 1);
            pvm_send(master, TAG_RESULT);
        } else { /* TAG_STOP, or the master is gone */
            pvm_exit();
            return tag == TAG_STOP ? 0 : 1;
        }
    }
}

/* ---- the file: a PNG with stored, not compressed data, so that no library is needed ---- */

static uint32_t crc_of(const unsigned char *data, size_t size, uint32_t crc)
{
    size_t at;
    int bit;
    for (at = 0; at < size; at++) {
        crc ^= data[at];
        for (bit = 0; bit < 8; bit++)
            crc = crc & 1 ? crc >> 1 ^ 0xedb88320u : crc >> 1;
    }
    return crc;
}

static unsigned char *put_number(unsigned char *at, uint32_t number)
{
    int byte;
    for (byte = 3; byte >= 0; byte--)
        *at++ = (unsigned char)(number >> byte * 8);
    return at;
}

static void write_chunk(FILE *file, const char *kind, const unsigned char *data, uint32_t size)
{
    unsigned char number[4];
    uint32_t crc = crc_of((const unsigned char *)kind, 4, 0xffffffffu);
    crc = crc_of(data, size, crc) ^ 0xffffffffu;
    put_number(number, size);
    fwrite(number, 1, 4, file);
    fwrite(kind, 1, 4, file);
    fwrite(data, 1, size, file);
    put_number(number, crc);
    fwrite(number, 1, 4, file);
}

/* Writes the lines of the picture as a zlib stream, with one stored block per line. */
static uint32_t zlib_stream(const struct scene *scene, const unsigned char *pixels, unsigned char *stream)
{
    unsigned char *at = stream;
    uint32_t low = 1, high = 0; /* Adler-32 */
    unsigned size = (unsigned)scene->width * PIXEL_BYTES + 1, byte;
    int row;
    *at++ = 0x78;
    *at++ = 0x01;
    for (row = 0; row < scene->height; row++) {
        *at++ = row == scene->height - 1; /* a flag marks the last block */
        *at++ = (unsigned char)size;
        *at++ = (unsigned char)(size >> 8);
        *at++ = (unsigned char)~size;
        *at++ = (unsigned char)(~size >> 8);
        at[0] = 0; /* no filter */
        memcpy(at + 1, pixels + (size_t)row * (size - 1), size - 1);
        for (byte = 0; byte < size; byte++) {
            low = (low + at[byte]) % 65521;
            high = (high + low) % 65521;
        }
        at += size;
    }
    at = put_number(at, high << 16 | low);
    return (uint32_t)(at - stream);
}

static int write_png(const char *path, const struct scene *scene, const unsigned char *pixels)
{
    unsigned char header[13], *at = header;
    unsigned char *stream = malloc((size_t)scene->height * (scene->width * PIXEL_BYTES + 6) + 6);
    FILE *file = fopen(path, "wb");
    if (file == NULL || stream == NULL) {
        perror(path);
        free(stream);
        if (file != NULL)
            fclose(file);
        return -1;
    }
    at = put_number(at, (uint32_t)scene->width);
    at = put_number(at, (uint32_t)scene->height);
    memcpy(at, "\10\2\0\0\0", 5); /* 8 bits a part, red green blue, not interlaced */
    fwrite("\211PNG\r\n\32\n", 1, 8, file);
    write_chunk(file, "IHDR", header, sizeof header);
    write_chunk(file, "IDAT", stream, zlib_stream(scene, pixels, stream));
    write_chunk(file, "IEND", NULL, 0);
    free(stream);
    if (fclose(file) != 0) {
        perror(path);
        return -1;
    }
    return 0;
}

/* ---- master ---- */

struct worker {
    int tid;              /* 0: not there */
    int in_hand;          /* tiles */
};

enum { WAITING = 0, DONE = -1 }; /* the state of a tile; any other value is the tid of its worker */

struct farm {
    struct scene scene;
    unsigned char *pixels;
    int *tiles;           /* a state for each */
    int done, next;       /* number of tiles that are done; where the search for a waiting tile begins */
    struct worker workers[WORKERS_MAX];
    int wanted;           /* the number of workers, if per_host is 0 */
    int per_host;         /* the number of workers on each host, or 0 */
    int losses, lost_tiles;
    int kill_at;          /* kill a worker when this number of tiles is done; 0: never */
    int report_every;     /* print a line whenever so many more tiles are done; 0: never */
    char program[PATH_MAX];
};

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

/* Returns the place of a worker; with tid 0, an empty place. */
static struct worker *worker_of(struct farm *farm, int tid)
{
    int index;
    for (index = 0; index < WORKERS_MAX; index++)
        if (farm->workers[index].tid == tid)
            return &farm->workers[index];
    return NULL;
}

/* Returns the number of workers on a host; with host 0, of all workers. */
static int count_workers(const struct farm *farm, int host)
{
    int index, count = 0;
    for (index = 0; index < WORKERS_MAX; index++) {
        int tid = farm->workers[index].tid;
        count += tid != 0 && (host == 0 || pvm_tidtohost(tid) == host);
    }
    return count;
}

/* Gives a worker tiles, as long as any wait. */
static void hand_out(struct farm *farm, struct worker *worker)
{
    int count = tile_count(&farm->scene);
    while (worker->in_hand < IN_HAND_MAX) {
        while (farm->next < count && farm->tiles[farm->next] != WAITING)
            farm->next++;
        if (farm->next == count)
            return;
        pvm_initsend(PvmDataDefault);
        pvm_pkint(&farm->next, 1, 1);
        pvm_send(worker->tid, TAG_TILE);
        farm->tiles[farm->next] = worker->tid;
        worker->in_hand++;
    }
}

static void hand_out_to_all(struct farm *farm)
{
    int index;
    for (index = 0; index < WORKERS_MAX; index++)
        if (farm->workers[index].tid != 0)
            hand_out(farm, &farm->workers[index]);
}

/* Starts workers, on this host or, if that is NULL, on any. Fewer may start, for example because a host is just lost. */
static void start_workers(struct farm *farm, int wanted, char *host)
{
    static char worker_flag[] = "--worker";
    static int tids[WORKERS_MAX];
    char *arguments[] = {worker_flag, NULL};
    int room = WORKERS_MAX - count_workers(farm, 0), started, index;
    if (wanted > room)
        wanted = room;
    if (wanted <= 0)
        return;
    started = pvm_spawn(farm->program, arguments, host == NULL ? PvmTaskDefault : PvmTaskHost, host, wanted, tids);
    if (started < wanted)
        fprintf(stderr, "farm: %d of %d workers started (code %d)\n", started < 0 ? 0 : started, wanted,
                started < 0 ? started : tids[wanted - 1]);
    if (started <= 0)
        return;
    pvm_notify(PvmTaskExit, TAG_EXIT, started, tids);
    pvm_initsend(PvmDataDefault);
    pack_scene(&farm->scene);
    pvm_mcast(tids, started, TAG_SCENE);
    for (index = 0; index < started; index++) {
        struct worker *worker = worker_of(farm, 0);
        worker->tid = tids[index];
        worker->in_hand = 0;
    }
}

/* Starts the workers that are missing, and gives tiles to all workers that have too few. */
static int hire(struct farm *farm)
{
    if (farm->per_host == 0) {
        start_workers(farm, farm->wanted - count_workers(farm, 0), NULL);
    } else {
        struct pvmhostinfo *hosts;
        int count = 0, index;
        pvm_config(&count, NULL, &hosts);
        for (index = 0; index < count; index++)
            start_workers(farm, farm->per_host - count_workers(farm, hosts[index].hi_tid), hosts[index].hi_name);
    }
    hand_out_to_all(farm);
    return count_workers(farm, 0) > 0 ? 0 : -1;
}

/* Handles the death of a worker: its tiles wait again, and a new worker takes its place. */
static int replace(struct farm *farm, int tid)
{
    struct worker *worker = worker_of(farm, tid);
    int tile;
    if (worker == NULL)
        return 0;
    for (tile = tile_count(&farm->scene) - 1; tile >= 0; tile--) {
        if (farm->tiles[tile] == tid) {
            farm->tiles[tile] = WAITING;
            farm->lost_tiles++;
            if (tile < farm->next)
                farm->next = tile;
        }
    }
    worker->tid = 0;
    printf("farm: worker t%x died, its tiles are handed out again\n", (unsigned)tid);
    if (++farm->losses > LOSSES_MAX) {
        fprintf(stderr, "farm: too many workers died\n");
        return -1;
    }
    return hire(farm);
}

static void take_result(struct farm *farm, int tid)
{
    static unsigned char pixels[TILE_SIDE * TILE_SIDE * PIXEL_BYTES];
    struct worker *worker = worker_of(farm, tid);
    struct area area;
    int tile, row;
    if (worker == NULL || pvm_upkint(&tile, 1, 1) < 0 || farm->tiles[tile] != tid)
        return;
    area = tile_area(&farm->scene, tile);
    pvm_upkbyte((char *)pixels, area.width * area.height * PIXEL_BYTES, 1);
    for (row = 0; row < area.height; row++)
        memcpy(farm->pixels + ((size_t)(area.top + row) * farm->scene.width + area.left) * PIXEL_BYTES,
               pixels + (size_t)row * area.width * PIXEL_BYTES, (size_t)area.width * PIXEL_BYTES);
    farm->tiles[tile] = DONE;
    farm->done++;
    worker->in_hand--;
    hand_out(farm, worker);
    if (farm->report_every > 0 && farm->done % farm->report_every == 0)
        printf("farm: %d of %d tiles are done\n", farm->done, tile_count(&farm->scene));
    if (farm->done == farm->kill_at && worker->in_hand > 0) {
        printf("farm: kill -9 of worker t%x, which has %d tiles in hand\n", (unsigned)tid, worker->in_hand);
        pvm_sendsig(tid, SIGKILL);
    }
}

static int run_farm(struct farm *farm)
{
    /* Asked before the hosts are listed, so that none is missed. */
    if (farm->per_host > 0 && pvm_notify(PvmHostAdd, TAG_HOSTS, -1, NULL) < 0)
        return -1;
    if (hire(farm) < 0)
        return -1;
    while (farm->done < tile_count(&farm->scene)) {
        int tag, source, dead, buffer = pvm_recv(-1, -1);
        if (buffer < 0)
            return -1;
        pvm_bufinfo(buffer, NULL, &tag, &source);
        if (tag == TAG_RESULT) {
            take_result(farm, source);
        } else if (tag == TAG_EXIT) {
            pvm_upkint(&dead, 1, 1);
            if (replace(farm, dead) < 0)
                return -1;
        } else if (tag == TAG_HOSTS && hire(farm) < 0) { /* a host is new */
            return -1;
        }
    }
    return 0;
}

/* Tells the workers to end, and waits until each has ended. */
static void dismiss(struct farm *farm)
{
    int index, dead;
    pvm_initsend(PvmDataDefault);
    for (index = 0; index < WORKERS_MAX; index++)
        if (farm->workers[index].tid != 0)
            pvm_send(farm->workers[index].tid, TAG_STOP);
    while (count_workers(farm, 0) > 0 && pvm_recv(-1, TAG_EXIT) >= 0) {
        struct worker *worker;
        pvm_upkint(&dead, 1, 1);
        worker = worker_of(farm, dead);
        if (worker != NULL)
            worker->tid = 0;
    }
}

static int usage(void)
{
    fprintf(stderr, "usage: farm [--workers N | --per-host N] [--size WxH] [--samples N] [--iterations N]\n"
                    "            [--centre X,Y] [--extent W] [--kill TILES] [--report TILES]\n"
                    "            [--output FILE.png]\n"
                    "  --per-host N    N workers on each host, also on hosts that are added later\n"
                    "  --kill TILES    kill a worker when TILES tiles are done\n"
                    "  --report TILES  print a line whenever TILES more tiles are done\n");
    return 2;
}

static int parse(struct farm *farm, int argc, char **argv, const char **output)
{
    int at;
    for (at = 1; at + 1 < argc; at += 2) {
        const char *name = argv[at], *value = argv[at + 1];
        if (strcmp(name, "--workers") == 0)
            farm->wanted = atoi(value);
        else if (strcmp(name, "--per-host") == 0)
            farm->per_host = atoi(value);
        else if (strcmp(name, "--size") == 0)
            sscanf(value, "%dx%d", &farm->scene.width, &farm->scene.height);
        else if (strcmp(name, "--samples") == 0)
            farm->scene.samples = atoi(value);
        else if (strcmp(name, "--iterations") == 0)
            farm->scene.iterations = atoi(value);
        else if (strcmp(name, "--centre") == 0)
            sscanf(value, "%lf,%lf", &farm->scene.centre[0], &farm->scene.centre[1]);
        else if (strcmp(name, "--extent") == 0)
            farm->scene.extent = atof(value);
        else if (strcmp(name, "--kill") == 0)
            farm->kill_at = atoi(value);
        else if (strcmp(name, "--report") == 0)
            farm->report_every = atoi(value);
        else if (strcmp(name, "--output") == 0)
            *output = value;
        else
            return -1;
    }
    return at == argc && farm->wanted > 0 && farm->wanted <= WORKERS_MAX && farm->per_host >= 0 &&
                   farm->per_host <= WORKERS_MAX && farm->scene.width > 0 &&
                   farm->scene.width * PIXEL_BYTES < 65535 && farm->scene.height > 0 && farm->scene.samples > 0
               ? 0
               : -1;
}

int main(int argc, char **argv)
{
    static struct farm farm = {
        .scene = {640, 480, 7, 2000, {-0.743643135, 0.131825963}, 0.0014}, .wanted = 2};
    const char *output = "farm.png";
    double start, seconds;
    ssize_t length;
    int workers;
    if (argc == 2 && strcmp(argv[1], "--worker") == 0)
        return work();
    if (parse(&farm, argc, argv, &output) < 0)
        return usage();
    length = readlink("/proc/self/exe", farm.program, sizeof farm.program - 1);
    if (length < 0 || pvm_mytid() < 0)
        return 1;
    setvbuf(stdout, NULL, _IOLBF, 0);
    farm.pixels = calloc((size_t)farm.scene.width * farm.scene.height, PIXEL_BYTES);
    farm.tiles = calloc((size_t)tile_count(&farm.scene), sizeof *farm.tiles);
    if (farm.pixels == NULL || farm.tiles == NULL)
        return 1;
    start = now();
    if (run_farm(&farm) < 0) {
        pvm_exit();
        return 1;
    }
    seconds = now() - start;
    workers = count_workers(&farm, 0);
    dismiss(&farm);
    pvm_exit();
    if (write_png(output, &farm.scene, farm.pixels) < 0)
        return 1;
    printf("farm: %d workers, %d tiles, %.3f seconds, checksum %08x, %d workers lost, %d tiles again, %s\n",
           workers, tile_count(&farm.scene), seconds,
           (unsigned)crc_of(farm.pixels, (size_t)farm.scene.width * farm.scene.height * PIXEL_BYTES, 0xffffffffu),
           farm.losses, farm.lost_tiles, output);
    free(farm.pixels);
    free(farm.tiles);
    return 0;
}
