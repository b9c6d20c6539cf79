// Every page: dialogs, forms that send JSON, buttons that ask before they act, and figures that stay current.
import { Refused, badge, confirmed, element, every, fill, get, notice, post, problem, segment, sparkline, tell, zone } from "./_common.js";

document.addEventListener("click", (event) => {
  const opener = event.target.closest("[data-opens]");
  if (opener) {
    const dialog = document.getElementById(opener.dataset.opens);
    if (opener.dataset.fill) prepare(dialog, JSON.parse(opener.dataset.fill));
    dialog.showModal();
  }
  if (event.target.closest("[data-closes]")) event.target.closest("dialog").close();
});

/** Let a dialog that several things share be about one of them. */
function prepare(dialog, { action, title, checked }) {
  const form = dialog.querySelector("form");
  form.dataset.action = action;
  dialog.querySelector("h2").textContent = title;
  for (const field of form.querySelectorAll('[type="checkbox"]')) field.checked = checked.includes(field.name);
}

const isUnchanged = (field) =>
  field.type === "checkbox" ? field.checked === field.defaultChecked : field.value === field.defaultValue && !field.validity.badInput;

/**
 * Return a form's values as JSON: empty numbers are null, and names with data-type are of that type.
 * With data-changes only those that the visitor has changed: the others may have been changed elsewhere since.
 */
function values(form) {
  const found = {};
  for (const field of form.elements) {
    if (!field.name || field.readOnly || ("changes" in form.dataset && isUnchanged(field))) continue;
    if (field.type === "checkbox") found[field.name] = field.checked;
    else if (field.type === "radio") {
      if (field.checked) found[field.name] = field.value;
    } else if (field.dataset.type) found[field.name] = field.value.trim() === "" ? null : Number(field.value);
    else found[field.name] = field.value;
  }
  return found;
}

/** Say what was refused. If that is a field's value, the field has the focus and is called as the visitor knows it. */
function refuse(form, target, error) {
  problem(target, error);
  const [, name, reason] = error.message.match(/^(?:capture[.:] ?)?(\w+): (.+)$/s) ?? [];
  const field = name ? form.elements[name] : null;
  if (!field?.labels?.length) return;
  const called = field.labels[0].firstChild.textContent.trim();
  problem(target, `${called}: ${reason}`);
  field.setAttribute("aria-invalid", "true");
  field.addEventListener("input", () => field.removeAttribute("aria-invalid"), { once: true });
  field.focus();
}

for (const form of document.querySelectorAll("form[data-action]")) {
  // The browser would also check what nobody changed, and that may be beyond the limits of the form.
  form.noValidate = "changes" in form.dataset;
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (![...form.elements].every((field) => (isUnchanged(field) && field.value) || field.reportValidity())) return;
    const refused = form.querySelector(".problem");
    const submit = form.querySelector('[type="submit"]');
    problem(refused, null);
    submit.disabled = true;
    try {
      const said = values(form);
      const answer = await post(form.dataset.action, form.dataset.within ? { [form.dataset.within]: said } : said);
      if (form.dataset.shows) await show(form, answer[form.dataset.shows]);
      else if (form.dataset.then) location.assign(form.dataset.then.replace("{name}", segment(answer.name ?? "")));
      else location.reload();
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      refuse(form, refused, error);
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
    const answer = await post(button.dataset.post, JSON.parse(button.dataset.body ?? "{}"));
    if (button.dataset.then) location.assign(button.dataset.then.replace("{name}", segment(answer.name ?? "")));
    else location.reload();
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    notice(error.message);
    button.disabled = false;
  }
});

// The keys of a policy, shown while their dialog is open.
async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    notice("Copied");
  } catch {
    notice("Cannot copy here: select the text");
  }
}

function keyRows(policy, { name, keys }) {
  document.getElementById("keys-title").textContent = `Keys of ${name}`;
  document.getElementById("keys-content").replaceChildren(...keys.map(({ which, key, connectionString }) => {
    const line = (label, value) => element("label", {}, label, element("span", { class: "row" }, element("input", { readonly: true, value, class: "mono" }), element("button", { type: "button", class: "quiet", click: () => copied(value), "aria-label": `Copy the ${label.toLowerCase()}` }, "Copy")));
    return element("fieldset", { class: "stack" }, element("legend", {}, which === "primary" ? "Primary" : "Secondary"),
      line(`${which === "primary" ? "Primary" : "Secondary"} key`, key), line(`Connection string, ${which}`, connectionString),
      element("div", { class: "row end" }, element("button", { type: "button", class: "quiet", click: async () => {
        if (!(await confirmed(`Regenerate the ${which} key of ${name}? Whoever uses it is disconnected.`, "Regenerate"))) return;
        await attempt(async () => keyRows(policy, await post(`${policy}/regenerate`, { which })));
      } }, "Regenerate")));
  }));
}

async function attempt(work) {
  try {
    await work();
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    notice(error.message);
  }
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-keys]");
  if (button) attempt(async () => {
    keyRows(button.dataset.keys, await post(`${button.dataset.keys}/keys`));
    const dialog = document.getElementById("keys");
    dialog.addEventListener("close", () => document.getElementById("keys-content").replaceChildren(), { once: true });
    dialog.showModal();
  });
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

if (document.querySelector("[data-spark-of], [data-job-spark]")) {
  const show = (name, values) => {
    for (const place of document.querySelectorAll(`[data-${name}]`)) {
      const found = values[place.getAttribute(`data-${name}`)];
      if (found?.some((value) => value)) place.replaceChildren(sparkline(found));
    }
  };
  const draw = async () => {
    const { hubs, jobs } = await get(`/sparklines.json${location.search}`);
    show("spark-of", hubs);
    show("job-spark", jobs);
  };
  draw().catch(() => {});
  every(15, draw);
}

// Several jobs at once: each is asked for itself, and what it refuses is said with its name.
const chosenJobs = () => [...document.querySelectorAll("input.choose:checked")].map(({ value }) => value);
document.addEventListener("change", ({ target }) => {
  if (!target.matches("input.choose")) return;
  const count = chosenJobs().length;
  document.getElementById("chosen-jobs").textContent = count ? `${count} chosen` : "";
  for (const button of document.querySelectorAll("[data-bulk]")) button.disabled = !count;
});
document.addEventListener("click", async ({ target }) => {
  const { bulk } = target.dataset ?? {};
  if (!bulk) return;
  const names = chosenJobs();
  if (bulk === "stop" && !(await confirmed(`Stop ${names.length} job${names.length === 1 ? "" : "s"}?`, "Stop", false))) return;
  target.disabled = true;
  let refused = 0;
  for (const name of names) {
    try {
      await post(`/jobs/${encodeURIComponent(name)}/${bulk}`, bulk === "start" ? { mode: "" } : {});
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      refused++;
      notice(`${name}: ${error.message}`);
    }
  }
  if (refused) target.disabled = false;
  else location.reload();
});

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
    const data = await get(`${job.dataset.job}/state.json`);
    badge(document.getElementById("state"), data.state);
    job.dataset.state = data.state;
    for (const button of job.querySelectorAll("[data-when]")) {
      button.hidden = !data[button.dataset.when];
      if (button.hidden) button.disabled = false;
    }
    const reason = document.getElementById("reason");
    if (reason.textContent !== (data.reason ?? "")) reason.textContent = data.reason ?? "";
    reason.hidden = !data.reason;
    reason.className = data.isFailing ? "problem" : "said";
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
    document.dispatchEvent(new Event("zone"));
  });
}
tellAll();
setInterval(tellAll, 5000);

// A menu closes when something else is chosen, and with Escape.
document.addEventListener("click", (event) => {
  for (const menu of document.querySelectorAll("details.menu[open]")) {
    const ownPart = menu.classList.contains("columns") ? menu : menu.querySelector("summary");
    if (!ownPart.contains(event.target)) menu.open = false;
  }
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
