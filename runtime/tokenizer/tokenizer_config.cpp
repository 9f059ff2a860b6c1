// SPDX-License-Identifier: Apache-2.0
#include "runtime/tokenizer/tokenizer_config.hpp"

#include "runtime/core/input_file.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/tokenizer/json_node.hpp"

namespace maestro {

namespace fs = std::filesystem;

namespace {

/// The text of a token that stands as such, or as an object with its content.
std::string token_text(const JsonNode& node) {
  return node.value().is_object() ? node.at("content").text() : node.text("");
}

std::string template_text(const JsonNode& node) {
  if (!node.value().is_array()) return node.text("");
  std::string names;
  for (const JsonNode& each : node.list()) {
    const std::string name = each.at("name").text();
    if (name == "default") return each.at("template").text();
    names += (names.empty() ? "" : ", ") + printable(name);
  }
  node.fail("has no template of the name default, only: " + printable(names));
}

/// Passes the content of a file to `read`; a missing file is passed over.
template <class Read>
Status read_settings(const fs::path& file, const Read& read) {
  std::error_code failure;
  if (!fs::exists(file, failure)) return {};
  const Result<std::string> text = read_text(file);
  if (!text) return text.error();
  const auto parsed = parse_json(*text, file.string());
  if (!parsed) return parsed.error();
  try {
    read(JsonNode(*parsed, ""));
  } catch (const JobError& error) {
    return Error{error.code(), file.string() + ": " + error.what()};
  }
  return {};
}

}  // namespace

Result<TokenizerConfig> read_tokenizer_config(const fs::path& folder) {
  TokenizerConfig config;
  std::error_code failure;
  const fs::path settings = folder / "tokenizer_config.json", jinja = folder / "chat_template.jinja";
  const Status read = read_settings(settings, [&](const JsonNode& root) {
    config.bos_token = token_text(root.at("bos_token"));
    config.eos_token = token_text(root.at("eos_token"));
    config.chat_template = template_text(root.at("chat_template"));
    config.settings_file = config.template_file = settings.string();
  });
  if (!read) return read.error();
  if (fs::exists(jinja, failure)) {
    Result<std::string> text = read_text(jinja);
    if (!text) return text.error();
    config.chat_template = *std::move(text);
    config.template_file = jinja.string();
  }
  return config;
}

Result<TextEnds> read_text_ends(const fs::path& folder, TextEnds absent) {
  TextEnds ends = absent;
  const Status read = read_settings(folder / "tokenizer_config.json", [&](const JsonNode& root) {
    ends = {root.at("add_bos_token").flag(absent.begin), root.at("add_eos_token").flag(absent.end),
            token_text(root.at("bos_token")), token_text(root.at("eos_token"))};
  });
  if (!read) return read.error();
  return ends;
}

}  // namespace maestro
