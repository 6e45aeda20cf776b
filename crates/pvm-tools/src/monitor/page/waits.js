"use strict";
// Who waits for whom: a graph, and in words.

const NODES_MAX = 120;
const NODE = { width: 160, height: 40, gapX: 64, gapY: 20, top: 36 };

/** Groups waiting tasks that are alike: of one program, in one call, for the same tasks, and nobody waits for them alone. */
function graphOf(state) {
  const tasks = state.tasks;
  const awaited = new Map();
  for (const task of Object.values(tasks)) {
    for (const tid of task.awaits || []) awaited.set(tid, (awaited.get(tid) || 0) + 1);
  }
  const part = new Set(state.deadlocks.flatMap((deadlock) => deadlock.tasks));
  const nodes = new Map();
  const nodeOf = new Map();
  for (const [tid, task] of Object.entries(tasks)) {
    if (!task.wait && !awaited.has(tid)) continue;
    const targets = (task.awaits || []).join(" ");
    const isAlone = part.has(tid) || awaited.has(tid) || !task.wait;
    const key = isAlone ? tid : `${programOf(task)} ${task.wait.call} ${task.wait.group || ""} ${task.stuck} ${targets}`;
    if (!nodes.has(key)) nodes.set(key, { key, tids: [], task, edges: new Set() });
    nodes.get(key).tids.push(tid);
    nodeOf.set(tid, key);
  }
  // Those who are waited for may have ended.
  for (const tid of awaited.keys()) {
    if (!nodeOf.has(tid)) {
      nodes.set(tid, { key: tid, tids: [tid], task: null, edges: new Set() });
      nodeOf.set(tid, tid);
    }
  }
  for (const node of nodes.values()) {
    for (const tid of (node.task && node.task.awaits) || []) node.edges.add(nodeOf.get(tid));
  }
  const stuckFirst = (node) => (part.has(node.tids[0]) ? 0 : node.task && node.task.stuck ? 1 : 2);
  const chosen = [...nodes.values()].sort((one, other) => stuckFirst(one) - stuckFirst(other)).slice(0, NODES_MAX);
  return { nodes: new Map(chosen.map((node) => [node.key, node])), left: nodes.size - chosen.length, part };
}

/** Puts those who wait left of those for whom they wait. Returns the size of the picture. */
function layOut(nodes) {
  const layers = new Map();
  const depth = (key, path) => {
    const node = nodes.get(key);
    if (!node || path.has(key)) return -1;
    if (node.layer !== undefined) return node.layer;
    path.add(key);
    let most = -1;
    for (const edge of node.edges) most = Math.max(most, depth(edge, path));
    path.delete(key);
    node.layer = most + 1;
    return node.layer;
  };
  for (const key of nodes.keys()) depth(key, new Set());
  for (const node of nodes.values()) {
    if (!layers.has(node.layer)) layers.set(node.layer, []);
    layers.get(node.layer).push(node);
  }
  const last = Math.max(0, ...layers.keys());
  let height = 0;
  for (const [layer, members] of layers) {
    members.forEach((node, place) => {
      node.x = 20 + (last - layer) * (NODE.width + NODE.gapX);
      node.y = NODE.top + place * (NODE.height + NODE.gapY);
      height = Math.max(height, node.y + NODE.height + 16);
    });
  }
  return { width: 40 + last * (NODE.width + NODE.gapX) + NODE.width, height };
}

function edgePath(from, to) {
  const y1 = from.y + NODE.height / 2, y2 = to.y + NODE.height / 2;
  if (from === to) {
    const x = from.x + NODE.width;
    return `M${x},${y1 - 8} c34,-14 34,30 0,16`;
  }
  if (to.x > from.x) {
    const x1 = from.x + NODE.width, x2 = to.x, bend = Math.min(60, (x2 - x1) / 2);
    // Past the nodes between them: below the row.
    const dip = to.layer < from.layer - 1 && y1 === y2 ? NODE.height * 1.1 : 0;
    return `M${x1},${y1} C${x1 + bend},${y1 + dip} ${x2 - bend},${y2 + dip} ${x2},${y2}`;
  }
  if (to.x === from.x) {
    const x = from.x + NODE.width;
    return `M${x},${y1} C${x + 44},${y1} ${x + 44},${y2} ${x},${y2}`;
  }
  // Back: above the nodes.
  const x1 = from.x + NODE.width / 2, x2 = to.x + NODE.width / 2, above = Math.min(from.y, to.y) - 28;
  return `M${x1},${from.y} C${x1},${above} ${x2},${above} ${x2},${to.y}`;
}

class WaitsView {
  constructor() {
    this.title = "Waits";
    this.deadlocks = h("div", { class: "deadlocks", "aria-live": "polite" });
    this.picture = h("div", { class: "picture" });
    this.note = h("p", { class: "note" });
    this.table = new Table("waiting tasks", [
      { name: "Task", get: (row) => row.tid },
      { name: "Program", get: (row) => programOf(row) },
      { name: "Host", get: (row) => row.hostName },
      { name: "Waiting", get: (row) => row.for, show: (row) => asSpan(row.for), isNumber: true },
      { name: "Call, and why nothing comes", get: (row) => row.says },
    ], (row) => row.tid);
    this.element = h("section", {}, this.deadlocks, this.picture, this.note, this.table.element);
    this.shape = "";
  }

  show(record, machine) {
    const { state } = machine;
    const waiting = Object.entries(state.tasks).filter(([, task]) => task.wait).map(([tid, task]) => ({
      ...task, tid, hostName: hostName(state, task.host), for: Math.max(0, machine.at - task.wait.since),
    }));
    this.deadlocks.replaceChildren(...state.deadlocks.map((deadlock) => h("p", { class: "deadlock" }, deadlock.text)));
    const graph = graphOf(state);
    this.note.textContent = graph.left > 0 ? `${graph.left} more nodes are not drawn; the table has all tasks.` : "";
    // The picture moves only if it changes.
    const shape = JSON.stringify([...graph.nodes.values()].map((node) => [node.key, node.tids.length, [...node.edges], node.task && [node.task.state, node.task.stuck, node.task.wait && node.task.wait.call, node.task.wait && node.task.wait.tag]]));
    if (shape !== this.shape) {
      this.shape = shape;
      this.picture.replaceChildren(graph.nodes.size ? this.draw(graph) : empty(
        Object.keys(state.tasks).length ? "Nobody waits" : "No tasks",
        Object.keys(state.tasks).length ? "All tasks compute." : "Start a program with pvm run, or a task with spawn in the console: it appears here.",
      ));
    }
    this.table.element.hidden = waiting.length === 0;
    this.table.show(waiting);
  }

  draw(graph) {
    const size = layOut(graph.nodes);
    const marker = (id) => svg("marker", { id, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 10, markerHeight: 10, markerUnits: "userSpaceOnUse", orient: "auto" }, svg("path", { d: "M0,0 L8,4 L0,8 z" }));
    const edges = [], nodes = [];
    for (const node of graph.nodes.values()) {
      const isPart = graph.part.has(node.tids[0]);
      for (const key of node.edges) {
        const to = graph.nodes.get(key);
        if (!to) continue;
        const inCircle = isPart && graph.part.has(to.tids[0]);
        edges.push(svg("path", { d: edgePath(node, to), class: inCircle ? "edge stuck" : "edge", "marker-end": inCircle ? "url(#stuck-head)" : "url(#head)" }));
      }
      const { task, tids } = node;
      const kind = !task ? "gone" : isPart || task.stuck ? "stuck" : task.state;
      const title = tids.length === 1 ? tids[0] : `${tids.length} tasks`;
      const what = !task ? "has ended" : `${programOf(task)}: ${task.wait ? callOf(task.wait) : task.state}`;
      nodes.push(svg("g", { class: `node ${kind}`, transform: `translate(${node.x},${node.y})` },
        svg("title", {}, tids.slice(0, 40).join(" ") + (task && task.says ? `\n${task.says}` : "")),
        svg("rect", { width: NODE.width, height: NODE.height, rx: 6 }),
        svg("text", { x: 8, y: 16, class: "name" }, title + (isPart ? "  DEADLOCK" : "")),
        svg("text", { x: 8, y: 32 }, what.length > 25 ? `${what.slice(0, 24)}…` : what)));
    }
    return svg("svg", { viewBox: `0 0 ${size.width} ${size.height}`, width: size.width, height: size.height, role: "img", "aria-label": "Graph of the tasks that wait; the table below says the same" },
      svg("defs", {}, marker("head"), marker("stuck-head")), edges, nodes);
  }
}

function callOf(wait) {
  const tag = wait.tag === undefined ? "" : ` tag ${wait.tag}`;
  return `${wait.call}${wait.group ? ` ${wait.group}` : ""}${tag}`;
}

function hostName(state, tid) {
  return state.hosts[tid] ? state.hosts[tid].name : tid;
}
