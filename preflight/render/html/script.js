"use strict";
(() => {
  const all = (query, of = document) => [...of.querySelectorAll(query)];

  // --- copying ---

  const copied = async (button) => {
    const code = button.previousElementSibling;
    try {
      await navigator.clipboard.writeText(code.textContent);
    } catch {
      const range = document.createRange();
      range.selectNodeContents(code);
      getSelection().removeAllRanges();
      getSelection().addRange(range);
      if (!document.execCommand("copy")) return;
    }
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = "Copy"), 1500);
  };
  for (const button of all(".copy")) {
    button.hidden = false;
    button.addEventListener("click", () => copied(button));
  }

  // --- the embedded report: each check is opened when it is asked for ---

  const blocks = new Map(
    all('script[type="application/x-preflight"]').map((of) => [of.dataset.check, of.textContent]),
  );
  const opened = new Map();
  const open = (check) => {
    if (!opened.has(check) && blocks.has(check)) {
      const bytes = Uint8Array.from(atob(blocks.get(check)), (c) => c.charCodeAt(0));
      const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
      opened.set(check, new Response(stream).json());
    }
    return opened.get(check);
  };

  // --- the values of what the pointer or the keyboard is at ---

  const peek = document.getElementById("peek");
  let asked = 0;
  const tell = (text) => {
    peek.textContent = text;
    peek.hidden = !text;
  };
  const brief = (value) => {
    const text = JSON.stringify(value, null, 1).replace(/\n\s*/g, " ");
    return text.length > 700 ? `${text.slice(0, 700)}…` : text;
  };
  const described = async (node, check) => {
    const found = await open(check);
    const lines = [];
    for (const [key, one] of Object.entries((found && found.observations) || {})) {
      if (key !== node && !(key.startsWith(`${node}/`) && /^\d+$/.test(key.slice(node.length + 1)))) continue;
      const said = "ok" in one ? brief(one.ok) : `${one.missing}: ${one.detail}`;
      lines.push(`${key} (${one.seconds} s): ${said}`);
      if (lines.length > 8) break;
    }
    return lines.join("\n");
  };

  const grid = document.getElementById("grid");
  if (grid) {
    const head = grid.tHead.rows[0];
    const ids = [...head.cells].map((cell) => cell.textContent);
    const body = grid.tBodies[0];
    let rows = [...body.rows];
    if (rows.length * ids.length > 2000) {
      // rows that are out of sight are not laid out; which only rows of a known width can have
      document.styleSheets[0].insertRule(`#grid.long tr{width:${11 + 2 * (ids.length - 1)}rem}`);
      grid.classList.add("long");
    }

    const at = async (cell) => {
      if (!cell || cell.tagName !== "TD" || !cell.textContent) return;
      const turn = ++asked;
      const [node, check] = [cell.parentElement.cells[0].textContent, ids[cell.cellIndex]];
      tell(`${node} · ${check}: ${cell.textContent}`);
      const said = await described(node, check);
      if (turn === asked && said) tell(`${node} · ${check}: ${cell.textContent}\n${said}`);
    };
    body.addEventListener("mouseover", (event) => at(event.target.closest("td")));
    body.addEventListener("focusin", (event) => at(event.target.closest("td")));

    // one cell is in the order of the tab key; the arrows lead to the others
    const shown = (row) => row && !row.hidden;
    let here = null;
    const mark = (cell) => {
      if (here) here.removeAttribute("tabindex");
      here = cell;
      if (cell) cell.tabIndex = 0;
    };
    const go = (cell) => {
      if (!cell || cell.tagName !== "TD") return;
      mark(cell);
      cell.focus();
    };
    mark(rows.length ? rows[0].cells[1] : null);
    body.addEventListener("click", (event) => go(event.target.closest("td")));
    body.addEventListener("keydown", (event) => {
      const cell = event.target.closest("td");
      const [dx, dy] = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key] || [0, 0];
      if (!cell || !(dx || dy)) return;
      event.preventDefault();
      let next = cell.parentElement;
      let column = cell.cellIndex + dx;
      if (dy) do next = dy > 0 ? next.nextElementSibling : next.previousElementSibling; while (next && !shown(next));
      while (dx && head.cells[column] && head.cells[column].hidden) column += dx;
      if (next && column > 0) go(next.cells[column]);
    });

    // --- sorting ---

    const WEIGHT = "fmuwps";
    const weight = (row, column) => {
      const of = row.cells[column].className;
      return of ? WEIGHT.indexOf(of) : WEIGHT.length;
    };
    const names = new Intl.Collator("en", { numeric: true });
    let sorted = [-1, 1];
    const sort = (column) => {
      const turned = sorted[0] === column ? -sorted[1] : 1;
      sorted = [column, turned];
      rows.sort((a, b) => {
        const by = column ? weight(a, column) - weight(b, column) : 0;
        return turned * (by || names.compare(a.cells[0].textContent, b.cells[0].textContent));
      });
      body.append(...rows);
      mark(rows.length ? rows[0].cells[1] : null);
      [...head.cells].forEach((cell, i) => {
        if (i === column) cell.setAttribute("aria-sort", turned > 0 ? "ascending" : "descending");
        else cell.removeAttribute("aria-sort");
      });
    };
    [...head.cells].forEach((cell, i) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = ids[i];
      button.addEventListener("click", () => sort(i));
      cell.replaceChildren(button);
    });

    // --- filtering ---

    const form = document.getElementById("filter");
    const sheet = document.styleSheets[0];
    const own = sheet.cssRules.length;
    const filter = () => {
      const wanted = new FormData(form);
      const [node, check, status] = ["node", "check", "status"].map((name) => wanted.get(name).trim().toLowerCase());
      while (sheet.cssRules.length > own) sheet.deleteRule(own);
      const columns = ids.map((id, i) => !i || id.toLowerCase().includes(check));
      columns.forEach((is, i) => {
        head.cells[i].hidden = !is;
        if (!is) sheet.insertRule(`#grid tr>:nth-child(${i + 1}){display:none}`, own);
      });
      let count = 0;
      for (const row of rows) {
        const has = !status || [...row.cells].some((cell, i) => i && columns[i] && cell.className === status);
        const is = has && row.cells[0].textContent.toLowerCase().includes(node);
        row.hidden = !is;
        count += is;
      }
      document.getElementById("shown").textContent = `${count} of ${rows.length} nodes`;
    };
    form.hidden = false;
    form.addEventListener("input", filter);
    form.addEventListener("submit", (event) => event.preventDefault());
    filter();
  }

  // --- maps ---

  for (const map of all("svg.map[data-check]")) {
    const pitch = Number(map.dataset.pitch);
    map.addEventListener("pointermove", async (event) => {
      const turn = ++asked;
      const whole = await open("");
      const of = whole.checks.find((one) => one.id === map.dataset.check);
      if (turn !== asked || !of || !of.grid) return;
      const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(map.getScreenCTM().inverse());
      const [row, column] = [Math.floor(point.y / pitch), Math.floor(point.x / pitch)];
      const { rows, columns, cells, rest, unit } = of.grid;
      if (!(row in rows) || !(column in columns)) return;
      const one = cells.find((c) => c.row === row && c.column === column) || cells.find((c) => c.row === column && c.column === row);
      const value = one ? one.value : rest;
      const said = value == null ? "not measured" : unit ? `${value} ${unit}` : value ? "yes" : "no";
      tell(`${of.id} · ${rows[row]} to ${columns[column]}: ${said}`);
    });
  }
})();
