// SPDX-License-Identifier: Apache-2.0
// The actor of a generator's replica: continues the prompts that the data source orders, with the versions of weights
// that a trained section publishes. It computes whenever it has a prompt of a version that is here, and never blocks: a
// job on the device's thread continues its sequences by a token each.
//
// GK-1 (one version): a sample is made with the weights of a single version: the next is taken when every sample of the
//      version before has ended.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/messages/message_types.hpp"
#include "actors/messages/run_actor.hpp"
#include "actors/replica/replica_spec.hpp"
#include "actors/replica/replica_trace.hpp"
#include "actors/replica/weights/weight_receiver.hpp"
#include "sections/decoder/completions.hpp"
#include "sections/decoder/generator.hpp"

namespace maestro {

struct GenerationOptions {
  std::int64_t slots = 1;      ///< sequences at once
  std::int64_t positions = 1;  ///< rows of a sequence
  ContinuationLimits limits;
  SamplingOptions sampling;
};

class GenerationReplica : public RunActor {
 public:
  GenerationReplica(caf::actor_config& config, ReplicaSpec spec, GenerationOptions options);
  caf::behavior make_behavior() override;
  const char* name() const override { return "maestro.generation_replica"; }
  void on_exit() override;

 private:
  /// The model and its sequences; used by jobs on the device's thread, which may outlive the actor.
  struct Model;
  /// A job on the device's thread: its work, and its result.
  struct Job;
  [[nodiscard]] std::string where() const override;
  void pump();
  void submit();
  void job_done();
  void connect(const Directory& directory);
  /// Another actor takes the placement.
  void retire();
  void await_release();
  void check(const Status& status);
  [[nodiscard]] WaitingFor status() const;

  ReplicaSpec spec_;
  GenerationOptions options_;
  ReplicaTrace trace_;
  std::shared_ptr<Model> model_;
  std::unique_ptr<WeightReceiver> receiver_;
  std::map<StepId, std::deque<PromptOrder>> orders_;  // by version, not yet begun
  StepId version_;                                    // taken; 0: none
  std::size_t unfinished_ = 0;                        // samples of `version_` that have begun
  std::shared_ptr<Job> job_;                          // null: idle
  caf::actor source_;                                 // of the orders
  GenerationWork work_;                               // since the last SampleMade
  std::uint64_t events_ = 0;
};

}  // namespace maestro
