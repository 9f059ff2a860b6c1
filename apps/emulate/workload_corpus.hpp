// SPDX-License-Identifier: Apache-2.0
// The samples of a workload file as a corpus. Each has a token. If the partly used sections all have the same samples,
// these also have a patch, as samples with images have; otherwise the samples that enter the same sections are a
// source.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/data/corpus.hpp"
#include "runtime/graph/source_set.hpp"
#include "runtime/schedule/cost_model.hpp"
#include "runtime/wavefront/workload.hpp"

namespace maestro {

class WorkloadCorpus final : public Corpus {
 public:
  WorkloadCorpus(Workload workload, std::string file);

  [[nodiscard]] const Workload& workload() const { return workload_; }
  [[nodiscard]] const std::string& file() const { return file_; }
  /// Returns whether the section is partly used, and only by samples with a patch.
  [[nodiscard]] bool by_patches(std::size_t section) const { return patches_ && partial_[section]; }
  /// Returns the sources whose samples enter the section, if it is not by_patches().
  [[nodiscard]] SourceSet sources_of(std::size_t section) const;
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
  [[nodiscard]] std::uint32_t source(Split split, SampleId sample) const override;
  [[nodiscard]] std::string describe() const override;

 private:
  void read_exact(Split split, SampleId sample, std::span<std::int32_t> tokens,
                  std::span<std::int32_t> targets) const override;

  Workload workload_;
  std::string file_;
  std::vector<bool> partial_;                       // by section
  bool patches_ = true;                             // all partly used sections have the same samples
  std::vector<std::vector<bool>> patterns_;         // sections that the samples of a source enter
  std::vector<std::uint32_t> source_;               // source by sample
  std::vector<std::vector<std::int64_t>> task_of_;  // [sample][section]; -1: not entered
  std::vector<std::vector<PassCost>> cost_;         // [section][sample]; zero: not entered
};

}  // namespace maestro
