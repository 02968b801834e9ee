// What a mark of a chart stands for, beside the pointer. The page says all of it without this too.
const tip = document.createElement("div");
tip.className = "tip";
tip.hidden = true;
document.body.append(tip);
function show(event) {
  const mark = event.target.closest ? event.target.closest("[data-tip]") : null;
  tip.hidden = !mark;
  if (!mark) return;
  tip.textContent = mark.dataset.tip;
  const width = Math.min(tip.offsetWidth, innerWidth - 16);
  tip.style.left = `${Math.max(8, Math.min(event.clientX + 12, innerWidth - width - 8))}px`;
  tip.style.top = `${Math.max(8, event.clientY - tip.offsetHeight - 12)}px`;
}
addEventListener("pointermove", show);
addEventListener("pointerdown", show);
addEventListener("scroll", () => { tip.hidden = true; }, { passive: true });
