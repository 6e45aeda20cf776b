"use strict";
// The views that are tables and curves.

const ROUTES = ["memory", "daemons", "direct", "fabric"];

/** A button that ends a task. */
function endButton(tid) {
  const button = h("button", { class: "end", title: `End ${tid} (SIGTERM)` }, "End");
  button.addEventListener("click", async () => {
    if (!confirm(`End ${tid}?`)) return;
    button.disabled = true;
    const answer = await fetch(`signal?tid=${tid}&signal=TERM`, { method: "POST" }).catch(() => null);
    if (!answer || !answer.ok) {
      button.disabled = false;
      alert(answer ? await answer.text() : "pvm monitor does not answer");
    }
  });
  return button;
}

class TasksView {
  constructor() {
    this.title = "Tasks";
    this.buttons = new Map();
    const rate = (place) => (row) => (row.rate ? row.rate[place] : null);
    const shown = (place, show) => (row) => (row.rate ? show(row.rate[place]) : "");
    this.table = new Table("tasks", [
      { name: "Task", get: (row) => row.tid },
      { name: "Parent", get: (row) => (row.parent === "t0" ? "" : row.parent) },
      { name: "Program", get: (row) => programOf(row) },
      { name: "Host", get: (row) => row.hostName },
      { name: "State", get: (row) => (row.stuck ? "STUCK" : row.state), show: stateMark },
      { name: "CPU", get: rate(0), show: shown(0, asPercent), isNumber: true },
      { name: "Waiting", get: rate(1), show: shown(1, asPercent), isNumber: true },
      { name: "Memory", get: (row) => row.memory, show: (row) => (row.memory === undefined ? "" : asBytes(row.memory)), isNumber: true },
      { name: "Unread", get: (row) => row.unread, isNumber: true },
      { name: "Sent/s", get: rate(2), show: shown(2, asCount), isNumber: true },
      { name: "B sent/s", get: rate(3), show: shown(3, asBytes), isNumber: true },
      { name: "Received/s", get: rate(4), show: shown(4, asCount), isNumber: true },
      { name: "Sent", get: (row) => sum(row.sent, 0), show: (row) => asCount(sum(row.sent, 0)), isNumber: true },
      { name: "Received", get: (row) => sum(row.received, 0), show: (row) => asCount(sum(row.received, 0)), isNumber: true },
      { name: "", get: () => "", show: (row) => (page.mayEnd ? this.button(row.tid) : "") },
    ], (row) => row.tid);
    this.element = h("section", {}, this.table.element);
  }

  button(tid) {
    if (!this.buttons.has(tid)) this.buttons.set(tid, endButton(tid));
    return this.buttons.get(tid);
  }

  show(record, machine) {
    const { state, rates } = machine;
    const rows = Object.entries(state.tasks).map(([tid, task]) => ({ ...task, tid, hostName: hostName(state, task.host), rate: rates.get(tid) }));
    this.table.show(rows);
    if (!rows.length) this.table.note.textContent = "No tasks: start a program with pvm run.";
  }
}

class HostsView {
  constructor() {
    this.title = "Hosts";
    this.table = new Table("hosts", [
      { name: "Host", get: (row) => row.name },
      { name: "Tid", get: (row) => row.tid },
      { name: "Role", get: (row) => (row.office === "none" ? "" : row.office) },
      { name: "State", get: (row) => (row.silent ? "does not answer" : row.draining ? "draining" : "up") },
      { name: "Load", get: (row) => row.load, show: (row) => (row.load === undefined ? "" : `${row.load.toFixed(2)} of ${row.cores}`), isNumber: true },
      { name: "Free memory", get: (row) => row.available, show: (row) => (row.memory ? `${asBytes(row.available)} of ${asBytes(row.memory)}` : ""), isNumber: true },
      { name: "Tasks", get: (row) => row.count, isNumber: true },
      { name: "Waiting", get: (row) => row.waiting, isNumber: true },
      { name: "Stuck", get: (row) => row.stuckTasks, isNumber: true },
      { name: "Links to daemons", get: (row) => row.linkCount, isNumber: true },
      { name: "Over them, in", get: (row) => row.linked[0], show: (row) => asBytes(row.linked[0]), isNumber: true },
      { name: "out", get: (row) => row.linked[1], show: (row) => asBytes(row.linked[1]), isNumber: true },
      { name: "Last trouble", get: (row) => row.trouble },
    ], (row) => row.tid);
    this.element = h("section", {}, this.table.element);
  }

  show(record, machine) {
    const { state } = machine;
    const tasks = Object.values(state.tasks);
    const trouble = (name) => {
      const found = record.log.filter((line) => line.kind === "trouble" && line.at <= machine.at && line.text.startsWith(`${name} `)).pop();
      return found ? `${asClock(record, found.at)} ${found.text.slice(name.length + 1)}` : "";
    };
    this.table.show(Object.entries(state.hosts).map(([tid, host]) => {
      const own = tasks.filter((task) => task.host === tid);
      const links = Object.values(host.links || {});
      return {
        ...host, tid, count: own.length, waiting: own.filter((task) => task.wait).length, stuckTasks: own.filter((task) => task.stuck).length,
        linkCount: links.length, linked: [0, 1].map((way) => links.reduce((all, link) => all + link[way], 0)), trouble: trouble(host.name),
      };
    }));
  }
}

/** A table of numbers from rows to columns, darker where they are larger. */
function matrix(label, names, number, show) {
  const most = Math.max(1, ...names.flatMap(([from]) => names.map(([to]) => number(from, to))));
  const cell = ([from, fromName], [to, toName]) => {
    const value = number(from, to);
    const depth = value ? 0.12 + (0.68 * Math.log1p(value)) / Math.log1p(most) : 0;
    const element = h("td", { class: "number", title: `${fromName} to ${toName}: ${show(value)}` }, value ? show(value) : "");
    element.style.setProperty("--depth", depth.toFixed(2));
    return element;
  };
  const head = h("tr", {}, h("td", {}, "from \\ to"), names.map(([, name]) => h("th", { scope: "col" }, name)));
  const rows = names.map((from) => h("tr", {}, h("th", { scope: "row" }, from[1]), names.map((to) => cell(from, to))));
  return h("div", { class: "scroll" }, h("table", { class: "matrix", "aria-label": label }, h("thead", {}, head), h("tbody", {}, rows)));
}

const MATRIX_MAX = 40;

class TrafficView {
  constructor() {
    this.title = "Traffic";
    this.element = h("section");
  }

  show(record, machine) {
    const { state, rates } = machine;
    const tasks = Object.entries(state.tasks);
    const total = (way, route, part) => tasks.reduce((all, [, task]) => all + (((task[way] || [])[route] || [])[part] || 0), 0);
    const routes = ROUTES.map((name, route) => h("tr", {}, h("th", { scope: "row" }, name),
      ["sent", "received"].flatMap((way) => [h("td", { class: "number" }, asCount(total(way, route, 0))), h("td", { class: "number" }, asBytes(total(way, route, 1)))])));
    const heads = ["Route", "Messages sent", "Bytes sent", "Messages received", "Bytes received"];
    const now = [...rates.values()];
    const rate = (place) => now.reduce((all, one) => all + one[place], 0);
    const hosts = Object.entries(state.hosts).map(([tid, host]) => [tid, host.name]);
    // What a host has received from another one over the link between the daemons.
    const between = (from, to) => (((state.hosts[to] || {}).links || {})[from] || [0])[0];
    const busy = [...new Set([...record.pairs.keys()].flatMap((pair) => pair.split(" ")))].sort().map((tid) => [tid, tid]);
    const parts = [
      h("p", { class: "big" }, `${asCount(rate(2))} messages/s, ${asBytes(rate(3))}/s`),
      h("h2", {}, "By route, of the tasks that run"),
      h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, heads.map((name, place) => h("th", { scope: "col", class: place ? "number" : null }, name)))), h("tbody", {}, routes))),
    ];
    if (hosts.length > 1) {
      parts.push(h("h2", {}, "Between daemons, in bytes"), matrix("Bytes between hosts", hosts.slice(0, MATRIX_MAX), between, asBytes));
      if (hosts.length > MATRIX_MAX) parts.push(h("p", { class: "note" }, `The first ${MATRIX_MAX} of ${hosts.length} hosts.`));
    }
    parts.push(h("h2", {}, "From task to task, in messages"));
    if (busy.length) {
      parts.push(matrix("Messages between tasks", busy.slice(0, MATRIX_MAX), (from, to) => record.pairs.get(`${from} ${to}`) || 0, asCount));
      if (busy.length > MATRIX_MAX) parts.push(h("p", { class: "note" }, `The first ${MATRIX_MAX} of ${busy.length} tasks.`));
    } else {
      parts.push(empty("Not recorded", "Tasks count their messages by route. From whom to whom each one went shows a run of pvm run --trace FILE."));
    }
    this.element.replaceChildren(...parts);
  }
}

class GroupsView {
  constructor() {
    this.title = "Groups";
    this.table = new Table("groups", [
      { name: "Group", get: (row) => row.name },
      { name: "Members", get: (row) => row.members.length, isNumber: true },
      { name: "Frozen", get: (row) => (row.frozen ? "yes" : "no") },
      { name: "Barriers meet at", get: (row) => row.where },
      { name: "In a barrier", get: (row) => row.come, show: (row) => (row.needs ? `${row.come} of ${row.needs}` : ""), isNumber: true },
      { name: "Missing", get: (row) => row.missing },
    ], (row) => row.name);
    this.element = h("section", {}, this.table.element);
  }

  show(record, machine) {
    const { state } = machine;
    const rows = Object.entries(state.groups).map(([name, group]) => {
      // Names of groups in waits may be cut short.
      const isIn = (tid) => {
        const wait = (state.tasks[tid] || {}).wait;
        return wait && ["barrier", "freezegroup"].includes(wait.call) && name.startsWith(wait.group || "");
      };
      const waiting = group.members.filter(isIn);
      const needs = waiting.length ? state.tasks[waiting[0]].wait.count : 0;
      const missing = waiting.length ? group.members.filter((tid) => !isIn(tid)) : [];
      return { name, ...group, where: hostName(state, group.at), come: waiting.length, needs, missing: missing.slice(0, 12).join(" ") + (missing.length > 12 ? ` and ${missing.length - 12} more` : "") };
    });
    this.table.show(rows);
    if (!rows.length) this.table.note.textContent = "No groups: a task makes one with pvm_joingroup.";
  }
}

class UtilizationView {
  constructor() {
    this.title = "Utilization";
    this.element = h("section", { class: "charts" });
    this.charts = null;
    // The colours are those of the theme.
    this.forget = () => (this.charts = null);
  }

  show(record, machine, time) {
    const { series } = record;
    const width = Math.max(260, this.element.clientWidth - 8);
    if (!this.charts || this.width !== width) {
      this.width = width;
      this.make(width);
    }
    if (series.time.length < 2) return;
    const until = time === null ? series.time.length : series.time.findIndex((one) => one * 1e6 - record.start > time);
    const cut = (list) => (until < 0 ? list : list.slice(0, Math.max(2, until)));
    for (const [chart, names] of this.charts) chart.setData([series.time, ...names.map((name) => series[name])].map(cut));
  }

  make(width) {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(`--${name}`).trim();
    const axis = { stroke: colour("text"), grid: { stroke: colour("line"), width: 1 }, ticks: { stroke: colour("line") } };
    const clock = (seconds) => CLOCK.format(seconds * 1000);
    // Whole numbers: half a task or message does not help to read a curve.
    const steps = [...Array(15).keys()].flatMap((power) => [1, 2, 5].map((step) => step * 10 ** power));
    const chart = (title, show, lines) => {
      const box = h("div", { class: "chart" });
      const options = {
        title, width, height: 190, axes: [{ ...axis, space: 90, values: (_, ticks) => ticks.map(clock) }, { ...axis, values: (_, ticks) => ticks.map(show), size: 76, incrs: steps }], scales: { y: { range: (_, low, high) => [0, Math.max(1, high * 1.05)] } },
        series: [{ value: (_, value) => (value === null ? "" : clock(value)) }, ...lines.map(([, label, tone, dash]) => ({ label, stroke: colour(tone), width: 2, dash, points: { show: false }, value: (_, value) => (value === null ? "" : show(value)) }))],
      };
      return [new uPlot(options, [[], ...lines.map(() => [])], box), lines.map(([name]) => name), box];
    };
    this.charts = [
      chart("Tasks by what they do", asCount, [["computing", "compute", "computes"], ["waiting", "wait", "waits", [6, 3]], ["stuck", "stuck", "stuck", [2, 2]]]),
      chart("Messages sent in a second", asCount, [["messages", "messages/s", "computes"]]),
      chart("Bytes sent in a second", asBytes, [["bytes", "bytes/s", "computes"]]),
      chart("Load of all hosts: processes that run or want to", asCount, [["load", "load", "computes"]]),
    ];
    this.element.replaceChildren(...this.charts.map(([, , box]) => box));
  }
}

class OutputView {
  constructor() {
    this.title = "Output";
    this.table = new Table("output", [
      { name: "Time", get: (row) => row.number, show: (row) => asClock(this.record, row.at), isNumber: true },
      { name: "Task", get: (row) => row.tid },
      { name: "Stream", get: (row) => row.stream },
      { name: "Line", get: (row) => row.text },
    ], (row) => row.number);
    this.empty = empty("Not recorded", "What tasks print goes to who has started them. A run of pvm run --record FILE, or --trace, holds it.");
    this.element = h("section", { class: "output" }, this.empty, this.table.element);
    // The newest line is seen first.
    this.table.sort = { column: 0, way: -1 };
  }

  show(record, machine, time) {
    this.record = record;
    this.empty.hidden = record.output.length > 0;
    this.table.element.hidden = record.output.length === 0;
    this.table.show(time === null ? record.output : record.output.filter((line) => line.at <= time));
  }
}

class LogView {
  constructor() {
    this.title = "Log";
    this.table = new Table("lines", [
      { name: "Time", get: (row) => row.at, show: (row) => asClock(this.record, row.at), isNumber: true },
      { name: "What", get: (row) => row.kind },
      { name: "", get: (row) => row.text },
    ], (row) => row.number);
    this.table.sort = { column: 0, way: -1 };
    this.element = h("section", {}, this.table.element);
  }

  show(record, machine, time) {
    this.record = record;
    const rows = time === null ? record.log : record.log.filter((line) => line.at <= time);
    this.table.show(rows);
  }
}
