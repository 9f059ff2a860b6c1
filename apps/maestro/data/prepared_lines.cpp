// SPDX-License-Identifier: Apache-2.0
#include "apps/maestro/data/prepared_lines.hpp"

#include <cmath>

#include "runtime/core/printable.hpp"

namespace maestro {

namespace {

constexpr std::size_t sources_listed = 10;

std::string split_line(const std::string& name, const std::vector<PreparedShard>& shards, const PreparedIndex& index) {
  PreparedShard sum;
  for (const PreparedShard& shard : shards) {
    sum.documents += shard.documents;
    sum.tokens += shard.tokens;
    sum.learned += shard.learned;
  }
  std::string line = "  " + name + std::to_string(sum.documents) +
                     (index.conversations ? " conversations, " : " documents, ") + std::to_string(sum.tokens) +
                     " tokens in " + std::to_string(shards.size()) + (shards.size() == 1 ? " shard" : " shards");
  if (!index.conversations || sum.tokens == 0) return line;
  const double share = 100.0 * static_cast<double>(sum.learned) / static_cast<double>(sum.tokens);
  return line + ", " + number_text(std::round(share * 10) / 10) + "% learned";
}

}  // namespace

std::string prepared_lines(const PreparedIndex& index) {
  std::string text;
  for (std::size_t at = 0; at < index.sources.size() && at < sources_listed; ++at) {
    const PreparedSource& source = index.sources[at];
    text += "  source      " + printable(source.path) + " (" + printable(source.format) +
            "): " + std::to_string(source.documents) + " documents\n";
  }
  if (index.sources.size() > sources_listed) {
    text += "  source      and " + std::to_string(index.sources.size() - sources_listed) + " more\n";
  }
  text += "  tokenizer   " + printable(index.tokenizer) + ": " + std::to_string(index.vocabulary) + " tokens\n";
  if (index.images) {
    text += "  processor   " + printable(index.images->description()) + ", " +
            std::to_string(index.images->containers.size()) + " folders or files with images or sounds\n";
  }
  const std::string begin = index.begin_of_text().value_or("");
  if (index.holds_texts() && !begin.empty()) text += "  texts       begin with " + printable(begin) + "\n";
  text += split_line("training    ", index.train, index) + "\n" + split_line("validation  ", index.validation, index);
  for (const auto& [name, count] : index.counts) {
    if (name != "rows")
      text +=
          "\n  " + printable(name) + std::string(name.size() < 12 ? 12 - name.size() : 1, ' ') + std::to_string(count);
  }
  return text;
}

}  // namespace maestro
