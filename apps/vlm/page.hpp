// SPDX-License-Identifier: Apache-2.0
// An HTML page about a trained vision-language model, complete in itself: no script, no link to anything outside, its
// pictures inside the text. Pure.
#pragma once

#include <string>
#include <vector>

#include "runtime/page/curve_chart.hpp"
#include "runtime/page/page_parts.hpp"
#include "runtime/page/timeline.hpp"

namespace maestro {

struct PagePicture {
  std::string png;        ///< the bytes of a PNG file
  bool enlarged = false;  ///< few pixels, to be shown as squares
};

/// A question of the validation set, with the model's answer.
struct PageAnswer {
  std::vector<PagePicture> pictures;
  std::string question;
  std::string reference;
  std::string written;
  [[nodiscard]] bool right() const { return written == reference; }
};

struct PageContent {
  std::string title;
  std::string summary;  ///< a sentence or two
  std::vector<PageFigure> figures;
  std::vector<CurvePoint> training;  ///< loss by step
  std::vector<ChartDot> validation;  ///< loss by step
  Timeline timeline;
  std::vector<PageAnswer> answers;
};

/// UTF-8; all texts of `content` are shown as they are, with any characters. Empty parts are left out.
[[nodiscard]] std::string page_of(const PageContent& content);

}  // namespace maestro
