// SPDX-License-Identifier: Apache-2.0
#include "apps/vlm/answers.hpp"

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>

#include "runtime/core/result.hpp"
#include "runtime/data/text/prepared_corpus.hpp"
#include "runtime/images/mixed_rows.hpp"
#include "runtime/images/resampler.hpp"
#include "runtime/job/job_reader.hpp"
#include "runtime/model/hf_generation.hpp"
#include "runtime/ops/cpu/cpu_operator_table.hpp"
#include "sections/decoder/completions.hpp"
#include "sections/decoder/foreign_tokens.hpp"
#include "sections/model_folder.hpp"
#include "sections/registry.hpp"
#include "sections/vision/image_reader.hpp"
#include "sections/weights_folder.hpp"

namespace maestro {

namespace {

constexpr std::int64_t shown_side = 256;         // largest longer side of an image on the card, in pixels
constexpr std::int64_t mix_terms = mixed_terms;  // columns of Corpus::read_mix()
constexpr std::int64_t answers_at_once = 8;
constexpr std::int64_t small_side = 96;  // images up to this side are shown enlarged

/// The trained model of a run.
class TrainedModel {
 public:
  TrainedModel(const JobDocument& job, const Corpus& corpus, const DataConfig& data,
               const std::map<std::string, std::string>& weights)
      : root_(job.root()), registry_(builtin_sections()), weights_(weights) {
    shape_ = {corpus.max_length(), corpus.vocabulary(), data.tokenizer, corpus.patch_columns(), corpus.picture_grids()};
    shape_.marks = corpus.has_marks();
    seed_ = static_cast<std::uint64_t>(read_train(root_.table("train")).seed);
    reader_.emplace(ops_, load("vision", "vision_encoder", shape_), load("projector", "projector", shape_));
    if (const Corpus* const sounds = corpus.sounds()) {
      DataShape heard = shape_;
      heard.patch_columns = sounds->patch_columns();
      heard.pictures = sounds->picture_grids();
      listener_.emplace(ops_, load("audio", "audio_encoder", heard), load("audio_projector", "audio_projector", heard));
    }
    LoadedSection decoder = load("llm", "vision_language_decoder", shape_);
    auto* const model = dynamic_cast<DecoderSection*>(decoder.section.get());
    if (model == nullptr) throw JobError("section llm does not have the type vision_language_decoder");
    (void)decoder.section.release();
    generation_.emplace(ops_, std::unique_ptr<DecoderSection>(model), decoder.precision);
  }

  /// Returns the decoder's rows of images, or of sounds next to images.
  [[nodiscard]] ImageRows read(const SampleImages& images) { return reader_->read(images); }
  [[nodiscard]] ImageRows hear(const SampleImages& sounds) { return listener_->read(sounds); }
  /// Returns the likeliest tokens after each prompt.
  [[nodiscard]] std::vector<Completion> answers(std::span<const Prompt> prompts, const ContinuationLimits& limits) {
    return complete(*generation_, prompts, limits, {}, answers_at_once);
  }

 private:
  LoadedSection load(const std::string& name, const std::string& type, const DataShape& shape) const {
    const JobTable table = root_.table(name);
    const SectionConfig config = read_section(table, name);
    SectionContext context;
    context.name = name;
    context.seed = seed_;
    context.precision = config.precision;
    context.values = InitialValues::later;
    context.ops = &ops_;
    context.lora = config.lora;
    LoadedSection out{registry_.build(read_type(table, type), {name, table, root_, shape})(context), config.precision};
    const auto trained = weights_.find(name);
    const std::string folder = trained != weights_.end() ? trained->second : config.weights;
    out.section->freeze();
    const bool adapted = config.lora.given() && trained != weights_.end();
    const ModelFolder model = adapted ? ModelFolder{config.weights, folder, config.lora} : ModelFolder{folder, {}, {}};
    load_model(*out.section, model).or_throw();
    return out;
  }

  JobTable root_;
  SectionRegistry registry_;
  const std::map<std::string, std::string>& weights_;
  DataShape shape_;
  std::uint64_t seed_ = 1;
  cpu::CpuOperatorTable ops_;  // before the sections, which refer to it
  std::optional<ImageReader> reader_, listener_;
  std::optional<Generation> generation_;
};

/// Returns `count` samples from `from`, evenly spread, in order.
std::vector<SampleId> spread(const std::vector<SampleId>& from, std::int64_t count) {
  const auto wanted = std::min(from.size(), static_cast<std::size_t>(std::max<std::int64_t>(count, 0)));
  std::vector<SampleId> out;
  for (std::size_t at = 0; at < wanted; ++at) out.push_back(from[at * from.size() / wanted]);
  return out;
}

std::vector<SampleId> chosen_samples(const Corpus& corpus, const AnswerOptions& options) {
  std::vector<SampleId> seeing, reading;
  for (std::uint64_t at = 0; at < corpus.samples(Split::validation); ++at) {
    const SampleId sample(at);
    const bool heard = corpus.sounds() != nullptr && corpus.sounds()->pictures(Split::validation, sample).images > 0;
    (heard || corpus.pictures(Split::validation, sample).images > 0 ? seeing : reading).push_back(sample);
  }
  std::vector<SampleId> out = spread(seeing, options.with_pictures);
  std::ranges::copy(spread(reading, options.without), std::back_inserter(out));
  const auto ready = [](const Corpus* of, SampleId sample) {
    return of == nullptr || of->prepare(Split::validation, sample).ok();
  };
  std::erase_if(out, [&](SampleId sample) { return !ready(&corpus, sample) || !ready(corpus.sounds(), sample); });
  return out;
}

PageImage picture_for_card(const StoredImage& picture) {
  Image image = decode_image(picture).value_or_throw();
  const std::int64_t side = std::max(image.width, image.height);
  if (side > shown_side) {
    image = Resampler(ResampleFilter::bilinear)
                .resize(image, {std::max<std::int64_t>(1, image.width * shown_side / side),
                                std::max<std::int64_t>(1, image.height * shown_side / side)});
  }
  return {encode_png(image).value_or_throw(), side <= small_side};
}

/// A corpus whose samples are conversations about images.
struct ShownData {
  std::unique_ptr<Corpus> corpus;
  const ConversationSource* conversations = nullptr;  ///< view of `corpus`; null if its samples have no images
};

ShownData open_data(const DataConfig& data, std::uint64_t seed) {
  ShownData shown{open_corpus(data, seed)};
  const auto* const prepared = dynamic_cast<const PreparedCorpus*>(shown.corpus.get());
  if (prepared == nullptr || prepared->has_images()) {
    shown.conversations = dynamic_cast<const ConversationSource*>(shown.corpus.get());
  }
  return shown;
}

/// Returns the tokens at which an answer ends: the data's ends, and the stop tokens of the weights in `table`.
std::vector<std::int32_t> stop_tokens(const JobTable& table, const ConversationSource& conversations) {
  std::vector<std::int32_t> ends = conversations.ends();
  const std::string folder = read_weights_folder(table);
  if (folder.empty()) return ends;
  for (const std::int32_t token : read_stop_tokens(folder).value_or_throw()) {
    if (std::ranges::find(ends, token) == ends.end()) ends.push_back(token);
  }
  return ends;
}

/// Returns the marks of a sample's prompt; empty if the data have none.
std::vector<std::int32_t> prompt_marks(const ShownData& data, const ConversationView& view, SampleId sample) {
  if (!data.corpus->has_marks()) return {};
  std::vector<std::int32_t> marks(
      static_cast<std::size_t>(data.corpus->length(Split::validation, sample) * mark_columns));
  data.corpus->read_marks(Split::validation, sample, marks);
  marks.resize(view.prompt.size() * mark_columns);
  return marks;
}

/// A question of the card, as the model sees it.
struct Asked {
  ConversationView view;
  ImageRows images, sounds;
  std::vector<std::int32_t> marks;
};

/// The images or sounds of a sample up to its first answer, which later questions may have more of.
class FirstImages {
 public:
  /// Reads the first `patches` rows of the encoder, and the first `visual` rows of the decoder.
  FirstImages(const Corpus& corpus, SampleId sample, std::int64_t patches, std::int64_t visual) {
    const SamplePictures all = corpus.pictures(Split::validation, sample);
    pixels_.resize(static_cast<std::size_t>(all.patches * corpus.patch_columns()));
    places_.resize(static_cast<std::size_t>(all.patches * 3));
    corpus.read_pictures(Split::validation, sample, pixels_, places_);
    images_ = {Tensor(pixels_.data(), DType::f32, Shape{patches, corpus.patch_columns()}),
               Tensor(places_.data(), DType::i32, Shape{patches, 3}), visual};
    if (!corpus.mixes_rows()) return;
    sources_.resize(static_cast<std::size_t>(all.visual * mix_terms));
    weights_.resize(sources_.size());
    corpus.read_mix(Split::validation, sample, sources_, weights_);
    images_.sources = Tensor(sources_.data(), DType::i32, Shape{visual, mix_terms});
    images_.weights = Tensor(weights_.data(), DType::f32, Shape{visual, mix_terms});
  }
  [[nodiscard]] const SampleImages& images() const { return images_; }

 private:
  std::vector<float> pixels_, weights_;
  std::vector<std::int32_t> places_, sources_;
  SampleImages images_;
};

Asked ask(const ShownData& data, TrainedModel& model, SampleId sample) {
  Asked asked{data.conversations->view(Split::validation, sample), {}, {}, {}};
  const ConversationView& view = asked.view;
  asked.marks = prompt_marks(data, view, sample);
  if (view.patches > 0) {
    const FirstImages seen(*data.corpus, sample, view.patches, std::ranges::count(view.prompt, image_token));
    asked.images = model.read(seen.images());
  }
  const std::int64_t sounds = std::ranges::count(view.prompt, sound_token);
  if (sounds > 0) {
    const Corpus& corpus = *data.corpus->sounds();
    const auto& heard = dynamic_cast<const ConversationSource&>(corpus);
    const FirstImages first(corpus, sample, heard.view(Split::validation, sample).patches, sounds);
    asked.sounds = model.hear(first.images());
  }
  return asked;
}

}  // namespace

std::vector<PageAnswer> answer_samples(const JobDocument& job, const std::map<std::string, std::string>& weights,
                                       const AnswerOptions& options) {
  const JobTable root = job.root();
  DataConfig data = read_data(root.table("data"));
  if (data.tokenizer.empty()) data.tokenizer = tokenizer_folder(root.table("llm")).value_or("bytes");
  const TrainConfig train = read_train(root.table("train"));
  data.work_folder = train.out + "/data";
  const ShownData shown = open_data(data, static_cast<std::uint64_t>(train.seed));
  if (shown.conversations == nullptr) return {};
  if (data.kind == DataKind::prepared) data.tokenizer = shown.corpus->own_tokenizer();
  TrainedModel model(job, *shown.corpus, data, weights);
  const ContinuationLimits limits{options.max_tokens, stop_tokens(root.table("llm"), *shown.conversations),
                                  shown.corpus->vocabulary()};
  std::vector<Asked> asked;
  for (const SampleId sample : chosen_samples(*shown.corpus, options)) asked.push_back(ask(shown, model, sample));
  std::vector<Prompt> prompts;
  for (const Asked& each : asked) {
    prompts.push_back({each.view.prompt, {each.images.visual(), each.marks, each.images.taps(), each.sounds.visual()}});
  }
  const std::vector<Completion> written = model.answers(prompts, limits);
  std::vector<PageAnswer> answers;
  for (std::size_t at = 0; at < asked.size(); ++at) {
    const ConversationView& view = asked[at].view;
    PageAnswer& answer = answers.emplace_back();
    answer.question = view.question;
    answer.reference = view.answer;
    answer.written = shown.conversations->decode(view.prompt, written[at].tokens);
    for (const StoredImage& picture : view.pictures) answer.pictures.push_back(picture_for_card(picture));
  }
  return answers;
}

}  // namespace maestro
