// SPDX-License-Identifier: Apache-2.0
#include "runtime/data/corpus_registry.hpp"

#include <algorithm>
#include <utility>

#include "runtime/core/result.hpp"

namespace maestro {

void CorpusRegistry::add(std::string kind, std::string description, Opener opener, std::string origin) {
  const auto there = entries_.find(kind);
  const bool own = std::ranges::find(data_kind_names, kind) != data_kind_names.end();
  if (own || there != entries_.end()) {
    throw JobError("data kind '" + kind + "' is registered twice, by " + (own ? "this program" : there->second.origin) +
                   " and by " + origin + "; choose another name");
  }
  entries_.emplace(std::move(kind), Entry{std::move(description), std::move(opener), std::move(origin)});
}

std::unique_ptr<Corpus> CorpusRegistry::open(const JobTable& data, std::uint64_t seed) const {
  if (!data.holds_text("kind")) return nullptr;
  const auto found = entries_.find(data.text("kind", {}));
  return found == entries_.end() ? nullptr : found->second.opener(data, seed);
}

std::vector<CorpusRegistry::Listing> CorpusRegistry::list() const {
  std::vector<Listing> listing;
  for (const auto& [kind, entry] : entries_) listing.push_back({kind, entry.description, entry.origin});
  return listing;
}

}  // namespace maestro
