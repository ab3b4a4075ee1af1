// Looks at a report's page in a real browser, as its readers will: on a desk and on a phone, light, dark and on paper.
//
//   mkdir /tmp/browser && cd /tmp/browser && npm install playwright-core@1 axe-core@4
//   node CHECKOUT/tools/check_page.mjs PAGE.html OUT [/usr/bin/chromium]
//
// It needs Node 20 or later, Chromium (Debian: `apt-get install chromium`), and the two packages in the folder that it is
// called from. It fails where the page asks for anything but itself, says anything on the console, is wider than the
// screen, breaks a tick into lines or lets it stick out, cannot be used by keyboard, or breaks a rule of axe. OUT gets
// the screens and page.pdf. With the address of `sadq watch` in place of a file it also fails where a page made anew
// loses what its reader has chosen.
import { createRequire } from "node:module";
import { mkdirSync } from "node:fs";
import path from "node:path";
import { pathToFileURL } from "node:url";

const require = createRequire(path.join(process.cwd(), "package.json"));
const { chromium } = require("playwright-core");
const axe = require.resolve("axe-core/axe.min.js");

const [file, out, browserPath = "/usr/bin/chromium"] = process.argv.slice(2);
if (!file || !out) {
  console.error("usage: node check_page.mjs PAGE.html OUT [CHROMIUM]");
  process.exit(2);
}
const address = /^https?:/.test(file) ? file : pathToFileURL(path.resolve(file)).href;
mkdirSync(out, { recursive: true });

const problems = [];
const browser = await chromium.launch({ executablePath: browserPath, args: ["--no-sandbox", "--disable-gpu"] });

async function opened(name, width, height, colorScheme) {
  const page = await browser.newPage({ viewport: { width, height }, colorScheme, reducedMotion: "reduce" });
  page.setDefaultTimeout(300_000);
  page.on("console", (message) => problems.push(`${name}: the console says ${message.text()}`));
  page.on("pageerror", (error) => problems.push(`${name}: ${error.message}`));
  page.on("request", (request) => {
    if (request.url() !== address) problems.push(`${name}: it asks for ${request.url()}`);
  });
  await page.goto(address);
  return page;
}

for (const [name, width, height, scheme] of [
  ["desk-light", 1280, 900, "light"],
  ["desk-dark", 1280, 900, "dark"],
  ["phone-light", 390, 844, "light"],
  ["phone-dark", 390, 844, "dark"],
]) {
  const page = await opened(name, width, height, scheme);
  const wide = await page.evaluate(() => document.documentElement.scrollWidth);
  if (wide > width) problems.push(`${name}: ${wide} pixels wide on a screen of ${width}`);
  const broken = await page.evaluate(() =>
    [...document.querySelectorAll(".x-ticks span, .y-ticks span")]
      .filter((tick) => tick.offsetHeight > 2 * parseFloat(getComputedStyle(tick).fontSize))
      .map((tick) => tick.textContent),
  );
  const outside = await page.evaluate(() =>
    [...document.querySelectorAll(".x-ticks span, .y-ticks span")]
      .filter((tick) => {
        const [box, chart] = [tick, tick.closest(".chart")].map((one) => one.getBoundingClientRect());
        return box.left < chart.left + 2 || box.right > chart.right - 2;
      })
      .map((tick) => tick.textContent),
  );
  if (outside.length) problems.push(`${name}: ticks outside of their chart, ${outside.slice(0, 3).join(", ")}`);
  if (broken.length) problems.push(`${name}: ticks of several lines, ${broken.slice(0, 3).join(", ")}`);
  await page.screenshot({ path: path.join(out, `${name}.png`), fullPage: true });
  await page.addScriptTag({ path: axe });
  const found = await page.evaluate(() => globalThis.axe.run());
  for (const rule of found.violations) {
    problems.push(`${name}: axe, ${rule.id} (${rule.impact}) in ${rule.nodes.length}: ${rule.nodes[0].html.slice(0, 160)}`);
  }
  console.log(`${name}: axe passes ${found.passes.length} rules, breaks ${found.violations.length}`);
  await page.close();
}

{
  const page = await opened("keys", 1280, 900, "light");
  const wanted = await page.evaluate(() => document.querySelectorAll("a, button, summary, [tabindex='0']").length);
  const hidden = await page.evaluate(
    () => [...document.querySelectorAll("details:not([open]) [tabindex='0'], details:not([open]) a")].length,
  );
  const reached = new Set();
  for (let presses = 0; presses < wanted + 5; presses++) {
    await page.keyboard.press("Tab");
    reached.add(
      await page.evaluate(() => [...document.querySelectorAll("*")].indexOf(document.activeElement)),
    );
  }
  reached.delete(await page.evaluate(() => [...document.querySelectorAll("*")].indexOf(document.body)));
  console.log(`keys: Tab reaches ${reached.size} of ${wanted - hidden} places`);
  if (reached.size < wanted - hidden) problems.push(`keys: Tab reaches ${reached.size} of ${wanted - hidden} places`);

  const plot = page.locator(".plot").first();
  await plot.focus();
  const last = await plot.getAttribute("aria-valuetext");
  await page.keyboard.press("Home");
  const first = await plot.getAttribute("aria-valuetext");
  if (first === last || !first) problems.push(`keys: Home says ${first}, the end ${last}`);
  if (!(await page.locator(".tip").first().isVisible())) problems.push("keys: a chart in focus shows no values");
  console.log(`keys: Home says ${first}`);
  const box = await plot.boundingBox();
  await plot.hover({ position: { x: box.width * 0.3, y: box.height / 2 } });
  await page.screenshot({ path: path.join(out, "hover.png") });
  const button = page.locator("button[data-line]").first();
  if (await button.count()) {
    await button.click();
    const shown = await page.locator(`.plot .${await button.getAttribute("data-line")}`).first().isVisible();
    if (shown) problems.push("keys: a line that was switched off is still drawn");
  }
  await page.close();
}

if (/^https?:/.test(file)) {
  // What a reader of `sadq watch` has opened, hidden, scrolled and pointed at stays so when the page is made anew.
  const page = await opened("live", 390, 844, "light");
  const state = () =>
    page.evaluate(() => ({
      off: [...document.querySelectorAll("button[aria-pressed='false']")].map((one) => one.closest("section").id),
      open: [...document.querySelectorAll("main details")].findIndex((one) => one.open),
      sideways: Math.max(...[...document.querySelectorAll("main .scroll")].map((one) => one.scrollLeft)),
      height: Math.round(window.scrollY),
      says: document.activeElement.getAttribute("aria-valuetext"),
    }));
  const button = page.locator("button[data-line]").first();
  if (await button.count()) await button.click();
  await page.evaluate(() => (document.querySelectorAll("main details")[3].open = true));
  await page.evaluate(() => document.querySelectorAll("main .scroll").forEach((one) => (one.scrollLeft = 60)));
  await page.locator(".plot").first().focus();
  for (const key of ["Home", "ArrowRight"]) await page.keyboard.press(key);
  await page.waitForTimeout(500);
  const before = JSON.stringify(await state());
  await page.evaluate(() => (document.querySelector("main").dataset.old = "yes"));
  await page.route("**/*", async (route) => {
    const answer = await route.fetch({ headers: {} });
    await route.fulfill({ response: answer, headers: { ...answer.headers(), etag: '"another"' } });
  });
  await page.waitForFunction(() => !document.querySelector("main").dataset.old);
  const after = JSON.stringify(await state());
  if (before !== after) problems.push(`live: ${before} became ${after}`);
  console.log(`live: ${after}`);
  await page.close();
}

{
  const page = await opened("paper", 1280, 900, "dark");
  await page.pdf({ path: path.join(out, "page.pdf"), format: "A4", printBackground: false });
  await page.emulateMedia({ media: "print" });
  const back = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  if (back !== "rgb(255, 255, 255)") problems.push(`paper: the background is ${back}`);
  const shut = page.locator("details:not([open]) > summary:visible");
  if (await shut.count()) problems.push(`paper: ${await shut.count()} folded parts print a heading with nothing below it`);
  await page.close();
}

await browser.close();
console.log(problems.length ? problems.join("\n") : "nothing to complain of");
process.exit(problems.length ? 1 : 0);
