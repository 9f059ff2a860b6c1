// SPDX-License-Identifier: Apache-2.0
// The lists of a run's page, as rows of text, for HTML and for Markdown. Pure; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/page/run_page.hpp"

namespace maestro {

struct TableCell {
  std::string text;
  std::string exact = {};  ///< the value without rounding; empty for texts
};

struct PageTable {
  std::string title;
  std::string remark;  ///< a sentence; may be empty
  std::vector<std::string> columns;
  std::vector<std::vector<TableCell>> rows;
};

/// Returns the tables that have rows: figures by section, spikes, validations, made samples, texts, events,
/// layout, data.
[[nodiscard]] std::vector<PageTable> tables_of(const RunPage& page);

/// Returns a table under its heading, as HTML; figures with `data-value` (PW-2).
[[nodiscard]] std::string html_of(const PageTable& table);
/// Returns `text` for a line of Markdown, without markup.
[[nodiscard]] std::string in_markdown(std::string_view text);
/// Returns a table as Markdown.
[[nodiscard]] std::string markdown_of(const PageTable& table);

}  // namespace maestro
