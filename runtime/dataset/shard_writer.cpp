// SPDX-License-Identifier: Apache-2.0
#include "runtime/dataset/shard_writer.hpp"

#include <algorithm>
#include <cstdio>
#include <span>

namespace maestro {

namespace {

constexpr std::int64_t most_narrow = 65536;

template <class T>
NamedTensor named(const char* name, const std::vector<T>& values) {
  static const T nothing{};  // an empty tensor needs an address, too
  const T* data = values.empty() ? &nothing : values.data();
  return {name, ConstTensor(data, dtype_of<T>, Shape{static_cast<std::int64_t>(values.size())})};
}

}  // namespace

void ShardWriter::begin() {
  tokens_.clear();
  learned_.clear();
  offsets_.assign(1, 0);
  source_.clear();
  first_learned_.clear();
  images_.begin();
  sounds_.begin();
  targets_ = 0;
}

Status ShardWriter::add(const Document& document, std::int32_t source) {
  tokens_.insert(tokens_.end(), document.tokens.begin(), document.tokens.end());
  offsets_.push_back(static_cast<std::int64_t>(tokens_.size()));
  source_.push_back(source);
  images_.end_document();
  sounds_.end_document();
  targets_ += document.learned.empty() ? document.tokens.size()
                                       : static_cast<std::uint64_t>(std::ranges::count(document.learned, 1));
  if (options_.conversations) {
    learned_.insert(learned_.end(), document.learned.begin(), document.learned.end());
    const auto first = std::ranges::find(document.learned, 1);
    first_learned_.push_back(static_cast<std::int32_t>(first - document.learned.begin()));
  }
  return tokens_.size() >= options_.shard_tokens ? write() : Status();
}

Status ShardWriter::write() {
  char number[32];
  (void)std::snprintf(number, sizeof number, "-%05zu.safetensors", shards_.size());
  const auto content = [](bool has, const ImageTableWriter& table) {
    return has ? TableContent{table.offsets(), table.values()} : TableContent();
  };
  PreparedShard shard{options_.split + number, source_.size(), tokens_.size(), targets_,
                      shard_checksum(tokens_, learned_, offsets_, content(options_.images, images_),
                                     content(options_.sounds, sounds_))};
  std::vector<std::uint16_t> narrow;
  std::vector<NamedTensor> tensors{named("offsets", offsets_), named("source", source_)};
  if (options_.vocabulary <= most_narrow) {
    narrow.assign(tokens_.begin(), tokens_.end());
    tensors.push_back(named("tokens", narrow));
  } else {
    tensors.push_back(named("tokens", tokens_));
  }
  if (options_.conversations) {
    tensors.push_back(named("learned", learned_));
    tensors.push_back(named("first_learned", first_learned_));
  }
  if (options_.images) {
    for (NamedTensor& tensor : images_.tensors()) tensors.push_back(std::move(tensor));
  }
  if (options_.sounds) {
    for (NamedTensor& tensor : sounds_.tensors()) tensors.push_back(std::move(tensor));
  }
  const Result<WrittenFile> written = write_safetensors(options_.folder / shard.file, std::move(tensors));
  if (!written) return written.error();
  shards_.push_back(std::move(shard));
  begin();
  return {};
}

Result<std::vector<PreparedShard>> ShardWriter::finish() {
  if (!source_.empty()) {
    if (const Status written = write(); !written) return written.error();
  }
  return std::move(shards_);
}

}  // namespace maestro
