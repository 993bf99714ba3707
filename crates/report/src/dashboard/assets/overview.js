// The overview: headline figures with their provenance, the step's parts, findings, what to do first.

import { load, main, make, runId, start, withTip } from "./page.js";
import { legend, partsBar } from "./charts.js";
import { rankSection } from "./ranks.js";
import { table } from "./table.js";
import { seconds, share } from "./numbers.js";

start(async () => {
  const overview = await load(`/api/runs/${runId}/overview`);
  main.append(make("h1", {}, overview.title), make("p", { class: "sub" }, overview.subtitle));
  if (overview.notes.length) main.append(make("div", { class: "reserve" }, overview.notes.map((note) => make("p", {}, note))));
  if (overview.headline.length) main.append(make("dl", { class: "figures" }, overview.headline.map(figure)));
  if (overview.breakdown.length) main.append(...breakdown(overview));
  if (overview.ranks) main.append(rankSection(overview.ranks));
  main.append(make("div", { class: "columns" }, findings(overview), roadmap(overview)));
  if (overview.files.length) main.append(files(overview.files));
});

function figure(one) {
  const origin = one.origin ? make("span", { class: `origin ${one.origin}` }, one.origin) : null;
  const value = make("dd", { class: "value", "data-number": one.number, "data-file": one.file, "data-key": one.key }, one.shown);
  return withTip(make("div", { tabindex: 0 },
    make("dt", {}, one.name, origin), value, make("dd", { class: "note" }, one.note)), `${one.file}\n${one.key} = ${one.number}`);
}

function breakdown(overview) {
  const parts = overview.breakdown.map((part) => ({ ...part, value: part.seconds }));
  const text = (part) => `${seconds(part.seconds)}, ${share(part.share)}`;
  const whole = parts.reduce((sum, part) => sum + part.seconds, 0);
  return [
    make("h2", {}, "Where a step's time goes", make("small", {}, `${seconds(whole)}; ${overview.breakdown_note}`)),
    partsBar(parts, "Parts of a step; the list below has the figures", text),
    legend(parts.map((part) => part.name), parts.map(text)),
  ];
}

function findings(overview) {
  const list = overview.findings.map((finding) => make("li", {},
    make("span", { class: `amount ${finding.severity}` }, finding.share == null ? "–" : share(finding.share)),
    make("div", {},
      make("h3", {}, [finding.code, finding.name].filter(Boolean).join(" "), make("span", { class: `severity ${finding.severity}` }, finding.severity)),
      make("p", {}, finding.message, finding.place ? make("span", { class: "note" }, " ", make("code", {}, finding.place)) : null),
      make("ul", {}, finding.evidence.map((line) => make("li", {}, line))),
      make("p", { class: "advice" }, finding.advice))));
  return make("section", { "aria-labelledby": "findings" },
    make("h2", { id: "findings" }, "Findings", make("small", {}, "by their share of the step")),
    list.length ? make("ol", { class: "findings" }, list) : make("p", { class: "empty" }, overview.no_findings));
}

function roadmap(overview) {
  const rows = table({
    columns: [
      { title: "finding", heading: true, kind: "long", cell: (row) => [row.name, make("div", { class: "note" }, row.advice)] },
      { title: overview.roadmap_by, cell: (row) => row.effort },
      overview.roadmap.some((row) => row.expected_share !== null) &&
        { title: "expected", help: "by itself", number: true, value: (row) => row.expected_share, cell: (row) => share(row.expected_share) },
      { title: "at most", help: "by itself", number: true, value: (row) => row.alone_share, cell: (row) => share(row.alone_share) },
      overview.roadmap.some((row) => row.additional_share !== row.alone_share) &&
        { title: "adds", help: "at most, beyond those above", number: true, value: (row) => row.additional_share, cell: (row) => share(row.additional_share) },
    ].filter(Boolean),
    rows: overview.roadmap,
    empty: overview.no_roadmap,
  });
  return make("section", { "aria-labelledby": "roadmap" },
    make("h2", { id: "roadmap" }, "Roadmap"), make("p", { class: "note" }, overview.roadmap_note), rows.element);
}

function files(names) {
  const link = (name) => make("a", { href: `/runs/${runId}/files/${encodeURIComponent(name)}` }, name);
  return make("section", {}, make("h2", {}, "Files"), make("p", {}, names.flatMap((name, at) => [at ? " · " : "", link(name)])));
}
