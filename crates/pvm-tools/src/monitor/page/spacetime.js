"use strict";
// What each task has done when: a lane for each task, from hours down to microseconds.

const LANE = { left: 190, top: 26, arrowsMax: 2000 };

class SpaceTimeView {
  constructor() {
    this.title = "Space-time";
    this.canvas = h("canvas", { tabindex: 0, role: "img", "aria-label": "Lanes of the tasks over time. Arrow keys move, + and - zoom, 0 shows all" });
    this.hint = h("p", { class: "note" });
    this.told = h("p", { class: "told", role: "status" });
    const legend = [["computes", "computes"], ["waits", "waits (as high as its share of the time)"], ["stuck", "can never go on"], ["stopped", "stopped"], ["starts", "starts, or has left"], ["call", "in a call that does not wait"]];
    this.legend = h("ul", { class: "legend" }, legend.map(([kind, text]) => h("li", {}, h("span", { class: `swatch ${kind}` }), text)));
    this.lane = 16;
    this.scroll = 0;
    this.range = null;
    this.element = h("section", { class: "spacetime" }, this.legend, h("div", { class: "lanes" }, this.canvas), this.told, this.hint);
    this.listen();
  }

  listen() {
    const canvas = this.canvas;
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) this.move((event.deltaX || event.deltaY) / this.width);
      else if (event.ctrlKey || event.altKey || this.tracks.length * this.lane <= this.height) this.zoom(event.deltaY > 0 ? 1.25 : 0.8, event.offsetX);
      else this.scrollBy(event.deltaY);
    }, { passive: false });
    canvas.addEventListener("pointerdown", (event) => {
      this.drag = { x: event.offsetX, y: event.offsetY };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (this.drag) {
        this.move((this.drag.x - event.offsetX) / this.width);
        this.scrollBy(this.drag.y - event.offsetY);
        this.drag = { x: event.offsetX, y: event.offsetY };
      }
      this.tell(event.offsetX, event.offsetY);
    });
    canvas.addEventListener("pointerup", () => (this.drag = null));
    canvas.addEventListener("dblclick", () => this.showAll());
    canvas.addEventListener("keydown", (event) => {
      const keys = {
        ArrowLeft: () => this.move(-0.1), ArrowRight: () => this.move(0.1), ArrowUp: () => this.scrollBy(-this.lane * 3), ArrowDown: () => this.scrollBy(this.lane * 3),
        "+": () => this.zoom(0.7), "-": () => this.zoom(1.4), 0: () => this.showAll(),
      };
      if (keys[event.key]) {
        keys[event.key]();
        event.preventDefault();
        event.stopPropagation();
      }
    });
  }

  get width() {
    return Math.max(50, this.canvas.clientWidth - LANE.left);
  }

  get height() {
    return Math.max(50, this.canvas.clientHeight - LANE.top);
  }

  get whole() {
    const first = Math.min(this.record.first, ...this.tracks.slice(0, 1000).map((track) => track.begin ?? Infinity));
    return [first, Math.max(this.record.last, first + 1000)];
  }

  showAll() {
    this.range = null;
    this.draw();
  }

  move(part) {
    const [from, to] = this.range || this.whole;
    const step = (to - from) * part;
    this.range = [from + step, to + step];
    this.draw();
  }

  zoom(factor, x = LANE.left + this.width / 2) {
    const [from, to] = this.range || this.whole;
    const fixed = from + ((to - from) * Math.max(0, x - LANE.left)) / this.width;
    const length = Math.min(Math.max((to - from) * factor, 10), 30 * 86400e6);
    const part = (fixed - from) / (to - from);
    this.range = [fixed - length * part, fixed + length * (1 - part)];
    this.draw();
  }

  scrollBy(pixels) {
    const most = Math.max(0, this.tracks.length * this.lane - this.height);
    this.scroll = Math.min(most, Math.max(0, this.scroll + pixels));
    this.draw();
  }

  show(record, machine, time) {
    this.record = record;
    this.time = time;
    const order = (track) => parseInt(track.tid.slice(1), 16);
    if (this.count !== record.tracks.size) {
      this.tracks = [...record.tracks.values()].sort((one, other) => order(one) - order(other));
      this.count = record.tracks.size;
    }
    this.tracks = this.tracks || [];
    this.hint.textContent = record.calls
      ? `${record.calls} calls and ${record.arrows.begin.length} messages. Wheel: zoom; drag: move; double click: all.`
      : "States are looked at from time to time; in between, a lane shows for which part of the time its task has waited. Calls and messages: record with pvm run --trace FILE.";
    this.draw();
  }

  draw() {
    const { canvas } = this;
    if (!this.record || !canvas.clientWidth) return;
    const ratio = window.devicePixelRatio || 1;
    if (canvas.width !== Math.round(canvas.clientWidth * ratio) || canvas.height !== Math.round(canvas.clientHeight * ratio)) {
      canvas.width = Math.round(canvas.clientWidth * ratio);
      canvas.height = Math.round(canvas.clientHeight * ratio);
    }
    const c = canvas.getContext("2d");
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(`--${name}`).trim();
    const colours = { text: colour("text"), faint: colour("line"), computes: colour("computes"), waits: colour("waits"), codes: [colour("computes"), colour("waits"), colour("starts"), colour("stopped"), colour("stuck")], call: colour("call"), onWaits: colour("on-waits"), arrow: colour("arrow") };
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    c.clearRect(0, 0, canvas.clientWidth, canvas.clientHeight);
    c.font = "12px system-ui, sans-serif";
    c.textBaseline = "middle";
    // Few tasks get high lanes, many low ones.
    this.lane = Math.min(34, Math.max(14, Math.floor(this.height / Math.max(1, this.tracks.length))));
    const [from, to] = this.range || this.whole;
    const scale = this.width / (to - from);
    const x = (time) => LANE.left + (time - from) * scale;
    this.drawAxis(c, from, to, x, colours);
    if (!this.tracks.length) {
      c.fillStyle = colours.text;
      c.fillText("No tasks yet: start a program with pvm run.", LANE.left + 12, LANE.top + 24);
    }
    const first = Math.floor(this.scroll / this.lane);
    const last = Math.min(this.tracks.length, Math.ceil((this.scroll + this.height) / this.lane));
    const rows = new Map();
    c.save();
    c.beginPath();
    c.rect(0, LANE.top, canvas.clientWidth, this.height);
    c.clip();
    for (let row = first; row < last; row++) {
      const track = this.tracks[row];
      const y = LANE.top + row * this.lane - this.scroll;
      rows.set(track.tid, y + this.lane / 2);
      c.fillStyle = colours.text;
      c.fillText(`${track.tid} ${programOf(track)}`.slice(0, 26), 6, y + this.lane / 2);
      c.save();
      c.beginPath();
      c.rect(LANE.left, y, this.width, this.lane);
      c.clip();
      // Calls say it exactly.
      if (track.calls.begin.length) this.drawCalls(c, track, from, to, x, y + 2, this.lane - 4, colours);
      else this.drawSpans(c, track.looks, from, to, x, y + 2, this.lane - 4, colours);
      c.restore();
    }
    c.beginPath();
    c.rect(LANE.left, LANE.top, this.width, this.height);
    c.clip();
    this.drawArrows(c, from, to, x, rows, colours);
    if (this.time !== null && this.time >= from && this.time <= to) {
      c.strokeStyle = colours.text;
      c.strokeRect(x(this.time), LANE.top, 0.5, this.height);
    }
    c.restore();
  }

  drawAxis(c, from, to, x, colours) {
    const rough = (to - from) / Math.max(2, this.width / 110);
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((factor) => factor * power).find((one) => one >= rough);
    c.fillStyle = colours.text;
    c.strokeStyle = colours.faint;
    for (let tick = Math.ceil(from / step) * step; tick <= to; tick += step) {
      c.strokeRect(x(tick), LANE.top, 0.5, this.height);
      const label = step >= 1e6 ? `${Math.round(tick / 1e6)} s` : step >= 1000 ? `${(tick / 1e6).toFixed(step >= 1e5 ? 1 : step >= 1e4 ? 2 : 3)} s` : `${Math.round(tick)} µs`;
      c.fillText(label, x(tick) + 3, LANE.top / 2);
    }
  }

  drawSpans(c, spans, from, to, x, y, height, colours) {
    const some = spans.level(from, to, this.width * 2);
    for (let at = some.indexAt(from); at < some.begin.length && some.begin[at] < to; at++) {
      const left = x(some.begin[at]), width = Math.max(0.75, x(some.end[at]) - left);
      const code = some.code[at];
      c.fillStyle = colours.codes[code];
      c.fillRect(left, y, width, height);
      if (code === CODES.computes && some.share[at] > 0) {
        c.fillStyle = colours.waits;
        c.fillRect(left, y + height * (1 - some.share[at]), width, height * some.share[at]);
      }
    }
  }

  drawCalls(c, track, from, to, x, y, height, colours) {
    const some = track.calls.level(from, to, this.width * 2);
    const names = some === track.calls ? track.names : null;
    const begin = x(Math.max(from, track.begin));
    c.fillStyle = colours.computes;
    c.fillRect(begin, y, Math.max(0.75, x(Math.min(to, track.last)) - begin), height);
    for (let at = some.indexAt(from); at < some.begin.length && some.begin[at] < to; at++) {
      const left = x(some.begin[at]), right = x(some.end[at]);
      c.fillStyle = some.code[at] ? colours.waits : colours.call;
      // A coarser span is not all calls.
      const part = some === track.calls ? 1 : some.share[at];
      c.fillRect(left, y + height * (1 - part), Math.max(0.75, right - left), height * part);
      const seen = Math.max(left, LANE.left);
      if (names && right - seen > 70) {
        c.fillStyle = some.code[at] ? colours.onWaits : colours.text;
        c.fillText(names[at], seen + 4, y + height / 2);
      }
    }
  }

  drawArrows(c, from, to, x, rows, colours) {
    const { arrows } = this.record;
    const visible = [];
    for (let at = 0; at < arrows.begin.length; at++) {
      if (arrows.end[at] < from || arrows.begin[at] > to) continue;
      if (rows.has(arrows.from[at]) && rows.has(arrows.to[at])) visible.push(at);
    }
    const step = Math.ceil(visible.length / LANE.arrowsMax);
    this.hidden = step > 1 ? visible.length - Math.ceil(visible.length / step) : 0;
    c.strokeStyle = colours.arrow;
    c.fillStyle = colours.arrow;
    c.beginPath();
    for (let one = 0; one < visible.length; one += step) {
      const at = visible[one];
      const [x1, y1, x2, y2] = [x(arrows.begin[at]), rows.get(arrows.from[at]), x(arrows.end[at]), rows.get(arrows.to[at])];
      c.moveTo(x1, y1);
      c.lineTo(x2, y2);
      const angle = Math.atan2(y2 - y1, x2 - x1);
      c.moveTo(x2, y2);
      c.lineTo(x2 - 6 * Math.cos(angle - 0.4), y2 - 6 * Math.sin(angle - 0.4));
      c.moveTo(x2, y2);
      c.lineTo(x2 - 6 * Math.cos(angle + 0.4), y2 - 6 * Math.sin(angle + 0.4));
    }
    c.stroke();
    if (this.hidden) this.told.textContent = `${this.hidden} of ${visible.length} messages are not drawn: zoom in.`;
  }

  /** Says what is under the pointer. */
  tell(x, y) {
    const track = this.tracks && this.tracks[Math.floor((y - LANE.top + this.scroll) / this.lane)];
    if (!track || x < LANE.left || y < LANE.top) return;
    const [from, to] = this.range || this.whole;
    const time = from + ((x - LANE.left) * (to - from)) / this.width;
    const call = track.calls.indexAt(time);
    const look = track.looks.indexAt(time);
    const parts = [`${track.tid} ${programOf(track)}`, `${(time / 1e6).toFixed(6)} s`];
    if (call < track.calls.begin.length && track.calls.begin[call] <= time) parts.push(`${track.names[call]} for ${asSpan(track.calls.end[call] - track.calls.begin[call])}`);
    if (look < track.looks.begin.length && track.looks.begin[look] <= time) {
      const word = Object.keys(CODES).find((name) => CODES[name] === track.looks.code[look]);
      parts.push(track.looks.code[look] === CODES.computes ? `waits for ${asPercent(track.looks.share[look])} of the time` : word);
    }
    this.told.textContent = parts.join(", ");
  }
}
