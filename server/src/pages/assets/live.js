// Pages are complete without this script. It shows new numbers as they arrive, and updates the planner while typing.
"use strict";
(() => {
  const study = document.getElementById("study");
  if (study && window.EventSource) watch(study);
  const form = document.getElementById("create");
  if (form) plan(form);

  function watch(study) {
    let version = study.dataset.version;
    let latest = version;
    let lastSwap = Date.now();
    let announced = 0;
    let swapping = false;
    const events = new EventSource(study.dataset.events);
    events.addEventListener("study", async (event) => {
      const data = JSON.parse(event.data);
      latest = data.version;
      let changed = false;
      for (const element of study.querySelectorAll("[data-live]")) {
        const text = data[element.dataset.live];
        if (text !== undefined && element.textContent !== text) {
          element.textContent = text;
          changed = true;
        }
      }
      // Announced to screen readers at most every ten seconds.
      if (changed && Date.now() - announced > 10000) {
        announced = Date.now();
        document.getElementById("announcer").textContent =
          `${data.reports} ${data.noun}` + (data.error && `, expected error ${data.error}`);
      }
      const first = changed && document.getElementById("no-arrivals");
      if (!swapping && (latest !== version || first || (changed && Date.now() - lastSwap > 5000))) {
        swapping = true;
        lastSwap = Date.now();
        // A version counts as seen once it is shown: if the request fails, the next event triggers another one.
        let wanted;
        do {
          wanted = latest;
          if (!(await swap().catch(() => false))) break;
          version = wanted;
        } while (latest !== wanted);
        swapping = false;
      }
    });
    window.addEventListener("pagehide", () => events.close());
  }

  // Reloads the figures that change with every report; the old image stays until the new one is loaded.
  function redraw() {
    for (const image of document.querySelectorAll("#study figure img")) {
      if (!/\/(arrivals|expected-error)\.svg/.test(image.src)) continue;
      const withTime = (address) => {
        const url = new URL(address, location.href);
        url.searchParams.set("at", Date.now());
        return url.href;
      };
      const source = image.parentElement.querySelector("source");
      if (source) source.srcset = withTime(source.srcset);
      image.src = withTime(image.src);
    }
  }

  // Replaces the parts of the page whose data-swap has changed or is empty, except the one with the keyboard focus.
  async function swap() {
    const response = await fetch(location.href, { credentials: "same-origin" });
    if (!response.ok) return false;
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    for (const part of document.querySelectorAll("[data-swap]")) {
      const fresh = page.getElementById(part.id);
      const same = fresh && fresh.dataset.swap && fresh.dataset.swap === part.dataset.swap;
      if (fresh && !same && part.isConnected && !part.contains(document.activeElement)) part.replaceWith(fresh);
    }
    redraw();
    return true;
  }

  function plan(form) {
    const panel = document.getElementById("planner");
    let waiting = 0;
    let requests = 0;
    const features = document.getElementById("features");
    const file = document.getElementById("features-file");
    document.getElementById("features-from").hidden = false;
    file.addEventListener("change", async () => {
      if (!file.files.length) return;
      features.value = await file.files[0].text();
      features.dispatchEvent(new Event("input", { bubbles: true }));
    });
    form.addEventListener("input", () => {
      clearTimeout(waiting);
      waiting = setTimeout(async () => {
        const mine = ++requests;
        const response = await fetch(form.dataset.preview, {
          method: "POST",
          body: new URLSearchParams(new FormData(form)),
          credentials: "same-origin",
        });
        if (response.ok && mine === requests) {
          const part = new DOMParser().parseFromString(await response.text(), "text/html");
          panel.replaceChildren(...part.body.childNodes);
        }
      }, 300);
    });
  }
})();
