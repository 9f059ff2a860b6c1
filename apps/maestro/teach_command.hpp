// SPDX-License-Identifier: Apache-2.0
// `maestro teach JOB --out DIR`: records of a distillation job's teacher, for training without it. With --from FILE the
// rows are those that a server gave (served_teacher.hpp), and the job's teacher need not be there.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "actors/plan/job_plan.hpp"
#include "apps/maestro/plug_in_option.hpp"
#include "runtime/data/corpus.hpp"
#include "runtime/data/teacher_records.hpp"
#include "runtime/job/job_document.hpp"
#include "runtime/job/job_table.hpp"
#include "runtime/observe/console.hpp"

namespace maestro {

class TeachCommand {
 public:
  explicit TeachCommand(CLI::App& app);

  [[nodiscard]] bool given() const { return command_->parsed(); }
  /// Returns the exit status. Throws JobError.
  int run(Console& console) const;

 private:
  [[nodiscard]] JobDocument document(std::vector<std::string> settings) const;
  /// Returns the section that is recorded: --teacher, or the only live teacher of the job. Throws JobError.
  [[nodiscard]] std::string teacher_of(const JobTable& root) const;
  [[nodiscard]] JobPlan plan(const std::string& teacher, Console& console) const;
  /// The records to make, without shards and teacher. Throws JobError for data that has no records.
  [[nodiscard]] TeacherRecords records_of(const Corpus& corpus) const;
  void run_teacher(Console& console) const;
  void copy_served(Console& console) const;
  void print_end(const TeacherRecords& records, const std::string& teacher, Console& console) const;

  CLI::App* command_;  // belongs to the CLI::App
  std::filesystem::path job_;
  std::vector<std::string> overrides_;
  std::filesystem::path out_;
  std::filesystem::path from_;
  std::string teacher_;
  std::int64_t k_ = 64;
  double p_ = 1;
  std::uint64_t shard_samples_ = 256;
  PlugInChoice plug_ins_;
};

}  // namespace maestro
