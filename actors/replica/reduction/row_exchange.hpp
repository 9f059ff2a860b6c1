// SPDX-License-Identifier: Apache-2.0
// An exchange of the rows that a step has read of tables (row_table.hpp): each member owns a range of a table's rows
// (shard_range). Each sends the sums of its gradients to the rows' owners; an owner merges them in the order of
// members, steps its rows, and sends the new values to all. So all copies of a table stay equal, and what is sent
// depends on the rows that were read, not on the table (TB-3). Plain class; the actor passes messages in.
//
// An operation sum_to_shards ends with the merged gradients of its rows in Parameter::row_gradients(); after the
// step gather_values writes the other owners' values and sums of squares to the tables. If the step is skipped, the
// next sum_to_shards follows.
//
// In-place reads, equal rounds and ready receivers are as in HostExchange (HX-1 to HX-3). In another process a message
// lies in the slot of its sender; its size arrives apart, as RowsSent.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "actors/replica/reduction/exchange.hpp"
#include "actors/replica/reduction/member_links.hpp"
#include "runtime/collective/reduction_round.hpp"
#include "runtime/core/aligned_memory.hpp"
#include "runtime/ops/parameters.hpp"

namespace maestro {

struct RowExchangeOptions {
  MemberLinksOptions links;        ///< two members or more
  std::vector<Parameter*> tables;  ///< the rank's, trained by rows; they outlive the exchange
  std::int64_t most_tokens = 0;    ///< tokens of a step, or rows of the section's axis (RowMessageBounds)
  bool remote = false;             ///< the job has other processes
};

/// Its jobs run on the device's thread; the actor does not use the exchange until it receives a job's result.
class RowExchange final : public Exchange {
 public:
  RowExchange(RowExchangeOptions options, Network& network);

  [[nodiscard]] ReductionAddress address() const override { return address_; }
  [[nodiscard]] std::vector<std::uint32_t> ring_numbers() const override;
  void connect(const Directory& directory, const ExchangeOutbox& outbox) override;
  void leave() override { links_.leave(); }

  /// sum_to_shards or gather_values.
  void begin(Operation operation) override;
  [[nodiscard]] std::optional<LabelledJob> next_job() override;
  void job_done() override;
  [[nodiscard]] bool complete() const override;

  bool landed(std::uint32_t immediate) override;
  bool write_finished(std::uint64_t cookie) override;
  void handed_over(const ShardHandOver& shard) override;
  void shard_read(const ShardRead& read) override { round(read.round).send_done(); }
  void rows_sent(const RowsSent& sent) override;

 private:
  using Message = MemberLinks::Message;
  using Bytes = std::span<const std::byte>;
  enum class State : std::uint8_t { idle, collect, offer, round };
  enum class Work : std::uint8_t { none, collect, merge, offer, load };
  /// Memory for outgoing or arriving messages, registered in a job with other processes.
  struct Room {
    AlignedMemory memory;
    std::unique_ptr<Region> region;
  };
  [[nodiscard]] std::size_t self() const { return options_.links.self; }
  [[nodiscard]] std::size_t members() const { return links_.size(); }
  [[nodiscard]] ReductionRound& round(std::uint64_t number);
  [[nodiscard]] const ReductionRound& current() const { return rounds_.at(round_); }
  void begin_round();
  void release();
  void release_reads();
  void send(std::size_t member, bool stepped, Bytes message);
  void arrived(const Message& message, Bytes bytes);
  void check_arrival(const Message& message);
  /// Returns the round's messages by member; this member's is `kept`.
  [[nodiscard]] std::vector<Bytes> messages(bool stepped, Bytes kept) const;
  // Jobs, on the device's thread.
  void collect();
  void merge(const std::vector<Bytes>& parts);
  void offer();
  void load(const std::vector<Bytes>& stepped) const;

  [[nodiscard]] std::byte* fit(Room& room, std::size_t bytes) const;

  RowExchangeOptions options_;
  Network* network_;
  ExchangeOutbox outbox_;
  ReductionAddress address_;
  MemberLinks links_;
  std::size_t part_slot_ = 0;     // most bytes of gradients in a message
  std::size_t stepped_slot_ = 0;  // the same for stepped rows
  Room sent_;                     // this member's gradients, by owner
  Room offered_;                  // its stepped rows
  Room parts_;                    // gradients that other processes write: a slot for each sender
  Room stepped_;                  // the same for stepped rows
  std::vector<Bytes> outgoing_;   // parts of sent_, by owner
  Bytes offer_;
  std::vector<std::vector<std::int32_t>> owned_;  // ids that this member steps, by table
  std::map<std::uint64_t, ReductionRound> rounds_;
  std::map<Message, Bytes> arrived_;
  std::map<Message, std::size_t> announced_;  // sizes of messages under way
  std::uint64_t round_ = 0;                   // last round begun, from 1
  Operation operation_ = Operation::sum_to_shards;
  State state_ = State::idle;
  Work work_ = Work::none;  // running job
};

}  // namespace maestro
