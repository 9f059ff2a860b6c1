// SPDX-License-Identifier: Apache-2.0
// Writes the documents of a split as shards of a prepared folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "runtime/core/result.hpp"
#include "runtime/dataset/chat_encoder.hpp"
#include "runtime/dataset/prepared_data.hpp"

namespace maestro {

struct ShardWriterOptions {
  std::filesystem::path folder;
  std::string split;  ///< "train"
  std::int64_t vocabulary = 0;
  bool conversations = false;
  std::uint64_t shard_tokens = std::uint64_t{16}
                               << 20;  ///< size at which a shard ends, with the document that reaches it
  bool images = false;                 ///< documents have images
  bool sounds = false;                 ///< documents have images and sounds
};

/// Writes shards; holds the tokens of one shard. One thread.
class ShardWriter {
 public:
  explicit ShardWriter(ShardWriterOptions options) : options_(std::move(options)) { begin(); }

  /// Adds a document, with the images that add_image() received since the last one. It has targets if and only if the
  /// options have conversations.
  [[nodiscard]] Status add(const Document& document, std::int32_t source);
  /// `table`: sound only with ShardWriterOptions::sounds.
  void add_image(const PreparedImage& image, const ImagePlace& place, Modality table = Modality::image) {
    (table == Modality::image ? images_ : sounds_).add(image, place);
  }
  /// Writes the last shard and returns all shards. Called once.
  [[nodiscard]] Result<std::vector<PreparedShard>> finish();

 private:
  void begin();
  [[nodiscard]] Status write();

  ShardWriterOptions options_;
  std::vector<std::int32_t> tokens_;
  std::vector<std::uint8_t> learned_;
  std::vector<std::int64_t> offsets_;
  std::vector<std::int32_t> source_;
  std::vector<std::int32_t> first_learned_;
  ImageTableWriter images_, sounds_{Modality::sound};
  std::uint64_t targets_ = 0;
  std::vector<PreparedShard> shards_;
};

}  // namespace maestro
