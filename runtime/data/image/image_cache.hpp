// SPDX-License-Identifier: Apache-2.0
// Decoded pictures kept in memory, so that they are decoded ahead of time, and once if they fit.
//
// PC-1 (limit): after every call the pictures held take at most the limit.
// PC-2 (least recently used): a pinned picture is dropped only when no unpinned picture is left; in either group the
//       picture untouched for longest is dropped first.
// PC-3 (shared ownership): a returned picture stays valid after the cache has dropped it.
// PC-4 (pins): taking a picture releases one of its pins; the pins of a dropped picture end with it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "runtime/core/result.hpp"
#include "runtime/data/image/image.hpp"

namespace maestro {

/// Thread-safe. No lock is held while a picture is loaded: two threads that miss the same picture both load it.
class ImageCache {
 public:
  using Key = std::uint32_t;
  using Load = std::function<Result<Image>()>;
  /// Shared, because a reader may hold a picture that another thread's miss pushes out (PC-3).
  using Picture = std::shared_ptr<const Image>;

  explicit ImageCache(std::size_t limit_bytes) : limit_(limit_bytes) {}

  /// Loads the picture unless it is held, and pins it until it is taken.
  [[nodiscard]] Status pin(Key key, const Load& load);
  /// Returns the picture, from memory or loaded now.
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
  std::list<Key> pinned_;  // touched last in front
  std::list<Key> recent_;  // not pinned, used last in front
  std::size_t bytes_ = 0;
};

}  // namespace maestro
