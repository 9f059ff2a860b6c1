// SPDX-License-Identifier: Apache-2.0
#include "actors/job/rollout_source.hpp"

#include <algorithm>
#include <utility>

#include "runtime/core/random.hpp"

namespace maestro {

namespace {

constexpr std::uint64_t choice_stream = 0x6d616465;  // "made"
constexpr std::uint64_t draw_stream = 0x726f6c6c;    // "roll"
constexpr std::int64_t ahead_of_slots = 2;           // prompts that a replica holds beyond its slots

}  // namespace

RolloutSource::RolloutSource(caf::actor_config& config, caf::actor supervisor, std::shared_ptr<const Corpus> corpus,
                             Sampler sampler, std::shared_ptr<SampleStore> store, const RolloutOptions& options)
    : RunActor(config, std::move(supervisor)),
      corpus_(corpus),
      sampler_(sampler),
      drawer_(std::move(corpus), std::move(sampler)),
      store_(std::move(store)),
      options_(options),
      book_(options.generator.slots + ahead_of_slots),
      next_step_(options.first_step) {
  store_->clear();  // an earlier start of the run may have drawn other samples
}

void RolloutSource::on_exit() {
  RunActor::on_exit();
  replicas_.clear();
  rollout_.reset();
  early_sender_ = nullptr;
}

std::string RolloutSource::where() const {
  return "data source, step " + std::to_string(step_.value());
}

caf::behavior RolloutSource::make_behavior() {
  return {
      [this](const Directory& directory) { connect(directory); },
      [this](GeneratorReady) { ready(); },
      [this](const BatchRequest& wanted) { request(wanted); },
      [this](SampleMade& made) { take(made); },
      [this](const StepClosed& closed) { store_->drop(closed.step); },
      [this](const BatchWithdrawn& withdrawn) {
        early_.reset();
        if (!rollout_ || rollout_->step != withdrawn.step) return;
        rollout_.reset();
        book_.close();
      },
  };
}

void RolloutSource::connect(const Directory& directory) {
  replicas_.clear();
  for (const ReplicaAddress& replica : directory.replicas()) {
    if (replica.section == options_.section && !replica.shares) replicas_.push_back({replica.actor});
  }
  book_.makers(replicas_.size());
  const VersionsFrom from{version_of(rollout_ ? rollout_->step : next_step_, options_.generator.staleness)};
  for (const Replica& replica : replicas_) send_to(this, replica.actor, from);
}

void RolloutSource::ready() {
  for (Replica& replica : replicas_) {
    if (replica.actor == caf::actor_cast<caf::actor>(current_sender())) replica.ready = true;
  }
  if (!all_ready()) return;
  if (rollout_) go_on();
  if (early_) begin(std::exchange(early_, std::nullopt)->step, std::exchange(early_sender_, nullptr));
}

void RolloutSource::request(const BatchRequest& request) {
  step_ = request.step;
  const auto coordinator = caf::actor_cast<caf::actor>(current_sender());
  if (request.pass != Pass::train) {
    return send_to(this, coordinator, drawer_.validation(request.step, options_.data.validation_samples));
  }
  next_step_ = request.step;
  if (all_ready()) return begin(request.step, coordinator);
  early_ = request;
  early_sender_ = coordinator;
}

void RolloutSource::begin(StepId step, const caf::actor& coordinator) {
  Rollout rollout;
  rollout.step = step;
  rollout.coordinator = coordinator;
  rollout.begun = std::chrono::steady_clock::now();
  const auto size = static_cast<std::uint64_t>(options_.data.global_batch);
  const std::uint64_t first = options_.data.cursor.position(step.value(), size);
  const bool begun = step.value() >= static_cast<std::uint64_t>(options_.generator.from_step);
  std::vector<std::uint32_t> numbers;
  for (std::uint64_t at = 0; at < size; ++at) {
    const SampleId sample = sampler_.at(first + at);
    const bool made =
        begun && is_made_at(first + at, options_.generator.on_policy, mix64(options_.seed, choice_stream));
    if (!made) {
      rollout.samples.push_back(sample);
      continue;
    }
    std::vector<std::int32_t> prompt = prompt_of(sample);
    if (prompt.empty()) {
      left_out_.push_back("sample " + std::to_string(sample.value()) +
                          " lacks a learned answer, which a prompt would stand before");
      continue;
    }
    const auto number = static_cast<std::uint32_t>(at);
    PromptOrder order;
    order.step = step;
    order.version = version_of(step, options_.generator.staleness);
    order.number = number;
    order.seed = mix64(mix64(options_.seed, draw_stream), first + at);
    order.most_tokens = std::min(options_.generator.max_tokens, corpus_->max_length() + 1 - std::ssize(prompt));
    order.tokens = std::move(prompt);
    rollout.samples.push_back(sample_id({step, number}));
    rollout.prompts.emplace(number, Prompt{std::move(order), sample});
    numbers.push_back(number);
  }
  book_.open(std::move(numbers));
  rollout_ = std::move(rollout);
  go_on();
}

std::vector<std::int32_t> RolloutSource::prompt_of(SampleId sample) const {
  const auto length = static_cast<std::size_t>(corpus_->length(Split::train, sample));
  std::vector<std::int32_t> tokens(length), targets(length);
  corpus_->read(Split::train, sample, tokens, targets);
  tokens.resize(static_cast<std::size_t>(prompt_length(targets, options_.generator.prompt_tokens)));
  return tokens;
}

void RolloutSource::go_on() {
  if (!all_ready()) return;  // MK-3
  if (book_.complete()) return answer();
  while (const std::optional<RolloutBook::Order> order = book_.next()) {
    send_to(this, replicas_[order->maker].actor, rollout_->prompts.at(order->number).order);
  }
}

void RolloutSource::take(SampleMade& made) {
  for (std::size_t maker = 0; maker < replicas_.size(); ++maker) {
    if (replicas_[maker].actor == caf::actor_cast<caf::actor>(current_sender())) book_.ended(maker);
  }
  if (!rollout_ || rollout_->step != made.step) return;  // withdrawn, or made twice
  const Prompt& prompt = rollout_->prompts.at(made.number);
  const MadeSamples one{1, std::ssize(made.tokens), made.stopped ? 1 : 0};
  store_->put({made.step, made.number},  // refuses a sample that differs from an earlier one
              {prompt.order.tokens, std::move(made.tokens), std::move(made.log_probabilities)});
  if (!book_.made(made.number)) return;
  rollout_->made.samples += one.samples;
  rollout_->made.tokens += one.tokens;
  rollout_->made.stopped += one.stopped;
  go_on();
}

void RolloutSource::answer() {
  BatchMetadata batch;
  batch.step = rollout_->step;
  batch.left_out = std::exchange(left_out_, {});
  batch.made = rollout_->made;
  const std::chrono::duration<double, std::milli> lasted = std::chrono::steady_clock::now() - rollout_->begun;
  if (batch.made.samples > 0) batch.made.rollout_ms = lasted.count();
  for (const SampleId sample : rollout_->samples) {
    if (!is_made(sample)) {
      drawer_.add(batch, Split::train, {sample});
      continue;
    }
    const MadeSampleId made = made_sample_id(sample);
    SampleRef reference{sample, store_->length(made)};
    reference.prompt = rollout_->prompts.at(made.number).corpus_sample;
    reference.source = corpus_->source(Split::train, reference.prompt);
    batch.samples.push_back(reference);
    batch.target_tokens += store_->targets(made);
  }
  // Every sample of this step is there, so only later steps read weights.
  const VersionsOver over{version_of(StepId(rollout_->step.value() + 1), options_.generator.staleness)};
  for (const Replica& replica : replicas_) send_to(this, replica.actor, over);
  next_step_ = StepId(rollout_->step.value() + 1);
  send_to(this, rollout_->coordinator, std::move(batch));
  rollout_.reset();
  book_.close();
}

}  // namespace maestro
