"use strict";
// A cursor over a picture: the pointer or the arrow keys move it, the line below says what lies there.
for (const box of document.querySelectorAll("[data-cursor]")) {
  const data = JSON.parse(box.dataset.cursor);
  const svg = box.querySelector("svg:not(.gutter)");
  const cursor = svg.querySelector(".cursor");
  const reading = box.parentElement.querySelector(".reading");
  const [left, top, width, height] = data.area;
  const [columns, rows] = data.size;
  let at = data.start;

  const heat = (x, y) => {
    const count = data.counts[y * columns + x];
    const where = `${data.titles[0]} ${data.labels[0][x]}, ${data.titles[1]} ${data.labels[1][y]}: `;
    return where + (count < 0 ? "not compared" : count ? `${count.toLocaleString("en")} differ` : "equal");
  };
  const page = (x, y) => {
    const cell = y * columns + x;
    if (cell >= data.cells.length) return "";
    const [start, pages, per] = data.pages;
    const first = start + cell * per, last = start + Math.min((cell + 1) * per, pages) - 1;
    const state = data.cells[cell];
    const who = {"-1": "free", "-2": "several owners", "-3": "owned twice"};
    return (per > 1 ? `pages ${first} to ${last}: ` : `page ${first}: `) + (who[state] ?? data.owners[state]);
  };
  const say = data.counts ? heat : data.cells ? page : (x) => data.texts[x];

  const show = (x, y, drawn = true) => {
    at = [Math.max(0, Math.min(columns - 1, x)), Math.max(0, Math.min(rows - 1, y))];
    const w = width / columns, h = height / rows;
    cursor.setAttribute("x", left + at[0] * w);
    cursor.setAttribute("y", top + at[1] * h);
    cursor.setAttribute("width", w);
    cursor.setAttribute("height", h);
    cursor.classList.toggle("idle", !drawn);
    reading.textContent = say(at[0], at[1]);
  };

  // Scrolls the box, never the page, so far that the cell and some of what is around it are seen.
  const reveal = (around) => {
    const gutter = box.querySelector(".gutter")?.getBoundingClientRect().width ?? 0;
    const seen = box.getBoundingClientRect(), cell = cursor.getBoundingClientRect();
    if (cell.left - around < seen.left + gutter) box.scrollLeft -= seen.left + gutter - cell.left + around;
    if (cell.right + around > seen.right) box.scrollLeft += cell.right - seen.right + around;
  };

  if (!columns || !rows) continue;
  svg.addEventListener("pointermove", (event) => {
    const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
    const x = Math.floor((point.x - left) / width * columns), y = Math.floor((point.y - top) / height * rows);
    if (x >= 0 && y >= 0 && x < columns && y < rows) show(x, y);
  });
  box.addEventListener("keydown", (event) => {
    const step = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1]}[event.key];
    if (!step || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    show(at ? at[0] + step[0] : 0, at ? at[1] + step[1] : 0);
    reveal(60);
  });
  if (at) {
    show(at[0], at[1], false);
    reveal(100);
  }
}

for (const input of document.querySelectorAll("[data-filter]")) {
  const rows = document.getElementById(input.dataset.filter).tBodies[0].rows;
  const count = document.querySelector("[data-filter-count]");
  input.addEventListener("input", () => {
    const wanted = input.value.toLowerCase();
    let left = 0;
    for (const row of rows) {
      row.hidden = !row.textContent.toLowerCase().includes(wanted);
      left += !row.hidden;
    }
    count.textContent = wanted ? `${left} of ${rows.length} rows` : "";
  });
}
