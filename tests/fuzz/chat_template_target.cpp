// SPDX-License-Identifier: Apache-2.0
// Fuzz target for chat templates: the source is parsed and renders conversations.
#include <array>

#include "fuzz_target.hpp"
#include "runtime/chat/chat_template.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace maestro;
  static const std::array<ChatMessage, 4> messages{
      ChatMessage{"system", "Be \"brief\"."},
      {"user", " Hi\n"},
      {"assistant", "H\xc3\xa9llo <b>",
       R"({"reasoning_content": "hm", "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": {"x": [1, 2.5]}}}]})"},
      {"user", "1 + 1?", R"({"content": [{"type": "text", "text": "1 + 1?"}]})"}};
  static const ChatContext context{
      .bos_token = "<s>",
      .eos_token = "</s>",
      .tools = R"([{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}])",
      .variables = R"({"enable_thinking": true})",
      .date = std::chrono::sys_days(std::chrono::year(2026) / 5 / 28)};
  fuzz::accepts([&] {
    const ChatTemplate chat(fuzz::text_of(data, size), "chat_template.jinja");
    fuzz::accepts([&] {
      const RenderedChat made = chat.render(messages, context);
      std::size_t end = 0;
      for (const ByteRange& range : made.generated) {
        if (range.begin < end || range.end <= range.begin || range.end > made.text.size()) std::abort();
        end = range.end;
      }
    });
    fuzz::accepts([&] { static_cast<void>(chat.render_text(std::span(messages).last(1), {})); });
  });
  return 0;
}
