// SPDX-License-Identifier: Apache-2.0
// Keeps the tiles of decoded images, and the frames of decoded sounds, in memory: images are decoded ahead of time, and
// only once if they fit. An image may be a sound.
//
// PC-1 (limit): after every call the cached images take at most the limit.
// PC-2 (least recently used): a pinned image is dropped only when no unpinned image is left; in either group the least
//       recently used image is dropped first.
// PC-3 (shared ownership): a returned image stays valid after the cache has dropped it.
// PC-4 (pins): taking an image releases one of its pins; the pins of a dropped image end with it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "runtime/core/result.hpp"
#include "runtime/dataset/media_processor.hpp"

namespace maestro {

/// Thread-safe. No lock is held while an image is loaded: two threads that miss the same image both load it.
class ImageCache {
 public:
  using Key = std::uint32_t;
  using Tiles = MediaContent;
  using Load = std::function<Result<Tiles>()>;
  /// Shared, because a reader may hold an image that another thread's miss pushes out (PC-3).
  using Picture = std::shared_ptr<const Tiles>;

  explicit ImageCache(std::size_t limit_bytes) : limit_(limit_bytes) {}

  /// Loads the image unless it is cached, and pins it until it is taken.
  [[nodiscard]] Status pin(Key key, const Load& load);
  /// Returns the cached image, or loads it.
  [[nodiscard]] Result<Picture> take(Key key, const Load& load);

  [[nodiscard]] std::size_t bytes() const;
  [[nodiscard]] std::size_t pictures() const;

 private:
  struct Entry {
    Picture picture;
    std::uint32_t pins = 0;
    std::list<Key>::iterator place;  // in pinned_ or recent_
  };

  [[nodiscard]] Picture find(Key key, int pins);
  void insert(Key key, const Picture& picture, int pins);
  void use(Entry& entry, int pins);
  void shrink();

  std::size_t limit_;
  mutable std::mutex mutex_;
  std::unordered_map<Key, Entry> entries_;
  std::list<Key> pinned_;  // most recently used first
  std::list<Key> recent_;  // unpinned images, most recently used first
  std::size_t bytes_ = 0;
};

}  // namespace maestro
