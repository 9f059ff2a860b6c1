// SPDX-License-Identifier: Apache-2.0
// Outgoing writes: waiting, posted to the provider, and given up. Pure: no network, time comes from outside.
//
// WQ-1 (one end): every accepted write ends exactly once, as done or as failed.
// WQ-2 (order per peer): writes to a peer are posted in the order they were accepted; a peer that takes none does not
//       delay others.
// WQ-3 (timeout): a write fails with `timeout` once it has waited `timeout` and its peer has finished nothing for as
//       long: a slow peer that makes progress is not lost. Only time while this process ran counts (RunClock): when all
//       processes are stopped and continued, no write is lost.
// WQ-4 (stable records): the record of a posted write stays in place until the provider returns it, even after it was
//       given up; its late completion is then ignored.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "runtime/core/run_clock.hpp"
#include "transport/transfer_types.hpp"

namespace maestro {

/// A write in the queue. The provider gets a pointer to `provider_context`, the first member.
struct QueuedWrite {
  using Clock = std::chrono::steady_clock;
  enum class State { free, waiting, posted, given_up };

  alignas(std::max_align_t) std::array<std::byte, 64> provider_context{};
  WriteRequest request;
  RunClock::Duration accepted{0};
  State state = State::free;
};

enum class PostOutcome {
  posted,  ///< the provider has it
  again,   ///< no room or no connection yet
  failed,  ///< permanent failure
};

/// Not thread-safe; belongs to the progress thread.
class WriteQueue {
 public:
  using Clock = QueuedWrite::Clock;
  using TimePoint = Clock::time_point;
  /// Tries to hand a write to the provider. If it returns `failed` it has filled in the error.
  using Post = std::function<PostOutcome(QueuedWrite&, Error&)>;

  /// `looks`: the longest time between two calls of expire() while the process runs.
  WriteQueue(std::chrono::milliseconds timeout, RunClock::Duration looks) : timeout_(timeout), clock_(looks) {}

  /// Takes a write to a connected peer; the caller has checked the request.
  void accept(const WriteRequest& request, TimePoint now);
  /// Offers the waiting writes of every peer until it takes no more. Returns the writes that failed at once.
  [[nodiscard]] std::vector<WriteFailed> post_waiting(const Post& post);
  /// Ends a write that the provider returned. Returns true if it was still under way, false if it had been given up.
  [[nodiscard]] bool finish(QueuedWrite& write, TimePoint now);
  /// Gives up the writes whose deadline has passed (WQ-3); `describe` names a peer.
  [[nodiscard]] std::vector<WriteFailed> expire(TimePoint now, const std::function<std::string(PeerHandle)>& describe);
  /// Gives up every write to a peer, or to all.
  [[nodiscard]] std::vector<WriteFailed> give_up(PeerHandle peer, const Error& error);
  [[nodiscard]] std::vector<WriteFailed> give_up_all(const Error& error);

  /// Returns whether the provider has a write to the peer, given up or not.
  [[nodiscard]] bool has_posted(PeerHandle peer) const;
  /// Returns the write of a provider's context pointer if it is posted; for untrusted pointers.
  [[nodiscard]] QueuedWrite* find_posted(const void* provider_context);

  [[nodiscard]] bool empty() const { return waiting_ + posted_ == 0; }
  /// Returns the number of writes that the provider has not taken yet.
  [[nodiscard]] std::size_t waiting() const { return waiting_; }
  /// Returns the number of writes that the provider has and that were not given up.
  [[nodiscard]] std::size_t posted() const { return posted_; }

 private:
  struct Peer {
    std::deque<QueuedWrite*> waiting;
    RunClock::Duration last_finish{0};
  };
  Peer& peer_of(const QueuedWrite& write);
  void give_up(QueuedWrite& write, const Error& error, std::vector<WriteFailed>& failed);
  void recycle(QueuedWrite& write);
  template <class Select>
  std::vector<WriteFailed> give_up_if(const Select& select);

  std::chrono::milliseconds timeout_;
  RunClock clock_;
  std::deque<QueuedWrite> writes_;  // a deque never moves its elements (WQ-4)
  std::vector<QueuedWrite*> free_;
  std::vector<Peer> peers_;
  std::size_t waiting_ = 0;
  std::size_t posted_ = 0;
};

}  // namespace maestro
