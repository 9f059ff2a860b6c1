// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "runtime/core/printable.hpp"
#include "runtime/core/result.hpp"
#include "runtime/data/corpus.hpp"
#include "runtime/data/mixed_corpus.hpp"
#include "runtime/data/synthetic/synthetic_corpus.hpp"
#include "runtime/data/synthetic/synthetic_image_corpus.hpp"
#include "runtime/data/text/prepared_corpus.hpp"
#include "runtime/data/text/text_corpus.hpp"
#include "runtime/data/text/text_files.hpp"
#include "runtime/dataset/other_tokens.hpp"
#include "runtime/dataset/prepare_once.hpp"
#include "runtime/dataset/record_format.hpp"
#include "runtime/dataset/row_files.hpp"
#include "runtime/model/hf_config.hpp"

namespace maestro {

std::int64_t Corpus::max_length() const {
  std::int64_t longest = 0;
  for (const Split split : {Split::train, Split::validation}) {
    for (std::uint64_t sample = 0; sample < samples(split); ++sample) {
      longest = std::max(longest, length(split, SampleId(sample)));
    }
  }
  return longest;
}

DataFingerprint Corpus::fingerprint() const {
  DataFingerprint made{{"training samples", std::to_string(samples(Split::train))},
                       {"validation samples", std::to_string(samples(Split::validation))},
                       {"longest sample", std::to_string(max_length())},
                       {"vocabulary", std::to_string(vocabulary())}};
  if (other() == nullptr) return made;
  for (const auto& [key, value] : other()->fingerprint()) {
    if (key.ends_with("data.processor")) made["other processor"] = value;
  }
  return made;
}

void Corpus::read(Split split, SampleId sample, std::span<std::int32_t> tokens, std::span<std::int32_t> targets) const {
  const auto length = static_cast<std::size_t>(this->length(split, sample));
  if (tokens.size() != targets.size() || tokens.size() < length) {
    throw std::invalid_argument("sample of " + std::to_string(length) + " positions read into spans of " +
                                std::to_string(tokens.size()) + " and " + std::to_string(targets.size()));
  }
  read_exact(split, sample, tokens.first(length), targets.first(length));
  std::ranges::fill(tokens.subspan(length), 0);
  std::ranges::fill(targets.subspan(length), ignored_target);
}

void Corpus::read_pictures(Split /*split*/, SampleId /*sample*/, std::span<float> pixels,
                           std::span<std::int32_t> places) const {
  if (!pixels.empty() || !places.empty()) throw std::invalid_argument("this corpus does not have images");
}

void Corpus::read_mix(Split /*split*/, SampleId /*sample*/, std::span<std::int32_t> sources,
                      std::span<float> weights) const {
  if (!sources.empty() || !weights.empty()) throw std::invalid_argument("this corpus does not mix rows of images");
}

void Corpus::read_marks(Split split, SampleId sample, std::span<std::int32_t> marks) const {
  const auto rows = static_cast<std::size_t>(length(split, sample));
  if (marks.size() != rows * mark_columns) {
    throw std::invalid_argument("marks of " + std::to_string(rows) + " positions read into a span of " +
                                std::to_string(marks.size()));
  }
  for (std::size_t at = 0; at < marks.size(); ++at) {
    const auto position = static_cast<std::int32_t>(at / mark_columns);
    marks[at] = at % mark_columns == mark_columns - 1 ? position + 1 : position;
  }
}

namespace {

SyntheticOptions synthetic_text(const DataConfig& config, std::uint64_t seed) {
  SyntheticOptions options;
  options.seed = seed;
  options.sequence = config.sequence;
  options.vocabulary = config.vocabulary;
  if (!config.lengths.empty()) options.lengths.emplace(config.lengths, config.longest);
  return options;
}

bool is_unreadable(RowFileKind kind) {
  return kind == RowFileKind::binary || kind == RowFileKind::wide_text || kind == RowFileKind::table;
}

/// Returns the first file with rows at a path of kind = "text", if a folder's rows are together larger than its plain
/// texts; nothing: a text, a folder of texts, or a missing path, which the reader of texts reports.
std::optional<std::filesystem::path> first_with_rows(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_regular_file(path, ignored)) {
    const Result<RowFileKind> kind = kind_of_rows(path);
    const bool text = !kind || (is_unreadable(*kind) && *kind != RowFileKind::table) || *kind == RowFileKind::text;
    return text ? std::nullopt : std::optional<std::filesystem::path>(path);
  }
  if (!std::filesystem::is_directory(path, ignored)) return std::nullopt;
  std::optional<std::filesystem::path> first;
  std::uintmax_t of_rows = 0, of_texts = 0;
  for (const std::filesystem::path& file : files_of_folder(path)) {
    const Result<RowFileKind> kind = kind_of_rows(file);
    if (!kind || is_unreadable(*kind)) continue;
    const bool rows = looks_like_rows(file, *kind);
    (rows ? of_rows : of_texts) += std::filesystem::file_size(file, ignored);
    if (rows && !first) first = file;
  }
  return of_rows > of_texts ? first : std::nullopt;
}

/// Notes that prepared texts, or samples cut from them, lack the tokenizer's begin-of-text tokens.
void note_begin_of_text(const PreparedCorpus& corpus, const std::function<void(const std::string&)>& note) {
  if (!note || !corpus.index().holds_texts()) return;
  const std::optional<std::string> begin = corpus.index().begin_of_text();
  if (!begin) {
    const std::string missing = spelled_begin_of_text(*make_tokenizer(corpus.own_tokenizer()));
    if (missing.empty()) return;
    return note("data: " + printable(corpus.folder().string()) + " was prepared without " + printable(missing) +
                ", which its tokenizer puts before a text; prepare it again");
  }
  if (begin->empty() || !corpus.begins_inside()) return;
  note("data: samples that begin inside a document lack " + printable(*begin) +
       ", which the tokenizer puts before a text; with packing = \"documents\" and long = \"cut\" each sample is the "
       "beginning of a document");
}

/// Notes that validation was requested, but does not have a sample.
void note_validation(const PreparedCorpus& corpus, const std::function<void(const std::string&)>& note) {
  const PreparedIndex& index = corpus.index();
  const auto wanted = index.settings.find("validation");
  if (!note || corpus.samples(Split::validation) > 0) return;
  if (index.validation.empty() && (wanted == index.settings.end() || wanted->second == "0")) return;
  const bool cut = !index.validation.empty();
  note("data: validation is skipped: " + printable(corpus.folder().string()) + " has no validation " +
       (cut ? "document with a target among its first data.sequence tokens" : "document"));
}

std::unique_ptr<PreparedCorpus> open_folder(const std::filesystem::path& folder, const DataConfig& config,
                                            const std::function<void(const std::string&)>& note) {
  auto corpus = std::make_unique<PreparedCorpus>(folder, config);
  note_begin_of_text(*corpus, note);
  note_validation(*corpus, note);
  if (note && corpus->has_images() && corpus->max_patches() == 0) {
    note("data: no sample has an image, so the sections that read images never run, and learn nothing");
  }
  return corpus;
}

/// Returns the fingerprint of a model's image processor; nothing: the folder has none.
std::optional<std::string> processor_fingerprint(const std::filesystem::path& folder, const PreparedCorpus& data) {
  if (vision_language_type(folder).empty()) return std::nullopt;
  const std::shared_ptr<const Tokenizer> tokenizer = make_tokenizer(data.own_tokenizer());
  Result<ReadingModel> model = read_reading_model(folder, tokenizer, data.index().images->resample_order);
  if (!model && model.error().code == ErrorCode::not_found) return std::nullopt;
  return std::move(model).value_or_throw().images.fingerprint();
}

/// A model that reads the data with another image processor, and the sections that read as it does.
struct OtherReader {
  std::string folder;
  std::string fingerprint;
  std::set<std::string> sections;
};

/// Finds the sections of DataConfig::readers whose model has another image processor than the data.
OtherReader find_other(const PreparedCorpus& data, const DataConfig& config) {
  OtherReader other;
  if (!data.has_images()) return other;
  for (const auto& [section, folder] : config.readers) {
    const std::optional<std::string> found = processor_fingerprint(folder, data);
    if (!found || *found == data.index().images->processor_fingerprint) continue;
    if (!other.folder.empty() && other.fingerprint != *found) {
      throw JobError("[" + *other.sections.begin() + "] and [" + section + "] both have another image processor than " +
                     "the data, " + printable(other.folder) + " and " + printable(folder) +
                     "; only one may differ from that of the data, " + printable(data.index().images->processor));
    }
    if (other.folder.empty()) other = {folder, *found, {}};
    other.sections.insert(section);
  }
  return other;
}

std::unique_ptr<PreparedCorpus> sounds_of(const PreparedCorpus& corpus, const DataConfig& config) {
  return std::make_unique<PreparedCorpus>(corpus.folder(), config, std::filesystem::path(), Modality::sound);
}

std::unique_ptr<PreparedCorpus> open_prepared(const std::filesystem::path& folder, const DataConfig& config,
                                              const std::function<void(const std::string&)>& note) {
  auto corpus = open_folder(folder, config, note);
  if (corpus->has_both()) corpus->hear_also(sounds_of(*corpus, config));
  OtherReader reader = find_other(*corpus, config);
  if (reader.folder.empty()) return corpus;
  auto other = std::make_unique<PreparedCorpus>(folder, config, reader.folder);
  corpus->read_also(std::move(other), std::move(reader.sections));
  return corpus;
}

std::unique_ptr<Corpus> open_texts(const DataConfig& config, const std::function<void(const std::string&)>& note) {
  auto corpus = std::make_unique<TextCorpus>(config);
  const std::string begin = config.begin_of_text ? spelled_begin_of_text(corpus->tokenizer()) : std::string();
  if (note && !begin.empty()) {
    note("data: samples that begin inside a text lack " + printable(begin) +
         ", which the tokenizer puts before a text; `maestro prepare` and kind = \"prepared\" with packing = "
         "\"documents\" make samples of complete documents");
  }
  return corpus;
}

std::unique_ptr<Corpus> open_mix(const DataConfig& config, const std::function<void(const std::string&)>& note) {
  std::vector<MixedPart> parts, others;
  OtherReader reader;
  for (const MixedData& part : config.mix) {
    try {
      parts.push_back({part.name, part.weight, open_folder(part.path, config, note), part.teachers});
      if (reader.folder.empty()) reader = find_other(*parts.back().corpus, config);
    } catch (const JobError& problem) {
      throw JobError("[data.mix." + printable(part.name) + "] path: " + problem.what(), problem.code());
    }
  }
  const bool images =
      std::ranges::any_of(parts, [](const MixedPart& part) { return part.corpus->index().images.has_value(); });
  if (!images && !config.processor.empty()) {
    throw JobError("[data] processor is without effect: no source in [data.mix] was prepared with images");
  }
  if (!images && config.max_bad_samples > 0) {
    throw JobError("[data] max_bad_samples is without effect: no source in [data.mix] was prepared with images");
  }
  for (const MixedPart& part : parts) {
    if (reader.folder.empty()) break;
    others.push_back(
        {part.name, part.weight, std::make_unique<PreparedCorpus>(part.corpus->folder(), config, reader.folder)});
  }
  if (std::ranges::any_of(others, [](const MixedPart& part) { return part.corpus->moves_tokens(); })) {
    for (const MixedPart& part : others) {
      if (part.corpus->has_images()) continue;
      throw JobError("[data.mix." + printable(part.name) + "] was prepared without images, but " +
                     printable(reader.folder) + " has other ids for special tokens; prepare it with --model, as the " +
                     "sources with images");
    }
  }
  std::vector<MixedPart> sounds;
  if (std::ranges::any_of(parts, [](const MixedPart& part) { return part.corpus->has_both(); })) {
    for (const MixedPart& part : parts) sounds.push_back({part.name, part.weight, sounds_of(*part.corpus, config)});
  }
  auto mixed = std::make_unique<MixedCorpus>(std::move(parts));
  if (!sounds.empty()) mixed->hear_also(std::make_unique<MixedCorpus>(std::move(sounds)));
  if (!others.empty()) mixed->read_also(std::make_unique<MixedCorpus>(std::move(others)), std::move(reader.sections));
  return mixed;
}

/// Throws for settings of rows, which plain text would silently ignore.
void refuse_settings_of_rows(const DataConfig& config) {
  if (!config.processor.empty()) {
    throw JobError("[data] processor reads conversations about images, but " + printable(config.path) +
                   " is a text; remove the key");
  }
  const bool given = config.packing != Packing::automatic || config.long_documents != LongDocuments::automatic ||
                     !config.text_column.empty() || config.max_bad_samples > 0;
  if (!given) return;
  throw JobError("[data] packing, long, field and max_bad_samples do not apply to plain text, as in " +
                 printable(config.path) + "; `maestro prepare` makes documents from it for kind = \"prepared\"");
}

ExpectedRows expected_rows(DataKind kind) {
  switch (kind) {
    case DataKind::text:
      return ExpectedRows::text;
    case DataKind::chat:
      return ExpectedRows::chat;
    case DataKind::parquet:
      return ExpectedRows::parquet;
    case DataKind::llava:
      return ExpectedRows::any;
    default:
      return ExpectedRows::webdataset;
  }
}

std::unique_ptr<Corpus> open_rows(const DataConfig& config, const std::function<void(const std::string&)>& note) {
  PrepareOptions options;
  options.inputs = {config.path};
  options.tokenizer = config.tokenizer;
  options.processor = config.processor;
  if (config.kind == DataKind::llava && config.processor.empty()) {
    options.scaled = ScaledTile{config.patch, config.image_size, config.max_image_size};
  }
  options.images = config.images;
  options.validation = config.validation_path;
  options.resample_order =
      config.resample_order == ResampleOrder::horizontal ? PassOrder::horizontal : PassOrder::pillow13;
  options.text_column = config.text_column;
  options.begin_of_text = config.begin_of_text;
  options.chat_template = config.chat_template;
  options.end_of_turn = config.end_of_turn;
  options.date = config.date;
  options.learned = config.learned;
  options.expected = expected_rows(config.kind);
  options.validation_fraction = config.validation_fraction;
  options.jobs = std::max(1U, std::thread::hardware_concurrency());
  options.max_bad = static_cast<std::uint64_t>(config.max_bad_samples);
  if (!options.processor.empty() && config.kind == DataKind::text) options.expected = ExpectedRows::any;
  return open_prepared(prepare_once(options, config.work_folder, note), config, note);
}

}  // namespace

DataKind kind_of_data(const std::string& path) {
  struct First {};  // thrown to stop reading after the first row
  std::error_code ignored;
  if (std::filesystem::exists(std::filesystem::path(path) / prepared_index_file, ignored)) return DataKind::prepared;
  const std::optional<std::filesystem::path> rows = first_with_rows(path);
  if (!rows) return DataKind::text;
  bool chat = false;
  const RowSink look = [&](Row&& row) {
    const Result<RecordFormat> format = format_of_row(row, "");
    chat = format && format->is_chat();
    throw First();
  };
  try {
    (void)read_rows(*rows, kind_of_rows(*rows).value_or_throw(), look);
  } catch (const First&) {
  }
  return chat ? DataKind::chat : DataKind::text;
}

std::unique_ptr<Corpus> open_corpus(const DataConfig& config, std::uint64_t seed,
                                    const std::function<void(const std::string&)>& note) {
  switch (config.kind) {
    case DataKind::text:
      if (!config.as_text && first_with_rows(config.path)) return open_rows(config, note);
      refuse_settings_of_rows(config);
      return open_texts(config, note);
    case DataKind::chat:
    case DataKind::parquet:
    case DataKind::webdataset:
    case DataKind::llava:
      return open_rows(config, note);
    case DataKind::prepared:
      if (!config.mix.empty()) return open_mix(config, note);
      return open_prepared(config.path, config, note);
    case DataKind::synthetic:
      return std::make_unique<SyntheticCorpus>(synthetic_text(config, seed));
    case DataKind::synthetic_images:
      break;
  }
  return std::make_unique<SyntheticImageCorpus>(
      SyntheticImageOptions{synthetic_text(config, seed), config.patch, config.image_size, config.image_share});
}

}  // namespace maestro
