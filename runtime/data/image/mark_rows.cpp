// SPDX-License-Identifier: Apache-2.0
#include "runtime/data/image/mark_rows.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "runtime/data/corpus.hpp"
#include "runtime/model/hf_config.hpp"

namespace maestro {

namespace {

/// Positions of a sample, token by token.
class Positions {
 public:
  explicit Positions(std::span<std::int32_t> marks) : marks_(marks) {}

  void add_text() {
    put(next_, next_, next_);
    ++next_;
  }
  void add_image(ImageGrid grid) {
    for (std::int32_t row = 0; row < grid.rows; ++row) {
      for (std::int32_t column = 0; column < grid.columns; ++column) put(next_, next_ + row, next_ + column);
    }
    next_ += static_cast<std::int32_t>(std::max(grid.rows, grid.columns));
  }
  /// Returns the number of tokens so far.
  [[nodiscard]] std::size_t tokens() const { return at_; }

 private:
  void put(std::int32_t time, std::int32_t row, std::int32_t column) {
    std::ranges::copy(std::initializer_list<std::int32_t>{time, row, column},
                      marks_.subspan(at_ * mark_columns).begin());
    ++at_;
  }

  std::span<std::int32_t> marks_;
  std::size_t at_ = 0;
  std::int32_t next_ = 0;
};

void check(const MarkRule& rule, const MarkedSample& sample, std::size_t marks) {
  const auto length = std::ssize(sample.tokens);
  if (static_cast<std::int64_t>(marks) != length * mark_columns || sample.prefix < 0 || sample.prefix > length) {
    throw std::invalid_argument("marks of " + std::to_string(length) + " positions, " + std::to_string(sample.prefix) +
                                " of them a prefix, written to " + std::to_string(marks) + " numbers");
  }
  if (!rule.axes) return;
  std::int64_t rows = 0;
  for (const ImageGrid& grid : sample.images) rows += grid.rows * grid.columns;
  const std::int64_t places = std::ranges::count(sample.tokens, image_token);
  if (rows == places) return;
  throw std::invalid_argument(std::to_string(places) + " image tokens, but grids with " + std::to_string(rows) +
                              " rows");
}

void write_positions(const MarkRule& rule, const MarkedSample& sample, std::span<std::int32_t> marks) {
  Positions positions(marks);
  std::size_t image = 0;
  while (positions.tokens() < sample.tokens.size()) {
    if (!rule.axes || sample.tokens[positions.tokens()] != image_token) {
      positions.add_text();
      continue;
    }
    const ImageGrid grid = sample.images[image++];
    const auto run = sample.tokens.subspan(positions.tokens(), static_cast<std::size_t>(grid.rows * grid.columns));
    if (std::ranges::count(run, image_token) != std::ssize(run)) {
      throw std::invalid_argument("the rows of an image do not stand together");
    }
    positions.add_image(grid);
  }
}

}  // namespace

void write_marks(const MarkRule& rule, const MarkedSample& sample, std::span<std::int32_t> marks) {
  check(rule, sample, marks.size());
  write_positions(rule, sample, marks);
  std::int32_t run_end = 0;  // of the run that a later token begins
  for (auto at = static_cast<std::int32_t>(sample.tokens.size()) - 1; at >= 0; --at) {
    const bool image = sample.tokens[static_cast<std::size_t>(at)] == image_token;
    if (!image || run_end == 0) run_end = at + 1;
    std::int32_t end = at + 1;
    if (rule.mask == ImageMask::images && image) end = run_end;
    if (rule.mask == ImageMask::prefix && at < sample.prefix) end = static_cast<std::int32_t>(sample.prefix);
    marks[static_cast<std::size_t>(at) * mark_columns + mark_columns - 1] = end;
    if (!image) run_end = 0;
  }
}

std::int32_t next_position(std::span<const std::int32_t> marks) {
  std::int32_t next = 0;
  for (std::size_t at = 0; at < marks.size(); ++at) {
    if (at % mark_columns != mark_columns - 1) next = std::max(next, marks[at] + 1);
  }
  return next;
}

Result<MarkRule> read_mark_rule(const std::filesystem::path& folder) {
  const Result<DecoderConfig> decoder = read_hf_config(folder);
  if (!decoder) return decoder.error();
  return MarkRule{!decoder->rope_sections.empty(), decoder->image_mask};
}

}  // namespace maestro
