// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "runtime/core/input_file.hpp"
#include "runtime/tokenizer/bpe.hpp"
#include "runtime/tokenizer/tokenizer.hpp"

namespace maestro {

using nlohmann::ordered_json;

std::string byte_tokenizer_json(bool end) {
  const ordered_json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
  ordered_json vocabulary = ordered_json::object();
  for (const std::string& character : byte_alphabet()) vocabulary.push_back({character, vocabulary.size()});
  ordered_json added = ordered_json::array();
  if (end) {
    added.push_back({{"id", 256},
                     {"content", "<|end|>"},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  const ordered_json tokenizer = {{"version", "1.0"},
                                  {"truncation", nullptr},
                                  {"padding", nullptr},
                                  {"added_tokens", std::move(added)},
                                  {"normalizer", nullptr},
                                  {"pre_tokenizer", byte_level},
                                  {"post_processor", nullptr},
                                  {"decoder", byte_level},
                                  {"model",
                                   {{"type", "BPE"},
                                    {"dropout", nullptr},
                                    {"unk_token", nullptr},
                                    {"continuing_subword_prefix", nullptr},
                                    {"end_of_word_suffix", nullptr},
                                    {"fuse_unk", false},
                                    {"byte_fallback", false},
                                    {"vocab", std::move(vocabulary)},
                                    {"merges", ordered_json::array()}}}};
  return tokenizer.dump(2) + "\n";
}

bool is_byte_tokenizer(const std::filesystem::path& file) {
  constexpr std::size_t longest = 16384;  // bytes; the texts have about 6,000
  const Result<std::string> text = read_text(file, longest);
  return text && (*text == byte_tokenizer_json(false) || *text == byte_tokenizer_json(true));
}

}  // namespace maestro
