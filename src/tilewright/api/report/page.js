"use strict";
(() => {
  const data = JSON.parse(document.getElementById("report-data").textContent);
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const one = (selector, root = document) => root.querySelector(selector);

  function make(name, text, attributes = {}) {
    const made = document.createElement(name);
    if (text !== undefined && text !== null) made.textContent = text;  // names are never markup
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    return made;
  }

  // --- one step or kernel is selected, everywhere -------------------------------------------

  function select(kernel, step, from) {
    for (const marked of all(".is-selected")) marked.classList.remove("is-selected");
    for (const marked of all(".is-near")) marked.classList.remove("is-near");
    for (const other of all(`[data-kernel="${kernel}"]`)) {
      const isStep = other.dataset.step !== undefined;
      if (!isStep || step === undefined || Number(other.dataset.step) === step) other.classList.add("is-selected");
    }
    const steps = step === undefined ? stepsOf(kernel) : [step];
    const chosen = new Set(steps);
    for (const other of all(".life, #overview [data-step]")) {
      if (chosen.has(Number(other.dataset.step))) other.classList.add("is-selected");
    }
    for (const edge of all(".edge")) {
      if (chosen.has(Number(edge.dataset.from)) || chosen.has(Number(edge.dataset.to))) edge.classList.add("is-near");
    }
    describe(kernel, steps);
    if (from !== "graph") reveal(steps[0]);
  }

  function stepsOf(kernel) {
    return data.steps.flatMap((step, place) => (step.kernel === kernel ? [place] : []));
  }

  function describe(kernel, steps) {
    const panel = one("#details");
    if (!panel) return;
    const step = data.steps[steps[0]], facts = data.kernels[kernel];
    panel.replaceChildren(make("h3", facts.name));
    panel.append(make("span", step.outcome, { class: `chip ${step.class}` }));
    const list = make("dl");
    const row = (name, value) => { if (value) list.append(make("dt", name), make("dd", value)); };
    row("step", steps.length === 1 ? `${steps[0]}` : `${steps[0]} and ${steps.length - 1} more`);
    row("time", step.time);
    row("arithmetic", step.flops);
    row("bytes", step.bytes);
    row("rates", step.rates);
    row("limit", step.limit);
    row("workgroups", step.grid);
    panel.append(list);
    const texts = [["nodes of the model", step.nodes], ["reads", step.operands], ["weights", step.constants], ["writes", step.results]];
    for (const [title, lines] of texts) {
      if (!lines.length) continue;
      const items = make("ul");
      items.append(...lines.map((line) => make("li", line)));
      panel.append(make("h4", title), items);
    }
    if (Object.keys(facts.code).length) {
      const button = make("button", "show its code", { type: "button" });
      button.addEventListener("click", () => openCode(kernel));
      panel.append(button);
    }
  }

  document.addEventListener("click", (event) => {
    const target = event.target.closest("[data-kernel], .life, #overview [data-step]");
    if (!target || target.closest("tr.code")) return;
    const step = target.dataset.step === undefined ? undefined : Number(target.dataset.step);
    const kernel = target.dataset.kernel === undefined ? data.steps[step].kernel : Number(target.dataset.kernel);
    if (target.matches("tr")) toggleCode(target);
    select(kernel, step, target.closest("#canvas") ? "graph" : "");
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    if (!event.target.matches("[data-kernel][tabindex]")) return;
    event.preventDefault();
    event.target.dispatchEvent(new MouseEvent("click", { bubbles: true }));
  });

  // --- the graph: scrolled natively, zoomed by its size ---------------------------------------

  const canvas = one("#canvas"), drawing = one("#graph-svg"), view = one("#view");
  let scale = 1;

  function zoom(factor, x = canvas.clientWidth / 2, y = canvas.clientHeight / 2) {
    const before = scale;
    scale = Math.min(3, Math.max(0.05, scale * factor));
    const size = drawing.viewBox.baseVal;
    const left = (canvas.scrollLeft + x) / before, top = (canvas.scrollTop + y) / before;
    drawing.setAttribute("width", size.width * scale);
    drawing.setAttribute("height", size.height * scale);
    canvas.scrollTo(left * scale - x, top * scale - y);
    showView();
  }

  function fit() {
    zoom(Math.min(canvas.clientWidth / drawing.viewBox.baseVal.width, canvas.clientHeight / drawing.viewBox.baseVal.height) / scale);
  }

  function showView() {
    const size = drawing.viewBox.baseVal;
    view.setAttribute("x", canvas.scrollLeft / scale);
    view.setAttribute("y", canvas.scrollTop / scale);
    view.setAttribute("width", Math.min(size.width, canvas.clientWidth / scale));
    view.setAttribute("height", Math.min(size.height, canvas.clientHeight / scale));
  }

  function reveal(step) {
    const node = drawing && one(`.node[data-step="${step}"]`, drawing);
    if (!node) return;
    const { x, y } = centerOf(node);
    canvas.scrollTo({ left: x * scale - canvas.clientWidth / 2, top: y * scale - canvas.clientHeight / 2, behavior: "smooth" });
  }

  function centerOf(node) {
    const { e, f } = node.transform.baseVal.consolidate().matrix, box = one(".box", node);
    return { x: e + box.width.baseVal.value / 2, y: f + box.height.baseVal.value / 2 };
  }

  if (drawing) {
    const wide = canvas.clientWidth / drawing.viewBox.baseVal.width;
    zoom(Math.min(1, Math.max(wide, 0.8)));  // texts stay readable
    canvas.scrollTo(centerOf(one(".node", drawing)).x * scale - canvas.clientWidth / 2, 0);
    canvas.addEventListener("scroll", showView);
    window.addEventListener("resize", showView);
    canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      const box = canvas.getBoundingClientRect();
      zoom(Math.exp(-event.deltaY / 300), event.clientX - box.left, event.clientY - box.top);
    }, { passive: false });
    let held = null;
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button === 0) held = { x: event.clientX, y: event.clientY, left: canvas.scrollLeft, top: canvas.scrollTop };
    });
    window.addEventListener("pointermove", (event) => {
      if (!held) return;
      if (Math.abs(event.clientX - held.x) + Math.abs(event.clientY - held.y) > 4) canvas.classList.add("is-dragged");
      canvas.scrollTo(held.left + held.x - event.clientX, held.top + held.y - event.clientY);
    });
    window.addEventListener("pointerup", () => { held = null; setTimeout(() => canvas.classList.remove("is-dragged")); });
    canvas.addEventListener("click", (event) => { if (canvas.classList.contains("is-dragged")) event.stopPropagation(); }, true);
    const overview = one("#overview");
    let isMoving = false;
    const jump = (event) => {
      const box = overview.getBoundingClientRect(), size = drawing.viewBox.baseVal;
      const x = (event.clientX - box.left) / box.width * size.width, y = (event.clientY - box.top) / box.height * size.height;
      canvas.scrollTo(x * scale - canvas.clientWidth / 2, y * scale - canvas.clientHeight / 2);
    };
    overview.addEventListener("pointerdown", (event) => { isMoving = true; jump(event); });
    window.addEventListener("pointermove", (event) => { if (isMoving) jump(event); });
    window.addEventListener("pointerup", () => { isMoving = false; });
    one("#zoom-in").addEventListener("click", () => zoom(1.25));
    one("#zoom-out").addEventListener("click", () => zoom(0.8));
    one("#zoom-fit").addEventListener("click", fit);
    one("#zoom-one").addEventListener("click", () => zoom(1 / scale));
    showView();
  }

  // --- the table: sorted, filtered, with code behind each row ---------------------------------

  const table = one("#kernels"), body = one("tbody", table);

  function sortBy(head) {
    const place = [...head.parentElement.children].indexOf(head);
    const order = head.getAttribute("aria-sort") === "descending" ? "ascending" : "descending";
    for (const other of all("th[aria-sort]", table)) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", order);
    for (const code of all("tr.code", body)) code.remove();
    for (const open of all(".is-open", body)) open.classList.remove("is-open");
    const isNumber = head.classList.contains("n");
    const key = (row) => {
      const cell = row.children[place];
      return isNumber ? Number(cell.dataset.value) : cell.textContent;
    };
    const compare = (a, b) => (isNumber ? key(a) - key(b) : key(b).localeCompare(key(a)));
    const rows = all("tr.kernel", body).sort(compare);
    body.append(...(order === "descending" ? rows.reverse() : rows));
  }
  for (const head of all("th", table)) one("button", head).addEventListener("click", () => sortBy(head));

  one("#filter").addEventListener("input", (event) => {
    const wanted = event.target.value.toLowerCase();
    for (const code of all("tr.code", body)) code.remove();
    for (const row of all("tr.kernel", body)) {
      row.classList.remove("is-open");
      const facts = data.kernels[Number(row.dataset.kernel)];
      row.hidden = !`${facts.name}\n${facts.nodes.join("\n")}\n${row.textContent}`.toLowerCase().includes(wanted);
    }
  });

  async function unpacked(text) {
    const bytes = Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Response(stream).text();
  }

  function toggleCode(row) {
    const next = row.nextElementSibling;
    row.classList.toggle("is-open");
    if (next && next.matches("tr.code")) { next.remove(); return; }
    const { code } = data.kernels[Number(row.dataset.kernel)];
    const cell = make("td", undefined, { colspan: row.children.length });
    const tabs = make("div", undefined, { class: "tabs", role: "tablist" }), text = make("pre", "", { tabindex: 0 });
    for (const [title, packed] of Object.entries(code)) {
      const tab = make("button", title, { type: "button", role: "tab" });
      tab.addEventListener("click", async () => {
        for (const other of all("button", tabs)) other.setAttribute("aria-selected", String(other === tab));
        text.textContent = await unpacked(packed);
        text.scrollTo(0, 0);
      });
      tabs.append(tab);
    }
    if (tabs.children.length) cell.append(tabs, text);
    else cell.append(make("p", "no code is kept for it", { class: "hint" }));
    const made = make("tr", undefined, { class: "code" });
    made.append(cell);
    row.after(made);
    if (tabs.firstChild) tabs.firstChild.click();
  }

  function openCode(kernel) {
    const row = one(`tr.kernel[data-kernel="${kernel}"]`, body);
    row.hidden = false;
    if (!row.classList.contains("is-open")) toggleCode(row);
    row.scrollIntoView({ behavior: "smooth", block: "start" });
  }

  // Something is selected from the start: the step that takes longest.
  if (data.slowest !== null) select(data.steps[data.slowest].kernel, data.slowest, "graph");

  // --- light or dark ----------------------------------------------------------------------------

  one("#theme").addEventListener("click", () => {
    const root = document.documentElement;
    const isDark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = isDark ? "light" : "dark";
  });
})();
