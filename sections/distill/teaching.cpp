// SPDX-License-Identifier: Apache-2.0
#include "sections/distill/teaching.hpp"

#include <exception>
#include <latch>
#include <mutex>
#include <utility>

#include "runtime/device/cpu_device.hpp"
#include "sections/section_runner.hpp"
#include "sections/state_io.hpp"

namespace maestro {

namespace {

/// Builds a frozen section with its values.
std::shared_ptr<Section> build(const TeachingOptions& options) {
  std::shared_ptr<Section> section = options.factory(options.context);
  const bool later = section->parameters().values_later();
  if (later) section->freeze();  // values are packed as they come
  if (!options.weights.empty()) {
    load_weights(*section, options.weights).or_throw();
  } else if (later) {
    section->parameters().initialise();
  }
  if (!later) section->freeze();
  return section;
}

}  // namespace

/// A micro-batch: samples of one split.
struct Teaching::Part {
  MicroBatchPlan plan;
  std::optional<ShardRows> rows;  // set when it is done
};

class Teaching::Worker {
 public:
  Worker(std::int64_t core, std::shared_ptr<Section> section, const SectionContext& context)
      : runner_(std::move(section), context, {}, 1),
        device_("cpu:" + std::to_string(core), static_cast<int>(core), *context.ops) {}

  Device& device() { return device_; }
  ShardRows run(const Part& part, const Corpus& corpus, const TeacherRecords& records) {
    const auto rows = part.plan.rows();
    const auto k = records.k;
    tokens_.resize(static_cast<std::size_t>(rows));
    targets_.resize(tokens_.size());
    values_.resize(tokens_.size() * static_cast<std::size_t>(k));
    indices_.resize(values_.size());
    rest_.resize(tokens_.size());
    std::size_t first = 0;
    for (const SampleRef& sample : part.plan.samples) {
      const auto count = static_cast<std::size_t>(sample.tokens);
      corpus.read(split_of(part), sample.id, std::span(tokens_).subspan(first, count),
                  std::span(targets_).subspan(first, count));
      first += count;
    }
    const PortTensor inputs[] = {{"tokens", {tokens_.data(), DType::i32, {rows, 1}}}};
    const PortTensor outputs[] = {{"top_values", {values_.data(), DType::f32, {rows, k}}},
                                  {"top_indices", {indices_.data(), DType::i32, {rows, k}}},
                                  {"rest", {rest_.data(), DType::f32, {rows, 1}}}};
    (void)runner_.forward(part.plan, inputs, outputs);
    return recorded(part, records);
  }
  static Split split_of(const Part& part) { return part.plan.pass == Pass::train ? Split::train : Split::validation; }

 private:
  [[nodiscard]] ShardRows recorded(const Part& part, const TeacherRecords& records) const {
    ShardRows result(records.k, records.p);
    const auto k = static_cast<std::size_t>(records.k);
    std::size_t row = 0;
    for (const SampleRef& sample : part.plan.samples) {
      result.begin_sample();
      for (std::int64_t at = 0; at < sample.tokens; ++at, ++row) {
        result.add(std::span(values_).subspan(row * k, k), std::span(indices_).subspan(row * k, k), rest_[row]);
      }
    }
    return result;
  }

  SectionRunner runner_;
  std::vector<std::int32_t> tokens_, targets_, indices_;
  std::vector<float> values_, rest_;
  CpuDevice device_;  // last: its thread ends before the members that it uses
};

Teaching::Teaching(std::shared_ptr<const Corpus> corpus, TeachingOptions options)
    : corpus_(std::move(corpus)), options_(std::move(options)) {
  std::shared_ptr<Section> section = build(options_);
  for (std::int64_t core = 0; core < options_.threads; ++core) {
    if (core > 0 && !section->shareable()) section = build(options_);
    workers_.push_back(std::make_unique<Worker>(core, section, options_.context));
  }
}

Teaching::~Teaching() = default;

std::vector<Teaching::Part> Teaching::cut(const TeacherRecords& records, TeacherRecords::Samples samples) const {
  std::vector<Part> parts;
  for (std::uint64_t number = samples.first; number < samples.first + samples.count; ++number) {
    const bool train = number < records.training_samples;
    SampleRef sample;
    sample.id = SampleId(train ? number : number - records.training_samples);
    sample.tokens = corpus_->length(train ? Split::train : Split::validation, sample.id);
    const Pass pass = train ? Pass::train : Pass::evaluate;
    const auto fits = [&](const MicroBatchPlan& plan) {
      const bool few = static_cast<std::int64_t>(plan.samples.size()) < options_.micro_batch;
      const std::int64_t most = options_.micro_batch_tokens;
      return plan.pass == pass && few && (most == 0 || plan.rows() + sample.tokens <= most);
    };
    if (parts.empty() || !fits(parts.back().plan)) {
      parts.emplace_back();
      parts.back().plan.pass = pass;
    }
    parts.back().plan.samples.push_back(sample);
  }
  return parts;
}

void Teaching::run(std::vector<Part>& parts, const TeacherRecords& records, const std::atomic<bool>& stop) {
  std::atomic<std::size_t> next = 0;
  std::mutex mutex;
  std::exception_ptr failure;
  std::latch done(static_cast<std::ptrdiff_t>(workers_.size()));
  for (const auto& worker : workers_) {
    worker->device().submit(Priority::critical, [&, each = worker.get()] {
      try {
        for (std::size_t at = next++; at < parts.size() && !stop; at = next++) {
          parts[at].rows = each->run(parts[at], *corpus_, records);
        }
      } catch (...) {
        const std::scoped_lock lock(mutex);
        failure = std::current_exception();
        next = parts.size();
      }
      done.count_down();
    });
  }
  done.wait();
  if (failure) std::rethrow_exception(failure);
}

std::optional<ShardRows> Teaching::rows(const TeacherRecords& records, TeacherRecords::Samples samples,
                                        const std::atomic<bool>& stop) {
  std::vector<Part> parts = cut(records, samples);
  run(parts, records, stop);
  ShardRows all(records.k, records.p);
  for (const Part& part : parts) {
    if (!part.rows) return std::nullopt;
    all.append(*part.rows);
  }
  return all;
}

}  // namespace maestro
