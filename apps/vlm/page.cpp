// SPDX-License-Identifier: Apache-2.0
#include "apps/vlm/page.hpp"

#include <algorithm>

#include "runtime/page/markup.hpp"

namespace maestro {

namespace {

std::string loss_part(const PageContent& content) {
  CurveChart chart{"loss over the steps", false, false, 960, 300, {{"loss", 0, content.training, content.validation}}};
  const std::string drawing = curve_chart(chart);
  if (drawing.empty()) return "";
  std::string legend = "<li><i class=\"s0 line\"></i>training, moving mean</li>";
  if (!content.validation.empty()) legend += "<li><i class=\"s0 point\"></i>validation</li>";
  return chart_part({"Loss", "Nats per token of the answers, by step."}, drawing, legend);
}

std::string pictures(const std::vector<PagePicture>& all) {
  if (all.empty()) return "";
  std::string out = all.size() == 1 ? "<div class=\"pictures\">" : "<div class=\"pictures two\">";
  for (const PagePicture& picture : all) {
    out += std::string("<img alt=\"\"") + (picture.enlarged ? " class=\"enlarged\"" : "") +
           " src=\"data:image/png;base64," + base64(picture.png) + "\">";
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

}  // namespace

std::string page_of(const PageContent& content) {
  std::string body = "<h1>" + escaped(content.title) + "</h1>\n";
  if (!content.summary.empty()) body += "<p>" + escaped(content.summary) + "</p>\n";
  body += figures_part(content.figures) + answers_part(content.answers) + loss_part(content) +
          timeline_part(content.timeline);
  return html_page(content.title, body);
}

}  // namespace maestro
