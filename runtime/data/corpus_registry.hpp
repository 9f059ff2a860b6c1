// SPDX-License-Identifier: Apache-2.0
// Kinds of corpus beside those of open_corpus(), which `data.kind` of a job may name. A value, filled by plug-ins.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/data/corpus.hpp"
#include "runtime/job/job_table.hpp"

namespace maestro {

class CorpusRegistry {
 public:
  /// Reads the keys of [data] but `kind`, and opens the corpus: the same samples in every process of a run. Throws
  /// JobError for wrong settings. `seed` is that of the job.
  using Opener = std::function<std::unique_ptr<Corpus>(const JobTable& data, std::uint64_t seed)>;

  /// Throws JobError when `kind` is already there or is one of maestro's. `description` is a line for a person,
  /// `origin` the file of a plug-in.
  void add(std::string kind, std::string description, Opener opener, std::string origin = {});
  /// Returns null where `kind` is absent or none of these.
  [[nodiscard]] std::unique_ptr<Corpus> open(const JobTable& data, std::uint64_t seed) const;

  struct Listing {
    std::string kind;
    std::string description;
    std::string origin;
  };
  /// Sorted by kind.
  [[nodiscard]] std::vector<Listing> list() const;

 private:
  struct Entry {
    std::string description;
    Opener opener;
    std::string origin;
  };
  std::map<std::string, Entry> entries_;
};

}  // namespace maestro
