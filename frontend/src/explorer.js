// The data explorer: compose and send, browse, follow, and look at one event.
import { Refused, element, every, formattedJson, get, notice, number, post, problem, timeElement } from "./_common.js";

const root = document.getElementById("explorer");
const hub = root.dataset.hub;
const byId = (id) => document.getElementById(id);

// -- composing and sending

const form = byId("send-form");

function propertyRow(name = "", kind = "text", value = "") {
  const row = element("div", { class: "property" },
    element("input", { "aria-label": "Property name", placeholder: "name", value: name, autocomplete: "off" }),
    element("select", { "aria-label": "Property type" }, ...["text", "number", "boolean"].map((one) => element("option", { selected: one === kind }, one))),
    element("input", { "aria-label": "Property value", placeholder: "value", value, autocomplete: "off" }),
    element("button", { type: "button", class: "quiet", "aria-label": "Remove this property", click: () => { row.remove(); byId("add-property").focus(); } }, "×"),
  );
  byId("properties").append(row);
  return row;
}

function composed() {
  const properties = [...document.querySelectorAll("#properties .property")].map((row) => {
    const [name, kind, value] = row.querySelectorAll("input, select");
    return { name: name.value, type: kind.value, value: value.value };
  });
  const field = (name) => form.elements[name].value;
  return {
    body: field("body"), partitionKey: field("partitionKey"), partition: field("partition"), contentType: field("contentType"),
    repeat: Number(field("repeat")) || 1, properties: properties.filter((one) => one.name || one.value),
  };
}

async function trying(work) {
  problem(byId("send-problem"), null);
  try {
    await work();
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    problem(byId("send-problem"), error);
  }
}

async function send() {
  const button = byId("send");
  button.disabled = true;
  await trying(async () => {
    const { sent } = await post(`${hub}/send`, composed());
    notice(`${number(sent)} event${sent === 1 ? "" : "s"} sent`);
    remember();
    if (!byId("follow").checked) await browse(currentQuery(), "newest");
  });
  button.disabled = false;
}

function generatorRow(one) {
  const until = one.stopsAt ? ` until ${timeElement(one.stopsAt).textContent.slice(11, 19)}` : "";
  const said = `${number(one.rate)}/s${until}, ${number(one.sent)} sent${one.error ? ` – ${one.error}` : ""}`;
  const stop = () => trying(async () => { await post(`${hub}/generators/${one.id}/stop`); await showGenerators(); });
  return element("li", {}, element("span", {}, said), element("button", { type: "button", class: "quiet", click: stop, "aria-label": `Stop sending ${said}` }, one.error.startsWith("stopped") ? "Dismiss" : "Stop"));
}

async function showGenerators() {
  const { generators } = await get(`${hub}/generators.json`);
  const list = byId("generators");
  const focused = list.contains(document.activeElement);
  list.replaceChildren(...generators.map(generatorRow));
  if (focused) list.querySelector("button")?.focus();
}

// What was typed last is offered again, per hub and in this browser only.
const MEMORY = `tidegate:${hub}`;
function remember() {
  try {
    localStorage.setItem(MEMORY, JSON.stringify(composed()));
  } catch {
    // Without storage, nothing is offered.
  }
}
function recall() {
  let said;
  try {
    said = JSON.parse(localStorage.getItem(MEMORY));
  } catch {
    return;
  }
  if (!said) return;
  for (const name of ["body", "partitionKey", "partition", "contentType"]) form.elements[name].value = said[name] ?? "";
  for (const one of said.properties ?? []) propertyRow(one.name, one.type, one.value);
}

if (form) {
  recall();
  form.addEventListener("submit", (event) => { event.preventDefault(); send(); });
  form.addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); send(); } });
  byId("sample").addEventListener("change", (event) => {
    const chosen = event.target.selectedOptions[0];
    form.elements.body.value = chosen.dataset.body ?? "";
    form.elements.partitionKey.value = chosen.dataset.key ?? "";
    form.elements.contentType.value = chosen.value === "text" ? "text/plain" : "application/json";
    if (chosen.dataset.key) form.elements.partition.value = "";
  });
  byId("add-property").addEventListener("click", () => propertyRow().querySelector("input").focus());
  byId("preview").addEventListener("click", () => trying(async () => {
    const { events } = await post(`${hub}/preview`, { ...composed(), repeat: 3 });
    byId("previews").replaceChildren(...events.map((one) =>
      element("div", {}, element("small", {}, one.partitionKey ? `key ${one.partitionKey}` : "no key"), formattedJson(one.body))));
  }));
  byId("generate").addEventListener("click", () => { byId("steady").hidden = !byId("steady").hidden; if (!byId("steady").hidden) form.elements.rate.focus(); });
  byId("start-generator").addEventListener("click", () => trying(async () => {
    await post(`${hub}/generators`, { ...composed(), rate: form.elements.rate.value, seconds: form.elements.seconds.value });
    remember();
    byId("follow").checked = true;
    await startFollowing();
    await showGenerators();
  }));
  showGenerators().catch(() => {});
  every(1, async () => { if (byId("generators").children.length) await showGenerators(); });
}

// -- browsing

const browseForm = byId("browse-form");
const body = document.querySelector("#events tbody");
const MAX_ROWS = 1000;
let forward = root.dataset.forward;
let backward = root.dataset.backward;
let isComplete = root.dataset.complete === "true";
let isNewestFirst = ["", "newest"].includes(new URLSearchParams(location.search).get("from") ?? "");
let searching = null;
let shownEvents = new Map();

const currentQuery = () => new URLSearchParams(new FormData(browseForm));
const queryFor = (query, more) => {
  const made = new URLSearchParams(query);
  for (const [key, value] of Object.entries(more)) made.set(key, value);
  return made;
};

function row(event, isFresh = false) {
  const text = event.error ?? (event.kind === "binary" ? `(${event.format === "avro" ? "Avro" : "binary"}, ${number(event.size)} bytes)` : event.body.slice(0, 400) || "(empty)");
  const link = element("a", { class: "event", href: `${hub}/events/${event.partition}/${event.sequenceNumber}.json`, click: (click) => { click.preventDefault(); open(event, link); } }, ...marked(text));
  return element("tr", { class: isFresh ? "fresh" : null },
    element("td", { class: "nowrap" }, timeElement(event.enqueuedTime)), element("td", {}, event.partition),
    element("td", { class: "num" }, String(event.sequenceNumber)), element("td", {}, event.partitionKey ?? ""), ...columnCells(event),
    element("td", { class: "body" }, link));
}

// Fields of the body that have a column of their own, by their paths; kept per hub in this browser.
const COLUMNS = `tidegate-columns:${hub}`;
const chosenColumns = () => byId("columns").value.split(",").map((one) => one.trim()).filter(Boolean);
function columnCells(event) {
  const names = chosenColumns();
  if (!names.length) return [];
  let content = null;
  try {
    content = JSON.parse(event.body);
  } catch {
    // Not JSON: its cells are empty.
  }
  return names.map((name) => {
    const value = name.split(".").reduce((inner, part) => inner?.[part], content) ?? event.properties?.[name];
    return element("td", { class: typeof value === "number" ? "num" : null }, value == null ? "" : typeof value === "object" ? JSON.stringify(value) : String(value));
  });
}
function showColumns() {
  const head = byId("events").tHead.rows[0];
  for (const one of head.querySelectorAll(".chosen-column")) one.remove();
  head.lastElementChild.before(...chosenColumns().map((name) => element("th", { scope: "col", class: "chosen-column" }, name)));
}
byId("columns").value = localStorage.getItem(COLUMNS) ?? "";
function useColumns() {
  localStorage.setItem(COLUMNS, byId("columns").value);
  showColumns();
  browse(currentQuery());
}
byId("columns").addEventListener("change", () => {
  offerColumns([]);
  useColumns();
});

// The fields of the events that were shown are offered as columns.
const offered = new Set();
const MOST_OFFERED = 40;
const DEEPEST = 3;
function fieldsOf(value, path = "", depth = 1) {
  if (!value || typeof value !== "object" || Array.isArray(value)) return path ? [path] : [];
  return Object.entries(value).flatMap(([name, inner]) => (/^[\w$-]+$/.test(name) ? (depth < DEEPEST ? fieldsOf(inner, path ? `${path}.${name}` : name, depth + 1) : [path ? `${path}.${name}` : name]) : []));
}
function offerColumns(events) {
  const before = offered.size;
  for (const event of events.slice(0, 20)) {
    try {
      if (event.kind === "json") for (const name of [...fieldsOf(JSON.parse(event.body)), ...Object.keys(event.properties)]) if (offered.size < MOST_OFFERED) offered.add(name);
    } catch {
      // It was cut.
    }
  }
  if (events.length && offered.size === before) return;
  const chosen = chosenColumns();
  byId("column-choices").replaceChildren(...[...offered].map((name) => element("label", { class: "inline" },
    element("input", { type: "checkbox", checked: chosen.includes(name), change: ({ target }) => {
      byId("columns").value = (target.checked ? [...chosenColumns(), name] : chosenColumns().filter((one) => one !== name)).join(", ");
      useColumns();
    } }), name)));
}

/** Return a text with the words of the search marked. */
function marked(text) {
  const words = (browseForm.elements.search.value.match(/-?(?:[\w.@$-]+(?::|[<>!]=?))?(?:"[^"]*"|[^\s()]+)/g) ?? [])
    .filter((term) => !/^-|^[\w.@$-]+[<>!]|^(OR|AND|NOT)$/.test(term)).map((term) => term.replace(/^[\w.@$-]+:/, "").replaceAll('"', "")).filter(Boolean);
  if (!words.length) return [text];
  const pattern = new RegExp(`(${words.map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join("|")})`, "gi");
  return text.split(pattern).map((part, at) => (at % 2 ? element("mark", {}, part) : part));
}

// How far the present search has come, over all requests that it takes.
const progress = { searched: Number(root.dataset.searched), extent: Number(root.dataset.extent) };
const isSearch = () => browseForm.elements.search.value.trim() !== "";

function say(total) {
  const found = `${number(total)} event${total === 1 ? "" : "s"}`;
  byId("browse-status").textContent = isSearch()
    ? `${found} found; searched ${number(Math.min(progress.searched, progress.extent))} of ${number(progress.extent)}.`
    : `${found} shown.`;
  const more = byId("more");
  more.hidden = isComplete;
  more.textContent = isSearch() ? "Continue the search" : isNewestFirst ? "Older events" : "Later events";
  const empty = byId("no-events");
  if (empty) empty.hidden = total > 0;
}

async function load(query) {
  searching?.abort();
  const own = (searching = new AbortController());
  byId("cancel-search").hidden = false;
  problem(byId("browse-problem"), null);
  try {
    const answer = await get(`${hub}/events.json?${query}`, { signal: own.signal });
    // An answer that is there cannot be aborted any more, but another search may have begun since.
    return searching === own ? answer : null;
  } catch (error) {
    if (error.name === "AbortError") return null;
    if (!(error instanceof Refused)) throw error;
    problem(byId("browse-problem"), error);
    return null;
  } finally {
    if (searching === own) byId("cancel-search").hidden = true;
  }
}
byId("cancel-search").addEventListener("click", () => {
  searching?.abort();
  byId("browse-status").textContent += " Cancelled.";
});

function take(answer) {
  forward = answer.forward || forward;
  backward = answer.backward || backward;
  isComplete = answer.isComplete;
}

// A choice is searched for so long before the visitor is asked again.
const SEARCH_MS = 10_000;

/** Continue a search, request by request, until a page is full, all is searched, it took long, or it is cancelled. */
async function searchOn(query, wanted) {
  const began = performance.now();
  while (isSearch() && !isComplete && wanted > 0 && performance.now() - began < SEARCH_MS) {
    const answer = await load(queryFor(query, isNewestFirst ? { before: backward } : { after: forward }));
    if (!answer) return;
    const keep = forward;
    take(answer);
    if (isNewestFirst) forward = keep; // following continues where it was
    progress.searched += answer.searched;
    append(answer.events);
    wanted -= answer.events.length;
  }
}

function append(events) {
  body.append(...(isNewestFirst ? events.toReversed() : events).map((event) => row(event)));
  offerColumns(events);
  say(body.children.length);
}

async function browse(query, from) {
  const asked = from ? queryFor(query, { from, value: "" }) : query;
  const answer = await load(asked);
  if (!answer) return;
  isNewestFirst = ["", "newest"].includes(asked.get("from") ?? "");
  if (from) browseForm.elements.from.value = from;
  showValue();
  take(answer);
  Object.assign(progress, { searched: answer.searched, extent: answer.extent });
  body.replaceChildren();
  append(answer.events);
  history.replaceState(null, "", `?${asked}`);
  linkDownloads(asked);
  await searchOn(asked, pageSize() - answer.events.length);
}
const pageSize = () => Number(browseForm.elements.limit.value);

function linkDownloads(query) {
  for (const format of ["jsonl", "csv"]) byId(`download-${format}`).href = `${hub}/events/download?${queryFor(query, { format, limit: 100000 })}`;
}

browseForm.addEventListener("submit", (event) => { event.preventDefault(); byId("follow").checked = false; browse(currentQuery()); });

byId("more").addEventListener("click", async () => {
  const query = currentQuery();
  if (isSearch()) return searchOn(query, pageSize());
  const answer = await load(queryFor(query, isNewestFirst ? { before: backward } : { after: forward }));
  if (!answer) return;
  const keep = forward;
  take(answer);
  if (isNewestFirst) forward = keep; // following continues where it was
  append(answer.events);
});

const VALUES = { time: ["UTC time", "2026-01-31T12:00:00Z"], sequence: ["Number", "0"], offset: ["Offset", "0"] };
function showValue() {
  const chosen = VALUES[browseForm.elements.from.value];
  byId("value-label").hidden = !chosen;
  if (chosen) [byId("value-name").textContent, browseForm.elements.value.placeholder] = chosen;
}
browseForm.elements.from.addEventListener("change", () => {
  showValue();
  const name = browseForm.elements.from.value;
  browseForm.elements.value.value = name === "time" ? new Date(Date.now() - 60_000).toISOString().slice(0, 19) + "Z" : "";
});

// -- following

async function startFollowing() {
  byId("more").hidden = true;
  await browse(currentQuery(), "newest");
}

byId("follow").addEventListener("change", (event) => { if (event.target.checked) startFollowing(); });

every(1, async () => {
  if (!byId("follow").checked || !forward) return;
  const answer = await load(queryFor(currentQuery(), { after: forward, limit: 200 }));
  if (!answer || !byId("follow").checked) return;
  forward = answer.forward || forward;
  if (!answer.events.length) return;
  const fresh = answer.events.map((event) => row(event, true));
  body.prepend(...fresh.toReversed());
  setTimeout(() => fresh.forEach((one) => one.classList.remove("fresh")), 1500);
  while (body.children.length > MAX_ROWS) body.lastElementChild.remove();
  byId("browse-status").textContent = `Following: ${number(body.children.length)} events shown.`;
  const empty = byId("no-events");
  if (empty) empty.hidden = true;
});

// -- one event

function table(title, values) {
  const entries = Object.entries(values);
  if (!entries.length) return null;
  const rows = entries.map(([name, value]) => element("tr", {}, element("th", { scope: "row" }, name), element("td", { class: "mono" }, typeof value === "string" || value instanceof Element ? value : JSON.stringify(value))));
  return element("section", {}, element("h3", {}, title), element("div", { class: "scroll" }, element("table", {}, element("tbody", {}, ...rows))));
}

function hexadecimal(base64) {
  const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  const lines = [];
  for (let at = 0; at < Math.min(bytes.length, 4096); at += 16) {
    const part = [...bytes.slice(at, at + 16)];
    const hex = part.map((byte) => byte.toString(16).padStart(2, "0")).join(" ").padEnd(48);
    lines.push(`${at.toString(16).padStart(6, "0")}  ${hex} ${part.map((byte) => (byte > 31 && byte < 127 ? String.fromCharCode(byte) : ".")).join("")}`);
  }
  if (bytes.length > 4096) lines.push("…");
  return element("pre", { tabindex: "0" }, lines.join("\n"));
}

/** Return a body as it is read: Avro, and values whose schema is in the registry, as records with their bytes below. */
async function contentOf(event, url) {
  if (!event.format) return event.kind === "binary" ? hexadecimal(event.body) : formattedJson(event.body);
  const raw = () => (event.kind === "binary" ? hexadecimal(event.body) : formattedJson(event.body));
  const bytes = element("details", {}, element("summary", {}, "As it is stored"), raw());
  try {
    const { count, records, schema } = await get(`${url}/decoded.json`);
    if (!count && event.format === "framed") return raw(); // a zero byte may begin anything
    return element("div", {}, element("p", { class: "note" }, `${schema ? `Schema ${schema}` : "Avro"}, ${number(count)} record${count === 1 ? "" : "s"}${records.length < count ? `, the first ${number(records.length)} of them below` : ""}.`),
      formattedJson(JSON.stringify(records.length === 1 ? records[0] : records)), bytes);
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    return element("div", {}, element("p", { class: "problem" }, error.message), raw());
  }
}

let opener = null;
async function open(event, from) {
  opener = from;
  const url = `${hub}/events/${event.partition}/${event.sequenceNumber}`;
  const whole = event.isCut ? await get(`${url}.json`) : event;
  const content = await contentOf(whole, url);
  const copy = () => navigator.clipboard.writeText(whole.body).then(() => notice("Copied"), () => notice("The browser does not allow copying"));
  const again = () => {
    form.elements.body.value = whole.body;
    form.elements.partitionKey.value = whole.partitionKey ?? "";
    form.elements.contentType.value = whole.systemProperties["content-type"] ?? "";
    byId("properties").replaceChildren();
    for (const [name, value] of Object.entries(whole.properties)) propertyRow(name, typeof value === "number" ? "number" : typeof value === "boolean" ? "boolean" : "text", String(value));
    byId("event").close();
    form.elements.body.focus();
  };
  const canSend = form && form.offsetParent !== null;
  byId("event-content").replaceChildren(...[
    whole.error ? element("p", { class: "problem" }, whole.error) : null,
    table("Position", { Enqueued: timeElement(whole.enqueuedTime), Partition: whole.partition, "Sequence number": whole.sequenceNumber, Offset: whole.offset, "Partition key": whole.partitionKey ?? "none" }),
    element("section", {},
      element("div", { class: "heading" }, element("h3", {}, `Body (${whole.compression ? `${whole.compression}, ` : ""}${number(whole.size)} bytes)`),
        element("div", { class: "row" }, element("button", { type: "button", class: "quiet", click: copy }, "Copy"),
          canSend && whole.kind !== "binary" ? element("button", { type: "button", class: "quiet", click: again }, "Edit and send again") : null,
          element("a", { class: "button quiet", href: `${url}/body`, download: true }, "Download"))),
      content),
    table("Properties", whole.properties), table("System properties", whole.systemProperties),
  ].filter(Boolean));
  byId("event-title").textContent = `Event ${whole.sequenceNumber} of partition ${whole.partition}`;
  byId("event").showModal();
}
byId("event").addEventListener("close", () => opener?.focus());

// Rows that the server wrote open like those written here.
body.addEventListener("click", async (click) => {
  const link = click.target.closest("a.event");
  if (!link || click.defaultPrevented || click.ctrlKey || click.metaKey) return;
  click.preventDefault();
  open(await get(link.href), link);
});

say(body.children.length);
showValue();
linkDownloads(currentQuery());
if (chosenColumns().length) showColumns();
// What the server wrote has no columns of its own, and is no more than the first part of a search.
if (chosenColumns().length || (isSearch() && !isComplete)) browse(currentQuery());
document.querySelector("details.columns").addEventListener("toggle", async ({ target }) => {
  if (!target.open || offered.size) return;
  try {
    // Beside a search under way, which load() would end.
    offerColumns((await get(`${hub}/events.json?${queryFor(currentQuery(), { limit: 20 })}`)).events);
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    problem(byId("browse-problem"), error);
  }
});
