// SPDX-License-Identifier: Apache-2.0
// Runs a frozen teacher over samples, without actors and students, for records of its outputs (teacher_records.hpp).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/data/teacher/teacher_shards.hpp"
#include "sections/section.hpp"

namespace maestro {

struct TeachingOptions {
  SectionFactory factory;               ///< section with decoder_trunk's outputs at boundary = top_k_rest
  SectionContext context;               ///< context on host memory
  std::string weights;                  ///< folder; empty: random values
  std::int64_t micro_batch = 1;         ///< most samples
  std::int64_t micro_batch_tokens = 0;  ///< most tokens, unless a single sample has more; 0: no bound
  std::int64_t threads = 1;             ///< threads, each pinned to a core
};

/// Not thread-safe.
class Teaching {
 public:
  /// Builds the section and loads its weights. Throws JobError.
  Teaching(std::shared_ptr<const Corpus> corpus, TeachingOptions options);
  ~Teaching();
  Teaching(const Teaching&) = delete;
  Teaching& operator=(const Teaching&) = delete;

  /// Returns the rows of the records' samples, the same for any number of threads; nothing once `stop` is set.
  [[nodiscard]] std::optional<ShardRows> rows(const TeacherRecords& records, TeacherRecords::Samples samples,
                                              const std::atomic<bool>& stop);

 private:
  class Worker;
  struct Part;
  [[nodiscard]] std::vector<Part> cut(const TeacherRecords& records, TeacherRecords::Samples samples) const;
  void run(std::vector<Part>& parts, const TeacherRecords& records, const std::atomic<bool>& stop);

  std::shared_ptr<const Corpus> corpus_;  // shared with the plan of the job
  TeachingOptions options_;
  std::vector<std::unique_ptr<Worker>> workers_;
};

}  // namespace maestro
