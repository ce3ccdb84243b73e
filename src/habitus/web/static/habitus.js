// What the page does by itself: keys, notices that close, files that are dropped. All else is htmx and the server.
"use strict";

const isTyping = (element) =>
  element.closest("input, textarea, select, markdown-editor, dialog[open]") !== null || element.isContentEditable;

function step(by) {
  const rows = [...document.querySelectorAll(".rows > li")];
  if (!rows.length) return;
  const at = rows.findIndex((row) => row.classList.contains("at"));
  rows[at]?.classList.remove("at");
  const next = rows[Math.max(0, Math.min(rows.length - 1, at + by))];
  next.classList.add("at");
  next.querySelector("a")?.focus();
  next.scrollIntoView({ block: "nearest" });
}

const keys = {
  "/": () => {
    const field = document.querySelector("[data-search]");
    if (field) field.focus();
    else location.assign("/skills?focus=1");
  },
  j: () => step(1),
  k: () => step(-1),
  e: () => {
    const row = document.querySelector(".rows > li.at .grow > a[href^='/skills/']");
    if (row) location.assign(`${row.pathname}?tab=edit`);
    else document.querySelector("[data-edit]")?.click();
  },
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

document.querySelector(".tabs [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });

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
  field.setCustomValidity(isTooMuch ? `At most ${most / 1024 / 1024} MB can go along.` : "");
  field.reportValidity();
}

function chip(field, file) {
  const made = document.createElement("li");
  made.className = "chip";
  const away = document.createElement("button");
  away.type = "button";
  away.className = "plain";
  away.textContent = "×";
  away.setAttribute("aria-label", `Leave out ${file.name}`);
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
    on("whole", (html) => {
      this.replaceChildren(this.made(html));
      htmx.process(this);
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

for (const kind of ["dragover", "dragleave", "drop"]) {
  document.addEventListener(kind, (event) => {
    const zone = event.target.closest?.("[data-drop]");
    if (!zone) return;
    event.preventDefault();
    zone.classList.toggle("over", kind === "dragover");
    if (kind !== "drop" || !event.dataTransfer.files.length) return;
    const field = zone.querySelector("input[type=file]");
    field.files = event.dataTransfer.files;
    field.dispatchEvent(new Event("change", { bubbles: true }));
  });
}
