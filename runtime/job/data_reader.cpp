// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "runtime/core/iso_time.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/job/job_reader.hpp"

namespace maestro {
namespace {

constexpr Range counts_or_zero{.min = 0, .max = most_counted};
constexpr NumberRange positive{.min = 0.0, .min_open = true};
constexpr NumberRange proper_fraction{.min = 0.0, .max = 1.0, .min_open = true, .max_open = true};

/// Throws for keys of other corpus kinds, which would be ignored silently.
void refuse_for_kind(const JobTable& data, DataKind kind, std::initializer_list<std::string_view> keys,
                     const std::string& kinds) {
  for (const std::string_view key : keys) {
    if (!data.has(key)) continue;
    data.fail(key, "does not apply to kind = \"" + std::string(name_of(kind)) + "\"; it belongs to kind = " + kinds);
  }
}

void check_pictures(const JobTable& data, const DataConfig& read) {
  const bool llava = read.kind == DataKind::llava && read.processor.empty();
  const bool noise = read.kind == DataKind::synthetic_images;
  if ((llava || noise) && read.image_size % read.patch != 0) {
    data.fail_among({"image_size", "patch"},
                    "image_size = " + std::to_string(read.image_size) +
                        " is not a multiple of patch = " + std::to_string(read.patch) + "; the nearest below is " +
                        std::to_string(std::max(read.image_size / read.patch, std::int64_t{1}) * read.patch));
  }
  if (llava && read.max_image_size < read.patch) {
    data.fail_among({"max_image_size", "patch"}, "max_image_size = " + std::to_string(read.max_image_size) +
                                                     " is smaller than a patch of " + std::to_string(read.patch) +
                                                     " pixels");
  }
  if (!read.validation_path.empty() && data.has("validation_fraction")) {
    data.fail("validation_fraction", "conflicts with validation_path; remove one of them");
  }
}

/// Reads the keys of a model's processor.
void read_processor(const JobTable& data, DataConfig& out) {
  if (is_generated(out.kind)) {
    refuse_for_kind(data, out.kind, {"processor", "resample_order"},
                    "\"chat\", \"parquet\", \"webdataset\", \"llava\", \"text\" and \"prepared\"");
  }
  out.processor =
      read_model(data, "processor", out.processor,
                 {"conversations about images: a model's folder or its name on the hub, whose image processor cuts the "
                  "images and whose tokens stand for them; prepared: checked against the data; absent: no images, or "
                  "those of `patch` (llava)"});
  const bool prepared = out.kind == DataKind::prepared;
  if (data.has("resample_order") && out.processor.empty() && !prepared) {
    data.fail("resample_order", "needs data.processor, whose images it resizes");
  }
  out.resample_order =
      data.choice("resample_order", out.resample_order, resample_order_names,
                  {"the order of passes when images are resized: pillow13 (as Pillow 13), horizontal (as Pillow up to "
                   "12, and torchvision); auto: pillow13, or as prepared"});
  if (out.processor.empty()) return;
  for (const char* key : {"patch", "image_size", "max_image_size"}) {
    if (!data.has(key)) continue;
    data.fail(
        key, "has no effect: images are cut by the processor in data.processor = \"" + printable(out.processor) + "\"");
  }
  if (!prepared && out.tokenizer.empty()) out.tokenizer = out.processor;
}

/// Reads the keys of corpora with images.
void read_pictures(const JobTable& data, DataConfig& out) {
  constexpr std::int64_t largest = 16384;  // side of the largest readable image, runtime/images/image.hpp
  const bool llava = out.kind == DataKind::llava;
  const bool noise = out.kind == DataKind::synthetic_images;
  const bool own_rows = !out.processor.empty() && out.kind != DataKind::prepared;
  if (!llava) {
    if (!own_rows) refuse_for_kind(data, out.kind, {"images"}, "\"llava\", or to rows with data.processor");
    refuse_for_kind(data, out.kind, {"validation_path", "max_image_size"}, "\"llava\"");
  }
  if (!noise) refuse_for_kind(data, out.kind, {"image_share"}, "\"synthetic_images\"");
  if (!llava && !noise) {
    refuse_for_kind(data, out.kind, {"patch", "image_size"}, "\"llava\" and \"synthetic_images\"");
  }
  out.images =
      data.text("images", out.images,
                {"llava, and rows with `processor`: the folder of the images (PNG, JPEG, WebP); empty: `images` "
                 "next to the file"});
  out.validation_path =
      data.text("validation_path", out.validation_path,
                {"llava: a file or folder of rows for validation; empty: `validation_fraction` of `path`"});
  out.patch = data.integer("patch", out.patch, {.min = 1, .max = 1024},
                           {"llava, synthetic_images: the side of a patch", "pixels"});
  out.image_size = data.integer("image_size", out.image_size, {.min = noise ? 1 : 0, .max = largest},
                                {"llava, synthetic_images: the longer side of a resized image, a multiple of "
                                 "`patch`; 0 (llava): native size",
                                 "pixels"});
  out.max_image_size =
      data.integer("max_image_size", out.max_image_size, {.min = 1, .max = largest},
                   {"llava: the longest side of a native image; larger images are shrunk to it", "pixels"});
  out.image_share = data.number("image_share", out.image_share, {.min = 0.0, .max = 1.0},
                                {"synthetic_images: the share of samples with an image"});
  check_pictures(data, out);
}

/// Returns the points of a survival function.
LengthPoints read_points(const JobTable& data, const NumberPairs& pairs) {
  LengthPoints points;
  const auto fail = [&](const std::string& what) {
    data.fail("lengths", "point " + std::to_string(points.size() + 1) + ": " + what);
  };
  for (const auto& [length, share] : pairs) {
    if (!(length >= 2 && length <= static_cast<double>(most_tokens_of_a_sample)) || length != std::floor(length)) {
      fail("the length " + number_text(length) + " must be an integer from 2 to " +
           std::to_string(most_tokens_of_a_sample));
    }
    if (points.empty() && share != 1)
      fail("the share is " + number_text(share) + ", but all samples reach the first length; use 1");
    if (!points.empty() && length <= static_cast<double>(points.back().length)) {
      fail("the length " + number_text(length) + " must be above " + std::to_string(points.back().length));
    }
    if (!points.empty() && !(share > 0 && share < points.back().share)) {
      fail("the share " + number_text(share) + " must be greater than 0 and less than " +
           number_text(points.back().share));
    }
    points.push_back({static_cast<std::int64_t>(length), share});
  }
  return points;
}

/// Reads the lengths of generated samples.
void read_lengths(const JobTable& data, DataConfig& out) {
  if (!is_generated(out.kind)) {
    refuse_for_kind(data, out.kind, {"lengths", "longest"}, "\"synthetic\" and \"synthetic_images\"");
  }
  std::vector<std::pair<std::string, NumberPairs>> known;
  for (const auto& [name, points] : published_lengths()) {
    NumberPairs& pairs = known.emplace_back(name, NumberPairs()).second;
    for (const LengthPoint& point : points) pairs.emplace_back(static_cast<double>(point.length), point.share);
  }
  out.lengths = read_points(
      data,
      data.pairs_or_word(
          "lengths", known,
          {"generated data, instead of `sequence`: the distribution of text lengths in tokens: a known name, or points "
           "[length, share of samples with at least this length], interpolated by logarithms: [[64, 1.0], [512, 0.62], "
           "[2048, 0.2]]"}));
  out.longest = data.integer("longest", out.longest, {.min = 0, .max = most_tokens_of_a_sample},
                             {"the limit to which longer drawn lengths are cut; 0: no limit", "tokens"});
  if (out.lengths.empty() && data.has("lengths"))
    data.fail("lengths", "is an empty list; leave it out, or name a point");
  if (out.lengths.empty() && data.has("longest")) data.fail("longest", "applies only with lengths; use sequence");
  if (!out.lengths.empty() && data.has("sequence")) {
    data.fail("sequence", "conflicts with lengths; remove it, or cut samples with longest");
  }
  if (out.longest == 1) data.fail("longest", "= 1 leaves no sample; the least is 2, and 0 sets no limit");
}

/// Returns whether the kind may have rows that are prepared; for texts this depends on the files.
bool has_rows(DataKind kind) {
  return kind == DataKind::text || kind == DataKind::chat || kind == DataKind::parquet ||
         kind == DataKind::webdataset || kind == DataKind::llava;
}

void check_teachers(const JobTable& source, const std::vector<std::string>& teachers) {
  if (teachers.empty() && source.has("teachers")) {
    source.fail("teachers", "is an empty list; leave it out for all teachers");
  }
  for (const std::string& teacher : teachers) {
    if (std::ranges::count(teachers, teacher) > 1)
      source.fail("teachers", "names \"" + printable(teacher) + "\" twice");
  }
}

std::vector<MixedData> read_mix(const JobTable& data) {
  std::vector<MixedData> mix;
  const JobTable table = data.table("mix");
  const auto read_source = [&](const std::string& name) {
    const JobTable source = table.table(name);
    std::string path =
        source.text("path", "", {"prepared, instead of data.path: a folder that `maestro prepare` wrote"});
    const double weight = source.number("weight", 1.0, positive,
                                        {"the number of samples from this source, relative to the other sources"});
    return MixedData{name, std::move(path), weight,
                     source.texts("teachers", {}, {"the teachers that run for its samples; absent: all"})};
  };
  if (table.keys().empty()) (void)read_source("NAME");  // for the reference
  for (const std::string& name : table.keys()) {
    const JobTable source = table.table(name);
    MixedData read = read_source(name);
    if (read.path.empty()) source.fail("path", "is missing; give a folder that `maestro prepare` wrote");
    check_teachers(source, read.teachers);
    mix.push_back(std::move(read));
  }
  return mix;
}

/// Reads the keys of rows and of prepared data.
void read_rows(const JobTable& data, DataConfig& out) {
  const bool rows = has_rows(out.kind);
  const bool prepared = out.kind == DataKind::prepared;
  if (!rows && !prepared) {
    refuse_for_kind(data, out.kind, {"packing", "long"},
                    "\"prepared\", \"text\", \"chat\", \"parquet\", \"webdataset\" and \"llava\"");
  }
  if (!rows || out.kind == DataKind::llava) {
    refuse_for_kind(data, out.kind, {"field"}, "\"text\", \"chat\", \"parquet\" and \"webdataset\"");
  }
  if (!rows || out.kind == DataKind::text) {
    refuse_for_kind(data, out.kind, {"template", "end_of_turn", "date", "learn"},
                    "\"chat\", \"parquet\", \"webdataset\" and \"llava\"");
  }
  if (is_generated(out.kind)) {
    refuse_for_kind(data, out.kind, {"max_bad_samples"},
                    "\"llava\", \"text\", \"chat\", \"parquet\" and \"webdataset\"");
  }
  if (!prepared) refuse_for_kind(data, out.kind, {"mix"}, "\"prepared\"");
  if (prepared)
    refuse_for_kind(data, out.kind, {"tokenizer", "validation_fraction"},
                    "\"text\", \"chat\", \"parquet\" and \"webdataset\"; `maestro prepare` has settled it");
  out.mix = read_mix(data);
  out.packing =
      data.choice("packing", out.packing, packing_names,
                  {"prepared data and rows: documents: each sample is one document, with a separate context; stream: "
                   "all documents in a row, cut every `sequence` tokens; auto: documents for conversations"});
  out.long_documents =
      data.choice("long", out.long_documents, long_documents_names,
                  {"documents longer than `sequence`: cut at it, split into several samples, or dropped; "
                   "auto: cut for conversations, split for texts"});
  out.chat_template =
      data.text("template", out.chat_template,
                {"conversations: the chat template: auto (next to the tokenizer; llava without `processor`: USER: and "
                 "ASSISTANT:), chatml, none (a prompt and its completion unchanged), or a Jinja file"});
  out.end_of_turn = data.text("end_of_turn", out.end_of_turn,
                              {"conversations: the token that ends an answer, appended if the template does not write "
                               "it; absent: the end tokens in the tokenizer's folder"});
  out.date = data.text("date", out.date,
                       {"conversations: the day that a chat template prints (strftime_now), as "
                        "2026-01-31; absent: the day of the preparation"});
  if (!out.date.empty() && !parse_iso_day(out.date)) {
    data.fail("date", "= \"" + printable(out.date) + "\" is not a day; write it as 2026-01-31");
  }
  out.learned =
      data.choice("learn", out.learned, learned_answers_names,
                  {"conversations: the answers of a conversation that are learned: all, or the last; none: its "
                   "messages up to the last of a user are prompts of a [generator]"});
  if (out.learned == LearnedAnswers::none && data.has("validation_fraction")) {
    data.fail("validation_fraction", "does not apply to learn = \"none\": prompts have no answers to validate with");
  }
  out.text_column =
      data.text("field", out.text_column, {"rows: the column of the text; absent: the columns are recognised"});
  out.max_bad_samples =
      data.integer("max_bad_samples", out.max_bad_samples, counts_or_zero,
                   {"llava, rows and prepared images: broken samples and images that are left out and counted; the "
                    "next broken sample ends the run with a list of them",
                    "samples"});
}

/// Reads the keys of texts.
void read_texts(const JobTable& data, DataConfig& out) {
  if (out.kind != DataKind::text) refuse_for_kind(data, out.kind, {"as_text"}, "\"text\"");
  if (!has_rows(out.kind)) {
    refuse_for_kind(data, out.kind, {"begin_of_text"},
                    "\"text\", \"chat\", \"parquet\", \"webdataset\" and \"llava\"" +
                        std::string(out.kind == DataKind::prepared ? "; `maestro prepare` has settled it" : ""));
  }
  out.as_text = data.flag("as_text", out.as_text,
                          {"text: files are plain text, regardless of their names and first characters; false: a text "
                           "that begins with { or [ is read as JSON"});
  out.begin_of_text = data.flag("begin_of_text", out.begin_of_text,
                                {"texts, prompts with a completion, and llava without `processor`: each begins with "
                                 "the tokenizer's begin-of-text tokens, such as "
                                 "<bos>; in conversations, the chat template writes them"});
}

/// Checks the path against the kind.
void check_path(const JobTable& data, const DataConfig& read) {
  const auto missing = [&](const std::string& what) {
    data.fail_among({"path", "kind"}, "kind = \"" + std::string(name_of(read.kind)) + "\" needs data.path, " + what);
  };
  if (is_generated(read.kind) && !read.path.empty()) {
    data.fail("path", "kind = \"" + std::string(name_of(read.kind)) +
                          "\" reads no file; remove the path, or set kind = \"text\"");
  }
  if (!read.mix.empty() && !read.path.empty()) data.fail("path", "conflicts with [data.mix]; remove one of them");
  if (is_generated(read.kind) || !read.path.empty() || !read.mix.empty()) return;
  switch (read.kind) {
    case DataKind::chat:
      return missing("a file or folder of conversations, such as JSON Lines");
    case DataKind::parquet:
      return missing("a Parquet file, or a folder of them");
    case DataKind::webdataset:
      return missing("a tar archive, or a folder of them");
    case DataKind::prepared:
      return missing("a folder that `maestro prepare` wrote, or [data.mix]");
    case DataKind::llava:
      return missing("a file of conversations, or tar archives");
    default:
      return missing("a text file or a folder of them");
  }
}

}  // namespace

DataConfig read_data(const JobTable& data) {
  DataConfig out;
  out.kind = data.choice(
      "kind", out.kind, data_kind_names,
      {"text, chat (conversations), parquet, webdataset (tar archives), prepared (by `maestro prepare`), llava "
       "(conversations about images), or generated for trials: synthetic, synthetic_images"});
  out.path = data.text("path", out.path,
                       {"a file or folder; prepared: the folder of `maestro prepare`; llava: the file of "
                        "conversations, or archives; generated data: absent"});
  out.tokenizer =
      read_model(data, "tokenizer", out.tokenizer,
                 {"the tokenizer of text: \"bytes\" (a token per byte), a model's folder or its name on the "
                  "hub, or its tokenizer file; absent: the tokenizer next to the weights of sections that read "
                  "tokens, else bytes"});
  if (is_generated(out.kind) && !out.tokenizer.empty() && out.tokenizer != "bytes") {
    refuse_for_kind(data, out.kind, {"tokenizer"}, "\"text\", \"chat\", \"parquet\", \"webdataset\" and \"llava\"");
  }
  out.sequence = data.integer("sequence", out.sequence, {.min = 1, .max = most_tokens_of_a_sample},
                              {"the length of a sample", "tokens"});
  read_lengths(data, out);
  out.vocabulary = data.integer("vocabulary", out.vocabulary, {.min = 2, .max = std::int64_t{1} << 31},
                                {"generated data: the number of different tokens", "tokens"});
  if (out.kind != DataKind::text) refuse_for_kind(data, out.kind, {"max_file_mb"}, "\"text\"");
  out.max_file_mb =
      data.number("max_file_mb", out.max_file_mb, positive, {"text: larger files of a folder are left out", "MB"});
  out.validation_fraction = data.number("validation_fraction", out.validation_fraction, proper_fraction,
                                        {"the last part of the corpus, kept for validation"});
  read_processor(data, out);
  read_texts(data, out);
  read_rows(data, out);
  read_pictures(data, out);
  check_path(data, out);
  return out;
}

}  // namespace maestro
