// Inputs, outputs and functions of a job: samples, a form for their settings, and calls of functions.
import { Refused, confirmed, element, formattedJson, get, moment, notice, post, problem, withCode } from "./_common.js";

const byId = (id) => document.getElementById(id);
const { job } = byId("job").dataset;

/** Do what a button asks for, and say why it cannot be done. */
async function attempt(button, work, refused = (error) => notice(error.message)) {
  button.disabled = true;
  try {
    await work();
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    refused(error);
  } finally {
    button.disabled = false;
  }
}

// -- samples

const inputEvents = ({ events }) => (events.length
  ? events.toReversed().map((one) => element("div", {}, element("small", {}, `${moment(one.arrival)}, partition ${one.partition}, event ${one.sequenceNumber}`), formattedJson(one.body)))
  : [element("p", { class: "empty" }, "The input has no events.")]);
const outputRows = ({ rows }) => (rows.length
  ? rows.toReversed().map((row) => formattedJson(row))
  : [element("p", { class: "empty" }, "The job has written no rows since the service began. Test the query to see what it would write.")]);

async function sample({ sample: name, kind }) {
  const data = await get(`${job}/${kind}s/${encodeURIComponent(name)}/sample.json`);
  byId("sample-title").textContent = `The last ${kind === "input" ? "events" : "rows"} of ${name}`;
  byId("sample-content").replaceChildren(...(kind === "input" ? inputEvents(data) : outputRows(data)));
  byId("sample").showModal();
}

// -- the form

const form = byId("section-form");
let kinds = null;
let edited = { kind: "input", section: null };

function field(one, value, isHidden) {
  const id = `section-${one.name}`;
  const shared = { id, name: `setting-${one.name}`, "data-setting": one.name, "data-form": one.form, "aria-describedby": `${id}-note` };
  const text = value === undefined ? "" : typeof value === "string" ? value : JSON.stringify(value);
  const initial = one.default == null || one.default === "" ? "" : `default: ${typeof one.default === "string" ? one.default : JSON.stringify(one.default)}`;
  let input;
  if (one.isSecret) input = element("input", { ...shared, type: "password", autocomplete: "new-password", "data-hidden": isHidden, placeholder: isHidden ? "unchanged" : "", required: one.isRequired && !isHidden });
  else if (one.form === "choice") input = element("select", { ...shared }, element("option", { value: "" }, initial || "–"), ...one.choices.map((choice) => element("option", { value: choice, selected: choice === value }, String(choice))));
  else if (one.form === "boolean") input = element("select", { ...shared }, element("option", { value: "" }, initial || "–"), ...["true", "false"].map((choice) => element("option", { value: choice, selected: choice === text }, choice)));
  else if (one.form === "json" || one.name === "script") {
    input = element("textarea", { ...shared, class: "code", rows: one.name === "script" ? 8 : 2, placeholder: initial, spellcheck: "false" });
    input.value = text;
  } else input = element("input", { ...shared, type: one.form === "string" ? "text" : "number", step: "any", value: text, placeholder: initial, required: one.isRequired });
  if (one.least != null && input.type === "number") input.min = one.least;
  if (one.most != null && input.type === "number") input.max = one.most;
  const label = `${one.label}${one.unit ? `, ${one.unit}` : ""}${one.isRequired ? " (required)" : ""}`;
  return element("label", { "data-needs": NEEDS[one.name] }, label, input, element("small", { id: `${id}-note` }, ...withCode(one.description)));
}

// Settings that say something only with one format, by their names.
const NEEDS = { delimiter: "csv", csv_delimiter: "csv", json_format: "json", deserializer: "custom", message_prefix: "protobuf" };
const kindShown = () => kinds[`${edited.kind}s`].find(({ type }) => type === (form.elements.type.value ?? "")) ?? kinds[`${edited.kind}s`][0];
const ownHub = () => (byId("section-hub-label").hidden ? "" : form.elements.hub.value);

/** Show the settings that the chosen kind has; those of a hub of this namespace need no connection string. */
function showFields() {
  const kind = kindShown();
  const { settings = {}, hidden = [] } = edited.section ?? {};
  const isSame = (settings.type ?? "") === kind.type;
  byId("section-description").replaceChildren(...withCode(kind.description));
  byId("section-reached").textContent = "";
  byId("section-hub-label").hidden = kind.type !== "eventhub";
  const hub = kinds.hubs.find(({ name }) => name === ownHub());
  const [first, more] = [[], []];
  for (const one of kind.fields) {
    if (hub && (one.name === "connection_string" || one.name === "event_hub")) continue;
    const isHidden = isSame && hidden.includes(one.name);
    const value = isSame && !isHidden ? settings[one.name] : undefined;
    const isFirst = one.isRequired || isHidden || value !== undefined || edited.kind === "function" || FIRST.has(one.name);
    const shown = hub && one.name === "consumer_group" ? { ...one, form: "choice", choices: hub.groups, description: edited.kind === "input" ? "the consumer group to read in; a group of its own for each job keeps them apart" : one.description } : one;
    (isFirst ? first : more).push(field(shown, value, isHidden));
  }
  byId("section-fields").replaceChildren(...first);
  byId("section-more-fields").replaceChildren(...more);
  byId("section-more").hidden = !more.length;
  showNeeded();
}
// What most people set, required or not.
const FIRST = new Set(["consumer_group", "format", "key", "partition_key", "bootstrap_servers", "database", "stream", "key_column"]);

/** Show the settings that go with the chosen format. */
function showNeeded() {
  const format = form.querySelector('[data-setting="format"]')?.value || "json";
  for (const label of form.querySelectorAll("[data-needs]")) label.hidden = label.dataset.needs !== format;
}

async function edit({ edit: kind, section, type, name = "" }) {
  kinds ??= await get("/job-kinds.json");
  edited = { kind, section: section ? JSON.parse(section) : null };
  const place = edited.section?.place?.hub ?? null;
  byId("section-title").textContent = edited.section ? `Edit ${edited.section.name}` : `New ${kind}`;
  form.elements.name.value = edited.section?.name ?? name;
  form.elements.name.readOnly = edited.section != null;
  const chosen = type ?? edited.section?.settings.type;
  form.elements.type.replaceChildren(...kinds[`${kind}s`].map((one) => element("option", { value: one.type, selected: one.type === chosen }, one.title)));
  const isElsewhere = (edited.section && !place) || type;
  form.elements.hub.replaceChildren(...kinds.hubs.map((hub) => element("option", { value: hub.name, selected: hub.name === place }, `${hub.name} (${hub.partitions} partition${hub.partitions === 1 ? "" : "s"})`)),
    element("option", { value: "", selected: isElsewhere }, "another namespace, by a connection string"));
  byId("section-type-label").hidden = kinds[`${kind}s`].length < 2;
  byId("section-remove").hidden = edited.section == null;
  byId("section-test").hidden = kind === "function";
  problem(byId("section-problem"), null);
  showFields();
  byId("section").showModal();
}

/** Return the settings that the form says; a secret that is left empty is null, which keeps it. Throws Refused. */
function settings() {
  const found = form.elements.type.value ? { type: form.elements.type.value } : {};
  for (const input of form.querySelectorAll("[data-setting]")) {
    const { setting, form: kind } = input.dataset;
    const text = input.value;
    if (input.closest("[hidden]")) continue;
    if (text === "") {
      if ("hidden" in input.dataset) found[setting] = null;
    } else if (kind === "json") {
      try {
        found[setting] = JSON.parse(text);
      } catch {
        throw new Refused(`${setting}: this is not JSON`);
      }
    } else if (kind === "boolean") found[setting] = text === "true";
    else if (kind === "number" || kind === "integer") found[setting] = Number(text);
    else found[setting] = text;
  }
  return found;
}

const place = () => `${job}/${edited.kind}s/${encodeURIComponent(form.elements.name.value)}`;
const refused = (error) => problem(byId("section-problem"), error);
form?.elements.type.addEventListener("change", showFields);
form?.elements.hub.addEventListener("change", showFields);
form?.addEventListener("change", showNeeded);
form?.addEventListener("submit", (event) => {
  event.preventDefault();
  problem(byId("section-problem"), null);
  attempt(form.querySelector('[type="submit"]'), async () => {
    await post(place(), { settings: settings(), hub: ownHub(), etag: byId("job").dataset.etag, isNew: edited.section == null });
    location.reload();
  }, refused);
});
byId("section-test")?.addEventListener("click", ({ target }) => {
  const told = byId("section-reached");
  problem(byId("section-problem"), null);
  told.textContent = "Connecting …";
  attempt(target, async () => {
    if (!form.reportValidity()) throw new Refused("fill in what is required first");
    const found = await post(`${place()}/test`, { settings: settings(), hub: ownHub() });
    told.replaceChildren(element("span", { class: `state state-${REACHED[found.status]}` }, found.status === "untested" ? "not tested" : found.status), ` ${found.text}`);
  }, (error) => { told.textContent = ""; refused(error); });
});
const REACHED = { connected: "ok", reached: "warning", untested: "created" };
byId("section-remove")?.addEventListener("click", async (event) => {
  const button = event.target;
  if (!(await confirmed(`Remove ${form.elements.name.value}?`, "Remove"))) return;
  attempt(button, async () => {
    await post(`${place()}/delete`, { etag: byId("job").dataset.etag });
    location.reload();
  }, refused);
});

/** Begin with what the page of new jobs left to set up here, one after the other. */
if (form && location.hash.startsWith("#add=")) {
  const [first, ...others] = new URLSearchParams(location.hash.slice(1)).getAll("add");
  const [kind, type, name] = first.split(":");
  history.replaceState(null, "", others.length ? `#${new URLSearchParams(others.map((one) => ["add", one]))}` : location.pathname);
  edit({ edit: kind, type, name }).catch((error) => notice(error.message));
}

// -- functions

const trying = byId("try-form");
trying.addEventListener("submit", (event) => {
  event.preventDefault();
  problem(byId("try-problem"), null);
  byId("try-result").textContent = "";
  attempt(trying.querySelector('[type="submit"]'), async () => {
    let values;
    try {
      values = JSON.parse(trying.elements.arguments.value);
    } catch {
      throw new Refused("the arguments are not JSON");
    }
    const found = await post(`${job}/functions/${encodeURIComponent(trying.dataset.name)}/try`, { arguments: values });
    byId("try-result").textContent = JSON.stringify(found.result, null, 2);
    if (found.errors.length) throw new Refused(found.errors.join("\n"));
  }, (error) => problem(byId("try-problem"), error));
});

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-sample], [data-edit], [data-try]");
  if (!button) return;
  if (button.dataset.try) {
    trying.dataset.name = button.dataset.try;
    byId("try-title").textContent = `Try ${button.dataset.try}`;
    byId("try-result").textContent = "";
    problem(byId("try-problem"), null);
    byId("try").showModal();
  } else attempt(button, () => (button.dataset.edit ? edit(button.dataset) : sample(button.dataset)));
});
