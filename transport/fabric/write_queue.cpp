// SPDX-License-Identifier: Apache-2.0
#include "transport/fabric/write_queue.hpp"

#include <algorithm>
#include <optional>

namespace maestro {

using State = QueuedWrite::State;

namespace {

bool is_posted(const QueuedWrite& write) {
  return write.state == State::posted || write.state == State::given_up;
}

}  // namespace

WriteQueue::Peer& WriteQueue::peer_of(const QueuedWrite& write) {
  const auto index = write.request.peer.value();
  if (index >= peers_.size()) peers_.resize(index + 1);
  return peers_[index];
}

void WriteQueue::accept(const WriteRequest& request, TimePoint now) {
  if (free_.empty()) free_.push_back(&writes_.emplace_back());
  auto& write = *free_.back();
  free_.pop_back();
  write.request = request;
  write.accepted = clock_.look(now);
  write.state = State::waiting;
  peer_of(write).waiting.push_back(&write);
  ++waiting_;
}

std::vector<WriteFailed> WriteQueue::post_waiting(const Post& post) {
  std::vector<WriteFailed> failed;
  if (waiting_ == 0) return failed;
  for (auto& peer : peers_) {
    while (!peer.waiting.empty()) {
      auto& write = *peer.waiting.front();
      Error error;
      const auto outcome = post(write, error);
      if (outcome == PostOutcome::again) break;
      peer.waiting.pop_front();
      --waiting_;
      if (outcome == PostOutcome::posted) {
        write.state = State::posted;
        ++posted_;
      } else {
        failed.push_back({write.request.cookie, std::move(error)});
        recycle(write);
      }
    }
  }
  return failed;
}

bool WriteQueue::finish(QueuedWrite& write, TimePoint now) {
  const bool under_way = write.state == State::posted;
  if (under_way) {
    --posted_;
    peer_of(write).last_finish = clock_.look(now);
  }
  recycle(write);
  return under_way;
}

void WriteQueue::recycle(QueuedWrite& write) {
  write.state = State::free;
  free_.push_back(&write);
}

// Gives up a write. The caller has taken a waiting write out of its peer's line.
void WriteQueue::give_up(QueuedWrite& write, const Error& error, std::vector<WriteFailed>& failed) {
  failed.push_back({write.request.cookie, error});
  if (write.state == State::posted) {
    write.state = State::given_up;
    --posted_;
  } else {
    --waiting_;
    recycle(write);
  }
}

template <class Select>
std::vector<WriteFailed> WriteQueue::give_up_if(const Select& select) {
  std::vector<WriteFailed> failed;
  for (auto& peer : peers_) {
    std::erase_if(peer.waiting, [&](QueuedWrite* write) {
      const std::optional<Error> error = select(*write);
      if (error) give_up(*write, *error, failed);
      return error.has_value();
    });
  }
  for (auto& write : writes_) {
    if (write.state != State::posted) continue;
    if (const std::optional<Error> error = select(write)) give_up(write, *error, failed);
  }
  return failed;
}

std::vector<WriteFailed> WriteQueue::expire(TimePoint now, const std::function<std::string(PeerHandle)>& describe) {
  const RunClock::Duration ran = clock_.look(now);
  if (empty()) return {};
  return give_up_if([&](const QueuedWrite& write) -> std::optional<Error> {
    const auto since = std::max(write.accepted, peer_of(write).last_finish);
    if (ran - since < timeout_) return std::nullopt;
    const char* fate = write.state == State::posted ? "was not finished" : "found no way out";
    return Error{ErrorCode::timeout, "a write of " + std::to_string(write.request.bytes) + " bytes to " +
                                         describe(write.request.peer) + " " + fate + " within " +
                                         std::to_string(timeout_.count()) +
                                         " ms: the peer is gone, stopped or unreachable"};
  });
}

std::vector<WriteFailed> WriteQueue::give_up(PeerHandle peer, const Error& error) {
  return give_up_if([&](const QueuedWrite& write) {
    return write.request.peer == peer ? std::optional<Error>(error) : std::nullopt;
  });
}

std::vector<WriteFailed> WriteQueue::give_up_all(const Error& error) {
  return give_up_if([&](const QueuedWrite&) { return std::optional<Error>(error); });
}

bool WriteQueue::has_posted(PeerHandle peer) const {
  return std::ranges::any_of(writes_,
                             [&](const QueuedWrite& write) { return is_posted(write) && write.request.peer == peer; });
}

QueuedWrite* WriteQueue::find_posted(const void* provider_context) {
  const auto found = std::ranges::find_if(writes_, [&](const QueuedWrite& write) {
    return is_posted(write) && write.provider_context.data() == provider_context;
  });
  return found == writes_.end() ? nullptr : &*found;
}

}  // namespace maestro
