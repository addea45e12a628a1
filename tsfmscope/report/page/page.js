"use strict";
(() => {
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

  // Folded sections are opened for the printer.
  const closed = new Set();
  const print = (on) => {
    if (on) for (const fold of document.querySelectorAll("details.fold:not([open])")) closed.add(fold);
    for (const fold of closed) fold.open = on;
    if (!on) closed.clear();
    document.documentElement.classList.toggle("paper", on);
  };
  addEventListener("beforeprint", () => print(true));
  addEventListener("afterprint", () => print(false));
})();
