// The query editor: highlighting, the compiler's errors in place, completion, saving, and testing on samples.
import { autocompletion, closeBrackets, closeBracketsKeymap, completionKeymap } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { HighlightStyle, StreamLanguage, bracketMatching, syntaxHighlighting } from "@codemirror/language";
import { lintKeymap, linter } from "@codemirror/lint";
import { Compartment, EditorState } from "@codemirror/state";
import { EditorView, drawSelection, highlightActiveLine, keymap, lineNumbers, placeholder } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { Refused, confirmed, element, every, get, notice, number, post, problem, rate, sparkline, tabList, timeElement } from "./_common.js";
import { TEMPLATES, differences } from "./_queries.js";

const byId = (id) => document.getElementById(id);
const job = byId("job").dataset.job;
const place = byId("editor");
const names = JSON.parse(place.dataset.names);
const inputs = JSON.parse(place.dataset.inputs);
const isReadOnly = "readonly" in place.dataset;
let etag = byId("job").dataset.etag;
let saved = byId("query").value;

// -- the language, as far as colours need it

// The usual ones are known at once; the compiler's own are added when they have arrived.
const KEYWORDS = new Set("ADD AND APPLY AS ASC BETWEEN BY CASE CAST CREATE CROSS DATEDIFF DESC DISTINCT ELSE END EXISTS FROM FULL GROUP HAVING IN INNER INTO IS JOIN LEFT LIKE LIMIT MATCH_RECOGNIZE MEASURES NOT NULL ON OR ORDER OUTER OVER PARTITION PATTERN SELECT TABLE THEN TIMESTAMP TOP TRY_CAST UNION WHEN WHERE WITH".split(" "));
const FUNCTIONS = new Set();
const language = () => StreamLanguage.define({
  name: "saql",
  token(stream, state) {
    if (state.inComment) {
      if (stream.match(/.*?\*\//)) state.inComment = false;
      else stream.skipToEnd();
      return "comment";
    }
    if (stream.eatSpace()) return null;
    if (stream.match("--")) { stream.skipToEnd(); return "comment"; }
    if (stream.match("/*")) { state.inComment = true; return "comment"; }
    if (stream.match(/'(?:[^']|'')*'?/)) return "string";
    if (stream.match(/\[[^\]]*\]?|"[^"]*"?/)) return "variableName";
    if (stream.match(/\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/)) return "number";
    const word = stream.match(/[A-Za-z_@][\w@$]*(?:\.[A-Za-z_][\w]*)*/);
    if (word) {
      const text = word[0].toUpperCase();
      if (KEYWORDS.has(text)) return "keyword";
      return FUNCTIONS.has(text) || /^\s*\(/.test(stream.string.slice(stream.pos)) ? "function" : "variableName";
    }
    stream.next();
    return "operator";
  },
  startState: () => ({ inComment: false }),
  tokenTable: { function: tags.function(tags.variableName) },
  languageData: { commentTokens: { line: "--", block: { open: "/*", close: "*/" } } },
});
const languageInUse = new Compartment();
const colours = HighlightStyle.define([
  { tag: tags.keyword, color: "var(--s1)", fontWeight: "600" }, { tag: tags.function(tags.variableName), color: "var(--s3)" },
  { tag: tags.string, color: "var(--s4)" }, { tag: tags.number, color: "var(--s2)" }, { tag: tags.comment, color: "var(--faint)", fontStyle: "italic" },
]);
const look = EditorView.theme({
  "&": { backgroundColor: "var(--panel)", color: "var(--text)", border: "1px solid #7d8b97", borderRadius: "8px", fontSize: "14px", height: "100%" },
  "&.cm-focused": { outline: "3px solid var(--focus)", outlineOffset: "2px" },
  ".cm-content": { fontFamily: 'ui-monospace, "SF Mono", Menlo, Consolas, monospace', caretColor: "var(--text)", minHeight: "100%" },
  ".cm-gutters": { backgroundColor: "var(--quiet)", color: "var(--faint)", border: "0" },
  ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "transparent" },
  ".cm-cursor": { borderLeftColor: "var(--text)" },
  "&.cm-focused .cm-selectionBackground, .cm-selectionBackground": { backgroundColor: "color-mix(in srgb, var(--s1) 28%, transparent) !important" },
  ".cm-tooltip": { backgroundColor: "var(--panel)", color: "var(--text)", border: "1px solid var(--line)" },
  ".cm-tooltip-autocomplete ul li[aria-selected]": { backgroundColor: "var(--accent)", color: "var(--on-accent)" },
  ".cm-scroller": { overflow: "auto" },
});

// -- what the compiler says

function offset(state, line, column) {
  const found = state.doc.line(Math.min(line, state.doc.lines));
  return Math.min(found.from + column - 1, found.to);
}

let isWrong = false;
async function check(view) {
  const query = view.state.doc.toString();
  const said = byId("compiled");
  let found;
  try {
    found = await post(`${job}/compile`, { query });
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    said.textContent = error.message;
    return [];
  }
  const diagnostics = [...found.errors.map((one) => [one, "error"]), ...found.warnings.map((one) => [one, "warning"])];
  isWrong = found.errors.length > 0;
  said.textContent = isWrong ? `${found.errors.length} error${found.errors.length === 1 ? "" : "s"}` : "The query compiles";
  byId("diagnostics").replaceChildren(...diagnostics.map(([one, severity]) =>
    element("li", {}, element("span", { class: `state state-${severity === "error" ? "failed" : "degraded"}` }, severity), " ",
      element("a", { href: "#editor", click: (event) => { event.preventDefault(); const at = offset(view.state, one.line, one.column); view.dispatch({ selection: { anchor: at }, scrollIntoView: true }); view.focus(); } }, `line ${one.line}, column ${one.column}`),
      `: ${one.message}${one.hint ? ` (${one.hint})` : ""}`)));
  return diagnostics.map(([one, severity]) => {
    const from = offset(view.state, one.line, one.column);
    const to = Math.max(from, Math.min(from + one.length, view.state.doc.lineAt(from).to));
    return { from, to: to > from ? to : Math.min(from + 1, view.state.doc.length), severity, message: one.hint ? `${one.message}\n${one.hint}` : one.message };
  });
}

// -- completion

let words = [];
// The last events of each input, once they have been asked for.
const samples = new Map();
function sampleOf(input, isFresh = false) {
  if (isFresh || !samples.has(input)) {
    const asked = get(`${job}/inputs/${encodeURIComponent(input)}/sample.json?preview=yes`).then(({ events, problem: reason }) => {
      if (reason) throw new Refused(reason);
      return events.map((event) => ({ ...event, value: parsedBody(event.body) }));
    });
    samples.set(input, asked);
    asked.catch(() => samples.delete(input));
  }
  return samples.get(input);
}

function parsedBody(body) {
  try {
    return JSON.parse(body);
  } catch {
    return null;
  }
}

/** Return the fields of an input's events with an example of each; below a field, those of its object. */
async function fieldsOf(input, path = []) {
  let events;
  try {
    events = await sampleOf(input);
  } catch {
    return []; // Without a sample, there are no fields to offer.
  }
  const found = new Map();
  for (const { value } of events) {
    const record = path.reduce((inner, name) => inner?.[Object.keys(inner).find((key) => key.toLowerCase() === name.toLowerCase())], value);
    if (record === null || typeof record !== "object" || Array.isArray(record)) continue;
    for (const [name, example] of Object.entries(record)) if (found.get(name) == null) found.set(name, example);
  }
  return [...found].map(([name, example]) => ({ label: /^\w+$/.test(name) ? name : `[${name}]`, type: "property", detail: `${input}, such as ${JSON.stringify(example).slice(0, 30)}` }));
}

/** Return the inputs of the query by the names that it gives them: its own and its aliases. */
function namedInputs(query) {
  const named = new Map(inputs.map((input) => [input.toLowerCase(), input]));
  for (const [, source, alias] of query.matchAll(/\b(?:FROM|JOIN)\s+\[?([\w-]+)\]?\s+(?:AS\s+)?(?!(?:TIMESTAMP|PARTITION|WHERE|GROUP|JOIN|ON|LEFT|INNER|FULL|CROSS|UNION|HAVING|MATCH_RECOGNIZE|INTO|AS)\b)([A-Za-z_]\w*)/gi)) {
    if (named.has(source.toLowerCase())) named.set(alias.toLowerCase(), named.get(source.toLowerCase()));
  }
  return named;
}

const SYSTEM = [{ label: "Timestamp()", type: "function", detail: "the event's time, or the window's end" }, { label: "Window", type: "property", detail: "start and end of the window" }];
async function complete(context) {
  const dotted = context.matchBefore(/(?:\[[^\]]+\]|[A-Za-z_]\w*)(?:\.\w+)*\.\w*/);
  if (dotted) {
    const parts = dotted.text.match(/\[[^\]]+\]|\w+|\.(?=$)/g);
    const typed = dotted.text.endsWith(".") ? "" : parts.pop();
    const [first, ...path] = parts.filter((part) => part !== ".").map((part) => part.replace(/^\[|\]$/g, ""));
    const input = namedInputs(context.state.doc.toString()).get(first.toLowerCase());
    const from = context.pos - typed.length;
    if (input) return { from, options: await fieldsOf(input, path), validFor: /^\w*$/ };
    if (first.toLowerCase() === "system") return { from, options: SYSTEM, validFor: /^\w*$/ };
    const within = (await Promise.all(inputs.map((one) => fieldsOf(one, [first, ...path])))).flat();
    if (within.length) return { from, options: within, validFor: /^\w*$/ };
  }
  const word = context.matchBefore(/[\w.@$]*/);
  if (!word || (word.from === word.to && !context.explicit)) return null;
  const own = names.map((label) => ({ label, type: "variable", detail: inputs.includes(label) ? "input" : "output", boost: 2 }));
  const fields = (await Promise.all(inputs.map((input) => fieldsOf(input)))).flat();
  return { from: word.from, options: [...own, ...fields, ...words], validFor: /^[\w.@$]*$/ };
}

get("/job-words.json").then((answer) => {
  words = answer.words;
  for (const word of words) (word.type === "keyword" ? KEYWORDS : FUNCTIONS).add(word.label.toUpperCase());
  // The text is coloured anew; the caret and what can be undone stay, as somebody may be typing.
  view.dispatch({ effects: languageInUse.reconfigure(language()) });
}, () => {});

// -- the editor

function changed() {
  const button = byId("save");
  if (button) button.disabled = byId("compare").disabled = view.state.doc.toString() === saved;
}

/** Replace what is selected by what is typed. A browser would keep the look of the old text as an inline style, which the page forbids. */
function replaceSelected(event, target) {
  const { inputType, data, isComposing } = event;
  if (inputType !== "insertText" || data == null || isComposing || isReadOnly || target.state.selection.main.empty || /^[([{'"]$/.test(data)) return false;
  event.preventDefault();
  target.dispatch(target.state.replaceSelection(data));
  return true;
}

const nonce = document.querySelector('meta[name="style-nonce"]').content;
const state = EditorState.create({
  doc: saved,
  extensions: [
    EditorView.cspNonce.of(nonce), lineNumbers(), history(), drawSelection(), bracketMatching(), closeBrackets(), highlightActiveLine(),
    languageInUse.of(language()), syntaxHighlighting(colours), look, EditorView.lineWrapping, placeholder("SELECT * INTO output FROM input"),
    EditorView.contentAttributes.of({ "aria-label": "Query", id: "query-editor", tabindex: "0" }),
    EditorState.readOnly.of(isReadOnly),
    linter(check, { delay: 350 }), autocompletion({ override: [complete] }),
    keymap.of([{ key: "Mod-s", run: () => { save(); return true; } }, { key: "Mod-Enter", run: () => { test(); return true; } },
      ...closeBracketsKeymap, ...completionKeymap, ...lintKeymap, ...defaultKeymap, ...historyKeymap, { ...indentWithTab, key: "Ctrl-]" }]),
    EditorView.domEventHandlers({ beforeinput: replaceSelected }),
    EditorView.updateListener.of((update) => { if (update.docChanged) changed(); }),
  ],
});
const view = new EditorView({ state, parent: place });
view.contentDOM.spellcheck = false;

async function save() {
  const button = byId("save");
  if (!button) return;
  const query = view.state.doc.toString();
  problem(byId("query-problem"), null);
  button.disabled = true;
  try {
    ({ etag } = await post(`${job}/query`, { query, etag }));
    byId("job").dataset.etag = etag;
    saved = query;
    notice("Saved");
    if (byId("job").dataset.state === "Running") setTimeout(() => location.reload(), 800);
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    problem(byId("query-problem"), error);
  }
  changed();
}
byId("save")?.addEventListener("click", save);
addEventListener("beforeunload", (event) => { if (!isReadOnly && view.state.doc.toString() !== saved) event.preventDefault(); });

// -- testing

const MOMENT = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{7}Z$/; // a datetime of the query, with its seven decimals
function rowsTable(rows) {
  const columns = [...new Set(rows.flatMap(({ row }) => Object.keys(row)))];
  const cell = (value) => (typeof value === "string" && MOMENT.test(value) ? timeElement(value) : value === undefined ? "" : value !== null && typeof value === "object" ? JSON.stringify(value) : value === null ? "null" : String(value));
  return element("table", {},
    element("thead", {}, element("tr", {}, element("th", { scope: "col" }, "System.Timestamp"), ...columns.map((name) => element("th", { scope: "col", class: typeof rows[0].row[name] === "number" ? "num" : null }, name)))),
    element("tbody", {}, ...rows.map(({ time, row }) => element("tr", {}, element("td", { class: "nowrap" }, timeElement(time)), ...columns.map((name) => element("td", { class: typeof row[name] === "number" ? "num" : MOMENT.test(row[name]) ? "nowrap" : null }, cell(row[name])))))));
}

/** Run a query on the samples: the one in the editor, or an earlier version. */
async function test(query = view.state.doc.toString(), version = "") {
  const form = byId("test-form");
  if (!form) return;
  showPane("results");
  problem(byId("test-problem"), null);
  byId("test").disabled = true;
  byId("test-status").textContent = "Testing …";
  try {
    const uploaded = {};
    for (const field of form.querySelectorAll("[data-input]")) if (field.files[0]) uploaded[field.dataset.input] = await field.files[0].text();
    const found = await post(`${job}/test`, { query, uploaded, events: Number(form.elements.events.value) || 1000 });
    const events = Object.entries(found.events).map(([name, count]) => `${number(count)} of ${name}`).join(", ");
    byId("test-status").textContent = `${version ? `Version ${version}: ` : ""}${number(found.milliseconds)} ms over ${events}; ${found.policy}`;
    const touched = Object.entries(found.metrics).filter(([name, count]) => count && !/^Input (Events|Event Bytes|Sources)/.test(name)).map(([name, count]) => `${name}: ${number(count)}`);
    byId("test-results").replaceChildren(
      ...found.notes.map((text) => element("p", { class: "note" }, text)),
      ...found.outputs.map((output) => element("section", { "aria-label": `Rows of ${output.name}` },
        element("div", { class: "heading" }, element("h3", {}, `${output.name}: ${number(output.count)} row${output.count === 1 ? "" : "s"}${output.count > output.rows.length ? `, the first ${number(output.rows.length)} shown` : ""}`),
          element("button", { type: "button", class: "quiet", click: () => download(output) }, "Download")),
        output.rows.length ? element("div", { class: "scroll rows", tabindex: "0", role: "group", "aria-label": `Rows of ${output.name}` }, rowsTable(output.rows)) : element("p", { class: "empty" }, "No rows."))),
      ...(touched.length || found.errors.length ? [element("details", { class: "help" }, element("summary", {}, touched.join(" · ") || "Data errors"), ...found.errors.map((text) => element("p", { class: "note" }, text)))] : []));
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    byId("test-status").textContent = "";
    byId("test-results").replaceChildren();
    problem(byId("test-problem"), error);
  } finally {
    byId("test").disabled = false;
  }
}

function download(output) {
  const lines = output.rows.map(({ row }) => JSON.stringify(row)).join("\n");
  const link = element("a", { href: URL.createObjectURL(new Blob([`${lines}\n`], { type: "application/x-ndjson" })), download: `${output.name}.jsonl` });
  link.click();
  URL.revokeObjectURL(link.href);
}

byId("test-form")?.addEventListener("submit", (event) => { event.preventDefault(); test(); });
byId("test")?.addEventListener("click", () => test());

// -- the panes beside the query

const showPane = tabList(document.querySelector(".pane-tabs"));

// Below the editor, the chosen tab is in the address, so that it is there again when the page is loaded again.
const parts = byId("parts");
const showPart = tabList(parts, (name) => window.history.replaceState(null, "", `#${name}`));
const named = location.hash.slice(1);
if (parts.querySelector(`#tab-${CSS.escape(named)}`)) showPart(named);

const cellText = (value) => (value === undefined ? "" : typeof value === "object" ? JSON.stringify(value) : String(value));
async function preview(isFresh = false) {
  const input = byId("preview-input").value;
  if (!input) {
    byId("preview-status").textContent = "The job has no input yet.";
    return;
  }
  byId("preview-status").textContent = "Reading …";
  try {
    const events = (await sampleOf(input, isFresh)).toReversed();
    const columns = [...new Set(events.flatMap(({ value }) => (value && typeof value === "object" && !Array.isArray(value) ? Object.keys(value) : [])))];
    byId("preview-status").textContent = events.length ? `the last ${events.length} events` : "The input has no events.";
    byId("preview").replaceChildren(...(events.length ? [element("table", {},
      element("thead", {}, element("tr", {}, ...(columns.length ? columns : ["body"]).map((name) => element("th", { scope: "col", class: typeof events.find(({ value }) => value?.[name] != null)?.value[name] === "number" ? "num" : null }, name)), element("th", { scope: "col" }, "arrived"), element("th", { scope: "col", class: "num" }, "partition"))),
      element("tbody", {}, ...events.map(({ value, body, arrival, partition }) => element("tr", {},
        ...(value && typeof value === "object" && !Array.isArray(value) && columns.length ? columns.map((name) => element("td", { class: typeof value[name] === "number" ? "num" : null }, cellText(value[name]))) : [element("td", { colspan: Math.max(1, columns.length) }, element("code", {}, body.slice(0, 500)))]),
        element("td", { class: "nowrap" }, timeElement(arrival)), element("td", { class: "num" }, partition)))))] : []));
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    byId("preview-status").textContent = error.message;
    byId("preview").replaceChildren();
  }
}
byId("preview-input").addEventListener("change", () => preview());
byId("preview-refresh").addEventListener("click", () => preview(true));
preview();

// -- versions, changes and templates

function showDiff(title, note, before, after) {
  byId("diff-title").textContent = title;
  byId("diff-note").textContent = note;
  const lines = differences(before, after);
  byId("diff-lines").replaceChildren(...(lines.some(({ sign }) => sign !== " ") ? lines : []).map(({ sign, text }) =>
    element(sign === "+" ? "ins" : sign === "-" ? "del" : "span", {}, `${sign} ${text}\n`)));
  if (!byId("diff-lines").childElementCount) byId("diff-lines").textContent = "There is no difference.";
  byId("diff").showModal();
}

byId("compare")?.addEventListener("click", () => showDiff("Changes that are not saved", "− is what the job has, + what the editor has.", saved, view.state.doc.toString()));
byId("versions")?.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-version]");
  if (!button) return;
  const { query, number: version } = button.closest("tr").dataset;
  const written = view.state.doc.toString();
  if (button.dataset.version === "compare") showDiff(`Version ${version} and the editor`, `− is what version ${version} had, + what the editor has.`, query, written);
  else if (button.dataset.version === "run") {
    byId("query-title").scrollIntoView();
    test(query, version);
  } else {
    if (written !== saved && !(await confirmed("Replace what is in the editor? It is not saved.", "Replace"))) return;
    write(query);
    notice(`Version ${version} is in the editor; Save makes the job run it.`);
  }
});

function write(query) {
  view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: query } });
  byId("query-title").scrollIntoView();
  view.focus();
}

const templates = byId("template");
templates?.append(...TEMPLATES.map(({ title }, at) => element("option", { value: at }, title)));
templates?.addEventListener("change", async () => {
  const chosen = TEMPLATES[templates.value];
  templates.value = "";
  if (!chosen) return;
  const written = view.state.doc.toString();
  if (written !== saved && written.trim() && !(await confirmed("Replace what is in the editor? It is not saved.", "Replace"))) return;
  const bracketed = (name) => (/^[A-Za-z_]\w*$/.test(name) ? name : `[${name}]`);
  const outputs = names.filter((name) => !inputs.includes(name));
  const fields = inputs.length ? await fieldsOf(inputs[0]) : [];
  write(chosen.query({ input: bracketed(inputs[0] ?? "input"), other: bracketed(inputs[1] ?? inputs[0] ?? "other"), output: bracketed(outputs[0] ?? "output"), fields }));
});

// -- how the job is

if (byId("health")) {
  const kept = { times: [], metrics: {}, rates: {} };
  const keep = (data) => {
    kept.times.push(...data.times);
    for (const kind of ["metrics", "rates"]) {
      for (const name of new Set([...Object.keys(kept[kind]), ...Object.keys(data[kind])])) {
        (kept[kind][name] ??= []).push(...(data[kind][name] ?? data.times.map(() => null)));
        kept[kind][name] = kept[kind][name].slice(-300);
      }
    }
    kept.times = kept.times.slice(-300);
  };
  const show = async () => {
    const data = await get(`${job}/metrics.json?range=5m&after=${kept.times.at(-1) ?? 0}`);
    if (!data.times.length) return;
    keep(data);
    for (const place of byId("health").querySelectorAll("[data-spark]")) place.replaceChildren(sparkline(kept[place.dataset.kind][place.dataset.spark] ?? []));
    for (const place of byId("health").querySelectorAll("[data-health]")) {
      const value = kept[place.dataset.kind][place.dataset.health]?.at(-1);
      place.textContent = value == null ? "–" : place.dataset.kind === "rates" ? rate(value) : `${number(Math.round(value * 10) / 10)}${place.dataset.unit}`;
    }
  };
  show().catch(() => {});
  every(2, show);
}
