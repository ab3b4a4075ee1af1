
// While runs go on: ask for the page now and then, and put its new content in place without losing the reader's.
(() => {
  let tag = null;
  // What is the same in the new page: by section and words, for a run that begins moves all that stands after it.
  const key = (one) => {
    const named = one.tagName === "SUMMARY" ? one.parentElement : one;
    const words = named.getAttribute("aria-label") ?? named.querySelector("caption")?.textContent ?? named.textContent;
    return [one.closest("section")?.id, one.tagName, words].join("|");
  };
  const all = (selector) => [...document.querySelectorAll(selector)];
  const kept = (selector, value) => new Map(all(selector).map((one) => [key(one), value(one)]));
  const focusable = "main a, main button, main summary, main [tabindex]";
  const replace = (fresh) => {
    const open = kept("main details", (one) => one.open);
    const off = kept("button[data-line]", (one) => one.getAttribute("aria-pressed") === "false");
    const sideways = kept(".scroll, nav ul", (one) => one.scrollLeft);
    const cursors = kept(".plot", (one) => [one.getAttribute("aria-valuenow"), one.getAttribute("aria-valuemax")]);
    const focused = document.activeElement.matches(focusable) ? key(document.activeElement) : null;
    const height = window.scrollY;
    document.title = fresh.title;
    document.querySelector("style").textContent = fresh.querySelector("style").textContent;
    for (const name of ["header", "nav", "main"]) {
      const now = document.querySelector(name);
      const next = fresh.querySelector(name);
      if (now && next) now.replaceWith(next);
      else if (next) document.querySelector("main").before(next);
    }
    all("main details").forEach((one) => (one.open = open.get(key(one)) ?? one.open));
    all(".plot").forEach((one) => {
      const [now, last] = cursors.get(key(one)) ?? [];
      if (now !== last) one.setAttribute("aria-valuenow", now); // at the end it goes along with the run
    });
    window.sadqPrepare(document);
    all("button[data-line]").forEach((one) => off.get(key(one)) && one.click());
    all(".scroll, nav ul").forEach((one) => (one.scrollLeft = sideways.get(key(one)) ?? 0));
    window.scrollTo({ top: height, behavior: "instant" });
    all(focusable).find((one) => key(one) === focused)?.focus({ preventScroll: true });
  };
  const refresh = async () => {
    const status = document.getElementById("live");
    try {
      const answer = await fetch("/", { headers: tag ? { "If-None-Match": tag } : {}, cache: "no-store" });
      if (answer.status === 200 && answer.headers.get("ETag") !== tag) {
        tag = answer.headers.get("ETag");
        replace(new DOMParser().parseFromString(await answer.text(), "text/html"));
      } else if (status && status.dataset.lost) {
        status.textContent = "Refreshed while the runs go on.";
        delete status.dataset.lost;
      }
    } catch {
      if (status) {
        status.textContent = "The server has stopped: this page shows what it was told last.";
        status.dataset.lost = "yes";
      }
    }
  };
  window.setInterval(refresh, REFRESH);
})();
