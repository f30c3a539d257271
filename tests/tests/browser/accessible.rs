//! Accessibility: axe-core's rules, keyboard operation, nothing wider than the screen.

use serde_json::Value;

use crate::chromium::Browser;

const AXE: &str = include_str!("../../vendor/axe-core/axe.min.js");

/// Checks the page against WCAG 2.2 AA and best practice, including contrast.
pub(crate) async fn check_rules(browser: &Browser, page: &str) {
    browser.execute("sync", AXE).await;
    let run = "const done = arguments[arguments.length - 1];
        axe.run(document, {preload: false, resultTypes: ['violations', 'incomplete']})
            .then(done, (error) => done({error: String(error)}));";
    let result = browser.execute("async", run).await;
    let rules = result["passes"].as_array().unwrap();
    assert!(
        rules.len() >= 10,
        "{page}: axe has run only {} rules: {result}",
        rules.len()
    );
    let violations: Vec<String> = result["violations"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|violation| {
            let id = violation["id"].as_str().unwrap_or_default().to_owned();
            violation["nodes"]
                .as_array()
                .unwrap()
                .iter()
                .map(move |node| format!("{id}: {} ({})", node["html"], node["failureSummary"]))
        })
        .collect();
    assert!(
        violations.is_empty(),
        "{page} {:?}:\n{}",
        browser.settings(),
        violations.join("\n")
    );
}

/// Walks through the page with the Tab key: every control is reached in document order and shows its focus.
pub(crate) async fn check_keyboard(browser: &Browser, page: &str) {
    let wanted = browser
        .evaluate(
            "(() => {
                const all = [...document.querySelectorAll(
                    'a[href], button, input, select, textarea, summary, [tabindex=\"0\"]')]
                    .filter((e) => !e.disabled && e.type !== 'hidden' && e.checkVisibility({visibilityProperty: true}));
                all.forEach((e, i) => { e.dataset.stop = i; });
                if (document.activeElement) document.activeElement.blur();
                return all.length;
            })()",
        )
        .await
        .as_u64()
        .unwrap();
    let mut reached = Vec::new();
    // A date has a field for each of its parts, and a button.
    for _ in 0..=2 * wanted {
        for kind in ["rawKeyDown", "keyUp"] {
            let key = serde_json::json!({"type": kind, "key": "Tab", "code": "Tab", "windowsVirtualKeyCode": 9});
            browser.devtools("Input.dispatchKeyEvent", key).await;
        }
        let stop = browser
            .evaluate(
                "(() => {
                    const e = document.activeElement, s = getComputedStyle(e);
                    const shown = (s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) >= 1) || s.boxShadow !== 'none';
                    return {stop: e.dataset.stop ?? null, shown, html: e.outerHTML.slice(0, 120)};
                })()",
            )
            .await;
        let Value::String(number) = &stop["stop"] else {
            break;
        };
        assert_eq!(
            stop["shown"], true,
            "{page}: the focus cannot be seen on {}",
            stop["html"]
        );
        let number = number.parse::<u64>().unwrap();
        if reached.last() != Some(&number) {
            reached.push(number);
        }
    }
    assert_eq!(
        reached,
        (0..wanted).collect::<Vec<_>>(),
        "{page}: stops of the Tab key"
    );
}

/// Nothing is wider than the window, and no text is cut off.
pub(crate) async fn check_fits(browser: &Browser, page: &str) {
    // Otherwise images below the window load late.
    let load = "const done = arguments[arguments.length - 1];
        const images = [...document.images];
        images.forEach((image) => { image.loading = 'eager'; });
        Promise.allSettled(images.map((image) => image.decode())).then(() => done(images.length));";
    browser.execute("async", load).await;
    let over = browser
        .evaluate(
            "(() => {
                const root = document.documentElement;
                if (root.scrollWidth > root.clientWidth) return [`page of ${root.scrollWidth} in ${root.clientWidth}`];
                // The longest verdict and names, which not every estimate has, make no number of a component scroll.
                const table = document.querySelector('#components');
                if (table) {
                    const fill = (head, text) => table.querySelectorAll(`td[data-head='${head}']`)
                        .forEach((cell) => { cell.textContent = text; });
                    fill('Verdict', 'together above the noise floor, as one of 10–12');
                    fill('Largest loadings', '+systolic_blood_pressure, −waist_circumference_cm');
                    const box = table.parentElement;
                    if (box.scrollWidth > box.clientWidth) return [`table of ${box.scrollWidth} in ${box.clientWidth}`];
                }
                return [...document.querySelectorAll('body *')].filter((e) => {
                    const s = getComputedStyle(e);
                    const hidden = s.clipPath === 'inset(50%)' || e.closest('svg') || !e.checkVisibility();
                    if (hidden) return false;
                    // A select does not report cut text: compare with its natural width, which it has only without a
                    // set width.
                    const selects = (e) => {
                        const free = e.cloneNode(true);
                        free.style.cssText = 'position: absolute; width: max-content; max-width: none;';
                        free.removeAttribute('id');
                        e.parentElement.append(free);
                        const wanted = free.offsetWidth;
                        free.remove();
                        return wanted > e.offsetWidth;
                    };
                    const cut = e.tagName === 'SELECT' ? selects(e)
                        : ['hidden', 'clip'].includes(s.overflowX) && e.scrollWidth > e.clientWidth + 1;
                    return cut || (e.tagName === 'IMG' && (!e.complete || e.naturalWidth === 0));
                }).map((e) => e.outerHTML.slice(0, 120));
            })()",
        )
        .await;
    assert_eq!(
        over.as_array().unwrap().len(),
        0,
        "{page} {:?}: {over}",
        browser.settings()
    );
}
