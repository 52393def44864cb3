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
  let stale = false; // the last look failed
  let last = Date.now();

  const show = () => {
    button.setAttribute("aria-pressed", String(paused));
    button.textContent = paused ? "Resume" : "Pause";
    const state = paused ? "paused" : stale ? "out of date" : connected ? "live" : "connecting";
    word.textContent = state;
    word.dataset.state = state;
  };

  // Nobody's writing or reading is interrupted; what stands outside of the changing part is left alone anyway.
  const isBusy = () => {
    const live = document.getElementById("live");
    const within = (node) => live && node && live.contains(node);
    const at = document.activeElement;
    const writes = within(at) && /^(INPUT|TEXTAREA|SELECT)$/.test(at.tagName);
    const marked = window.getSelection();
    const marks = String(marked) !== "" && within(marked.anchorNode);
    return document.hidden || writes || marks;
  };

  // By what something is found again after the part it stood in was written anew.
  const names = ["id", "href", "aria-label"];
  const nameOf = (element) => {
    const by = names.find((name) => element.getAttribute(name));
    return by && `[${by}="${CSS.escape(element.getAttribute(by))}"]`;
  };

  const look = () => {
    if (paused || isBusy()) return;
    const since = Date.now() - last;
    if (!(changed && since >= SOONEST) && since < LATEST) return;
    changed = false;
    last = Date.now();
    const live = document.getElementById("live");
    if (!live) return;
    const at = live.contains(document.activeElement) ? nameOf(document.activeElement) : null;
    const scrolled = Array.from(live.querySelectorAll(".wide"), (table) => table.scrollLeft);
    htmx
      .ajax("GET", location.pathname + location.search, { target: "#live", select: "#live", swap: "outerHTML" })
      .then(() => {
        document.querySelectorAll("#live .wide").forEach((table, place) => {
          table.scrollLeft = scrolled[place] || 0;
        });
        const again = at && document.querySelector(`#live ${at}`);
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

  for (const [event, is] of [["htmx:responseError", true], ["htmx:sendError", true], ["htmx:afterSwap", false]]) {
    body.addEventListener(event, () => {
      stale = is;
      show();
    });
  }

  // A browser has few connections to one host: a page that nobody sees holds none.
  let source = null;
  const listen = () => {
    if (source || document.hidden) return;
    source = new EventSource(`${base}/live`);
    // An acceptor is asked all the time, and a ledger comes further; each stands on one page.
    const told = (event) => {
      const isElsewhere = ["acceptor", "ledger"].includes(event.data) && !document.getElementById(event.data);
      if (!isElsewhere) changed = true;
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
  };
  const hangUp = () => {
    if (source) source.close();
    source = null;
    connected = false;
  };
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) return hangUp();
    changed = true;
    listen();
  });
  addEventListener("pagehide", hangUp);
  addEventListener("pageshow", listen);
  listen();
  setInterval(look, 250);
  show();
})();
