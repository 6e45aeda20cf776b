/* The messages. Each message contains its sender, its number for each receiver, and a key from which the
 * receiver computes the payload again, to compare it with what it received.
 */
#include "torture.h"

#include <pvm3.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAGIC = 0x70766d21, WEIGHT_OF_ENVELOPE = 256, MUTATED_SEND = 20 };

/* By how much the clocks of two cores may differ, in ns. */
enum { MARGIN_NS = 200 };

enum shape { BYTES, INTS, DOUBLES, MIXED, SHAPES };

struct head {
    uint32_t magic, class, sender, receivers;
    uint32_t size, shape, flags, extra;
    uint64_t key, stamp_ns;
    uint32_t check, unused;
};

/* `numbers`: how many messages of each class, including this one, the sender has begun for the
 * receiver. */
struct receiver {
    uint32_t incarnation;
    counts numbers;
};

enum { BODY_BYTES_MAX = sizeof(struct head) + POSITIONS_MAX * sizeof(struct receiver) + PAYLOAD_BYTES_MAX };

static union { unsigned char bytes[BODY_BYTES_MAX]; double alignment; } out, in;

/* The highest number of each class that had been received when the oldest message was requested. */
static counts oldest_taken[INCARNATIONS_MAX];

void messages_start(void)
{
    memset(&out, 1, sizeof out);
    memset(&in, 1, sizeof in);
}

static uint64_t word_of(uint64_t key, uint64_t index)
{
    uint64_t x = (key + index) * 0x9e3779b97f4a7c15u;
    return x ^ x >> 31;
}

static void fill(unsigned char *payload, unsigned size, uint64_t key)
{
    unsigned at;
    for (at = 0; at + 8 <= size; at += 8) {
        uint64_t word = word_of(key, at);
        memcpy(payload + at, &word, 8);
    }
    if (at < size) {
        uint64_t word = word_of(key, at);
        memcpy(payload + at, &word, size - at);
    }
}

/* Returns the offset of the first damaged word, or -1. */
static long damaged_at(const unsigned char *payload, unsigned size, uint64_t key)
{
    unsigned at;
    for (at = 0; at < size; at += 8) {
        uint64_t word = word_of(key, at);
        if (memcmp(payload + at, &word, size - at < 8 ? size - at : 8) != 0)
            return (long)at;
    }
    return -1;
}

static uint32_t check_of(const struct head *head, const struct receiver *receivers)
{
    struct head plain = *head;
    uint64_t sum = 0;
    unsigned at;
    plain.check = 0;
    for (at = 0; at < sizeof plain; at++)
        sum = mix(sum, ((unsigned char *)&plain)[at]);
    for (at = 0; at < plain.receivers * sizeof *receivers; at++)
        sum = mix(sum, ((const unsigned char *)receivers)[at]);
    return (uint32_t)sum;
}

/* Returns whether the deliberate error of this name can be made now: by the task at position 0 (not by the chief), in a
 * message to a task that is never killed, since the death of the receiver would hide the error. */
static int may_mutate(const char *name, unsigned to)
{
    return mutated(name) && me != 0 && mine->position == 0 && mine->messages_sent >= MUTATED_SEND &&
           table->logs[to].position < table->immortals;
}

/* Returns whether the deliberate error of this name is to be made now, which is made once. */
static int mutate_now(const char *name, unsigned to)
{
    static int done;
    if (done || !may_mutate(name, to))
        return 0;
    return done = 1;
}

/* ---- Sending ---- */

/* Returns how many bytes of its sender's credit a message uses. */
static unsigned weight(enum class class, unsigned size)
{
    return class == MINI ? WEIGHT_OF_ENVELOPE : WEIGHT_OF_ENVELOPE + size;
}

static void count_begun(unsigned to, enum class class, unsigned size)
{
    mine->begun[to][class]++;
    mine->bytes_to[to] += weight(class, size);
}

/* Notes when the last send of this class to that task has returned. */
static void note_end(unsigned to, enum class class)
{
    uint32_t number = mine->begun[to][class];
    mine->sent_at[to][class][number % LATEST] = now_ns() >> 4 << 16 | (number & 0xffff);
}

static void count_sent(unsigned to, enum class class, unsigned size)
{
    mine->sent[to][class]++;
    mine->messages_sent++;
    mine->bytes_sent += size;
}

/* Puts head, receivers and payload together in `out`. Returns the whole length. */
static unsigned assemble(struct random *random, enum class class, const unsigned *to, unsigned count, unsigned size,
                         struct note note)
{
    struct head *head = (struct head *)out.bytes;
    struct receiver *receivers = (struct receiver *)(out.bytes + sizeof *head);
    unsigned index, other;
    memset(head, 0, sizeof *head);
    head->magic = MAGIC;
    head->class = class;
    head->sender = me;
    head->receivers = count;
    head->shape = class == PSEND ? BYTES : below(random, SHAPES);
    head->size = head->shape == INTS ? size & ~3u : head->shape == DOUBLES ? size & ~7u : size;
    head->flags = note.flags;
    head->extra = note.extra;
    head->key = mix(mix(table->seed, me), mine->messages_sent);
    for (index = 0; index < count; index++) {
        count_begun(to[index], class, head->size);
        receivers[index].incarnation = to[index];
        for (other = 0; other < CLASSES; other++)
            receivers[index].numbers[other] = mine->begun[to[index]][other];
    }
    head->stamp_ns = now_ns();
    head->check = check_of(head, receivers);
    fill((unsigned char *)(receivers + count), head->size, head->key);
    if (mutate_now("corrupt", to[0]))
        out.bytes[sizeof *head + count * sizeof *receivers - 1 + (head->size + 1) / 2] ^= 4;
    return (unsigned)(sizeof *head + count * sizeof *receivers) + head->size;
}

/* Packs a string and integers with a stride, both made from the key, and then the payload as bytes.
 */
static int pack_mixed(const struct head *head, unsigned char *payload)
{
    char text[20];
    int numbers[10] = {0}, index, code;
    snprintf(text, sizeof text, "k%016llx", (unsigned long long)head->key);
    for (index = 0; index < 5; index++)
        numbers[index * 2] = (int)word_of(head->key, index);
    if ((code = pvm_pkstr(text)) < 0 || (code = pvm_pkint(numbers, 5, 2)) < 0)
        return code;
    return pvm_pkbyte((char *)payload, (int)head->size, 1);
}

static void pack_assembled(struct random *random)
{
    struct head *head = (struct head *)out.bytes;
    unsigned char *receivers = out.bytes + sizeof *head;
    int receivers_size = (int)(head->receivers * sizeof(struct receiver)), code;
    unsigned char *payload = receivers + receivers_size;
    unsigned encoding = below(random, head->shape == MIXED ? 2 : 3);
    static const int encodings[] = {PvmDataDefault, PvmDataRaw, PvmDataInPlace};
    doing("pack of %u bytes, encoding %u", head->size, encoding);
    if ((code = pvm_initsend(encodings[encoding])) < 0 || (code = pvm_pkbyte((char *)head, sizeof *head, 1)) < 0 ||
        (code = pvm_pkbyte((char *)receivers, receivers_size, 1)) < 0)
        failed_call("packing the head", code);
    if (head->shape == MIXED)
        code = pack_mixed(head, payload);
    else if (head->shape == INTS)
        code = pvm_pkint((int *)(void *)payload, (int)head->size / 4, 1);
    else if (head->shape == DOUBLES)
        code = pvm_pkdouble((double *)(void *)payload, (int)head->size / 8, 1);
    else
        code = pvm_pkbyte((char *)payload, (int)head->size, 1);
    if (code < 0)
        failed_call("packing the payload", code);
}

static void transmit(enum class class, const unsigned *to, unsigned count, unsigned length)
{
    int tids[POSITIONS_MAX], code;
    unsigned index;
    for (index = 0; index < count; index++)
        tids[index] = (int)table->logs[to[index]].tid;
    doing("%s of %u bytes to %u tasks, first t%x", class == PSEND ? "psend" : class == PACK ? "send" : "mcast", length,
          count, (unsigned)tids[0]);
    if (class == PSEND && length % 4 == 0 && length % 8 != 0)
        code = pvm_psend(tids[0], TAG_PSEND + class, (char *)out.bytes, (int)length / 4, PVM_INT);
    else if (class == PSEND)
        code = pvm_psend(tids[0], TAG_PSEND + class, (char *)out.bytes, (int)length, PVM_BYTE);
    else if (class == PACK)
        code = pvm_send(tids[0], TAG_PSEND + class);
    else
        code = pvm_mcast(tids, (int)count, TAG_PSEND + class);
    done_doing();
    if (code < 0)
        failed_call("a send", code);
}

void send_message(struct random *random, enum class class, const unsigned *to, unsigned count, unsigned size,
                  struct note note)
{
    unsigned length = assemble(random, class, to, count, size, note), index;
    unsigned counted = ((struct head *)out.bytes)->size;
    if (class != PSEND)
        pack_assembled(random);
    if (class == PSEND && count == 1 && mutate_now("swap", to[0])) {
        static union { unsigned char bytes[BODY_BYTES_MAX]; double alignment; } held;
        memcpy(&held, &out, length);
        send_message(random, class, to, count, 100, note);
        memcpy(&out, &held, length);
    }
    /* The account says that this message is sent; so the next one that the receiver takes from anybody overtakes it. */
    if (may_mutate("late", to[0]) && table->phase % PHASES == RUN) {
        note_end(to[0], class);
        while (table->phase % PHASES == RUN)
            usleep(300);
    }
    if (!mutate_now("drop", to[0]))
        transmit(class, to, count, length);
    if (mutate_now("double", to[0]))
        transmit(class, to, count, length);
    for (index = 0; index < count; index++) {
        note_end(to[index], class);
        count_sent(to[index], class, counted);
    }
}

/* Returns the contents of a mini message; they depend on sender, receiver and number. */
static uint64_t mini_key(unsigned from, unsigned to, uint32_t number)
{
    return mix(mix(table->seed + 1, from), mix(to, number));
}

static unsigned mini_size(uint64_t key)
{
    return (unsigned)(key % (MINI_BYTES_MAX + 1));
}

void send_mini(struct random *random, unsigned to)
{
    unsigned char bytes[MINI_BYTES_MAX];
    int tid = (int)table->logs[to].tid, tag, code, size;
    uint64_t key;
    count_begun(to, MINI, 0);
    tag = (int)(TAG_MINI + mine->begun[to][MINI]);
    key = mini_key(me, to, mine->begun[to][MINI]);
    size = (int)mini_size(key);
    fill(bytes, (unsigned)size, key);
    doing("mini message to t%x", (unsigned)tid);
    if (below(random, 2)) {
        code = pvm_psend(tid, tag, (char *)bytes, size, PVM_BYTE);
    } else {
        if ((code = pvm_initsend(below(random, 2) ? PvmDataDefault : PvmDataRaw)) >= 0 &&
            (code = pvm_pkbyte((char *)bytes, size, 1)) >= 0)
            code = pvm_send(tid, tag);
    }
    done_doing();
    if (code < 0)
        failed_call("a mini send", code);
    note_end(to, MINI);
    count_sent(to, MINI, (unsigned)size);
}

/* ---- Receiving ---- */

static void count_received(unsigned from, enum class class, uint32_t number, unsigned size, int any_tag)
{
    struct log *sender = &table->logs[from];
    uint32_t expected = mine->received[from][class] + 1;
    if (number != expected)
        fail("message %u of class %u from task %u came, number %u was due: %s", number, class, from, expected,
             number < expected ? "doubled or overtaken" : "one was lost or overtaken");
    if (mine->notified[from])
        fail("message %u of class %u from task %u came after its exit notify", number, class, from);
    if (number > sender->begun[me][class])
        fail("message %u of class %u from task %u came, it began only %u", number, class, from,
             (unsigned)sender->begun[me][class]);
    mine->received[from][class] = number;
    mine->bytes_from[from] += weight(class, size);
    mine->messages_received++;
    mine->bytes_received += size;
    if (any_tag)
        oldest_taken[from][class] = number;
}

/* Checks that messages of one sender arrive in the order of sending, whatever their tags are. */
static void check_order(unsigned from, enum class class, const counts numbers, int any_tag)
{
    unsigned other;
    for (other = 0; other < CLASSES; other++) {
        if (any_tag && other != class && mine->received[from][other] < numbers[other])
            fail("message %u of class %u from task %u overtook message %u of class %u", numbers[class], class, from,
                 numbers[other], other);
        if (other != class && oldest_taken[from][other] > numbers[other])
            fail("message %u of class %u from task %u was overtaken by message %u of class %u", numbers[class], class,
                 from, oldest_taken[from][other], other);
    }
}

/* Checks that no task of this host has sent a message to this task earlier that was not received: each send that had
 * returned when the send of this message began is earlier. */
static void check_arrival(const struct head *head)
{
    unsigned from, class, place;
    for (from = 0; from < table->incarnations; from++) {
        struct log *sender = &table->logs[from];
        if (from == head->sender || from == me || mine->notified[from] ||
            pvm_tidtohost((int)sender->own_tid) != pvm_tidtohost((int)mine->own_tid))
            continue;
        for (class = 0; class < CLASSES; class++)
            for (place = 0; place < LATEST; place++) {
                uint64_t sent_at = sender->sent_at[me][class][place];
                uint16_t ahead = (uint16_t)(sent_at - mine->received[from][class]);
                if (sent_at != 0 && ahead != 0 && ahead < 0x8000 && (sent_at >> 16 << 4) + MARGIN_NS < head->stamp_ns)
                    fail("a message of task %u overtook one of class %u that task %u had sent %llu ns before",
                         head->sender, class, from, (unsigned long long)(head->stamp_ns - (sent_at >> 16 << 4)));
            }
    }
}

/* Checks head and receivers. Returns the entry for this task. */
static const struct receiver *check_head(const struct head *head, const struct receiver *receivers, int tid, int tag)
{
    unsigned index;
    if (head->magic != MAGIC || head->receivers > POSITIONS_MAX || head->sender >= table->incarnations ||
        check_of(head, receivers) != head->check)
        fail("damaged head in a message with tag %d from t%x", tag, (unsigned)tid);
    if (tid != (int)table->logs[head->sender].own_tid || tag != (int)(TAG_PSEND + head->class))
        fail("message of task %u with class %u came from t%x with tag %d", head->sender, head->class, (unsigned)tid,
             tag);
    for (index = 0; index < head->receivers; index++)
        if (receivers[index].incarnation == me)
            return &receivers[index];
    fail("message of task %u came that was not for this task", head->sender);
}

static void note_wait(const struct head *head)
{
    uint64_t waited = now_ns() - head->stamp_ns;
    if (waited > mine->wait_longest_ns)
        mine->wait_longest_ns = waited;
}

static struct note settle(const struct head *head, const struct receiver *receiver, int any_tag)
{
    struct note note = {head->flags, head->extra};
    check_order(head->sender, head->class, receiver->numbers, any_tag);
    count_received(head->sender, head->class, receiver->numbers[head->class], head->size, any_tag);
    return note;
}

static int unpack_mixed(const struct head *head, unsigned char *payload)
{
    char text[64], expected[20];
    int numbers[10], index, code;
    snprintf(expected, sizeof expected, "k%016llx", (unsigned long long)head->key);
    if ((code = pvm_upkstr(text)) < 0 || (code = pvm_upkint(numbers, 5, 2)) < 0)
        return code;
    for (index = 0; index < 5; index++)
        if (numbers[index * 2] != (int)word_of(head->key, index))
            fail("damaged integers in a message of task %u", head->sender);
    if (strcmp(text, expected) != 0)
        fail("damaged string in a message of task %u", head->sender);
    return pvm_upkbyte((char *)payload, (int)head->size, 1);
}

static unsigned sender_of(int tid)
{
    unsigned incarnation = table->incarnations;
    while (incarnation-- > 0)
        if ((int)table->logs[incarnation].own_tid == tid)
            return incarnation;
    fail("a message came from t%x, which is none of ours", (unsigned)tid);
}

int is_stranger(int tid)
{
    unsigned incarnation = table->strangers && tid > 0 ? table->incarnations : 0;
    if (incarnation == 0)
        return 0;
    while (incarnation-- > 0)
        if ((int)table->logs[incarnation].own_tid == tid)
            return 0;
    return 1;
}

static struct note take_mini(int tid, int tag, int bytes, int any_tag)
{
    unsigned from = sender_of(tid);
    uint32_t number = (uint32_t)tag - TAG_MINI;
    uint64_t key = mini_key(from, me, number);
    int size = (int)mini_size(key), code;
    struct note none = {0, 0};
    if (bytes != size && bytes != (size + 3) / 4 * 4)
        fail("mini message %u of task %u has %d bytes instead of %d", number, from, bytes, size);
    if ((code = pvm_upkbyte((char *)in.bytes, size, 1)) < 0)
        fail("unpacking a mini message gave %d", code);
    if (damaged_at(in.bytes, (unsigned)size, key) >= 0)
        fail("mini message %u of task %u is damaged", number, from);
    count_received(from, MINI, number, (unsigned)size, any_tag);
    return none;
}

struct note take_message(int buffer, int any_tag, int any_source)
{
    struct head *head = (struct head *)in.bytes;
    struct receiver *receivers = (struct receiver *)(in.bytes + sizeof *head);
    const struct receiver *receiver;
    unsigned char *payload;
    int bytes, tag, tid, code;
    if ((code = pvm_bufinfo(buffer, &bytes, &tag, &tid)) < 0)
        fail("pvm_bufinfo gave %d", code);
    if (tag >= TAG_MINI)
        return take_mini(tid, tag, bytes, any_tag);
    if ((code = pvm_upkbyte((char *)head, sizeof *head, 1)) < 0 || head->receivers > POSITIONS_MAX ||
        head->size > PAYLOAD_BYTES_MAX ||
        (code = pvm_upkbyte((char *)receivers, (int)(head->receivers * sizeof *receivers), 1)) < 0)
        fail("unpacking the head of a message with tag %d from t%x gave %d", tag, (unsigned)tid, code);
    receiver = check_head(head, receivers, tid, tag);
    payload = (unsigned char *)(receivers + head->receivers);
    if (head->shape == MIXED)
        code = unpack_mixed(head, payload);
    else if (head->shape == INTS)
        code = pvm_upkint((int *)(void *)payload, (int)head->size / 4, 1);
    else if (head->shape == DOUBLES)
        code = pvm_upkdouble((double *)(void *)payload, (int)head->size / 8, 1);
    else
        code = pvm_upkbyte((char *)payload, (int)head->size, 1);
    if (code < 0)
        fail("unpacking %u bytes from task %u gave %d", head->size, head->sender, code);
    if (damaged_at(payload, head->size, head->key) >= 0)
        fail("message %u of class %u from task %u, %u bytes, is damaged at %ld", receiver->numbers[head->class],
             head->class, head->sender, head->size, damaged_at(payload, head->size, head->key));
    note_wait(head);
    if (any_tag && any_source && pvm_tidtohost(tid) == pvm_tidtohost((int)mine->own_tid))
        check_arrival(head);
    return settle(head, receiver, any_tag);
}

struct note precv_message(int from, int room)
{
    struct head *head = (struct head *)in.bytes;
    struct receiver *receivers = (struct receiver *)(in.bytes + sizeof *head);
    const struct receiver *receiver;
    int source = from < 0 ? -1 : (int)table->logs[from].tid, tid, tag, length, code, stored;
    unsigned envelope;
    doing("precv from t%x, room %d", (unsigned)source, room);
    code = pvm_precv(source, TAG_PSEND, (char *)in.bytes, room, PVM_BYTE, &tid, &tag, &length);
    done_doing();
    if (code < 0)
        failed_call("pvm_precv", code);
    if (is_stranger(tid))
        return (struct note){0, 0};
    envelope = sizeof *head + head->receivers * sizeof *receivers;
    receiver = check_head(head, receivers, tid, tag);
    if (length != (int)(envelope + head->size))
        fail("precv says %d bytes, task %u sent %u", length, head->sender, envelope + head->size);
    stored = (length < room ? length : room) - (int)envelope;
    if (damaged_at(in.bytes + envelope, stored < 0 ? 0 : (unsigned)stored, head->key) >= 0)
        fail("message %u by psend from task %u, %u bytes, is damaged at %ld", receiver->numbers[PSEND], head->sender,
             head->size, damaged_at(in.bytes + envelope, (unsigned)stored, head->key));
    note_wait(head);
    return settle(head, receiver, 0);
}
