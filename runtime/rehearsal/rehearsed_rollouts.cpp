// SPDX-License-Identifier: Apache-2.0
#include "runtime/rehearsal/rehearsed_rollouts.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace maestro {

RehearsedRollouts::RehearsedRollouts(VirtualClock& clock, const GeneratorShape& shape, const GenerationTimes& times,
                                     double hop_ms, Run run)
    : clock_(&clock),
      shape_(shape),
      times_(&times),
      hop_ms_(hop_ms),
      run_(std::move(run)),
      book_(shape.held),
      replicas_(shape.replicas) {
  book_.makers(shape.replicas);
}

void RehearsedRollouts::begin(const RehearsedRollout& rollout, VirtualClock::Event done) {
  rollout_ = rollout;
  done_ = std::move(done);
  begun_ms_.reset();
  std::vector<std::uint32_t> numbers(rollout_.samples.size());
  std::iota(numbers.begin(), numbers.end(), 0U);
  book_.open(std::move(numbers));
  hand_out();
}

void RehearsedRollouts::published(StepId version) {
  published_ = std::max(published_, version);
  for (std::size_t replica = 0; replica < replicas_.size(); ++replica) pump(replica);
}

void RehearsedRollouts::hand_out() {
  while (const std::optional<RolloutBook::Order> order = book_.next()) {
    clock_->after(hop_ms_, [this, order = *order] {
      replicas_[order.maker].waiting.push_back({order.number, rollout_.samples[order.number]});
      pump(order.maker);
    });
  }
}

void RehearsedRollouts::pump(std::size_t at) {
  Replica& replica = replicas_[at];
  if (replica.working || (replica.idle() && replica.waiting.empty())) return;
  double ms = 0;
  if (replica.version != rollout_.version) {
    if (published_ < rollout_.version) return;
    replica.version = rollout_.version;
    ms = times_->take_ms;
  }
  if (!begun_ms_) begun_ms_ = clock_->now_ms();
  std::vector<std::uint32_t> ended;
  ms += advance(replica, ended);
  replica.working = true;
  run_(at, ms, [this, at, ended = std::move(ended)] {
    clock_->after(hop_ms_, [this, at, ended] {
      for (const std::uint32_t number : ended) clock_->after(hop_ms_, [this, at, number] { made(at, number); });
      replicas_[at].working = false;
      pump(at);
    });
  });
}

double RehearsedRollouts::advance(Replica& replica, std::vector<std::uint32_t>& ended) const {
  double ms = 0;
  const auto open = std::ssize(replica.writing) + (replica.reading ? 1 : 0);
  if (!replica.reading && open < shape_.slots && !replica.waiting.empty()) {
    replica.reading = replica.waiting.front();
    replica.waiting.pop_front();
  }
  if (replica.reading) {
    Sequence& sequence = *replica.reading;
    const std::int64_t rows = std::min(shape_.block_rows, sequence.lengths.prompt - sequence.read);
    ms += times_->prefill(rows);
    sequence.read += rows;
    if (sequence.read == sequence.lengths.prompt) {  // the prompt's last row gives the first token
      sequence.written = 1;
      if (sequence.lengths.completion == 1) {
        ended.push_back(sequence.number);
      } else {
        replica.writing.push_back(sequence);
      }
      replica.reading.reset();
    }
  }
  if (replica.writing.empty()) return ms;
  std::int64_t rows = 0;
  for (const Sequence& sequence : replica.writing) rows += sequence.read + sequence.written;
  ms += times_->decode(std::ssize(replica.writing), rows);
  std::erase_if(replica.writing, [&](Sequence& sequence) {
    if (++sequence.written < sequence.lengths.completion) return false;
    ended.push_back(sequence.number);
    return true;
  });
  return ms;
}

void RehearsedRollouts::made(std::size_t replica, std::uint32_t number) {
  book_.ended(replica);
  (void)book_.made(number);
  if (!book_.complete()) return hand_out();
  rollouts_ms_.push_back(clock_->now_ms() - *begun_ms_);
  std::exchange(done_, {})();
}

double rollout_ms(const GeneratorShape& shape, const GenerationTimes& times, double hop_ms,
                  const std::vector<MadeLengths>& samples) {
  VirtualClock clock;
  RehearsedRollouts rollouts(clock, shape, times, hop_ms, [&clock](std::size_t, double ms, VirtualClock::Event done) {
    clock.after(ms, std::move(done));
  });
  rollouts.begin({StepId(1), samples}, [] {});
  while (clock.next()) {
  }
  return rollouts.rollouts_ms().front();
}

}  // namespace maestro
