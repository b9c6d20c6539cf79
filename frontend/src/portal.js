// Every page: dialogs, forms that send JSON, buttons that ask before they act, and figures that stay current.
import { Refused, every, fill, get, notice, post, problem } from "./_common.js";

document.addEventListener("click", (event) => {
  const opener = event.target.closest("[data-opens]");
  if (opener) document.getElementById(opener.dataset.opens).showModal();
  if (event.target.closest("[data-closes]")) event.target.closest("dialog").close();
});

/** Return a form's values as JSON: empty numbers are null, and names with data-type are of that type. */
function values(form) {
  const found = {};
  for (const field of form.elements) {
    if (!field.name || field.readOnly) continue;
    if (field.type === "checkbox") found[field.name] = field.checked;
    else if (field.type === "radio") {
      if (field.checked) found[field.name] = field.value;
    } else if (field.dataset.type) found[field.name] = field.value.trim() === "" ? null : Number(field.value);
    else found[field.name] = field.value;
  }
  return found;
}

for (const form of document.querySelectorAll("form[data-action]")) {
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const refused = form.querySelector(".problem");
    const submit = form.querySelector('[type="submit"]');
    problem(refused, null);
    submit.disabled = true;
    try {
      const answer = await post(form.dataset.action, values(form));
      if (form.dataset.shows) await show(form, answer[form.dataset.shows]);
      else if (form.dataset.then) location.assign(form.dataset.then.replace("{name}", encodeURIComponent(answer.name ?? "")));
      else location.reload();
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      problem(refused, error);
    } finally {
      submit.disabled = false;
    }
  });
}

async function show(form, text) {
  const field = form.elements[form.dataset.shows];
  field.value = text;
  field.select();
  try {
    await navigator.clipboard.writeText(text);
    notice("Copied");
  } catch {
    notice("Shown; copy it from the field");
  }
  form.closest("dialog").addEventListener("close", () => (field.value = ""), { once: true });
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-post]");
  if (!button || (button.dataset.confirm && !confirm(button.dataset.confirm))) return;
  button.disabled = true;
  try {
    await post(button.dataset.post, JSON.parse(button.dataset.body ?? "{}"));
    location.reload();
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    notice(error.message);
    button.disabled = false;
  }
});

const overview = document.querySelector("[data-live-overview]");
if (overview) {
  every(3, async () => {
    const data = await get(`/.json${location.search}`);
    const rows = new Map(data.hubs.map((hub) => [hub.name, hub]));
    for (const row of overview.querySelectorAll("tr[data-hub]")) {
      if (rows.has(row.dataset.hub)) fill(row, rows.get(row.dataset.hub));
    }
  });
}

const hub = document.querySelector("[data-live-hub]");
if (hub) {
  every(2, async () => {
    const data = await get(hub.dataset.liveHub);
    fill(hub, data);
    const rows = new Map(data.partitionRows.map((row) => [row.id, row]));
    for (const row of document.querySelectorAll("[data-rows] tr[data-row]")) {
      if (rows.has(row.dataset.row)) fill(row, rows.get(row.dataset.row));
    }
  });
}

// Any table whose rows name their data: data-live is the page's JSON, data-refresh how often it is asked for.
