// The watermark picture: event time against arrival, a dot for each event by its outcome, watermarks as step lines.
import { element, inZone, zone } from "./_common.js";

const SVG = "http://www.w3.org/2000/svg";
const MARGIN = { right: 10, top: 8, bottom: 42 };
const HEIGHT = 396;
const TITLE = 20;
const DIGIT = 6.4;

// The rule that touched an event is its shape, what became of it whether it is filled: neither is told by colour alone.
const SHAPES = {
  late: "M0-4.6 4.4 3.4-4.4 3.4Z",
  "out of order": "M0-4.8 4.8 0 0 4.8-4.8 0Z",
  early: "M-3.7-3.7H3.7V3.7H-3.7Z",
  unreadable: "M-3.6-3.6 3.6 3.6M-3.6 3.6 3.6-3.6",
};
const shape = (dot) => SHAPES[dot[6]] ?? SHAPES.late;

function node(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text != null) made.textContent = text;
  return made;
}

const clock = (milliseconds, span) => {
  const text = inZone(new Date(milliseconds), zone() === "local", true);
  return span > 172_800_000 ? text.slice(5, 16) : span > 600_000 ? text.slice(11, 16) : span > 5000 ? text.slice(11, 19) : text.slice(11, 23);
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
    document.addEventListener("zone", () => this.data && this.draw());
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
    const labels = ticks(...y, 7).map((at) => [at, clock(at, y[1] - y[0])]);
    const left = TITLE + 10 + DIGIT * Math.max(5, ...labels.map(([, text]) => text.length));
    const toX = (value) => left + ((value - x[0]) / (x[1] - x[0])) * (width - left - MARGIN.right);
    const toY = (value) => HEIGHT - MARGIN.bottom - ((value - y[0]) / (y[1] - y[0])) * (HEIGHT - MARGIN.top - MARGIN.bottom);
    const svg = node("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT, role: "img", "aria-label": this.summary(dots) });
    const clip = node("clipPath", { id: "plot" });
    clip.append(node("rect", { x: left, y: MARGIN.top, width: width - left - MARGIN.right, height: HEIGHT - MARGIN.top - MARGIN.bottom }));
    svg.append(clip);
    for (const at of ticks(...x, Math.max(2, width / 110))) svg.append(node("line", { class: "grid", x1: toX(at), x2: toX(at), y1: MARGIN.top, y2: HEIGHT - MARGIN.bottom }), node("text", { x: Math.min(toX(at), width - 36), y: HEIGHT - 24, "text-anchor": "middle" }, clock(at, x[1] - x[0])));
    for (const [at, text] of labels) svg.append(node("line", { class: "grid", x1: left, x2: width - MARGIN.right, y1: toY(at), y2: toY(at) }), node("text", { x: left - 6, y: toY(at) + 4, "text-anchor": "end" }, text));
    const middle = MARGIN.top + (HEIGHT - MARGIN.top - MARGIN.bottom) / 2;
    svg.append(node("text", { x: left + (width - left) / 2, y: HEIGHT - 6, "text-anchor": "middle", class: "title" }, `Arrival, ${zone() === "local" ? "local time" : "UTC"}`));
    svg.append(node("text", { x: 12, y: middle, "text-anchor": "middle", class: "title", transform: `rotate(-90 12 ${middle})` }, "Event time"));
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
      const [across, up] = [toX(dot[2]).toFixed(1), toY(dot[3]).toFixed(1)];
      plot.append(dot[4] === "on time" ? node("circle", { cx: across, cy: up, r: 2.2, "data-at": at }) : node("path", { d: shape(dot), transform: `translate(${across} ${up})`, class: `touched ${dot[4]}`, "data-at": at }));
    }
    svg.append(plot);
    this.place.replaceChildren(svg, this.legend(dots));
    this.listen(svg, { x, y, width, left });
  }

  legend(dots) {
    const icon = (...drawn) => {
      const svg = node("svg", { viewBox: "-7 -7 14 14", width: 16, height: 16, "aria-hidden": "true" });
      svg.append(...drawn);
      return svg;
    };
    const entries = [element("span", {}, icon(node("circle", { r: 2.6 })), "on time")];
    for (const fate of ["adjusted", "dropped"]) {
      for (const rule of Object.keys(SHAPES)) {
        const count = dots.filter((dot) => dot[4] === fate && dot[6] === rule).length;
        if (count) entries.push(element("span", {}, icon(node("path", { d: SHAPES[rule], class: `touched ${fate}` })), `${rule}, ${fate} (${count})`));
      }
    }
    entries.push(element("span", {}, element("i", { class: "line" }), "watermark"));
    return element("p", { class: "legend note" }, ...entries);
  }

  summary(dots) {
    const count = (outcome) => dots.filter((dot) => dot[4] === outcome).length;
    return `Event time against arrival: ${count("on time")} events on time, ${count("adjusted")} adjusted, ${count("dropped")} dropped.`;
  }

  listen(svg, { x, y, width, left }) {
    const value = (event) => {
      const box = svg.getBoundingClientRect();
      const part = (pixel, from, to) => Math.min(1, Math.max(0, (pixel - from) / (to - from)));
      const px = (event.clientX - box.left) * (width / box.width);
      const py = (event.clientY - box.top) * (HEIGHT / box.height);
      return [x[0] + part(px, left, width - MARGIN.right) * (x[1] - x[0]), y[1] - part(py, MARGIN.top, HEIGHT - MARGIN.bottom) * (y[1] - y[0]), px, py];
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
