// Shows the text of whatever lies under the pointer, or has the keyboard's focus.
(() => {
  const tip = document.getElementById("tip");
  const show = (target, x, y) => {
    const marked = target.closest && target.closest("[data-tip]");
    tip.hidden = !marked;
    if (!marked) return;
    tip.textContent = marked.dataset.tip;
    const box = tip.getBoundingClientRect();
    tip.style.left = Math.max(4, Math.min(x + 14, innerWidth - box.width - 4)) + "px";
    tip.style.top = (y + 18 + box.height > innerHeight ? y - box.height - 10 : y + 18) + "px";
  };
  document.addEventListener("mousemove", (event) => show(event.target, event.clientX, event.clientY));
  document.addEventListener("mouseleave", () => { tip.hidden = true; });
  document.addEventListener("focusin", (event) => {
    const box = event.target.getBoundingClientRect();
    show(event.target, box.right, box.bottom);
  });
  // Dims the ranks that were not chosen.
  const choice = document.getElementById("rank");
  if (choice) {
    const rows = [...document.querySelectorAll("table.ranks tbody tr")];
    const strips = [...document.querySelectorAll("g[data-rank]")];
    const mark = (element, rank) => element.classList.toggle("dim", choice.value !== "" && rank !== choice.value);
    choice.addEventListener("change", () => {
      rows.forEach((row) => mark(row, row.cells[0].textContent));
      strips.forEach((strip) => mark(strip, strip.dataset.rank));
    });
  }
})();
