// A map of values over time, a row for each partition: the darker, the larger. It shares the crosshair, the time range
// and the marks of the page's other charts.
import uPlot from "uplot";
import { TimeChart, labelWidth, moment, plain, withUnit } from "./_chart.js";
import { element } from "./_common.js";

const ROW = { least: 5, most: 22 };
const TALLEST = 420;
const BELOW = 46;
const LABEL_HEIGHT = 14;
const FAINTEST = 0.07;
// A sample stands for the time since the one before, but for no longer than so many steps: then nothing is known.
const MOST_STEPS = 3;
const KEY_STEPS = 5;

export class HeatMap extends TimeChart {
  /**
   * Args: `what` a value is, such as "watermark delay"; its `unit`; `isLogarithmic`, for values of several magnitudes.
   */
  constructor(figure, { what, unit, isLogarithmic = false }) {
    super(figure, { names: [], unit });
    // The page's legend names the marks; their labels would hide cells.
    Object.assign(this, { what, isLogarithmic, seconds: 10, labelsMarks: false });
    this.says = element("p", { class: "note heat-value" });
    this.key = element("p", { class: "legend note" });
    this.place.after(this.says, this.key);
  }

  /** Show the values of each row, by its name, at times in Unix seconds; `seconds` is how far apart these are. */
  showRows(times, rows, seconds, marks = this.marks) {
    const names = Object.keys(rows);
    const isNew = names.join() !== this.names.join();
    Object.assign(this, { names, seconds });
    const each = Math.min(ROW.most, Math.max(ROW.least, TALLEST / Math.max(1, names.length)));
    this.height = Math.max(90, Math.round(each * names.length) + BELOW);
    if (isNew) {
      this.plot?.destroy();
      this.plot = null;
    }
    this.show([times, ...names.map((name) => rows[name])], marks);
  }

  get most() {
    let most = 0;
    for (const values of this.data.slice(1)) for (const value of values) if (value > most) most = value;
    return most;
  }

  /** How much of the colour a value has, from 0 to 1. */
  share(value, most) {
    if (!most) return 0;
    return this.isLogarithmic ? Math.log1p(value) / Math.log1p(most) : value / most;
  }

  draw() {
    this.isBehind = this.plot != null && !this.isVisible;
    if (this.isBehind) return;
    const shown = [this.data[0], this.data[0].map(() => null)];
    if (!this.plot) this.plot = new uPlot(this.options(), shown, this.place);
    else this.plot.setData(shown);
    this.say(this.plot.cursor);
    this.legend();
    this.describe();
  }

  options() {
    const made = super.options();
    const rows = this.names.length;
    const every = Math.max(1, Math.ceil((LABEL_HEIGHT * rows) / (this.height - BELOW)));
    const labelled = this.names.map((_, at) => at).filter((at) => at % every === 0);
    return {
      ...made,
      legend: { show: false },
      series: [made.series[0], { show: false }],
      axes: [made.axes[0], { ...made.axes[1], grid: { show: false }, splits: () => labelled.map((at) => at + 0.5), values: () => labelled.map((at) => this.names[at]), size: labelWidth }],
      scales: { x: made.scales.x, y: { dir: -1, range: () => [0, rows] } },
      hooks: {
        ...made.hooks,
        drawAxes: [(plot) => this.cells(plot)],
        // Also when values have been added below a pointer that stands still.
        setCursor: [(plot) => this.say(plot.cursor)],
      },
    };
  }

  /** Draw a cell for each row and each stretch of time that is at least a few pixels wide: its largest value. */
  cells(plot) {
    const { ctx, bbox } = plot;
    const { min, max } = plot.scales.x;
    const rows = this.names.length;
    if (!rows || !(max > min)) return;
    const width = Math.max(this.seconds, (max - min) / Math.max(1, Math.floor(bbox.width / (2 * devicePixelRatio))));
    const columns = Math.ceil((max - min) / width);
    const largest = Array.from({ length: rows }, () => new Float64Array(columns).fill(-1));
    const times = this.data[0];
    for (let at = 0; at < times.length; at++) {
      const since = Math.max(at ? times[at - 1] : times[at] - this.seconds, times[at] - MOST_STEPS * this.seconds);
      if (times[at] < min || since > max) continue;
      const first = Math.max(0, Math.floor((since - min) / width + 1e-6));
      const last = Math.min(columns - 1, Math.ceil((times[at] - min) / width - 1e-6) - 1);
      for (let row = 0; row < rows; row++) {
        const value = this.data[row + 1][at];
        if (value == null) continue;
        for (let column = first; column <= last; column++) if (value > largest[row][column]) largest[row][column] = value;
      }
    }
    const image = new ImageData(columns, rows);
    const [red, green, blue] = this.colour(ctx);
    const most = this.most;
    for (let row = 0; row < rows; row++) {
      for (let column = 0; column < columns; column++) {
        const value = largest[row][column];
        if (value >= 0) image.data.set([red, green, blue, 255 * (FAINTEST + (1 - FAINTEST) * this.share(value, most))], 4 * (row * columns + column));
      }
    }
    const drawn = new OffscreenCanvas(columns, rows);
    drawn.getContext("2d").putImageData(image, 0, 0);
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    ctx.imageSmoothingEnabled = false;
    ctx.drawImage(drawn, bbox.left, bbox.top, (bbox.width * columns * width) / (max - min), bbox.height);
    ctx.fillStyle = getComputedStyle(this.figure).backgroundColor;
    const each = bbox.height / rows;
    if (each >= 6 * devicePixelRatio) for (let row = 1; row < rows; row++) ctx.fillRect(bbox.left, Math.round(bbox.top + row * each), bbox.width, devicePixelRatio);
    ctx.restore();
  }

  /** Return the page's first series colour as red, green and blue. */
  colour(ctx) {
    ctx.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--s1").trim();
    return [1, 3, 5].map((at) => parseInt(ctx.fillStyle.slice(at, at + 2), 16));
  }

  /** Say the value where the pointer is; without a pointer, the largest of the latest values. */
  say(cursor) {
    const row = cursor.top >= 0 ? Math.floor(this.plot.posToVal(cursor.top, "y")) : -1;
    if (row >= 0 && row < this.names.length && cursor.idx != null) {
      this.says.textContent = `${this.names[row]}, ${moment(this.data[0][cursor.idx])}: ${this.what} ${withUnit(this.data[row + 1][cursor.idx], this.unit)}`;
      return;
    }
    const latest = this.names.map((name, at) => [this.data[at + 1].at(-1), name]).filter(([value]) => value != null);
    if (!latest.length) this.says.textContent = "Nothing known at present.";
    else {
      const [value, name] = latest.reduce((one, other) => (other[0] > one[0] ? other : one));
      this.says.textContent = `Now: ${latest.length > 1 ? "largest " : ""}${this.what} ${withUnit(value, this.unit)}, ${name}`;
    }
  }

  legend() {
    const most = this.most;
    const said = `${this.isLogarithmic}${plain(most)}`;
    if (this.key.dataset.of === said) return;
    this.key.dataset.of = said;
    const values = most ? Array.from({ length: KEY_STEPS }, (_, at) => at / (KEY_STEPS - 1)).map((part) => (this.isLogarithmic ? Math.expm1(Math.log1p(most) * part) : most * part)) : [0];
    this.key.replaceChildren(...values.map((value, at) => element("span", {}, element("i", { class: `heat h${Math.round((4 * at) / Math.max(1, values.length - 1))}` }), withUnit(value, this.unit))), element("span", {}, element("i", { class: "heat none" }), "not known"));
  }

  /** Say what the map shows; its table has a column for each partition. */
  describe(isAsked = false) {
    super.describe(isAsked);
    if (this.says) this.place.setAttribute("aria-label", `${this.what} of ${this.names.length} partitions over time. ${this.says.textContent}`);
  }
}
