
// While runs go on: ask for the page now and then, and put its new content in place without losing the reader's.
(() => {
  let tag = null;
  const focusable = () => [...document.querySelectorAll("main a, main button, main summary, main [tabindex]")];
  const refresh = async () => {
    const status = document.getElementById("live");
    try {
      const answer = await fetch("/", { headers: tag ? { "If-None-Match": tag } : {}, cache: "no-store" });
      if (answer.status === 200 && answer.headers.get("ETag") !== tag) {
        tag = answer.headers.get("ETag");
        const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
        const open = [...document.querySelectorAll("main details")].map((one) => one.open);
        const off = [...document.querySelectorAll("button[aria-pressed='false']")].map((one) => one.dataset.line);
        const focused = focusable().indexOf(document.activeElement);
        const height = window.scrollY;
        document.title = fresh.title;
        document.querySelector("style").textContent = fresh.querySelector("style").textContent;
        for (const name of ["header", "nav", "main"]) {
          const now = document.querySelector(name);
          const next = fresh.querySelector(name);
          if (now && next) now.replaceWith(next);
          else if (next) document.querySelector("main").before(next);
        }
        const details = [...document.querySelectorAll("main details")];
        if (details.length === open.length) details.forEach((one, index) => (one.open = open[index]));
        window.sadqPrepare(document);
        document.querySelectorAll("button[data-line]").forEach((one) => off.includes(one.dataset.line) && one.click());
        window.scrollTo({ top: height, behavior: "instant" });
        if (focused >= 0) focusable()[focused]?.focus({ preventScroll: true });
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
