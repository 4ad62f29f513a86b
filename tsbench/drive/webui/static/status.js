// What the test is doing: its step, its gates, and at the end the verdict and the answer, above Locust's tabs.
const tsbStatus = (() => {
  "use strict";
  const element = (tag, attributes = {}, ...children) => {
    const made = Object.assign(document.createElement(tag), attributes);
    made.append(...children);
    return made;
  };
  const trouble = element("div", { className: "tsb-trouble", role: "alert", hidden: true });
  const stepText = element("span"), stepBar = element("progress", { max: 1 });
  const step = element("div", { className: "tsb-step", role: "status", hidden: true }, stepText, stepBar);
  const gates = element("ul", { className: "tsb-gates", hidden: true });
  const verdict = element("div", { className: "tsb-verdict", role: "status", hidden: true });
  const note = element("p", { className: "tsb-why" }, "The other parameters are those of the whole test: press STOP, then NEW.");

  const showStep = ({ progress, stage }) => {
    step.hidden = !progress;
    if (!progress) return;
    const { step: text, share } = progress;
    stepText.textContent = text[0].toUpperCase() + text.slice(1) + (share === null ? "…" : `: ${Math.floor(share * 100)} %`);
    stepBar.hidden = share === null && stage === "running";
    if (share === null) stepBar.removeAttribute("value"); else stepBar.value = share;
  };

  const gate = (state, ...parts) => element("li", { className: `tsb-gate-${state.replaceAll(" ", "-")}` }, parts.filter(Boolean).join(": "));
  const gateSoFar = ({ gate: text, holds, figure }) =>
    holds === null ? gate("unknown", text, "not known yet") : gate(holds ? "pass" : "fail", text, `${holds ? "holds" : "is broken"} so far, ${figure}`);

  const showVerdict = (found, report) => {
    verdict.hidden = !found;
    if (!found) return;
    verdict.className = `tsb-verdict ${found.passed ? "tsb-passed" : "tsb-not-passed"}`;
    const link = element("a", { href: report, target: "_blank", rel: "noopener" }, "Open the report");
    verdict.replaceChildren(element("b", {}, found.headline[0].toUpperCase() + found.headline.slice(1)),
      ...found.answer.map((sentence) => element("p", {}, sentence)),
      ...(found.limited_by ? [element("p", {}, `Limited by: ${found.limited_by}`)] : []), link);
  };

  const show = (live, report) => {
    trouble.hidden = !live.trouble;
    trouble.textContent = live.trouble ? `The test could not begin: ${live.trouble}` : "";
    showStep(live);
    const rows = live.verdict ? live.verdict.gates.map((one) => gate(one.state, one.gate, one.state, one.text)) : (live.gates || []).map(gateSoFar);
    gates.hidden = !rows.length;
    gates.replaceChildren(...rows);
    showVerdict(live.verdict, report);
  };

  // A running test can have other users; its data, server and warm-up are what they are.
  const form = (running) => {
    const shown = [...document.querySelectorAll("form")].find((one) => one.querySelector("input[name=userCount]"));
    if (!shown) return;
    const host = shown.querySelector("input[name=host]")?.closest("[class*=MuiFormControl-root]");
    if (host) host.style.display = "none"; // it would be a second field for what Endpoint is for
    for (const part of shown.querySelectorAll("[class*=MuiAccordion-root]")) {
      const hides = running && /Custom parameters/.test(part.textContent);
      if (part.hidden !== hides) { part.hidden = hides; part.style.display = hides ? "none" : ""; }
      if (hides && note.parentElement !== part.parentElement) part.after(note);
    }
    if (!running) note.remove();
  };

  return { root: element("div", { id: "tsb-status" }, trouble, step, gates, verdict), show, form };
})();
