// SPDX-License-Identifier: Apache-2.0
// Reads a tokenizer.json of Hugging Face's tokenizers. Every part is used or refused by name; `truncation` and
// `padding`, which transformers resets with every call, are passed over.
#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "runtime/core/input_file.hpp"
#include "runtime/core/json_value.hpp"
#include "runtime/tokenizer/text_tokenizer.hpp"
#include "runtime/tokenizer/tokenizer_content.hpp"

namespace maestro {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

constexpr std::size_t most_missing = std::size_t{1} << 16;  // ids without a token, in a small vocabulary

std::string read_filled(const JsonValue& node) {
  std::string text = node.text();
  if (text.empty()) node.expected("a text with characters");
  return text;
}

/// One character, as in Hugging Face's tokenizers: a longer replacement would make a text longer with every part.
std::string read_character(const JsonValue& node) {
  std::string text = read_filled(node);
  const auto continues = [](char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; };
  if (!std::all_of(text.begin() + 1, text.end(), continues)) node.expected("one character");
  return text;
}

/// {"Regex": expression} or {"String": literal}.
std::shared_ptr<const Pattern> read_pattern(const JsonValue& node) {
  if (const JsonValue literal = node.find("String")) return make_literal_pattern(read_filled(literal));
  const JsonValue expression = node.find("Regex");
  auto made = make_pattern(expression.text());
  if (!made) {
    const bool missing = made.error().code == ErrorCode::unavailable;
    expression.fail((missing ? "" : "no regular expression: ") + made.error().message);
  }
  return *made;
}

/// A part by its type, with the parts of a Sequence in its place.
template <class Read>
void for_parts(const JsonValue& node, std::string_view list, const Read& read) {
  if (node.null()) return;
  if (node.find("type").text() == "Sequence") {
    for (const JsonValue& part : node.find(list).items()) for_parts(part, list, read);
  } else {
    read(node);
  }
}

/// A pattern and the text in its place. The parts of a normalizer or decoder together may make a text only so much
/// longer.
class Replacements {
 public:
  template <class Made>
  Made read(const JsonValue& node) {
    constexpr std::size_t most = 4096;
    Made made{read_pattern(node.find("pattern")), node.find("content").text()};
    const std::size_t replaced = node.find("pattern").find("String").text("").size(), added = made.content.size();
    growth_ *= replaced == 0 ? added + 1 : std::max<std::size_t>(1, added / replaced + (added % replaced != 0 ? 1 : 0));
    if (growth_ > most) node.fail("it makes a text more than 4096 times as long, with the parts before it");
    return made;
  }

 private:
  std::size_t growth_ = 1;
};

// ---- normalizer ----

Normalizer read_normalizer(const JsonValue& node) {
  enum class Type { nfc, nfd, nfkc, nfkd, prepend, replace, strip };
  static const std::map<std::string, Type, std::less<>> types = {
      {"NFC", Type::nfc},         {"NFD", Type::nfd},         {"NFKC", Type::nfkc},  {"NFKD", Type::nfkd},
      {"Prepend", Type::prepend}, {"Replace", Type::replace}, {"Strip", Type::strip}};
  std::vector<Normalizer::Step> steps;
  Replacements replacements;
  for_parts(node, "normalizers", [&](const JsonValue& part) {
    switch (part.find("type").choice(types)) {
      case Type::nfc:
        return steps.emplace_back(UnicodeForm{UnicodeForm::Form::nfc}), void();
      case Type::nfd:
        return steps.emplace_back(UnicodeForm{UnicodeForm::Form::nfd}), void();
      case Type::nfkc:
        return steps.emplace_back(UnicodeForm{UnicodeForm::Form::nfkc}), void();
      case Type::nfkd:
        return steps.emplace_back(UnicodeForm{UnicodeForm::Form::nfkd}), void();
      case Type::prepend:
        return steps.emplace_back(Prepend{part.find("prepend").text()}), void();
      case Type::replace:
        return steps.emplace_back(replacements.read<Replace>(part)), void();
      case Type::strip:
        return steps.emplace_back(StripSpace{part.find("strip_left").flag(true), part.find("strip_right").flag(true)}),
               void();
    }
  });
  return Normalizer(std::move(steps));
}

// ---- pre-tokenizer ----

SplitBehavior read_behavior(const JsonValue& node) {
  static const std::map<std::string, SplitBehavior, std::less<>> behaviors = {
      {"Removed", SplitBehavior::removed},
      {"Isolated", SplitBehavior::isolated},
      {"MergedWithPrevious", SplitBehavior::merged_with_previous},
      {"MergedWithNext", SplitBehavior::merged_with_next},
      {"Contiguous", SplitBehavior::contiguous}};
  return node.choice(behaviors);
}

/// Older files have add_prefix_space in place of prepend_scheme.
Metaspace::Prepend read_prepend(const JsonValue& node) {
  static const std::map<std::string, Metaspace::Prepend, std::less<>> schemes = {
      {"never", Metaspace::Prepend::never},
      {"first", Metaspace::Prepend::first},
      {"always", Metaspace::Prepend::always}};
  if (const JsonValue scheme = node.find("prepend_scheme")) return scheme.choice(schemes);
  return node.find("add_prefix_space").flag(true) ? Metaspace::Prepend::always : Metaspace::Prepend::never;
}

struct PreTokenizerRead {
  PreTokenizer pre_tokenizer;
  bool byte_level = false;
};

PreTokenizerRead read_pre_tokenizer(const JsonValue& node) {
  enum class Type { byte_level, split, digits, punctuation, metaspace, whitespace, whitespace_split };
  static const std::map<std::string, Type, std::less<>> types = {{"ByteLevel", Type::byte_level},
                                                                 {"Split", Type::split},
                                                                 {"Digits", Type::digits},
                                                                 {"Punctuation", Type::punctuation},
                                                                 {"Metaspace", Type::metaspace},
                                                                 {"Whitespace", Type::whitespace},
                                                                 {"WhitespaceSplit", Type::whitespace_split}};
  PreTokenizerRead read;
  std::vector<PreTokenizer::Step> steps;
  for_parts(node, "pretokenizers", [&](const JsonValue& part) {
    if (read.byte_level) part.fail("it follows ByteLevel, which must be the last part");
    switch (part.find("type").choice(types)) {
      case Type::byte_level:
        read.byte_level = true;
        if (part.find("add_prefix_space").flag(true)) steps.emplace_back(PrefixSpace{});
        if (part.find("use_regex").flag(true)) steps.emplace_back(Split{make_word_pattern(word_patterns::gpt2)});
        return;
      case Type::split:
        steps.emplace_back(Split{read_pattern(part.find("pattern")), read_behavior(part.find("behavior")),
                                 part.find("invert").flag(false)});
        return;
      case Type::digits:
        steps.emplace_back(Digits{part.find("individual_digits").flag(false)});
        return;
      case Type::punctuation:
        steps.emplace_back(
            Punctuation{part.find("behavior") ? read_behavior(part.find("behavior")) : SplitBehavior::isolated});
        return;
      case Type::metaspace:
        steps.emplace_back(
            Metaspace{read_character(part.find("replacement")), read_prepend(part), part.find("split").flag(true)});
        return;
      case Type::whitespace:
        steps.emplace_back(
            Split{make_oniguruma_pattern(R"(\w+|[^\w\s]+)").value_or_throw(), SplitBehavior::removed, true});
        return;
      case Type::whitespace_split:
        steps.emplace_back(WhitespaceSplit{});
        return;
    }
  });
  read.pre_tokenizer = PreTokenizer(std::move(steps));
  return read;
}

// ---- model ----

std::pair<std::string, std::string> read_merge(const JsonValue& node) {
  if (node.json().is_array()) {
    const auto parts = node.items();
    if (parts.size() != 2) node.expected("the two parts of a merge");
    return {parts[0].text(), parts[1].text()};
  }
  const std::string text = node.text();
  const std::size_t space = text.find(' ');
  if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) {
    node.expected("the two parts of a merge with a space between them");
  }
  return {text.substr(0, space), text.substr(space + 1)};
}

void refuse_text(const JsonValue& node) {
  if (!node.text("").empty()) node.refuse("is not supported; only null is");
}

BpeOptions read_model(const JsonValue& node) {
  const JsonValue type = node.find("type");
  if (type && type.text() != "BPE") type.refuse("is not supported; BPE is");
  refuse_text(node.find("continuing_subword_prefix"));
  refuse_text(node.find("end_of_word_suffix"));
  const JsonValue dropout = node.find("dropout");
  if (dropout && dropout.json() != 0) dropout.refuse("is not supported; only null is");
  BpeOptions options;
  for (const auto& [token, id] : node.find("vocab").members()) options.vocabulary.emplace(token, token_id(id));
  for (const JsonValue& merge : node.find("merges").items()) options.merges.push_back(read_merge(merge));
  if (const JsonValue unknown = node.find("unk_token")) options.unknown = unknown.text();
  options.fuse_unknown = node.find("fuse_unk").flag(false);
  options.byte_fallback = node.find("byte_fallback").flag(false);
  options.ignore_merges = node.find("ignore_merges").flag(false);
  return options;
}

// ---- added tokens, post-processor, decoder ----

std::vector<AddedToken> read_added(const JsonValue& node, const BpeOptions& model) {
  std::vector<AddedToken> added;
  if (!node) return added;
  for (const JsonValue& entry : node.items()) {
    AddedToken token;
    token.id = token_id(entry.find("id"));
    token.content = entry.find("content").text();
    token.single_word = entry.find("single_word").flag(false);
    token.left_strip = entry.find("lstrip").flag(false);
    token.right_strip = entry.find("rstrip").flag(false);
    token.special = entry.find("special").flag(false);
    token.normalized = entry.find("normalized").flag(!token.special);
    const auto known = model.vocabulary.find(token.content);
    if (known != model.vocabulary.end() && known->second != token.id) {
      entry.find("id").refuse("differs from model.vocab, which has " + shown(token.content) + " as " +
                              std::to_string(known->second));
    }
    added.push_back(std::move(token));
  }
  return added;
}

/// The tokens around `$A` in a TemplateProcessing; ByteLevel changes no ids.
void read_post_processor(const JsonValue& node, TextTokenizerParts& parts) {
  for_parts(node, "processors", [&](const JsonValue& part) {
    const std::string type = part.find("type").text();
    if (type == "ByteLevel") return;
    if (type != "TemplateProcessing") {
      part.find("type").refuse("is not supported; these are: ByteLevel, Sequence, TemplateProcessing");
    }
    bool behind = false;
    for (const JsonValue& entry : part.find("single").items()) {
      if (entry.find("Sequence")) {
        behind = true;
        continue;
      }
      const JsonValue named = part.find("special_tokens").find(entry.find("SpecialToken").find("id").text());
      for (const JsonValue& id : named.find("ids").items())
        (behind ? parts.behind : parts.before).push_back(token_id(id));
    }
  });
}

TokenDecoder read_decoder(const JsonValue& node) {
  enum class Type { byte_level, replace, byte_fallback, fuse, strip, metaspace };
  static const std::map<std::string, Type, std::less<>> types = {{"ByteLevel", Type::byte_level},
                                                                 {"Replace", Type::replace},
                                                                 {"ByteFallback", Type::byte_fallback},
                                                                 {"Fuse", Type::fuse},
                                                                 {"Strip", Type::strip},
                                                                 {"Metaspace", Type::metaspace}};
  std::vector<TokenDecoder::Step> steps;
  Replacements replacements;
  for_parts(node, "decoders", [&](const JsonValue& part) {
    switch (part.find("type").choice(types)) {
      case Type::byte_level:
        steps.emplace_back(ByteLevelDecoder{});
        return;
      case Type::replace:
        steps.emplace_back(replacements.read<ReplaceDecoder>(part));
        return;
      case Type::byte_fallback:
        steps.emplace_back(ByteFallbackDecoder{});
        return;
      case Type::fuse:
        steps.emplace_back(FuseDecoder{});
        return;
      case Type::strip:
        steps.emplace_back(StripDecoder{read_filled(part.find("content")), part.find("start").count(INT64_MAX, 0),
                                        part.find("stop").count(INT64_MAX, 0)});
        return;
      case Type::metaspace:
        steps.emplace_back(MetaspaceDecoder{read_character(part.find("replacement")),
                                            read_prepend(part) != Metaspace::Prepend::never});
        return;
    }
  });
  return TokenDecoder(std::move(steps));
}

/// Tokens by id. Two tokens of an id are refused.
std::vector<std::string> tokens_by_id(const JsonValue& vocabulary, const BpeOptions& model,
                                      const std::vector<AddedToken>& added) {
  std::int32_t last = -1;
  for (const auto& [token, id] : model.vocabulary) last = std::max(last, id);
  for (const AddedToken& token : added) last = std::max(last, token.id);
  const std::size_t given = model.vocabulary.size() + added.size(), most = 2 * given + most_missing;
  if (static_cast<std::size_t>(last + 1) > most) {
    vocabulary.fail("the id " + std::to_string(last) + " is too large for " + std::to_string(given) +
                    " tokens; the largest can be " + std::to_string(most - 1));
  }
  std::vector<std::string> tokens(static_cast<std::size_t>(last + 1));
  const auto put = [&](const std::string& token, std::int32_t id) {
    std::string& there = tokens[static_cast<std::size_t>(id)];
    if (!there.empty() && there != token) {
      vocabulary.fail(shown(there) + " and " + shown(token) + " have the same id " + std::to_string(id));
    }
    there = token;
  };
  for (const auto& [token, id] : model.vocabulary) put(token, id);
  for (const AddedToken& token : added) put(token.content, token.id);
  return tokens;
}

TextTokenizerParts read_parts(const JsonValue& file) {
  TextTokenizerParts parts;
  BpeOptions model = read_model(file.find("model"));
  auto [pre_tokenizer, byte_level] = read_pre_tokenizer(file.find("pre_tokenizer"));
  model.byte_level = byte_level;
  parts.added = read_added(file.find("added_tokens"), model);
  parts.tokens = tokens_by_id(file.find("model").find("vocab"), model, parts.added);
  parts.normalizer = read_normalizer(file.find("normalizer"));
  parts.pre_tokenizer = std::move(pre_tokenizer);
  read_post_processor(file.find("post_processor"), parts);
  parts.decoder = read_decoder(file.find("decoder"));
  auto made = BpeModel::make(std::move(model));
  if (!made) file.fail(made.error().message);
  parts.model = *std::move(made);
  for (const auto* ids : {&parts.before, &parts.behind}) {
    for (const std::int32_t id : *ids) {
      if (static_cast<std::size_t>(id) >= parts.tokens.size())
        file.find("post_processor").fail("no token has the id " + std::to_string(id));
    }
  }
  return parts;
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> make_text_tokenizer(const json& content, const fs::path& file) {
  const std::string name = file.string();
  try {
    TextTokenizerParts parts = read_parts(JsonValue(content, name));
    parts.name = name;
    return std::unique_ptr<Tokenizer>(std::make_unique<TextTokenizer>(std::move(parts)));
  } catch (const JobError& problem) {
    return Error{problem.code(), problem.what()};
  }
}

Result<std::unique_ptr<Tokenizer>> read_tokenizer_json(const fs::path& file) {
  const Result<std::string> text = read_text(file, largest_tokenizer_file);
  if (!text) return text.error();
  const Result<json> parsed = parse_json(*text, file.string());
  if (!parsed) return parsed.error();
  return make_text_tokenizer(*parsed, file);
}

}  // namespace maestro
