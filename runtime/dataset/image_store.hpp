// SPDX-License-Identifier: Apache-2.0
// The containers of prepared images: folders of files, archives, and shards with the bytes that rows embed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/core/result.hpp"
#include "runtime/dataset/image_table.hpp"
#include "runtime/dataset/prepared_data.hpp"
#include "runtime/dataset/row_image.hpp"
#include "runtime/files/atomic_file.hpp"

namespace maestro {

/// Places images while data are prepared, in the order of the rows. One thread.
class ImageStore {
 public:
  /// Shards are written to `folder`, and end with the image that reaches `shard_bytes`.
  explicit ImageStore(std::filesystem::path folder, std::uint64_t shard_bytes = std::uint64_t{1} << 30)
      : folder_(std::move(folder)), shard_bytes_(shard_bytes) {}

  /// Returns the place of an image; content goes to a shard. `images` and `archive` as of find_image().
  [[nodiscard]] Result<ImagePlace> place(const RowImage& image, const std::filesystem::path& images,
                                         const std::filesystem::path& archive);
  /// Writes the last shard and returns all containers. Called once.
  [[nodiscard]] Result<std::vector<ImageContainer>> finish();

 private:
  [[nodiscard]] std::int64_t container(ImageContainer container);
  [[nodiscard]] Status end_shard();

  std::filesystem::path folder_;
  std::uint64_t shard_bytes_;
  std::map<std::pair<ImageContainer::Kind, std::string>, std::int64_t> numbers_;
  std::vector<ImageContainer> containers_;
  std::optional<AtomicFile> shard_;
  std::int64_t shard_number_ = 0;  // container
  std::uint64_t in_shard_ = 0;     // bytes
  std::size_t shards_ = 0;
};

}  // namespace maestro
