// What somebody who knows Stream Analytics does on a first day, from signing in to deleting the job; clicks are counted.
// node walk.mjs '{"away": …, "key": …, "chromiumPath": …, "pictures": …, "table": …}'
import { PATIENCE_MS, Visit } from "./browser.mjs";

const settings = JSON.parse(process.argv[2]);
const visit = await Visit.begin({ ...settings, url: settings.away });

await visit.run("walk", async (page, expect) => {
  let clicks = 0;
  const began = Date.now();
  const steps = [];
  let [lastClicks, lastTime] = [0, began];
  const done = (step) => {
    steps.push({ step, clicks: clicks - lastClicks, seconds: (Date.now() - lastTime) / 1000 });
    [lastClicks, lastTime] = [clicks, Date.now()];
  };
  const click = async (target) => {
    clicks++;
    await target.click();
  };
  const button = (name, within = page) => within.getByRole("button", { name, exact: true });
  const dialog = page.locator("dialog[open]");
  const tab = (name) => page.locator("nav.tabs").getByRole("link", { name });
  const state = async (wanted) => page.locator("#state", { hasText: wanted }).waitFor({ timeout: PATIENCE_MS });
  const write = async (query) => {
    await click(page.locator("#query-editor"));
    await page.keyboard.press("Control+A");
    await page.keyboard.insertText(query);
  };
  const save = async (query) => {
    await write(query);
    await page.getByText("The query compiles").waitFor();
    await click(button("Show changes"));
    await page.locator("#diff-lines ins").first().waitFor();
    await click(button("Close", dialog));
    await click(button("Save"));
    await page.locator("#notices", { hasText: "Saved" }).waitFor();
  };

  await page.goto("/");
  await page.getByLabel("Key, or a whole connection string").fill(settings.key);
  await click(button("Sign in"));
  done("sign in");

  await click(button("Generate sample data"));
  await page.getByRole("link", { name: "See the events" }).waitFor();
  done("generate data");

  await click(page.getByRole("link", { name: "New job" }));
  await page.getByLabel("Name", { exact: true }).fill("walk");
  await page.getByLabel("From where").selectOption("hub:tolls");
  await page.getByLabel("To where").selectOption("kind:sqlite");
  await page.getByLabel("Name in the query").last().fill("results");
  await click(button("Create"));
  await dialog.waitFor();
  await page.locator("#section-path").fill(settings.table);
  await page.locator("#section-table").fill("booths");
  await click(button("Test connection", dialog));
  await page.locator("#section-reached", { hasText: "can be written" }).waitFor();
  await click(button("Save", dialog));
  await page.locator("section[aria-labelledby=output-title] table", { hasText: "SQLite table" }).waitFor();
  await click(button("Add an input"));
  await page.locator("#section [name=name]").fill("exits");
  await page.locator("#section [name=hub]").selectOption("exits");
  await click(button("Save", dialog));
  await page.locator("section[aria-labelledby=input-title] table", { hasText: "exits" }).waitFor();
  const first = `SELECT System.Timestamp() AS window_end, t.booth AS booth, COUNT(*) AS cars
INTO results FROM tolls t TIMESTAMP BY entry_time
JOIN exits e TIMESTAMP BY exit_time ON t.booth = e.booth AND DATEDIFF(minute, t, e) BETWEEN 0 AND 60
GROUP BY t.booth, TumblingWindow(second, 2)`;
  await save(first);
  done("make a job with two inputs and a table");

  await click(button("Test query"));
  await page.locator("#test-status", { hasText: " ms over" }).waitFor({ timeout: PATIENCE_MS });
  await page.checkAndPicture("walk-test");
  done("test it");

  await click(button("Start"));
  await click(button("Start", dialog));
  await state("Running");
  done("start it");

  await click(tab("Monitor"));
  await page.locator("#charts canvas").first().waitFor({ timeout: PATIENCE_MS });
  await page.checkAndPicture("walk-monitor");
  done("watch it");

  await click(tab("Event ordering"));
  await page.locator("#late-s:enabled").waitFor({ timeout: PATIENCE_MS });
  await page.locator("#late-s").fill("7");
  await page.locator("#save-ordering:enabled").waitFor({ timeout: PATIENCE_MS });
  await click(button("Save"));
  await page.getByText("Now: late 7").waitFor({ timeout: PATIENCE_MS });
  await state("Running");
  done("change its tolerances");

  await click(tab("Query"));
  await page.locator("#query-editor").waitFor();
  // Plates are no numbers: each car is a conversion error.
  await save(first.replace("COUNT(*)", "COUNT(CAST(t.plate AS bigint))"));
  await page.waitForFunction(() => document.querySelectorAll("#versions tbody tr").length >= 2 || (location.reload(), false), null, { polling: 2000, timeout: PATIENCE_MS });
  done("change its query with a diff");

  await click(tab("Errors and logs"));
  for (let turn = 0; turn < 200 && !(await page.locator("#errors-title").locator("xpath=../..").locator("tbody tr", { hasText: "plate" }).count()); turn++) {
    await page.waitForTimeout(1000);
    await page.reload();
  }
  await page.checkAndPicture("walk-errors");
  await click(page.locator("tbody tr", { hasText: "plate" }).locator("summary").first());
  await click(page.locator("tbody tr", { hasText: "plate" }).locator("li a").first());
  await page.locator("#events tbody tr").first().waitFor();
  expect((await page.locator("#events tbody tr").first().innerText()).includes("plate"), "the error leads to its event");
  done("find a bad event from the error list");

  await page.goBack();
  await click(tab("Query"));
  await click(page.getByRole("tab", { name: /Query history/ }));
  await click(page.locator("#versions tbody tr", { hasText: /^1/ }).getByRole("button", { name: /Put version 1/ }));
  await page.getByText("The query compiles").waitFor();
  await click(button("Save"));
  await page.locator("#notices", { hasText: "Saved" }).waitFor();
  await page.waitForTimeout(1000); // the page reloads itself then
  await page.reload();
  await state("Running");
  expect(!(await page.locator("#query").inputValue()).includes("plate"), "the first query is back");
  done("fix it by rolling back");

  await click(button("Stop"));
  await state("Stopped");
  done("stop it");

  await click(page.locator("summary[aria-label=More]"));
  await click(button("Delete"));
  await page.getByLabel("Repeat the name").fill("walk");
  page.expectRefusal(404);
  await click(button("Delete", dialog));
  await page.waitForURL(`${settings.away}/`);
  done("delete it");
  console.error(JSON.stringify({ clicks, seconds: (Date.now() - began) / 1000, steps }));
});

await visit.end();
