const tip = document.getElementById("tip");
const show = (event) => {
  const told = event.target.closest && event.target.closest("[data-tip]");
  if (!told) { tip.style.display = "none"; return; }
  tip.textContent = told.dataset.tip;
  tip.style.display = "block";
  const room = tip.getBoundingClientRect();
  tip.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - room.width - 4)) + "px";
  tip.style.top = Math.max(4, event.clientY - room.height - 12) + "px";
};
document.addEventListener("pointermove", show);
document.addEventListener("pointerdown", show);
