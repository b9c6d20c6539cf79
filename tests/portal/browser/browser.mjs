// What the scenarios share: a browser, a page whose console is watched, accessibility checks and screenshots.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { chromium } from "playwright-core";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
// How long a scenario waits for what is sure to come, however busy the machine is; PATIENCE_S of tests/patience.py.
export const PATIENCE_MS = 100000;
const WIDTHS = { wide: { width: 1440, height: 900 }, phone: { width: 390, height: 844 } };

/** Move the focus to what begins with a name, and matches a selector, with Tab alone, as somebody without a mouse does. */
async function reach(page, name, selector = "*") {
  const passed = [];
  for (let stop = 0; stop < 150; stop++) {
    await page.keyboard.press("Tab");
    const { found, fits } = await page.evaluate((wanted) => {
      const { activeElement } = document;
      return {
        found: (activeElement.getAttribute("aria-label") ?? activeElement.labels?.[0]?.textContent ?? activeElement.textContent).trim(),
        fits: activeElement.matches(wanted),
      };
    }, selector);
    if (fits && found.startsWith(name)) return;
    passed.push(found.slice(0, 30));
  }
  throw new Error(`no stop is called ${name}: ${passed.join(", ")}`);
}

export class Visit {
  static async begin({ url, chromiumPath, pictures, keepsPictures = false, isSoak = false }) {
    const browser = await chromium.launch({ executablePath: chromiumPath, args: ["--no-sandbox", "--disable-dev-shm-usage", "--host-resolver-rules=MAP portal.test 127.0.0.1"] });
    const context = await browser.newContext({ viewport: WIDTHS.wide, baseURL: url, acceptDownloads: true });
    return new Visit(browser, context, pictures, keepsPictures, isSoak);
  }

  constructor(browser, context, pictures, keepsPictures, isSoak) {
    Object.assign(this, { browser, context, pictures, keepsPictures, isSoak, found: [] });
  }

  /**
   * Return a page that knows nothing of the scenarios before.
   *
   * It is the same one unless that is broken: a new page is a new process, which has to compile all scripts again.
   */
  async page({ isNew }) {
    const [kept, ...others] = isNew ? [undefined, ...this.context.pages()] : this.context.pages();
    const page = kept ?? (await this.context.newPage());
    for (const other of others) await other.close();
    for (const event of ["console", "pageerror", "dialog"]) page.removeAllListeners(event);
    await page.unrouteAll({ behavior: "ignoreErrors" });
    await page.evaluate(() => { if (location.href !== "about:blank") { localStorage.clear(); sessionStorage.clear(); } });
    await this.context.clearCookies();
    await page.setViewportSize(WIDTHS.wide);
    await page.emulateMedia({ colorScheme: null, reducedMotion: null });
    return page;
  }

  /** Run a scenario; whatever goes wrong in it is its result. */
  async run(name, scenario) {
    const started = Date.now();
    const problems = [];
    const page = await this.page({ isNew: this.found.some((one) => one.problems.length > 0) });
    page.setDefaultTimeout(PATIENCE_MS);
    page.setDefaultNavigationTimeout(PATIENCE_MS);
    // A refusal that a scenario asks for is logged by the browser too: it names the status it expects.
    const expected = new Set();
    page.on("console", (message) => {
      if (message.type() === "error" && ![...expected].some((text) => message.text().includes(text))) problems.push(`console: ${message.text()}`);
    });
    page.on("pageerror", (error) => problems.push(`error: ${error.message}`));
    page.expectRefusal = (status) => expected.add(`status of ${status}`);
    page.expectAbsence = () => expected.add("net::ERR_FAILED");
    page.reach = (name, selector) => reach(page, name, selector);
    page.checkAndPicture = (picture, options) => this.checkAndPicture(page, picture, problems, options);
    try {
      await scenario(page, (condition, text) => { if (!condition) problems.push(text); });
    } catch (error) {
      problems.push(error.stack);
      await page.screenshot({ path: join(this.pictures, `${name}-failed.png`) }).catch(() => {});
    }
    this.found.push({ name, problems, seconds: (Date.now() - started) / 1000 });
  }

  /**
   * Check a page's accessibility in light and dark mode, that it fits a phone, and keep pictures if somebody wants them.
   *
   * A variant of a page that another scenario checks is scanned in the soak only: that it fits is always checked.
   */
  async checkAndPicture(page, picture, problems, { isVariant = false } = {}) {
    const isScanned = !isVariant || this.isSoak;
    for (const [width, viewport] of Object.entries(WIDTHS)) {
      await page.setViewportSize(viewport);
      for (const colorScheme of ["light", "dark"]) {
        const isOnlyAPicture = !isScanned || (width === "phone" && colorScheme === "dark");
        if (colorScheme === "dark" && isOnlyAPicture && !this.keepsPictures) continue;
        await page.emulateMedia({ colorScheme, reducedMotion: "reduce" });
        // Two frames: what has changed is laid out, and drawn.
        await page.evaluate(() => new Promise((drawn) => { requestAnimationFrame(() => requestAnimationFrame(drawn)); }));
        if (this.keepsPictures) await page.screenshot({ path: join(this.pictures, `${picture}-${width}-${colorScheme}.png`), fullPage: true });
        if (isOnlyAPicture) continue;
        if (!(await page.evaluate(() => "axe" in globalThis))) await page.evaluate(AXE);
        // A dark page is the light one in other colors.
        const rules = colorScheme === "dark" ? { runOnly: { type: "rule", values: ["color-contrast", "link-in-text-block"] } } : {};
        const { violations } = await page.evaluate((some) => globalThis.axe.run(document, { resultTypes: ["violations"], ...some }), rules);
        for (const one of violations) {
          const where = one.nodes.slice(0, 3).map(({ target, any }) => `${target} ${any[0]?.message ?? ""}`).join("; ");
          problems.push(`axe (${picture}, ${width}, ${colorScheme}): ${one.id}: ${one.help}: ${where}`);
        }
      }
      const overflow = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
      if (overflow > 0) problems.push(`${picture}: at ${viewport.width} pixels the page is ${overflow} pixels too wide`);
    }
    await page.setViewportSize(WIDTHS.wide);
    await page.emulateMedia({ colorScheme: "light" });
  }

  async end() {
    await this.browser.close();
    process.stdout.write(JSON.stringify(this.found));
  }
}
