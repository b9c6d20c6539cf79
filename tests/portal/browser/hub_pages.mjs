// Opens every page of the portal that a hub without jobs has, and does what the page is for.
// node hub_pages.mjs '{"url": …, "chromiumPath": …, "pictures": …, "away": …}'
import { readFileSync } from "node:fs";
import { Visit } from "./browser.mjs";

const settings = JSON.parse(process.argv[2]);
const visit = await Visit.begin(settings);
const text = (page, selector) => page.locator(selector).innerText();

await visit.run("overview", async (page, expect) => {
  await page.goto("/");
  expect((await page.title()).includes("Tidegate"), "the title names the product");
  await page.getByRole("button", { name: "New event hub" }).click();
  await page.getByRole("textbox", { name: "Name" }).fill("made-here");
  await page.getByRole("button", { name: "Create" }).click();
  await page.waitForURL("**/eventhubs/made-here");
  await page.goto("/");
  expect(await page.getByRole("link", { name: "made-here", exact: true }).isVisible(), "the new hub is listed");
  await page.getByLabel("Find").fill("no such");
  await page.getByRole("button", { name: "Find" }).click();
  expect((await text(page, "main")).includes("No event hub has"), "a search without result says so");
  await page.goto("/");
  await page.getByRole("button", { name: "New event hub" }).click();
  await page.getByRole("textbox", { name: "Name" }).fill("made-here");
  page.expectRefusal(400);
  await page.getByRole("button", { name: "Create" }).click();
  expect((await page.getByRole("alert").filter({ visible: true }).innerText()).includes("already"), "a refusal is shown in the form");
  await page.getByRole("button", { name: "Cancel" }).click();
  await page.checkAndPicture("overview", { isVariant: true });
});

await visit.run("send-and-browse", async (page, expect) => {
  await page.goto("/eventhubs/telemetry/explorer");
  await page.getByLabel("Start from").selectOption({ label: "Device telemetry" });
  await page.getByRole("button", { name: "Preview" }).click();
  await page.locator("#previews pre").first().waitFor();
  await page.getByLabel("How many events").fill("300");
  await page.getByRole("button", { name: "Add a property" }).click();
  await page.getByLabel("Property name").fill("site");
  await page.getByLabel("Property value").fill("plant {{cycle north south}}");
  await page.getByRole("button", { name: "Send", exact: true }).click();
  await page.locator("#events tbody tr").nth(49).waitFor();
  expect((await text(page, "#events")).includes("sensor-"), "the events are shown newest first after sending");
  await page.getByRole("button", { name: "Older events" }).click();
  await page.locator("#events tbody tr").nth(99).waitFor();
  // Search, by a field, a property and a word.
  await page.getByLabel("Search").fill('deviceId:sensor-3 site:"plant north"');
  await page.getByRole("button", { name: "Browse", exact: true }).click();
  await page.locator("#events mark").first().waitFor();
  for (const body of await page.locator("#events a.event").allInnerTexts()) expect(body.includes("sensor-3"), `found ${body}`);
  // By an expression, which says how far it came.
  await page.getByLabel("Search").fill("deviceId:sensor-3 OR (deviceId:sensor-4 AND nothing)");
  await page.getByRole("button", { name: "Browse", exact: true }).click();
  await page.locator("#browse-status", { hasText: /\d+ events? found; searched [\d,]+ of [\d,]+/ }).waitFor();
  // A field gets a column.
  await page.locator("details.columns summary").click();
  await page.getByRole("checkbox", { name: "deviceId" }).check();
  await page.getByRole("columnheader", { name: "deviceId" }).waitFor();
  await page.locator("#events tbody tr:first-child td:nth-child(5)", { hasText: /^sensor-3$/ }).waitFor();
  // The events of the answer before look like those of the next one: they are told apart by an attribute.
  const replaced = async (act) => {
    await page.locator("#events tbody tr").first().evaluate((row) => row.setAttribute("data-before", ""));
    await act();
    await page.locator("#events tr[data-before]").waitFor({ state: "detached" });
  };
  await replaced(() => page.getByRole("checkbox", { name: "deviceId" }).uncheck());
  await page.locator("details.columns summary").click();
  await page.getByLabel("Search").fill('deviceId:sensor-3 site:"plant north"');
  await replaced(() => page.getByRole("button", { name: "Browse", exact: true }).click());
  await page.locator("#events mark").first().waitFor();
  // One event.
  await page.locator("#events a.event").first().click();
  await page.getByRole("dialog").waitFor();
  const shown = await page.getByRole("dialog").innerText();
  for (const part of ["Sequence number", "site", "plant north", "content-type", '"deviceId": "sensor-3"']) expect(shown.includes(part), `the event's page lacks ${part}: ${shown}`);
  await page.checkAndPicture("event");
  const [file] = await Promise.all([page.waitForEvent("download"), page.getByRole("dialog").getByRole("link", { name: "Download" }).click()]);
  JSON.parse(readFileSync(await file.path(), "utf8"));
  await page.keyboard.press("Escape");
  const [lines] = await Promise.all([page.waitForEvent("download"), page.getByRole("link", { name: "JSON lines" }).click()]);
  const events = readFileSync(await lines.path(), "utf8").trim().split("\n").map((line) => JSON.parse(line));
  expect(events.length > 0 && events.every(({ body, properties }) => body.deviceId === "sensor-3" && properties.site === "plant north"), "the download has what was searched");
  // Of a search that begins just as the answer of the one before has arrived, that answer is not shown any more.
  await page.getByLabel("Search").fill("deviceId:sensor-4");
  await page.evaluate(() => {
    const [fetched, form] = [globalThis.fetch, document.getElementById("browse-form")];
    globalThis.fetch = async (...asked) => {
      globalThis.fetch = fetched;
      const content = await (await fetched(...asked)).text();
      const text = () => {
        const given = Promise.resolve(content);
        given.then(() => {
          form.elements.search.value = "deviceId:sensor-5";
          form.requestSubmit();
          setTimeout(() => { globalThis.outdated = [...document.querySelectorAll("#events a.event")].some((event) => event.textContent.includes("sensor-4")); });
        });
        return given;
      };
      return { ok: true, status: 200, text };
    };
  });
  await page.getByRole("button", { name: "Browse", exact: true }).click();
  await page.locator("#events mark", { hasText: "sensor-5" }).first().waitFor();
  expect(!(await page.evaluate(() => globalThis.outdated)), "an outdated answer is not shown");
  await page.checkAndPicture("explorer");
});

await visit.run("follow-a-generator", async (page, expect) => {
  await page.goto("/eventhubs/telemetry/explorer");
  await page.getByLabel("Start from").selectOption({ label: "Toll booths" });
  await page.getByRole("button", { name: "Send steadily" }).click();
  await page.getByLabel("Events per second").fill("20");
  await page.getByRole("button", { name: "Start", exact: true }).click();
  await page.locator("#events a.event", { hasText: "plate" }).nth(20).waitFor();
  expect((await text(page, "#browse-status")).includes("Following"), "the status says that it follows");
  await page.getByRole("button", { name: /^Stop sending/ }).click();
  await page.locator("#generators li").waitFor({ state: "detached" });
});

await visit.run("send-by-keyboard", async (page, expect) => {
  await page.goto("/eventhubs/eh1/explorer");
  await page.keyboard.press("Tab");
  expect((await page.evaluate(() => document.activeElement.textContent)) === "Skip to content", "the first stop skips to the content");
  await page.getByRole("textbox", { name: "Body" }).focus();
  await page.keyboard.press("Control+A");
  await page.keyboard.type('{"typed": true}');
  await page.keyboard.press("Control+Enter");
  await page.locator("#events a.event", { hasText: "typed" }).first().waitFor();
  await page.getByRole("textbox", { name: "Body" }).fill("{{nothing}}");
  page.expectRefusal(400);
  await page.keyboard.press("Control+Enter");
  await page.locator("#send-problem", { hasText: "no placeholder" }).waitFor();
});

await visit.run("browse-from-positions", async (page, expect) => {
  await page.goto("/eventhubs/telemetry/explorer?from=earliest&partition=1");
  expect((await text(page, "#events tbody tr:first-child td:nth-child(3)")) === "0", "the oldest comes first");
  await page.locator("#from").selectOption({ label: "a sequence number" });
  await page.locator("[name=value]").fill("5");
  await page.getByRole("button", { name: "Browse", exact: true }).click();
  await page.waitForFunction(() => document.querySelector("#events tbody tr td:nth-child(3)")?.textContent === "5");
  await page.locator("#from").selectOption({ label: "a time (UTC)" });
  await page.locator("[name=value]").fill("not a time");
  page.expectRefusal(400);
  await page.getByRole("button", { name: "Browse", exact: true }).click();
  await page.locator("#browse-problem", { hasText: "ISO 8601" }).waitFor();
});

await visit.run("hub", async (page, expect) => {
  await page.goto("/eventhubs/telemetry");
  await page.locator(".uplot canvas").nth(1).waitFor();
  await page.locator(".heat-value", { hasText: "incoming" }).waitFor();
  await page.waitForFunction(() => /^Incoming: .*?highest [\d.]*[1-9]/.test(document.querySelector(".plot").getAttribute("aria-label")));
  await page.getByText("As a table").first().click();
  await page.locator(".chart table tbody tr").first().waitFor();
  await page.getByText("As a table").first().click();
  await page.getByRole("button", { name: "New consumer group" }).click();
  await page.getByRole("dialog").getByLabel("Name").fill("readers");
  await page.getByRole("dialog").getByRole("button", { name: "Create" }).click();
  await page.getByRole("rowheader", { name: "readers" }).waitFor();
  await page.getByRole("button", { name: "Delete the consumer group readers" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
  await page.getByRole("rowheader", { name: "readers" }).waitFor({ state: "detached" });
  await page.getByRole("button", { name: "Connect" }).click();
  await page.getByRole("button", { name: "Show and copy" }).click();
  await page.waitForFunction(() => document.querySelector('[name="connectionString"]').value.includes("EntityPath=telemetry"));
  expect(!(await page.content()).includes("SAS_KEY_VALUE"), "the key is in no markup");
  await page.getByRole("dialog").getByRole("button", { name: "Close" }).click();
  await page.goto("/eventhubs/telemetry?range=24h");
  await page.locator(".uplot canvas").nth(1).waitFor();
  await page.checkAndPicture("hub");
});

await visit.run("namespace", async (page, expect) => {
  await page.goto("/namespace");
  await page.getByRole("button", { name: "New policy" }).click();
  await page.getByRole("dialog").getByLabel("Name").fill("sender");
  await page.getByRole("dialog").getByLabel("Send").check();
  await page.getByRole("dialog").getByRole("button", { name: "Create" }).click();
  const row = page.getByRole("row", { name: /^sender/ });
  await row.waitFor();
  await page.getByRole("button", { name: "Change the rights of sender" }).click();
  expect(await page.getByRole("dialog").getByLabel("Send").isChecked(), "the rights that it has are chosen");
  await page.getByRole("dialog").getByLabel("Listen").check();
  await page.checkAndPicture("policy-rights");
  await page.getByRole("dialog").getByRole("button", { name: "Save" }).click();
  await page.getByRole("row", { name: /^sender Listen, Send/ }).waitFor();
  await page.checkAndPicture("namespace");
});

await visit.run("delete", async (page, expect) => {
  await page.goto("/eventhubs/made-here");
  await page.locator("summary[aria-label=More]").click();
  await page.getByRole("button", { name: "Delete", exact: true }).click();
  await page.getByLabel("Repeat the name").fill("another");
  page.expectRefusal(400);
  await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
  await page.getByRole("alert").filter({ visible: true }).waitFor();
  await page.getByLabel("Repeat the name").fill("made-here");
  await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
  await page.waitForURL(settings.url + "/");
  expect((await page.getByRole("link", { name: "made-here", exact: true }).count()) === 0, "the hub is gone");
});

await visit.run("missing", async (page, expect) => {
  page.expectRefusal(404);
  await page.goto("/eventhubs/nowhere");
  expect((await text(page, "main")).includes("could not be found"), "a hub that does not exist says so");
  await page.checkAndPicture("error");
});

// By another name than a loopback one, the portal needs a key.
await visit.run("sign-in", async (page, expect) => {
  const away = settings.away;
  await page.goto(`${away}/eventhubs/telemetry`);
  expect(page.url().startsWith(`${away}/sign-in`), "a visitor from elsewhere has to sign in");
  await page.checkAndPicture("sign-in");
  page.expectRefusal(401);
  await page.getByLabel("Key").fill("wrong");
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("alert").waitFor();
  await page.getByLabel("Key").fill(settings.key);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.waitForURL(`${away}/eventhubs/telemetry`);
  expect((await text(page, ".who")).includes("owner"), "the root key makes an owner");
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.waitForURL(`${away}/sign-in`);
});

await visit.end();
