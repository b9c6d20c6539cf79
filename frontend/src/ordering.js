// The event-ordering sliders: what each pair of tolerances would do to this job's own log, from one reading of it.
import { Refused, element, notice, number, post, problem } from "./_common.js";

const byId = (id) => document.getElementById(id);
const job = byId("job").dataset.job;
const form = byId("ordering");
const late = byId("late");
const order = byId("order");
let tuned = null;
const own = { late: Number(form.dataset.late), order: Number(form.dataset.order), action: form.elements.action.value };

export function duration(seconds) {
  if (seconds == null) return "no limit";
  if (seconds < 60) return `${Number(seconds.toFixed(1))} s`;
  for (const [size, unit] of [[86400, "d"], [3600, "h"], [60, "min"]]) if (seconds >= size) return `${Number((seconds / size).toFixed(1))} ${unit}`;
}
const share = (value) => `${(100 * value).toFixed(value > 0.9999 && value < 1 ? 4 : 2)} %`;

const chosen = () => ({ late: tuned.lateSeconds[late.value], order: tuned.outOfOrderSeconds[order.value], action: form.elements.action.value });
const outcomeAt = (lateAt, orderAt) => tuned.grid[lateAt * tuned.outOfOrderSeconds.length + orderAt];

function figure(label, value, before) {
  return element("div", { class: "figure" }, element("dt", {}, label), element("dd", {}, value, before ? element("small", {}, `now ${before}`) : null));
}

function show() {
  const now = chosen();
  byId("late-value").textContent = duration(now.late);
  byId("order-value").textContent = duration(now.order);
  late.setAttribute("aria-valuetext", duration(now.late));
  order.setAttribute("aria-valuetext", duration(now.order));
  const found = outcomeAt(Number(late.value), Number(order.value));
  const before = tuned.current;
  const isDropping = now.action === "drop";
  const disordered = (one, dropping) => (dropping ? one.outOfOrderDropping : one.outOfOrderAdjusting);
  const percent = (count) => share(tuned.events ? count / tuned.events : 0);
  byId("effects").replaceChildren(
    figure("Untouched", share(found.shareUntouched), share(before.shareUntouched)),
    figure("Late", `${number(found.late)} (${percent(found.late)})`, number(before.late)),
    figure("Out of order", `${number(disordered(found, isDropping))} (${percent(disordered(found, isDropping))})`, number(disordered(before, own.action === "drop"))),
    figure("Early or unreadable", number(tuned.early + tuned.unreadable)),
    figure("Delay, median", duration(found.watermarkDelayMedianS), duration(before.watermarkDelayMedianS)),
    figure("Delay, 95 %", duration(found.watermarkDelayP95S), duration(before.watermarkDelayP95S)),
  );
  for (const cell of byId("map").querySelectorAll("rect")) cell.classList.toggle("chosen", cell.dataset.late === late.value && cell.dataset.order === order.value);
  const save = byId("save-ordering");
  if (save) save.disabled = now.late === own.late && now.order === own.order && now.action === own.action;
}

function map() {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const [rows, columns] = [tuned.lateSeconds.length, tuned.outOfOrderSeconds.length];
  svg.setAttribute("viewBox", `-14 0 ${columns * 10 + 14} ${rows * 7 + 12}`);
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", "Late tolerance upwards, out-of-order tolerance to the right; the darker, the more events are untouched");
  const add = (name, attributes, text) => {
    const made = document.createElementNS(svg.namespaceURI, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text) made.textContent = text;
    svg.append(made);
    return made;
  };
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      const value = outcomeAt(row, column).shareUntouched;
      const cell = add("rect", { x: column * 10, y: (rows - 1 - row) * 7, width: 9.4, height: 6.4, rx: 1, class: "cell", "fill-opacity": (0.06 + 0.94 * value ** 6).toFixed(3) });
      Object.assign(cell.dataset, { late: String(row), order: String(column) });
      cell.addEventListener("click", () => { late.value = row; order.value = column; show(); });
    }
  }
  for (const row of [0, rows - 1]) add("text", { x: -1, y: (rows - row) * 7 - 2, "text-anchor": "end" }, duration(tuned.lateSeconds[row]));
  for (const column of [0, columns - 1]) add("text", { x: column * 10 + 5, y: rows * 7 + 6, "text-anchor": "middle" }, duration(tuned.outOfOrderSeconds[column]));
  byId("map").replaceChildren(svg);
}

function suggestions() {
  const found = tuned.smallest.slice(0, 4);
  const use = (one) => {
    late.value = tuned.lateSeconds.indexOf(one.lateArrivalToleranceS);
    order.value = tuned.outOfOrderSeconds.indexOf(one.outOfOrderToleranceS);
    show();
  };
  byId("suggestions").replaceChildren(...(found.length
    ? [element("p", { class: "note" }, `The smallest tolerances that leave ${share(tuned.keep)} of the events untouched:`),
      element("ul", { class: "plain" }, ...found.filter((one) => tuned.lateSeconds.includes(one.lateArrivalToleranceS) && tuned.outOfOrderSeconds.includes(one.outOfOrderToleranceS)).map((one) =>
        element("li", {}, element("button", { type: "button", class: "quiet", click: () => use(one) }, `late ${duration(one.lateArrivalToleranceS)}, out of order ${duration(one.outOfOrderToleranceS)}: delay ${duration(one.watermarkDelayMedianS)}`))))]
    : [element("p", { class: "note" }, `No tolerances here leave ${share(tuned.keep)} of the events untouched.`)]));
}

async function begin() {
  try {
    tuned = await post(`${job}/tune`);
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    byId("tuned").textContent = "";
    problem(byId("ordering-problem"), error);
    return;
  }
  byId("tuned").textContent = `From ${number(tuned.events)} events of ${number(tuned.partitions)} partition${tuned.partitions === 1 ? "" : "s"}${tuned.events >= tuned.mostEvents ? ", the last ones of the log" : ""}.`;
  late.max = tuned.lateSeconds.length - 1;
  order.max = tuned.outOfOrderSeconds.length - 1;
  const near = (steps, value) => steps.reduce((best, step, at) => (Math.abs(step - value) < Math.abs(steps[best] - value) ? at : best), 0);
  late.value = own.late < 0 ? late.max : near(tuned.lateSeconds, own.late);
  order.value = near(tuned.outOfOrderSeconds, own.order);
  late.disabled = order.disabled = false;
  map();
  suggestions();
  show();
}

for (const field of [late, order]) field.addEventListener("input", show);
for (const field of form.elements.action) field.addEventListener("change", () => tuned && show());
form.addEventListener("submit", async (event) => {
  event.preventDefault();
  problem(byId("ordering-problem"), null);
  const now = chosen();
  try {
    await post(`${job}/ordering`, { lateArrivalToleranceS: now.late, outOfOrderToleranceS: now.order, action: now.action, etag: byId("job").dataset.etag });
    notice("Saved");
    location.reload();
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    problem(byId("ordering-problem"), error);
  }
});
begin();
