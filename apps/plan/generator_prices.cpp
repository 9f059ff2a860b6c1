// SPDX-License-Identifier: Apache-2.0
#include "apps/plan/generator_prices.hpp"

#include <memory>
#include <sstream>

#include "runtime/files/checksum.hpp"
#include "runtime/rehearsal/generation_costs.hpp"

namespace maestro {

namespace {

constexpr std::size_t code_digits = 8;

double price(const CallPrices& prices, const OperatorCall& call) {
  PriceSources unused;
  return prices.ms(call, unused);
}

}  // namespace

GeneratorPrices::GeneratorPrices(const ResolvedJob& plan) : plan_(&plan), section_(*plan.rollouts->section) {
  const Section& section = *plan.meta_sections[section_.value()];
  const GenerationProbeOptions options = probe();
  std::ostringstream text;
  text << section.config_json() << section.description() << ' ' << plan.held[section_.value()].all << ' '
       << options.slots << ' ' << options.positions << ' ' << options.vocabulary << ' ' << options.sampling.temperature
       << ' ' << options.sampling.top_k << ' ' << options.sampling.top_p;
  code_ = checksum_of(text.str()).substr(0, code_digits);
}

GenerationProbeOptions GeneratorPrices::probe() const {
  const GeneratorConfig& config = plan_->rollouts->config;
  GenerationProbeOptions options;
  options.slots = config.slots;
  options.positions = plan_->corpus->max_length();
  options.prompt = config.prompt_tokens > 0 ? config.prompt_tokens : options.positions / 2;
  options.vocabulary = plan_->corpus->vocabulary();
  options.sampling = sampling_of(config);
  return options;
}

std::string GeneratorPrices::name_of(TimedGeneration::Kind kind) const {
  switch (kind) {
    case TimedGeneration::Kind::prefill:
      return "prefill " + code_;
    case TimedGeneration::Kind::decode:
      return "decode " + code_;
    case TimedGeneration::Kind::publish:
      return "publish " + code_;
    default:
      return "take " + code_;
  }
}

OperatorCall GeneratorPrices::call(TimedGeneration::Kind kind, std::int64_t sequences, std::int64_t rows) const {
  return {name_of(kind), plan_->sections[section_.value()].config.precision, {rows, sequences}};
}

void GeneratorPrices::add(const std::vector<TimedGeneration>& times, CallPrices& prices) const {
  for (const TimedGeneration& each : times) prices.add(call(each.kind, each.sequences, each.rows), each.ms);
}

bool GeneratorPrices::measured(const CallPrices& prices) const {
  return prices.has(call(TimedGeneration::Kind::take, 1, 0));
}

GenerationTimes GeneratorPrices::times(const CallPrices& prices) const {
  const auto costs = std::make_shared<GenerationCosts>();
  const DType precision = plan_->sections[section_.value()].config.precision;
  for (const auto& [measured, ms] : prices.measured()) {
    if (measured.dtype != precision) continue;
    if (measured.op == name_of(TimedGeneration::Kind::prefill)) costs->add_prefill(measured.sizes[0], ms);
    if (measured.op == name_of(TimedGeneration::Kind::decode)) {
      costs->add_decode(measured.sizes[1], measured.sizes[0], ms);
    }
  }
  GenerationTimes times;
  times.prefill = [costs](std::int64_t rows) { return costs->prefill(rows); };
  times.decode = [costs](std::int64_t sequences, std::int64_t rows) { return costs->decode(sequences, rows); };
  times.take_ms = price(prices, call(TimedGeneration::Kind::take, 1, 0));
  return times;
}

double GeneratorPrices::publish_ms(const CallPrices& prices) const {
  double parts = 0;  // ranks that copy a part
  for (const GraphRegister& edge : plan_->graph.registers()) {
    if (edge.to != section_) continue;
    const GraphNode& sender = plan_->graph.node(edge.from);
    parts += static_cast<double>(sender.replicas * sender.layout.holders());
  }
  return price(prices, call(TimedGeneration::Kind::publish, 1, 0)) / parts;
}

}  // namespace maestro
