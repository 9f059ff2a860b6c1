// SPDX-License-Identifier: Apache-2.0
#include "runtime/dataset/prepare.hpp"

#include <algorithm>
#include <memory>
#include <optional>
#include <system_error>

#include "runtime/core/json_text.hpp"
#include "runtime/core/listed_error.hpp"
#include "runtime/core/ordered_workers.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/core/random.hpp"
#include "runtime/dataset/document_encoder.hpp"
#include "runtime/dataset/image_store.hpp"
#include "runtime/dataset/partial_folder.hpp"
#include "runtime/dataset/record_format.hpp"
#include "runtime/dataset/row_files.hpp"
#include "runtime/dataset/shard_writer.hpp"
#include "runtime/model/hf_tokenizer.hpp"
#include "runtime/model/model_files.hpp"

namespace maestro {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t batch_bytes = std::size_t{1} << 18;
constexpr std::size_t bad_rows_listed = 20;
constexpr std::size_t files_listed = 3;
constexpr std::size_t shortest_document = 2;  // tokens: an input and its target

/// Consecutive rows of a file.
struct Batch {
  fs::path file;
  std::int32_t source = 0;
  double validation = 0;                       // share
  std::shared_ptr<const RecordFormat> format;  // null for texts, and for rows that are not objects
  std::vector<Row> rows;
  std::size_t bytes = 0;
};

/// The images of a row, with their plans.
struct EncodedImages {
  std::vector<RowImage> images;
  std::vector<PreparedImage> prepared;
};

struct EncodedDocument {
  bool validation = false;
  Document document;
  std::size_t row = 0;  // place in Encoded::images
};

struct Encoded {
  std::int32_t source = 0;
  std::size_t bytes = 0;
  std::uint64_t rows = 0;
  std::uint64_t empty = 0;
  std::uint64_t turn_by_turn = 0;
  RowNotes notes;
  std::vector<EncodedDocument> documents;
  std::vector<EncodedImages> images;  // of rows with documents
  std::vector<std::string> bad;       // one line each
};

/// What the rows of a batch have in common.
struct RowContext {
  const RecordFormat* format;
  const DocumentEncoder& encoder;
  double validation;  // share
  fs::path file;
  fs::path images;  // folder
};

/// Returns a number in [0, 1) that depends only on the content (FNV-1a, mixed).
double share_of(const Record& record, const EncodedImages& images) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  const auto add = [&](std::string_view text) {
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    hash = mix64(hash, text.size());
  };
  add(record.text);
  for (const ChatMessage& message : record.messages) {
    add(message.role);
    add(message.content);
    if (!message.fields.empty()) add(message.fields);
  }
  for (const std::string* part : {&record.tools, &record.variables}) {
    if (!part->empty()) add(*part);
  }
  for (const std::size_t message : record.unlearned) hash = mix64(hash, message);
  for (const PreparedImage& image : images.prepared) {
    for (const std::int64_t part : {image.bytes, image.size.width, image.size.height}) {
      hash = mix64(hash, static_cast<std::uint64_t>(part));
    }
  }
  return static_cast<double>(mix64(hash) >> 11) * 0x1p-53;
}

Result<Record> record_of(Row& row, const RecordFormat* format) {
  if (!row.json) {
    Record text;
    text.text = row.content;
    text.continues = row.continues;
    text.continued = row.continued;
    return text;
  }
  Result<nlohmann::json> value = parse_json(row.content, row.where);
  if (!value) return value.error();
  Result<Record> record = format != nullptr ? format->read(*value, row.content, std::move(row.media))
                                            : RecordFormat::of(*value, "").error();
  if (!record) return Error{record.error().code, printable(row.where) + ": " + record.error().message};
  return record;
}

/// A record's images, with the plans that their text needs.
struct PlannedImages {
  EncodedImages encoded;
  std::vector<ImagePlan> plans;
};

Result<PlannedImages> plan_images(Record& record, const RowContext& context) {
  PlannedImages made;
  if (context.encoder.images() == nullptr) return made;
  const MediaProcessor& processor = context.encoder.images()->processor;
  for (const RowImage& image : record.images) {
    const std::string noun(medium_of(image.modality).noun);
    const std::int64_t count = std::ranges::count(record.images, image.modality, &RowImage::modality);
    const Result<FoundImage> found = find_image(image, context.images, context.file, processor.media());
    if (!found) return Error{found.error().code, noun + " " + found.error().message};
    Result<ImagePlan> plan = processor.plan(found->size, count, image.modality);
    if (!plan && image.modality == Modality::sound && !image.name.empty()) {
      return Error{plan.error().code, printable(image.name) + " is " + plan.error().message};
    }
    if (!plan) return plan.error();
    made.encoded.prepared.push_back({static_cast<std::int64_t>(found->bytes), found->size, count,
                                     std::ssize(plan->tiles), plan->encoder_rows, plan->visual_rows});
    made.plans.push_back(*std::move(plan));
  }
  made.encoded.images = std::exchange(record.images, {});
  return made;
}

void encode_row(Row& row, const RowContext& context, Encoded& made) {
  ++made.rows;
  const auto bad = [&](const std::string& reason) { made.bad.push_back(printable(row.where) + ": " + reason); };
  Result<Record> record = record_of(row, context.format);
  if (!record) return made.bad.push_back(record.error().message);
  if (record->messages.empty() && record->text.empty()) {
    ++made.empty;
    return;
  }
  Result<PlannedImages> images = plan_images(*record, context);
  if (!images) return bad(images.error().message);
  made.notes.set_row(printable(row.where));
  Result<std::vector<Document>> documents = context.encoder.encode(*record, made.notes, images->plans);
  if (!documents) return bad(documents.error().message);
  for (const RowNote repair : record->repairs) made.notes.add(repair, "", "the row");
  made.turn_by_turn += documents->size() > 1 ? 1 : 0;
  const bool kept = share_of(*record, images->encoded) < context.validation;
  for (Document& document : *documents) {
    if (document.tokens.size() < shortest_document) {
      ++made.empty;
    } else {
      made.documents.push_back({kept, std::move(document), made.images.size()});
    }
  }
  made.images.push_back(std::move(images->encoded));
}

bool is_object(const Row& row) {
  const Result<nlohmann::json> value = parse_json(row.content, row.where);
  return value && value->is_object();
}

/// Returns advice for a message about a first row that is refused for `reason`.
std::string way_to_rows(const Row& row, const std::string& reason) {
  const std::size_t end = row.content.find('\r');
  if (end != row.content.npos && row.content.find_first_not_of('\r', end) != row.content.npos) {
    return "; lines that end only with CR are a single line, convert them to end with a line feed";
  }
  if (!row.content.starts_with('{') || reason.find("unexpected end of input") == reason.npos) return "";
  return "; a row is one line; objects over several lines are read from a list, [OBJECT, OBJECT]";
}

/// Returns advice for a message about a file without an ending of JSON: it may be a text.
std::string way_to_text(const fs::path& file) {
  if (is_json_file(file) || is_data_file(file)) return "";
  return "; a text that begins with { or [ is read as JSON unless as_text = true (--as-text) is given";
}

/// A running preparation.
class Preparation {
 public:
  Preparation(const PrepareOptions& options, fs::path folder, const PrepareCalls& calls)
      : options_(options), folder_(std::move(folder)), calls_(calls), encoder_(options), store_(folder_) {
    index_.tokenizer = options.tokenizer.empty() ? "bytes" : options.tokenizer;
    index_.tokenizer_fingerprint = encoder_.tokenizer().fingerprint();
    index_.vocabulary = encoder_.tokenizer().vocabulary();
    index_.settings = {
        {"template", options.chat_template},
        {"learn", std::string(name_of(options.learned))},
        {"validation", prompts_only()               ? std::string("0")
                       : options.validation.empty() ? number_text(options.validation_fraction)
                                                    : options.validation.string()},
        {"end of turn", options.end_of_turn},
        {"field", options.text_column},
        {begin_of_text_setting, options.begin_of_text ? spelled_begin_of_text(encoder_.tokenizer()) : std::string()}};
    if (const ImageModel* images = encoder_.images()) {
      index_.images = PreparedImages{options.processor.string(),
                                     images->fingerprint(),
                                     options.resample_order,
                                     images->expander.image_token(),
                                     {},
                                     options.scaled,
                                     images->expander.sound_token()};
    }
    index_.settings.insert(encoder_.template_settings().begin(), encoder_.template_settings().end());
  }

  PreparedIndex run() {
    OrderedWorkers<Batch, Encoded> workers(
        std::max<std::size_t>(options_.jobs, 1), [this](Batch batch) { return encode(std::move(batch)); },
        [this](Encoded made) { keep(std::move(made)); });
    const std::vector<fs::path> files = row_files(options_.inputs);
    check_images(files);
    for (const fs::path& file : files) read_file(file, false, workers);
    if (!options_.validation.empty()) {
      for (const fs::path& file : row_files({options_.validation})) read_file(file, true, workers);
    }
    workers.finish();
    if (bad_ > options_.max_bad) throw_too_many_bad();
    if (!left_out_.empty()) report_left_out();
    finish_shards();
    return std::move(index_);
  }

 private:
  /// Reads the rows of a file, for validation only if `validates`.
  void read_file(const fs::path& file, bool validates, OrderedWorkers<Batch, Encoded>& workers);
  [[nodiscard]] ImagesOfRows images_of_rows() const {
    if (encoder_.images() == nullptr) return ImagesOfRows::refused;
    const MediaProcessor& processor = encoder_.images()->processor;
    if (processor.media().size() > 1) return ImagesOfRows::both;
    if (processor.sounds() != nullptr) return ImagesOfRows::sounds;
    return options_.scaled ? ImagesOfRows::spaced : ImagesOfRows::placed;
  }
  /// Throws if a folder of images is given, and all images are in archives.
  void check_images(const std::vector<fs::path>& files) const;
  /// Returns the format of the file's rows, by its first row; null for a text.
  std::shared_ptr<const RecordFormat> format_of(const Row& row, RowFileKind kind, const fs::path& file);
  void expect(bool chat, const Row& row);
  [[nodiscard]] bool prompts_only() const { return options_.learned == LearnedAnswers::none; }
  [[nodiscard]] Encoded encode(Batch batch) const;
  void keep(Encoded made);
  void keep_images(const Encoded& made, const EncodedDocument& document, std::vector<ImagePlace>& places);
  [[nodiscard]] fs::path folder_of_images(const fs::path& file) const {
    return options_.images.empty() ? file.parent_path() / "images" : options_.images;
  }
  void finish_shards();
  [[nodiscard]] ShardWriter writer(const char* split) const {
    ShardWriterOptions made{folder_, split, index_.vocabulary, index_.conversations};
    made.images = index_.images.has_value();
    made.sounds = made.images && index_.images->sound_token.has_value();
    if (made.images) made.vocabulary = std::max<std::int64_t>(made.vocabulary, index_.images->image_token + 1);
    return ShardWriter(std::move(made));
  }
  [[noreturn]] void throw_too_many_bad() const;
  void report_left_out() const;
  void report_template() const;

  const PrepareOptions& options_;
  fs::path folder_;
  const PrepareCalls& calls_;
  DocumentEncoder encoder_;
  ImageStore store_;
  PreparedIndex index_;
  std::optional<ShardWriter> train_;
  std::optional<ShardWriter> validation_;
  PrepareProgress progress_;
  RowNotes notes_;
  std::vector<std::string> bad_lines_;
  std::uint64_t bad_ = 0;
  std::vector<std::string> left_out_;
};

void Preparation::read_file(const fs::path& file, bool validates, OrderedWorkers<Batch, Encoded>& workers) {
  const RowFileKind kind = kind_of_rows(file, options_.as_text).value_or_throw();
  const bool named = file == options_.validation || std::ranges::find(options_.inputs, file) != options_.inputs.end();
  if (kind == RowFileKind::binary && !named) return left_out_.push_back(file.string());
  const bool other = (options_.expected == ExpectedRows::webdataset && kind != RowFileKind::webdataset) ||
                     (options_.expected == ExpectedRows::parquet && kind != RowFileKind::parquet);
  if (other) {
    throw JobError(printable(file.string()) + " is not a " +
                   (options_.expected == ExpectedRows::parquet ? "Parquet file" : "tar archive") + ", but " +
                   std::string(name_of(kind)) + "; kind = \"chat\" and kind = \"text\" read all of these");
  }
  const auto source = static_cast<std::int32_t>(index_.sources.size());
  std::error_code ignored;
  index_.sources.push_back({file.string(), fs::file_size(file, ignored), std::string(name_of(kind)), 0});
  const bool drawn = options_.validation.empty() && !prompts_only();
  const double share = validates ? 1.0 : drawn ? options_.validation_fraction : 0.0;
  Batch batch{file, source, share, nullptr, {}, 0};
  bool settled = false;  // the format is known; with a limit of bad rows, from the first row that is an object
  const Status read = read_rows(
      file, kind,
      [&](Row&& row) {
        if (!settled) settled = !row.json || options_.max_bad == 0 || is_object(row);
        if (settled && !batch.format) batch.format = format_of(row, kind, file);
        batch.bytes += row.content.size();
        for (const std::string& blob : row.media.blobs) batch.bytes += blob.size();
        batch.rows.push_back(std::move(row));
        if (batch.bytes < batch_bytes) return;
        std::shared_ptr<const RecordFormat> format = batch.format;
        workers.add(std::exchange(batch, {file, source, share, std::move(format), {}, 0}));
      },
      encoder_.images() == nullptr ? Media() : encoder_.images()->processor.media());
  if (!batch.rows.empty()) workers.add(std::move(batch));
  if (read) return;
  workers.finish();  // bad rows before it are reported first
  const bool maybe_text = !settled && kind == RowFileKind::json_list;
  throw JobError(read.error().message + (maybe_text ? way_to_text(file) : ""), read.error().code);
}

void Preparation::check_images(const std::vector<fs::path>& files) const {
  const auto is_archive = [](const fs::path& file) {
    return kind_of_rows(file).value_or_throw() == RowFileKind::webdataset;
  };
  if (options_.images.empty() || !std::ranges::all_of(files, is_archive)) return;
  throw JobError("images = " + printable(options_.images.string()) + " is not used: the images of " +
                 printable(files.front().string()) + " are in that archive; remove the key");
}

std::shared_ptr<const RecordFormat> Preparation::format_of(const Row& row, RowFileKind kind, const fs::path& file) {
  if (!row.json) {
    expect(false, row);
    return nullptr;
  }
  Result<RecordFormat> format = format_of_row(row, options_.text_column, images_of_rows());
  if (!format) {
    const std::string& reason = format.error().message;
    throw JobError(reason + way_to_rows(row, reason) + (is_object(row) ? "" : way_to_text(file)), format.error().code);
  }
  index_.sources.back().format = std::string(name_of(kind)) + ", " + std::string(format->name());
  expect(format->is_chat(), row);
  if (format->is_chat()) {
    const Status takes = encoder_.takes_conversations(format->is_completion());
    if (!takes) throw JobError(printable(row.where) + " is a conversation, and " + takes.error().message);
  }
  if (!format->unread().empty()) {
    std::string columns;
    for (const std::string& column : format->unread()) columns += (columns.empty() ? "" : ", ") + printable(column);
    calls_.warn(printable(index_.sources.back().path) + ": columns without effect: " + columns);
  }
  return std::make_shared<const RecordFormat>(*std::move(format));
}

void Preparation::expect(bool chat, const Row& row) {
  const std::string where = printable(row.where);
  if (index_.images && !chat) {
    throw JobError(where + (options_.scaled ? " is a text, not a conversation; kind = \"text\" reads it"
                                            : " is a text, and data.processor (--model) reads conversations about "
                                              "images; prepare texts without it"));
  }
  if (options_.expected == ExpectedRows::text && chat) {
    throw JobError(where + " is a conversation; kind = \"chat\" reads it, data.field (--field) names a column of text");
  }
  if (options_.expected == ExpectedRows::chat && !chat) {
    throw JobError(where + " is a text, not a conversation; kind = \"text\" reads it");
  }
  if (train_ && index_.conversations != chat) {
    throw JobError(where + " is " + (chat ? "a conversation" : "a text") + ", but the rows before are " +
                   (chat ? "texts" : "conversations") + "; prepare them separately and mix them by weights");
  }
  if (train_) return;
  index_.conversations = chat;
  train_.emplace(writer("train"));
  validation_.emplace(writer("validation"));
}

Encoded Preparation::encode(Batch batch) const {
  Encoded made;
  made.source = batch.source;
  made.bytes = batch.bytes;
  const RowContext context{batch.format.get(), encoder_, batch.validation, batch.file, folder_of_images(batch.file)};
  for (Row& row : batch.rows) encode_row(row, context, made);
  return made;
}

void Preparation::keep_images(const Encoded& made, const EncodedDocument& document, std::vector<ImagePlace>& places) {
  const EncodedImages& row = made.images[document.row];
  const fs::path file = index_.sources[static_cast<std::size_t>(made.source)].path;
  for (std::size_t at = 0; at < document.document.images; ++at) {
    if (at == places.size()) {
      places.push_back(store_.place(row.images[at], folder_of_images(file), file).value_or_throw());
      ++index_.counts[std::string(medium_of(row.images[at].modality).noun) + "s"];
    }
    const Modality table = index_.images->sound_token ? row.images[at].modality : Modality::image;
    (document.validation ? validation_ : train_)->add_image(row.prepared[at], places[at], table);
  }
}

void Preparation::keep(Encoded made) {
  bad_ += made.bad.size();
  for (std::string& line : made.bad) {
    if (bad_lines_.size() < bad_rows_listed) bad_lines_.push_back(std::move(line));
  }
  if (bad_ > options_.max_bad + bad_rows_listed) throw_too_many_bad();
  notes_.merge(made.notes);
  index_.counts["rows"] += made.rows;
  if (made.empty > 0) index_.counts["empty"] += made.empty;
  if (made.turn_by_turn > 0) index_.counts["turn by turn"] += made.turn_by_turn;
  index_.sources[static_cast<std::size_t>(made.source)].documents += made.documents.size();
  std::vector<ImagePlace> places;  // of the row's images
  for (std::size_t at = 0; at < made.documents.size(); ++at) {
    const EncodedDocument& each = made.documents[at];
    if (at > 0 && made.documents[at - 1].row != each.row) places.clear();
    keep_images(made, each, places);
    (each.validation ? validation_ : train_)->add(each.document, made.source).or_throw();
    progress_.tokens += each.document.tokens.size();
  }
  progress_.bytes += made.bytes;
  progress_.documents += made.documents.size();
  if (calls_.progress) calls_.progress(progress_);
}

void Preparation::finish_shards() {
  if (bad_ > 0) {
    index_.counts["bad rows"] = bad_;
    calls_.warn(std::to_string(bad_) + " bad rows are left out, the first: " + bad_lines_.front());
  }
  if (const auto count = index_.counts.find("turn by turn"); count != index_.counts.end()) {
    calls_.warn(std::to_string(count->second) +
                " conversations become a document per answer, since the template changes earlier answers");
  }
  for (const auto& [name, count] : notes_.counts()) index_.counts[name] = count;
  for (const std::string& line : notes_.lines()) calls_.warn(line);
  report_template();
  if (index_.images) index_.images->containers = store_.finish().value_or_throw();
  if (train_) index_.train = train_->finish().value_or_throw();
  if (validation_) index_.validation = validation_->finish().value_or_throw();
  if (index_.validation.empty() && !index_.train.empty() && options_.validation.empty() &&
      options_.validation_fraction > 0) {
    calls_.warn("no document is for validation: " + std::to_string(progress_.documents) +
                " documents are too few for a share of " + number_text(options_.validation_fraction));
  }
}

void Preparation::throw_too_many_bad() const {
  if (bad_ == 1) throw JobError(bad_lines_.front() + " (a limit of 1 bad row leaves it out)");
  std::vector<std::string> entries(bad_lines_.begin(), bad_lines_.end());
  if (bad_ > entries.size()) entries.emplace_back("and more");
  throw ListedError(
      std::to_string(bad_) + " bad rows, more than the limit of " + std::to_string(options_.max_bad) + ":",
      std::move(entries));
}

void Preparation::report_left_out() const {
  std::string names;
  for (std::size_t at = 0; at < std::min(files_listed, left_out_.size()); ++at) {
    names += (at > 0 ? ", " : "") + printable(left_out_[at]);
  }
  calls_.warn(std::to_string(left_out_.size()) + " files are left out, neither text nor rows: " + names +
              (left_out_.size() > files_listed ? ", ..." : ""));
}

void Preparation::report_template() const {
  if (!index_.conversations) return;
  if (index_.settings.contains("learned")) {
    calls_.warn(
        "the chat template marks the learned parts ({% generation %}): only the marked parts of an answer, and the "
        "token "
        "that ends it, are learned");
  }
  const auto date = index_.settings.find("date");
  if (date == index_.settings.end()) {
    if (!options_.date.empty()) calls_.warn("data.date (--date) is not used: the chat template does not print a date");
    return;
  }
  if (!options_.date.empty()) return;
  calls_.warn("the chat template prints the date: it is " + date->second +
              ", today; data.date (--date) fixes it, for the same data on any day");
}

/// Copies the tokenizer's files, so that the data do not depend on another folder.
void copy_tokenizer(const std::string& tokenizer, const fs::path& folder) {
  if (tokenizer.empty() || tokenizer == "bytes") return;
  std::error_code ignored;
  const fs::path target = folder / prepared_tokenizer_folder;
  fs::create_directories(target);
  if (fs::is_directory(tokenizer, ignored)) {
    return copy_model_files(tokenizer, tokenizer_files(tokenizer), target).or_throw();
  }
  const fs::path file = tokenizer;
  const fs::path parent = file.has_parent_path() ? file.parent_path() : fs::path(".");
  if (const auto own = find_tokenizer(parent); own && fs::equivalent(*own, file, ignored)) {
    return copy_model_files(parent, tokenizer_files(parent), target).or_throw();
  }
  const char* name = file.extension() == ".json" ? "tokenizer.json" : "tokenizer.model";
  (void)copy_model_file(file, target / name).value_or_throw();
}

/// Prepares again without validation, because all of the few documents belong to the validation split.
PreparedIndex without_validation(const PreparedIndex& first, PrepareOptions options, const fs::path& folder,
                                 const PrepareCalls& calls) {
  for (const PreparedShard& shard : first.validation) fs::remove(folder / shard.file);
  for (const ImageContainer& each : first.images.value_or(PreparedImages()).containers) {
    if (each.kind == ImageContainer::Kind::shard) fs::remove(folder / each.path);
  }
  options.validation_fraction = 0;
  calls.warn("no document is for validation: there are so few that none would be left to train on");
  return Preparation(options, folder, {[](const std::string&) {}, calls.progress}).run();
}

}  // namespace

PreparedIndex prepare_data(const PrepareOptions& options, const fs::path& folder, const PrepareCalls& calls) {
  PartialFolder partial(folder);
  PreparedIndex index = Preparation(options, partial.path(), calls).run();
  if (index.train.empty() && !index.validation.empty() && options.validation.empty()) {
    index = without_validation(index, options, partial.path(), calls);
  }
  if (index.train.empty()) throw JobError("there is nothing to train on: the rows contain no documents");
  copy_tokenizer(options.tokenizer, partial.path());
  if (!options.processor.empty()) {
    const fs::path target = partial.path() / prepared_processor_folder;
    fs::create_directories(target);
    copy_model_files(options.processor, image_model_files(options.processor), target).or_throw();
  }
  write_prepared_index(partial.path(), index).or_throw();
  partial.commit();
  return index;
}

}  // namespace maestro
