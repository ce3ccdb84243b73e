// What the page does by itself: keys, notices that close, files that are dropped. All else is htmx and the server.
"use strict";

const isTyping = (element) =>
  element.closest("input, textarea, select, markdown-editor, dialog[open]") !== null || element.isContentEditable;

function step(by) {
  const rows = [...document.querySelectorAll(".rows > li, .skills tbody tr")];
  if (!rows.length) return;
  const at = rows.findIndex((row) => row.matches("[data-at], :has([aria-current])"));
  rows[at]?.removeAttribute("data-at");
  const next = rows[Math.max(0, Math.min(rows.length - 1, at + by))];
  next.setAttribute("data-at", "");
  const link = next.querySelector("a");
  link?.focus();
  // Beside a list, the row that one comes to opens.
  if (next.closest("[data-pair]") && matchMedia("(min-width: 60rem)").matches) link?.click();
  next.scrollIntoView({ block: "nearest" });
}

// Finding anything: typed into a dialog, chosen by the arrows, opened by Enter.
function seek() {
  const dialog = document.querySelector("#seek");
  if (!dialog.open) dialog.showModal();
  dialog.querySelector("input").select();
}

function chooseSought(by) {
  const links = [...document.querySelectorAll("#sought a")];
  const at = links.indexOf(document.activeElement);
  if (at + by < 0) document.querySelector("#seek-q").focus();
  else links[Math.min(at + by, links.length - 1)]?.focus();
}

document.addEventListener("keydown", (event) => {
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
    event.preventDefault();
    seek();
  } else if (event.target.closest?.("#seek") && ["ArrowDown", "ArrowUp"].includes(event.key)) {
    event.preventDefault();
    chooseSought(event.key === "ArrowDown" ? 1 : -1);
  } else if (event.target.id === "seek-q" && event.key === "Enter") {
    event.preventDefault();
    document.querySelector("#sought a")?.click();
  }
});

// A key does nothing while the decision before it is under way: it would decide an item that nobody has read.
function press(key) {
  if (!document.querySelector("form.htmx-request")) document.querySelector(`[data-key=${key}]`)?.click();
}

const keys = {
  "/": () => seek(),
  j: () => step(1),
  k: () => step(-1),
  e: () => {
    const row = document.querySelector("[data-at] a[href^='/skills/']");
    if (row) location.assign(`${row.pathname}?tab=edit`);
    else document.querySelector("[data-edit]")?.click();
  },
  x: () => document.querySelector(".rows > :is([data-at], :has([aria-current])) .pick")?.click(),
  a: () => press("a"),
  d: () => press("d"),
  u: () => press("u"),
  n: () => location.assign("/new"),
  "?": () => document.querySelector("#keys")?.showModal(),
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
  const act = keys[event.key];
  if (!act) return;
  event.preventDefault();
  act();
});

// An answer that was overtaken by another one goes where its part is now: its own was replaced meanwhile.
document.addEventListener("htmx:after:request", ({ detail: { ctx } }) => {
  if (ctx.target?.id && !ctx.target.isConnected) ctx.target = document.getElementById(ctx.target.id) ?? ctx.target;
});

document.querySelectorAll(".tabs [aria-current]").forEach((here) =>
  here.scrollIntoView({ block: "nearest", inline: "center" }),
);

// The line of a broken file that can't be read is chosen, so that it is seen.
const broken = document.querySelector("textarea[data-line]");
if (broken && Number(broken.dataset.line)) {
  const lines = broken.value.split("\n");
  const start = lines.slice(0, broken.dataset.line - 1).reduce((sum, line) => sum + line.length + 1, 0);
  broken.focus();
  broken.setSelectionRange(start, start + lines[broken.dataset.line - 1].length);
}

// Text that nobody has saved is not left without a word.
let unsaved = null;
window.addEventListener("beforeunload", (event) => {
  if (unsaved?.isConnected) event.preventDefault();
});

document.addEventListener("input", ({ target }) => {
  unsaved = target.closest("[data-unsaved]") ?? unsaved;
  target.closest(".setting")?.classList.add("changed");
  if (!target.matches("[data-all]")) return;
  document.querySelectorAll(`[name=${target.dataset.all}]`).forEach((box) => (box.checked = target.checked));
});

document.addEventListener("click", (event) => {
  const menu = event.target.closest(".menu");
  menu?.setAttribute("aria-expanded", String(menu.getAttribute("aria-expanded") !== "true"));
  if (event.target.closest("[data-seek]")) seek();
  const sought = event.target.closest("#sought a");
  if (sought) document.querySelector("#seek").close();
  if (sought?.matches("[data-pause]")) {
    event.preventDefault();
    document.querySelector("#pause-switch").click();
  }
  if (event.target.closest("[data-discard]")) unsaved = null;
  event.target.closest(".said .close")?.closest(".said").remove();
});

document.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing || !event.target.matches("[data-send]")) return;
  event.preventDefault();
  event.target.form.requestSubmit();
});

// Files that go along with a request: each is a chip until it is sent. The browser's own field keeps only the last choice.
const attached = new WeakMap();

function attach(field, files) {
  attached.set(field, [...(attached.get(field) ?? []), ...files]);
  showAttached(field);
}

function showAttached(field) {
  const files = attached.get(field);
  const held = new DataTransfer();
  files.forEach((file) => held.items.add(file));
  field.files = held.files;
  field.form.querySelector("[data-chips]").replaceChildren(...files.map((file) => chip(field, file)));
  field.form.querySelector("textarea").required = !files.length;
  const most = Number(field.dataset.attach);
  const isTooMuch = files.reduce((sum, file) => sum + file.size, 0) > most;
  field.setCustomValidity(isTooMuch ? `At most ${most / 1024 / 1024} MB can be attached.` : "");
  field.reportValidity();
}

function chip(field, file) {
  const made = document.createElement("li");
  made.className = "chip";
  const away = document.createElement("button");
  away.type = "button";
  away.className = "plain";
  away.textContent = "×";
  away.setAttribute("aria-label", `Remove ${file.name}`);
  away.addEventListener("click", () => {
    attached.set(field, attached.get(field).filter((other) => other !== file));
    showAttached(field);
    field.form.querySelector("[data-chips] button, textarea").focus();
  });
  made.append(file.name, away);
  return made;
}

document.addEventListener("change", ({ target }) => {
  if (target.matches("[data-attach]")) attach(target, target.files);
});

document.addEventListener("paste", (event) => {
  const field = event.target.form?.querySelector("[data-attach]");
  if (!field || !event.clipboardData.files.length) return;
  event.preventDefault();
  attach(field, event.clipboardData.files);
});

// What the server tells while the page is open: see streams.py for where each kind goes.
class LivePart extends HTMLElement {
  connectedCallback() {
    const source = (this.source = new EventSource(this.getAttribute("from")));
    const on = (kind, put) => source.addEventListener(kind, ({ data }) => put(JSON.parse(data)));
    on("text", (text) => this.querySelector("[data-text]").append(text));
    on("part", (html) => {
      const part = this.made(html).firstElementChild;
      const old = part.id && document.getElementById(part.id);
      if (old) old.replaceWith(part);
      else this.querySelector("[data-parts]").append(part);
      htmx.process(part);
    });
    on("over", (html) => {
      source.close();
      const parts = [...this.made(html).children];
      this.replaceWith(...parts);
      parts.forEach((part) => htmx.process(part));
    });
    if (this.querySelector("[data-text]")) this.scrollIntoView({ block: "nearest" });
  }

  disconnectedCallback() {
    this.source.close();
  }

  made(html) {
    const template = document.createElement("template");
    template.innerHTML = html;
    return template.content;
  }
}
customElements.define("live-part", LivePart);

// The page follows the data: after a change by any process it fetches its live parts, once somebody looks at it. What is
// typed, chosen, opened and scrolled to stays, because only what differs is put in place.
const around = document.body.dataset;
let known = around.marker;
let digest = "";
let refreshing = null;

// Of a page that is scrolled, the first row in sight stays where it is, however many rows appear above it; a browser does
// that by itself only while it sees a row.
function rememberPlace() {
  const rows = scrollY > 0 ? [...document.querySelectorAll("[data-live] > [id]")] : [];
  const row = rows.find((one) => one.getBoundingClientRect().bottom > 0) ?? rows.at(-1);
  const top = row && row.getBoundingClientRect().top;
  return () => row?.isConnected && scrollBy(0, row.getBoundingClientRect().top - top);
}

async function fetchLiveParts() {
  const parts = [...document.querySelectorAll("[data-live]")];
  const began = performance.now();
  const answer = await fetch(location.href, { headers: { "Live-Parts": digest } }).catch(() => null);
  document.querySelector("#refresh").hidden = Boolean(answer?.ok);
  if (answer?.status === 200 && answer.headers.has("Live-Parts")) {
    const text = await answer.text();
    const fresh = new DOMParser().parseFromString(text, "text/html");
    // An empty place has nothing to lose, and the first thing in it changes the whole page.
    if (parts.some((part) => part.matches("[data-first]") && fresh.getElementById(part.id)?.matches(":not([data-first])"))) location.reload();
    const selectOOB = parts.filter((part) => fresh.getElementById(part.id)).map((part) => `#${CSS.escape(part.id)}:outerMorph`).join(",");
    const keepPlace = rememberPlace();
    await htmx.swap({ sourceElement: document.body, target: document.body, text, swap: "none", selectOOB });
    keepPlace();
    digest = answer.headers.get("Live-Parts");
  }
  // A page that takes long is not fetched all the time.
  await new Promise((done) => setTimeout(done, Math.max(700, 3 * (performance.now() - began))));
}

function follow(news) {
  if (news === null) document.querySelector("#refresh").hidden = false;
  else if (news === known) document.querySelector("#refresh").hidden = true;
  else if (!document.hidden && !refreshing) {
    known = news;
    refreshing = fetchLiveParts().finally(() => {
      refreshing = null;
      follow(heard);
    });
  }
}

let heard = known;
const hear = (news) => follow((heard = news));

function keepFollowing(join, leave) {
  join();
  window.addEventListener("pagehide", leave);
  window.addEventListener("pageshow", (event) => event.persisted && join());
  document.addEventListener("visibilitychange", () => follow(heard));
}

if (around.worker && window.SharedWorker) {
  const { port } = new SharedWorker(around.worker, "habitus");
  port.onmessage = ({ data }) => hear(data);
  keepFollowing(() => port.postMessage("join"), () => port.postMessage("leave"));
} else if (around.worker) {
  const script = document.createElement("script");
  script.src = around.worker;
  script.addEventListener("load", () => {
    keepFollowing(() => habitusLive.join(hear), () => habitusLive.leave(hear));
    document.addEventListener("visibilitychange", () => (document.hidden ? habitusLive.leave : habitusLive.join)(hear));
  });
  document.head.append(script);
}

document.addEventListener("click", (event) => {
  if (event.target.closest("#refresh")) fetchLiveParts();
});

for (const kind of ["dragover", "dragleave", "drop"]) {
  document.addEventListener(kind, (event) => {
    const zone = event.target.closest?.("[data-drop]");
    if (!zone) return;
    event.preventDefault();
    zone.classList.toggle("over", kind === "dragover");
    if (kind !== "drop" || !event.dataTransfer.files.length) return;
    const field = zone.querySelector("input[type=file]");
    const folder = [...event.dataTransfer.items].map((item) => item.webkitGetAsEntry?.()).find((one) => one?.isDirectory);
    if (folder) {
      filesOf(folder).then((files) => packed(folder.name, files)).then((file) => hand(field, file));
      return;
    }
    field.files = event.dataTransfer.files;
    field.dispatchEvent(new Event("change", { bubbles: true }));
  });
}

// A row of a list opens beside it; on a phone in its place.
document.addEventListener("click", (event) => {
  const link = event.target.closest("[data-pair] .lines a");
  if (!link) return;
  const pair = link.closest("[data-pair]");
  pair.querySelector(".lines [aria-current]")?.removeAttribute("aria-current");
  link.setAttribute("aria-current", "true");
  pair.classList.add("open");
  if (matchMedia("(max-width: 60rem)").matches) scrollTo(0, 0);
});

// A text is copied; where the browser won't, it stands selected.
document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  const source = document.querySelector(button.dataset.copy);
  if (source.select) source.select();
  else getSelection().selectAllChildren(source);
  const isCopied = await navigator.clipboard?.writeText(source.value ?? source.textContent).then(() => true, () => false);
  button.textContent = isCopied ? "Copied" : "Press Ctrl C";
});

// A folder that is chosen or dropped becomes one archive, packed here as it is, which then goes the way of any file.
const TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  for (let bit = 0; bit < 8; bit++) byte = byte & 1 ? (byte >>> 1) ^ 0xedb88320 : byte >>> 1;
  return byte;
});
const checksum = (bytes) => {
  let sum = ~0;
  for (const byte of bytes) sum = TABLE[(sum ^ byte) & 255] ^ (sum >>> 8);
  return ~sum >>> 0;
};

function numbers(...pairs) {
  const view = new DataView(new ArrayBuffer(pairs.reduce((size, [, bytes]) => size + bytes, 0)));
  let at = 0;
  for (const [value, bytes] of pairs) {
    if (bytes === 2) view.setUint16(at, value, true);
    else view.setUint32(at, value, true);
    at += bytes;
  }
  return new Uint8Array(view.buffer);
}

async function packed(name, files) {
  const parts = [];
  const index = [];
  let at = 0;
  for (const [path, file] of files) {
    const bytes = new Uint8Array(await file.arrayBuffer());
    const called = new TextEncoder().encode(path);
    const facts = [[20, 2], [0x800, 2], [0, 2], [0, 2], [0x21, 2], [checksum(bytes), 4], [bytes.length, 4], [bytes.length, 4], [called.length, 2], [0, 2]];
    const head = numbers([0x04034b50, 4], ...facts);
    index.push(numbers([0x02014b50, 4], [20, 2], ...facts, [0, 2], [0, 2], [0, 2], [0, 4], [at, 4]), called);
    parts.push(head, called, bytes);
    at += head.length + called.length + bytes.length;
  }
  const size = index.reduce((sum, part) => sum + part.length, 0);
  const end = numbers([0x06054b50, 4], [0, 2], [0, 2], [files.length, 2], [files.length, 2], [size, 4], [at, 4], [0, 2]);
  return new File([...parts, ...index, end], `${name}.zip`, { type: "application/zip" });
}

function hand(field, file) {
  const held = new DataTransfer();
  held.items.add(file);
  field.files = held.files;
  field.dispatchEvent(new Event("change", { bubbles: true }));
}

async function filesOf(entry) {
  if (entry.isFile) return [[entry.fullPath.slice(1), await new Promise((done, fail) => entry.file(done, fail))]];
  const reader = entry.createReader();
  const found = [];
  for (;;) {
    const some = await new Promise((done, fail) => reader.readEntries(done, fail));
    if (!some.length) return found;
    for (const one of some) found.push(...(await filesOf(one)));
  }
}

document.addEventListener("change", async (event) => {
  const folder = event.target.closest?.("[data-folder]");
  if (!folder?.files.length) return;
  event.stopPropagation();
  const files = [...folder.files].map((file) => [file.webkitRelativePath, file]);
  hand(document.querySelector(folder.dataset.folder), await packed(files[0][0].split("/")[0], files));
}, true);

// A file that was chosen before this was loaded, or that the browser kept over a reload, counts as chosen now.
window.addEventListener("load", () => setTimeout(() => {
  for (const field of document.querySelectorAll("input[type=file]")) {
    if (field.files.length) field.dispatchEvent(new Event("change", { bubbles: true }));
  }
}));
