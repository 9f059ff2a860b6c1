// SPDX-License-Identifier: Apache-2.0
// The receiving end of an edge at a replica: a ring of slots, the count of arrivals in each, and the buffers handed
// over inside the process.
//
// IR-1 (complete): a sequence is complete when every write of every piece has been counted, by RMA or by hand-over.
// IR-2 (in place): rows are read in place if one hand-over has the complete sequence, if all hand-overs are
//       neighbouring rows of the same buffer, or if all pieces were written into a single payload of the slot. Only
//       mixed arrivals are gathered: in the device's payload if there is one; else, if some rows are in device memory,
//       in memory of the reading device; else in the slot.
// IR-3 (release): slots and buffers are given back at release(), in any order; credits count the released prefix.
// IR-4 (whole pieces): a piece whose rows reached the device's payload by other means than counted writes is complete
//       with its header, which then counts for all of its writes.
// IR-5 (begun anew): after renew() complete sequences keep their memory; writes into the former memory, or with the
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
  std::uint32_t device_ring = 0;  ///< second number, for complete pieces in the device's payload
  std::uint32_t slots = 1;
  std::uint32_t max_pieces = 1;  ///< per sequence
  std::int64_t max_rows = 1;     ///< per sequence
  std::int64_t columns = 1;
  DType dtype = DType::f32;
  std::size_t chunk_bytes = 0;
  Epoch epoch;
  MemorySpace* device = nullptr;  ///< memory of the slots' second payload (LY-4); null: none
  MemorySpace* reader = nullptr;  ///< memory of the reading device, if it is separate
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

/// Access to a complete sequence: `tensor` after `copies` have been made (on the device thread; usually none).
struct ArrivedTensor {
  struct Copy {
    const std::byte* from = nullptr;
    std::byte* to = nullptr;
    std::size_t bytes = 0;
    bool from_host = true;  ///< otherwise from device memory
    bool to_host = true;    ///< otherwise to memory of the reading device
  };
  Tensor tensor;
  const MemorySpace* space = &host_memory();  ///< memory that holds `tensor`
  std::vector<Copy> copies;
};

/// Not thread-safe; belongs to the replica's actor. Its memory is written by peers and read by the device thread.
class InputRing {
 public:
  /// Throws JobError if the sizes do not fit the transport's limits.
  explicit InputRing(const InputRingSpec& spec);

  [[nodiscard]] const InputRingSpec& spec() const { return spec_; }
  [[nodiscard]] const SlotLayout& layout() const { return layout_; }
  [[nodiscard]] std::byte* memory() const { return memory_->data(); }
  [[nodiscard]] std::size_t memory_bytes() const { return memory_->size(); }
  /// Returns the payloads in device memory; null: none.
  [[nodiscard]] std::byte* device_memory() const { return device_memory_.data(); }
  [[nodiscard]] std::size_t device_bytes() const { return device_memory_.size(); }
  /// Keeps host memory only, because no peer can write to the device's. Called before anything arrives.
  void drop_device_memory() { device_memory_.reset(); }

  /// Takes the expectation of a work item; work items may run ahead of the ring's window. Returns true if all of it has
  /// arrived already, as is always the case for a sequence without pieces.
  Result<bool> expect(const ArrivalPlan& arrival, StepId step);
  /// Counts a remote write that has landed, with either of the ring's numbers, and sets `sequence`. Returns true if it
  /// was the last write of the sequence.
  Result<bool> landed(std::uint32_t immediate, std::uint64_t& sequence);
  /// Takes rows that came in-process, without a copy. Returns true if they complete the sequence.
  Result<bool> handed_over(std::uint64_t sequence, HandedRows rows);
  /// Checks the headers of a complete sequence's RMA pieces (LY-3) and returns the place of the rows.
  Result<ArrivedTensor> open(std::uint64_t sequence);
  /// Begins anew after the senders did: incomplete sequences come again, with another number and epoch, into new host
  /// memory. Returns the former memory, which late writes may still reach. Only without a device's payload.
  [[nodiscard]] std::shared_ptr<AlignedMemory> renew(std::uint32_t ring, Epoch epoch);
  /// Returns the complete sequences in the window, released or not.
  [[nodiscard]] std::vector<std::uint64_t> complete() const;
  /// Releases a retired micro-batch's sequence. Returns true if the released prefix grew: time for a credit.
  Result<bool> release(std::uint64_t sequence);
  [[nodiscard]] std::uint64_t released() const { return counter_.released(); }
  /// Returns the window's end: sequences below it may be sent.
  [[nodiscard]] std::uint64_t window_end() const { return released() + spec_.slots; }
  /// Returns the expectation of a sequence that is not released; nullptr before its work item has come.
  [[nodiscard]] const ArrivalPlan* expected(std::uint64_t sequence) const {
    const auto found = incoming_.find(sequence);
    return found == incoming_.end() || !found->second.is_expected ? nullptr : &found->second.arrival;
  }

 private:
  /// All state of a sequence that is not released.
  struct Incoming {
    bool is_expected = false;  ///< arrival and step are set: the work item has come
    ArrivalPlan arrival;
    StepId step;
    std::vector<HandedRows> handed;
    std::vector<std::uint32_t> whole;     ///< indices of pieces that came complete (IR-4)
    std::shared_ptr<AlignedMemory> kept;  ///< memory and epoch of a sequence that was complete at renew()
    Epoch kept_epoch;
    SpaceMemory gathered;  ///< gathered rows, if in memory of the reading device
  };
  [[nodiscard]] Immediate immediate_of(std::uint64_t sequence) const;
  [[nodiscard]] std::size_t writes_of(std::int64_t rows) const;
  [[nodiscard]] bool in_window(std::uint64_t sequence) const { return sequence < window_end(); }
  Result<bool> count(const Incoming& incoming);
  Result<bool> device_landed(const Immediate& where, std::uint64_t sequence);
  /// Counts a complete piece (IR-4) of an expected sequence.
  Result<bool> count_whole(const Incoming& incoming, std::uint32_t piece);
  [[nodiscard]] std::uint64_t sequence_in(std::uint32_t slot) const;
  /// Checks a piece's header and returns the payload that it names.
  [[nodiscard]] Result<SlotMemory> check_header(const Incoming& incoming, std::uint32_t piece,
                                                std::int64_t target_row) const;
  /// Places of the written pieces, in their order.
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
  /// Memory that a mixed arrival is gathered in.
  struct Target {
    std::byte* begin = nullptr;
    const MemorySpace* space = &host_memory();
  };
  [[nodiscard]] Target target_of(Incoming& incoming, bool all_in_slot);

  InputRingSpec spec_;
  SlotLayout layout_;
  CompletionCounter counter_;
  std::shared_ptr<AlignedMemory> memory_;       // untouched pages cost nothing
  std::map<std::uint64_t, Incoming> incoming_;  // includes sequences beyond the counter's window
  SpaceMemory device_memory_;
  std::vector<SpaceMemory> spare_;  // memory of released sequences that were gathered
};

}  // namespace maestro
