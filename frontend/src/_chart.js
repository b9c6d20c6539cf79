// A chart of series over time: uPlot in the page's colours, with a description and a table for those who do not see it.
// All charts of a page share a crosshair and a time range: dragging over one zooms all of them, a double click undoes it.
import uPlot from "uplot";
import { element, inZone, zone } from "./_common.js";

const COLOURS = ["--s1", "--s2", "--s3", "--s4", "--s5"];
// Series differ by their dashes as well as by their colours.
const DASHES = [undefined, [6, 3], [2, 3], [8, 3, 2, 3], [1, 4]];
const CROSSHAIR = "page";
/** What a mark means, and how its line looks: the legend of a page's charts. */
export const MARKS = {
  "started again": { colour: "--warn", dash: [2, 2], meaning: "the job's process began again" },
  "new version": { colour: "--s3", dash: [7, 3], meaning: "results from here on are those of another query or event-ordering policy" },
};
const style = () => getComputedStyle(document.documentElement);
const DESCRIBED_EVERY_MS = 10_000;
// Above so many samples a step a sample cannot be seen, and lines that are drawn a pixel at a time cost far less.
const MOST_STEPS = 900;
const LINE_HEIGHT = 15;
// How far apart the labels of the time axis may be: nothing happens more often than every second.
const STEPS_S = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800];
const stepped = uPlot.paths.stepped({ align: 1 });
const linear = uPlot.paths.linear();
const compact = new Intl.NumberFormat("en-US", { notation: "compact", maximumFractionDigits: 2 });
export const plain = (value) => (value == null ? "–" : value !== 0 && Math.abs(value) < 0.01 ? value.toExponential(1) : compact.format(value));
export const withUnit = (value, unit) => (value == null ? "–" : unit ? `${plain(value)} ${unit}` : plain(value));
export const moment = (seconds) => inZone(new Date(seconds * 1000));
const zoneName = () => (zone() === "local" ? "Local time" : "UTC");
const lastKnown = (values) => values.findLast((value) => value != null) ?? null;

/** Return a moment as the axis says it: the day where steps are days, seconds where steps are shorter than a minute. */
function clock(seconds, step) {
  const text = inZone(new Date(seconds * 1000));
  if (step >= 86400) return text.slice(5, 10);
  return step < 60 ? text.slice(11, 19) : text.slice(11, 16);
}

export const AXIS_FONT = "12px system-ui, sans-serif";
const ruler = document.createElement("canvas").getContext("2d");
/** Return how wide an axis has to be, so that no label is clipped. */
export function labelWidth(_, labels) {
  ruler.font = AXIS_FONT;
  return Math.ceil(Math.max(40, ...(labels ?? []).map((label) => 20 + ruler.measureText(label).width)));
}

/** Return which part of a time range a chart shows: the samples from `first` to before `stop`. */
function within(times, range) {
  if (!range) return [0, times.length];
  const first = times.findIndex((at) => at >= range[0]);
  const after = times.findLastIndex((at) => at <= range[1]);
  return first < 0 || after < first ? [0, 0] : [Math.max(0, first - 1), Math.min(times.length, after + 2)];
}

/**
 * Return the columns with at most four samples for each pixel: the first, the lowest, the highest and the last that any
 * series has there, so that no peak is lost. The samples that are kept have their own times.
 */
export function thinned([times, ...columns], range, pixels) {
  const [first, stop] = within(times, range);
  if (stop - first <= 4 * pixels) return [times, ...columns].map((values) => values.slice(first, stop));
  const kept = new Set();
  const width = (stop - first) / pixels;
  for (let pixel = 0; pixel < pixels; pixel++) {
    const [from, to] = [first + Math.floor(pixel * width), first + Math.floor((pixel + 1) * width)];
    kept.add(from).add(to - 1);
    for (const values of columns) {
      let [low, high] = [-1, -1];
      for (let at = from; at < to; at++) {
        if (values[at] == null) continue;
        if (low < 0 || values[at] < values[low]) low = at;
        if (high < 0 || values[at] > values[high]) high = at;
      }
      if (low >= 0) kept.add(low).add(high);
    }
  }
  const rows = [...kept].sort((one, other) => one - other);
  return [times, ...columns].map((values) => rows.map((row) => values[row]));
}

/** The time range that all charts of the page show, null for all there is. */
export const range = new (class extends EventTarget {
  now = null;

  set(now) {
    this.now = now;
    this.dispatchEvent(new Event("change"));
  }
})();

/** Return the legend of marks as nodes. */
export function marksLegend(marks) {
  const kinds = Object.keys(MARKS).filter((kind) => marks.some(({ what }) => what === kind));
  return kinds.map((kind, at) => element("span", {}, element("i", { class: `mark m${Object.keys(MARKS).indexOf(kind)}` }), `${kind}: ${MARKS[kind].meaning}${at < kinds.length - 1 ? " " : ""}`));
}

/** Write over the lines of a chart such that they do not cross the letters. */
function label(ctx, text, x, y, css) {
  ctx.save();
  ctx.setLineDash([]);
  ctx.lineJoin = "round";
  ctx.lineWidth = 4 * devicePixelRatio;
  ctx.strokeStyle = css.getPropertyValue("--panel").trim();
  ctx.strokeText(text, x, y);
  ctx.restore();
  ctx.fillText(text, x, y);
}

export class TimeChart {
  /**
   * Args: `names` of the series; their `unit`; `threshold`, a value and what it is, drawn as a line.
   */
  constructor(figure, { names, unit = "", height = 190, threshold = null }) {
    Object.assign(this, { figure, names, unit, height, threshold, data: null, marks: [], plot: null });
    this.isVisible = true;
    this.labelsMarks = true;
    this.isBehind = false;
    this.describedAt = -Infinity;
    this.place = element("div", { role: "img", class: "plot" });
    this.table = element("div", { tabindex: "0", role: "group", "aria-label": "The chart's values" });
    this.details = element("details", {}, element("summary", {}, "As a table"), this.table);
    this.details.addEventListener("toggle", () => this.describe(true));
    figure.append(this.place, this.details);
    if (threshold) this.place.after(element("p", { class: "legend note" }, element("span", {}, element("i", { class: "mark threshold" }), `${threshold.name}, ${withUnit(threshold.value, unit)}`)));
    new ResizeObserver(() => this.plot && this.resize()).observe(this.place);
    new IntersectionObserver(([entry]) => {
      this.isVisible = entry.isIntersecting;
      if (this.isVisible && this.isBehind) this.draw();
    }).observe(figure);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.rebuild());
    range.addEventListener("change", () => this.data && this.draw());
    document.addEventListener("zone", () => this.rebuild());
  }

  size() {
    return { width: Math.max(200, this.place.clientWidth), height: this.height };
  }

  resize() {
    this.plot.setSize(this.size());
    this.draw();
  }

  rebuild() {
    this.plot?.destroy();
    this.plot = null;
    if (this.data) this.draw();
  }

  /** Show columns: Unix seconds, then the values of each series. `marks` are moments with what happened then. */
  show(data, marks = this.marks) {
    this.data = data;
    this.marks = marks;
    this.draw();
  }

  draw() {
    this.isBehind = this.plot != null && !this.isVisible;
    if (this.isBehind) return;
    const shown = thinned(this.data, range.now, this.size().width);
    if (!this.plot) this.plot = new uPlot(this.options(), shown, this.place);
    else this.plot.setData(shown);
    this.describe();
  }

  options() {
    const css = style();
    const text = css.getPropertyValue("--faint").trim();
    const grid = { stroke: css.getPropertyValue("--line").trim(), width: 1 };
    const series = this.names.map((name, at) => {
      const colour = css.getPropertyValue(COLOURS[at % COLOURS.length]).trim();
      return {
        label: name, stroke: colour, dash: DASHES[at % DASHES.length], fill: at === 0 && this.names.length < 3 ? `${colour}22` : undefined, width: 1.6,
        points: { show: false },
        // Without a pointer over the chart, the legend has the latest values.
        value: (plot, value, number, row) => withUnit(row == null ? lastKnown(plot.data[number]) : value, this.unit),
        paths: (plot, ...more) => (plot.data[0].length > MOST_STEPS ? linear : stepped)(plot, ...more),
      };
    });
    const time = (plot, seconds, _, row) => moment(row == null ? (plot.data[0].at(-1) ?? 0) : seconds);
    return {
      ...this.size(),
      padding: [12, 30, 0, 0],
      tzDate: (seconds) => (zone() === "local" ? new Date(seconds * 1000) : uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC")),
      series: [{ label: zoneName(), value: time }, ...series],
      axes: [this.timeAxis(text, grid), { stroke: text, font: AXIS_FONT, grid, ticks: grid, values: (_, values) => values.map(plain), size: labelWidth }],
      scales: {
        x: { range: (_, least, most) => range.now ?? [least, most] },
        y: { range: (_, least, most) => [Math.min(0, least ?? 0), Math.max(most > 0 ? most * 1.05 : 1, this.thresholdShown(most))] },
      },
      cursor: this.cursor(),
      hooks: {
        setSelect: [(plot) => this.zoom(plot)],
        draw: [(plot) => this.annotate(plot, css)],
        ready: [(plot) => plot.over.addEventListener("dblclick", () => range.set(null))],
      },
    };
  }

  timeAxis(stroke, grid) {
    return { stroke, font: AXIS_FONT, grid, ticks: grid, space: 80, size: 32, incrs: STEPS_S, values: (_, moments, __, ___, step) => moments.map((seconds) => clock(seconds, step)) };
  }

  cursor() {
    return { y: false, drag: { x: true, y: false, setScale: false }, sync: { key: CROSSHAIR, setSeries: false } };
  }

  /** A threshold far above all values would flatten them, so it is left out until they come near. */
  thresholdShown(most) {
    return this.threshold && (most ?? 0) >= this.threshold.value / 4 ? this.threshold.value * 1.1 : 0;
  }

  zoom(plot) {
    const { left, width } = plot.select;
    if (width < 3) return;
    const chosen = [plot.posToVal(left, "x"), plot.posToVal(left + width, "x")];
    plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    range.set(chosen);
  }

  /** Draw the threshold and the marks over the series. */
  annotate(plot, css) {
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.lineWidth = devicePixelRatio;
    ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
    ctx.textAlign = "left";
    ctx.textBaseline = "alphabetic";
    if (this.threshold && this.threshold.value <= plot.scales.y.max) {
      const y = plot.valToPos(this.threshold.value, "y", true);
      ctx.strokeStyle = css.getPropertyValue("--bad").trim();
      ctx.setLineDash([4 * devicePixelRatio, 4 * devicePixelRatio]);
      ctx.beginPath();
      ctx.moveTo(bbox.left, y);
      ctx.lineTo(bbox.left + bbox.width, y);
      ctx.stroke();
    }
    let rows = [];
    for (const { at, what } of this.marks) {
      if (at < plot.scales.x.min || at > plot.scales.x.max) continue;
      ctx.strokeStyle = ctx.fillStyle = css.getPropertyValue(MARKS[what].colour).trim();
      ctx.setLineDash(MARKS[what].dash.map((length) => length * devicePixelRatio));
      const x = plot.valToPos(at, "x", true);
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      if (!this.labelsMarks) continue;
      // Labels of marks that are close to each other go below each other.
      const width = ctx.measureText(what).width;
      const left = Math.min(x + 3 * devicePixelRatio, bbox.left + bbox.width - width);
      rows = rows.filter((end) => end > left);
      label(ctx, what, left, bbox.top + (rows.length + 0.8) * LINE_HEIGHT * devicePixelRatio, css);
      rows.push(left + width);
    }
    ctx.restore();
  }

  /** Say what the chart shows, and fill its table; while it is live, not with every sample. */
  describe(isAsked = false) {
    if (!isAsked && performance.now() - this.describedAt < DESCRIBED_EVERY_MS) return;
    this.describedAt = performance.now();
    const said = this.names.map((name, at) => {
      const known = this.data[at + 1].filter((value) => value != null);
      if (!known.length) return `${name}: nothing known`;
      const most = known.reduce((highest, value) => Math.max(highest, value));
      return `${name}: now ${withUnit(known.at(-1), this.unit)}, highest ${withUnit(most, this.unit)}`;
    });
    this.place.setAttribute("aria-label", said.join(". "));
    if (!this.details.open) return;
    const [first, stop] = within(this.data[0], range.now);
    const head = element("tr", {}, element("th", { scope: "col" }, zoneName()), ...this.names.map((name) => element("th", { scope: "col", class: "num" }, name)));
    const rows = [];
    for (let row = stop - 1; row >= first; row--) {
      rows.push(element("tr", {}, element("th", { scope: "row" }, moment(this.data[0][row])),
        ...this.names.map((_, at) => element("td", { class: "num" }, plain(this.data[at + 1][row])))));
    }
    this.table.replaceChildren(element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows)));
  }
}
