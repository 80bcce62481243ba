"use strict";
// Each position of the sliders is an estimate that gpulint made; nothing is computed here but widths.
const GIB = 2 ** 30;
const size = (bytes) =>
  bytes >= 2 ** 40 ? (bytes / 2 ** 40).toFixed(2) + " TiB"
  : bytes >= 0.05 * GIB ? (bytes / GIB).toFixed(1) + " GiB"
  : (bytes / 2 ** 20).toFixed(1) + " MiB";

for (const box of document.querySelectorAll("[data-grid]")) {
  const grid = JSON.parse(box.querySelector("script").textContent);
  const sliders = [...box.querySelectorAll("input")];
  const outputs = [...box.querySelectorAll("output.choice")];
  const bar = box.querySelector(".bar");
  const line = box.querySelector(".card-line");
  const told = box.querySelector(".told");
  const most = Math.max(grid.usable || 0, ...Object.values(grid.points).map((point) => point.process)) * 1.02;
  if (line) line.style.left = (100 * grid.usable) / most + "%";

  const show = () => {
    const place = sliders.map((slider) => slider.value).join(",");
    sliders.forEach((slider, axis) => {
      outputs[axis].textContent = grid.labels[axis][slider.value];
      slider.setAttribute("aria-valuetext", grid.labels[axis][slider.value]);
    });
    const point = grid.points[place];
    bar.replaceChildren();
    if (!point) {
      told.className = "told unknown";
      told.textContent = grid.refused.includes(place) ? "cannot be estimated" : "not computed: too far from the job";
      return;
    }
    grid.components.forEach((name, index) => {
      const part = document.createElement("i");
      part.style.width = (100 * point.parts[index]) / most + "%";
      part.style.background = `var(--${name})`;
      part.title = `${name.replace("_", " ")} ${size(point.parts[index])}`;
      bar.append(part);
    });
    told.className = "told " + point.verdict;
    const range = `${size(point.process)} (${size(point.low)} to ${size(point.high)})`;
    told.textContent = point.verdict === "unknown" ? range : `${point.verdict}: ${range}`;
  };
  sliders.forEach((slider) => slider.addEventListener("input", show));
  show();
}
