// SPDX-License-Identifier: Apache-2.0
// The images of a row, placed in its messages.
//
// RI-1 (each once): every image of the row's columns, or of its archive, has one place in a message, and every place
//       has an image. Otherwise the row is an error with both numbers.
// RI-2 (order): a part {"type": "image"} without an image, and an <image> in a question's text, take the next image of
//       the columns. Without such a place, all images come before the first question, as in TRL.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/result.hpp"
#include "runtime/dataset/record.hpp"
#include "runtime/dataset/row_image.hpp"

namespace maestro {

/// Place of an image in the text of a question.
inline constexpr std::string_view image_marker = "<image>";

/// What happens to the images of a row.
enum class ImagesOfRows : std::uint8_t {
  refused,
  placed,  ///< read; the white space next to <image> is left out, as templates write their own
  spaced   ///< read; texts keep their white space, and an image that is put first has a newline after it
};

/// Reads a row's images while its messages are read. One row; one thread.
class RecordImages {
 public:
  RecordImages(RowMedia media, bool spaced) : media_(std::move(media)), spaced_(spaced) {}

  /// Reads the content of the message that will have the number `message`: a text or a list of parts. Returns its text.
  [[nodiscard]] Result<std::string> read_content(const nlohmann::json& value, const std::string& where,
                                                 std::size_t message);
  /// Reads the columns image and images.
  [[nodiscard]] Status read_columns(const nlohmann::json& row);
  /// Repairs a conversation as LLaVA's lists need it: answers before the first question are dropped.
  void drop_first_answers(Record& record);
  /// Puts the images into their places, drops messages after the last answer, and turns contents into lists of parts.
  [[nodiscard]] Status finish(Record& record);

 private:
  /// A text or an image; an image without a source takes the next one of the columns.
  struct Part {
    bool is_image = false;
    std::string text;
    std::optional<RowImage> image;
  };
  using Parts = std::vector<Part>;

  [[nodiscard]] Result<Part> read_part(const nlohmann::json& value, const std::string& where);
  [[nodiscard]] Parts split_at_markers(std::string_view text) const;
  [[nodiscard]] Status split_markers(Record& record);
  void put_first(Record& record);
  void drop_last_questions(Record& record);

  RowMedia media_;
  bool spaced_;
  std::vector<RowImage> columns_;
  std::map<std::size_t, Parts> parts_;  // by message
};

}  // namespace maestro
