// SPDX-License-Identifier: Apache-2.0
#include "actors/replica/generation_replica.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "runtime/core/last_words.hpp"
#include "sections/weight_version.hpp"

namespace maestro {

struct GenerationReplica::Model {
  Model(std::shared_ptr<Generator> decoder, Device& device, DType precision)
      : section(decoder), generation(device.ops(), std::move(decoder), precision, [&device] { complete(device); }) {}

  std::shared_ptr<Generator> section;
  Generation generation;
  std::optional<Completions> completions;  // of the current version
  std::deque<PromptOrder> orders;          // of `completions`, in their order; own the prompts' tokens
  std::vector<std::size_t> open;           // completions that have not ended
};

struct GenerationReplica::Job {
  std::optional<ArrivedTensor> take;      // nothing: no new version
  std::shared_ptr<const VersionMap> map;  // of `take`
  std::vector<PromptOrder> begin;
  std::vector<SampleMade> made;  // result, as `work`
  GenerationWork work;
};

namespace {

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

std::shared_ptr<Generator> generator_of(const ReplicaSpec& spec) {
  auto generator = std::dynamic_pointer_cast<Generator>(spec.ranks.at(0).runner->shared_section());
  if (generator == nullptr) throw std::logic_error("a replica that makes samples has another section");
  return generator;
}

}  // namespace

GenerationReplica::GenerationReplica(caf::actor_config& config, ReplicaSpec spec, GenerationOptions options)
    : RunActor(config, spec.supervisor),
      spec_(std::move(spec)),
      options_(std::move(options)),
      trace_(*spec_.trace, *spec_.graph, {spec_.section, spec_.replica, LayoutRank(0)}),
      model_(std::make_shared<Model>(generator_of(spec_), *spec_.ranks[0].device,
                                     spec_.ranks[0].runner->context().precision)),
      receiver_(std::make_unique<WeightReceiver>(spec_, caf::actor_cast<caf::actor>(this))) {}

void GenerationReplica::on_exit() {
  RunActor::on_exit();
  spec_.supervisor = nullptr;
  source_ = nullptr;
  if (receiver_) receiver_->leave();
}

caf::behavior GenerationReplica::make_behavior() {
  return {
      [this](AddressRequest) {
        ReplicaAddress address;
        address.section = spec_.section;
        address.replica = spec_.replica;
        address.process = spec_.process;
        address.actor = caf::actor_cast<caf::actor>(this);
        address.shares = spec_.shares;
        return address;
      },
      [this](const Directory& directory) { connect(directory); },
      [this](const PromptOrder& order) {
        orders_[order.version].push_back(order);
        pump();
      },
      [this](const PieceHandOver& piece) {
        check(receiver_->handed_over(piece));
        pump();
      },
      [this](const RingEvent& event) {
        check(receiver_->landed(event.immediate));
        pump();
      },
      [this](const VersionsFrom& from) {
        source_ = caf::actor_cast<caf::actor>(current_sender());
        receiver_->begin(from.first);
      },
      [this](VersionsPromised) {
        if (receiver_->promised()) send_to(this, source_, GeneratorReady{});
      },
      [this](const VersionsOver& over) { check(receiver_->release_before(over.before)); },
      [this](Retire) { retire(); },
      [](const PlacementsMoved&) {},
      [this](const WorkDone&) { job_done(); },
      [this](const Failure& failure) { report(failure.message, failure.service_lost); },
      [this](StatusRequest) { return status(); },
  };
}

std::string GenerationReplica::where() const {
  const std::string place =
      spec_.graph->node(spec_.section).name + "' replica " + std::to_string(spec_.replica.value());
  return "section '" + place + ", weights before step " + std::to_string(version_.value());
}

void GenerationReplica::connect(const Directory& directory) {
  try {
    WeightOutbox outbox;
    outbox.wanted = [this](const caf::actor& to, VersionsWanted wanted) { send_to(this, to, std::move(wanted)); };
    outbox.credit = [this](const caf::actor& to, Credit credit) { send_to(this, to, Credits{{std::move(credit)}}); };
    receiver_->connect(directory, std::move(outbox));
  } catch (const JobError& problem) {
    report(problem.what());
  }
}

void GenerationReplica::retire() {
  source_ = nullptr;
  orders_.clear();
  receiver_->leave();
  const auto ended = [this] { job_ = nullptr; };
  ignore_other_messages(this, {[ended](const WorkDone&) { ended(); }, [ended](const Failure&) { ended(); },
                               [this](MemoryDue) { job_ != nullptr ? await_release() : receiver_.reset(); }});
  await_release();
}

void GenerationReplica::await_release() {
  delayed_send(this, 2 * std::chrono::milliseconds(spec_.network->options().timeout_ms), MemoryDue{});
}

void GenerationReplica::check(const Status& status) {
  if (!status) report(status.error().message);
}

void GenerationReplica::pump() {
  ++events_;
  if (job_ != nullptr) return;
  auto job = std::make_shared<Job>();
  if (unfinished_ == 0 && !orders_.empty() && orders_.begin()->first != version_) {  // GK-1
    const StepId next = orders_.begin()->first;
    if (!receiver_->complete(next)) return;
    Result<ArrivedTensor> arrived = receiver_->open(next);
    if (!arrived) return report(arrived.error().message);
    version_ = next;
    job->take = std::move(*arrived);
    job->map = receiver_->map();
  }
  if (const auto own = orders_.find(version_); own != orders_.end()) {
    std::ranges::move(own->second, std::back_inserter(job->begin));
    orders_.erase(own);
    unfinished_ += job->begin.size();
  }
  if (unfinished_ == 0) return;
  job_ = std::move(job);
  submit();
}

void GenerationReplica::submit() {
  const std::string name = "section '" + spec_.graph->node(spec_.section).name + "'";
  const auto traced = [this](std::string_view label) { return trace_.work(label, TraceCategory::forward, version_); };
  auto work = [self = caf::actor_cast<caf::actor>(this), name, take = traced("take"), prefill = traced("prefill"),
               decode = traced("decode"), job = job_, model = model_, options = options_, section = spec_.section,
               replica = spec_.replica, epoch = spec_.epoch] {
    const FaultPlace place(name.c_str());
    auto begin = Clock::now();
    try {
      Model& here = *model;
      if (!here.section->used_by(epoch)) return send_from_outside(self, WorkDone{});  // this replica is retired
      if (job->take) {
        for (const ArrivedTensor::Copy& copy : job->take->copies) std::memcpy(copy.to, copy.from, copy.bytes);
        take_weights(*here.section, *job->map, job->take->tensor);
        here.generation.reserve(options.slots, options.positions);
        here.completions.emplace(here.generation, options.limits, options.sampling);
        here.orders.clear();
        take.finished(begin);
        job->work.take_ms = ms_since(std::exchange(begin, Clock::now()));
      }
      for (PromptOrder& order : job->begin) {
        here.orders.push_back(std::move(order));
        const PromptOrder& kept = here.orders.back();
        here.open.push_back(here.completions->all().size());
        here.completions->add({.tokens = kept.tokens, .seed = kept.seed, .max_tokens = kept.most_tokens});
      }
      const double slots_busy =
          std::min(1.0, static_cast<double>(here.open.size()) / static_cast<double>(options.slots));
      if (here.completions->read()) prefill.finished(begin);
      const auto read = Clock::now();
      TracedWork written = decode;
      written.sequences = here.completions->writing();
      if (here.completions->write()) written.finished(read);
      job->work.busy_ms = ms_since(begin);
      job->work.slot_ms = job->work.busy_ms * slots_busy;
      std::erase_if(here.open, [&](std::size_t at) {
        const Completion& completion = here.completions->all()[at];
        if (!completion.finish) return false;
        const PromptOrder& order = here.orders[at];
        SampleMade made{section,
                        replica,
                        order.step,
                        order.number,
                        completion.tokens,
                        completion.log_probabilities,
                        completion.finish == FinishReason::stop,
                        {}};
        if (made.stopped) made.tokens.push_back(completion.stop_token);
        job->made.push_back(std::move(made));
        return true;
      });
      send_from_outside(self, WorkDone{});
    } catch (const std::exception& problem) {
      send_from_outside(self, Failure{problem.what()});
    }
  };
  spec_.ranks[0].device->submit(Priority::background, std::move(work));
}

void GenerationReplica::job_done() {
  const std::shared_ptr<Job> job = std::exchange(job_, nullptr);
  unfinished_ -= job->made.size();
  if (job->take) check(receiver_->release_before(StepId(version_.value() + 1)));
  work_ += job->work;
  for (SampleMade& made : job->made) {
    made.work = std::exchange(work_, {});
    send_to(this, source_, std::move(made));
  }
  pump();
}

WaitingFor GenerationReplica::status() const {
  WaitingFor waiting;
  waiting.section = spec_.section;
  waiting.replica = spec_.replica;
  waiting.events = events_;
  waiting.step = version_;
  waiting.peer = spec_.section;
  if (job_ != nullptr) {
    waiting.doing = "generate";
    return waiting;
  }
  waiting.kind = orders_.empty() ? WaitKind::prompts : WaitKind::version;
  if (!orders_.empty()) waiting.step = orders_.begin()->first;
  for (const GraphRegister& each : spec_.graph->registers()) {
    if (each.to == spec_.section) waiting.peer = each.from;
  }
  return waiting;
}

}  // namespace maestro
