"use strict";
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.querySelectorAll("thead th")];
  const body = table.tBodies[0];
  heads.forEach((head, column) => {
    head.querySelector("button").addEventListener("click", () => {
      const numeric = head.classList.contains("n");
      const before = head.getAttribute("aria-sort");
      const first = numeric ? "descending" : "ascending";
      const second = numeric ? "ascending" : "descending";
      const order = before === first ? second : first;
      const sign = order === "ascending" ? 1 : -1;
      const key = (row) => row.cells[column].dataset.v;
      const rows = [...body.rows].sort((a, b) => {
        const [x, y] = [key(a), key(b)];
        // What is missing stays at the end, whichever way the rest is sorted.
        if (x === undefined || y === undefined) return (x === undefined) - (y === undefined);
        return sign * (numeric ? x - y : x.localeCompare(y, "en", { numeric: true }));
      });
      for (const other of heads) other.setAttribute("aria-sort", "none");
      head.setAttribute("aria-sort", order);
      body.append(...rows);
    });
  });
}
const contents = document.querySelector(".contents details");
if (contents && matchMedia("(max-width: 40rem)").matches) contents.open = false;
