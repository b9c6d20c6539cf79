// Every page: dialogs, forms that send JSON, buttons that ask before they act, and figures that stay current.
import { Refused, badge, confirmed, every, fill, get, notice, post, problem, tell, zone } from "./_common.js";

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
  if (!button || (button.dataset.confirm && !(await confirmed(button.dataset.confirm, button.textContent.trim())))) return;
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

if (document.querySelector("[data-live-overview]")) {
  const rowsBy = (name) => [...document.querySelectorAll(`tr[data-${name}]`)].map((row) => [row, row.dataset[name]]);
  every(3, async () => {
    const data = await get(`/.json${location.search}`);
    const hubs = new Map(data.hubs.map((hub) => [hub.name, hub]));
    for (const [row, name] of rowsBy("hub")) if (hubs.has(name)) fill(row, hubs.get(name));
    const jobs = new Map(data.jobs.map((job) => [job.name, job]));
    for (const [row, name] of rowsBy("job")) {
      if (!jobs.has(name)) continue;
      fill(row, jobs.get(name));
      badge(row.querySelector(".state"), jobs.get(name).state);
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

// A job's state changes by itself: its page shows it, with what can be done then, and keeps what was typed.
const job = document.getElementById("job");
if (job) {
  every(2, async () => {
    const data = await get(`${job.dataset.job}/standing.json`);
    badge(document.getElementById("state"), data.state);
    job.dataset.state = data.state;
    for (const button of job.querySelectorAll("[data-when]")) {
      button.hidden = !data[button.dataset.when];
      if (button.hidden) button.disabled = false;
    }
    const reason = document.getElementById("reason");
    if (reason.textContent !== (data.reason ?? "")) reason.textContent = data.reason ?? "";
    reason.hidden = !data.reason;
  });
}

// Times, in the zone that the visitor chose.
const tellAll = () => document.querySelectorAll("time").forEach(tell);
const zones = document.getElementById("zone");
if (zones) {
  zones.value = zone();
  zones.addEventListener("change", () => {
    localStorage.setItem("tidegate-times", zones.value);
    tellAll();
  });
}
tellAll();
setInterval(tellAll, 5000);

// A menu closes when something else is chosen, and with Escape.
document.addEventListener("click", (event) => {
  for (const menu of document.querySelectorAll("details.menu[open]")) if (!menu.querySelector("summary").contains(event.target)) menu.open = false;
});
document.addEventListener("keydown", (event) => {
  const menu = event.key === "Escape" && event.target.closest?.("details.menu[open]");
  if (!menu) return;
  menu.open = false;
  menu.querySelector("summary").focus();
});

// On a phone the rows of a list are cards, and each value has its column's name beside it.
for (const table of document.querySelectorAll("table.list")) {
  const titles = [...table.querySelectorAll("thead th")].map((head) => (head.querySelector(".hidden") ? "" : head.textContent.trim()));
  for (const row of table.tBodies[0]?.rows ?? []) [...row.cells].forEach((cell, at) => { if (at && titles[at]) cell.dataset.label = titles[at]; });
}
