// SPDX-License-Identifier: Apache-2.0
// Further kinds of corpus for a job's `data.kind`, in addition to the kinds of open_corpus(). Plug-ins add them.
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
  /// Reads the keys of [data] except `kind`, and opens the corpus: the same samples in every process of a run. Throws
  /// JobError for wrong settings. `seed` is the job's.
  using Opener = std::function<std::unique_ptr<Corpus>(const JobTable& data, std::uint64_t seed)>;

  /// Adds a kind. Throws JobError if `kind` is already registered or is built into maestro. `description` is a line for
  /// display, `origin` the file of the plug-in.
  void add(std::string kind, std::string description, Opener opener, std::string origin = {});
  /// Opens the corpus; returns null if `kind` is absent or not registered here.
  [[nodiscard]] std::unique_ptr<Corpus> open(const JobTable& data, std::uint64_t seed) const;

  struct Listing {
    std::string kind;
    std::string description;
    std::string origin;
  };
  /// Returns all registered kinds, sorted.
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
