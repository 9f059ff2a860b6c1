// SPDX-License-Identifier: Apache-2.0
// The receiving end of an edge at a replica: a ring of slots, the count of what has arrived in each, and the buffers
// handed over inside the process.
//
// IR-1 (complete): a sequence is complete when every write of every piece has been counted, RMA and hand-over alike.
// IR-2 (in place): a hand-over of a whole sequence, or of neighbouring rows of the same buffer, is read in place, and
//       so is a sequence whose pieces were all written into a single payload of its slot; only mixed arrivals are
//       gathered: in the device's payload if there is one, else, if some rows lie in memory of a device, in memory of
//       the reading device, else in the slot.
// IR-3 (release): slots and buffers are given back at release(), in any order; credits count the released prefix.
// IR-4 (whole pieces): a piece whose rows reached the device's payload by other means than counted writes is complete
//       with its header, which then counts for all of its writes.
// IR-5 (begun anew): after renew() complete sequences stay where they are; writes into the former memory, or with the
//       former number, change nothing else.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "runtime/core/aligned_memory.hpp"
#include "runtime/core/buffer.hpp"
#include "runtime/core/tensor.hpp"
#include "runtime/schedule/step_plan.hpp"
#include "transport/ring/completion_count.hpp"
#include "transport/ring/slot_layout.hpp"

namespace maestro {

struct InputRingSpec {
  Channel channel;
  ReplicaIndex receiver;
  std::uint32_t ring = 0;         ///< number inside this process
  std::uint32_t device_ring = 0;  ///< its second number, of whole pieces in the device's payload
  std::uint32_t slots = 1;
  std::uint32_t max_pieces = 1;  ///< per sequence
  std::int64_t max_rows = 1;     ///< per sequence
  std::int64_t columns = 1;
  DType dtype = DType::f32;
  std::size_t chunk_bytes = 0;
  Epoch epoch;
  MemorySpace* device = nullptr;  ///< where slots have a second payload (LY-4); null: nowhere
  MemorySpace* reader = nullptr;  ///< of the device that reads, if it has its own
  [[nodiscard]] std::size_t row_bytes() const { return static_cast<std::size_t>(columns) * size_of(dtype); }
};

/// Rows handed over in a shared buffer.
struct HandedRows {
  Buffer buffer;
  std::size_t offset = 0;  ///< bytes
  std::uint32_t index = 0;
  std::int64_t target_row = 0;
  std::int64_t rows = 0;
};

/// How to get at a complete sequence: `tensor` after `copies` have been made (on the device thread; usually none).
struct ArrivedTensor {
  struct Copy {
    const std::byte* from = nullptr;
    std::byte* to = nullptr;
    std::size_t bytes = 0;
    bool from_host = true;  ///< else from a device's memory
    bool to_host = true;    ///< else to memory of the reading device
  };
  Tensor tensor;
  const MemorySpace* space = &host_memory();  ///< of `tensor`
  std::vector<Copy> copies;
};

/// Not thread-safe; belongs to the replica's actor. Its memory is written by peers and read by the device thread.
class InputRing {
 public:
  /// Throws JobError when the sizes do not fit the transport's limits.
  explicit InputRing(const InputRingSpec& spec);

  [[nodiscard]] const InputRingSpec& spec() const { return spec_; }
  [[nodiscard]] const SlotLayout& layout() const { return layout_; }
  [[nodiscard]] std::byte* memory() const { return memory_->data(); }
  [[nodiscard]] std::size_t memory_bytes() const { return memory_->size(); }
  /// The payloads in the device's memory; null where there are none.
  [[nodiscard]] std::byte* device_memory() const { return device_memory_.data(); }
  [[nodiscard]] std::size_t device_bytes() const { return device_memory_.size(); }
  /// Keeps host memory only, because no peer can write to the device's. Called before anything arrives.
  void drop_device_memory() { device_memory_.reset(); }

  /// Takes the expectation of a work item; work items may run ahead of the ring's window. True when all of it is here
  /// already, as it always is for a sequence without pieces.
  Result<bool> expect(const ArrivalPlan& arrival, StepId step);
  /// Counts a remote write that has landed, with either of the ring's numbers, and sets `sequence`. True when it was
  /// the last write of the sequence.
  Result<bool> landed(std::uint32_t immediate, std::uint64_t& sequence);
  /// Rows came in-process, zero-copy. True when they complete the sequence.
  Result<bool> handed_over(std::uint64_t sequence, HandedRows rows);
  /// After completion: checks the headers of RMA pieces (LY-3) and returns the place of the rows.
  Result<ArrivedTensor> open(std::uint64_t sequence);
  /// The senders begin anew: incomplete sequences come again, with another number and epoch, into new host memory.
  /// Returns the former memory, which late writes may still reach. Only without a device's payload.
  [[nodiscard]] std::shared_ptr<AlignedMemory> renew(std::uint32_t ring, Epoch epoch);
  /// The sequences in the window that are complete, whether released or not.
  [[nodiscard]] std::vector<std::uint64_t> complete() const;
  /// The micro-batch has retired. True when the released prefix grew: time for a credit of `released()`.
  Result<bool> release(std::uint64_t sequence);
  [[nodiscard]] std::uint64_t released() const { return counter_.released(); }
  /// Sequences below this may be sent.
  [[nodiscard]] std::uint64_t window_end() const { return released() + spec_.slots; }
  /// The expectation of a sequence that is not released; nullptr before its work item has come.
  [[nodiscard]] const ArrivalPlan* expected(std::uint64_t sequence) const {
    const auto found = incoming_.find(sequence);
    return found == incoming_.end() || !found->second.is_expected ? nullptr : &found->second.arrival;
  }

 private:
  /// Everything about a sequence that is not released.
  struct Incoming {
    bool is_expected = false;  ///< its work item has come: arrival and step are set
    ArrivalPlan arrival;
    StepId step;
    std::vector<HandedRows> handed;
    std::vector<std::uint32_t> whole;     ///< indices of pieces that came as a whole (IR-4)
    std::shared_ptr<AlignedMemory> kept;  ///< of a sequence that was complete at renew(): its memory and its epoch
    Epoch kept_epoch;
    SpaceMemory gathered;  ///< the rows, where they were gathered in memory of the reading device
  };
  [[nodiscard]] Immediate immediate_of(std::uint64_t sequence) const;
  [[nodiscard]] std::size_t writes_of(std::int64_t rows) const;
  [[nodiscard]] bool in_window(std::uint64_t sequence) const { return sequence < window_end(); }
  Result<bool> count(const Incoming& incoming);
  Result<bool> device_landed(const Immediate& where, std::uint64_t sequence);
  /// Counts a whole piece (IR-4) of a sequence that is expected.
  Result<bool> count_whole(const Incoming& incoming, std::uint32_t piece);
  [[nodiscard]] std::uint64_t sequence_in(std::uint32_t slot) const;
  /// Which payload a piece's header names, once that is checked.
  [[nodiscard]] Result<SlotMemory> check_header(const Incoming& incoming, std::uint32_t piece,
                                                std::int64_t target_row) const;
  /// Where the pieces are that were written, in their order.
  struct Written {
    std::uint32_t piece = 0;
    SlotMemory place = SlotMemory::host;
    std::int64_t target_row = 0;
  };
  [[nodiscard]] Result<std::vector<Written>> written(const Incoming& incoming) const;
  [[nodiscard]] std::byte* payload(SlotMemory place, const Incoming& incoming, std::int64_t row = 0) const;
  [[nodiscard]] const AlignedMemory& memory_of(const Incoming& incoming) const {
    return incoming.kept ? *incoming.kept : *memory_;
  }
  [[nodiscard]] bool in_one_row(const std::vector<HandedRows>& handed) const;
  /// Where the rows of a mixed arrival are gathered.
  struct Target {
    std::byte* begin = nullptr;
    const MemorySpace* space = &host_memory();
  };
  [[nodiscard]] Target target_of(Incoming& incoming, bool all_in_slot);

  InputRingSpec spec_;
  SlotLayout layout_;
  CompletionCounter counter_;
  std::shared_ptr<AlignedMemory> memory_;       // untouched pages cost nothing
  std::map<std::uint64_t, Incoming> incoming_;  // the counter does not yet have the sequences beyond the window
  SpaceMemory device_memory_;
  std::vector<SpaceMemory> spare_;  // of released sequences that were gathered
};

}  // namespace maestro
