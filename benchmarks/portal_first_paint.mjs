// First paint of a page in Chromium, from the start of the navigation; each visit in a new context, so nothing is cached.
// A blank page of the same origin comes first: the browser's process for the origin exists then, as it does for a user.
// node portal_first_paint.mjs '{"urls": […], "chromiumPath": …, "visits": 5}'
import { createRequire } from "node:module";

const { chromium } = createRequire(new URL("../tests/portal/browser/package.json", import.meta.url))("playwright-core");
const { urls, chromiumPath, visits } = JSON.parse(process.argv[2]);
const browser = await chromium.launch({ executablePath: chromiumPath, args: ["--no-sandbox", "--disable-dev-shm-usage"] });
const found = {};
for (const url of urls) {
  found[url] = [];
  for (let visit = 0; visit < visits; visit++) {
    const context = await browser.newContext({ viewport: { width: 1440, height: 900 } });
    const page = await context.newPage();
    const paint = () => page.evaluate(async () => {
      const painted = () => performance.getEntriesByName("first-contentful-paint")[0];
      for (let turn = 0; turn < 100 && !painted(); turn++) await new Promise((resolve) => setTimeout(resolve, 20));
      const navigation = performance.getEntriesByType("navigation")[0];
      return { paint: painted().startTime, answer: navigation.responseEnd, bytes: navigation.encodedBodySize };
    });
    await page.route("**/blank", (route) => route.fulfill({ contentType: "text/html", body: "<!doctype html><p>blank" }));
    await page.goto(new URL("/blank", url).href, { waitUntil: "load" });
    const blank = (await paint()).paint;
    await page.goto(url, { waitUntil: "load" });
    found[url].push({ ...(await paint()), blank });
    await context.close();
  }
}
await browser.close();
process.stdout.write(JSON.stringify(found));
