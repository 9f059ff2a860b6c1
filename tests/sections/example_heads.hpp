// SPDX-License-Identifier: Apache-2.0
// Three heads as a plug-in may bring them: a reward head, a contrastive loss and a router. All read hidden states (M,
// C).
#pragma once

#include <maestro/functions.hpp>
#include <maestro/section.hpp>
#include <string>
#include <utility>
#include <vector>

namespace heads {

/// What the three have in common: parameters, ports, names.
class Head : public maestro::Section {
 public:
  static constexpr std::int64_t width = 16;  ///< C

  [[nodiscard]] maestro::Ports ports() const override {
    return {{{"hidden", maestro::DType::f32, width, true, false}}, {}};
  }
  maestro::Parameters& parameters() override { return parameters_; }
  [[nodiscard]] maestro::Cost cost(const maestro::SampleShape& sample) const override {
    return {2.0 * static_cast<double>(sample.tokens * parameters_.added_elements()), 0};
  }
  [[nodiscard]] std::vector<maestro::StateEntry> state() override {
    std::vector<maestro::StateEntry> entries;
    for (maestro::Parameter& parameter : parameters_.all()) entries.push_back({parameter.name(), &parameter});
    return entries;
  }
  [[nodiscard]] std::string config_json() const override { return "{}"; }

 protected:
  explicit Head(const maestro::SectionContext& context) : init_(context.seed, context.name) {}
  maestro::Parameter& matrix(const std::string& name, std::int64_t rows) {
    return parameters_.add({name, maestro::Shape{rows, width}, true, init_.normal(name, 0.3)});
  }
  maestro::Parameters parameters_;

 private:
  maestro::ParameterInit init_;
};

/// A reward of each sample from its last row. Samples come in pairs, first the preferred one; the loss of a pair is
/// -log sigmoid(preferred - other) (Bradley & Terry 1952; Ouyang et al. 2022, eq. 1).
class RewardHead final : public Head {
 public:
  explicit RewardHead(const maestro::SectionContext& context) : Head(context), reward_(&matrix("reward.weight", 1)) {
    context.allocate(parameters_);
  }
  void forward(maestro::Tape& tape, const maestro::Inputs& inputs, maestro::Outputs& outputs) override {
    using namespace maestro;
    std::vector<std::int32_t> last;
    for (const std::int32_t end : inputs.layout().offsets.subspan(1)) last.push_back(end - 1);
    const Var hidden = index_select(tape, inputs["hidden"], tape.indices(last));                   // (S, C)
    const Var rewards = linear(tape, converted(tape, hidden, tape.compute()), *reward_, nullptr);  // (S, 1)
    const Var pairs = reshaped(tape, rewards, {inputs.layout().sequences() / 2, 2});               // (S / 2, 2)
    const Var preferred = slice(tape, log_softmax(tape, pairs), 0, 1);                             // (S / 2, 1)
    outputs.loss(sum_loss(tape, scale(tape, preferred, -1), inputs.loss_scale()));
  }

 private:
  maestro::Parameter* reward_;
};

/// An embedding of each sample: the mean of its projected rows. Samples come in pairs that belong together; of all
/// second samples in the micro-batch, the loss picks the right one for each first sample by its cosine, at temperature
/// 0.1 (InfoNCE, van den Oord et al. 2018, eq. 4).
class ContrastiveHead final : public Head {
 public:
  explicit ContrastiveHead(const maestro::SectionContext& context)
      : Head(context), projection_(&matrix("projection.weight", 8)) {
    context.allocate(parameters_);
  }
  void forward(maestro::Tape& tape, const maestro::Inputs& inputs, maestro::Outputs& outputs) override {
    using namespace maestro;
    const auto pairs = static_cast<std::int32_t>(inputs.layout().sequences() / 2);  // P
    std::vector<std::int32_t> firsts, seconds, right;
    for (std::int32_t i = 0; i < pairs; ++i) {
      right.push_back(i * pairs + i);
      for (std::int32_t j = 0; j < pairs; ++j) {
        firsts.push_back(2 * i);
        seconds.push_back(2 * j + 1);
      }
    }
    const Var rows = linear(tape, converted(tape, inputs["hidden"], tape.compute()), *projection_, nullptr);
    const Var samples = mean_by_sample(tape, rows, inputs.layout());  // (S, 8)
    const Var cosines = cosine(tape, index_select(tape, samples, tape.indices(firsts)),
                               index_select(tape, samples, tape.indices(seconds)));                  // (P P, 1)
    const Var scores = log_softmax(tape, reshaped(tape, scale(tape, cosines, 10), {pairs, pairs}));  // (P, P)
    const Var found = index_select(tape, reshaped(tape, scores, {pairs * pairs, 1}), tape.indices(right));
    outputs.loss(sum_loss(tape, scale(tape, found, -1), inputs.loss_scale()));
  }

 private:
  maestro::Parameter* projection_;
};

/// A soft mixture of linear experts: each row's experts are weighted by the softmax of a router. The loss keeps the
/// experts' mean weights equal: E sum(mean^2) is least, 1, if all are 1 / E (after Shazeer et al. 2017, section 4).
class RouterHead final : public Head {
 public:
  explicit RouterHead(const maestro::SectionContext& context) : Head(context), router_(&matrix("router.weight", 3)) {
    for (int expert = 0; expert < 3; ++expert) {
      experts_.push_back(&matrix("experts." + std::to_string(expert) + ".weight", width));
    }
    context.allocate(parameters_);
  }
  [[nodiscard]] maestro::Ports ports() const override {
    maestro::Ports ports = Head::ports();
    ports.outputs.push_back({"mixed", maestro::DType::f32, width, true, false});
    return ports;
  }
  void forward(maestro::Tape& tape, const maestro::Inputs& inputs, maestro::Outputs& outputs) override {
    using namespace maestro;
    const Var x = converted(tape, inputs["hidden"], tape.compute());
    const Var weights = softmax(tape, linear(tape, x, *router_, nullptr));  // (M, E)
    Var mixed;
    for (std::size_t expert = 0; expert < experts_.size(); ++expert) {
      const Var weight = slice(tape, weights, static_cast<std::int64_t>(expert), 1);    // (M, 1)
      const Var part = mul(tape, linear(tape, x, *experts_[expert], nullptr), weight);  // (M, C)
      mixed = mixed.defined() ? add(tape, mixed, part) : converted(tape, part, DType::f32);
    }
    const Var means = mean_by_sample(tape, weights, inputs.layout());  // (S, E)
    const Var balance = scale(tape, dot(tape, means, means), static_cast<double>(experts_.size()));
    outputs.loss(sum_loss(tape, balance, 0.01 * inputs.loss_scale()));
    outputs.set("mixed", mixed);
  }

 private:
  maestro::Parameter* router_;
  std::vector<maestro::Parameter*> experts_;
};

}  // namespace heads
