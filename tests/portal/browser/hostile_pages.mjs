// Names, events, jobs and circumstances that a page must bear.
// node hostile_pages.mjs '{"url": …, "chromiumPath": …, "pictures": …}'
import { PATIENCE_MS, Visit } from "./browser.mjs";

const settings = JSON.parse(process.argv[2]);
const visit = await Visit.begin(settings);
const text = (page, selector) => page.locator(selector).innerText();
const save = async (tab) => {
  const reloaded = tab.waitForEvent("load");
  await tab.getByRole("dialog").getByRole("button", { name: "Save" }).click();
  await reloaded;
};
const secondTab = async (page) => {
  const tab = await page.context().newPage();
  tab.setDefaultTimeout(PATIENCE_MS);
  return tab;
};
const PAGES = ["/", "/eventhubs/odd", "/eventhubs/odd/explorer", "/eventhubs/wide", "/eventhubs/empty/explorer", "/jobs/many", "/jobs/many/event-ordering", "/jobs/many/monitor", "/jobs/many/diagram", "/jobs/many/logs", "/new-job"];

await visit.run("narrow", async (page, expect) => {
  await page.setViewportSize({ width: 320, height: 640 });
  for (const path of PAGES) {
    await page.goto(path);
    await page.waitForTimeout(300);
    const width = await page.evaluate(() => document.documentElement.scrollWidth);
    const cut = await page.evaluate(() => [...document.querySelectorAll(".events td")].filter((cell) => cell.getBoundingClientRect().right > innerWidth).length);
    expect(cut === 0, `${path} cuts ${cut} cells of events off`);
    expect(width <= 320, `${path} is ${width} pixels wide on a screen of 320`);
    if (settings.keepsPictures) await page.screenshot({ path: `${settings.pictures}/narrow${path.replaceAll("/", "-")}.png`, fullPage: true });
  }
});

await visit.run("odd-events", async (page, expect) => {
  page.on("dialog", (dialog) => { expect(false, `a script of an event ran: ${dialog.message()}`); dialog.dismiss(); });
  await page.goto("/eventhubs/odd/explorer");
  const events = page.locator("#events a.event");
  await events.first().waitFor();
  const count = await events.count();
  expect(count === 6, `${count} of 6 events`);
  for (let at = 0; at < count; at++) {
    await events.nth(at).click();
    const dialog = page.locator("dialog[open]");
    await dialog.waitFor();
    const { overflow, nodes } = await dialog.evaluate((shown) => ({ overflow: shown.scrollWidth - shown.clientWidth, nodes: shown.querySelectorAll("*").length }));
    const hidden = await dialog.evaluate((shown) => [...shown.querySelectorAll(".scroll")].filter((one) => one.scrollWidth > one.clientWidth + 1).length);
    expect(hidden === 0, `a table of event ${at} is wider than its place`);
    expect(overflow <= 0, `the dialog of event ${at} is ${overflow} pixels too narrow for it`);
    expect(nodes < 10_000, `the dialog of event ${at} has ${nodes} elements`);
    if (settings.keepsPictures) await page.screenshot({ path: `${settings.pictures}/odd-event-${at}.png` });
    await page.keyboard.press("Escape");
    expect(await events.nth(at).evaluate((link) => link === document.activeElement), `the focus is not back at event ${at}`);
  }
  expect((await page.evaluate(() => globalThis.harmed)) === undefined, "a script of an event ran");
  expect((await page.locator("#events img, #events script").count()) === 0, "an event became an element");
  await page.checkAndPicture("odd-events", { isVariant: true });
});

await visit.run("wide-hub", async (page, expect) => {
  await page.goto("/eventhubs/wide");
  expect((await page.locator("tr[data-row]").count()) === 100, "100 partitions");
  await page.checkAndPicture("wide-hub", { isVariant: true });
});

await visit.run("empty-hub", async (page, expect) => {
  await page.goto("/eventhubs/empty/explorer");
  expect((await text(page, "main")).includes("No events"), "an empty hub says so");
  await page.checkAndPicture("empty-hub");
});

await visit.run("hub-goes-away", async (page) => {
  page.expectAbsence();
  for (const path of ["/", "/eventhubs/odd", "/jobs/many/monitor"]) {
    await page.goto(path);
    await page.route("**/*.json*", (route) => route.abort());
    await page.locator("#stale", { hasText: "the hub does not answer" }).waitFor();
    if (path === "/") await page.checkAndPicture("stale");
    await page.unroute("**/*.json*");
    await page.locator("#stale").waitFor({ state: "detached" });
  }
});

await visit.run("two-tabs", async (page, expect) => {
  const other = await page.context().newPage();
  other.setDefaultTimeout(PATIENCE_MS);
  for (const tab of [page, other]) {
    await tab.goto("/jobs/many");
    await tab.locator(".cm-content").click();
  }
  await page.keyboard.press("Control+End");
  await page.keyboard.type(" -- mine");
  await page.keyboard.press("Control+S");
  await page.locator("#notices", { hasText: "aved" }).waitFor();
  await other.keyboard.press("Control+End");
  await other.keyboard.type(" -- theirs");
  await other.keyboard.press("Control+S");
  await other.locator("main .problem:visible").first().waitFor();
  const told = await other.locator("main .problem:visible").first().innerText();
  expect(/changed/.test(told), `the second tab says: ${told}`);
  expect((await text(other, ".cm-content")).includes("-- theirs"), "what was typed is still there");
  if (settings.keepsPictures) await other.screenshot({ path: `${settings.pictures}/two-tabs.png` });
});

await visit.run("columns-during-a-search", async (page, expect) => {
  await page.goto("/eventhubs/odd/explorer");
  let asked, release;
  const isAsked = new Promise((done) => { asked = done; });
  const isReleased = new Promise((done) => { release = done; });
  await page.route(/events\.json\?.*limit=50/, async (route) => {
    asked();
    await isReleased;
    await route.continue();
  });
  await page.getByLabel("Search").fill("reading");
  await page.getByRole("button", { name: "Browse" }).click();
  await isAsked;
  const offered = page.waitForResponse(/limit=20/);
  await page.locator("details.columns summary").click();
  await (await offered).finished();
  expect(await page.getByRole("button", { name: "Cancel" }).isVisible(), "the search is still under way");
  release();
  await page.locator("#browse-status", { hasText: "found; searched" }).waitFor();
});

await visit.run("stale-settings", async (page, expect) => {
  const stale = await secondTab(page);
  for (const tab of [page, stale]) {
    await tab.goto("/eventhubs/empty");
    await tab.getByRole("button", { name: "Settings" }).click();
  }
  await page.getByRole("dialog").getByLabel("Keep events").fill("500");
  await save(page);
  await stale.getByRole("dialog").getByLabel("Metadata").fill("said later");
  await save(stale);
  const found = await page.evaluate(async () => (await fetch("/eventhubs/empty.json")).json());
  expect(found.retentionMs === 500 * 3600000, `what was set in the other tab stays: ${found.retentionMs}`);
  expect(found.userMetadata === "said later", "what was changed is saved");
});

await visit.run("stale-capture", async (page, expect) => {
  const stale = await secondTab(page);
  const capture = async () => (await page.evaluate(async () => (await fetch("/eventhubs/brief.json")).json())).capture;
  await page.goto("/eventhubs/brief");
  await page.getByRole("button", { name: "Turn on capture" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Save" }).click();
  expect(await page.getByLabel("Folder").evaluate((field) => field.validity.valueMissing), "a folder is needed");
  await page.getByLabel("Folder").fill(`${settings.pictures}/one`);
  await save(page);
  for (const tab of [page, stale]) {
    await tab.goto("/eventhubs/brief");
    await tab.getByRole("button", { name: "Change capture" }).click();
  }
  await page.getByLabel("Write events").uncheck();
  await page.getByLabel("Folder").fill(`${settings.pictures}/two`);
  await save(page);
  await stale.getByLabel("A file every").fill("120");
  await save(stale);
  const { enabled, destination, intervalInSeconds } = await capture();
  expect(!enabled && destination.endsWith("two") && intervalInSeconds === 120, `each keeps its change: ${JSON.stringify(await capture())}`);
});

await visit.run("settings-beyond-the-form", async (page, expect) => {
  page.expectRefusal(400);
  await page.goto("/eventhubs/brief");
  await page.getByRole("button", { name: "Settings" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Metadata").fill("a minute");
  const reloaded = page.waitForEvent("load");
  await dialog.getByRole("button", { name: "Save" }).click();
  await reloaded;
  const found = await page.evaluate(async () => (await fetch("/eventhubs/brief.json")).json());
  expect(found.userMetadata === "a minute" && found.retentionMs === 60000, `metadata alone is changed: ${found.retentionMs}`);
  await page.getByRole("button", { name: "Settings" }).click();
  const hours = dialog.getByLabel("Keep events");
  await hours.fill("2161");
  await dialog.getByRole("button", { name: "Save" }).click();
  expect(await hours.evaluate((field) => field.validity.rangeOverflow), "what is changed is checked");
  await hours.evaluate((field) => field.removeAttribute("max"));
  await dialog.getByRole("button", { name: "Save" }).click();
  await dialog.locator(".problem", { hasText: "Keep events for how many hours: expected less than or equal to 2160" }).waitFor();
  expect(await hours.evaluate((field) => field === document.activeElement && field.ariaInvalid === "true"), "the field is marked");
  await page.checkAndPicture("refused-field");
});

await visit.run("a-name-that-is-taken", async (page, expect) => {
  page.expectRefusal(409);
  await page.goto("/jobs/many");
  const outputs = async () => JSON.stringify((await page.evaluate(async () => (await fetch("/jobs/many.json")).json())).outputs);
  const before = await outputs();
  await page.getByRole("button", { name: "Add an output" }).click();
  await page.getByRole("dialog").getByLabel("Name in the query").fill("OUT0");
  await page.getByRole("dialog").getByRole("button", { name: "Save" }).click();
  await page.getByRole("dialog").locator(".problem", { hasText: "already" }).waitFor();
  expect((await outputs()) === before, "the output of that name is as it was");
});

await visit.run("stale-tags", async (page, expect) => {
  const stale = await secondTab(page);
  for (const tab of [page, stale]) {
    await tab.goto("/jobs/many");
    await tab.getByRole("button", { name: "tags" }).click();
  }
  await page.getByLabel("One on each line").fill("team = blue");
  await save(page);
  await stale.getByLabel("One on each line").fill("room = 7");
  await save(stale);
  const found = await page.evaluate(async () => (await fetch("/jobs/many.json")).json());
  expect(found.tags.team === "blue" && found.tags.room === "7", `both tags are there: ${JSON.stringify(found.tags)}`);
});

await visit.run("a-name-ending-in-json", async (page, expect) => {
  await page.goto("/");
  await page.getByRole("button", { name: "New event hub" }).click();
  await page.getByRole("dialog").getByLabel("Name").fill("odd.json");
  await page.getByRole("dialog").getByRole("button", { name: "Create" }).click();
  await page.getByRole("heading", { name: "odd.json", exact: true }).waitFor();
  await page.getByRole("link", { name: "Data explorer" }).click();
  await page.getByRole("link", { name: "odd.json" }).click();
  await page.getByRole("heading", { name: "odd.json", exact: true }).waitFor();
  const data = await page.getByRole("link", { name: "This page as JSON" }).evaluate(async ({ href }) => (await fetch(href)).json());
  expect(data.name === "odd.json", `its data: ${data.name}`);
});

await visit.run("many-outputs", async (page, expect) => {
  await page.goto("/jobs/many");
  const shown = await text(page, "main");
  for (let number = 0; number < 20; number++) expect(shown.includes(`out${number}`), `the output out${number} is missing`);
  await page.checkAndPicture("many-outputs", { isVariant: true });
  await page.goto("/jobs/many/diagram");
  await page.locator("svg").first().waitFor();
  await page.checkAndPicture("many-outputs-diagram", { isVariant: true });
});

await visit.run("job-that-fails", async (page, expect) => {
  const other = await page.context().newPage();
  await other.goto("/");
  await page.goto("/jobs/failing");
  await page.getByRole("button", { name: "Start" }).first().click();
  const confirm = page.locator("dialog[open] [type=submit]");
  await confirm.click();
  await page.locator("#state", { hasText: "Failed" }).waitFor();
  await other.locator("tr", { hasText: "failing" }).locator(".state", { hasText: "Failed" }).waitFor();
  expect((await text(page, "main")).includes("no-such-folder"), "the reason names what is missing");
  await page.checkAndPicture("job-that-fails");
});

await visit.run("avro-events", async (page, expect) => {
  await page.goto("/eventhubs/avro/explorer?from=earliest");
  const events = page.locator("#events a.event", { hasText: "Avro" });
  await events.nth(1).waitFor();
  await events.first().click();
  await page.getByRole("dialog").getByText("Avro, 3 records.").waitFor();
  expect((await page.locator("#event-content pre").first().innerText()).includes('"plate": "A2"'), "the records are decoded");
  await page.checkAndPicture("avro-event", { isVariant: true });
  await page.keyboard.press("Escape");
  page.expectRefusal(400);
  await events.nth(1).click();
  await page.getByRole("dialog").getByText("not a readable Avro container").waitFor();
});

await visit.run("by-keyboard", async (page, expect) => {
  await page.goto("/");
  await page.keyboard.press("Tab");
  expect((await page.evaluate(() => document.activeElement.className)) === "skip", "the first stop skips to the content");
  await page.keyboard.press("Enter");
  // Every stop can be seen.
  const unseen = [];
  for (let stop = 0; stop < 40; stop++) {
    await page.keyboard.press("Tab");
    const found = await page.evaluate(() => {
      const focused = document.activeElement;
      const { outlineStyle, outlineWidth } = getComputedStyle(focused);
      const { width, height } = focused.getBoundingClientRect();
      return { name: focused.outerHTML.slice(0, 80), isSeen: focused === document.body || (outlineStyle !== "none" && outlineWidth !== "0px" && width > 0 && height > 0) };
    });
    if (!found.isSeen) unseen.push(found.name);
  }
  expect(unseen.length === 0, `the focus cannot be seen at ${unseen.join(", ")}`);
});

await visit.end();
