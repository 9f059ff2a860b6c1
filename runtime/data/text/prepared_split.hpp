// SPDX-License-Identifier: Apache-2.0
// A split of prepared data: its shards, mapped, as one row of tokens, and the places of samples in it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/core/ids.hpp"
#include "runtime/data/image/prepared_image_reader.hpp"
#include "runtime/dataset/prepared_data.hpp"

namespace maestro {

/// Thread-safe once it is laid out. 12 bytes a sample, or none of a stream.
class PreparedSplit {
 public:
  /// A sample: its inputs are the split's tokens [begin, begin + length), its targets [begin + 1, begin + 1 + length).
  struct Window {
    std::uint64_t begin = 0;
    std::int64_t length = 0;
  };
  PreparedSplit() = default;
  /// Opens `shards` of the folder of `index`. Images or, by `table`, sounds count from `images`, which becomes the
  /// number after the last one. Throws JobError for a damaged shard.
  PreparedSplit(const std::filesystem::path& folder, const PreparedIndex& index,
                const std::vector<PreparedShard>& shards, std::uint64_t& images, Modality table = Modality::image);

  [[nodiscard]] std::size_t shards() const { return shards_.size(); }
  [[nodiscard]] const PreparedShardFile& shard(std::size_t number) const { return shards_[number]; }
  /// Returns the first token of a shard in the split.
  [[nodiscard]] std::uint64_t first(std::size_t shard) const { return first_[shard]; }

  /// Adds a sample after those before.
  void add(Window sample);
  /// Makes samples of `sequence` tokens out of the whole split, without a last one of fewer than `shortest`; returns
  /// the length of the longest.
  std::int64_t lay_stream(std::int64_t sequence, std::int64_t shortest);

  [[nodiscard]] std::uint64_t samples() const { return samples_; }
  /// Throws std::out_of_range for an unknown sample.
  [[nodiscard]] Window window(SampleId sample) const;
  /// Returns the shard and the first token of a sample, for messages.
  [[nodiscard]] std::string place_of(SampleId sample) const;
  /// Returns the images of a sample, whose rows have the token `image_token`.
  [[nodiscard]] std::vector<NumberedImage> images_of(SampleId sample, std::int32_t image_token) const;
  /// Copies tokens of the split; `learned` is empty or as long as `tokens`. Throws std::runtime_error for a token
  /// outside of the vocabulary.
  void read(std::uint64_t begin, std::span<std::int32_t> tokens, std::span<std::uint8_t> learned) const;
  /// Returns the memory of read pages to the system.
  void release() const;

 private:
  [[nodiscard]] std::size_t shard_of(std::uint64_t token) const;

  std::filesystem::path folder_;
  std::int64_t vocabulary_ = 0;
  Modality table_ = Modality::image;
  std::optional<std::int32_t> image_token_;  // may exceed the vocabulary
  std::vector<std::string> files_;           // names of the shards
  std::vector<PreparedShardFile> shards_;
  std::vector<std::uint64_t> first_{0};     // first token of each shard in the split, then the number of tokens
  std::vector<std::uint64_t> first_image_;  // each shard's first image
  std::uint64_t samples_ = 0;
  std::vector<std::uint64_t> begins_;  // first token of each sample; empty for a stream
  std::vector<std::uint32_t> lengths_;
  std::int64_t sequence_ = 0;   // tokens of a sample of a stream
  std::int64_t positions_ = 0;  // positions of all samples of a stream
};

}  // namespace maestro
