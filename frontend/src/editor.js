// The query editor: highlighting, the compiler's errors in place, completion, saving, and testing on samples.
import { autocompletion, closeBrackets, closeBracketsKeymap, completionKeymap } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { HighlightStyle, StreamLanguage, bracketMatching, syntaxHighlighting } from "@codemirror/language";
import { lintKeymap, linter } from "@codemirror/lint";
import { EditorState } from "@codemirror/state";
import { EditorView, drawSelection, highlightActiveLine, keymap, lineNumbers, placeholder } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { Refused, element, formattedJson, get, moment, notice, number, post, problem } from "./_common.js";

const byId = (id) => document.getElementById(id);
const job = byId("job").dataset.job;
const place = byId("editor");
const names = JSON.parse(place.dataset.names);
const inputs = JSON.parse(place.dataset.inputs);
const isReadOnly = "readonly" in place.dataset;
let etag = byId("job").dataset.etag;
let saved = byId("query").value;

// -- the language, as far as colours need it

const KEYWORDS = new Set();
const FUNCTIONS = new Set();
const language = StreamLanguage.define({
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
const colours = HighlightStyle.define([
  { tag: tags.keyword, color: "var(--s1)", fontWeight: "600" }, { tag: tags.function(tags.variableName), color: "var(--s3)" },
  { tag: tags.string, color: "var(--s4)" }, { tag: tags.number, color: "var(--s2)" }, { tag: tags.comment, color: "var(--faint)", fontStyle: "italic" },
]);
const look = EditorView.theme({
  "&": { backgroundColor: "var(--panel)", color: "var(--text)", border: "1px solid #7d8b97", borderRadius: "8px", fontSize: "14px" },
  "&.cm-focused": { outline: "3px solid var(--focus)", outlineOffset: "2px" },
  ".cm-content": { fontFamily: 'ui-monospace, "SF Mono", Menlo, Consolas, monospace', caretColor: "var(--text)", minHeight: "9rem" },
  ".cm-gutters": { backgroundColor: "var(--quiet)", color: "var(--faint)", border: "0" },
  ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "transparent" },
  ".cm-cursor": { borderLeftColor: "var(--text)" },
  "&.cm-focused .cm-selectionBackground, .cm-selectionBackground": { backgroundColor: "color-mix(in srgb, var(--s1) 28%, transparent) !important" },
  ".cm-tooltip": { backgroundColor: "var(--panel)", color: "var(--text)", border: "1px solid var(--line)" },
  ".cm-tooltip-autocomplete ul li[aria-selected]": { backgroundColor: "var(--accent)", color: "var(--on-accent)" },
  ".cm-scroller": { overflow: "auto", maxHeight: "28rem" },
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
let fields = null;
async function knownFields() {
  if (fields) return fields;
  fields = [];
  for (const input of inputs) {
    try {
      const { events } = await get(`${job}/inputs/${encodeURIComponent(input)}/sample.json`);
      const found = new Set();
      for (const { body } of events) {
        try {
          for (const name of Object.keys(JSON.parse(body))) found.add(name);
        } catch {
          // Not an object: it has no fields to offer.
        }
      }
      fields.push(...[...found].map((label) => ({ label: /^\w+$/.test(label) ? label : `[${label}]`, type: "property", detail: input })));
    } catch {
      // Without a sample, there are no fields to offer.
    }
  }
  return fields;
}

async function complete(context) {
  const word = context.matchBefore(/[\w.@$]*/);
  if (!word || (word.from === word.to && !context.explicit)) return null;
  const own = names.map((label) => ({ label, type: "variable", detail: inputs.includes(label) ? "input" : "output", boost: 2 }));
  return { from: word.from, options: [...own, ...(await knownFields()), ...words], validFor: /^[\w.@$]*$/ };
}

get("/jobs/words.json").then((answer) => {
  words = answer.words;
  for (const word of words) (word.type === "keyword" ? KEYWORDS : FUNCTIONS).add(word.label.toUpperCase());
  view.setState(makeState(view.state.doc.toString()));
}, () => {});

// -- the editor

function changed() {
  const button = byId("save");
  if (button) button.disabled = view.state.doc.toString() === saved;
}

const nonce = document.querySelector('meta[name="style-nonce"]').content;
const makeState = (doc) =>
  EditorState.create({
    doc,
    extensions: [
      EditorView.cspNonce.of(nonce), lineNumbers(), history(), drawSelection(), bracketMatching(), closeBrackets(), highlightActiveLine(),
      language, syntaxHighlighting(colours), look, EditorView.lineWrapping, placeholder("SELECT * INTO output FROM input"),
      EditorView.contentAttributes.of({ "aria-label": "Query", id: "query-editor", tabindex: "0" }),
      EditorState.readOnly.of(isReadOnly),
      linter(check, { delay: 350 }), autocompletion({ override: [complete] }),
      keymap.of([{ key: "Mod-s", run: () => { save(); return true; } }, { key: "Mod-Enter", run: () => { test(); return true; } },
        ...closeBracketsKeymap, ...completionKeymap, ...lintKeymap, ...defaultKeymap, ...historyKeymap, { ...indentWithTab, key: "Ctrl-]" }]),
      EditorView.updateListener.of((update) => { if (update.docChanged) changed(); }),
    ],
  });
const view = new EditorView({ state: makeState(saved), parent: place });
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

function rowsTable(rows) {
  const columns = [...new Set(rows.flatMap(({ row }) => Object.keys(row)))];
  const cell = (value) => (value === undefined ? "" : value !== null && typeof value === "object" ? JSON.stringify(value) : value === null ? "null" : String(value));
  return element("table", {},
    element("thead", {}, element("tr", {}, element("th", { scope: "col" }, "System.Timestamp"), ...columns.map((name) => element("th", { scope: "col", class: typeof rows[0].row[name] === "number" ? "num" : null }, name)))),
    element("tbody", {}, ...rows.map(({ time, row }) => element("tr", {}, element("td", { class: "nowrap" }, moment(time)), ...columns.map((name) => element("td", { class: typeof row[name] === "number" ? "num" : null }, cell(row[name])))))));
}

async function test() {
  const form = byId("test-form");
  if (!form) return;
  problem(byId("test-problem"), null);
  byId("test").disabled = true;
  byId("test-status").textContent = "Testing …";
  try {
    const uploaded = {};
    for (const field of form.querySelectorAll("[data-input]")) if (field.files[0]) uploaded[field.dataset.input] = await field.files[0].text();
    const found = await post(`${job}/test`, { query: view.state.doc.toString(), uploaded, events: Number(form.elements.events.value) || 1000 });
    const events = Object.entries(found.events).map(([name, count]) => `${number(count)} of ${name}`).join(", ");
    byId("test-status").textContent = `${number(found.milliseconds)} ms over ${events}; ${found.policy}`;
    const touched = Object.entries(found.metrics).filter(([name, count]) => count && !/^Input (Events|Event Bytes|Sources)/.test(name)).map(([name, count]) => `${name}: ${number(count)}`);
    byId("test-results").replaceChildren(
      ...[...found.notes, ...found.errors, ...(touched.length ? [touched.join(" · ")] : [])].map((text) => element("p", { class: "note" }, text)),
      ...found.outputs.map((output) => element("section", { "aria-label": `Rows of ${output.name}` },
        element("div", { class: "heading" }, element("h3", {}, `${output.name}: ${number(output.count)} row${output.count === 1 ? "" : "s"}${output.count > output.rows.length ? `, the first ${number(output.rows.length)} shown` : ""}`),
          element("button", { type: "button", class: "quiet", click: () => download(output) }, "Download")),
        output.rows.length ? element("div", { class: "scroll rows", tabindex: "0", role: "region", "aria-label": `Rows of ${output.name}` }, rowsTable(output.rows)) : element("p", { class: "empty" }, "No rows."))));
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
