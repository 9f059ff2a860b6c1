// SPDX-License-Identifier: Apache-2.0
#include "actors/job/rollout_source.hpp"

#include <algorithm>
#include <utility>

namespace maestro {

RolloutSource::RolloutSource(caf::actor_config& config, caf::actor supervisor, std::shared_ptr<const Corpus> corpus,
                             Sampler sampler, std::shared_ptr<SampleStore> store, const RolloutOptions& options)
    : RunActor(config, std::move(supervisor)),
      corpus_(corpus),
      prompts_(corpus, sampler, options.generator, options.seed, options.data),
      drawer_(std::move(corpus), std::move(sampler)),
      store_(std::move(store)),
      options_(options),
      record_(options.record),
      book_(most_held(options.generator)),
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
        early_sender_ = nullptr;
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
    BatchMetadata batch = drawer_.validation(request.step, options_.data.validation_samples);
    batch.shown = record_.take_shown();
    return send_to(this, coordinator, std::move(batch));
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
  std::vector<std::uint32_t> numbers;
  for (DrawnSample& drawn : prompts_.draw(step)) {
    if (!drawn.order) {
      rollout.samples.push_back(drawn.sample);
      continue;
    }
    const std::uint32_t number = drawn.order->number;
    rollout.samples.push_back(sample_id({step, number}));
    rollout.prompts.emplace(number, Prompt{std::move(*drawn.order), drawn.sample});
    numbers.push_back(number);
  }
  book_.open(std::move(numbers));
  rollout_ = std::move(rollout);
  if (record_.reads() && !rollout_->prompts.empty()) return read_back();
  go_on();
}

void RolloutSource::read_back() {
  std::vector<ExpectedSample> expected;
  for (const auto& [number, prompt] : rollout_->prompts) {
    expected.push_back({number, prompt.order.tokens, prompt.order.most_tokens});
  }
  RecordedRollout recorded = record_.read(rollout_->step, expected, corpus_->vocabulary());
  for (auto& [number, seed, stopped, sample] : recorded.samples) {
    Prompt& prompt = rollout_->prompts.at(number);
    prompt.stopped = stopped;
    prompt.order.seed = seed;
    prompt.order.version = recorded.version;
    store_->put({rollout_->step, number}, std::move(sample));
  }
  answer();
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
  Prompt& prompt = rollout_->prompts.at(made.number);
  prompt.stopped = made.stopped;
  rollout_->work += made.work;
  rollout_->replicas.insert(made.replica);
  store_->put({made.step, made.number},  // refuses a sample that differs from an earlier one
              {prompt.order.tokens, std::move(made.tokens), std::move(made.log_probabilities)});
  if (book_.made(made.number)) go_on();
}

RecordedRollout RolloutSource::rollout() const {
  RecordedRollout out;
  out.step = rollout_->step;
  for (const auto& [number, prompt] : rollout_->prompts) {
    out.version = prompt.order.version;
    out.samples.push_back({number, prompt.order.seed, prompt.stopped, store_->sample({out.step, number})});
  }
  return out;
}

void RolloutSource::answer() {
  BatchMetadata batch;
  batch.step = rollout_->step;
  if (!rollout_->prompts.empty()) {
    const std::chrono::duration<double, std::milli> lasted = std::chrono::steady_clock::now() - rollout_->begun;
    const RecordedRollout made = rollout();
    record_.keep(made);
    batch.made = summary_of(made);
    batch.made.most_tokens = options_.generator.max_tokens;
    batch.made.replicas = std::ssize(rollout_->replicas);
    batch.made.work = rollout_->work;
    batch.made.rollout_ms = lasted.count();
  }
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
