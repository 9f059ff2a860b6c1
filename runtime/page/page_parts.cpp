// SPDX-License-Identifier: Apache-2.0
#include "runtime/page/page_parts.hpp"

#include <algorithm>

#include "runtime/page/markup.hpp"
#include "runtime/page/recorded_lanes.hpp"
#include "runtime/page/timeline_chart.hpp"

namespace maestro {

namespace {

constexpr std::string_view style = R"(
:root { color-scheme: light dark; --ground: #fbfbfa; --card: #ffffff; --ink: #1d2024; --faint: #626a73;
  --rule: #dfe2e6; --right: #1a7f4b; --wrong: #b3382c; --accent: #2f6fd0; --light: 72%; --mid: 55%; --dark: 42%; --dot: 38%; }
@media (prefers-color-scheme: dark) { :root { --ground: #15171a; --card: #1e2125; --ink: #e7e9ec; --faint: #9aa3ad;
  --rule: #353a41; --right: #56c98c; --wrong: #ef8175; --accent: #7aa9f2; --light: 70%; --mid: 55%; --dark: 42%; --dot: 72%; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", sans-serif; }
main { max-width: 1040px; margin: 0 auto; padding: 2rem 1.25rem 4rem; }
h1, h2, p, li, figcaption { overflow-wrap: anywhere; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .4rem; }
h2 { font-size: 1.15rem; margin: 2.4rem 0 .6rem; }
p { margin: .3rem 0 .8rem; max-width: 46rem; }
.faint, .faint text { color: var(--faint); fill: var(--faint); }
.figures { display: grid; grid-template-columns: repeat(auto-fill, minmax(11.5rem, 1fr)); gap: .75rem; margin: 1.4rem 0 0; }
@media (max-width: 30rem) { .figures { grid-template-columns: 1fr 1fr; } .figures dd { font-size: 1.15rem; } }
.figures div, .answers article, .chart { background: var(--card); border: 1px solid var(--rule); border-radius: 8px; }
.figures div { padding: .7rem .9rem; }
dt, .figures small { color: var(--faint); font-size: .82rem; }
dd { margin: 0; font-size: 1.35rem; font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
.figures small { display: block; font-size: .78rem; line-height: 1.3; }
.chart { overflow-x: auto; padding: .6rem; }
svg { display: block; width: 100%; min-width: 640px; height: auto; font: 12px system-ui, "Liberation Sans", sans-serif; }
svg text { fill: var(--ink); }
.grid { stroke: var(--rule); } .axis { stroke: var(--faint); } .begin { stroke: var(--ink); stroke-dasharray: 3 3; }
polyline { fill: none; stroke-linejoin: round; }
.raw { stroke: hsl(var(--hue) 62% var(--mid)); opacity: .35; } .band { fill: hsl(var(--hue) 62% var(--mid)); opacity: .22; }
.mean { stroke: hsl(var(--hue) 62% var(--mid)); stroke-width: 2; }
.dot { fill: hsl(var(--hue) 72% var(--dot)); stroke: var(--card); stroke-width: 1.2; }
.s0 { --hue: 212; } .s1 { --hue: 38; } .s2 { --hue: 152; } .s3 { --hue: 280; } .s4 { --hue: 350; } .s5 { --hue: 185; } .s6 { --hue: 95; } .s7 { --hue: 16; }
.s8 { --hue: 245; } .s9 { --hue: 320; } .s10 { --hue: 65; }
.p-forward { fill: hsl(var(--hue) 70% var(--light)); background: hsl(var(--hue) 70% var(--light)); }
.p-both { fill: hsl(var(--hue) 62% var(--mid)); background: hsl(var(--hue) 62% var(--mid)); }
.p-backward { fill: hsl(var(--hue) 72% var(--dark)); background: hsl(var(--hue) 72% var(--dark)); }
.waits { fill: hsl(0 0% 50% / .12); background: hsl(0 0% 50% / .25); }
.device-waits { fill: hsl(0 0% 50% / .45); background: hsl(0 0% 50% / .45); }
.p-step { fill: var(--faint); background: var(--faint); }
.legend { display: flex; flex-wrap: wrap; gap: .3rem 1.1rem; margin: .5rem 0 0; padding: 0; list-style: none;
  font-size: .82rem; color: var(--faint); }
.legend i { display: inline-block; width: 1rem; height: .75rem; border-radius: 2px; margin-right: .35rem;
  vertical-align: -.05rem; }
.legend .line { height: 0; border-top: 2.5px solid hsl(var(--hue) 62% var(--mid)); vertical-align: .25rem; }
.legend .point { width: .65rem; height: .65rem; border-radius: 50%; background: hsl(var(--hue) 72% var(--dot)); }
.answers { display: grid; grid-template-columns: repeat(auto-fill, minmax(13rem, 1fr)); gap: .75rem; }
.answers article { padding: .8rem; border-left: 4px solid var(--wrong); }
.answers .right { border-left-color: var(--right); }
.pictures { display: flex; flex-wrap: wrap; gap: .4rem; margin-bottom: .6rem; }
.pictures img { width: 8rem; max-width: 100%; height: auto; border-radius: 4px; display: block; }
.pictures img.enlarged { image-rendering: pixelated; }
.pictures.two img { width: calc(50% - .2rem); }
.question { margin: 0 0 .3rem; color: var(--faint); overflow-wrap: anywhere; }
.written { margin: 0; font-weight: 600; white-space: pre-wrap; overflow-wrap: anywhere; }
.verdict { margin: .25rem 0 0; font-size: .85rem; color: var(--wrong); overflow-wrap: anywhere; }
.right .verdict { color: var(--right); }
.plots { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 26rem), 1fr)); gap: .75rem;
  margin-top: .8rem; }
.plot { margin: 0; padding: .6rem; background: var(--card); border: 1px solid var(--rule); border-radius: 8px; min-width: 0; }
.plot figcaption { font-size: .9rem; font-weight: 600; margin-bottom: .2rem; }
.plot svg { min-width: 0; font-size: 13px; }
.state { font-weight: 600; overflow-wrap: anywhere; } .good { color: var(--right); } .bad { color: var(--wrong); }
.rows, pre { overflow-x: auto; background: var(--card); border: 1px solid var(--rule); border-radius: 8px; }
pre { padding: .7rem .9rem; margin: 0 0 .8rem; font: .85rem/1.45 ui-monospace, "Liberation Mono", monospace; }
table { border-collapse: collapse; width: 100%; font-size: .85rem; }
th, td { padding: .35rem .8rem; text-align: left; vertical-align: top; border-top: 1px solid var(--rule); }
thead th { color: var(--faint); font-weight: 600; } thead th, table:not(:has(thead)) tr:first-child td { border-top: 0; }
.figure { font-variant-numeric: tabular-nums; white-space: nowrap; }
)";

std::string data_value(const std::string& exact) {
  return exact.empty() ? "" : " data-value=\"" + escaped(exact) + "\"";
}

std::string pictures(const std::vector<PageImage>& all) {
  if (all.empty()) return "";
  std::string out = all.size() == 1 ? "<div class=\"pictures\">" : "<div class=\"pictures two\">";
  for (const PageImage& image : all) {
    out += std::string("<img alt=\"\"") + (image.enlarged ? " class=\"enlarged\"" : "") +
           " src=\"data:image/png;base64," + base64(image.png) + "\">";
  }
  return out + "</div>";
}

std::string answer_card(const PageAnswer& answer) {
  std::string out = answer.right() ? "<article class=\"right\">" : "<article>";
  out += pictures(answer.pictures) + "<p class=\"question\">" + escaped(answer.question) + "</p><p class=\"written\">" +
         (answer.written.empty() ? "&#8212;" : escaped(answer.written)) + "</p><p class=\"verdict\">";
  out += answer.right() ? "&#10003; right" : "&#10007; the reference is: " + escaped(answer.reference);
  return out + "</p></article>\n";
}

}  // namespace

std::string html_page(std::string_view title, std::string_view body, std::string_view head) {
  constexpr std::string_view closed =
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; img-src "
      "data:\">\n";
  return "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
         "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n" +
         std::string(head.empty() ? closed : "") + "<title>" + escaped(title) + "</title>\n<style>" +
         std::string(style) + "</style>\n" + std::string(head) + "</head>\n<body>\n<main id=\"page\">\n" +
         std::string(body) + "</main>\n</body>\n</html>\n";
}

std::string figures_part(const std::vector<PageFigure>& all) {
  if (all.empty()) return "";
  std::string out = "<dl class=\"figures\">\n";
  for (const PageFigure& figure : all) {
    out += "<div><dt>" + escaped(figure.name) + "</dt><dd" + data_value(figure.exact) + ">" + escaped(figure.value) +
           "</dd>";
    if (!figure.remark.empty()) out += "<small>" + escaped(figure.remark) + "</small>";
    out += "</div>\n";
  }
  return out + "</dl>\n";
}

std::string chart_part(const ChartHeading& heading, std::string_view chart, std::string_view legend) {
  std::string out = "<h2>" + escaped(heading.title) + "</h2>\n";
  if (!heading.remark.empty()) out += "<p class=\"faint\">" + escaped(heading.remark) + "</p>\n";
  return out + "<div class=\"chart\">" + std::string(chart) + "</div>\n<ul class=\"legend\">" + std::string(legend) +
         "</ul>\n";
}

std::string plot_part(std::string_view title, std::string_view drawing) {
  if (drawing.empty()) return "";
  return "<figure class=\"plot\"><figcaption>" + escaped(title) + "</figcaption>" + std::string(drawing) +
         "</figure>\n";
}

std::string plots_part(const ChartHeading& heading, std::string_view plots, std::string_view legend) {
  return "<h2>" + escaped(heading.title) + "</h2>\n<p class=\"faint\">" + escaped(heading.remark) +
         "</p>\n<ul class=\"legend\">" + std::string(legend) + "</ul>\n<div class=\"plots\">\n" + std::string(plots) +
         "</div>\n";
}

std::string line_entry(std::size_t colour, std::string_view name) {
  return "<li><i class=\"s" + std::to_string(colour) + " line\"></i>" + escaped(name) + "</li>";
}

std::string timeline_part(const Timeline& timeline) {
  const std::string chart = timeline_chart(timeline);
  if (chart.empty()) return "";
  const auto seen = [&](TimelinePass pass, const std::string& section) {
    return std::ranges::any_of(timeline.slices, [&](const TimelineSlice& slice) {
      return slice.pass == pass && (section.empty() || section_of_stage(timeline.lanes[slice.lane].section) == section);
    });
  };
  std::string legend;
  const auto entry = [&](const std::string& kind, const std::string& words) {
    legend += "<li><i class=\"" + kind + "\"></i>" + escaped(words) + "</li>";
  };
  const std::vector<std::string> sections = sections_of(timeline);
  for (const std::string& section : sections) {
    const std::string colour = "s" + std::to_string(colour_of(section, sections)) + " ";
    if (seen(TimelinePass::forward, section)) entry(colour + "p-forward", section + " forward");
    if (seen(TimelinePass::both, section)) entry(colour + "p-both", section + " forward and backward");
    if (seen(TimelinePass::backward, section)) entry(colour + "p-backward", section + " backward");
  }
  if (seen(TimelinePass::step, "")) entry("p-step", "end of the step");
  return chart_part(
      {"What ran when", "Steps " + std::to_string(timeline.first_step) + " to " + std::to_string(timeline.last_step) +
                            ": one row for each copy of a section, one block for each pass over a "
                            "micro-batch."},
      chart, legend);
}

std::string answers_part(const std::vector<PageAnswer>& answers) {
  if (answers.empty()) return "";
  const auto right = std::ranges::count_if(answers, &PageAnswer::right);
  std::string out =
      "<h2>In its own words</h2>\n<p class=\"faint\">Samples that it never trained on. The model writes "
      "each answer token by token; " +
      std::to_string(right) + " of these " + std::to_string(answers.size()) +
      " are right to the letter.</p>\n<div class=\"answers\">\n";
  for (const PageAnswer& answer : answers) out += answer_card(answer);
  return out + "</div>\n";
}

}  // namespace maestro
