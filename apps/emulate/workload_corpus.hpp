// SPDX-License-Identifier: Apache-2.0
// The samples of a workload file as a corpus. Each has a token, and also a patch if it enters partly used sections.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/data/corpus.hpp"
#include "runtime/schedule/cost_model.hpp"
#include "runtime/wavefront/workload.hpp"

namespace maestro {

class WorkloadCorpus final : public Corpus {
 public:
  /// Throws JobError if partly used sections have different samples: a run only distinguishes samples with images.
  WorkloadCorpus(Workload workload, std::string file);

  [[nodiscard]] const Workload& workload() const { return workload_; }
  /// Returns whether the section is partly used: some samples do not enter it.
  [[nodiscard]] bool partial(std::size_t section) const { return partial_[section]; }
  /// Returns the milliseconds of a sample's passes in the named section.
  [[nodiscard]] PassCost cost(std::string_view section, const SampleRef& sample) const;

  [[nodiscard]] std::uint64_t samples(Split split) const override;
  [[nodiscard]] std::int64_t length(Split split, SampleId sample) const override;
  [[nodiscard]] std::int64_t patch_columns() const override { return 1; }
  [[nodiscard]] std::int64_t max_patches() const override { return 1; }
  [[nodiscard]] SamplePictures pictures(Split split, SampleId sample) const override;
  void read_pictures(Split split, SampleId sample, std::span<float> pixels,
                     std::span<std::int32_t> places) const override;
  [[nodiscard]] std::int64_t vocabulary() const override { return 1; }
  [[nodiscard]] std::string describe() const override;

 private:
  void read_exact(Split split, SampleId sample, std::span<std::int32_t> tokens,
                  std::span<std::int32_t> targets) const override;

  Workload workload_;
  std::string file_;
  std::vector<bool> partial_;                       // by section
  std::vector<std::vector<std::int64_t>> task_of_;  // [sample][section]; -1: not entered
  std::vector<std::vector<PassCost>> cost_;         // [section][sample]; zero: not entered
};

}  // namespace maestro
