// SPDX-License-Identifier: Apache-2.0
#include "sections/registry.hpp"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/core/nearest_name.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/core/result.hpp"
#include "runtime/dataset/image_model.hpp"
#include "runtime/job/generator_config.hpp"
#include "runtime/job/job_reader.hpp"
#include "runtime/model/hf_config.hpp"
#include "runtime/tokenizer/tokenizer.hpp"
#include "sections/corpus_section.hpp"
#include "sections/decoder/decoder_lm.hpp"
#include "sections/decoder/decoder_trunk.hpp"
#include "sections/decoder/foreign_tokens.hpp"
#include "sections/decoder/generator.hpp"
#include "sections/decoder/language_model_head.hpp"
#include "sections/distill/recorded_teacher.hpp"
#include "sections/distill/student_table.hpp"
#include "sections/memory/memory_layer.hpp"
#include "sections/memory/ngram_memory.hpp"
#include "sections/vision/projector.hpp"
#include "sections/vision/vision_encoder.hpp"
#include "sections/vision/vision_language_decoder.hpp"
#include "sections/weights_folder.hpp"

namespace maestro {

namespace {

template <class Kind>
SectionFactory factory(typename Kind::Options options, const DataShape& data) {
  options.data = data;
  return [options = std::move(options)](const SectionContext& context) {
    return std::make_unique<Kind>(context, options);
  };
}

/// Checks the tokens of a language model's table against the corpus.
void match_tokens(const JobTable& table, DecoderConfig& decoder, const DataShape& data) {
  default_vocabulary(table, decoder, data);
  check_tokens(table, decoder.vocabulary, data);
}

template <class Kind>
SectionFactory plain(const SectionTable& section) {
  return factory<Kind>(Kind::Options::read(section.table), section.data);
}

/// Returns the fingerprints of the image processors that made the data.
std::vector<std::string> processors_of(const Corpus* corpus) {
  std::vector<std::string> found;
  if (corpus == nullptr) return found;
  for (const auto& [key, value] : corpus->fingerprint()) {
    if (key.ends_with("data.processor")) found.push_back(value);
  }
  return found;
}

/// Checks that an encoder's weights are not from a model with another image processor than the data's. Folders without
/// an image processor are not compared.
void match_processor(const SectionTable& section) {
  const std::filesystem::path folder = read_weights_folder(section.table);
  const std::vector<std::string> of_data = processors_of(section.corpus.get());
  if (folder.empty() || of_data.empty() || vision_language_type(folder).empty()) return;
  const auto tokenizer = make_tokenizer(section.data.tokenizer);
  for (const PassOrder order : {PassOrder::pillow13, PassOrder::horizontal}) {
    const Result<ImageModel> model = read_image_model(folder, *tokenizer, order);
    if (!model && model.error().code == ErrorCode::not_found) return;
    if (!model) section.table.fail("weights", model.error().message);
    if (std::ranges::find(of_data, model->fingerprint()) != of_data.end()) return;
  }
  section.table.fail("weights",
                     printable(folder.string()) + " has another image processor than the data, whose images " +
                         "this encoder would misread; prepare the data with this model, or use other weights");
}

SectionFactory vision_encoder(const SectionTable& section) {
  match_processor(section);
  return plain<VisionEncoder>(section);
}

SectionFactory audio_encoder(const SectionTable& section) {
  match_processor(section);
  VisionEncoder::Options options = VisionEncoder::Options::read(section.table, Modality::sound);
  if (section.corpus != nullptr && options.vision.mels == 0) {
    section.table.fail("weights", "names no model that hears; an encoder of sounds begins from its folder");
  }
  return factory<VisionEncoder>(std::move(options), section.data);
}

/// Returns the factory of a section that also reads its neighbours' tables.
template <class Kind>
SectionFactory linked(const SectionTable& section) {
  return factory<Kind>(Kind::Options::read(section.table, section.root), section.data);
}

SectionFactory audio_projector(const SectionTable& section) {
  return factory<Projector>(Projector::Options::read(section.table, section.root, Modality::sound), section.data);
}

/// Returns the shape of the data, with the precision of the visual rows.
DataShape with_visual(const SectionTable& section) {
  DataShape data = section.data;
  data.visual = read_visual(section.table, section.root, section.data);
  return data;
}

/// Returns the factory of a language model, whose weights must be of the corpus' tokens.
template <class Kind>
SectionFactory decoder(const SectionTable& section) {
  auto options = Kind::Options::read(section.table);
  match_tokens(section.table, options.decoder, section.data);
  options.decoder.memory = read_memory(section.table, section.root, options.decoder.layers);
  return factory<Kind>(std::move(options), with_visual(section));
}

SectionFactory decoder_trunk(const SectionTable& section) {
  auto options = DecoderTrunk::Options::read(section.table);
  match_tokens(section.table, options.decoder, section.data);
  options.decoder.memory = read_memory(section.table, section.root, options.decoder.layers);
  if (options.boundary == TeacherOutput::sampled) {
    if (section.generator.empty()) {
      section.table.fail("boundary", "is \"sampled\", which teaches the samples that a student makes; add a table " +
                                         std::string("[generator], or set \"hidden\""));
    }
    options.temperature = read_generator(section.root.table(section.generator)).temperature;
  }
  return factory<DecoderTrunk>(std::move(options), with_visual(section));
}

SectionFactory head(const SectionTable& section) {
  auto options = LanguageModelHead::Options::read(section.table);
  match_tokens(section.table, options.decoder, section.data);
  return factory<LanguageModelHead>(std::move(options), section.data);
}

SectionFactory vision_language_decoder(const SectionTable& section) {
  auto options = VisionLanguageDecoder::Options::read(section.table, section.root);
  match_tokens(section.table, options.decoder, section.data);
  return factory<VisionLanguageDecoder>(std::move(options), section.data);
}

/// Sets how a teacher reads the samples. Throws JobError for one that may name tokens that the student lacks.
void set_reading(const SectionTable& student, TeacherModel& teacher) {
  if (student.corpus == nullptr) return;
  teacher.reading = CorpusSection::reading_of(*student.corpus, teacher.section);
  if (teacher.reading == Reading::own || !names_tokens(teacher.boundary)) return;
  const std::int64_t own = student.corpus->vocabulary(), other = student.corpus->other()->vocabulary();
  if (other <= own) return;
  student.table.fail("boundary", "names tokens, of which " + teacher.section + " has " + std::to_string(other) +
                                     " and the data " + std::to_string(own) + "; set \"hidden\" or \"logits\"");
}

SectionFactory distilled_decoder(const SectionTable& section) {
  auto options = read_student(section.table, section.root, section.data, section.generator);
  for (TeacherModel& teacher : options.teachers) set_reading(section, teacher);
  match_tokens(section.table, options.decoder, section.data);
  options.decoder.memory = read_memory(section.table, section.root, options.decoder.layers);
  return factory<DistilledDecoder>(std::move(options), with_visual(section));
}

SectionFactory generator(const SectionTable& section) {
  (void)read_generator(section.table);
  const JobTable sender = section.root.table(section.weights_of.empty() ? "student" : section.weights_of);
  if (sender.has("memory_layer")) {
    sender.fail("memory_layer",
                "is not supported with a generator, which has no memory; leave it or [" + section.name + "] out");
  }
  Generator::Options options{read_decoder_shape(sender), section.data};
  match_tokens(sender, options.decoder, section.data);
  return factory<Generator>(std::move(options), section.data);
}

SectionFactory ngram_memory(const SectionTable& section) {
  return factory<NGramMemory>(NGramMemory::Options::read(section.table, section.data), section.data);
}

SectionFactory recorded_teacher(const SectionTable& section) {
  auto options = RecordedTeacher::Options::read(section.table, section.corpus.get());
  return [options = std::move(options)](const SectionContext& context) {
    return std::make_unique<RecordedTeacher>(context, options);
  };
}

}  // namespace

void SectionRegistry::add(std::string type, std::string description, Builder builder, std::string origin) {
  const auto named = [](const std::string& of) { return of.empty() ? "this program" : of; };
  const std::string second = named(origin);
  const auto [entry, added] =
      entries_.try_emplace(type, Entry{std::move(description), std::move(builder), std::move(origin)});
  if (added) return;
  throw JobError("section type '" + type + "' is registered twice, by " + named(entry->second.origin) + " and by " +
                 second + "; choose another name");
}

SectionFactory SectionRegistry::build(const std::string& type, const SectionTable& section) const {
  check(type, section.name);
  return entries_.find(type)->second.builder(section);
}

void SectionRegistry::check(const std::string& type, const std::string& section) const {
  if (entries_.contains(type)) return;
  std::vector<std::string> types;
  std::string all;
  for (const auto& [known, entry] : entries_) {
    types.push_back(known);
    all += (all.empty() ? "" : ", ") + known;
  }
  const auto nearest = nearest_name(type, types);
  throw JobError(section + ": section type '" + type + "' is unknown" +
                 (nearest ? "; did you mean '" + *nearest + "'?" : ";") + " known types: " + all);
}

std::vector<SectionRegistry::Listing> SectionRegistry::list() const {
  std::vector<Listing> listing;
  for (const auto& [type, entry] : entries_) listing.push_back({type, entry.description, entry.origin});
  return listing;
}

SectionRegistry builtin_sections() {
  SectionRegistry registry;
  registry.add("decoder_trunk", "decoder body that sends hidden states, logits or top-k logits", decoder_trunk);
  registry.add("language_model_head", "output layer and loss behind a decoder_trunk", head);
  registry.add("decoder_lm", "whole language model with its loss", decoder<DecoderLm>);
  registry.add(generator_type, "language model that makes samples with the weights of a trained section", generator);
  registry.add("distilled_decoder", "language model that learns from teachers", distilled_decoder);
  registry.add(recorded_teacher_type, "teacher on file: sends what `maestro teach` recorded", recorded_teacher);
  registry.add(ngram_memory_type, "table of hashed n-grams that a decoder reads at one layer", ngram_memory);
  registry.add("vision_encoder", "vision transformer from image patches to features", vision_encoder);
  registry.add("projector", "from vision features to a decoder's width", linked<Projector>);
  registry.add("audio_encoder", "transformer from mel frames of sounds to features, in a model that also reads images",
               audio_encoder);
  registry.add("audio_projector", "from features of sounds to a decoder's width, in such a model", audio_projector);
  registry.add("vision_language_decoder", "whole language model with its loss that reads images",
               vision_language_decoder);
  return registry;
}

}  // namespace maestro
