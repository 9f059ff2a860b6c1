// SPDX-License-Identifier: Apache-2.0
#include "sections/vision/generate.hpp"

#include <algorithm>
#include <numeric>

#include "runtime/core/result.hpp"
#include "runtime/data/corpus.hpp"

namespace maestro {

namespace {

constexpr SampleId only_sample[] = {SampleId(0)};

/// The layout of a single sample with `rows` rows.
class Rows {
 public:
  explicit Rows(std::int64_t rows)
      : offsets_{0, static_cast<std::int32_t>(rows)}, positions_(static_cast<std::size_t>(rows)) {
    std::iota(positions_.begin(), positions_.end(), 0);
  }
  [[nodiscard]] SequenceLayout layout() const { return {offsets_, positions_}; }

 private:
  std::vector<std::int32_t> offsets_, positions_;
};

Inputs inputs_of(const Rows& tokens, const Rows& patches, const Rows& visual) {
  return {Pass::evaluate, only_sample, tokens.layout(), 1.0, patches.layout(), visual.layout()};
}

Tensor borrowed(std::vector<std::int32_t>& values) {
  return {values.data(), DType::i32, Shape{static_cast<std::int64_t>(values.size())}};
}

/// Runs the images through vision and projector once, and the growing text through the decoder for each token.
class Answering {
 public:
  Answering(const OperatorTable& ops, const VisionLanguageModel& model, const Prompt& prompt)
      : model_(model),
        seeing_(ops, arena_, model.vision_precision, false),
        projecting_(ops, arena_, model.projector_precision, false),
        decoding_(ops, arena_, model.decoder_precision, false),
        patches_(prompt.pixels.defined() ? prompt.pixels.rows() : 0),
        positions_(std::ranges::count(prompt.tokens, image_token)) {
    if (prompt.pixels.defined()) look(prompt);
  }

  [[nodiscard]] std::int32_t next(std::vector<std::int32_t>& tokens) {
    const Rows rows(static_cast<std::int64_t>(tokens.size()));
    Inputs inputs = inputs_of(rows, patches_, positions_);
    inputs.set("tokens", decoding_.input(borrowed(tokens)));
    if (visual_.defined()) inputs.set("visual", decoding_.input(visual_.value()));
    const Var logits = model_.decoder->next_token_logits(decoding_, inputs);
    const auto values = logits.value().span<float>();
    return static_cast<std::int32_t>(std::ranges::max_element(values) - values.begin());
  }

 private:
  void look(const Prompt& prompt) {
    if (model_.vision == nullptr || model_.projector == nullptr) {
      throw JobError("the prompt has images, but the model lacks a vision or projector section to read them");
    }
    const Rows none(0);
    Outputs seen, projected;
    Inputs pictures = inputs_of(none, patches_, positions_);
    pictures.set("pixels", seeing_.input(prompt.pixels));
    pictures.set("places", seeing_.input(prompt.places));
    model_.vision->forward(seeing_, pictures, seen);
    Inputs features = inputs_of(none, patches_, positions_);
    features.set("features", projecting_.input(seen.find("features")->value()));
    model_.projector->forward(projecting_, features, projected);
    visual_ = *projected.find("visual");
  }

  const VisionLanguageModel& model_;
  Arena arena_;
  Tape seeing_, projecting_, decoding_;  // after the arena they allocate from
  Rows patches_;
  Rows positions_;  // of image tokens
  Var visual_;      // after projecting_, which holds it
};

}  // namespace

std::vector<std::int32_t> generate(const OperatorTable& ops, const VisionLanguageModel& model, const Prompt& prompt,
                                   const GenerateOptions& options) {
  if (prompt.tokens.empty()) throw JobError("the prompt is empty; give it at least one token");
  const auto positions = static_cast<std::size_t>(model.decoder->decoder().positions);
  if (prompt.tokens.size() > positions) {
    throw JobError("the prompt's " + std::to_string(prompt.tokens.size()) + " tokens do not fit the decoder's " +
                   std::to_string(positions) + " positions");
  }
  Answering answering(ops, model, prompt);
  std::vector<std::int32_t> tokens(prompt.tokens.begin(), prompt.tokens.end()), answer;
  while (static_cast<std::int64_t>(answer.size()) < options.max_tokens && tokens.size() <= positions) {
    const std::int32_t token = answering.next(tokens);
    if (token == options.end_token) break;
    answer.push_back(token);
    tokens.push_back(token);
  }
  return answer;
}

}  // namespace maestro
