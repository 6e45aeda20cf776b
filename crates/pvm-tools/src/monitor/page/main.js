"use strict";
// The page: its views, the time that it shows, and where the events come from.

const page = {
  record: new Record(),
  views: [new WaitsView(), new SpaceTimeView(), new TasksView(), new HostsView(), new TrafficView(), new OutputView(), new GroupsView(), new UtilizationView(), new LogView()],
  chosen: 0,
  /** The time that is shown; null for the newest. */
  time: null,
  /** Where the events come from: "live", "loading", "lost", "ended", "recorded". */
  source: "loading",
  reason: "",
  isDue: false,
  /** Whether the page may end tasks (pvm monitor --control). */
  mayEnd: false,
};

const element = (id) => document.getElementById(id);

function render() {
  page.isDue = false;
  const { record, time } = page;
  if (page.source === "loading" && record.looks.length) return;
  const machine = time === null ? record.machine : record.machineAt(time);
  const { hosts, tasks, deadlocks } = machine.state;
  const count = (number, word) => `${number} ${word}${number === 1 ? "" : "s"}`;
  const words = {
    live: "live", loading: "connecting", lost: "connection lost, trying again", recorded: "recorded run",
    ended: page.reason || "the machine has ended", closed: page.reason,
  };
  const status = element("status");
  const said = [words[page.source]];
  if (time !== null && page.source !== "closed") said[0] += ", rewound";
  if (record.isCut) said.push(`known since ${asClock(record, record.first)}`);
  if (record.looks.length) said.push(count(Object.keys(hosts).length, "host"), count(Object.keys(tasks).length, "task"));
  if (deadlocks.length) said.push(count(deadlocks.length, "deadlock"));
  status.replaceChildren(...said.filter(Boolean).flatMap((text, place) => [place ? " · " : "", text.includes("deadlock") ? h("strong", { class: "deadlock" }, text) : text]));
  status.className = page.source;
  page.views[page.chosen].show(record, machine, time);
  const slider = element("time");
  const [first, last] = [record.first, record.last];
  slider.min = first;
  slider.max = Math.max(last, first + 1);
  slider.step = Math.max(1, Math.round((last - first) / 1000));
  if (time === null) slider.value = slider.max;
  element("clock").textContent = record.looks.length ? `${asClock(record, machine.at ?? first)} (${asSpan((machine.at ?? first) - first)})` : "";
  element("live").setAttribute("aria-pressed", time === null);
  document.title = deadlocks.length ? "DEADLOCK - hpvm" : "hpvm";
}

function renderSoon() {
  if (page.isDue) return;
  page.isDue = true;
  requestAnimationFrame(render);
}

function choose(place) {
  page.chosen = place;
  const view = page.views[place];
  element("views").childNodes.forEach((button, other) => button.setAttribute("aria-current", other === place ? "page" : "false"));
  element("main").replaceChildren(view.element);
  history.replaceState(null, "", `#${view.title.toLowerCase()}`);
  if (view.forget) view.forget();
  renderSoon();
}

function setTime(time) {
  page.time = time;
  renderSoon();
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  page.views.forEach((view) => view.forget && view.forget());
  renderSoon();
}

/** How many letters of events a page keeps; the server keeps 64 MiB. */
const RECEIVED_MAX = 128 << 20;

/** Takes events from the server. */
function connect() {
  const events = new EventSource("events");
  let received = 0;
  fetch("control").then(async (answer) => (page.mayEnd = (await answer.text()) === "yes"), () => (page.mayEnd = false));
  events.addEventListener("anew", (event) => {
    page.record.reset();
    page.source = "loading";
    received = 0;
  });
  events.addEventListener("message", (event) => {
    page.record.add(JSON.parse(event.data));
    received += event.data.length;
    // What the server has forgotten, the page need not keep: it begins anew.
    if (page.source === "live" && received > RECEIVED_MAX) {
      events.close();
      connect();
    }
    if (page.source === "lost") page.source = "live";
    if (page.source === "live") renderSoon();
  });
  events.addEventListener("live", () => {
    page.source = "live";
    renderSoon();
  });
  events.addEventListener("end", (event) => {
    events.close();
    page.source = event.data ? "ended" : "recorded";
    page.reason = event.data;
    renderSoon();
  });
  events.addEventListener("open", () => {
    if (page.source === "lost") page.source = "live";
    renderSoon();
  });
  events.addEventListener("error", () => {
    const isOver = events.readyState === EventSource.CLOSED;
    page.source = isOver ? "closed" : "lost";
    page.reason = isOver ? "pvm monitor does not let this page in: open the link that it has printed last, or close other pages" : "";
    renderSoon();
    // Other pages may be closed, or the monitor may come back.
    if (isOver) setTimeout(connect, 5000);
  });
}

/** Takes the events that this file holds. */
function load(text) {
  for (const line of text.split("\n")) {
    if (line.startsWith("{")) page.record.add(JSON.parse(line));
  }
  page.source = "recorded";
  element("save").hidden = true;
}

function listen() {
  element("views").append(...page.views.map((view, place) => h("button", { title: `${view.title} (${place + 1})`, onclick: () => choose(place) }, view.title)));
  element("live").addEventListener("click", () => setTime(null));
  element("time").addEventListener("input", (event) => setTime(Number(event.target.value) >= Number(event.target.max) ? null : Number(event.target.value)));
  const isDark = () => (document.documentElement.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const toggle = () => setTheme(isDark() ? "light" : "dark");
  element("theme").addEventListener("click", toggle);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => setTheme(document.documentElement.dataset.theme || ""));
  addEventListener("resize", renderSoon);
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.tagName === "INPUT") return;
    const place = Number(event.key) - 1;
    if (page.views[place]) choose(place);
    else if (event.key === "d") toggle();
    else if (event.key === "l") setTime(null);
    else if (event.key === "s" && !element("save").hidden) element("save").click();
  });
}

listen();
const embedded = element("record");
if (embedded) load(embedded.textContent);
else connect();
const named = page.views.findIndex((view) => `#${view.title.toLowerCase()}` === location.hash);
choose(Math.max(0, named));
