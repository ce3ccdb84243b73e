// The map of skills: cards, highlights, zoom and pan.
"use strict";
const map = document.querySelector(".map svg");
const card = document.querySelector(".map-card");
const whole = map?.viewBox.baseVal;
const [fullWidth, fullHeight] = [whole?.width, whole?.height];

function showCard(dot) {
  card.hidden = !dot;
  if (!dot) return;
  card.querySelector("strong").textContent = dot.getAttribute("aria-label");
  card.querySelector("p").innerText = dot.dataset.card;
  const [at, frame] = [dot.getBoundingClientRect(), map.parentElement.getBoundingClientRect()];
  card.classList.toggle("left", at.x - frame.x > frame.width / 2);
  card.classList.toggle("top", at.y - frame.y > frame.height / 2);
}

// Everything lies inside the map, however far it is zoomed.
function moveTo(x, y, width) {
  whole.width = Math.max(fullWidth / 12, Math.min(fullWidth, width));
  whole.height = (whole.width * fullHeight) / fullWidth;
  whole.x = Math.max(0, Math.min(fullWidth - whole.width, x));
  whole.y = Math.max(0, Math.min(fullHeight - whole.height, y));
  map.style.setProperty("--scale", whole.width / fullWidth);
  hideCoveredLabels();
}

// Labels keep their size on the screen, so on a narrow one, or before zooming in, some would cover others.
function hideCoveredLabels() {
  const [shown, frame] = [[], map.getBoundingClientRect()];
  // The most used skills are painted last and named first.
  const [areas, names, rings] = [".area", ".named text", ".ring text"].map((kind) => [...map.querySelectorAll(kind)]);
  const labels = [...areas, ...names.reverse(), ...rings];
  labels.forEach((label) => {
    const box = label.getBoundingClientRect();
    const isCut = box.left < frame.left || box.right > frame.right;
    const isCovered = isCut || shown.some((one) => box.left < one.right && one.left < box.right && box.top < one.bottom && one.top < box.bottom);
    label.classList.toggle("covered", isCovered);
    if (!isCovered) shown.push(box);
  });
}

function zoom(factor, at = { x: whole.x + whole.width / 2, y: whole.y + whole.height / 2 }) {
  const width = Math.max(fullWidth / 12, Math.min(fullWidth, whole.width * factor));
  const by = width / whole.width;
  moveTo(at.x - (at.x - whole.x) * by, at.y - (at.y - whole.y) * by, width);
}

const pointOf = (event) => new DOMPoint(event.clientX, event.clientY).matrixTransform(map.getScreenCTM().inverse());

// Pairs that agents confuse are joined, once the server has found them.
async function joinConfused() {
  const pairs = await fetch("/insights/pairs").then((answer) => (answer.ok ? answer.json() : []), () => []);
  const middle = (name) => map.querySelector(`a[href="/skills/${CSS.escape(name)}"] circle`);
  for (const [one, other] of pairs.map((pair) => pair.map(middle)).filter((pair) => pair.every(Boolean))) {
    const line = document.createElementNS(map.namespaceURI, "line");
    [["x1", one, "cx"], ["y1", one, "cy"], ["x2", other, "cx"], ["y2", other, "cy"]].forEach(([to, dot, from]) => line.setAttribute(to, dot.getAttribute(from)));
    line.setAttribute("class", "confused");
    map.prepend(line);
    document.querySelector("#confused").hidden = false;
  }
}

if (map) {
  joinConfused();
  new ResizeObserver(hideCoveredLabels).observe(map);
  map.addEventListener("pointerover", (event) => showCard(event.target.closest("a")));
  map.addEventListener("pointerleave", () => showCard(null));
  map.addEventListener("focusin", (event) => showCard(event.target.closest("a")));
  map.addEventListener("focusout", () => showCard(null));
  map.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && whole.width === fullWidth && event.deltaY > 0) return;
    event.preventDefault();
    zoom(event.deltaY < 0 ? 0.85 : 1.18, pointOf(event));
  }, { passive: false });
  let held = null;
  map.addEventListener("pointerdown", (event) => (held = whole.width < fullWidth ? pointOf(event) : null));
  map.addEventListener("pointermove", (event) => {
    if (!held || !event.buttons) return;
    const at = pointOf(event);
    moveTo(whole.x + held.x - at.x, whole.y + held.y - at.y, whole.width);
  });
  map.addEventListener("dragstart", (event) => event.preventDefault());
  document.querySelectorAll("[data-zoom]").forEach((button) =>
    button.addEventListener("click", () => (Number(button.dataset.zoom) ? zoom(Number(button.dataset.zoom)) : moveTo(0, 0, fullWidth))),
  );
  document.querySelector("#map-q").addEventListener("input", ({ target }) => {
    const words = target.value.toLowerCase().split(/\s+/).filter(Boolean);
    map.querySelectorAll("a").forEach((dot) => {
      const text = `${dot.getAttribute("href")} ${dot.getAttribute("aria-label")} ${dot.dataset.card}`.toLowerCase();
      dot.classList.toggle("hit", words.length > 0 && words.every((word) => text.includes(word)));
    });
    map.classList.toggle("marking", words.length > 0);
  });
}
