// SPDX-License-Identifier: Apache-2.0
#include "sections/decoder/marked_layout.hpp"

#include <stdexcept>
#include <string>

#include "runtime/core/result.hpp"
#include "runtime/data/corpus.hpp"

namespace maestro {

namespace {

/// Returns the ends of a sequence's rows; `later` becomes true if one sees a row after it.
void add_ends(std::span<const std::int32_t> marks, std::vector<std::int32_t>& ends, bool& later) {
  const auto length = static_cast<std::int32_t>(std::ssize(marks) / mark_columns);
  std::int32_t before = 0;
  for (std::int32_t row = 0; row < length; ++row) {
    const std::int32_t end = marks[static_cast<std::size_t>((row + 1) * mark_columns - 1)];
    if (end <= row || end > length || end < before) {
      throw std::invalid_argument("row " + std::to_string(row) + " of " + std::to_string(length) + " sees " +
                                  std::to_string(end) + " rows, and the row before it " + std::to_string(before));
    }
    later |= end > row + 1;
    before = end;
    ends.push_back(end);
  }
}

}  // namespace

MarkColumns mark_columns_of(const DecoderConfig& config, std::span<const std::int32_t> marks,
                            std::span<const std::int32_t> offsets) {
  MarkColumns columns;
  for (std::size_t at = 0; !config.rope_sections.empty() && at < marks.size(); ++at) {
    if (at % mark_columns != mark_axes) columns.positions.push_back(marks[at]);
  }
  bool later = false;
  for (std::size_t at = 0; config.image_mask != ImageMask::causal && at + 1 < offsets.size(); ++at) {
    const auto first = static_cast<std::size_t>(offsets[at]), end = static_cast<std::size_t>(offsets[at + 1]);
    add_ends(marks.subspan(first * mark_columns, (end - first) * mark_columns), columns.ends, later);
  }
  if (!later) columns.ends.clear();
  return columns;
}

MarkedLayout::MarkedLayout(const std::string& section, Tape& tape, const Inputs& inputs, const DecoderConfig& config)
    : layout_(inputs.layout()) {
  if (!config.needs_marks() || !inputs.has(marks_name)) return;
  MarkColumns columns;
  try {
    columns = mark_columns_of(config, inputs.host(marks_name).span<std::int32_t>(), layout_.offsets);
  } catch (const std::invalid_argument& problem) {
    throw JobError(section + ": the marks of a sample cannot be used: " + problem.what());
  }
  if (!columns.positions.empty()) {
    positions_ = tape.indices(columns.positions);
    layout_.positions = positions_.tensor().span<std::int32_t>();
    layout_.axes = mark_axes;
    keep(tape, positions_);
  }
  if (columns.ends.empty()) return;
  ends_ = tape.indices(columns.ends);
  layout_.ends = ends_.tensor().span<std::int32_t>();
  keep(tape, ends_);
}

}  // namespace maestro
