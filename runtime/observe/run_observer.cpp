// SPDX-License-Identifier: Apache-2.0
#include "runtime/observe/run_observer.hpp"

#include <utility>

#include "runtime/core/nearest_name.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/core/result.hpp"

namespace maestro {

namespace {
constexpr const char* key = "observers";
}  // namespace

void ObserverRegistry::add(std::string name, std::string description, Builder builder, std::string origin) {
  if (const auto there = entries_.find(name); there != entries_.end()) {
    throw JobError("observer '" + name + "' is registered twice, by " + there->second.origin + " and by " + origin +
                   "; choose another name");
  }
  entries_.emplace(std::move(name), Entry{std::move(description), std::move(builder), std::move(origin)});
}

std::vector<NamedObserver> ObserverRegistry::read(const JobTable& root) const {
  std::vector<NamedObserver> observers;
  const JobTable tables =
      root.table(key, {"observers of the run, which plug-ins have: a table [observers.NAME] for each"});
  if (!root.has(key)) return observers;
  for (const std::string& name : tables.keys()) {
    if (!tables.holds_table(name)) {
      tables.fail(name, "is not a table; use [observers.NAME] with the settings of an observer");
    }
    const auto found = entries_.find(name);
    if (found != entries_.end()) {
      observers.push_back({name, found->second.builder(tables.table(name))});
      continue;
    }
    std::vector<std::string> names;
    for (const auto& [known, entry] : entries_) names.push_back(known);
    const auto nearest = nearest_name(name, names);
    std::string all;
    for (const std::string& known : names) all += (all.empty() ? "there are " : ", ") + known;
    tables.fail(name, "there is no observer '" + printable(name) + "'; " +
                          (nearest       ? "did you mean '" + *nearest + "'?"
                           : all.empty() ? "none is registered: plug-ins of the job add observers"
                                         : all));
  }
  return observers;
}

std::vector<ObserverRegistry::Listing> ObserverRegistry::list() const {
  std::vector<Listing> listing;
  for (const auto& [name, entry] : entries_) listing.push_back({name, entry.description, entry.origin});
  return listing;
}

}  // namespace maestro
