"use strict";
/* Language switch, copy buttons, steps that lead to the charts. */
(() => {
  const root = document.documentElement;
  document.getElementById("language").addEventListener("click", () => {
    root.dataset.lang = root.dataset.lang === "en" ? "zh" : "en";
    root.lang = root.dataset.lang === "en" ? "en" : "zh-CN";
  });

  /* The clipboard needs a secure page, which a file on disk is not everywhere: then by way of a selection. */
  async function copy(words) {
    try { await navigator.clipboard.writeText(words); return true; } catch { /* below */ }
    const area = document.createElement("textarea");
    area.value = words;
    area.style.cssText = "position:fixed;opacity:0";
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
  for (const button of document.querySelectorAll(".copy")) button.addEventListener("click", async () => {
    const lines = [...button.closest(".paste").querySelectorAll("code")].map((code) => code.textContent);
    const before = [...button.childNodes];
    if (!await copy(lines.join("\n"))) return;
    button.textContent = "✓";
    setTimeout(() => button.replaceChildren(...before), 1200);
  });
  document.addEventListener("click", (event) => {
    const go = event.target.closest(".go");
    if (go && document.getElementById("plots")) Charts.visit(Number(go.dataset.step));
  });
})();
