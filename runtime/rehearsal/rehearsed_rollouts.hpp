// SPDX-License-Identifier: Apache-2.0
// The generator of a run in virtual time: it hands prompts out to its replicas by a RolloutBook, and every replica
// continues its sequences as GenerationReplica does. Pure; not thread-safe.
//
// ON-1 (as generated): a replica alternates between the next block of a prompt and a token of every open sequence; a
//       prompt waits until a slot is free.
// ON-2 (one version): a replica takes a version when it is published and all samples of the version before have ended.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include "runtime/core/ids.hpp"
#include "runtime/rehearsal/virtual_clock.hpp"
#include "runtime/schedule/rollout_book.hpp"

namespace maestro {

/// Durations of a generator's work, in milliseconds.
struct GenerationTimes {
  std::function<double(std::int64_t rows)> prefill;  ///< a block of so many tokens of a prompt
  /// A token of each of so many sequences, which have `rows` kept rows together.
  std::function<double(std::int64_t sequences, std::int64_t rows)> decode;
  double take_ms = 0;  ///< to take over a version
};

/// The tokens of a made sample.
struct MadeLengths {
  std::int64_t prompt = 1;
  std::int64_t completion = 1;  ///< with a stop token
  bool operator==(const MadeLengths&) const = default;
};

/// The samples of a step that a generator makes.
struct RehearsedRollout {
  StepId version;  ///< step before which the weights have the values that make them
  std::vector<MadeLengths> samples;
};

struct GeneratorShape {
  std::size_t replicas = 1;
  std::int64_t slots = 1;         ///< sequences at once, a replica
  std::int64_t block_rows = 512;  ///< most tokens of a prompt that are computed at once
  std::int64_t held = 3;          ///< most prompts that a replica holds
};

class RehearsedRollouts {
 public:
  /// Runs work of a replica on its device for so long, then calls `done`.
  using Run = std::function<void(std::size_t replica, double ms, VirtualClock::Event done)>;
  /// `clock` and `times` outlive the object. `hop_ms`: RehearsalTimes::hop_ms.
  RehearsedRollouts(VirtualClock& clock, const GeneratorShape& shape, const GenerationTimes& times, double hop_ms,
                    Run run);

  /// Makes the next step's samples, one or more, and then calls `done`, after which the following may begin.
  void begin(const RehearsedRollout& rollout, VirtualClock::Event done);
  /// The weights before step `version`, and all before, are at the replicas. Those before step 1 are from the start.
  void published(StepId version);
  /// Returns the milliseconds of each rollout that has ended, from the first replica's start to the last sample.
  [[nodiscard]] const std::vector<double>& rollouts_ms() const { return rollouts_ms_; }

 private:
  struct Sequence {
    std::uint32_t number = 0;
    MadeLengths lengths;
    std::int64_t read = 0;     // tokens of the prompt that are computed
    std::int64_t written = 0;  // tokens of the completion
  };
  struct Replica {
    StepId version;                // taken; 0: none
    std::deque<Sequence> waiting;  // without a slot
    std::optional<Sequence> reading;
    std::vector<Sequence> writing;
    bool working = false;
    [[nodiscard]] bool idle() const { return !reading && writing.empty(); }
  };
  void hand_out();
  void pump(std::size_t replica);
  /// Continues the sequences by a block and a token each; moves those that have ended to `ended`. Returns the time.
  double advance(Replica& replica, std::vector<std::uint32_t>& ended) const;
  void made(std::size_t replica, std::uint32_t number);

  VirtualClock* clock_;
  GeneratorShape shape_;
  const GenerationTimes* times_;
  double hop_ms_;
  Run run_;
  RolloutBook book_;
  RehearsedRollout rollout_;        // under way
  VirtualClock::Event done_;        // of `rollout_`
  std::optional<double> begun_ms_;  // of `rollout_`; nothing: its version or its prompts are awaited
  StepId published_{1};
  std::vector<Replica> replicas_;
  std::vector<double> rollouts_ms_;
};

/// Returns the milliseconds of a rollout on idle devices, if its version is not taken yet.
[[nodiscard]] double rollout_ms(const GeneratorShape& shape, const GenerationTimes& times, double hop_ms,
                                const std::vector<MadeLengths>& samples);

}  // namespace maestro
