// SPDX-License-Identifier: Apache-2.0
// `maestro data DIR`: what a folder of prepared data holds.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <vector>

#include "apps/maestro/commands.hpp"
#include "apps/maestro/data/prepared_lines.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/dataset/prepared_data.hpp"
#include "runtime/observe/printed_line.hpp"
#include "runtime/tokenizer/tokenizer.hpp"

namespace maestro {

namespace {

struct DataArguments {
  std::string folder;
  std::string split = "train";
  std::uint64_t show = 0;
  std::uint64_t first = 0;
  bool verify = false;
};

std::vector<PreparedShardFile> open_shards(const std::filesystem::path& folder, const PreparedIndex& index,
                                           bool train) {
  std::vector<PreparedShardFile> shards;
  for (const PreparedShard& shard : train ? index.train : index.validation) {
    shards.push_back(PreparedShardFile::open(folder, shard, index.conversations).value_or_throw());
  }
  return shards;
}

std::string length_line(const std::vector<PreparedShardFile>& shards) {
  std::vector<std::int64_t> lengths;
  for (const PreparedShardFile& shard : shards) {
    for (std::uint64_t at = 0; at < shard.documents(); ++at) lengths.push_back(shard.begin(at + 1) - shard.begin(at));
  }
  if (lengths.empty()) return "";
  std::ranges::sort(lengths);
  std::string line = "  tokens of a document:";
  constexpr std::pair<const char*, double> quantiles[] = {{"least", 0.0}, {"10%", 0.1},  {"half", 0.5},
                                                          {"90%", 0.9},   {"99%", 0.99}, {"most", 1.0}};
  for (const auto& [name, share] : quantiles) {
    const auto at = static_cast<std::size_t>(share * static_cast<double>(lengths.size() - 1));
    line += " " + std::string(name) + " " + std::to_string(lengths[at]) + (share < 1 ? "," : "\n");
  }
  return line;
}

/// Returns tokens as text; a run of image tokens is followed by its length.
std::string text_of(std::span<const std::int32_t> tokens, const Tokenizer& tokenizer, const PreparedIndex& index) {
  if (!index.images) return tokenizer.decode(tokens);
  const auto stands_for_row = [&](std::int32_t token) {
    return token == index.images->image_token || (index.images->sound_token && token == *index.images->sound_token);
  };
  std::string text;
  for (std::size_t first = 0; first < tokens.size();) {
    std::size_t end = first + 1;
    const bool run = stands_for_row(tokens[first]);
    while (end < tokens.size() && (run ? tokens[end] == tokens[first] : !stands_for_row(tokens[end]))) ++end;
    text += tokenizer.decode(tokens.subspan(first, run ? 1 : end - first));
    if (run) text += " (" + std::to_string(end - first) + " times)";
    first = end;
  }
  return text;
}

/// Returns a document's text, with » and « around the learned parts.
std::string marked(const PreparedShardFile& shard, std::uint64_t document, const Tokenizer& tokenizer,
                   const PreparedIndex& index) {
  const std::int64_t begin = shard.begin(document);
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(shard.begin(document + 1) - begin));
  shard.read(begin, tokens);
  const std::span<const std::uint8_t> learned = shard.learned(begin, std::ssize(tokens));
  if (learned.empty()) return text_of(tokens, tokenizer, index);
  std::string text;
  for (std::size_t first = 0; first < tokens.size();) {
    std::size_t end = first;
    while (end < tokens.size() && learned[end] == learned[first]) ++end;
    const std::string part = text_of(std::span(tokens).subspan(first, end - first), tokenizer, index);
    text += learned[first] != 0 ? "\u00bb" + part + "\u00ab" : part;
    first = end;
  }
  return text;
}

int run_data(const DataArguments& arguments, Console& console) {
  const PreparedIndex index = read_prepared_index(arguments.folder).value_or_throw();
  const std::vector<PreparedShardFile> shards = open_shards(arguments.folder, index, arguments.split == "train");
  console.text(prepared_lines(index) + "\n" + length_line(shards));
  if (arguments.verify) {
    for (const auto* list : {&index.train, &index.validation}) {
      for (const PreparedShard& shard : *list)
        verify_prepared_shard(arguments.folder, shard, index.conversations).or_throw();
    }
    console.note("  all checksums are right");
  }
  const std::filesystem::path own = std::filesystem::path(arguments.folder) / prepared_tokenizer_folder;
  const auto tokenizer = make_prepared_tokenizer(std::filesystem::exists(own) ? own.string() : "bytes", index.images);
  if (const std::string begin = spelled_begin_of_text(*tokenizer);
      !begin.empty() && index.holds_texts() && !index.begin_of_text()) {
    console.note("  texts       begin without " + printable(begin) + ": an older version prepared them");
  }
  std::uint64_t skipped = 0, shown = 0;
  for (const PreparedShardFile& shard : shards) {
    for (std::uint64_t at = 0; at < shard.documents() && shown < arguments.show; ++at) {
      if (skipped++ < arguments.first) continue;
      const auto source = static_cast<std::size_t>(shard.source(at));
      const std::string from = source < index.sources.size() ? index.sources[source].path : "?";
      PrintedLine() << "--- document " << skipped - 1 << ", " << shard.begin(at + 1) - shard.begin(at) << " tokens, of "
                    << from;
      print_foreign_text(marked(shard, at, *tokenizer, index) + "\n");
      ++shown;
    }
  }
  std::cout.flush();
  return std::cout ? 0 : 1;
}

}  // namespace

void add_data(Commands& commands) {
  const auto [command, arguments] = commands.add("data", "show what a folder of prepared data holds", run_data);
  command.add_option("folder", arguments.folder, "a folder of `maestro prepare`")->required();
  command.add_option("--show", arguments.show,
                     "print so many documents, with the learned parts between \u00bb and \u00ab");
  command.add_option("--first", arguments.first, "the number of the first document to print (default: 0)");
  command.add_option("--split", arguments.split, "split of the documents: train (default) or validation")
      ->transform(CLI::IsMember({"train", "validation"}));
  command.add_flag("--verify", arguments.verify, "compare the checksums of all shards");
}

}  // namespace maestro
