// The watermark picture: event time against arrival, a dot for each event by its outcome, watermarks as step lines.
import { element } from "./_common.js";

const SVG = "http://www.w3.org/2000/svg";
const MARGIN = { left: 62, right: 10, top: 8, bottom: 26 };
const HEIGHT = 380;

function node(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text != null) made.textContent = text;
  return made;
}

const clock = (milliseconds, span) => {
  const text = new Date(milliseconds).toISOString();
  return span > 172_800_000 ? text.slice(5, 16).replace("T", " ") : span > 600_000 ? text.slice(11, 16) : span > 5000 ? text.slice(11, 19) : text.slice(11, 23);
};

function ticks(least, most, count) {
  const steps = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 15000, 30000, 60000, 120000, 300000, 600000, 900000, 1800000, 3600000, 7200000, 14400000, 21600000, 43200000, 86400000, 172800000, 604800000];
  const step = steps.find((one) => (most - least) / one <= count) ?? steps.at(-1);
  const found = [];
  for (let at = Math.ceil(least / step) * step; at <= most; at += step) found.push(at);
  return found;
}

export class Picture {
  constructor(place, { onChoose, onZoom }) {
    Object.assign(this, { place, onChoose, onZoom, zoom: null });
    new ResizeObserver(() => this.data && this.draw()).observe(place);
  }

  show(data, keepZoom = false) {
    this.data = data;
    if (!keepZoom) this.zoom = null;
    this.draw();
  }

  bounds(dots) {
    if (this.zoom) return this.zoom;
    const arrivals = dots.map((dot) => dot[2]);
    const times = dots.flatMap((dot) => [dot[3], dot[5]]).filter((time) => time != null).sort((a, b) => a - b);
    // One event with a time of 1970 must not flatten all the others.
    const [low, high] = [times[Math.floor(times.length * 0.005)], times[Math.ceil((times.length - 1) * 0.995)]];
    const pad = (a, b) => Math.max(1, (b - a) * 0.04);
    const [first, last] = [Math.min(...arrivals), Math.max(...arrivals)];
    return { x: [first - pad(first, last), last + pad(first, last)], y: [low - pad(low, high), high + pad(low, high)] };
  }

  draw() {
    const { dots } = this.data;
    if (!dots.length) {
      this.place.replaceChildren(element("p", { class: "empty" }, "No event arrived in this stretch."));
      return;
    }
    const width = Math.max(280, this.place.clientWidth);
    const { x, y } = this.bounds(dots);
    const toX = (value) => MARGIN.left + ((value - x[0]) / (x[1] - x[0])) * (width - MARGIN.left - MARGIN.right);
    const toY = (value) => HEIGHT - MARGIN.bottom - ((value - y[0]) / (y[1] - y[0])) * (HEIGHT - MARGIN.top - MARGIN.bottom);
    const svg = node("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT, role: "img", "aria-label": this.summary(dots) });
    const clip = node("clipPath", { id: "plot" });
    clip.append(node("rect", { x: MARGIN.left, y: MARGIN.top, width: width - MARGIN.left - MARGIN.right, height: HEIGHT - MARGIN.top - MARGIN.bottom }));
    svg.append(clip);
    for (const at of ticks(...x, Math.max(2, width / 110))) svg.append(node("line", { class: "grid", x1: toX(at), x2: toX(at), y1: MARGIN.top, y2: HEIGHT - MARGIN.bottom }), node("text", { x: toX(at), y: HEIGHT - 8, "text-anchor": "middle" }, clock(at, x[1] - x[0])));
    for (const at of ticks(...y, 7)) svg.append(node("line", { class: "grid", x1: MARGIN.left, x2: width - MARGIN.right, y1: toY(at), y2: toY(at) }), node("text", { x: MARGIN.left - 5, y: toY(at) + 4, "text-anchor": "end" }, clock(at, y[1] - y[0])));
    const plot = node("g", { "clip-path": "url(#plot)" });
    const lines = new Map();
    for (const [timeline, , arrival, , , watermark] of dots) {
      if (watermark == null) continue;
      const before = lines.get(timeline);
      lines.set(timeline, before ? `${before}H${toX(arrival).toFixed(1)}V${toY(watermark).toFixed(1)}` : `M${toX(arrival).toFixed(1)} ${toY(watermark).toFixed(1)}`);
    }
    [...lines.values()].forEach((path, at) => plot.append(node("path", { d: path, class: `watermark w${at % 4}` })));
    for (const [at, dot] of dots.entries()) {
      if (dot[3] == null || dot[2] < x[0] || dot[2] > x[1]) continue;
      plot.append(node("circle", { cx: toX(dot[2]).toFixed(1), cy: toY(dot[3]).toFixed(1), r: dot[4] === "on time" ? 2.2 : 3.6, class: dot[4].replace(" ", "-"), "data-at": at }));
    }
    svg.append(plot);
    this.place.replaceChildren(svg, this.legend());
    this.listen(svg, { x, y, width });
  }

  legend() {
    const entry = (name, text) => element("span", {}, element("i", { class: name }), text);
    return element("p", { class: "legend note" }, entry("on-time", "on time"), entry("adjusted", "adjusted"), entry("dropped", "dropped"), entry("line", "watermark"));
  }

  summary(dots) {
    const count = (outcome) => dots.filter((dot) => dot[4] === outcome).length;
    return `Event time against arrival: ${count("on time")} events on time, ${count("adjusted")} adjusted, ${count("dropped")} dropped.`;
  }

  listen(svg, { x, y, width }) {
    const value = (event) => {
      const box = svg.getBoundingClientRect();
      const part = (pixel, from, to) => Math.min(1, Math.max(0, (pixel - from) / (to - from)));
      const px = (event.clientX - box.left) * (width / box.width);
      const py = (event.clientY - box.top) * (HEIGHT / box.height);
      return [x[0] + part(px, MARGIN.left, width - MARGIN.right) * (x[1] - x[0]), y[1] - part(py, MARGIN.top, HEIGHT - MARGIN.bottom) * (y[1] - y[0]), px, py];
    };
    let from = null;
    const box = node("rect", { class: "selection", visibility: "hidden" });
    svg.append(box);
    svg.addEventListener("pointerdown", (event) => { from = value(event); svg.setPointerCapture(event.pointerId); });
    svg.addEventListener("pointermove", (event) => {
      if (!from) return;
      const to = value(event);
      for (const [name, number] of [["x", Math.min(from[2], to[2])], ["y", Math.min(from[3], to[3])], ["width", Math.abs(from[2] - to[2])], ["height", Math.abs(from[3] - to[3])]]) box.setAttribute(name, number);
      box.setAttribute("visibility", "visible");
    });
    svg.addEventListener("pointerup", (event) => {
      if (!from) return;
      const to = value(event);
      const isDrag = Math.abs(from[2] - to[2]) > 6 && Math.abs(from[3] - to[3]) > 6;
      if (isDrag) {
        this.zoom = { x: [from[0], to[0]].sort((a, b) => a - b), y: [from[1], to[1]].sort((a, b) => a - b) };
        this.draw();
        this.onZoom(this.zoom);
      } else {
        const hit = document.elementsFromPoint(event.clientX, event.clientY).find((one) => one.dataset?.at);
        if (hit) this.onChoose(this.data.dots[Number(hit.dataset.at)]);
      }
      from = null;
      box.setAttribute("visibility", "hidden");
    });
  }
}
