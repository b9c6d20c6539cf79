// The form of a new job: hubs of this namespace are complete at once, other kinds are set up on the job's page.
import { Refused, post, problem, segment } from "./_common.js";

const form = document.getElementById("new-job");

for (const kind of ["input", "output"]) {
  // The name in the query follows the hub, until somebody types another one.
  const [chosen, name] = [form?.elements[`${kind}Hub`], form?.elements[`${kind}Name`]];
  const follow = () => {
    const [how, value] = chosen.value.split(/:(.*)/s);
    const suggested = how === "hub" && /^[A-Za-z_][\w-]*$/.test(value) ? value : kind;
    if (name.dataset.typed) return;
    const before = name.value;
    name.value = suggested;
    const whole = new RegExp(`(\\b${kind === "input" ? "FROM" : "INTO"} +)\\[?${before.replaceAll("-", "\\-")}\\]?(?![\\w-])`, "i");
    form.elements.query.value = form.elements.query.value.replace(whole, (_, word) => word + (suggested.includes("-") ? `[${suggested}]` : suggested));
  };
  name?.addEventListener("input", () => { name.dataset.typed = "yes"; });
  chosen?.addEventListener("change", follow);
  if (chosen) follow();
}

// A job that writes to the hub it reads would read its own results: the output moves to another hub when the input takes its own.
form?.elements.inputHub.addEventListener("change", () => {
  const { inputHub, outputHub } = form.elements;
  if (!inputHub.value || inputHub.value !== outputHub.value) return;
  outputHub.value = [...outputHub.options].find(({ value }) => value.startsWith("hub:") && value !== inputHub.value)?.value ?? "";
  outputHub.dispatchEvent(new Event("change"));
});

form?.addEventListener("submit", async (event) => {
  event.preventDefault();
  const refused = form.querySelector(".problem");
  const { name, query } = form.elements;
  const body = { name: name.value, query: query.value };
  const further = new URLSearchParams();
  for (const kind of ["input", "output"]) {
    const [how, value] = form.elements[`${kind}Hub`].value.split(/:(.*)/s);
    body[`${kind}Name`] = form.elements[`${kind}Name`].value;
    body[`${kind}Hub`] = how === "hub" ? value : "";
    if (how === "kind") further.append("add", `${kind}:${value}:${body[`${kind}Name`]}`);
  }
  problem(refused, null);
  try {
    const made = await post("/jobs", body);
    location.assign(`/jobs/${segment(made.name)}${further.size ? `#${further}` : ""}`);
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    problem(refused, error);
  }
});
