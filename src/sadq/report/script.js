"use strict";
// The cursor: hover, touch or arrow keys show the values of a chart; charts over steps of one section move together.
(() => {
  const nearest = (places, target) => {
    let best = -1;
    places.forEach((place, index) => {
      if (place !== null && (best < 0 || Math.abs(place - target) < Math.abs(places[best] - target))) best = index;
    });
    return best;
  };
  const element = (name, className, text) => {
    const made = document.createElement(name);
    if (className) made.className = className;
    if (text !== undefined) made.textContent = text;
    return made;
  };

  function prepare(figure) {
    const data = JSON.parse(figure.dataset.chart);
    const plot = figure.querySelector(".plot");
    const cursor = figure.querySelector(".cursor");
    const tip = figure.querySelector(".tip");
    const section = figure.closest("section");
    const places = [...new Set(data.lines.flatMap((line) => line.x))].filter((x) => x !== null).sort((a, b) => a - b);
    if (!places.length) return;
    let position = Math.min(Number(plot.getAttribute("aria-valuenow")), places.length - 1);

    const hide = () => {
      cursor.classList.remove("shown");
      tip.hidden = true;
      plot.querySelectorAll(".dot").forEach((dot) => dot.remove());
    };
    const show = (share, withTip) => {
      hide();
      cursor.setAttribute("d", `M${share * 1000} 0V1000`);
      cursor.classList.add("shown");
      tip.replaceChildren();
      const words = [];
      for (const line of data.lines) {
        const index = nearest(line.x, share);
        if (index < 0 || line.y[index] === null || Math.abs(line.x[index] - share) > 0.05) continue;
        if (!words.length) {
          tip.append(element("div", "at", line.at[index]));
          words.push(line.at[index]);
        }
        const dot = element("span", `dot ${line.line}`);
        dot.style.left = `${100 * line.x[index]}%`;
        dot.style.bottom = `${100 * line.y[index]}%`;
        plot.append(dot);
        const row = element("div", `row ${line.line}`);
        row.append(element("i"), element("span", "", line.label), element("b", "", line.says[index]));
        tip.append(row);
        words.push(`${line.label}: ${line.says[index]}`);
      }
      if (!withTip) return;
      tip.hidden = words.length < 2;
      const right = share > 0.5;
      tip.style.left = right ? "auto" : `calc(${100 * share}% + 12px)`;
      tip.style.right = right ? `calc(${100 * (1 - share)}% + 12px)` : "auto";
      plot.setAttribute("aria-valuetext", words.join("; "));
    };
    const choose = (index) => {
      position = Math.min(Math.max(index, 0), places.length - 1);
      plot.setAttribute("aria-valuenow", position);
      show(places[position], true);
      tell(places[position]);
    };
    const tell = (share) => {
      if (data.steps && section) section.dispatchEvent(new CustomEvent("cursor", { detail: { share, from: figure } }));
    };
    if (data.steps && section) {
      section.addEventListener("cursor", (event) => {
        if (event.detail.from === figure) return;
        if (event.detail.share === null) hide();
        else show(event.detail.share, false);
      });
    }
    const leave = () => {
      if (document.activeElement === plot) return;
      hide();
      tell(null);
    };
    plot.addEventListener("pointermove", (event) => {
      const box = plot.getBoundingClientRect();
      choose(nearest(places, (event.clientX - box.left) / box.width));
    });
    plot.addEventListener("pointerleave", leave);
    plot.addEventListener("focus", () => choose(position));
    plot.addEventListener("blur", () => {
      hide();
      tell(null);
    });
    plot.addEventListener("keydown", (event) => {
      const leap = Math.max(1, Math.round(places.length / 10));
      const moves = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -leap, PageUp: leap };
      if (event.key in moves) choose(position + moves[event.key]);
      else if (event.key === "Home") choose(0);
      else if (event.key === "End") choose(places.length - 1);
      else if (event.key === "Escape") hide();
      else return;
      event.preventDefault();
    });
  }

  // A line is hidden or shown in all charts of its section.
  function prepareToggle(button) {
    button.addEventListener("click", () => {
      const off = button.getAttribute("aria-pressed") === "true";
      button.setAttribute("aria-pressed", String(!off));
      button.closest("section").classList.toggle(`without-${button.dataset.line}`, off);
    });
  }

  window.sadqPrepare = (root) => {
    root.querySelectorAll("[data-chart]").forEach(prepare);
    root.querySelectorAll("button[data-line]").forEach(prepareToggle);
  };
  window.sadqPrepare(document);
})();
