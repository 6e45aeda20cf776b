"use strict";
// Elements, numbers and tables. Text from the machine is only ever set as text.

/** Makes an element; what is null is left out. */
function h(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

function fill(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

const units = (number, steps, base) => {
  let place = 0;
  while (number >= base * 0.9995 && place < steps.length - 1) {
    number /= base;
    place += 1;
  }
  const digits = number >= 99.95 || (place === 0 && Number.isInteger(number)) ? 0 : number >= 9.995 ? 1 : 2;
  return `${number.toFixed(digits)}${steps[place]}`;
};
const asCount = (number) => units(number, ["", " k", " M", " G"], 1000);
const asBytes = (number) => units(number, [" B", " KiB", " MiB", " GiB", " TiB"], 1024);
const asPercent = (share) => `${Math.round(share * 100)} %`;

/** Returns a time span of microseconds in few letters. */
function asSpan(time) {
  if (time < 1000) return `${Math.round(time)} µs`;
  if (time < 1e6) return `${(time / 1000).toFixed(time < 1e4 ? 2 : 1)} ms`;
  if (time < 120e6) return `${(time / 1e6).toFixed(time < 10e6 ? 1 : 0)} s`;
  if (time < 7200e6) return `${Math.floor(time / 60e6)} min`;
  return `${Math.floor(time / 3600e6)} h`;
}

const CLOCK = new Intl.DateTimeFormat([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });

/** Returns the time of day of a time of the timeline. */
function asClock(record, at) {
  return CLOCK.format((record.start + at) / 1000);
}

/** Says what there is to do where nothing is shown. */
function empty(title, advice) {
  return h("div", { class: "empty" }, h("strong", {}, title), h("p", {}, advice));
}

const ROWS_MAX = 500;

/**
 * A table that is sorted by a click on the head of a column.
 * columns: [{ name, get(row) for sorting, show(row) for the text or element, isNumber, first: -1 for the largest number first }]
 */
class Table {
  constructor(label, columns, key) {
    this.columns = columns;
    this.key = key;
    this.sort = { column: 0, way: 1 };
    this.rows = new Map();
    this.heads = columns.map((column, place) => {
      const button = h("button", { onclick: () => this.sortBy(place) }, column.name);
      return h("th", { scope: "col", class: column.isNumber ? "number" : null }, button);
    });
    this.body = h("tbody");
    this.note = h("p", { class: "note" });
    this.filter = h("input", { type: "search", placeholder: `filter ${label}`, "aria-label": `Filter ${label}`, oninput: () => this.show(this.data) });
    const table = h("table", { "aria-label": label }, h("thead", {}, h("tr", {}, this.heads)), this.body);
    this.element = h("div", { class: "table" }, h("div", { class: "filter" }, this.filter, this.note), h("div", { class: "scroll" }, table));
    this.data = [];
  }

  sortBy(column) {
    const way = this.sort.column === column ? -this.sort.way : this.columns[column].isNumber ? -1 : 1;
    this.sort = { column, way };
    this.show(this.data);
  }

  show(data) {
    this.data = data;
    const { column, way } = this.sort;
    this.heads.forEach((head, place) => head.setAttribute("aria-sort", place !== column ? "none" : way > 0 ? "ascending" : "descending"));
    const word = this.filter.value.toLowerCase();
    const text = (row) => this.columns.map((one) => String(one.get(row) ?? "")).join(" ").toLowerCase();
    const chosen = word ? data.filter((row) => text(row).includes(word)) : [...data];
    const get = this.columns[column].get;
    chosen.sort((one, other) => {
      const [a, b] = [get(one) ?? -Infinity, get(other) ?? -Infinity];
      return (a < b ? -1 : a > b ? 1 : 0) * way;
    });
    const shown = chosen.slice(0, ROWS_MAX);
    this.note.textContent = shown.length < data.length ? `${shown.length} of ${data.length}` : "";
    // Rows stay the same elements, so that a selection or the focus stays.
    const rows = shown.map((row) => {
      const key = this.key(row);
      let element = this.rows.get(key);
      if (!element) {
        element = h("tr", {}, this.columns.map((one) => h("td", { class: one.isNumber ? "number" : null })));
        this.rows.set(key, element);
      }
      element.className = row.stuck ? "stuck" : "";
      this.columns.forEach((one, place) => {
        const cell = element.children[place];
        const value = one.show ? one.show(row) : one.get(row);
        if (value instanceof Node) {
          // A button that is there stays, with the focus.
          if (cell.firstChild !== value) cell.replaceChildren(value);
        }
        else if (cell.textContent !== String(value ?? "")) cell.textContent = value ?? "";
      });
      return element;
    });
    const same = rows.length === this.body.children.length && rows.every((row, place) => this.body.children[place] === row);
    if (!same) this.body.replaceChildren(...rows);
    if (this.rows.size > 4 * ROWS_MAX) this.rows = new Map(shown.map((row) => [this.key(row), this.rows.get(this.key(row))]));
  }
}

/** Returns the word for what a task does, with a mark that needs no colour. */
function stateMark(task) {
  const word = task.stuck ? "STUCK" : task.state;
  return h("span", { class: `state ${task.stuck ? "stuck" : task.state}` }, word);
}
