// SPDX-License-Identifier: Apache-2.0
// Observers: code that receives a copy of the run's record. Plug-ins add them, jobs choose them by tables
// [observers.NAME].
//
// OV-1 (no figure changes): a run does not depend on its observers. After an exception an observer receives nothing
//       more, and a warning names it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/job/job_table.hpp"

namespace maestro {

/// An observer on rank 0, created anew for every start of a run: a recovery ends one start and begins another. Called
/// by a single thread, which also writes checkpoints: a slow observer delays them.
class RunObserver {
 public:
  virtual ~RunObserver() = default;
  /// Receives a finished training step: its line in steps.jsonl, JSON.
  virtual void step(std::string_view /*line*/) {}
  /// Receives an event: its line in events.jsonl, JSON. "event" is "began", "validation", "checkpoint", "spike", ...
  virtual void event(std::string_view /*line*/) {}
};

using ObserverFactory = std::function<std::unique_ptr<RunObserver>()>;

/// An observer that a job names.
struct NamedObserver {
  std::string name;
  ObserverFactory make;
};

/// A value, filled by plug-ins.
class ObserverRegistry {
 public:
  /// Reads the table [observers.NAME]. Throws JobError for wrong settings.
  using Builder = std::function<ObserverFactory(const JobTable& table)>;

  /// Throws JobError if `name` is already registered. `description` is a line for a person, `origin` the file of a
  /// plug-in.
  void add(std::string name, std::string description, Builder builder, std::string origin);
  /// Reads `observers` of a job's top level. Throws JobError at the place of an unknown name.
  [[nodiscard]] std::vector<NamedObserver> read(const JobTable& root) const;

  struct Listing {
    std::string name;
    std::string description;
    std::string origin;
  };
  /// Returns all observers, sorted by name.
  [[nodiscard]] std::vector<Listing> list() const;

 private:
  struct Entry {
    std::string description;
    Builder builder;
    std::string origin;
  };
  std::map<std::string, Entry> entries_;
};

}  // namespace maestro
