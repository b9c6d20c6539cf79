// Processor time of a browser that shows live charts: of all its processes, and of the page's own thread.
// node portal_live_charts.mjs '{"url": …, "chromiumPath": …, "seconds": 60}'
import { readFileSync, readdirSync } from "node:fs";
import { createRequire } from "node:module";

const { chromium } = createRequire(new URL("../tests/portal/browser/package.json", import.meta.url))("playwright-core");
const { url, chromiumPath, seconds } = JSON.parse(process.argv[2]);
const browser = await chromium.launch({ executablePath: chromiumPath, args: ["--no-sandbox", "--disable-dev-shm-usage"] });

/** Return the seconds of processor time of this process's descendants by their kind. */
function used() {
  const found = new Map();
  for (const pid of readdirSync("/proc").filter((name) => /^\d+$/.test(name))) {
    try {
      const fields = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1].split(" ");
      const kind = readFileSync(`/proc/${pid}/cmdline`, "utf8").match(/--type=([a-z-]+)/)?.[1] ?? "browser";
      found.set(pid, { parent: fields[1], kind, cpu: (Number(fields[11]) + Number(fields[12])) / 100 });
    } catch { /* it has ended */ }
  }
  const ours = (pid) => pid === String(process.pid) || (found.has(pid) && ours(found.get(pid).parent));
  const sums = {};
  for (const [pid, { kind, cpu }] of found) if (pid !== String(process.pid) && ours(pid)) sums[kind] = (sums[kind] ?? 0) + cpu;
  return sums;
}

const context = await browser.newContext({ viewport: { width: 1440, height: 900 } });
const page = await context.newPage();
const session = await context.newCDPSession(page);
await session.send("Performance.enable");
const thread = async () => (await session.send("Performance.getMetrics")).metrics.find(({ name }) => name === "TaskDuration").value;
await page.goto(url);
await page.locator("#charts canvas").nth(4).waitFor({ timeout: 60000 });
await page.waitForTimeout(5000);
const [before, task, began] = [used(), await thread(), Date.now()];
await page.waitForTimeout(seconds * 1000);
const [after, taskAfter, wall] = [used(), await thread(), (Date.now() - began) / 1000];
const share = Object.fromEntries(Object.keys(after).map((kind) => [kind, (after[kind] - (before[kind] ?? 0)) / wall]));
await browser.close();
process.stdout.write(JSON.stringify({ share, thread: (taskAfter - task) / wall }));
