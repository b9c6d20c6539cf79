// Event ordering: what each pair of tolerances would do to this job's own log, from one reading of it.
import { Refused, element, notice, number, post, problem } from "./_common.js";

const byId = (id) => document.getElementById(id);
const job = byId("job").dataset.job;
const form = byId("ordering");
const late = { slider: byId("late"), field: byId("late-s") };
const order = { slider: byId("order"), field: byId("order-s") };
const TYPED_MS = 500;
let tuned = null;
let typed = null;
let mapWidth = 0;
const own = { late: Number(form.dataset.late), order: Number(form.dataset.order), action: form.elements.action.value };

export function duration(seconds) {
  if (seconds == null) return "no limit";
  if (seconds < 0) return "for ever";
  if (seconds < 60) return `${Number(seconds.toFixed(3))} s`;
  const whole = Math.round(seconds);
  for (const [size, unit, smaller, small] of [[86400, "d", 3600, "h"], [3600, "h", 60, "min"], [60, "min", 1, "s"]]) {
    if (whole < size) continue;
    const rest = Math.floor((whole % size) / smaller);
    return `${Math.floor(whole / size)} ${unit}${rest ? ` ${rest} ${small}` : ""}`;
  }
}
const share = (value) => `${(100 * value).toFixed(value > 0.9999 && value < 1 ? 4 : 2)} %`;

const chosen = () => ({ late: Number(late.field.value), order: Number(order.field.value), action: form.elements.action.value });
/** Return which step of a ladder a number of seconds is; to wait for ever is shown as the longest step. */
const stepOf = (steps, seconds) => (seconds < 0 ? steps.length - 1 : steps.indexOf(seconds));
const outcomeAt = (lateAt, orderAt) => tuned.grid[lateAt * tuned.outOfOrderSeconds.length + orderAt];

function figure(label, value, before) {
  return element("div", { class: "figure" }, element("dt", {}, label), element("dd", {}, value, before ? element("small", {}, ` now ${before}`) : null));
}

/** Set both tolerances, in seconds, and show what they would do. */
function use(lateS, orderS) {
  late.field.value = lateS;
  order.field.value = orderS;
  show();
}

function show() {
  const now = chosen();
  const save = byId("save-ordering");
  const isValid = late.field.checkValidity() && order.field.checkValidity();
  if (save) save.disabled = !isValid || (now.late === own.late && now.order === own.order && now.action === own.action);
  if (!isValid) return;
  for (const [{ slider }, seconds, steps] of [[late, now.late, tuned.lateSeconds], [order, now.order, tuned.outOfOrderSeconds]]) {
    const at = stepOf(steps, seconds);
    slider.value = at >= 0 ? at : steps.findLastIndex((step) => step <= seconds);
    slider.setAttribute("aria-valuetext", duration(seconds));
    byId(`${slider.id}-value`).textContent = duration(seconds);
  }
  const [lateAt, orderAt] = [stepOf(tuned.lateSeconds, now.late), stepOf(tuned.outOfOrderSeconds, now.order)];
  if (lateAt < 0 || orderAt < 0) {
    // The log has to be read for tolerances between the steps.
    clearTimeout(typed);
    typed = setTimeout(() => tune(now), TYPED_MS);
    return;
  }
  const found = outcomeAt(lateAt, orderAt);
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
  for (const cell of byId("map").querySelectorAll(".cell")) cell.classList.toggle("chosen", cell.dataset.late === String(lateAt) && cell.dataset.order === String(orderAt));
}

const ROW = 15;
const LABEL = 54;
const ROOM = { left: 92, right: 22, bottom: 44 };
const opacity = (value) => (0.06 + 0.94 * value ** 6).toFixed(3);

/** Draw the share of untouched events for each pair of tolerances, with titles, a key, and the values of a cell. */
function map() {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const [rows, columns] = [tuned.lateSeconds.length, tuned.outOfOrderSeconds.length];
  mapWidth = byId("map").clientWidth;
  const cell = Math.max(9, (byId("map").clientWidth - ROOM.left - ROOM.right) / columns);
  const [width, height] = [columns * cell, rows * ROW];
  svg.setAttribute("width", ROOM.left + width + ROOM.right);
  svg.setAttribute("height", height + ROOM.bottom);
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", "Late tolerance upwards, out-of-order tolerance to the right; the darker, the more events are untouched");
  const add = (name, attributes, text) => {
    const made = document.createElementNS(svg.namespaceURI, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text) made.textContent = text;
    svg.append(made);
    return made;
  };
  const says = byId("map-value");
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      const value = outcomeAt(row, column).shareUntouched;
      const drawn = add("rect", { x: ROOM.left + column * cell, y: (rows - 1 - row) * ROW, width: cell - 1.5, height: ROW - 1.5, rx: 2, class: "cell", "fill-opacity": opacity(value) });
      Object.assign(drawn.dataset, { late: String(row), order: String(column) });
      drawn.addEventListener("click", () => use(tuned.lateSeconds[row], tuned.outOfOrderSeconds[column]));
      drawn.addEventListener("pointerenter", () => {
        says.textContent = `Late ${duration(tuned.lateSeconds[row])}, out of order ${duration(tuned.outOfOrderSeconds[column])}: ${share(value)} untouched, delay ${duration(outcomeAt(row, column).watermarkDelayMedianS)}.`;
      });
    }
  }
  // As many labels as fit beside each other.
  for (let row = 0; row < rows; row += 2) add("text", { x: ROOM.left - 6, y: (rows - row) * ROW - 4, "text-anchor": "end" }, duration(tuned.lateSeconds[row]));
  for (let column = 0; column < columns; column += Math.ceil(LABEL / cell)) add("text", { x: ROOM.left + (column + 0.5) * cell, y: height + 14, "text-anchor": "middle" }, duration(tuned.outOfOrderSeconds[column]));
  add("text", { x: ROOM.left + width / 2, y: height + 34, "text-anchor": "middle", class: "title" }, "Out-of-order tolerance");
  add("text", { x: 12, y: height / 2, "text-anchor": "middle", class: "title", transform: `rotate(-90 12 ${height / 2})` }, "Late tolerance");
  says.textContent = "Point at a cell for its values; choose it to use its tolerances.";
  const key = [0.5, 0.8, 0.9, 0.95, 1].map((value) => element("span", {}, element("i", { class: `share s${Math.round(100 * value)}` }), `${Math.round(100 * value)} %`));
  byId("map").replaceChildren(svg, element("p", { class: "legend note" }, "Untouched:", ...key));
}

function suggestions() {
  const found = tuned.smallest.filter((one) => tuned.lateSeconds.includes(one.lateArrivalToleranceS) && tuned.outOfOrderSeconds.includes(one.outOfOrderToleranceS)).slice(0, 4);
  const button = (one) => element("button", { type: "button", class: "quiet", click: () => use(one.lateArrivalToleranceS, one.outOfOrderToleranceS) },
    `late ${duration(one.lateArrivalToleranceS)}, out of order ${duration(one.outOfOrderToleranceS)}: delay ${duration(one.watermarkDelayMedianS)}`);
  byId("suggestions").replaceChildren(...(found.length
    ? [element("p", { class: "note" }, `The smallest tolerances that leave ${share(tuned.keep)} of the events untouched:`),
      element("ul", { class: "plain" }, ...found.map((one) => element("li", {}, button(one))))]
    : [element("p", { class: "note" }, `No tolerances here leave ${share(tuned.keep)} of the events untouched.`)]));
}

/** Read the log for the steps of the sliders and, if they are given, for tolerances between them. */
async function tune(further = null) {
  const status = byId("tuned");
  status.textContent = "Reading the job's log …";
  problem(byId("ordering-problem"), null);
  try {
    tuned = await post(`${job}/tune`, further ? { lateArrivalToleranceS: further.late, outOfOrderToleranceS: further.order, action: further.action } : {});
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    status.textContent = "";
    problem(byId("ordering-problem"), error);
    return;
  }
  status.textContent = `From ${number(tuned.events)} events of ${number(tuned.partitions)} partition${tuned.partitions === 1 ? "" : "s"}${tuned.events >= tuned.mostEvents ? ", the last ones of the log" : ""}.`;
  late.slider.max = tuned.lateSeconds.length - 1;
  order.slider.max = tuned.outOfOrderSeconds.length - 1;
  for (const { slider, field } of [late, order]) slider.disabled = field.disabled = false;
  byId("map-figure").hidden = false;
  map();
  suggestions();
  show();
}

new ResizeObserver(() => {
  if (!tuned || byId("map").clientWidth === mapWidth) return;
  map();
  show();
}).observe(byId("map"));
late.slider.addEventListener("input", () => use(tuned.lateSeconds[late.slider.value], Number(order.field.value)));
order.slider.addEventListener("input", () => use(Number(late.field.value), tuned.outOfOrderSeconds[order.slider.value]));
for (const { field } of [late, order]) field.addEventListener("input", show);
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
late.field.value = own.late;
order.field.value = own.order;
tune();
