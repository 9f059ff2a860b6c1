// SPDX-License-Identifier: Apache-2.0
// A member's links to the other members of an exchange in host memory: their actors and addresses, writes to other
// processes in chunks, and counts of the chunks that have landed here. A message of a round is a part, which goes to
// the owner of a shard, or a sum, which comes from it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "actors/job/reduction_paths.hpp"
#include "actors/messages/message_types.hpp"
#include "actors/services/network.hpp"

namespace maestro {

struct MemberLinksOptions {
  std::vector<ReductionMember> members;
  std::size_t self = 0;  ///< index in members
  ReductionKind kind = ReductionKind::replicas;
  LayoutRank layout_rank;
  ProcessId process;
  std::uint32_t client = 0;  ///< client number of the rank's writes
};

/// Not thread-safe; belongs to the replica's actor. The network outlives the links.
class MemberLinks {
 public:
  struct Peer {
    caf::actor actor;
    ReductionAddress address;
    ProcessId process;
    bool local = true;  ///< it reads this process' memory in place
  };
  /// A part or a sum of a round.
  struct Message {
    std::uint64_t round = 0;
    std::size_t sender = 0;
    bool sum = false;
    friend auto operator<=>(const Message&, const Message&) = default;
  };

  MemberLinks(MemberLinksOptions options, Network& network);

  [[nodiscard]] std::uint32_t parts_ring() const { return parts_ring_; }
  [[nodiscard]] std::uint32_t sums_ring() const { return sums_ring_; }
  void connect(const Directory& directory);
  /// Releases the actors' handles.
  void leave();
  [[nodiscard]] std::size_t size() const { return peers_.size(); }
  [[nodiscard]] const Peer& operator[](std::size_t member) const { return peers_[member]; }

  /// Queues the chunks of this member's message to `member`; returns their number. `all` has the memory at both ends.
  std::size_t write(std::size_t member, std::uint64_t round, bool sum, const WriteRequest& all);
  /// Returns the round of a write that has finished; nothing if the exchange did not begin it.
  std::optional<std::uint64_t> finished(std::uint64_t cookie);
  /// Counts a chunk that has landed; returns its message, or nothing if it belongs to another exchange. `round`: the
  /// last round begun.
  std::optional<Message> landed(std::uint32_t immediate, std::uint64_t round);
  /// Returns whether all chunks of a message of `bytes` bytes have landed, and then forgets them.
  bool complete(const Message& message, std::size_t bytes);

 private:
  MemberLinksOptions options_;
  Network* network_;
  std::uint32_t parts_ring_;
  std::uint32_t sums_ring_;
  std::vector<Peer> peers_;  // by member
  std::map<Message, std::size_t> landed_;
  std::map<std::uint64_t, std::uint64_t> writes_;  // rounds by cookie
  std::uint64_t next_number_ = 0;                  // number of the next write
};

}  // namespace maestro
