/* A switch between hosts that are network namespaces. It delays, drops and duplicates frames and cuts
 * connections; a seed determines its random choices.
 *   switch SEED PROCESS...
 * makes a TAP device `eth0` in the network namespace of each process and forwards frames between them.
 * It executes each line of its standard input at once, and answers with `ok`:
 *   delay MS JITTER_MS   delay each frame by MS, and up to JITTER_MS more (frames may then overtake)
 *   loss PERMILLE        drop this number of a thousand frames
 *   deaf PERMILLE        of frames to all, receivers lose this number of a thousand, each receiver others
 *   double PERMILLE      deliver this number of a thousand frames twice
 *   lossy N PERMILLE     drop this number of a thousand frames from or to host N (from 0)
 *   cut N                cut host N (from 0) off from all others
 *   part N M             drop all frames between N and M
 *   hole N BYTES         drop longer frames from or to host N
 *   mute N WAY PORT...   drop frames of TCP and UDP with one of these ports from host N, and if WAY is 2 also to it
 *   heal                 as at the start
 *   count                answer with the numbers of frames forwarded, dropped and doubled
 */
#define _GNU_SOURCE
#include "../port.h"
#include <poll.h>
#include <stdint.h>
#include <time.h>

#define PORTS_MAX 64
#define FRAME_BYTES_MAX 2048
/* The most frames in flight; if there are more, frames are dropped, as a real switch does. */
#define FRAMES_MAX 65536
/* The most frames that are read from one port before the other ports are read. */
#define BURST 64
#define ADDRESSES 256

struct frame {
    double due;
    uint64_t number;
    int to, length;
    char *bytes;
};

static int ports[PORTS_MAX], port_count;
static char cut[PORTS_MAX][PORTS_MAX];
/* The longest frame that each port forwards, in bytes. */
static int longest[PORTS_MAX];
/* Which frames of each port with muted ports of TCP and UDP are dropped: 1 those from it, 2 also those to it. */
static int mute[PORTS_MAX];
static char muted[65536];
static double delay_ms, jitter_ms, loss, deaf, doubled, lossy[PORTS_MAX];
static struct frame heap[FRAMES_MAX];
static int heap_count;
static uint64_t next_number, forwarded, dropped, doubles, state;

/* The port at which each address was last seen. */
static struct {
    char address[6];
    int port;
} seen[ADDRESSES];

static double now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e3 + now.tv_nsec * 1e-6;
}

/* Returns a random number from 0 to 1 (xorshift). */
static double chance(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (double)(state >> 11) / 9007199254740992.0;
}

static int before(const struct frame *one, const struct frame *other)
{
    return one->due < other->due || (one->due == other->due && one->number < other->number);
}

static void swap(int one, int other)
{
    struct frame frame = heap[one];
    heap[one] = heap[other];
    heap[other] = frame;
}

static void push(struct frame frame)
{
    int place = heap_count++;
    heap[place] = frame;
    while (place > 0 && before(&heap[place], &heap[(place - 1) / 2])) {
        swap(place, (place - 1) / 2);
        place = (place - 1) / 2;
    }
}

static struct frame pop(void)
{
    struct frame first = heap[0];
    int place = 0, least;
    heap[0] = heap[--heap_count];
    for (;;) {
        least = place;
        for (int child = 2 * place + 1; child <= 2 * place + 2; child++)
            if (child < heap_count && before(&heap[child], &heap[least]))
                least = child;
        if (least == place)
            return first;
        swap(place, least);
        place = least;
    }
}

static void queue(int to, const char *bytes, int length)
{
    struct frame frame;
    if (heap_count == FRAMES_MAX) {
        dropped++;
        return;
    }
    frame.due = now_ms() + delay_ms + jitter_ms * (jitter_ms > 0 ? chance() : 0);
    frame.number = next_number++;
    frame.to = to;
    frame.length = length;
    frame.bytes = malloc(length);
    memcpy(frame.bytes, bytes, length);
    push(frame);
}

/* Returns whether a frame has a muted port of TCP or UDP as its source or destination. */
static int is_muted(const unsigned char *bytes, int length)
{
    int type = bytes[12] << 8 | bytes[13], protocol, at;
    if (type == 0x0800 && length >= 34) {
        protocol = bytes[23];
        at = 14 + 4 * (bytes[14] & 15);
    } else if (type == 0x86dd && length >= 54) {
        protocol = bytes[20];
        at = 54;
    } else {
        return 0;
    }
    return (protocol == 6 || protocol == 17) && length >= at + 4
        && (muted[bytes[at] << 8 | bytes[at + 1]] || muted[bytes[at + 2] << 8 | bytes[at + 3]]);
}

static void forward(int from, int to, const char *bytes, int length)
{
    int silent = (mute[from] || mute[to] == 2) && is_muted((const unsigned char *)bytes, length);
    int hole = (longest[from] && length > longest[from]) || (longest[to] && length > longest[to]);
    double share = loss;
    /* The lowest bit of the first byte says that a frame is for several receivers. */
    if ((bytes[0] & 1) && deaf > share)
        share = deaf;
    if (lossy[from] > share)
        share = lossy[from];
    if (lossy[to] > share)
        share = lossy[to];
    if (hole || silent || cut[from][to] || (share > 0 && chance() * 1000 < share)) {
        dropped++;
        return;
    }
    forwarded++;
    queue(to, bytes, length);
    if (doubled > 0 && chance() * 1000 < doubled) {
        doubles++;
        queue(to, bytes, length);
    }
}

/* Returns the port where an address was seen, or -1. */
static int port_of(const char *address)
{
    for (int i = 0; i < ADDRESSES; i++)
        if (seen[i].port > 0 && memcmp(seen[i].address, address, 6) == 0)
            return seen[i].port - 1;
    return -1;
}

static void learn(const char *address, int port)
{
    for (int i = 0; i < ADDRESSES; i++) {
        if (seen[i].port == 0 || memcmp(seen[i].address, address, 6) == 0) {
            memcpy(seen[i].address, address, 6);
            seen[i].port = port + 1;
            return;
        }
    }
}

static void take(int from)
{
    char bytes[FRAME_BYTES_MAX];
    for (int turn = 0; turn < BURST; turn++) {
        ssize_t length = read(ports[from], bytes, sizeof bytes);
        if (length < 14)
            return;
        learn(bytes + 6, from);
        int to = bytes[0] & 1 ? -1 : port_of(bytes);
        for (int port = 0; port < port_count; port++)
            if (port != from && (to < 0 || to == port))
                forward(from, port, bytes, (int)length);
    }
}

static void deliver(void)
{
    double now = now_ms();
    while (heap_count > 0 && heap[0].due <= now) {
        struct frame frame = pop();
        /* If the host does not accept the frame now, the frame is lost. */
        if (write(ports[frame.to], frame.bytes, frame.length) < 0)
            dropped++;
        free(frame.bytes);
    }
}

static void set_cut(int one, int other, int value)
{
    if (one >= 0 && one < port_count && other >= 0 && other < port_count)
        cut[one][other] = cut[other][one] = (char)value;
}

static void set_muted(int one, int way, const char *list)
{
    char *end;
    if (one >= 0 && one < port_count)
        mute[one] = way;
    for (;; list = end) {
        long port = strtol(list, &end, 10);
        if (end == list)
            return;
        muted[port & 65535] = 1;
    }
}

static void obey(const char *line)
{
    int one, other, used;
    if (sscanf(line, "delay %lf %lf", &delay_ms, &jitter_ms) == 2 || sscanf(line, "loss %lf", &loss) == 1
        || sscanf(line, "deaf %lf", &deaf) == 1 || sscanf(line, "double %lf", &doubled) == 1) {
        puts("ok");
    } else if (sscanf(line, "lossy %d %d", &one, &other) == 2 && one >= 0 && one < port_count) {
        lossy[one] = other;
        puts("ok");
    } else if (sscanf(line, "part %d %d", &one, &other) == 2) {
        set_cut(one, other, 1);
        puts("ok");
    } else if (sscanf(line, "cut %d", &one) == 1) {
        for (other = 0; other < port_count; other++)
            set_cut(one, other, 1);
        puts("ok");
    } else if (sscanf(line, "hole %d %d", &one, &other) == 2) {
        if (one >= 0 && one < port_count)
            longest[one] = other;
        puts("ok");
    } else if (sscanf(line, "mute %d %d%n", &one, &other, &used) == 2) {
        set_muted(one, other, line + used);
        puts("ok");
    } else if (strncmp(line, "heal", 4) == 0) {
        memset(cut, 0, sizeof cut);
        memset(mute, 0, sizeof mute);
        memset(muted, 0, sizeof muted);
        memset(lossy, 0, sizeof lossy);
        memset(longest, 0, sizeof longest);
        delay_ms = jitter_ms = loss = deaf = doubled = 0;
        puts("ok");
    } else if (strncmp(line, "count", 5) == 0) {
        printf("ok %llu %llu %llu\n", (unsigned long long)forwarded, (unsigned long long)dropped,
               (unsigned long long)doubles);
    } else {
        printf("what is `%.*s`?\n", (int)strcspn(line, "\n"), line);
    }
    fflush(stdout);
}

static int wait_ms(void)
{
    if (heap_count == 0)
        return -1;
    double left = heap[0].due - now_ms();
    return left <= 0 ? 0 : (int)left + 1;
}

int main(int argc, char **argv)
{
    struct pollfd polled[PORTS_MAX + 1];
    char line[256];
    if (argc < 3 || argc - 2 > PORTS_MAX)
        return 2;
    state = strtoull(argv[1], NULL, 10) * 2654435761u + 88172645463325252u;
    /* Each port stays in the network namespace of its process; the switch itself returns to its own. */
    int home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    for (int i = 2; i < argc; i++)
        ports[port_count++] = open_port(argv[i]);
    if (home < 0 || setns(home, CLONE_NEWNET) != 0)
        fail("/proc/self/ns/net");
    puts("ok");
    fflush(stdout);
    for (;;) {
        for (int i = 0; i < port_count; i++)
            polled[i] = (struct pollfd){.fd = ports[i], .events = POLLIN};
        polled[port_count] = (struct pollfd){.fd = 0, .events = POLLIN};
        poll(polled, port_count + 1, wait_ms());
        for (int i = 0; i < port_count; i++)
            if (polled[i].revents)
                take(i);
        deliver();
        if (polled[port_count].revents) {
            if (!fgets(line, sizeof line, stdin))
                return 0;
            obey(line);
        }
    }
}
