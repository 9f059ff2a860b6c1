// SPDX-License-Identifier: Apache-2.0
// Reuse of released blocks in device memory: work queued before the release may still touch a block.
//
// SO-1 (same stream): a block that is reused by the stream that released it waits for nothing: a stream works in order.
// SO-2 (other stream): on any other stream, its first use waits for the event that was recorded at the release.
// SO-3 (events once): an event is handed out once; a stream passed to forget() keeps none.
#pragma once

#include <cstddef>
#include <optional>
#include <unordered_map>
#include <utility>

#include "runtime/device/completion_queue.hpp"

namespace maestro {

/// Pure bookkeeping; not thread-safe. `Event` marks a place in a stream's work.
template <class Event>
class StreamOrder {
 public:
  /// Records a release; `event` follows all work on `stream` that may touch the block.
  void released(const std::byte* block, StreamNumber stream, Event event) {
    marks_.insert_or_assign(block, Mark{stream, std::move(event)});
  }
  /// Returns the event that `stream` must wait for before it uses the block.
  [[nodiscard]] std::optional<Event> reuse(const std::byte* block, StreamNumber stream) {
    const auto found = marks_.find(block);
    if (found == marks_.end()) return std::nullopt;
    Mark mark = std::move(found->second);
    marks_.erase(found);
    if (mark.stream == stream) return std::nullopt;  // SO-1
    return std::move(mark.event);
  }
  void forget(const std::byte* block) { marks_.erase(block); }
  [[nodiscard]] std::size_t size() const { return marks_.size(); }

 private:
  struct Mark {
    StreamNumber stream;
    Event event;
  };
  std::unordered_map<const std::byte*, Mark> marks_;
};

}  // namespace maestro
