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
export const moment = (text) => (text ? text.replace("T", " ").replace("Z", "") : "–");

export const FORMATS = {
  bytes: size, events: number, readers: number, eventsPerSecond: rate, lastEnqueuedTime: moment,
  firstSequenceNumber: number, lastSequenceNumber: number, inputEvents: number, lastOutputTime: moment,
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
    const text = (FORMATS[name] ?? ((value) => value ?? "–"))(values[name]);
    if (target.textContent !== String(text)) target.textContent = text;
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

/** Call `work` every so many seconds while the page is visible; never twice at a time. */
export function every(seconds, work) {
  let isBusy = false;
  let since = new Date();
  const part = {};
  const turn = async () => {
    if (isBusy || document.hidden) return;
    isBusy = true;
    try {
      await work();
      since = new Date();
      if (outdated.delete(part)) showOutdated();
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      outdated.set(part, { since, error });
      showOutdated();
    } finally {
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
