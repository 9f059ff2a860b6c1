// SPDX-License-Identifier: Apache-2.0
// Fuzz target for tokenizer files: an object is read as tokenizer.json, tokenizer_config.json, generation_config.json
// and vocab.json, any other input as tokenizer.model. An accepted tokenizer encodes and decodes some text.
#include <algorithm>
#include <cstdlib>

#include "fuzz_target.hpp"
#include "runtime/core/utf8.hpp"
#include "runtime/model/hf_tokenizer.hpp"
#include "runtime/tokenizer/text_stream.hpp"
#include "runtime/tokenizer/tokenizer.hpp"
#include "runtime/tokenizer/tokenizer_config.hpp"

namespace maestro::fuzz {
namespace {

constexpr std::string_view sample =
    "The  quick <s>fox</s>, it's 1234\n\t na\xc3\xafve \xe2\x82\xac\xf0\x9f\x98\x80 <|end|>\r\n";

void use(const Tokenizer& tokenizer) {
  const std::vector<std::int32_t> tokens = tokenizer.encode_special(sample);
  for (const std::int32_t token : tokens) {
    require(token >= 0 && token < tokenizer.vocabulary(), "a token lies in the vocabulary");
    static_cast<void>(tokenizer.piece(token));
  }
  const std::vector<std::int32_t> begin = tokenizer.encode_text(sample, true);
  const auto before = tokenizer.begin_of_text();
  require(std::ranges::mismatch(before, begin).in1 == before.end(), "a text begins as the tokenizer's file has it");
  require(begin == tokenizer.encode_text(sample, false) || begin.size() > before.size(), "the text follows");
  for (const bool skip : {false, true}) {
    const std::string text = tokenizer.decode(tokens, skip);
    require(repaired_utf8(text) == text, "decoded text is UTF-8", text);
  }
  TextStream stream(tokenizer);
  for (const std::int32_t token : tokens) static_cast<void>(stream.add(token));
  static_cast<void>(stream.finish());
  static_cast<void>(tokenizer.decode(std::vector<std::int32_t>{-1, 0, 1 << 30}));
}

void read_json(std::string_view text) {
  const ScratchFolder& folder = scratch();
  const auto file = folder.write("tokenizer.json", text);
  const auto tokenizer = read_tokenizer_json(file);
  if (accepted(tokenizer)) {
    use(**tokenizer);
    accepted(check_same_tokens(file, file, (*tokenizer)->vocabulary()));
  }
  folder.write("tokenizer_config.json", text);
  accepted(read_tokenizer_config(folder.path()));
  folder.write("generation_config.json", text);
  accepted(open_tokenizer(folder.path()));
  accepted(read_special_tokens(folder.path()));
  folder.write("merges.txt", "#version: 0.2\na b\n");
  const auto pair = read_vocabulary_and_merges(folder.write("vocab.json", text));
  if (accepted(pair)) use(**pair);
}

}  // namespace
}  // namespace maestro::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace maestro;
  const std::string_view text = fuzz::text_of(data, size);
  if (text.starts_with('{')) {
    fuzz::read_json(text);
    return 0;
  }
  const auto tokenizer = read_sentencepiece(fuzz::scratch().write("tokenizer.model", text));
  if (fuzz::accepted(tokenizer)) fuzz::use(**tokenizer);
  return 0;
}
