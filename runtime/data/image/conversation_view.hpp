// SPDX-License-Identifier: Apache-2.0
// A sample of a conversation for display, with its images.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/core/ids.hpp"
#include "runtime/core/result.hpp"
#include "runtime/data/sample_index.hpp"
#include "runtime/images/image.hpp"

namespace maestro {

/// An image in a file, in an archive, or among others in a file.
struct StoredImage {
  std::filesystem::path path;                 ///< file or archive
  std::string name;                           ///< name in the folder of images or in the archive
  std::optional<std::int64_t> position = {};  ///< position in the archive, or first byte; nothing: the file is an image
  std::optional<std::int64_t> bytes = {};     ///< size of an image among others; nothing: a file, or in an archive
};
/// Returns the bytes of an image's file. Errors name it.
[[nodiscard]] Result<std::string> read_image(const StoredImage& image);
[[nodiscard]] Result<Image> decode_image(const StoredImage& image);

/// A sample for display, and the prompt with which a model answers its first question.
struct ConversationView {
  std::string id;
  std::string question;  ///< first question without placeholders
  std::string answer;    ///< reference answer
  std::vector<StoredImage> pictures;
  std::vector<std::int32_t> prompt;  ///< tokens up to the answer
  std::int64_t patches = 0;          ///< rows of Corpus::read_pictures() for the images before the answer
};

/// A corpus whose samples are conversations. Thread-safe.
class ConversationSource {
 public:
  virtual ~ConversationSource() = default;
  /// Returns a sample for display. Throws std::out_of_range for an unknown sample.
  [[nodiscard]] virtual ConversationView view(Split split, SampleId sample) const = 0;
  /// Returns the text of tokens that a model wrote after a prompt, without images and ends of turns.
  [[nodiscard]] virtual std::string decode(std::span<const std::int32_t> prompt,
                                           std::span<const std::int32_t> written) const = 0;
  /// Returns the tokens that end an answer in the data, besides those at which the model's folder stops.
  [[nodiscard]] virtual std::vector<std::int32_t> ends() const = 0;
};

}  // namespace maestro
