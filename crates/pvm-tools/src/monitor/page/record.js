"use strict";
// The timeline: events in the order in which they came, and what follows from them.

/** Changes an object as a merge patch says (RFC 7396). Arrays are shared with the patch: nobody changes them. */
function applyPatch(value, patch) {
  for (const [key, change] of Object.entries(patch)) {
    if (change === null) {
      delete value[key];
    } else if (typeof change === "object" && !Array.isArray(change)) {
      const old = value[key];
      value[key] = applyPatch(old && typeof old === "object" && !Array.isArray(old) ? old : {}, change);
    } else {
      value[key] = change;
    }
  }
  return value;
}

const sum = (pairs, part) => (pairs || []).reduce((all, pair) => all + pair[part], 0);

/** The state of the machine at a time, and the rates since the look before. */
class Machine {
  constructor() {
    this.state = { hosts: {}, tasks: {}, groups: {}, deadlocks: [] };
    this.at = null;
    this.counters = new Map();
    this.rates = new Map();
  }

  /** Returns what a task has used up until now: processor seconds, waiting µs, messages and bytes out and in. */
  static used(task, at) {
    const waited = (task.waited || 0) + (task.wait ? Math.max(0, at - task.wait.since) : 0);
    return [task.cpu || 0, waited, sum(task.sent, 0), sum(task.sent, 1), sum(task.received, 0), sum(task.received, 1)];
  }

  /** Takes looks that follow, of which the last two give the rates. */
  apply(looks) {
    const last = looks[looks.length - 1];
    if (looks.length > 1) {
      for (const look of looks.slice(0, -1)) applyPatch(this.state, look.patch);
      this.at = looks[looks.length - 2].at;
      this.counters = new Map(Object.entries(this.state.tasks).map(([tid, task]) => [tid, Machine.used(task, this.at)]));
    }
    applyPatch(this.state, last.patch);
    this.count(last);
  }

  count(look) {
    const before = this.counters;
    const span = this.at === null ? 0 : (look.at - this.at) / 1e6;
    this.counters = new Map();
    this.rates = new Map();
    for (const [tid, task] of Object.entries(this.state.tasks)) {
      const now = Machine.used(task, look.at);
      const old = before.get(tid);
      this.counters.set(tid, now);
      if (old && span > 0) {
        const rate = now.map((number, place) => Math.max(0, number - old[place]) / span);
        rate[1] = Math.min(1, rate[1] / 1e6);
        this.rates.set(tid, rate);
      }
    }
    this.at = look.at;
  }

  copy() {
    const other = new Machine();
    other.state = structuredClone(this.state);
    other.at = this.at;
    other.counters = new Map(this.counters);
    return other;
  }
}

/** Spans of time that follow each other, each with a number from 0 to 1 and a code; and the same in coarser steps. */
class Spans {
  constructor() {
    this.begin = [];
    this.end = [];
    this.share = [];
    this.code = [];
    this.coarse = null;
    this.covered = 0;
  }

  add(begin, end, share, code) {
    const last = this.end.length - 1;
    // What goes on as before makes the span longer.
    if (last >= 0 && this.code[last] === code && this.share[last] === share && this.end[last] === begin) {
      this.end[last] = end;
    } else {
      this.begin.push(begin);
      this.end.push(end);
      this.share.push(share);
      this.code.push(code);
    }
  }

  /** Returns spans of which not many more than `most` lie between the times: each of a coarser level stands for eight. */
  level(from, to, most) {
    const visible = this.indexAt(to) - this.indexAt(from);
    if (visible <= most || this.begin.length < 16) return this;
    if (!this.coarse || this.covered + 8 <= this.begin.length) {
      if (!this.coarse) this.coarse = new Spans();
      for (let at = this.covered; at + 8 <= this.begin.length; at += 8) {
        let shares = 0, worst = 0;
        for (let one = at; one < at + 8; one++) {
          const length = this.end[one] - this.begin[one];
          shares += length * this.share[one];
          worst = Math.max(worst, this.code[one]);
        }
        const length = this.end[at + 7] - this.begin[at];
        this.coarse.add(this.begin[at], this.end[at + 7], shares / Math.max(1, length), worst);
        this.covered = at + 8;
      }
    }
    return this.coarse.level(from, to, most);
  }

  /** Returns the index of the first span that ends after the time. */
  indexAt(time) {
    let low = 0, high = this.end.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.end[middle] <= time) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}

/** Codes of spans; the larger one wins when spans are drawn as one. */
const CODES = { computes: 0, waits: 1, starts: 2, left: 2, stopped: 3, stuck: 4 };
const CHECKPOINT = 64;
const LOG_MAX = 5000;

class Record {
  constructor() {
    this.reset();
  }

  reset() {
    this.start = 0;
    /** Whether there was more before the first look. */
    this.isCut = false;
    this.looks = [];
    this.checkpoints = [];
    this.machine = new Machine();
    this.tracks = new Map();
    this.arrows = { begin: [], end: [], from: [], to: [] };
    this.open = new Map();
    this.pairs = new Map();
    this.calls = 0;
    /** Lines that tasks have printed; the last one of a stream may be incomplete. */
    this.output = [];
    this.openLines = new Map();
    this.log = [];
    this.lines = 0;
    this.series = { time: [], computing: [], waiting: [], stuck: [], messages: [], bytes: [], load: [] };
  }

  get first() {
    return this.looks.length ? this.looks[0].at : 0;
  }

  get last() {
    let last = this.looks.length ? this.looks[this.looks.length - 1].at : 0;
    for (const track of this.tracks.values()) last = Math.max(last, track.last);
    return last;
  }

  track(tid) {
    let track = this.tracks.get(tid);
    if (!track) {
      track = { tid, command: "", host: "", begin: null, end: null, last: 0, looks: new Spans(), calls: new Spans(), names: [] };
      this.tracks.set(tid, track);
    }
    return track;
  }

  add(event) {
    if (event.name === "start" && event.ph === "M") {
      this.start = event.args.microseconds;
    } else if (event.name === "thread_name" && event.ph === "M") {
      this.track(tidOf(event)).command = event.args.name.split(" ").slice(1).join(" ");
    } else if (event.cat === "look") {
      // The server has kept only what came later.
      if (event.name === "state") this.isCut = true;
      this.addLook({ at: event.ts, patch: event.args });
    } else if (event.cat === "call") {
      this.addCall(event);
    } else if (event.cat === "message") {
      this.addMessage(event);
    } else if (event.cat === "output") {
      this.addOutput(event);
    }
  }

  addLook(look) {
    if (this.looks.length % CHECKPOINT === 0) this.checkpoints.push(this.machine.copy());
    const before = { tasks: new Set(Object.keys(this.machine.state.tasks)), hosts: { ...this.machine.state.hosts } };
    const offices = Object.fromEntries(Object.entries(before.hosts).map(([tid, host]) => [tid, [host.office, host.silent]]));
    const deadlocks = new Set(this.machine.state.deadlocks.map((deadlock) => deadlock.text));
    const since = this.machine.at === null ? look.at : this.machine.at;
    this.looks.push(look);
    this.machine.apply([look]);
    this.note(look, before, offices, deadlocks);
    const counts = [0, 0, 0];
    for (const [tid, task] of Object.entries(this.machine.state.tasks)) {
      const track = this.track(tid);
      const isNew = track.begin === null || track.end !== null;
      if (isNew) Object.assign(track, { begin: look.at, end: null, host: task.host, command: task.command });
      const code = task.stuck ? CODES.stuck : CODES[task.state] ?? 0;
      const rate = this.machine.rates.get(tid);
      const share = rate ? Math.round(rate[1] * 100) / 100 : task.wait ? 1 : 0;
      if (!isNew && look.at > since) track.looks.add(since, look.at, share, code === CODES.waits ? CODES.computes : code);
      track.last = look.at;
      counts[task.stuck ? 2 : task.wait ? 1 : 0] += 1;
    }
    for (const tid of before.tasks) {
      if (!(tid in this.machine.state.tasks)) this.track(tid).end = look.at;
    }
    const total = (place) => [...this.machine.rates.values()].reduce((all, rate) => all + rate[place], 0);
    const load = Object.values(this.machine.state.hosts).map((host) => host.load || 0);
    const series = this.series;
    series.time.push((this.start + look.at) / 1e6);
    series.computing.push(counts[0]);
    series.waiting.push(counts[1]);
    series.stuck.push(counts[2]);
    series.messages.push(total(2));
    series.bytes.push(total(3));
    series.load.push(load.reduce((all, one) => all + one, 0));
  }

  /** Writes in words what a look has changed. */
  note(look, before, offices, deadlocks) {
    const { hosts, tasks } = this.machine.state;
    const say = (kind, text) => this.log.push({ number: (this.lines += 1), at: look.at, kind, text, stuck: kind === "trouble" });
    const isFirst = this.looks.length === 1;
    for (const [tid, host] of Object.entries(hosts)) {
      const old = offices[tid];
      if (!old) say("host", `${host.name} ${isFirst ? "is in the machine" : "has joined the machine"}`);
      else if (old[0] !== host.office && host.office !== "none") say("host", `${host.name} is now the ${host.office}`);
      if (old && !old[1] && host.silent) say("trouble", `${host.name} does not answer`);
      if (old && old[1] && !host.silent) say("host", `${host.name} answers again`);
    }
    for (const [tid, host] of Object.entries(before.hosts)) {
      if (!(tid in hosts)) say("trouble", `${host.name} has left the machine`);
    }
    for (const [tid, task] of Object.entries(tasks)) {
      if (!before.tasks.has(tid)) {
        const host = hosts[task.host] ? hosts[task.host].name : task.host;
        say("task", `${tid} ${programOf(task)} ${isFirst ? "runs" : "has started"} on ${host}`);
      }
    }
    for (const tid of before.tasks) {
      if (!(tid in tasks)) say("task", `${tid} has ended`);
    }
    for (const { text } of this.machine.state.deadlocks) {
      if (!deadlocks.has(text)) say("trouble", text);
    }
    if (this.log.length > LOG_MAX) this.log.splice(0, this.log.length - LOG_MAX);
  }

  addCall(event) {
    const track = this.track(tidOf(event));
    const end = event.ts + event.dur;
    const waits = /recv|barrier|freezegroup|reduce|gather|scatter|spawn|addhosts|delhosts/.test(event.name);
    const calls = track.calls;
    // Calls inside a call are part of it; they have been told before it. One that ended when this one began came before it.
    for (let at = calls.end.length - 1; at >= 0 && calls.begin[at] >= event.ts && calls.end[at] > event.ts; at--) {
      for (const list of [calls.begin, calls.end, calls.share, calls.code, track.names]) list.pop();
    }
    if (calls.covered > calls.begin.length) {
      calls.coarse = null;
      calls.covered = 0;
    }
    calls.begin.push(event.ts);
    calls.end.push(end);
    calls.share.push(1);
    calls.code.push(waits ? 1 : 0);
    track.names.push(event.name);
    track.last = Math.max(track.last, end);
    if (track.begin === null) track.begin = event.ts;
    this.calls += 1;
  }

  addOutput(event) {
    const tid = tidOf(event);
    const stream = `${tid} ${event.name}`;
    const parts = event.args.text.split("\n");
    parts.forEach((part, place) => {
      let line = this.openLines.get(stream);
      if (!line) {
        if (place === parts.length - 1 && part === "") return;
        line = { number: this.output.length, at: event.ts, tid, stream: event.name, text: "" };
        this.output.push(line);
        this.openLines.set(stream, line);
      }
      line.text += part;
      if (place < parts.length - 1) this.openLines.delete(stream);
    });
  }

  /** Takes one end of an arrow. */
  addMessage(event) {
    if (event.ph === "s") {
      this.open.set(event.id, event);
      return;
    }
    const sent = this.open.get(event.id);
    if (!sent) return;
    this.open.delete(event.id);
    const [from, to] = [tidOf(sent), tidOf(event)];
    this.arrows.begin.push(sent.ts);
    this.arrows.end.push(event.ts);
    this.arrows.from.push(from);
    this.arrows.to.push(to);
    const pair = `${from} ${to}`;
    this.pairs.set(pair, (this.pairs.get(pair) || 0) + 1);
  }

  /** Returns the machine as it was at a time. */
  machineAt(time) {
    let count = this.looks.length;
    let low = 0;
    while (low < count) {
      const middle = (low + count) >> 1;
      if (this.looks[middle].at <= time) low = middle + 1;
      else count = middle;
    }
    count = Math.max(1, count);
    const place = Math.floor((count - 1) / CHECKPOINT);
    if (!this.checkpoints[place]) return this.machine;
    const machine = this.checkpoints[place].copy();
    machine.apply(this.looks.slice(place * CHECKPOINT, count));
    return machine;
  }
}

/** Returns the tid of the task of an event: host and local part are its process and thread. */
function tidOf(event) {
  return `t${((event.pid << 18) | event.tid).toString(16)}`;
}

/** Returns the name of the program of a task, without directories. */
function programOf(task) {
  return (task.command || "").split("/").pop() || "-";
}
