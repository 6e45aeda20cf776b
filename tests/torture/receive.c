/* All ways to receive, and the rules for exit notifies. */
#include "torture.h"

#include <pvm3.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>

unsigned peers[INCARNATIONS_MAX], peer_count;

void watch(unsigned incarnation)
{
    int tid = (int)table->logs[incarnation].tid, code, times = 1 + (mutated("notify-twice") && mine->position == 0);
    mine->watched[incarnation] = 1;
    peers[peer_count++] = incarnation;
    doing("notify of t%x", (unsigned)tid);
    while (times-- > 0)
        if ((code = pvm_notify(PvmTaskExit, TAG_EXIT, 1, &tid)) < 0)
            failed_call("pvm_notify", code);
    done_doing();
}

int pending_class(unsigned from, enum class class)
{
    return table->logs[from].sent[me][class] > mine->received[from][class];
}

static int pending(unsigned from)
{
    unsigned class;
    for (class = 0; class < CLASSES; class++)
        if (pending_class(from, class))
            return 1;
    return 0;
}

/* Returns whether some message to this task has been sent completely and not been received yet. If so, a
 * receive must return. */
int anything_pending(void)
{
    unsigned index;
    for (index = 0; index < peer_count; index++)
        if (pending(peers[index]))
            return 1;
    return pending(0);
}

/* Checks that all messages that a dead task sent completely have arrived, and besides them at most the one that
 * it was sending when it died. */
static void settle_death(unsigned dead)
{
    const struct log *log = &table->logs[dead];
    unsigned class, surplus = 0;
    for (class = 0; class < CLASSES; class++) {
        unsigned sent = log->sent[me][class], begun = log->begun[me][class], received = mine->received[dead][class];
        if (received < sent)
            fail("task %u sent %u messages of class %u before it died, %u were received", dead, sent, class, received);
        if (received > begun)
            fail("task %u began %u messages of class %u, %u were received", dead, begun, class, received);
        surplus += received - sent;
    }
    if (surplus > 1)
        fail("task %u completed less than was received from it: %u more", dead, surplus);
}

static unsigned incarnation_of(int tid)
{
    unsigned incarnation = table->incarnations;
    while (--incarnation > 0)
        if ((int)table->logs[incarnation].tid == tid)
            return incarnation;
    fail("exit notify of t%x, which is none of ours", (unsigned)tid);
}

/* Handles an exit notify. `oldest`: it was the oldest message, so no message of the dead task may still be
 * queued.
 */
static void take_notify(int buffer, int oldest)
{
    int tid, source, code, queued = 0;
    unsigned dead, index;
    if ((code = pvm_bufinfo(buffer, NULL, NULL, &source)) < 0 || (code = pvm_upkint(&tid, 1, 1)) < 0)
        fail("an exit notify could not be read: %d", code);
    dead = incarnation_of(tid);
    if (source != (int)0x80000000)
        fail("exit notify of task %u came from t%x", dead, (unsigned)source);
    if (!mine->watched[dead] || mine->notified[dead])
        fail("exit notify of task %u came %s", dead, mine->notified[dead] ? "twice" : "unasked");
    if (table->logs[dead].fate == LIVES && table->logs[dead].state < LEAVING)
        fail("exit notify of task %u came, which lives", dead);
    while ((code = pvm_nrecv(tid, -1)) > 0) {
        take_message(code, 1, 0);
        queued++;
    }
    if (code < 0)
        failed_call("pvm_nrecv", code);
    if (oldest && queued > 0)
        fail("exit notify of task %u came before %d of its messages", dead, queued);
    settle_death(dead);
    if (mutated("deaf") && mine->position == 0)
        return;
    mine->notified[dead] = 1;
    for (index = 0; index < peer_count; index++)
        if (peers[index] == dead)
            peers[index] = peers[--peer_count];
}

/* Handles the result of any receive into a buffer; `any_tag` and `any_source` are its arguments. */
static struct note take(int buffer, int any_tag, int any_source)
{
    struct note none = {0, 0};
    int tag, tid, code;
    if (buffer == 0)
        return none;
    if (buffer < 0)
        failed_call("a receive", buffer);
    if ((code = pvm_bufinfo(buffer, NULL, &tag, &tid)) < 0)
        fail("pvm_bufinfo gave %d", code);
    if (is_stranger(tid))
        return none;
    if (tag == TAG_EXIT) {
        take_notify(buffer, any_tag && any_source);
        return none;
    }
    return take_message(buffer, any_tag, any_source);
}

static struct note receive(int from, int tag)
{
    int buffer;
    doing("recv(%x, %d)", (unsigned)from, tag);
    buffer = pvm_recv(from, tag);
    done_doing();
    return take(buffer, tag == -1, from == -1);
}

struct note receive_any(void)
{
    return receive(-1, -1);
}

void receive_with_timeout(int milliseconds)
{
    struct timeval time = {milliseconds / 1000, milliseconds % 1000 * 1000};
    int buffer;
    doing("trecv(-1, -1, %d ms)", milliseconds);
    buffer = pvm_trecv(-1, -1, &time);
    done_doing();
    take(buffer, 1, 1);
}

static void receive_now(int from, int tag)
{
    int buffer;
    doing("nrecv(%x, %d)", (unsigned)from, tag);
    buffer = pvm_nrecv(from, tag);
    done_doing();
    take(buffer, tag == -1, from == -1);
}

static void receive_probed(void)
{
    int buffer, tag, tid, taken;
    doing("probe(-1, -1)");
    buffer = pvm_probe(-1, -1);
    if (buffer < 0)
        failed_call("pvm_probe", buffer);
    if (buffer > 0) {
        pvm_bufinfo(buffer, NULL, &tag, &tid);
        doing("recv(%x, %d) after probe", (unsigned)tid, tag);
        taken = pvm_recv(tid, tag);
        if (taken != buffer)
            fail("the receive after a probe gave another message: %d, not %d", taken, buffer);
        take(taken, 1, 1);
    }
    done_doing();
}

/* Receives from one peer that has sent a pending message. */
static void receive_from(struct random *random, unsigned from)
{
    int tid = (int)table->logs[from].tid;
    unsigned class = below(random, CLASSES);
    struct timeval time = {5, 0};
    int buffer;
    if (!pending_class(from, class)) {
        receive(tid, -1);
    } else if (class == PSEND && below(random, 2)) {
        int short_room = 1024 + (int)below(random, 20000);
        precv_message((int)from, below(random, 8) ? (int)(PAYLOAD_BYTES_MAX + 4096) : short_room);
    } else if (class == MINI) {
        receive(tid, (int)(TAG_MINI + mine->received[from][MINI] + 1));
    } else if (below(random, 2)) {
        receive(tid, (int)(TAG_PSEND + class));
    } else {
        doing("trecv(%x, %u, 5 s)", (unsigned)tid, TAG_PSEND + class);
        buffer = pvm_trecv(tid, (int)(TAG_PSEND + class), &time);
        done_doing();
        take(buffer, 0, 0);
    }
}

/* Receives by a call that may wait for ever; only the chief's ticks (class PSEND) end it for certain. At most a
 * third of the tasks wait in this way, since otherwise all tasks might wait. */
static void receive_blindly(struct random *random)
{
    unsigned index, blind = 0;
    for (index = 0; index < peer_count; index++)
        blind += table->logs[peers[index]].blind != SEES;
    if (blind * 3 >= peer_count)
        return;
    mine->blind = below(random, 3) ? BLIND_IN_PRECV : BLIND_IN_RECV;
    if (mine->blind == BLIND_IN_PRECV)
        precv_message(-1, PAYLOAD_BYTES_MAX + 4096);
    else
        receive(-1, -1);
    mine->blind = SEES;
}

void receive_somehow(struct random *random)
{
    unsigned start = peer_count ? below(random, peer_count) : 0, index, way = below(random, 100);
    if (way < 5) {
        receive_now(-1, TAG_EXIT);
    } else if (way < 15) {
        receive_now(-1, -1);
    } else if (way < 20) {
        receive_probed();
    } else if (way < 30) {
        receive_with_timeout((int)below(random, 8));
    } else if (way < 34 && table->phase % PHASES == RUN) {
        receive_blindly(random);
    } else if (way < 70) {
        if (anything_pending())
            receive(-1, -1);
    } else {
        for (index = 0; index < peer_count; index++) {
            unsigned from = peers[(start + index) % peer_count];
            if (pending(from)) {
                receive_from(random, from);
                return;
            }
        }
    }
}

/* Returns whether all messages and all notifies have arrived, when nobody sends any more. */
int all_received(void)
{
    unsigned other, class, count = table->incarnations;
    for (other = 0; other < count; other++) {
        const struct log *log = &table->logs[other];
        if (other == me || log->tid == 0)
            continue;
        if (log->dead && mine->watched[other] && !mine->notified[other])
            return 0;
        if (other != 0 && !log->dead && (log->state < SILENT || log->round != table->phase / PHASES))
            return 0;
        for (class = 0; class < CLASSES; class++)
            if (pending_class(other, class))
                return 0;
    }
    return 1;
}

void explain_missing(char *text, unsigned room)
{
    unsigned other, class, count = table->incarnations, used = 0;
    text[0] = 0;
    for (other = 0; other < count && used + 80 < room; other++) {
        const struct log *log = &table->logs[other];
        if (other != me && log->dead && mine->watched[other] && !mine->notified[other])
            used += (unsigned)snprintf(text + used, room - used, " no exit notify of task %u;", other);
        for (class = 0; class < CLASSES && used + 80 < room; class++)
            if (other != me && pending_class(other, class))
                used += (unsigned)snprintf(text + used, room - used, " class %u of task %u: %u sent, %u received;",
                                           class, other, (unsigned)log->sent[me][class],
                                           (unsigned)mine->received[other][class]);
    }
}
