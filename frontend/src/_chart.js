// A chart of series over time: uPlot in the page's colours, with a description and a table for those who do not see it.
import uPlot from "uplot";
import { element } from "./_common.js";

const COLOURS = ["--s1", "--s2", "--s3", "--s4", "--s5"];
const style = () => getComputedStyle(document.documentElement);
const DESCRIBED_EVERY_MS = 10_000;
// Above so many samples a step a sample cannot be seen, and lines that are drawn a pixel at a time cost far less.
const MOST_STEPS = 900;
const stepped = uPlot.paths.stepped({ align: 1 });
const linear = uPlot.paths.linear();
const compact = new Intl.NumberFormat("en-US", { notation: "compact", maximumFractionDigits: 2 });
const plain = (value) => (value == null ? "–" : value !== 0 && Math.abs(value) < 0.01 ? value.toExponential(1) : compact.format(value));

/** Return a moment as the axis says it: the day where steps are days, seconds where steps are shorter than a minute. */
function clock(seconds, step) {
  const text = new Date(seconds * 1000).toISOString();
  if (step >= 86400) return text.slice(5, 10);
  return step < 60 ? text.slice(11, 19) : text.slice(11, 16);
}

export class TimeChart {
  constructor(figure, { names, unit = "", height = 190, bars = false }) {
    this.figure = figure;
    this.names = names;
    this.unit = unit;
    this.height = height;
    this.bars = bars;
    this.data = null;
    this.isZoomed = false;
    this.isVisible = true;
    this.isBehind = false;
    this.describedAt = -Infinity;
    this.place = element("div", { role: "img", class: "plot" });
    this.table = element("div", { tabindex: "0", role: "region", "aria-label": "The chart's values" });
    this.details = element("details", {}, element("summary", {}, "As a table"), this.table);
    this.details.addEventListener("toggle", () => this.describe(true));
    figure.append(this.place, this.details);
    new ResizeObserver(() => this.plot?.setSize(this.size())).observe(this.place);
    new IntersectionObserver(([entry]) => {
      this.isVisible = entry.isIntersecting;
      if (this.isVisible && this.isBehind) this.show(this.data);
    }).observe(figure);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.rebuild());
  }

  size() {
    return { width: Math.max(200, this.place.clientWidth), height: this.height };
  }

  rebuild() {
    this.plot?.destroy();
    this.plot = null;
    if (this.data) this.show(this.data);
  }

  /** Show columns: Unix seconds, then the values of each series. */
  show(data) {
    this.data = data;
    this.isBehind = this.plot != null && !this.isVisible;
    if (this.isBehind) return;
    if (!this.plot) this.plot = new uPlot(this.options(), data, this.place);
    else if (!this.isZoomed) this.plot.setData(data);
    else {
      this.plot.setData(data, false);
      this.plot.redraw();
    }
    this.describe();
  }

  options() {
    const css = style();
    const text = css.getPropertyValue("--faint").trim();
    const grid = { stroke: css.getPropertyValue("--line").trim(), width: 1 };
    const series = this.names.map((name, at) => {
      const colour = css.getPropertyValue(COLOURS[at % COLOURS.length]).trim();
      return {
        label: name, stroke: colour, fill: at === 0 && this.names.length < 3 ? `${colour}22` : undefined, width: 1.6,
        points: { show: false }, value: (_, value) => `${plain(value)} ${this.unit}`,
        paths: (plot, ...more) => (plot.data[0].length > MOST_STEPS ? linear : stepped)(plot, ...more),
      };
    });
    return {
      ...this.size(),
      padding: [12, 8, 0, 0],
      tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
      series: [{ label: "UTC", value: (_, seconds) => (seconds == null ? "–" : new Date(seconds * 1000).toISOString().slice(0, 19).replace("T", " ")) }, ...series],
      axes: [
        { stroke: text, grid, ticks: grid, space: 70, values: (_, moments, __, ___, step) => moments.map((seconds) => clock(seconds, step)) },
        { stroke: text, grid, ticks: grid, size: 60, values: (_, values) => values.map(plain) },
      ],
      scales: { y: { range: (_, least, most) => [Math.min(0, least ?? 0), most > 0 ? most * 1.05 : 1] } },
      cursor: { drag: { x: true, y: false } },
      hooks: {
        setSelect: [(plot) => { if (plot.select.width > 0) this.isZoomed = true; }],
        ready: [(plot) => plot.over.addEventListener("dblclick", () => { this.isZoomed = false; })],
      },
    };
  }

  /** Say what the chart shows, and fill its table; while it is live, not with every sample. */
  describe(isAsked = false) {
    if (!isAsked && performance.now() - this.describedAt < DESCRIBED_EVERY_MS) return;
    this.describedAt = performance.now();
    const said = this.names.map((name, at) => {
      const known = this.data[at + 1].filter((value) => value != null);
      if (!known.length) return `${name}: nothing known`;
      return `${name}: now ${plain(known.at(-1))}, highest ${plain(known.reduce((most, value) => Math.max(most, value)))} ${this.unit}`;
    });
    this.place.setAttribute("aria-label", said.join(". "));
    if (!this.details.open) return;
    const head = element("tr", {}, element("th", { scope: "col" }, "UTC"), ...this.names.map((name) => element("th", { scope: "col", class: "num" }, name)));
    const rows = this.data[0].map((seconds, row) =>
      element("tr", {},
        element("th", { scope: "row" }, new Date(seconds * 1000).toISOString().slice(0, 19).replace("T", " ")),
        ...this.names.map((_, at) => element("td", { class: "num" }, plain(this.data[at + 1][row]))),
      ),
    );
    this.table.replaceChildren(element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows.reverse())));
  }
}
