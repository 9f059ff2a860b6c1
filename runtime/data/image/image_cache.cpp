// SPDX-License-Identifier: Apache-2.0
#include "runtime/data/image/image_cache.hpp"

namespace maestro {

Status ImageCache::pin(Key key, const Load& load) {
  if (find(key, 1)) return {};
  auto image = load();
  if (!image) return image.error();
  insert(key, std::make_shared<const Tiles>(*std::move(image)), 1);
  return {};
}

Result<ImageCache::Picture> ImageCache::take(Key key, const Load& load) {
  if (Picture found = find(key, -1)) return found;
  auto image = load();
  if (!image) return image.error();
  const auto picture = std::make_shared<const Tiles>(*std::move(image));
  insert(key, picture, 0);
  return picture;
}

std::size_t ImageCache::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

std::size_t ImageCache::pictures() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

ImageCache::Picture ImageCache::find(Key key, int pins) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(key);
  if (found == entries_.end()) return nullptr;
  use(found->second, pins);
  return found->second.picture;
}

void ImageCache::insert(Key key, const Picture& picture, int pins) {
  const std::lock_guard lock(mutex_);
  const auto [at, added] = entries_.try_emplace(key);
  if (added) {
    at->second.picture = picture;
    at->second.place = recent_.insert(recent_.begin(), key);
    bytes_ += bytes_of(*picture);
  }
  use(at->second, pins);
  shrink();
}

void ImageCache::use(Entry& entry, int pins) {
  std::list<Key>& from = entry.pins > 0 ? pinned_ : recent_;
  if (pins > 0) ++entry.pins;
  if (pins < 0 && entry.pins > 0) --entry.pins;
  std::list<Key>& to = entry.pins > 0 ? pinned_ : recent_;
  to.splice(to.begin(), from, entry.place);
}

void ImageCache::shrink() {
  while (bytes_ > limit_) {
    std::list<Key>& from = recent_.empty() ? pinned_ : recent_;
    const auto victim = entries_.find(from.back());
    bytes_ -= bytes_of(*victim->second.picture);
    from.pop_back();
    entries_.erase(victim);
  }
}

}  // namespace maestro
