// Opens every page of a job, and does what the page is for.
// node job_pages.mjs '{"url": …, "chromiumPath": …, "pictures": …}'
import { PATIENCE_MS, Visit } from "./browser.mjs";

const settings = JSON.parse(process.argv[2]);
const visit = await Visit.begin(settings);
const text = (page, selector) => page.locator(selector).innerText();
const QUERY = `SELECT System.Timestamp() AS window_end, booth, COUNT(*) AS cars, AVG(speed) AS avg_speed
INTO results
FROM tolls TIMESTAMP BY entry_time
GROUP BY booth, TumblingWindow(second, 5)`;

/** Write a query by keyboard in place of the one that is there. */
async function write(page, query) {
  if (!(await page.evaluate(() => document.activeElement.id === "query-editor"))) await page.reach("Query", "#query-editor");
  await page.keyboard.press("Control+A");
  await page.keyboard.press("Delete");
  await page.keyboard.type(query.replaceAll("\n", " "));
}

// From a new job to a deleted one, all that a job needs is done without a mouse: here, in its query, where it starts, at the end.
await visit.run("new-job", async (page, expect) => {
  await page.goto("/");
  await page.reach("New job");
  await page.keyboard.press("Enter");
  await page.waitForURL("**/new-job");
  await page.reach("Name");
  await page.keyboard.type("tolls-job");
  await page.reach("From where");
  await page.keyboard.type("tolls");
  expect((await page.getByLabel("To where").inputValue()) === "hub:results", "the output is not the hub that the job reads");
  await page.reach("To where");
  await page.keyboard.type("results");
  expect((await page.getByLabel("To where").inputValue()) === "hub:results", "the hub of the results is chosen");
  expect((await page.locator("[name=query]").inputValue()).includes("FROM tolls"), "the query follows the choice of the input");
  await page.checkAndPicture("new-job");
  await page.reach("Create");
  await page.keyboard.press("Enter");
  await page.waitForURL("**/jobs/tolls-job");
  expect((await text(page, "#state")) === "Created", "a new job is Created");
});

await visit.run("edit-and-test", async (page, expect) => {
  let arrive;
  const held = new Promise((resolve) => { arrive = resolve; });
  await page.route("**/job-words.json", async (route) => { await held; await route.continue(); });
  const words = page.waitForResponse("**/job-words.json");
  await page.goto("/jobs/tolls-job");
  await page.locator(".cm-content").waitFor();
  await write(page, "SELECT boooth");
  // The compiler's words arrive while somebody types: the caret stays, and so does what can be undone.
  arrive();
  await (await words).finished();
  await page.evaluate(() => new Promise((resolve) => { setTimeout(resolve); }));
  await page.keyboard.type(",, FROM tolls");
  expect((await text(page, "#query-editor")).trim() === "SELECT boooth,, FROM tolls", "the caret stays where it is");
  await page.locator("#diagnostics li", { hasText: "line 1, column 15" }).waitFor();
  await page.locator(".cm-lintRange-error").first().waitFor();
  page.expectRefusal(400);
  await page.reach("Test query");
  await page.keyboard.press("Enter");
  await page.locator("#test-problem", { hasText: "line 1" }).waitFor();
  // Completion offers functions, inputs, and fields of the input's events.
  await write(page, "SELECT Tumbl");
  await page.keyboard.press("Control+Space");
  await page.locator(".cm-tooltip-autocomplete", { hasText: "TumblingWindow" }).waitFor();
  await page.keyboard.press("Escape");
  await write(page, "SELECT t.boo FROM tolls t");
  for (let at = 0; at < " FROM tolls t".length; at++) await page.keyboard.press("ArrowLeft");
  await page.keyboard.press("Control+Space");
  await page.locator(".cm-tooltip-autocomplete", { hasText: "booth" }).waitFor();
  await page.keyboard.press("Escape");
  await write(page, "SELECT boo");
  await page.keyboard.press("Control+Space");
  await page.locator(".cm-tooltip-autocomplete", { hasText: "booth" }).waitFor();
  await page.keyboard.press("Escape");
  await write(page, QUERY);
  await page.getByText("The query compiles").waitFor();
  await page.reach("Test query");
  await page.keyboard.press("Enter");
  await page.locator("#test-results tbody tr").first().waitFor();
  expect((await text(page, "#test-results")).includes("window_end"), "the rows have the query's columns");
  expect(!/\.\d{7}Z/.test(await text(page, "#test-results")), "no time has seven decimals");
  expect(/^[\d,]+ ms over/.test(await text(page, "#test-status")), "it says how long the test took");
  // An uploaded file in place of the input.
  await page.getByRole("tab", { name: "Sample data" }).click();
  await page.locator('[data-input="tolls"]').setInputFiles({ name: "tolls.jsonl", mimeType: "application/json", buffer: Buffer.from('{"booth": "uploaded", "speed": 5, "entry_time": "2026-01-01T00:00:01Z"}\n') });
  await page.getByRole("button", { name: "Test query" }).click();
  await page.locator("#test-results td", { hasText: "uploaded" }).waitFor();
  await page.getByRole("button", { name: "Show changes" }).click();
  await page.locator("#diff-lines ins", { hasText: "avg_speed" }).waitFor();
  await page.checkAndPicture("changes");
  await page.keyboard.press("Escape");
  await page.reach("Save", "button");
  await page.keyboard.press("Enter");
  await page.locator("#notices", { hasText: "Saved" }).waitFor();
  // A template is written with the names of the job, and the fields of its events.
  await page.locator("#template").selectOption({ label: "Count each key in a tumbling window" });
  await page.locator(".cm-content", { hasText: "GROUP BY booth" }).waitFor();
  await page.getByText("The query compiles").waitFor();
  await write(page, QUERY);
  await page.getByRole("button", { name: "Show a sample of tolls" }).click();
  await page.getByRole("dialog").locator("pre").first().waitFor();
  await page.checkAndPicture("sample");
  await page.keyboard.press("Escape");
  expect(!(await page.content()).includes("SAS_KEY_VALUE"), "the connection string's key is not in the page");
  await page.checkAndPicture("job");
});

await visit.run("edit-sections", async (page, expect) => {
  await page.goto("/jobs/tolls-job");
  await page.getByRole("button", { name: "Add an output" }).click();
  await page.getByLabel("Name in the query").fill("hook");
  // A hub of this namespace is picked, and reached.
  await page.locator("#section [name=hub]").selectOption("results");
  await page.getByRole("button", { name: "Test connection" }).click();
  await page.locator("#section-reached", { hasText: /it has \d+ partition/ }).waitFor();
  await page.getByLabel("Type").selectOption("powerbi");
  await page.locator("#section-push_url").fill("http://127.0.0.1:9/");
  page.expectRefusal(400);
  await page.getByRole("button", { name: "Test connection" }).click();
  await page.locator("#section-problem", { hasText: "refused" }).waitFor();
  await page.getByLabel("Type").selectOption("webhook");
  await page.getByRole("dialog").getByRole("button", { name: "Save" }).click();
  await page.locator("#section-url:invalid").waitFor();
  await page.locator("#section-url").fill("http://127.0.0.1:9/");
  await page.locator("#section-more summary").click();
  await page.locator("#section-key").fill("a-secret-key");
  await page.checkAndPicture("edit-output");
  await page.getByRole("dialog").getByRole("button", { name: "Save" }).click();
  await page.locator("#output-title ~ *, section", { hasText: "hook" }).first().waitFor();
  expect(!(await page.content()).includes("a-secret-key"), "the key is not in the page");
  // The secret stays unless it is given again, and a wrong setting is refused with its name.
  await page.getByRole("button", { name: "Edit hook" }).click();
  expect((await page.locator("#section-key").getAttribute("placeholder")) === "unchanged", "the form says that there is a key");
  await page.locator("#section-more summary").click();
  await page.locator("#section-attempts").fill("-5");
  await page.getByRole("dialog").getByRole("button", { name: "Save" }).click();
  await page.locator("#section-attempts:invalid").waitFor();
  await page.getByRole("button", { name: "Remove" }).click();
  await page.getByRole("dialog", { name: "Remove hook?" }).getByRole("button", { name: "Remove" }).click();
  await page.getByRole("button", { name: "Edit hook" }).waitFor({ state: "detached" });
  await page.getByRole("tab", { name: "Functions" }).click();
  await page.getByRole("button", { name: "Add a function" }).click();
  await page.getByLabel("Name in the query").fill("twice");
  await page.locator("#section-script").fill("function main(a) { return a * 2 }");
  await page.getByRole("dialog").getByRole("button", { name: "Save" }).click();
  await page.getByRole("button", { name: "Try twice" }).click();
  await page.getByLabel("Arguments, a list in JSON").fill("[21]");
  await page.getByRole("button", { name: "Call" }).click();
  await page.locator("#try-result", { hasText: "42" }).waitFor();
  await page.checkAndPicture("try-function");
});

await visit.run("start", async (page, expect) => {
  await page.goto("/jobs/tolls-job");
  await page.reach("Start");
  await page.keyboard.press("Enter");
  await page.checkAndPicture("start");
  await page.reach("Start");
  await page.keyboard.press("Enter");
  await page.getByRole("button", { name: "Stop" }).waitFor();
  for (let turn = 0; turn < 200 && (await text(page, "#state")) !== "Running"; turn++) {
    await page.waitForTimeout(500);
    await page.reload();
  }
  expect((await text(page, "#state")) === "Running", `the job is ${await text(page, "#state")}: ${await text(page, "#reason")}`);
});

await visit.run("event-ordering", async (page, expect) => {
  await page.goto("/jobs/tolls-job/event-ordering");
  await page.locator("#effects .figure").first().waitFor({ timeout: PATIENCE_MS });
  const before = await text(page, "#effects");
  await page.locator("#late").focus();
  for (let turn = 0; turn < 4; turn++) await page.keyboard.press("ArrowRight");
  await page.locator("#order").focus();
  for (let turn = 0; turn < 6; turn++) await page.keyboard.press("ArrowRight");
  expect((await text(page, "#effects")) !== before, "the effects follow the sliders");
  expect((await page.locator("#map rect.chosen").count()) === 1, "the map shows the choice");
  await page.checkAndPicture("event-ordering");
  const late = await text(page, "#late-value");
  await page.getByRole("button", { name: "Save" }).click();
  await page.waitForFunction((value) => document.querySelector("#save-ordering")?.disabled && document.querySelector("#late-value").textContent === value, late, { timeout: PATIENCE_MS });
  expect((await text(page, "#ordering")).includes(`Now: late ${parseInt(late, 10)}`), "the saved tolerance is the job's own now");
  for (let turn = 0; turn < 200 && (await text(page, "#state")) !== "Running"; turn++) {
    await page.waitForTimeout(500);
    await page.reload();
  }
  expect((await text(page, "#state")) === "Running", `with the new policy the job is ${await text(page, "#state")}: ${await text(page, "#reason")}`);
});

await visit.run("monitor", async (page, expect) => {
  await page.goto("/jobs/tolls-job/monitor");
  await page.locator("#timelines tbody tr").first().waitFor({ timeout: PATIENCE_MS });
  await page.getByRole("button", { name: "Draw" }).click();
  await page.locator("#picture circle").first().waitFor({ timeout: PATIENCE_MS });
  expect((await page.locator("#picture path.watermark").count()) > 0, "the watermarks are drawn");
  await page.locator("#touched summary").click();
  await page.locator("#touched button").first().click();
  await page.getByRole("dialog").locator("ol li").first().waitFor();
  await page.checkAndPicture("explanation");
  await page.keyboard.press("Escape");
  // Drag to zoom, then a dot.
  const box = await page.locator("#picture > svg").boundingBox();
  await page.mouse.move(box.x + box.width * 0.3, box.y + box.height * 0.1);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width * 0.98, box.y + box.height * 0.85, { steps: 4 });
  await page.mouse.up();
  await page.waitForFunction(() => !document.getElementById("zoom-out").disabled);
  await page.getByRole("button", { name: "Whole picture" }).click();
  await page.locator("#charts canvas").nth(1).waitFor({ timeout: PATIENCE_MS });
  // Each partition has a row on both maps, and the pointer says what is there.
  await page.locator("#maps canvas").nth(1).waitFor({ timeout: PATIENCE_MS });
  const first = page.locator("#maps .chart").first();
  await first.locator(".heat-value", { hasText: /Now: largest delay .* tolls\/[01]/ }).waitFor();
  const { width, height } = await first.locator(".u-over").boundingBox();
  await first.locator(".u-over").hover({ position: { x: width - 3, y: height * 0.75 } });
  await first.locator(".heat-value", { hasText: /^tolls\/1, .*: delay [\d.]+/ }).waitFor();
  // It still does when more has come: a page that is seen again asks at once.
  const asked = page.waitForResponse((response) => response.url().includes("/partitions.json"));
  await page.evaluate(() => document.dispatchEvent(new Event("visibilitychange")));
  await (await asked).finished();
  await page.evaluate(() => new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn))));
  expect((await first.locator(".heat-value").textContent()).startsWith("tolls/1, "), "the map says what is below a pointer that stands still");
  // The charts follow: samples are added.
  const samples = async () => (await (await page.request.get("/jobs/tolls-job/metrics.json?range=5m")).json()).times.length;
  const before = await samples();
  for (const until = Date.now() + PATIENCE_MS; (await samples()) < before + 2;) {
    if (Date.now() > until) throw new Error(`there are ${(await samples()) - before} more samples`);
    await page.waitForTimeout(200);
  }
  expect(!/\dT\d\d:/.test(await text(page, "#timelines")), "what would move a watermark names times as people write them");
  expect((await text(page, "#timelines thead")).toLowerCase().includes("blocked output"), "the causes have their columns");
  await page.checkAndPicture("monitor");
});

await visit.run("output-sample", async (page, expect) => {
  await page.goto("/jobs/tolls-job");
  await page.getByRole("button", { name: "Show a sample of results" }).click();
  await page.getByRole("dialog").locator("pre").first().waitFor();
  expect((await text(page, "#sample-content")).includes("avg_speed"), "the rows that the job wrote are shown");
  await page.checkAndPicture("output-sample", { isVariant: true });
});

await visit.run("diagram", async (page, expect) => {
  await page.goto("/jobs/tolls-job/diagram");
  await page.locator("#diagram rect.operator").nth(3).waitFor();
  expect((await text(page, "#diagram")).includes("output results"), "the graph has the output");
  await page.locator("#diagram", { hasText: "events per second" }).waitFor();
  await page.locator("#diagram", { hasText: "rows per second" }).waitFor();
  await page.locator("#diagram", { hasText: /rows in, .* out per second/ }).waitFor();
  await page.locator("#diagram", { hasText: /complete until [0-9.]+ s ago/ }).waitFor();
  await page.checkAndPicture("diagram");
});

await visit.run("logs", async (page, expect) => {
  await page.goto("/jobs/tolls-job/logs");
  await page.locator("#log tbody tr").first().waitFor();
  expect((await text(page, "main")).includes("Data errors"), "there is a section of data errors");
  await page.checkAndPicture("logs");
});

await visit.run("jobs-in-overview", async (page, expect) => {
  await page.goto("/");
  expect((await text(page, "main")).includes("tolls-job"), "the job is listed");
  await page.checkAndPicture("overview-with-jobs");
});

await visit.run("stop-and-delete", async (page, expect) => {
  await page.goto("/jobs/tolls-job");
  await page.reach("Stop");
  await page.keyboard.press("Enter");
  for (let turn = 0; turn < 200 && (await text(page, "#state")) !== "Stopped"; turn++) {
    await page.waitForTimeout(500);
    await page.reload();
  }
  expect((await text(page, "#state")) === "Stopped", "the job stops");
  await page.reach("More");
  await page.keyboard.press("Enter");
  await page.reach("Delete");
  await page.keyboard.press("Enter");
  await page.getByRole("dialog").waitFor();
  await page.keyboard.type("tolls-job");
  page.expectRefusal(404); // what the editor asked about the job meanwhile
  await page.reach("Delete");
  await page.keyboard.press("Enter");
  await page.waitForURL(`${settings.url}/`);
});

await visit.end();
