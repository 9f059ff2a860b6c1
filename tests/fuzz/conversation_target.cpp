// SPDX-License-Identifier: Apache-2.0
// Fuzz target for conversation files: every valid entry becomes tokens.
#include <sstream>

#include "fuzz_target.hpp"
#include "runtime/data/text/chat_template.hpp"
#include "runtime/data/text/conversations.hpp"
#include "runtime/tokenizer/tokenizer.hpp"

namespace maestro::fuzz {
namespace {

constexpr std::int64_t sequence = 256;

void use(const Conversation& conversation) {
  require(!conversation.turns.empty() && conversation.turns.size() % 2 == 0, "questions and answers come in pairs");
  const ByteTokenizer tokenizer;
  const std::vector<std::int64_t> patches(conversation.images.size(), 2);
  const Result<ChatTokens> chat = chat_tokens(conversation, patches, tokenizer, sequence, true);
  if (accepted(chat)) {
    require(chat->tokens.size() == chat->targets.size() && chat->learned > 0, "a conversation has targets");
    require(chat->prompt <= chat->tokens.size(), "a prompt ends before its answer");
    require(chat->turns % 2 == 0 && chat->turns > 0, "questions stay with their answers");
    require(chat->pictures <= patches.size(), "no picture is added");
    static_cast<void>(chat_answer(std::span(chat->tokens).first(chat->prompt), chat->tokens, tokenizer));
  }
  static_cast<void>(chat_question(conversation));
}

}  // namespace
}  // namespace maestro::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace maestro;
  std::istringstream text{std::string(fuzz::text_of(data, size))};
  fuzz::accepts([&] {
    parse_conversations(text, "conversations.json", [](const std::string&, const Result<Conversation>& conversation) {
      if (fuzz::accepted(conversation)) fuzz::use(*conversation);
    });
  });
  return 0;
}
