// SPDX-License-Identifier: Apache-2.0
// A step's work for every section replica: micro-batches, and for each the pieces of tensors that connect it to the
// micro-batches before and after it. Plain data; made by StepPlanner, sent as work items.
//
// Sequences: every consumer replica counts its micro-batches per input edge (0, 1, 2, ... over the run); sequence s
// uses slot s % slots. Gradients travel the same way with the producer as the receiver.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "runtime/core/ids.hpp"
#include "runtime/graph/channel.hpp"
#include "runtime/graph/pass.hpp"
#include "runtime/graph/port.hpp"
#include "runtime/graph/source_set.hpp"

namespace maestro {

struct SampleRef {
  SampleId id;  ///< in the corpus, or of a sample that is_made()
  std::int64_t tokens = 0;
  std::int64_t patches = 0;         ///< 0: a sample without images
  std::int64_t visual = 0;          ///< positions that receive a row of an image
  std::int64_t images = 0;          ///< tiles, which the encoder sees separately
  std::uint32_t index_in_step = 0;  ///< set by the planner: a sample may be in a batch twice
  std::uint32_t source = 0;         ///< number of the source in a mixture
  std::int64_t answers = 0;         ///< positions with a target; 0 unless another model reads other tokens
  /// The sample as another model of the job reads it, if one reads it in another way (Reading).
  std::int64_t other_tokens = 0;
  std::int64_t other_patches = 0;
  std::int64_t other_visual = 0;
  std::int64_t other_images = 0;
  std::int64_t frames = 0;  ///< rows of the encoder of sounds, next to images
  std::int64_t heard = 0;   ///< positions that receive a row of a sound
  std::int64_t clips = 0;   ///< tiles of sounds
  SampleId prompt = {};     ///< the corpus' sample that a sample which is_made() continues
  /// Returns the sample in the corpus.
  [[nodiscard]] SampleId in_corpus() const { return is_made(id) ? prompt : id; }
  [[nodiscard]] std::int64_t rows(Axis axis) const {
    switch (axis) {
      case Axis::tokens:
        return tokens;
      case Axis::patches:
        return patches;
      case Axis::visual:
        return visual;
      case Axis::answers:
        return answers;
      case Axis::other_tokens:
        return other_tokens;
      case Axis::other_patches:
        return other_patches;
      case Axis::other_visual:
        return other_visual;
      case Axis::frames:
        return frames;
      case Axis::heard:
        break;
    }
    return heard;
  }
  /// Returns the sample as a section with this reading counts it.
  [[nodiscard]] SampleRef read_as(Reading reading) const {
    SampleRef read = *this;
    read.tokens = rows(axis_in(reading, Axis::tokens));
    read.patches = rows(axis_in(reading, Axis::patches));
    read.visual = rows(axis_in(reading, Axis::visual));
    if (reading != Reading::own) read.images = reading == Reading::sounds ? clips : other_images;
    return read;
  }
  /// Returns whether passes of the two do the same work.
  [[nodiscard]] bool same_size(const SampleRef& other) const {
    const auto same = [&](Axis axis) { return rows(axis) == other.rows(axis); };
    return std::ranges::all_of(all_axes, same) && images == other.images && other_images == other.other_images &&
           clips == other.clips && source == other.source;
  }
  /// Returns its rows if only samples of `sources` have any.
  [[nodiscard]] std::int64_t rows(Axis axis, const SourceSet& sources) const {
    return sources.has(source) ? rows(axis) : 0;
  }
};

/// Rows of a rank's tensor that go to a receiving rank's slot. Rows count within the tensors that the two ranks hold.
struct PieceOut {
  Channel channel;
  ReplicaIndex receiver;       ///< replica of the channel's receiver
  std::uint64_t sequence = 0;  ///< the receiver's
  std::uint32_t index = 0;     ///< index among the pieces of this sequence at the receiving rank
  std::int64_t source_row = 0;
  std::int64_t target_row = 0;
  std::int64_t rows = 0;
  LayoutRank source_rank = {};
  LayoutRank target_rank = {};
};

struct ArrivalPiece {
  std::int64_t rows = 0;
  ReplicaIndex sender;  ///< replica of the section at the other end of the edge
  LayoutRank sender_rank = {};
};

/// Pieces that a receiving rank waits for before it may use a sequence of an edge. A replica's ranks share the
/// sequences of an edge; a rank without rows of a micro-batch has an arrival without pieces.
struct ArrivalPlan {
  Channel channel;
  std::uint64_t sequence = 0;
  std::vector<ArrivalPiece> pieces;  ///< in row order; piece i carries index i
  LayoutRank rank = {};
};

/// A pass' turn on a device that several lanes of a process share.
struct DeviceTurn {
  std::uint32_t device = 0;  ///< number among the run's shared devices
  std::uint32_t place = 0;   ///< number of passes of the step that the device runs before it
  bool last = false;         ///< no pass of the step follows on this device
};

struct MicroBatchPlan {
  SectionId section;
  StepId step;
  Pass pass = Pass::train;
  std::uint32_t index = 0;  ///< index within the section's step, over all replicas
  ReplicaIndex replica;
  double loss_scale = 0;
  std::int64_t step_tokens = 1;  ///< tokens of the section in the step, at least 1
  std::vector<SampleRef> samples;
  /// Order of the step's backward passes on this lane, and the number of forward passes that the plan starts before it.
  std::uint32_t backward_order = 0;
  std::uint32_t backward_after = 0;
  /// Phases of a bulk-synchronous plan: the passes wait for these phases of the group to be opened.
  bool phased = false;
  std::uint32_t group = 0;
  std::uint32_t forward_phase = 0;
  std::uint32_t backward_phase = 0;
  /// Turns on shared devices (DeviceTurns); empty: the passes begin when they can.
  std::vector<DeviceTurn> forward_turns;
  std::vector<DeviceTurn> backward_turns;
  std::vector<ArrivalPlan> arrivals;  ///< inputs, then gradients of outputs
  std::vector<PieceOut> pieces;       ///< outputs, then gradients of inputs
  [[nodiscard]] std::int64_t rows(Axis axis = Axis::tokens, const SourceSet& sources = {}) const {
    std::int64_t sum = 0;
    for (const SampleRef& sample : samples) sum += sample.rows(axis, sources);
    return sum;
  }
};

struct StepPlan {
  StepId step;
  Pass pass = Pass::train;
  std::vector<MicroBatchPlan> micro_batches;  ///< grouped by section, in the order each lane runs them
};

}  // namespace maestro
