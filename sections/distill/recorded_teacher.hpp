// SPDX-License-Identifier: Apache-2.0
// A recorded teacher: sends the outputs that `maestro teach` recorded of a model that is not here.
//
// Input   tokens        (M) i32, which places the samples; their values are not read
// Outputs top_values    (M, k) f32, log-probabilities of each row's tokens over the corpus' tokens, descending
//         top_indices   (M, k) i32, the tokens
//         rest          (M, 1) f32, the log-probability of all other tokens
// An entry after a row's last recorded entry has index -1, which the losses leave out. No value is below
// least_log_probability. The shards are mapped, not held in memory.
#pragma once

#include <memory>
#include <string>

#include "runtime/data/teacher/teacher_shards.hpp"
#include "runtime/job/job_table.hpp"
#include "sections/section.hpp"

namespace maestro {

/// Name of the section type in job files.
inline constexpr const char* recorded_teacher_type = "recorded_teacher";

class RecordedTeacher final : public Section {
 public:
  struct Options {
    std::shared_ptr<const TeacherShards> shards;  ///< shared by all replicas of a process
    std::string path;                             ///< path of their folder
    /// Opens the folder at `path` and compares it with `corpus`, which may be null. An empty path leaves `shards` null
    /// if `corpus` is null. Throws JobError that names the difference (OF-3, refused by name).
    static Options read(const JobTable& table, const Corpus* corpus);
  };
  /// Throws JobError without a folder, or for a GPU. A meta section without a folder has its ports, with 0 columns in
  /// ports whose width the records set.
  RecordedTeacher(const SectionContext& context, const Options& options);

  [[nodiscard]] Ports ports() const override;
  Parameters& parameters() override { return parameters_; }
  void forward(Tape& tape, const Inputs& inputs, Outputs& outputs) override;
  [[nodiscard]] Cost cost(const SampleShape& sample) const override;
  [[nodiscard]] std::vector<StateEntry> state() override { return {}; }
  [[nodiscard]] std::string config_json() const override { return "{}"; }
  [[nodiscard]] std::string description() const override;
  [[nodiscard]] std::string origin() const override { return options_.shards->fingerprint(); }
  [[nodiscard]] bool shareable() const override { return true; }

 private:
  Options options_;
  Parameters parameters_;
};

/// Reads the `path` of a recorded teacher's table.
[[nodiscard]] std::string read_records_path(const JobTable& table);

}  // namespace maestro
