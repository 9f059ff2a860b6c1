// SPDX-License-Identifier: Apache-2.0
#include "runtime/page/run_card.hpp"

#include "runtime/core/utf8.hpp"
#include "runtime/page/run_tables.hpp"

namespace maestro {

namespace {

/// Returns `text` as a code block, with a fence longer than any in the text.
std::string code_block(const std::string& text) {
  std::string fence = "```";
  while (text.find(fence) != std::string::npos) fence += '`';
  return fence + "\n" + text + (text.ends_with('\n') ? "" : "\n") + fence + "\n\n";
}

PageTable answers_table(const RunPage& page) {
  PageTable table{"Answers", "To samples that the model never trained on.", {"question", "answer", "reference"}, {}};
  for (const PageAnswer& answer : page.answers) {
    table.rows.push_back({{answer.question}, {answer.written}, {answer.reference}});
  }
  return table;
}

}  // namespace

std::string card_of(const RunPage& page) {
  std::string out = "# " + in_markdown(page.title) + "\n\n" + in_markdown(state_line(page)) + "\n\n";
  for (const PageFigure& figure : page.figures) {
    out += "- " + in_markdown(figure.name) + ": **" + in_markdown(figure.value) + "**" +
           (figure.remark.empty() ? "" : " (" + in_markdown(figure.remark) + ")") + "\n";
  }
  out += "\n";
  if (!page.answers.empty()) out += markdown_of(answers_table(page));
  for (const PageTable& table : tables_of(page)) out += markdown_of(table);
  if (!page.job.empty()) {
    out += "## Run it again\n\nWith the text below as job.toml, in the folder that the run was started in:\n\n" +
           code_block(page.command) + code_block(page.job);
  }
  return repaired_utf8(out);
}

}  // namespace maestro
