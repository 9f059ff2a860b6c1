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

Status read_settings(const fs::path& file, TokenizerConfig& config) {
  const Result<std::string> text = read_text(file);
  if (!text) return text.error();
  const auto parsed = parse_json(*text, file.string());
  if (!parsed) return parsed.error();
  try {
    const JsonNode root(*parsed, "");
    config.bos_token = token_text(root.at("bos_token"));
    config.eos_token = token_text(root.at("eos_token"));
    config.chat_template = template_text(root.at("chat_template"));
  } catch (const JobError& error) {
    return Error{error.code(), file.string() + ": " + error.what()};
  }
  config.settings_file = config.template_file = file.string();
  return {};
}

}  // namespace

Result<TokenizerConfig> read_tokenizer_config(const fs::path& folder) {
  TokenizerConfig config;
  std::error_code failure;
  const fs::path settings = folder / "tokenizer_config.json", jinja = folder / "chat_template.jinja";
  if (fs::exists(settings, failure)) {
    if (const Status read = read_settings(settings, config); !read) return read.error();
  }
  if (fs::exists(jinja, failure)) {
    Result<std::string> text = read_text(jinja);
    if (!text) return text.error();
    config.chat_template = *std::move(text);
    config.template_file = jinja.string();
  }
  return config;
}

}  // namespace maestro
