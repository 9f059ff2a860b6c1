// SPDX-License-Identifier: Apache-2.0
// [[stages]] of a job: consecutive parts of a run that train different sections. Pure.
//
// TS-1 (like runs): a stage trains as a run that begins with the weights of the stage before: its optimizer's moments
//       are zero, and its learning rates begin anew. Steps, samples and the record go on.
// TS-2 (by steps): the first stage has the first steps of the run, and each later stage the next ones.
// TS-3 (only more): a section that a stage trains is also trained by later stages, which may give it lr = 0.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/job/job_table.hpp"

namespace maestro {

/// The place of a stage in a run.
struct StageSpan {
  std::int64_t number = 0;  ///< from 1; 0 without [[stages]]
  std::int64_t count = 0;
  std::int64_t begin = 0;  ///< steps of the stages before
  std::int64_t end = 0;    ///< last step
  [[nodiscard]] bool given() const { return number > 0; }
  [[nodiscard]] bool last() const { return number == count; }
  friend bool operator==(const StageSpan&, const StageSpan&) = default;
};

class TrainingStages {
 public:
  /// Reads the list `stages`; empty if the key is absent. Keys of each: steps, train, lr. Throws JobError for a stage
  /// without steps or sections, for lr of a section that the stage does not train, and for TS-3.
  [[nodiscard]] static TrainingStages read(const JobTable& root);

  /// Reads the keys of a stage for the reference of keys, from any table.
  static void read_keys(const JobTable& table);

  [[nodiscard]] bool given() const { return !stages_.empty(); }
  /// Returns the steps of all stages.
  [[nodiscard]] std::int64_t steps() const { return stages_.empty() ? 0 : stages_.back().span.end; }
  /// Returns the index of the stage that follows `step` steps: the last one after all steps, 0 without stages.
  [[nodiscard]] std::size_t after(std::uint64_t step) const;
  /// Returns the number of the stage that has done `step`, from 1; 0 without stages.
  [[nodiscard]] std::uint64_t that_did(std::uint64_t step) const;
  /// Returns the place of stage `index`; nothing given without stages.
  [[nodiscard]] StageSpan span(std::size_t index) const { return given() ? stages_.at(index).span : StageSpan(); }
  /// Returns whether stage `index` trains the section.
  [[nodiscard]] bool trains(std::size_t index, const std::string& section) const;
  /// Returns the section's learning rate in stage `index`, if the stage has one.
  [[nodiscard]] std::optional<double> lr(std::size_t index, const std::string& section) const;
  /// Throws JobError for a section that is not one of `trainable`, the app's sections that can be trained, or that is
  /// one of `frozen`, its others.
  void check(const std::vector<std::string>& trainable, const std::vector<std::string>& frozen) const;
  /// Returns "stage 2 of 3: steps 501 to 4500, trains projector (lr 0.001), llm".
  [[nodiscard]] std::string line(std::size_t index) const;
  [[nodiscard]] std::size_t count() const { return stages_.size(); }

 private:
  struct Stage {
    JobTable table;
    StageSpan span;
    std::vector<std::string> trained;
    std::map<std::string, double> rates;
  };
  void add(const JobTable& table, bool complete);

  std::vector<Stage> stages_;
};

}  // namespace maestro
