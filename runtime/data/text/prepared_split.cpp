// SPDX-License-Identifier: Apache-2.0
#include "runtime/data/text/prepared_split.hpp"

#include <algorithm>
#include <stdexcept>

#include "runtime/core/printable.hpp"
#include "runtime/core/result.hpp"

namespace maestro {

PreparedSplit::PreparedSplit(const std::filesystem::path& folder, const PreparedIndex& index,
                             const std::vector<PreparedShard>& shards, std::uint64_t& images, Modality table)
    : folder_(folder), vocabulary_(index.vocabulary), table_(table) {
  if (index.images) image_token_ = index.images->image_token;
  for (const PreparedShard& shard : shards) {
    files_.push_back(shard.file);
    shards_.push_back(PreparedShardFile::open(folder_, shard, index.conversations).value_or_throw());
    first_.push_back(first_.back() + shard.tokens);
    const ImageTable& own = shards_.back().images(table_);
    const auto containers = index.images ? std::ssize(index.images->containers) : 0;
    for (std::uint64_t image = 0; image < own.images(); ++image) {
      if (own.place(image).container < containers) continue;
      throw JobError(
          printable((folder_ / shard.file).string()) + ": an image lacks its container; prepare the data again",
          ErrorCode::corrupt);
    }
    first_image_.push_back(images);
    images += own.images();
  }
}

void PreparedSplit::add(Window sample) {
  begins_.push_back(sample.begin);
  lengths_.push_back(static_cast<std::uint32_t>(sample.length));
  samples_ = begins_.size();
}

std::int64_t PreparedSplit::lay_stream(std::int64_t sequence, std::int64_t shortest) {
  sequence_ = sequence;
  positions_ = static_cast<std::int64_t>(first_.back()) - 1;  // the last token is a target only
  if (positions_ % sequence < shortest) positions_ -= positions_ % sequence;
  positions_ = std::max<std::int64_t>(positions_, 0);
  samples_ = static_cast<std::uint64_t>((positions_ + sequence - 1) / sequence);
  return std::min(sequence, positions_);
}

std::size_t PreparedSplit::shard_of(std::uint64_t token) const {
  return static_cast<std::size_t>(std::ranges::upper_bound(first_, token) - first_.begin()) - 1;
}

PreparedSplit::Window PreparedSplit::window(SampleId sample) const {
  if (sample.value() >= samples_) {
    throw std::out_of_range("sample " + std::to_string(sample.value()) + " of " + std::to_string(samples_));
  }
  if (sequence_ == 0) return {begins_[sample.value()], lengths_[sample.value()]};
  const std::int64_t begin = static_cast<std::int64_t>(sample.value()) * sequence_;
  return {static_cast<std::uint64_t>(begin), std::min(sequence_, positions_ - begin)};
}

std::string PreparedSplit::place_of(SampleId sample) const {
  const std::uint64_t begin = window(sample).begin;
  const std::size_t shard = shard_of(begin);
  return (folder_ / files_[shard]).string() + ", token " + std::to_string(begin - first_[shard]);
}

std::vector<NumberedImage> PreparedSplit::images_of(SampleId sample, std::int32_t image_token) const {
  const Window at = window(sample);
  const std::size_t number = shard_of(at.begin);
  const PreparedShardFile& shard = shards_[number];
  const ImageTable& table = shard.images(table_);
  const auto begin = static_cast<std::int64_t>(at.begin - first_[number]);
  const std::uint64_t document = shard.document_of(begin);
  const std::uint64_t first = table.first(document), end = table.first(document + 1);
  if (first == end) return {};
  std::int64_t rows = INT64_MAX;  // of the images that the sample has
  if (begin + at.length + 1 < shard.begin(document + 1)) {
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(at.length));
    shard.read(begin, tokens);
    rows = std::ranges::count(tokens, image_token);
  }
  std::vector<NumberedImage> images;
  for (std::uint64_t image = first; image < end; ++image) {
    const PreparedImage each = table.image(image);
    rows -= each.visual_rows;
    if (rows < 0) break;
    images.push_back({static_cast<ImageCache::Key>(first_image_[number] + image), each, table.place(image)});
  }
  return images;
}

void PreparedSplit::read(std::uint64_t begin, std::span<std::int32_t> tokens, std::span<std::uint8_t> learned) const {
  std::size_t shard = shard_of(begin);
  for (std::size_t done = 0; done < tokens.size(); ++shard) {
    const auto offset = static_cast<std::int64_t>(begin + done - first_[shard]);
    const auto count = std::min(tokens.size() - done, static_cast<std::size_t>(shards_[shard].tokens() - offset));
    shards_[shard].read(offset, tokens.subspan(done, count));
    if (!learned.empty()) {
      std::ranges::copy(shards_[shard].learned(offset, static_cast<std::int64_t>(count)),
                        learned.begin() + static_cast<std::ptrdiff_t>(done));
    }
    done += count;
  }
  const auto known = [&](std::int32_t token) {
    return (token >= 0 && token < vocabulary_) || (image_token_ && token == *image_token_);
  };
  if (std::ranges::all_of(tokens, known)) return;
  throw std::runtime_error(printable(folder_.string()) + " has a token outside of its vocabulary of " +
                           std::to_string(vocabulary_) + ": a shard is damaged, prepare the data again");
}

void PreparedSplit::release() const {
  for (const PreparedShardFile& shard : shards_) shard.release();
}

}  // namespace maestro
