"use strict";
(() => {
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const narrow = matchMedia("(max-width: 34rem)");
  const few = matchMedia("(max-width: 44rem)"); // fewer panels side by side
  const config = { responsive: true, displaylogo: false, displayModeBar: false, scrollZoom: false };

  // Colours of text, axes and grid are the page's, so that a figure follows light and dark.
  const themed = (layout) => {
    const [ink, soft, grid, raised, line] = ["--ink", "--soft", "--grid", "--raised", "--line"].map(colour);
    const out = structuredClone(layout);
    const patch = (few.matches && layout.meta && layout.meta.narrow) || {};
    for (const [key, value] of Object.entries(patch)) {
      out[key] = typeof value === "object" ? { ...out[key], ...structuredClone(value) } : value;
    }
    const axis = (value) => ({
      ...value, gridcolor: grid, zeroline: false, linecolor: line, tickcolor: line, color: soft, automargin: true,
    });
    const small = narrow.matches;
    out.font = { family: "ui-sans-serif, system-ui, 'Segoe UI', Arial, sans-serif", size: small ? 11 : 12.5, color: ink };
    for (const key of Object.keys(out)) if (/^[xy]axis\d*$/.test(key)) out[key] = axis(out[key]);
    if (small) out.margin = { ...out.margin, l: Math.min(out.margin.l, 48), r: 8 };
    out.hoverlabel = { ...out.hoverlabel, bgcolor: raised, bordercolor: line, font: { color: ink } };
    out.legend = { ...out.legend, font: { size: small ? 11 : 12, color: ink } };
    return out;
  };

  // The element has the height that the layout asks for, and the figure fills it: a fixed height would fix the width too.
  const sized = (plot, { height, ...layout }) => {
    if (height) plot.style.height = `${height}px`;
    return layout;
  };

  const live = new Map(); // plot -> its figure
  const draw = (script) => {
    const plot = document.getElementById(script.dataset.plot);
    const figure = JSON.parse(script.textContent);
    const layout = sized(plot, themed(figure.layout));
    Plotly.newPlot(plot, figure.data, layout, config);
    document.getElementById("js-plotly-tester")?.setAttribute("aria-hidden", "true"); // Plotly measures text in it
    live.set(plot, figure);
  };
  const restyle = () => {
    for (const [plot, figure] of live) Plotly.relayout(plot, sized(plot, themed(figure.layout)));
  };
  for (const media of [dark, narrow, few]) media.addEventListener("change", restyle);

  // Numbers sort as numbers, text as text, what is missing last whichever way.
  const sort = (table, column, down) => {
    const key = (row) => {
      const cell = row.cells[column];
      if (cell.dataset.value !== undefined) return Number(cell.dataset.value);
      return cell.textContent === "–" ? null : cell.textContent;
    };
    const body = table.tBodies[0];
    const rows = [...body.rows].map((row) => [key(row), row]);
    rows.sort(([a], [b]) => {
      if (a === null || b === null) return (a === null) - (b === null);
      const order = typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b));
      return down ? -order : order;
    });
    body.append(...rows.map(([, row]) => row));
  };

  for (const table of document.querySelectorAll("table:not(.plain)")) {
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      head.querySelector("button").addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") === "ascending";
        for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        sort(table, column, down);
      });
    });
  }
  for (const input of document.querySelectorAll("[data-filter]")) {
    const table = document.getElementById(input.dataset.filter);
    const told = input.closest(".filter").querySelector("output");
    input.addEventListener("input", () => {
      const wanted = input.value.toLowerCase();
      const rows = [...table.tBodies[0].rows];
      for (const row of rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
      told.textContent = wanted ? `${rows.filter((row) => !row.hidden).length} of ${rows.length} rows` : "";
    });
  }

  // A link to a folded section opens it.
  const unfold = () => {
    let id = location.hash.slice(1);
    try { id = decodeURIComponent(id); } catch { return; } // not a link of this page
    const goal = document.getElementById(id);
    if (!goal) return;
    for (const fold of [goal.querySelector(":scope > details.fold"), goal.closest("details")]) if (fold) fold.open = true;
    goal.scrollIntoView();
  };
  addEventListener("hashchange", unfold);
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[href^='#']");
    if (link && link.getAttribute("href") === location.hash) unfold(); // the hash does not change
  });
  unfold();

  // Figures are drawn when they come near the screen, so that the page shows its first words at once.
  const scripts = new Map([...document.querySelectorAll("script[data-plot]")].map((s) => [s.parentElement, s]));
  const take = (figure) => {
    const script = scripts.get(figure);
    if (!live.has(document.getElementById(script.dataset.plot))) draw(script);
  };
  const near = new IntersectionObserver(
    (entries) => { for (const entry of entries) if (entry.isIntersecting) take(entry.target); },
    { rootMargin: "400px 0px" },
  );
  for (const figure of scripts.keys()) near.observe(figure);
  // Folded sections are opened for the printer. What has no still picture is drawn, in the colours of paper.
  const closed = new Set();
  const print = (on) => {
    if (on) for (const fold of document.querySelectorAll("details.fold:not([open])")) closed.add(fold);
    for (const fold of closed) fold.open = on;
    if (!on) closed.clear();
    document.documentElement.classList.toggle("paper", on);
    restyle();
    if (on) for (const figure of scripts.keys()) if (!figure.closest(".has-static")) take(figure);
  };
  addEventListener("beforeprint", () => print(true));
  addEventListener("afterprint", () => print(false));
})();
