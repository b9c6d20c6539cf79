// What the pages' scripts share: requests with the page's token, formats that match the server's, small DOM helpers.

export const token = document.querySelector('meta[name="csrf-token"]')?.content ?? "";

export class Refused extends Error {}

/** Send a request and return the JSON that answers it. Throws Refused with the server's reason. */
export async function request(url, options = {}) {
  let answer;
  try {
    answer = await fetch(url, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused("the hub does not answer; is it running?");
  }
  const text = await answer.text();
  let data;
  try {
    data = text ? JSON.parse(text) : {};
  } catch {
    throw new Refused(`the hub answered with status ${answer.status}`);
  }
  if (!answer.ok) throw new Refused(data.error?.detail ?? `the hub answered with status ${answer.status}`);
  return data;
}

export const get = (url, options) => request(url, options);

/** Return a name as one segment of a URL's path: that of a page, where the name ends in `.json`. */
export const segment = (name) => encodeURIComponent(name).replace(/\.json$/, "%2Ejson");

export function post(url, body = {}, options = {}) {
  const headers = { "Content-Type": "application/json", "X-CSRF-Token": token };
  return request(url, { method: "POST", headers, body: JSON.stringify(body), ...options });
}

/** Return an element. Attributes that are functions are listeners; children are elements or texts. */
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(key, value);
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value != null) made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child != null));
  return made;
}

export function notice(text) {
  const shown = element("div", { class: "notice" }, text);
  document.getElementById("notices").append(shown);
  setTimeout(() => shown.remove(), 5000);
}

export function problem(target, error) {
  target.textContent = error ? (error.message ?? String(error)) : "";
  target.hidden = !error;
}

/** Return a text as nodes: what stands between backticks is code. */
export const withCode = (text) => text.split("`").map((part, at) => (at % 2 ? element("code", {}, part) : part));

/** Ask in a dialog, and return whether the visitor agrees. */
export function confirmed(text, action = "Continue", isDangerous = true) {
  return new Promise((resolve) => {
    const agree = element("button", { type: "button", class: isDangerous ? "danger" : null, click: () => { dialog.returnValue = "yes"; dialog.close("yes"); } }, action);
    const dialog = element("dialog", { "aria-label": text, close: () => { dialog.remove(); resolve(dialog.returnValue === "yes"); } },
      element("p", {}, text), element("div", { class: "row end" }, element("button", { type: "button", class: "quiet", click: () => dialog.close() }, "Cancel"), agree));
    document.body.append(dialog);
    dialog.showModal();
  });
}

/** Let a list of tabs show one panel at a time, also with the arrow keys; return what shows a tab by its name. */
export function tabList(list, onShow = () => {}) {
  const tabs = [...list.querySelectorAll('[role="tab"]')];
  const show = (name) => {
    for (const tab of tabs) {
      const isChosen = tab.id === `tab-${name}`;
      tab.setAttribute("aria-selected", String(isChosen));
      tab.tabIndex = isChosen ? 0 : -1;
      document.getElementById(tab.getAttribute("aria-controls")).hidden = !isChosen;
    }
  };
  const choose = (tab) => {
    show(tab.id.slice(4));
    onShow(tab.id.slice(4));
  };
  tabs.forEach((tab, at) => {
    tab.addEventListener("click", () => choose(tab));
    tab.addEventListener("keydown", ({ key }) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[key];
      if (!step) return;
      const next = tabs[(at + step + tabs.length) % tabs.length];
      choose(next);
      next.focus();
    });
  });
  return show;
}

/** Return a line of values as a small picture; the number beside it says the last one. */
export function sparkline(all, width = 72, height = 22) {
  const each = Math.max(1, Math.ceil(all.length / (width / 2)));
  const values = [];
  for (let at = 0; at < all.length; at += each) {
    const known = all.slice(at, at + each).filter((value) => value != null);
    values.push(known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : null);
  }
  const known = values.filter((value) => value != null);
  const most = Math.max(...known, 1e-9);
  const points = values.flatMap((value, at) => (value == null ? [] : [`${((at / Math.max(1, values.length - 1)) * (width - 2) + 1).toFixed(1)},${(height - 2 - (value / most) * (height - 4)).toFixed(1)}`]));
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  for (const [name, value] of Object.entries({ viewBox: `0 0 ${width} ${height}`, width, height, "aria-hidden": "true", class: "spark-line" })) svg.setAttribute(name, value);
  const line = document.createElementNS(svg.namespaceURI, "polyline");
  line.setAttribute("points", points.join(" "));
  svg.append(line);
  return svg;
}

const UNITS = ["B", "KB", "MB", "GB", "TB"];
export function size(count) {
  if (count == null) return "–";
  let unit = 0;
  while (Math.abs(count) >= 1000 && unit < UNITS.length - 1) [count, unit] = [count / 1000, unit + 1];
  return `${unit ? count.toFixed(1) : Math.round(count)} ${UNITS[unit]}`;
}
export const number = (value) => (value == null ? "–" : Number(value).toLocaleString("en-US", { maximumFractionDigits: 3 }));
export const rate = (value) =>
  value == null ? "–" : value >= 100 || value === 0 ? number(Math.round(value)) : value.toFixed(2);
/** Return a time as text: in UTC, to the millisecond. */
export const moment = (text) => (text ? text.replace("T", " ").replace(/Z|\+00:00$/, "").replace(/(\.\d{1,3})\d*/, "$1") : "–");

export const zone = () => localStorage.getItem("tidegate-times") ?? "UTC";
const pad = (value, digits = 2) => String(value).padStart(digits, "0");
/** Return a moment as text, in the visitor's time zone or in UTC. */
export function inZone(when, isLocal = zone() === "local", decimals = false) {
  if (!isLocal) return when.toISOString().replace("T", " ").slice(0, decimals ? 23 : 19);
  const day = `${when.getFullYear()}-${pad(when.getMonth() + 1)}-${pad(when.getDate())}`;
  return `${day} ${pad(when.getHours())}:${pad(when.getMinutes())}:${pad(when.getSeconds())}${decimals ? `.${pad(when.getMilliseconds(), 3)}` : ""}`;
}

function sinceThen(seconds) {
  const back = Math.abs(seconds);
  const [count, unit] = back < 60 ? [Math.round(back), "s"] : back < 3600 ? [Math.floor(back / 60), "min"] : back < 86400 ? [Math.floor(back / 3600), "h"] : [Math.floor(back / 86400), "d"];
  if (back < 1) return "now";
  return seconds < 0 ? `in ${count} ${unit}` : `${count} ${unit} ago`;
}

/** Write a time as the visitor wants it: how long ago or when, in UTC or local time, and the whole of it on hover. */
export function tell(target) {
  const when = new Date(target.dateTime);
  if (Number.isNaN(when.getTime())) return;
  const isLocal = zone() === "local";
  const whole = `${moment(target.dateTime)} UTC, ${inZone(when, true, true)} here`;
  const text = "ago" in target.dataset ? sinceThen((Date.now() - when) / 1000) : inZone(when, isLocal, when.getUTCMilliseconds() !== 0);
  if (target.title !== whole) target.title = whole;
  if (target.textContent !== text) target.textContent = text;
}

/** Return an element for a time, or a dash. */
export function timeElement(text, isAgo = false) {
  if (!text) return "–";
  const made = element("time", { datetime: text, "data-ago": isAgo });
  tell(made);
  return made;
}

const MOMENT = /(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z)/;
/** Return a text as nodes in which its times are shown in the zone that the visitor chose. */
export const withTimes = (text) => text.split(MOMENT).map((part, at) => (at % 2 ? timeElement(part) : part));

export const FORMATS = {
  bytes: size, events: number, readers: number, eventsPerSecond: rate, lastEnqueuedTime: timeElement,
  firstSequenceNumber: number, lastSequenceNumber: number, inputEvents: number, lastOutputTime: timeElement,
};

/** Show a state in its badge. */
export function badge(target, state) {
  if (target.textContent !== state) target.textContent = state;
  target.className = `state state-${state.toLowerCase()}`;
}

/** Write an object's values into the elements below a parent that name them with data-field. */
export function fill(parent, values) {
  for (const target of parent.querySelectorAll("[data-field]")) {
    const name = target.dataset.field;
    if (!(name in values)) continue;
    const text = FORMATS[name] === timeElement ? timeElement(values[name], true) : (FORMATS[name] ?? ((value) => value ?? "–"))(values[name]);
    if (text instanceof Element) {
      if (target.firstElementChild?.dateTime !== text.dateTime) target.replaceChildren(text);
    } else if (target.textContent !== String(text)) target.textContent = text;
  }
}

// Why parts of the page are no longer current, and since when, by the part's timer.
const outdated = new Map();
function showOutdated() {
  const shown = document.getElementById("stale");
  if (!outdated.size) {
    shown?.remove();
    return;
  }
  const [{ since, error }] = outdated.values();
  const text = `Not current since ${since.toISOString().slice(11, 19)} UTC: ${error.message}`;
  if (!shown) document.getElementById("main").before(element("p", { id: "stale", class: "stale", role: "alert" }, text));
  else if (shown.textContent !== text) shown.textContent = text;
}

const SILENT_MS = 5000;

/** Call `work` every so many seconds while the page is visible; never twice at a time. */
export function every(seconds, work) {
  let isBusy = false;
  let since = new Date();
  const part = {};
  const turn = async () => {
    if (isBusy || document.hidden) return;
    isBusy = true;
    const silent = setTimeout(() => {
      outdated.set(part, { since, error: new Refused("the hub has not answered for 5 s") });
      showOutdated();
    }, SILENT_MS);
    try {
      await work();
      since = new Date();
      if (outdated.delete(part)) showOutdated();
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      outdated.set(part, { since, error });
      showOutdated();
    } finally {
      clearTimeout(silent);
      isBusy = false;
    }
  };
  const timer = setInterval(turn, seconds * 1000);
  document.addEventListener("visibilitychange", turn);
  return () => clearInterval(timer);
}

const MOST_COLOURED = 5000;

/**
 * Return JSON text as elements: indented, with keys, texts, numbers and words in colours of their own.
 * Only the beginning of a long text is coloured: each colour is an element.
 */
export function formattedJson(text) {
  const pre = element("pre", { tabindex: "0" });
  let pretty = text;
  try {
    // Numbers stay as they were written: JSON.parse would round those beyond 2**53.
    pretty = indented(text);
  } catch {
    // Shown as it is.
  }
  const tokens = /("(?:\\.|[^"\\])*")(\s*:)?|(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)|\b(true|false|null)\b/g;
  let end = 0;
  let coloured = 0;
  for (const match of pretty.matchAll(tokens)) {
    if (++coloured > MOST_COLOURED) break;
    pre.append(pretty.slice(end, match.index));
    const [whole, string, colon, numeral] = match;
    const kind = string ? (colon ? "json-key" : "json-text") : numeral ? "json-number" : "json-word";
    pre.append(element("span", { class: kind }, string ?? whole), colon ?? "");
    end = match.index + whole.length;
  }
  pre.append(pretty.slice(end));
  return pre;
}

function indented(text) {
  JSON.parse(text);
  const parts = text.match(/"(?:\\.|[^"\\])*"|[{}[\],:]|[^\s{}[\],:"]+/g) ?? [];
  let depth = 0;
  let made = "";
  const line = () => `\n${"  ".repeat(depth)}`;
  for (let at = 0; at < parts.length; at++) {
    const part = parts[at];
    if (part === "{" || part === "[") {
      if (parts[at + 1] === "}" || parts[at + 1] === "]") {
        made += part + parts[++at];
        continue;
      }
      depth++;
      made += part + line();
    } else if (part === "}" || part === "]") {
      depth--;
      made += line() + part;
    } else if (part === ",") made += part + line();
    else if (part === ":") made += ": ";
    else made += part;
  }
  return made;
}
