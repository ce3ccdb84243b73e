// One connection for all tabs of a browser, in a shared worker: tells each tab the marker of the newest change, or null
// while nothing is heard. A browser without shared workers runs it in the page.
"use strict";
const RETRY_MS = 15_000;
const listeners = new Set();
let source = null;
let marker = null;

function tell(news) {
  marker = news;
  for (const listener of listeners) listener(marker);
}

function connect() {
  source?.close();
  source = listeners.size ? new EventSource("/live") : null;
  if (!source) return;
  source.addEventListener("changed", ({ data }) => tell(JSON.parse(data)));
  source.addEventListener("error", () => {
    tell(null);
    // A lost stream reconnects by itself; one that was refused does not.
    if (source?.readyState === EventSource.CLOSED) setTimeout(connect, RETRY_MS);
  });
}

function join(listener) {
  listeners.add(listener);
  if (!source) connect();
  else if (marker !== null) listener(marker);
}

function leave(listener) {
  listeners.delete(listener);
  if (!listeners.size) connect();
}

if ("onconnect" in self) {
  self.onconnect = ({ ports: [port] }) => {
    const listener = (news) => port.postMessage(news);
    port.onmessage = ({ data }) => (data === "join" ? join : leave)(listener);
  };
} else {
  self.habitusLive = { join, leave };
}
