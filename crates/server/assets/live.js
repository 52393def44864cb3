// Keeps a page up to date: it is told that something changed, and looks at its own address again.
// Without this script every page works all the same; it is only as old as its last reload.
(() => {
  "use strict";
  const body = document.body;
  const base = body.dataset.base || "";
  const button = document.getElementById("pause");
  const word = document.getElementById("live-word");
  const SOONEST = 1500; // between two looks
  const LATEST = 10000; // so that "3s ago" stays true

  // Empty filters are not part of an address.
  body.addEventListener("htmx:configRequest", (event) => {
    const said = event.detail.parameters;
    for (const name of Array.from(said.keys())) {
      const values = said.getAll(name).filter((value) => value !== "");
      said.delete(name);
      values.forEach((value) => said.append(name, value));
    }
  });

  // Enter is a change and a sending; of both becomes one place to come back to.
  body.addEventListener("htmx:beforeHistoryUpdate", (event) => {
    const to = event.detail.history;
    if (to.path === location.pathname + location.search) to.type = "replace";
  });

  // Whose session is over is asked to log in, and finds the way back from there.
  body.addEventListener("htmx:beforeSwap", (event) => {
    if (new URL(event.detail.xhr.responseURL).pathname !== `${base}/login`) return;
    event.detail.shouldSwap = false;
    location.reload();
  });

  // A dialog asks before anything that cannot be undone.
  body.addEventListener("submit", (event) => {
    const question = event.target.dataset.confirm;
    if (question && !window.confirm(question)) event.preventDefault();
  });

  if (!button || !window.EventSource) return;

  let changed = false;
  let paused = sessionStorage.getItem("holdoff-paused") === "yes";
  let connected = false;
  let last = Date.now();

  const show = () => {
    button.setAttribute("aria-pressed", String(paused));
    button.textContent = paused ? "Resume" : "Pause";
    const state = paused ? "paused" : connected ? "live" : "connecting";
    word.textContent = state;
    word.dataset.state = state;
  };

  // Nobody's writing, choosing or reading is interrupted.
  const isBusy = () => {
    const at = document.activeElement;
    const writes = at && /^(INPUT|TEXTAREA|SELECT)$/.test(at.tagName);
    const marks = String(window.getSelection()) !== "";
    return document.hidden || writes || marks;
  };

  const look = () => {
    if (paused || isBusy()) return;
    const since = Date.now() - last;
    if (!(changed && since >= SOONEST) && since < LATEST) return;
    changed = false;
    last = Date.now();
    const live = document.getElementById("live");
    if (!live) return;
    const at = live.contains(document.activeElement) ? document.activeElement.id || document.activeElement.getAttribute("href") : null;
    htmx
      .ajax("GET", location.pathname + location.search, { target: "#live", select: "#live", swap: "outerHTML" })
      .then(() => {
        if (!at) return;
        const again = document.getElementById(at) || document.querySelector(`#live a[href="${CSS.escape(at)}"]`);
        if (again) again.focus({ preventScroll: true });
      });
  };

  button.addEventListener("click", () => {
    paused = !paused;
    sessionStorage.setItem("holdoff-paused", paused ? "yes" : "no");
    changed = true;
    show();
    look();
  });

  const source = new EventSource(`${base}/live`);
  const told = () => {
    changed = true;
  };
  source.addEventListener("changed", told);
  source.addEventListener("reset", told);
  source.addEventListener("open", () => {
    connected = true;
    show();
  });
  source.addEventListener("error", () => {
    connected = false;
    show();
  });
  addEventListener("pagehide", () => source.close());
  setInterval(look, 250);
  show();
})();
