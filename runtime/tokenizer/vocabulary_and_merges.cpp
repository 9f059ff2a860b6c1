// SPDX-License-Identifier: Apache-2.0
// GPT-2's pair of files as the tokenizer.json that means the same.
#include <algorithm>
#include <set>

#include "runtime/core/input_file.hpp"
#include "runtime/core/json_text.hpp"
#include "runtime/tokenizer/tokenizer_config.hpp"
#include "runtime/tokenizer/tokenizer_content.hpp"

namespace maestro {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

json list_of_merges(std::string_view text) {
  json list = json::array();
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.empty() && !line.starts_with("#version")) list.push_back(line);
  }
  return list;
}

/// Returns the post_processor that puts tokens around a text.
json post_processor(const TextEnds& ends, const json& vocabulary) {
  json single = json::array(), tokens = json::object();
  const auto add = [&](bool wanted, const char* key, const std::string& token) {
    if (!wanted) return;
    if (!vocabulary.contains(token)) {
      throw JobError(std::string("tokenizer_config.json: add_") + key + " = true needs a " + key +
                     " of the vocabulary, not " + shown(json(token)));
    }
    single.push_back({{"SpecialToken", {{"id", token}}}});
    tokens[token] = {{"ids", {vocabulary.at(token)}}};
  };
  add(ends.begin, "bos_token", ends.bos_token);
  single.push_back({{"Sequence", {{"id", "A"}}}});
  add(ends.end, "eos_token", ends.eos_token);
  return {{"type", "TemplateProcessing"}, {"single", single}, {"special_tokens", tokens}};
}

json content_of(const json& vocabulary, std::string_view merges, const TextEnds& ends) {
  json content = {{"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", list_of_merges(merges)}}},
                  {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
                  {"decoder", {{"type", "ByteLevel"}}},
                  {"added_tokens", json::array()}};
  if (!vocabulary.is_object()) return content;
  for (const std::string& token : std::set<std::string>{"<|endoftext|>", ends.bos_token, ends.eos_token}) {
    if (!vocabulary.contains(token)) continue;
    content["added_tokens"].push_back(
        {{"id", vocabulary.at(token)}, {"content", token}, {"special", true}, {"normalized", false}});
  }
  content["post_processor"] = post_processor(ends, vocabulary);
  return content;
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> read_vocabulary_and_merges(const fs::path& vocabulary) {
  const Result<std::string> text = read_text(vocabulary, largest_tokenizer_file);
  if (!text) return text.error();
  const Result<std::string> merges = read_text(vocabulary.parent_path() / "merges.txt", largest_tokenizer_file);
  if (!merges) return merges.error();
  const Result<json> parsed = parse_json(*text, vocabulary.string());
  if (!parsed) return parsed.error();
  const Result<TextEnds> ends = read_text_ends(vocabulary.parent_path(), {});
  if (!ends) return ends.error();
  try {
    return make_text_tokenizer(content_of(*parsed, *merges, *ends), vocabulary);
  } catch (const JobError& problem) {
    return Error{problem.code(), vocabulary.string() + ": " + problem.what()};
  }
}

}  // namespace maestro
