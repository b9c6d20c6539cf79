// Metrics over time, the watermark's delay by cause, the live picture, and the story of one event.
import { TimeChart, marksLegend, range } from "./_chart.js";
import { element, every, formattedJson, get, moment, number, problem, Refused, timeElement, withTimes } from "./_common.js";
import { HeatMap } from "./_heat_map.js";
import { Picture } from "./_picture.js";

const byId = (id) => document.getElementById(id);
const job = byId("job").dataset.job;
const monitor = byId("monitor");

// A watermark that stands further back than the late tolerance and a little more is not waiting for late events alone.
const late = Number(monitor.dataset.late);
const CHARTS = [
  { title: "Events per second", kind: "rates", names: ["Input Events", "Output Events"], unit: "events/s" },
  { title: "Watermark delay", kind: "metrics", names: ["Watermark Delay"], unit: "s", threshold: late > 0 ? { value: late, name: "late tolerance" } : null },
  { title: "Events touched per second", kind: "rates", names: ["Late Input Events", "Out-of-Order Events", "Early Input Events"], unit: "events/s" },
  { title: "Backlogged input events", kind: "metrics", names: ["Backlogged Input Events"], unit: "events" },
  { title: "Errors per second", kind: "rates", names: ["Runtime Errors", "Data Conversion Errors", "Input Deserialization Errors"], unit: "errors/s" },
];
let charts = null;
// What the charts show, and up to which sample: later turns ask for what has come since.
const shown = { times: [], columns: CHARTS.map(({ names }) => names.map(() => [])), seconds: 0, marks: [] };

function add(data) {
  shown.seconds = data.seconds;
  shown.times.push(...data.times);
  shown.marks.push(...data.restarts.map((at) => ({ at, what: "started again" })), ...data.queryChanges.map((at) => ({ at, what: "new version" })));
  CHARTS.forEach(({ kind, names }, at) => names.forEach((name, column) => {
    shown.columns[at][column].push(...(data[kind][name] ?? data.times.map(() => null)));
  }));
  const oldest = (shown.times.at(-1) ?? 0) - data.seconds;
  const gone = shown.times.findIndex((time) => time >= oldest);
  if (gone > 0) for (const values of [shown.times, ...shown.columns.flat()]) values.splice(0, gone);
  shown.marks = shown.marks.filter(({ at }) => at >= oldest);
}

async function updateCharts() {
  const data = await get(`${job}/metrics.json?range=${monitor.dataset.range}&after=${shown.times.at(-1) ?? 0}`);
  if (charts && !data.times.length) return;
  add(data);
  if (shown.times.length < 2) {
    if (!charts) byId("charts").replaceChildren(element("p", { class: "empty" }, "Charts begin when the job has run for a few seconds."));
    return;
  }
  if (!charts) {
    byId("charts").replaceChildren();
    charts = CHARTS.map((one) => {
      const figure = element("figure", { class: "chart" }, element("figcaption", {}, one.title));
      byId("charts").append(figure);
      return new TimeChart(figure, one);
    });
  }
  charts.forEach((chart, at) => chart.show([shown.times, ...shown.columns[at]], shown.marks));
  byId("marks").replaceChildren(...marksLegend(shown.marks));
}

// By partition: the same, with a row for each.
const MAPS = [
  { title: "Watermark delay by partition", key: "delays", what: "delay", unit: "s", isLogarithmic: true },
  { title: "Events read per second, by partition", key: "rates", what: "events read", unit: "events/s" },
];
let maps = null;
const kept = { times: [], rows: MAPS.map(() => ({})) };

function addRows(data) {
  const count = kept.times.length;
  kept.times.push(...data.times);
  MAPS.forEach(({ key }, at) => {
    const rows = kept.rows[at];
    for (const [name, values] of Object.entries(data[key])) (rows[name] ??= Array(count).fill(null)).push(...values);
    // A partition that is no longer read has no value there.
    for (const values of Object.values(rows)) while (values.length < kept.times.length) values.push(null);
  });
  const gone = kept.times.findIndex((time) => time >= (kept.times.at(-1) ?? 0) - data.seconds);
  if (gone > 0) for (const values of [kept.times, ...kept.rows.flatMap((rows) => Object.values(rows))]) values.splice(0, gone);
}

async function updateMaps() {
  const data = await get(`${job}/partitions.json?range=${monitor.dataset.range}&after=${kept.times.at(-1) ?? 0}`);
  addRows(data);
  if (kept.times.length < 2) return;
  maps ??= MAPS.map((one) => {
    const figure = element("figure", { class: "chart" }, element("figcaption", {}, one.title));
    byId("maps").append(figure);
    return new HeatMap(figure, one);
  });
  maps.forEach((map, at) => map.showRows(kept.times, kept.rows[at], data.resolution, shown.marks));
}

const seconds = (value) => (value == null ? "–" : `${value.toFixed(1)} s`);
function timelineRow(one) {
  const open = new Set([...document.querySelectorAll("#timelines details[open]")].map((details) => details.dataset.of));
  const key = `${one.input}/${one.partition}`;
  const substreams = one.substreams.length
    ? element("details", { "data-of": key, open: open.has(key) }, element("summary", {}, "Slowest substreams"), element("ul", { class: "plain" }, ...one.substreams.map((sub) => element("li", {}, `${sub.key}: `, timeElement(sub.watermark)))))
    : null;
  return element("tr", {},
    element("th", { scope: "row" }, `${one.input}, ${one.partition} `, one.isBlocking ? element("span", { class: "state state-degraded" }, "blocks") : null),
    element("td", { class: "nowrap" }, timeElement(one.watermark)), element("td", { class: "num" }, seconds(one.delaySeconds)),
    ...monitor.dataset.causes.split(" ").map((cause) => element("td", { class: "num" }, seconds(one.causes[cause]))),
    element("td", { class: "num" }, number(one.backlog)),
    element("td", { class: "text" }, ...withTimes(one.release), " ", one.since ? element("small", {}, "unchanged since ", timeElement(one.since)) : null, substreams));
}

async function update() {
  const data = await get(monitor.dataset.url);
  for (const cell of document.querySelectorAll("[data-metric]")) {
    const value = data.metrics[cell.dataset.metric];
    cell.textContent = value == null ? "–" : number(Math.round(value * 10) / 10);
  }
  if (byId("updated")) byId("updated").replaceChildren(timeElement(data.updated));
  if (data.timelines.length) byId("timelines").tBodies[0].replaceChildren(...data.timelines.map(timelineRow));
}

const whole = byId("whole-range");
range.addEventListener("change", () => { whole.hidden = !range.now; });
whole.addEventListener("click", () => range.set(null));
updateCharts().then(updateMaps).catch(() => {});
every(monitor.dataset.range === "24h" ? 30 : 1, updateCharts);
every(monitor.dataset.range === "24h" ? 60 : 10, updateMaps);
every(2, update);

// -- the picture

const iso = (milliseconds) => new Date(milliseconds).toISOString();

async function explain(input, partition, sequenceNumber) {
  try {
    const told = await get(`${job}/explain.json?${new URLSearchParams({ input, partition, sequenceNumber })}`);
    const rows = told.rows.map((row, at) => element("section", {}, told.rows.length > 1 ? element("h3", {}, `Row ${at + 1}`) : null, element("ol", {}, ...row.sentences.map((sentence) => element("li", {}, sentence)))));
    const lost = told.lost.map((reason) => element("p", { class: "problem" }, `Lost: ${reason}`));
    const notes = told.notes.map((note) => element("p", { class: "note" }, note));
    byId("explanation-content").replaceChildren(element("p", {}, `Event ${told.sequenceNumber} of ${told.input}, partition ${told.partition}, arrived ${moment(told.arrival)}.`), formattedJson(told.body), ...rows, ...lost, ...notes);
    byId("explanation").showModal();
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    problem(byId("picture-problem"), error);
  }
}

const chosen = ([timeline, sequenceNumber]) => {
  const at = timeline.lastIndexOf("/");
  explain(timeline.slice(0, at), timeline.slice(at + 1), sequenceNumber);
};

if (byId("picture")) {
  const picture = new Picture(byId("picture"), {
    onChoose: chosen,
    onZoom: () => { byId("zoom-out").disabled = false; draw(true).catch(() => {}); },
  });
  const draw = async (isZoomed = false) => {
    problem(byId("picture-problem"), null);
    const status = byId("picture-status");
    status.textContent = "Reading the log …";
    try {
      const stretch = isZoomed && picture.zoom ? { from: iso(picture.zoom.x[0]), to: iso(picture.zoom.x[1]) } : {};
      const data = await get(`${job}/picture.json?${new URLSearchParams(stretch)}`);
      picture.show(data, isZoomed);
      status.textContent = `${number(data.events)} events${data.dots.length < data.events ? `, ${number(data.dots.length)} of them drawn: those that a rule touched first` : ""}; ${data.policy}`;
      const touched = data.dots.filter((dot) => dot[4] !== "on time").slice(-30).toReversed();
      byId("touched").replaceChildren(...(touched.length ? [element("details", {}, element("summary", {}, `${touched.length} events that a rule touched, the latest first`), element("ul", { class: "plain" }, ...touched.map((dot) => element("li", {}, element("button", { type: "button", class: "quiet", click: () => chosen(dot) }, `${iso(dot[2]).slice(11, 23)} ${dot[0]}, event ${dot[1]}: ${dot[6] ? `${dot[6]}, ` : ""}${dot[4]}`)))))] : []));
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      status.textContent = "";
      problem(byId("picture-problem"), error);
      byId("live").checked = false;
    }
  };
  byId("draw").addEventListener("click", () => draw());
  byId("zoom-out").addEventListener("click", () => { picture.zoom = null; byId("zoom-out").disabled = true; draw(); });
  byId("live").addEventListener("change", (event) => { if (event.target.checked) draw(); });
  every(3, async () => { if (byId("live").checked && !picture.zoom) await draw(); });
}
