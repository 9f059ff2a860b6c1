// SPDX-License-Identifier: Apache-2.0
#include "runtime/dataset/image_store.hpp"

#include <cstdio>

namespace maestro {

namespace fs = std::filesystem;

std::int64_t ImageStore::container(ImageContainer container) {
  const auto [found, added] =
      numbers_.try_emplace({container.kind, container.path}, static_cast<std::int64_t>(containers_.size()));
  if (added) containers_.push_back(std::move(container));
  return found->second;
}

Status ImageStore::end_shard() {
  if (!shard_) return {};
  const Result<WrittenFile> written = shard_->commit();
  shard_.reset();
  in_shard_ = 0;
  return written ? Status() : Status(written.error());
}

Result<ImagePlace> ImageStore::place(const RowImage& image, const fs::path& images, const fs::path& archive) {
  using Kind = ImageContainer::Kind;
  const auto absolute = [](const fs::path& path) { return fs::absolute(path).lexically_normal().string(); };
  if (image.content.empty() && image.member) {
    return ImagePlace{container({Kind::archive, absolute(archive)}), image.member->position.value_or(0), image.name};
  }
  if (image.content.empty()) return ImagePlace{container({Kind::folder, absolute(images)}), 0, image.name};
  if (!shard_) {
    char name[32];
    (void)std::snprintf(name, sizeof name, "images-%05zu.bin", shards_++);
    Result<AtomicFile> file = AtomicFile::create(folder_ / name);
    if (!file) return file.error();
    shard_.emplace(*std::move(file));
    shard_number_ = container({Kind::shard, name});
  }
  const ImagePlace made{shard_number_, static_cast<std::int64_t>(in_shard_), image.name};
  if (const Status written = shard_->write(std::string_view(image.content)); !written) return written.error();
  in_shard_ += image.content.size();
  if (in_shard_ >= shard_bytes_) {
    if (const Status ended = end_shard(); !ended) return ended.error();
  }
  return made;
}

Result<std::vector<ImageContainer>> ImageStore::finish() {
  if (const Status ended = end_shard(); !ended) return ended.error();
  return std::move(containers_);
}

}  // namespace maestro
