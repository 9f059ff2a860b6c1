// SPDX-License-Identifier: Apache-2.0
#include "runtime/tokenizer/tokenizer_config.hpp"

#include "runtime/core/input_file.hpp"
#include "runtime/core/json_value.hpp"
#include "runtime/core/printable.hpp"

namespace maestro {

namespace fs = std::filesystem;

namespace {

/// The text of a token that stands as such, or as an object with its content.
std::string token_text(const JsonValue& node) {
  return node.json().is_object() ? node.find("content").text() : node.text("");
}

std::string template_text(const JsonValue& node) {
  if (!node.json().is_array()) return node.text("");
  std::string names;
  for (const JsonValue& each : node.items()) {
    const std::string name = each.find("name").text();
    if (name == "default") return each.find("template").text();
    names += (names.empty() ? "" : ", ") + printable(name);
  }
  node.fail("no template has the name default, only: " + printable(names));
}

/// Passes the content of a file to `read`; a missing file is passed over.
template <class Read>
Status read_settings(const fs::path& file, const Read& read) {
  std::error_code failure;
  if (!fs::exists(file, failure)) return {};
  const Result<std::string> text = read_text(file);
  if (!text) return text.error();
  const Result<bool> done = read_json(*text, file.string(), ErrorCode::corrupt, [&](const JsonValue& root) {
    read(root);
    return true;
  });
  return done ? Status() : Status(done.error());
}

}  // namespace

Result<TokenizerConfig> read_tokenizer_config(const fs::path& folder) {
  TokenizerConfig config;
  std::error_code failure;
  const fs::path settings = folder / "tokenizer_config.json", jinja = folder / "chat_template.jinja";
  const Status read = read_settings(settings, [&](const JsonValue& root) {
    config.bos_token = token_text(root.find("bos_token"));
    config.eos_token = token_text(root.find("eos_token"));
    config.chat_template = template_text(root.find("chat_template"));
    config.settings_file = config.template_file = settings.string();
  });
  if (!read) return read.error();
  if (fs::exists(jinja, failure)) {
    Result<std::string> text = read_text(jinja);
    if (!text) return text.error();
    config.chat_template = *std::move(text);
    config.template_file = jinja.string();
  }
  for (const char* name : {"processor_config.json", "chat_template.json"}) {  // of a vision-language model
    if (!config.chat_template.empty()) break;
    const Status given = read_settings(folder / name, [&](const JsonValue& root) {
      config.chat_template = template_text(root.find("chat_template"));
      if (!config.chat_template.empty()) config.template_file = (folder / name).string();
    });
    if (!given) return given.error();
  }
  return config;
}

Result<TextEnds> read_text_ends(const fs::path& folder, TextEnds absent) {
  TextEnds ends = absent;
  const Status read = read_settings(folder / "tokenizer_config.json", [&](const JsonValue& root) {
    ends = {root.find("add_bos_token").flag(absent.begin), root.find("add_eos_token").flag(absent.end),
            token_text(root.find("bos_token")), token_text(root.find("eos_token"))};
  });
  if (!read) return read.error();
  return ends;
}

}  // namespace maestro
