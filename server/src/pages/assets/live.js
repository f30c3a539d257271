// Pages are complete without this. It shows new numbers as they come, and the planner while somebody types.
"use strict";
(() => {
  const study = document.getElementById("study");
  if (study && window.EventSource) watch(study);
  const form = document.getElementById("create");
  if (form) plan(form);

  function watch(study) {
    let version = study.dataset.version;
    let latest = version;
    let drawn = Date.now();
    let announced = 0;
    let asking = false;
    const events = new EventSource(study.dataset.events);
    events.addEventListener("study", async (event) => {
      const data = JSON.parse(event.data);
      latest = data.version;
      let changed = false;
      for (const place of study.querySelectorAll("[data-live]")) {
        const text = data[place.dataset.live];
        if (text !== undefined && place.textContent !== text) {
          place.textContent = text;
          changed = true;
        }
      }
      // A screen reader is told at most every ten seconds.
      if (changed && Date.now() - announced > 10000) {
        announced = Date.now();
        document.getElementById("announcer").textContent =
          `${data.reports} reports, expected error ${data.error}`;
      }
      const first = changed && document.getElementById("no-arrivals");
      if (!asking && (latest !== version || first || (changed && Date.now() - drawn > 5000))) {
        asking = true;
        drawn = Date.now();
        // A version counts as seen once it is shown: where the server did not answer, the next event asks again.
        let wanted;
        do {
          wanted = latest;
          if (!(await swap().catch(() => false))) break;
          version = wanted;
        } while (latest !== wanted);
        asking = false;
      }
    });
    window.addEventListener("pagehide", () => events.close());
  }

  // The pictures that change with every report, in place: the old drawing stays until the new one is there.
  function redraw() {
    for (const image of document.querySelectorAll("#study figure img")) {
      if (!/\/(arrivals|expected-error)\.svg/.test(image.src)) continue;
      const mark = (address) => {
        const url = new URL(address, location.href);
        url.searchParams.set("at", Date.now());
        return url.href;
      };
      const source = image.parentElement.querySelector("source");
      if (source) source.srcset = mark(source.srcset);
      image.src = mark(image.src);
    }
  }

  // Parts of the page as the server would show them now: those whose data-swap is another one, or empty. What somebody
  // types into or reads with the keyboard is left alone.
  async function swap() {
    const answer = await fetch(location.href, { credentials: "same-origin" });
    if (!answer.ok) return false;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
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
    let asked = 0;
    form.addEventListener("input", () => {
      clearTimeout(waiting);
      waiting = setTimeout(async () => {
        const mine = ++asked;
        const answer = await fetch(form.dataset.preview, {
          method: "POST",
          body: new URLSearchParams(new FormData(form)),
          credentials: "same-origin",
        });
        if (answer.ok && mine === asked) {
          const part = new DOMParser().parseFromString(await answer.text(), "text/html");
          panel.replaceChildren(...part.body.childNodes);
        }
      }, 300);
    });
  }
})();
