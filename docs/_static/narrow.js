// For `narrow.css`: marks tables whose rows can be cards, and notes at each cell what its column is.
addEventListener("DOMContentLoaded", () => {
  for (const table of document.querySelectorAll("article table.docutils")) {
    const labels = [...table.querySelectorAll("thead th")].map((cell) => cell.textContent.trim());
    if (labels.length < 2 || table.querySelector("[rowspan], [colspan]")) {
      continue;
    }
    table.classList.add("cards");
    if (labels.length === 2) {
      continue; // the second cell explains the first one, without a word between them
    }
    for (const row of table.querySelectorAll("tbody tr")) {
      [...row.cells].forEach((cell, column) => {
        if (labels[column]) {
          cell.dataset.label = labels[column];
        }
        cell.classList.toggle("nothing", ["", "-"].includes(cell.textContent.trim()));
      });
    }
  }
});
