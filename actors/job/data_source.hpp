// SPDX-License-Identifier: Apache-2.0
// Answers the coordinator's request for the samples of a step: sample ids and lengths, never tokens. The replica of the
// source section reads the tokens when its micro-batch is due.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/messages/run_actor.hpp"
#include "runtime/data/corpus.hpp"
#include "runtime/data/sampler.hpp"
#include "runtime/schedule/data_cursor.hpp"

namespace maestro {

struct DataSourceOptions {
  std::int64_t global_batch = 1;
  std::int64_t validation_samples = 0;  ///< 0: all
  DataCursor cursor = {};
};

/// Returns the number of samples in a validation pass: all of the split, or at most `limit` unless it is 0.
[[nodiscard]] std::uint64_t validation_size(const Corpus& corpus, std::int64_t limit);

/// Draws the samples of a step and leaves out unreadable samples, with the reason.
class BatchDrawer {
 public:
  /// `threads` prepare the samples of a corpus with images; 0: half of the cores that this process may use, at most 16.
  BatchDrawer(std::shared_ptr<const Corpus> corpus, Sampler sampler, std::size_t threads = 0);
  [[nodiscard]] BatchMetadata training(StepId step, std::int64_t global_batch, const DataCursor& cursor = {}) const;
  /// Returns the samples of a validation pass, the same at every step; `limit` as for validation_size().
  [[nodiscard]] BatchMetadata validation(StepId step, std::int64_t limit) const;
  /// Prepares the samples and adds them to the batch, in their order.
  void add(BatchMetadata& batch, Split split, const std::vector<SampleId>& ids) const;

 private:
  /// Adds the sample, or the reason why it is left out: it is not ready, or larger than the corpus declares, so that it
  /// would not fit any buffer.
  void add(BatchMetadata& batch, Split split, SampleId id, const Status& ready) const;

  std::shared_ptr<const Corpus> corpus_;
  Sampler sampler_;
  std::int64_t most_positions_;
  SamplePictures most_;  // declared by the corpus
  std::size_t threads_;
};

/// Returns the error of a run that has left out more samples than `most`, with their number and the first of these
/// reasons; nothing if it has not.
/// `most` is the part of data.max_bad_samples that is still free.
[[nodiscard]] std::optional<std::string> too_many_left_out(const std::vector<std::string>& reasons, std::int64_t most);
/// Returns why a run ends that has left out every sample up to `step`.
[[nodiscard]] std::string nothing_to_train_on(StepId step, const std::vector<std::string>& reasons);

class DataSource : public RunActor {
 public:
  /// Shares the corpus with the source section, which reads it on another thread.
  DataSource(caf::actor_config& config, caf::actor supervisor, std::shared_ptr<const Corpus> corpus, Sampler sampler,
             DataSourceOptions options);
  caf::behavior make_behavior() override;
  const char* name() const override { return "maestro.data_source"; }

 private:
  [[nodiscard]] std::string where() const override { return "data source, step " + std::to_string(step_.value()); }

  BatchDrawer drawer_;
  DataSourceOptions options_;
  StepId step_;  // of the last request
};

}  // namespace maestro
