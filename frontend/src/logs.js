// The job's log, followed as it grows.
import { element, every, get, timeElement } from "./_common.js";

const log = document.getElementById("log");
const rows = log.querySelector("tbody");
let next = log.dataset.next;
log.scrollTop = log.scrollHeight;

every(2, async () => {
  if (!document.getElementById("follow-log").checked) return;
  const data = await get(`${log.dataset.url}?after=${next}`);
  next = data.next;
  if (!data.lines.length) return;
  const isAtEnd = log.scrollTop + log.clientHeight > log.scrollHeight - 40;
  rows.append(...data.lines.map((one) => element("tr", {}, element("td", { class: "nowrap" }, timeElement(one.time)), element("td", {}, one.level ?? ""), element("td", {}, one.message ?? "", one.count ? element("small", {}, ` ${one.count} times`) : null))));
  while (rows.children.length > 2000) rows.firstElementChild.remove();
  if (isAtEnd) log.scrollTop = log.scrollHeight;
});
