// SPDX-License-Identifier: Apache-2.0
// The images and sounds of a row, placed in its messages. Below, an image may be a sound, <image> <audio>, and the
// parts and columns have the names of sound_medium. A place takes the next file of its kind.
//
// RI-1 (each once): every image of the row's columns, or of its archive, has one place in a message, and every place
//       has an image. Otherwise the row is an error with both numbers.
// RI-2 (order): a part {"type": "image"} without an image, and an <image> in a question's text, take the next image of
//       the columns. Without such a place, all images come before the first question, as in TRL.
#pragma once

#include <array>
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
  spaced,  ///< read; texts keep their white space, and an image that is put first has a newline after it
  sounds,  ///< sounds are read, as images are if placed, and images are refused
  both     ///< images and sounds are read, as if placed
};
/// Returns the kinds that are read.
[[nodiscard]] Media media_of(ImagesOfRows images);

/// Reads a row's images while its messages are read. One row; one thread.
class RecordImages {
 public:
  RecordImages(RowMedia media, ImagesOfRows images)
      : media_(std::move(media)), read_(media_of(images)), spaced_(images == ImagesOfRows::spaced) {}

  /// Reads the content of the message that will have the number `message`: a text or a list of parts. Returns its text.
  [[nodiscard]] Result<std::string> read_content(const nlohmann::json& value, const std::string& where,
                                                 std::size_t message);
  /// Reads the columns image and images, audio and audios.
  [[nodiscard]] Status read_columns(const nlohmann::json& row);
  /// Repairs a conversation as LLaVA's lists need it: answers before the first question are dropped.
  void drop_first_answers(Record& record);
  /// Puts the images into their places, drops messages after the last answer, and turns contents into lists of parts.
  [[nodiscard]] Status finish(Record& record);

 private:
  /// A text or an image; an image without a source takes the next one in the columns.
  struct Part {
    const Medium* medium = nullptr;  ///< null: a text
    std::string text;
    std::optional<RowImage> image;
    [[nodiscard]] bool is_image() const { return medium != nullptr; }
  };
  using Parts = std::vector<Part>;

  [[nodiscard]] Status read_column(const nlohmann::json& row, const Medium& medium);
  [[nodiscard]] std::vector<RowImage>& columns_of(const Medium& medium) {
    return columns_[static_cast<std::size_t>(medium.modality)];
  }
  /// Returns the number of places of a kind without an image.
  [[nodiscard]] std::size_t places_of(const Medium& medium) const;
  [[nodiscard]] Result<Part> read_part(const nlohmann::json& value, const std::string& where);
  [[nodiscard]] Parts split_at_markers(std::string_view text) const;
  [[nodiscard]] Status split_markers(Record& record);
  void put_first(Record& record, const Medium& medium);
  void drop_last_questions(Record& record);

  RowMedia media_;
  Media read_;
  bool spaced_;
  std::array<std::vector<RowImage>, all_media.size()> columns_;  // by kind
  std::map<std::size_t, Parts> parts_;                           // by message
};

}  // namespace maestro
