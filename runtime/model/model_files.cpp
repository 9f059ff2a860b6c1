// SPDX-License-Identifier: Apache-2.0
#include "runtime/model/model_files.hpp"

#include <algorithm>
#include <array>
#include <span>

#include "runtime/core/hub_cache.hpp"
#include "runtime/core/json_text.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/core/utf8.hpp"
#include "runtime/files/posix_file.hpp"
#include "runtime/model/hf_generation.hpp"
#include "runtime/tokenizer/tokenizer.hpp"

namespace maestro {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t of_tokenizer = 9;  // count of tokenizer files, the first entries
constexpr std::array<std::string_view, 13> names{
    "tokenizer.json",    "tokenizer.model",        "tokenizer_config.json",    "special_tokens_map.json",
    "added_tokens.json", "chat_template.jinja",    "chat_template.json",       "merges.txt",
    "vocab.json",        "generation_config.json", "preprocessor_config.json", "processor_config.json",
    whole_model_file};

std::vector<std::string> present(const fs::path& folder, std::span<const std::string_view> wanted) {
  std::vector<std::string> found;
  std::error_code failure;
  for (const std::string_view name : wanted) {
    if (fs::is_regular_file(folder / name, failure)) found.emplace_back(name);
  }
  return found;
}

Status written(const Result<WrittenFile>& file) {
  return file ? Status() : Status(file.error());
}

/// Writes `bytes`, which are the content of `from` or derived from it.
Result<WrittenFile> write_copy(const fs::path& from, std::span<const std::byte> bytes, const fs::path& to,
                               OperationHook hook = {}) {
  Result<AtomicFile> target = AtomicFile::create(to, std::move(hook));
  if (!target) return target.error();
  if (const Status kept = target->keep_permissions(from); !kept) return kept.error();
  if (const Status copied = target->write(bytes); !copied) return copied.error();
  return target->commit();
}

/// Refuses content of another kind than the file's name implies.
Status check_content(const fs::path& file, std::string_view text) {
  const fs::path kind = file.extension();
  if (kind == ".json") {
    const auto parsed = parse_json(text, file.string());
    return parsed ? Status() : Status(parsed.error());
  }
  const bool text_file = kind == ".jinja" || kind == ".txt";
  if (!text_file || (valid_utf8_prefix(text) == text.size() && text.find('\0') == std::string_view::npos)) return {};
  return Error{ErrorCode::invalid_argument, "cannot copy " + printable(file.string()) + ": it is not UTF-8 text"};
}

Status copy_checked(const fs::path& from, const std::string& name, const fs::path& to) {
  const Result<MappedFile> source = MappedFile::open(from / name);
  if (!source) return source.error();
  const auto bytes = source->bytes();
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (const Status checked = check_content(from / name, text); !checked) return checked;
  return written(write_copy(from / name, bytes, to / name));
}

Status copy_generation_config(const fs::path& from, const fs::path& to) {
  const fs::path source = from / generation_config_file;
  const Result<std::string> text = read_text(source);
  if (!text) return text.error();
  const Result<std::string> savable = savable_generation_config(*text, source.string());
  if (!savable) return savable.error();
  return written(write_copy(source, std::as_bytes(std::span(*savable)), to / generation_config_file));
}

Status write_byte_tokenizer(bool end, const fs::path& folder) {
  const Status tokens = written(write_file(folder / "tokenizer.json", byte_tokenizer_json(end)));
  if (!tokens) return tokens;
  const std::string special = end ? ",\n  \"eos_token\": \"<|end|>\",\n  \"pad_token\": \"<|end|>\"" : "";
  return written(write_file(folder / "tokenizer_config.json",
                            "{\n  \"tokenizer_class\": \"PreTrainedTokenizerFast\",\n"
                            "  \"clean_up_tokenization_spaces\": false" +
                                special + "\n}\n"));
}

/// Copies a tokenizer file under the name that transformers expects.
Status copy_renamed(const fs::path& file, const fs::path& folder) {
  return written(copy_model_file(file, folder / (file.extension() == ".model" ? "tokenizer.model" : "tokenizer.json")));
}

}  // namespace

std::vector<std::string> tokenizer_files(const fs::path& folder) {
  return present(folder, std::span(names).first(of_tokenizer));
}

std::vector<std::string> model_files(const fs::path& folder) {
  return present(folder, names);
}

Result<WrittenFile> copy_model_file(const fs::path& from, const fs::path& to, OperationHook hook) {
  const Result<MappedFile> source = MappedFile::open(from);
  if (!source) return source.error();
  return write_copy(from, source->bytes(), to, std::move(hook));
}

Status copy_model_files(const fs::path& from, const std::vector<std::string>& files, const fs::path& to) {
  if (const Status inside = check_model_links(from); !inside) return inside;
  for (const std::string& name : files) {
    const Status copied =
        name == generation_config_file ? copy_generation_config(from, to) : copy_checked(from, name, to);
    if (!copied) return copied;
  }
  return {};
}

Status write_tokenizer(std::string_view tokenizer, std::int64_t vocabulary, const fs::path& folder) {
  if (tokenizer == "bytes") return write_byte_tokenizer(vocabulary > 256, folder);
  const fs::path named(tokenizer);
  std::error_code failure;
  const fs::path source = fs::is_directory(named, failure) ? named : named.parent_path();
  const std::vector<std::string> files = tokenizer_files(source);
  const bool known = source == named || std::ranges::find(files, named.filename().string()) != files.end();
  const Status copied = known ? copy_model_files(source, files, folder) : copy_renamed(named, folder);
  if (!copied) return copied;
  const bool lacks_class = fs::exists(folder / "tokenizer.json") && !fs::exists(folder / "tokenizer_config.json");
  if (!lacks_class) return {};
  return written(
      write_file(folder / "tokenizer_config.json", "{\n  \"tokenizer_class\": \"PreTrainedTokenizerFast\"\n}\n"));
}

}  // namespace maestro
