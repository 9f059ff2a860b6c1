// SPDX-License-Identifier: Apache-2.0
// The data source of a job with a generator: some samples of a step are continuations of the corpus' prompts, which
// generators make. A batch is answered when all of its samples are there; the order of work of the coordinator does not
// change, an answer only comes later.
//
// MK-1 (each once): every position of a step is in its batch once, in order; a made sample has the number of its
//      position.
// MK-2 (a function of the job): a batch depends on the seed, its positions and the weights of its version alone: not on
//      replicas, their speed, or the order of their answers.
//
// MK-3 (generators that begin anew): after the loss or the move of a generator no batch is answered until every
//      generator has been promised the versions from the open step's on, so that a version which is read stays.
//
// A replica holds at most slots + 2 prompts, and the store the samples of the steps that are open.
#pragma once

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "actors/job/data_source.hpp"
#include "actors/job/prompt_drawer.hpp"
#include "actors/job/rollout_record.hpp"
#include "runtime/data/sample_store.hpp"
#include "runtime/job/generator_config.hpp"
#include "runtime/schedule/rollout_book.hpp"

namespace maestro {

struct RolloutOptions {
  DataSourceOptions data;
  GeneratorConfig generator;
  std::optional<SectionId> section;  ///< generator; none: samples are read back
  std::uint64_t seed = 1;            ///< job's
  std::uint64_t first_step = 1;      ///< first step of this start
  RolloutRecordOptions record;
};

class RolloutSource : public RunActor {
 public:
  RolloutSource(caf::actor_config& config, caf::actor supervisor, std::shared_ptr<const Corpus> corpus, Sampler sampler,
                std::shared_ptr<SampleStore> store, const RolloutOptions& options);
  caf::behavior make_behavior() override;
  const char* name() const override { return "maestro.rollout_source"; }
  void on_exit() override;

 private:
  struct Prompt {
    PromptOrder order;
    SampleId corpus_sample;
    bool stopped = false;  // by a stop token, once it is made
  };
  /// The step whose batch is awaited.
  struct Rollout {
    StepId step;
    caf::actor coordinator;
    std::vector<SampleId> samples;            // by position in the batch: of the corpus, or made
    std::map<std::uint32_t, Prompt> prompts;  // by number
    GenerationWork work;
    std::set<ReplicaIndex> replicas;  // that made a sample
    std::chrono::steady_clock::time_point begun;
  };
  struct Replica {
    caf::actor actor;
    bool ready = false;
  };

  [[nodiscard]] std::string where() const override;
  void connect(const Directory& directory);
  void ready();
  void request(const BatchRequest& request);
  void begin(StepId step, const caf::actor& coordinator);
  [[nodiscard]] bool all_ready() const { return std::ranges::all_of(replicas_, &Replica::ready); }
  /// Hands out prompts, or answers the request if all samples are there.
  void go_on();
  void take(SampleMade& made);
  /// Takes the samples of the step from the record.
  void read_back();
  void answer();
  /// Returns the samples of the step, which are all there.
  [[nodiscard]] RecordedRollout rollout() const;

  std::shared_ptr<const Corpus> corpus_;
  PromptDrawer prompts_;
  BatchDrawer drawer_;
  std::shared_ptr<SampleStore> store_;
  RolloutOptions options_;
  RolloutRecord record_;
  std::vector<Replica> replicas_;
  RolloutBook book_;
  std::optional<Rollout> rollout_;
  std::optional<BatchRequest> early_;  // request that waits for generators to be ready
  caf::actor early_sender_;
  StepId next_step_;  // next training step to be requested
  StepId step_;       // of the last request
};

}  // namespace maestro
