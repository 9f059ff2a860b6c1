// SPDX-License-Identifier: Apache-2.0
// Draws the samples of a training step in a job with a generator: samples that are read, and prompts for samples that
// are made. The result depends on the job and the step alone. Thread-safe as far as the corpus is.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "actors/job/data_source.hpp"
#include "runtime/job/generator_config.hpp"

namespace maestro {

/// A position in a step's batch.
struct DrawnSample {
  SampleId sample;                   ///< sample in the corpus, which is read or whose prompt is continued
  std::optional<PromptOrder> order;  ///< none: the sample is read
};

class PromptDrawer {
 public:
  /// `seed`: the job's.
  PromptDrawer(std::shared_ptr<const Corpus> corpus, Sampler sampler, GeneratorConfig generator, std::uint64_t seed,
               const DataSourceOptions& data)
      : corpus_(std::move(corpus)),
        sampler_(std::move(sampler)),
        generator_(std::move(generator)),
        seed_(seed),
        data_(data) {}
  /// Returns the positions of a step, in order.
  [[nodiscard]] std::vector<DrawnSample> draw(StepId step) const;

 private:
  /// Returns the prompt of a sample in the corpus.
  [[nodiscard]] std::vector<std::int32_t> prompt_of(SampleId sample) const;

  std::shared_ptr<const Corpus> corpus_;
  Sampler sampler_;
  GeneratorConfig generator_;
  std::uint64_t seed_;
  DataSourceOptions data_;
};

}  // namespace maestro
