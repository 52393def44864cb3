// Keeps a page up to date: an event reports a change, and the page fetches its own URL again.
// Without this script every page still works; it shows the state of its last reload.
(() => {
  "use strict";
  const body = document.body;
  const base = body.dataset.base || "";
  const button = document.getElementById("pause");
  const word = document.getElementById("live-word");
  const MIN_INTERVAL = 1500; // between two reloads
  const MAX_INTERVAL = 10000; // so that "3s ago" stays true

  // Empty filters are not part of the URL.
  body.addEventListener("htmx:configRequest", (event) => {
    const parameters = event.detail.parameters;
    for (const name of Array.from(parameters.keys())) {
      const values = parameters.getAll(name).filter((value) => value !== "");
      parameters.delete(name);
      values.forEach((value) => parameters.append(name, value));
    }
  });

  // The Enter key triggers both `change` and `submit`: only one of them adds a history entry.
  body.addEventListener("htmx:beforeHistoryUpdate", (event) => {
    const to = event.detail.history;
    if (to.path === location.pathname + location.search) to.type = "replace";
  });

  // If the session has ended, the reload redirects to the login, which leads back to this page.
  body.addEventListener("htmx:beforeSwap", (event) => {
    if (new URL(event.detail.xhr.responseURL).pathname !== `${base}/login`) return;
    event.detail.shouldSwap = false;
    location.reload();
  });

  // Actions that cannot be undone need a confirmation.
  body.addEventListener("submit", (event) => {
    const question = event.target.dataset.confirm;
    if (question && !window.confirm(question)) event.preventDefault();
  });

  if (!button || !window.EventSource) return;

  let changed = false;
  let paused = sessionStorage.getItem("holdoff-paused") === "yes";
  let connected = false;
  let stale = false; // the last reload failed
  let last = Date.now();

  const show = () => {
    button.setAttribute("aria-pressed", String(paused));
    button.textContent = paused ? "Resume" : "Pause";
    const state = paused ? "paused" : stale ? "out of date" : connected ? "live" : "connecting";
    word.textContent = state;
    word.dataset.state = state;
  };

  // An update must not interrupt typing or a text selection. Elements outside of the live part are never replaced.
  const isBusy = () => {
    const live = document.getElementById("live");
    const within = (node) => live && node && live.contains(node);
    const at = document.activeElement;
    const writes = within(at) && /^(INPUT|TEXTAREA|SELECT)$/.test(at.tagName);
    const marked = window.getSelection();
    const marks = String(marked) !== "" && within(marked.anchorNode);
    return document.hidden || writes || marks;
  };

  // The attributes by which an element is found again after its part of the page was replaced.
  const names = ["id", "href", "aria-label"];
  const nameOf = (element) => {
    const by = names.find((name) => element.getAttribute(name));
    return by && `[${by}="${CSS.escape(element.getAttribute(by))}"]`;
  };

  const reload = () => {
    if (paused || isBusy()) return;
    const since = Date.now() - last;
    if (!(changed && since >= MIN_INTERVAL) && since < MAX_INTERVAL) return;
    changed = false;
    last = Date.now();
    const live = document.getElementById("live");
    if (!live) return;
    const at = live.contains(document.activeElement) ? nameOf(document.activeElement) : null;
    const scrolled = Array.from(live.querySelectorAll(".wide"), (table) => table.scrollLeft);
    htmx
      .ajax("GET", location.pathname + location.search, { target: "#live", select: "#live", swap: "outerHTML" })
      .then(() => {
        document.querySelectorAll("#live .wide").forEach((table, index) => {
          table.scrollLeft = scrolled[index] || 0;
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
    reload();
  });

  for (const [event, is] of [["htmx:responseError", true], ["htmx:sendError", true], ["htmx:afterSwap", false]]) {
    body.addEventListener(event, () => {
      stale = is;
      show();
    });
  }

  // A browser has few connections to one host, so a hidden page holds none.
  let source = null;
  const listen = () => {
    if (source || document.hidden) return;
    source = new EventSource(`${base}/live`);
    // Acceptors and ledgers change all the time, and each is shown on one page only.
    const onChange = (event) => {
      const isOnOtherPage = ["acceptor", "ledger"].includes(event.data) && !document.getElementById(event.data);
      if (!isOnOtherPage) changed = true;
    };
    source.addEventListener("changed", onChange);
    source.addEventListener("reset", onChange);
    source.addEventListener("open", () => {
      connected = true;
      show();
    });
    source.addEventListener("error", () => {
      connected = false;
      show();
    });
  };
  const disconnect = () => {
    if (source) source.close();
    source = null;
    connected = false;
  };
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) return disconnect();
    changed = true;
    listen();
  });
  addEventListener("pagehide", disconnect);
  addEventListener("pageshow", listen);
  listen();
  setInterval(reload, 250);
  show();
})();
