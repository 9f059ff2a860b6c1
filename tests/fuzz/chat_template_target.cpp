// SPDX-License-Identifier: Apache-2.0
// Chat templates under fuzz: the source is parsed and renders conversations.
#include <array>

#include "fuzz_target.hpp"
#include "runtime/chat/chat_template.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace maestro;
  static const std::array<ChatMessage, 4> messages{
      ChatMessage{"system", "Be \"brief\"."}, {"user", " Hi\n"}, {"assistant", "H\xc3\xa9llo <b>"}, {"user", "1 + 1?"}};
  fuzz::accepts([&] {
    const ChatTemplate chat(fuzz::text_of(data, size), "chat_template.jinja");
    fuzz::accepts([&] { static_cast<void>(chat.render_text(messages, {"<s>", "</s>"})); });
    fuzz::accepts([&] { static_cast<void>(chat.render_text(std::span(messages).last(1), {})); });
  });
  return 0;
}
